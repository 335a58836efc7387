"""Reports for a leader and a helper: split once, the same bytes until accepted, counted once."""

from __future__ import annotations

from dataclasses import replace
from http.client import HTTPResponse
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from shoal import Flags, Plan, PrivacyRefusal, Survey
from shoal.device.outbox import HttpTransport, PostResult, TransportError
from shoal.device.outbox.oblivious import ObliviousTransport
from shoal.device.outbox.retry import KEY_CHANGED, MAX_CROWDS
from shoal.device.sharing import task_of, upload_status
from shoal.device.telemetry.describe import Terms, terms_in_words
from shoal.device.telemetry.log import Log, LoggedTransport
from shoal.errors import InputError
from shoal.protocol.dap import SecretKey, Undecryptable
from shoal.protocol.dap.messages import (
    HpkeConfigList,
    ReportFault,
    ReportUploadStatus,
    Role,
    UploadErrors,
    UploadRequest,
)
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Parties, Promise
from shoal.protocol.vdaf import AggregatorInput
from shoal.protocol.wire import ID_BYTES, SHARED_MAGIC, split_batch
from shoal.support.files import canonical_json
from tests.device.outbox_help import ANSWER, Server, box, reply, stored_record
from tests.device.telemetry_help import World
from tests.faults import Clock, Crash, Faults, FaultyDisk

WEEK = 7 * 86_400
WEIGHT = 12
PLAN = Plan(
    Survey("browser", (Flags("features", tuple(f"f{i}" for i in range(64))),)),
    FlipProbability(1, 3),
    Promise("proven", "900", delta="1e-6"),
    crowd_size=100,
    window=WEEK,
    view="counts",
    parties=Aggregators("https://leader.example", "https://helper.example", WEIGHT),
)
TRUSTED: dict[str, Any] = {"limit": 1000, "recompute": False}
LATER = 7 * 3600


class Pair:
    """A leader and a helper in this process: each report id counts once, if it verifies."""

    address = "https://leader.example:443"
    windows = (1999, 2000, 3001, 3002)

    def __init__(self, *script: PostResult | Exception, plan: Plan = PLAN) -> None:
        self.plan, self.script, self.faults = plan, list(script), Faults()
        self.posted: list[bytes] = []
        self.asked: list[str] = []
        self.accepted: dict[bytes, int] = {}
        self.generation = 0

    def secret(self, role: Role, window: int) -> SecretKey:
        return SecretKey(window % 256, bytes([role, window % 256, self.generation]).ljust(32, b"s"))

    def fetch_plan(self, plan_id: str) -> bytes:
        return canonical_json(self.plan.to_json())

    def fetch_hpke_keys(self, endpoint: str) -> bytes:
        self.faults.step("before keys")
        self.asked.append(endpoint)
        (role,) = (one for one in Role if task_endpoint(self.plan, one) == endpoint)
        keys = (self.secret(role, window).public for window in self.windows)
        return HpkeConfigList(tuple(keys)).to_bytes()

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        self.faults.step("before post")
        self.posted.append(content)
        outcome: PostResult | Exception = PostResult(202)
        if self.script:
            outcome = self.script.pop(0)
        else:
            try:
                report_id, value = self.opened(content)
                self.accepted.setdefault(report_id, value)
            except Undecryptable:
                outcome = PostResult(KEY_CHANGED)
        self.faults.step("after post")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def opened(self, content: bytes) -> tuple[bytes, int]:
        """Return a report's id and bits, which both verified together."""
        (report,) = UploadRequest.from_bytes(content.removeprefix(SHARED_MAGIC)).reports
        task, metadata, public = task_of(self.plan), report.report_metadata, report.public_share
        leader, helper = (
            AggregatorInput(
                metadata.report_id,
                public,
                task.open_input_share(
                    role, self.secret(role, metadata.time), metadata, public, ciphertext
                ),
            )
            for role, ciphertext in (
                (Role.LEADER, report.leader_encrypted_input_share),
                (Role.HELPER, report.helper_encrypted_input_share),
            )
        )
        both = task.verification(b"seed")
        state, request = both.leader_init(leader)
        share, response = both.helper_init(helper, request)
        shares = [both.leader_finish(state, response), share]
        found = task.prio3.unshard([task.prio3.aggregate([one]) for one in shares], 1)
        return metadata.report_id, sum(bit << place for place, bit in enumerate(found))


