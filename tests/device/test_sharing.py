"""Reports for a leader and a helper: split once, the same bytes until accepted, counted once."""

from __future__ import annotations

from dataclasses import replace
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

import pytest

from shoal import Plan, PrivacyRefusal
from shoal.device.outbox import HttpTransport, TransportError
from shoal.device.outbox.oblivious import ObliviousTransport
from shoal.device.sharing import task_of, upload_status
from shoal.device.telemetry.describe import Terms, terms_in_words
from shoal.device.telemetry.log import Log, LoggedTransport
from shoal.errors import InputError
from shoal.protocol.dap.messages import (
    ReportFault,
    ReportUploadStatus,
    Role,
    UploadErrors,
    UploadRequest,
)
from shoal.protocol.plan import Aggregators, Parties
from shoal.protocol.wire import ID_BYTES
from tests.device.outbox_help import ANSWER, Server, box, reply
from tests.device.parties_help import SHARED, WEIGHT, Pair
from tests.device.telemetry_help import World
from tests.faults import Clock

TRUSTED: dict[str, Any] = {"limit": 1000, "recompute": False}
LATER = 7 * 3600


def test_oblivious_http():
    transport = ObliviousTransport("https://leader.example", "https://relay.example/")
    with pytest.raises(InputError, match="not sent by Oblivious HTTP"):
        transport.fetch_hpke_keys("https://helper.example/dap/x/")


class _Response(HTTPResponse):
    def __init__(self, head: bytes, body: bytes) -> None:
        class Socket:
            def makefile(self, *_: object) -> BytesIO:
                length = b"Content-Length: %d\r\n\r\n" % len(body)
                return BytesIO(b"HTTP/1.1 " + head + b"\r\n" + length + body)

        super().__init__(Socket())  # type: ignore[arg-type]
        self.begin()


ERRORS = b"200 OK\r\nContent-Type: application/ppm-dap;message=upload-errors"


class TestResponses:
    @pytest.mark.parametrize(
        ("head", "body", "status"),
        [
            (b"200 OK", b"", 202),
            (b"200 OK\r\nContent-Type: text/html", b"<html>Log in", 200),
            (b"302 Found\r\nLocation: https://hotel.example", b"", 302),
            (b"503 Busy", b"", 503),
            (ERRORS, b"short", 400),
            (ERRORS, bytes(ID_BYTES) + b"\xff", 400),
        ],
    )
    def test_the_status_of_a_response(self, head, body, status):
        assert upload_status(_Response(head, body)) == status

    @pytest.mark.parametrize(
        ("fault", "status"),
        [
            (ReportFault.REPORT_REPLAYED, 202),
            (ReportFault.BATCH_COLLECTED, 202),
            (ReportFault.OUTDATED_CONFIG, 412),
            (ReportFault.HPKE_UNKNOWN_CONFIG_ID, 412),
            (ReportFault.REPORT_TOO_EARLY, 425),
            (ReportFault.REPORT_DROPPED, 410),
            (ReportFault.INVALID_MESSAGE, 400),
        ],
    )
    def test_the_status_of_a_report(self, fault, status):
        body = UploadErrors((ReportUploadStatus(bytes(ID_BYTES), fault),)).to_bytes()
        assert upload_status(_Response(ERRORS, body)) == status


def at_servers(leader: Server, helper: Server) -> Plan:
    """The plan for two servers on this machine, under two names."""
    origins = leader.url, helper.url.replace("127.0.0.1", "localhost")
    return replace(SHARED, parties=Aggregators(*origins, WEIGHT))


@pytest.fixture
def servers():
    both = Server(), Server()
    yield both
    for one in both:
        one.close()


class TestHttp:
    def test_a_login_page_is_no_leader(self, tmp_path, servers):
        leader, helper = servers
        plan = at_servers(leader, helper)
        pair = Pair(plan=plan)
        clock = pair.clock
        for server, role in ((leader, Role.LEADER), (helper, Role.HELPER)):
            keys = pair.fetch_hpke_keys(str(pair.endpoint(role)))
            server.answers = [reply(200, keys)]
        leader.answers += [reply(200, b"<html>Log in"), reply(200)]
        outbox = box(tmp_path, HttpTransport(leader.url), clock, **TRUSTED)
        outbox.answer(plan, ANSWER)
        assert [one.state for one in outbox.send_due()] == ["waiting"]
        clock.now += LATER
        assert [one.state for one in outbox.send_due()] == ["sent"]
        (_, path, headers, first), (*_, again) = leader.requests[1:]
        assert first == again
        assert pair.opened(first)
        assert path.startswith("/dap/")
        assert path.endswith("/reports")
        assert dict(headers)["Content-Type"] == "application/ppm-dap;message=upload-req"
        assert [method for method, *_ in helper.requests] == ["GET"]

    def test_requests_for_keys_are_logged_and_can_be_forbidden(self, tmp_path, servers):
        leader, helper = servers
        plan = at_servers(leader, helper)
        endpoint, permitted = str(Pair(plan=plan).endpoint(Role.HELPER)), [True]
        log = Log(tmp_path / "log", Clock())
        transport = LoggedTransport(leader.url, log, lambda: permitted[0], token="secret")
        helper.answers = [reply(200, b"keys")]
        assert transport.fetch_hpke_keys(endpoint) == b"keys"
        (request,) = log.requests()
        assert request.to == helper.url.replace("127.0.0.1", "localhost")
        assert b"/hpke_config" in request.sent
        assert b"secret" not in request.sent
        permitted[0] = False
        with pytest.raises(TransportError, match="turned off"):
            transport.fetch_hpke_keys(endpoint)
        assert len(helper.requests) == 1


class TestTelemetry:
    def test_one_report_per_window(self, tmp_path, servers):
        leader, helper = servers
        plan = at_servers(leader, helper)
        pair = Pair(plan=plan)

        def keys(role: Role) -> Any:
            return reply(200, pair.fetch_hpke_keys(str(pair.endpoint(role))))

        leader.usual = lambda handler: (
            reply(200) if handler.command == "POST" else keys(Role.LEADER)
        )(handler)
        helper.usual = lambda handler: keys(Role.HELPER)(handler)
        world = World(tmp_path, leader.url, plan, limit=1000).say_yes()
        for _ in range(2):
            world.tool().record(features=["f1"])
            world.next_window()
            for _ in range(3):
                world.work()
        bodies = [body for method, _, _, body in leader.requests if method == "POST"]
        assert len(bodies) == 2
        windows = {UploadRequest.from_bytes(one).reports[0].report_metadata.time for one in bodies}
        assert len(windows) == 2
        opened = [pair.opened(one) for one in bodies]
        assert all(one is not None and one[1].bit_count() <= WEIGHT for one in opened)

    def test_a_person_reads_both_addresses(self):
        parties = SHARED.parties
        assert isinstance(parties, Aggregators)
        told = terms_in_words(Terms(SHARED, parties.leader, "1000", None))[-1]
        assert parties.leader in told
        assert parties.helper in told

    def test_one_operator_is_refused(self, tmp_path):
        parties = Aggregators("https://leader.example", "https://leader.example:8443", WEIGHT)
        plan = replace(SHARED, parties=parties)
        with pytest.raises(PrivacyRefusal, match="one operator"):
            World(tmp_path, parties.leader, plan, limit=1000).tool().check(features=["f1"])


def test_a_plan_with_a_relay_is_not_shared():
    assert not isinstance(SHARED.parties, Parties)
    parties = Parties("https://r.example", "https://a.example")
    with pytest.raises(InputError, match="no leader"):
        task_of(replace(SHARED, view="reports", parties=parties))
