"""What one sender can cost a relay is bounded, and nobody else pays for it."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from contextlib import ExitStack
from http.client import HTTPException, HTTPResponse
from pathlib import Path

import pytest

from shoal.protocol.encryption import EncryptedReports
from shoal.server.core.clock import GuardedClock
from tests.server.store_help import told
from tests.server.test_clock import Machine

from .relay_help import (
    LONG,
    LONGEST,
    WEEKLY,
    WHOLE,
    FakeAnalyzer,
    RelayWorld,
    in_relay,
    made,
    party_plan,
    reachable,
    sealed,
    story,
)
from .relay_process import Process

WIDE_CROWD = party_plan("wide crowd", crowd=1000)


def over(relay: Process, upload: EncryptedReports, times: int) -> list[int]:
    """Send an upload so often over one connection; return the answers until it is closed."""
    body = upload.to_bytes()
    head = (
        f"POST /v1/plans/{upload.plan_id}/encrypted HTTP/1.1\r\nHost: r\r\n"
        f"Content-Type: application/vnd.shoal.encrypted\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    statuses = []
    with relay.connect() as connection:
        for _ in range(times):
            try:
                connection.sendall(head.encode() + body)
                answer = HTTPResponse(connection)
                answer.begin()
                answer.read()  # an answer may come in several pieces
            except (OSError, HTTPException):
                break
            statuses.append(answer.status)
    return statuses


@pytest.mark.slow
class TestOneSender:
    def test_fills_no_more_than_its_share(self, tmp_path: Path) -> None:
        """One per cent of a crowd of 1,000 are ten reports, also when the same come again."""
        reports = made(WIDE_CROWD, 40, seed=1)
        with (
            reachable(FakeAnalyzer(WIDE_CROWD)) as url,
            Process(tmp_path, WIDE_CROWD, url, max_share_percent=1) as relay,
        ):
            relay.start()
            key = relay.crowd_key(WIDE_CROWD)
            single, ten, eleven = (sealed(WIDE_CROWD, key, reports[:n]) for n in (1, 10, 11))
            assert over(relay, eleven, 1) == [413]
            assert over(relay, ten, 2) == [202]  # the connection ends with its share
            assert over(relay, single, 12) == [202] * 10
            assert over(relay, single, 1) == [202]  # another one is not charged for it

    def test_spends_no_more_than_its_rate(self, tmp_path: Path) -> None:
        """A hundred reports at once are owed for more than a minute, by this connection only."""
        reports = made(WIDE_CROWD, 100, seed=2)
        with (
            reachable(FakeAnalyzer(WIDE_CROWD)) as url,
            Process(tmp_path, WIDE_CROWD, url, reports_per_second=1) as relay,
        ):
            relay.start()
            upload = sealed(WIDE_CROWD, relay.crowd_key(WIDE_CROWD), reports)
            assert over(relay, upload, 3) == [202, 429]
            assert over(relay, upload, 1) == [202]

    def test_who_sends_slowly_makes_room(self, tmp_path: Path) -> None:
        """Forty bodies that never end, at a relay that takes ten connections."""
        report = made(LONG, 1, seed=3)
        with (
            reachable(FakeAnalyzer(LONG)) as url,
            Process(tmp_path, LONG, url, max_connections=10) as relay,
            ExitStack() as slow,
        ):
            relay.start()
            key = relay.crowd_key(LONG)
            for _ in range(40):
                connection = slow.enter_context(relay.connect())
                connection.sendall(
                    f"POST /v1/plans/{LONG.id}/encrypted HTTP/1.1\r\nHost: r\r\n"
                    "Content-Type: application/vnd.shoal.encrypted\r\n"
                    "Content-Length: 500\r\n\r\nSHOAL".encode()
                )
            assert over(relay, sealed(LONG, key, report), 1) == [202]

    def test_a_large_body_is_refused_before_it_comes(self, tmp_path: Path) -> None:
        with reachable(FakeAnalyzer(LONG)) as url, Process(tmp_path, LONG, url) as relay:
            relay.start()
            relay.crowd_key(LONG)
            before = relay.resident(peak=True)
            with relay.connect() as connection:
                connection.sendall(
                    f"POST /v1/plans/{LONG.id}/encrypted HTTP/1.1\r\nHost: r\r\n"
                    "Content-Type: application/vnd.shoal.encrypted\r\n"
                    "Content-Length: 1000000000\r\n\r\n".encode()
                )
                answer = connection.recv(1 << 16)
            assert answer.split()[1] == b"413"
            assert relay.resident(peak=True) - before < 16 << 20

    def test_a_request_without_end_is_timed_out(self, tmp_path: Path) -> None:
        with (
            reachable(FakeAnalyzer(LONG)) as url,
            Process(tmp_path, LONG, url, request_timeout=1) as relay,
        ):
            relay.start()
            with relay.connect() as connection:
                connection.settimeout(LONGEST)
                connection.sendall(b"POST /v1/plans/")
                while connection.recv(1 << 16):
                    pass  # it is closed, with or without an answer


@told(story, WHOLE)
async def test_a_full_disk_is_told_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, world: RelayWorld
) -> None:
    usage = namedtuple("usage", "total used free")
    reports = made(WHOLE, 20, seed=4)
    key = await world.key(WHOLE)
    assert await world.post(sealed(WHOLE, key, reports[:9])) == 202
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 0))
        world.relay.service.check_space()
        answer = await world.send(sealed(WHOLE, key, reports[9:]))
        assert answer.status_code == 507
        assert json.loads(answer.content)["type"] == "urn:shoal:problem:storage-full"
        ready = await world.clients["console"].get("/readyz")
        assert ready.status_code == 507
    world.relay.service.check_space()
    assert await world.post(sealed(WHOLE, key, reports[9:])) == 202
    (where,) = await world.forwarded(WHOLE, 1)
    assert len(world.analyzer.opened(where)) == 20


class TestClock:
    def test_ten_days_ahead_for_a_while_destroys_nothing(self, tmp_path: Path) -> None:
        machine, analyzer = Machine(), FakeAnalyzer(WEEKLY)
        clock: GuardedClock = machine.clock()
        reports = made(WEEKLY, 20, seed=5)

        async def live(world: RelayWorld) -> None:
            await world.relay.publish(WEEKLY)
            window = int(clock() // (7 * 86_400))
            key = await world.key(WEEKLY, window)
            assert await world.post(sealed(WEEKLY, key, reports[:9])) == 202
            machine.wall += 10 * 86_400
            await world.relay.service.in_store(world.relay.sweep)
            assert world.relay.service.clock_is_held
            crowds = await world.relay.service.in_store(world.relay.store.crowds, WEEKLY.id)
            assert {one.state for one in crowds} == {"open"}
            assert await world.post(sealed(WEEKLY, key, reports[9:])) == 202
            await world.forwarded(WEEKLY, 1)

        in_relay(live, tmp_path, analyzer, clock)