def task_endpoint(plan: Plan, role: Role) -> str | None:
    return task_of(plan).endpoint(role) if role in (Role.LEADER, Role.HELPER) else None


def stored_bits(folder: Path) -> tuple[bytes, int]:
    """The id and the bits of the report that waits in a folder."""
    content = split_batch(PLAN, stored_record(folder).batch).content
    return content[:ID_BYTES], int.from_bytes(content[ID_BYTES + 4 :], "little")


def a_clock() -> Clock:
    return Clock(WEEK * 2000.0 + 1000)


class TestSending:
    def test_what_arrives_is_what_was_stored(self, tmp_path):
        pair = Pair()
        outbox = box(tmp_path, pair, a_clock(), **TRUSTED)
        outbox.answer(PLAN, ANSWER)
        report_id, bits = stored_bits(tmp_path)
        assert 0 < bits.bit_count() <= WEIGHT
        assert [one.state for one in outbox.send_due()] == ["sent"]
        assert pair.accepted == {report_id: bits}
        assert pair.asked == [task_endpoint(PLAN, one) for one in (Role.LEADER, Role.HELPER)]
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert pair.posted[0].removeprefix(SHARED_MAGIC) not in kept
        assert report_id not in kept

    def test_the_same_bytes_until_accepted(self, tmp_path):
        clock, pair = a_clock(), Pair(TransportError("no."), PostResult(503), PostResult(200))
        box(tmp_path, pair, clock, **TRUSTED).answer(PLAN, ANSWER)
        for _ in range(4):  # each time another process
            box(tmp_path, pair, clock, **TRUSTED).send_due()
            clock.now += LATER
        assert len(pair.posted) == 4
        assert len(set(pair.posted)) == 1
        assert len(pair.asked) == 2
        assert len(pair.accepted) == 1

    def test_shares_are_made_again_for_three_keys_at_most(self, tmp_path):
        clock, pair = a_clock(), Pair(*[PostResult(KEY_CHANGED)] * 100)
        outbox = box(tmp_path, pair, clock, **TRUSTED)
        outbox.answer(PLAN, ANSWER)
        report_id, _ = stored_bits(tmp_path)
        for _ in range(10):
            box(tmp_path, pair, clock, **TRUSTED).send_due()
            clock.now += LATER
        assert len(set(pair.posted)) == MAX_CROWDS
        assert all(pair.opened(content)[0] == report_id for content in pair.posted)
        (ticket,) = outbox.tickets()
        assert ticket.state == "expired"
        assert "keys in turn" in str(ticket.reason)

    def test_a_key_that_was_replaced(self, tmp_path):
        clock, pair = a_clock(), Pair(TransportError("no."))
        outbox = box(tmp_path, pair, clock, **TRUSTED)
        outbox.answer(PLAN, ANSWER)
        _, bits = stored_bits(tmp_path)
        outbox.send_due()
        pair.generation += 1
        clock.now += LATER
        assert [one.state for one in outbox.send_due()] == ["sent"]
        first, again, anew = pair.posted
        assert first == again != anew
        assert list(pair.accepted.values()) == [bits]

    @pytest.mark.parametrize(
        "keys", [b"", b"<html>", HpkeConfigList(()).to_bytes(), TransportError("no network.")]
    )
    @pytest.mark.parametrize("whose", ["leader", "helper"])
    def test_without_both_keys_nothing_is_sent(self, tmp_path, keys, whose):
        clock, pair = a_clock(), Pair()
        good = pair.fetch_hpke_keys

        def fetch(endpoint: str) -> bytes:
            if whose not in endpoint:
                return good(endpoint)
            if isinstance(keys, Exception):
                raise keys
            return bytes(keys)

        pair.fetch_hpke_keys = fetch  # type: ignore[method-assign]
        outbox = box(tmp_path, pair, clock, **TRUSTED)
        outbox.answer(PLAN, ANSWER)
        (ticket,) = outbox.send_due()
        assert ticket.state == "waiting"
        assert "keys of leader and helper" in str(ticket.reason) or "network" in str(ticket.reason)
        assert not pair.posted
        pair.fetch_hpke_keys = good  # type: ignore[method-assign]
        clock.now += LATER
        assert [one.state for one in outbox.send_due()] == ["sent"]

    def test_a_crash_at_every_step(self, tmp_path):
        at = 0
        while True:
            folder, pair, clock = tmp_path / str(at), Pair(), a_clock()
            pair.faults = faults = Faults(at)
            try:
                outbox = box(folder, pair, clock, **TRUSTED, disk=FaultyDisk(faults))
                outbox.answer(PLAN, ANSWER)
                outbox.send_due()
                break
            except Crash:
                pass
            pair.faults = Faults()
            outbox = box(folder, pair, clock, **TRUSTED)
            outbox.answer(PLAN, ANSWER)
            for _ in range(2):
                clock.now += LATER
                outbox.send_due()
            assert [one.state for one in outbox.tickets()] == ["sent"]
            assert len(set(pair.posted)) == len(pair.accepted) == 1
            at += 1
        assert at > 20


class TestRefusals:
    def test_one_operator(self, tmp_path):
        parties = Aggregators("https://leader.example", "https://leader.example:8443", WEIGHT)
        plan = replace(PLAN, parties=parties)
        with pytest.raises(PrivacyRefusal, match="can put every report together"):
            box(tmp_path, Pair(plan=plan), a_clock(), **TRUSTED).answer(plan, ANSWER)
        outbox = box(tmp_path, Pair(plan=plan), a_clock(), one_operator=True, **TRUSTED)
        assert outbox.answer(plan, ANSWER).state == "waiting"

    def test_another_address_than_the_leader(self, tmp_path):
        pair = Pair()
        pair.address = "https://helper.example:443"
        with pytest.raises(PrivacyRefusal, match="go to the leader https://leader"):
            box(tmp_path, pair, a_clock(), **TRUSTED).answer(PLAN, ANSWER)

    def test_oblivious_http(self):
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
    return replace(PLAN, parties=Aggregators(*origins, WEIGHT))


@pytest.fixture
def servers():
    both = Server(), Server()
    yield both
    for one in both:
        one.close()


class TestHttp:
    def test_a_login_page_is_no_leader(self, tmp_path, servers):
        leader, helper = servers
        plan, clock = at_servers(leader, helper), a_clock()
        pair = Pair(plan=plan)
        for server, role in ((leader, Role.LEADER), (helper, Role.HELPER)):
            keys = pair.fetch_hpke_keys(str(task_endpoint(plan, role)))
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
        endpoint, permitted = str(task_endpoint(plan, Role.HELPER)), [True]
        log = Log(tmp_path / "log", a_clock())
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
            return reply(200, pair.fetch_hpke_keys(str(task_endpoint(plan, role))))

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
        assert all(pair.opened(one)[1].bit_count() <= WEIGHT for one in bodies)

    def test_a_person_reads_both_addresses(self):
        parties = PLAN.parties
        assert isinstance(parties, Aggregators)
        told = terms_in_words(Terms(PLAN, parties.leader, "1000", None))[-1]
        assert parties.leader in told
        assert parties.helper in told

    def test_one_operator_is_refused(self, tmp_path):
        parties = Aggregators("https://leader.example", "https://leader.example:8443", WEIGHT)
        plan = replace(PLAN, parties=parties)
        with pytest.raises(PrivacyRefusal, match="one operator"):
            World(tmp_path, parties.leader, plan, limit=1000).tool().check(features=["f1"])


def test_a_plan_with_a_relay_is_not_shared():
    assert not isinstance(PLAN.parties, Parties)
    parties = Parties("https://r.example", "https://a.example")
    with pytest.raises(InputError, match="no leader"):
        task_of(replace(PLAN, view="reports", parties=parties))
