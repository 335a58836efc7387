"""A relay that cannot do its work says so, and both parties know which crowds have ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan
from shoal.errors import InputError, TransportError
from shoal.protocol.encryption import CrowdKey
from shoal.server.core.parties import PeerReply
from shoal.server.relay import documents, forwarding
from shoal.server.storage.key_file import Signer, change_key
from tests.server.store_help import DAY, Clock, told

from .relay_help import (
    LONG,
    LONGEST,
    WEEKLY,
    WHOLE,
    FakeAnalyzer,
    RelayWorld,
    in_relay,
    made,
    problem,
    story,
    until,
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(forwarding, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(forwarding, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(documents, "CONFIRM_SECONDS", 0.0)
    monkeypatch.setattr(documents, "PAUSE_SECONDS", 0.01)


async def readiness(world: RelayWorld) -> str:
    """The problem that /readyz names, or ready."""
    answer = (await world.clients["console"].get("/readyz")).json()
    return str(answer.get("type", answer.get("status"))).removeprefix("urn:shoal:problem:")


async def metric(world: RelayWorld, name: str) -> float:
    text = (await world.clients["console"].get("/metrics")).text
    return float(next(one for one in text.splitlines() if one.startswith(f"{name} ")).split()[1])


async def opened(world: RelayWorld, plan: Plan, crowds: int) -> None:
    """Wait until the relay has opened so many crowds."""
    async with asyncio.timeout(LONGEST):
        while len(await world.relay.service.in_store(world.relay.store.crowds, plan.id)) < crowds:
            await asyncio.sleep(0.01)


def at(end: str, reply: Any) -> Callable[[str, str], Any]:
    """A fault of the requests whose path ends so."""

    def happens(method: str, path: str) -> Any:
        if not path.endswith(end):
            return None
        if isinstance(reply, Exception):
            raise reply
        return reply

    return happens


SILENT = TransportError("nobody answers.")


class TestReadiness:
    @told(story, WEEKLY)
    async def test_ready_with_a_key_for_this_window(self, world: RelayWorld) -> None:
        assert await readiness(world) == "ready"
        assert await metric(world, "shoal_plans_without_key") == 0

    @told(in_relay, WHOLE)
    async def test_without_a_key_it_is_not_ready(self, world: RelayWorld) -> None:
        """Every device gets 503, so the relay is of no use."""
        analyzer = world.analyzer
        analyzer.fault = at("/crowd-keys", SILENT)
        await world.relay.publish(WHOLE)
        await until(lambda: "certificate" in str(world.relay.cache._documents))
        assert (await world.get_key(WHOLE)).status_code == 503
        assert await readiness(world) == "no-key"
        assert await metric(world, "shoal_plans_without_key") == 1

    def test_crowds_that_wait_are_counted_from_the_data(self, tmp_path: Path) -> None:
        """The analyzer does not answer, so that no attempt has ended yet."""
        analyzer, answers, asked = FakeAnalyzer(WHOLE), threading.Event(), threading.Event()

        async def live(world: RelayWorld) -> None:
            await world.report(WHOLE, made(WHOLE, 60, seed=1))
            await world.relay.service.in_store(world.relay.store.sweep)
            world.relay.forwarder.wake()
            await until(asked.is_set)
            assert await metric(world, "shoal_crowds_waiting") == 3
            await until(lambda: world.relay.forwarder.stalled_for > 1)
            assert await readiness(world) in ("forward-stalled", "no-key")
            answers.set()
            await world.forwarded(WHOLE, 3)
            assert await metric(world, "shoal_crowds_waiting") == 0

        def ask(*given: Any) -> PeerReply:
            if given[0] == "PUT":
                asked.set()
                answers.wait(60)
            return FakeAnalyzer.ask(analyzer, *given)

        setattr(analyzer, "ask", ask)  # noqa: B010  it answers late
        try:
            story(live, tmp_path, WHOLE, analyzer, forward_alarm=1)
        finally:
            answers.set()

    @told(story, WHOLE, forward_alarm=1)
    async def test_a_crowd_that_does_not_arrive_in_time(self, world: RelayWorld) -> None:
        analyzer = world.analyzer
        assert await readiness(world) == "ready"
        analyzer.fault = at("/chunks/0", SILENT)
        await world.report(WHOLE, made(WHOLE, 20, seed=2))
        await until(lambda: world.relay.forwarder.stalled_for > 1)
        assert await readiness(world) == "forward-stalled"
        analyzer.fault = lambda method, path: None
        await world.forwarded(WHOLE, 1)
        await until(lambda: world.relay.forwarder.stalled_for == 0)
        assert await readiness(world) == "ready"


class TestDeadlines:
    @told(in_relay, WHOLE)
    async def test_a_misfit_stops_the_start(self, world: RelayWorld) -> None:
        analyzer = world.analyzer
        analyzer.fault = at("/crowd-keys", problem(409, "deadlines-misfit"))
        await world.relay.publish(WHOLE)
        await until(lambda: world.relay.prefetcher.misfits)
        with pytest.raises(InputError, match=r"deadline_days = 45.* at most half of the analyz"):
            await world.relay.check_deadlines()
        assert await readiness(world) == "deadlines-misfit"
        analyzer.fault = lambda method, path: None  # the analyzer has another deadline now
        await until(lambda: not world.relay.prefetcher.misfits)
        await world.relay.check_deadlines()

    @told(in_relay, WHOLE)
    async def test_a_silent_analyzer_does_not(self, world: RelayWorld) -> None:
        analyzer = world.analyzer
        analyzer.fault = at("", SILENT)
        await world.relay.publish(WHOLE)
        await world.relay.check_deadlines()


class TestEndedCrowds:
    @pytest.mark.parametrize("plan", [WEEKLY, WHOLE], ids=["window", "deadline"])
    def test_the_analyzer_is_told(self, plan: Plan, tmp_path: Path) -> None:
        analyzer, clock = FakeAnalyzer(plan), Clock()

        async def live(world: RelayWorld) -> None:
            await world.relay.publish(plan)
            await opened(world, plan, 9 if plan is WEEKLY else 3)
            first = set(analyzer.private)
            clock.now += 45 * DAY
            await world.relay.service.in_store(world.relay.store.sweep)
            await until(lambda: set(analyzer.discarded) >= first)

        in_relay(live, tmp_path, analyzer, clock)
        assert len(analyzer.discarded) == len(set(analyzer.discarded))

    def test_it_is_told_until_it_hears(self, tmp_path: Path) -> None:
        analyzer = FakeAnalyzer(WHOLE)
        analyzer.fault = at("/discard", SILENT)

        async def closes(world: RelayWorld) -> None:
            await opened(world, WHOLE, 3)
            await world.relay.cache.close_plan(WHOLE.id, by="somebody")
            world.relay.prefetcher.wake()
            await until(lambda: any("discard" in path for _, path in analyzer.asked))

        story(closes, tmp_path, WHOLE, analyzer)
        assert analyzer.discarded == []
        analyzer.fault = lambda method, path: None

        async def goes_on(world: RelayWorld) -> None:
            await until(lambda: sorted(analyzer.discarded) == sorted(analyzer.private))

        in_relay(goes_on, tmp_path, analyzer)

    def test_it_is_told_with_the_key_that_it_knows(self, tmp_path: Path) -> None:
        """While a relay's key changes, the analyzer may still have the old one."""
        analyzer = FakeAnalyzer(WHOLE)
        story(lambda world: opened(world, WHOLE, 3), tmp_path, WHOLE, analyzer)
        analyzer.relay_key = Signer(tmp_path).public_key
        change_key(tmp_path, overlap_days=90)

        async def closes(world: RelayWorld) -> None:
            await world.relay.cache.close_plan(WHOLE.id, by="somebody")
            world.relay.prefetcher.wake()
            await until(lambda: sorted(analyzer.discarded) == sorted(analyzer.private))

        in_relay(closes, tmp_path, analyzer)

    @pytest.mark.slow
    def test_only_the_analyzer_says_that_it_knows_of_no_crowd(self, tmp_path: Path) -> None:
        """A proxy in front of it that answers 404 does not count."""
        analyzer = FakeAnalyzer(WHOLE)
        analyzer.fault = at("/discard", PeerReply(404, {}, b"<h1>Not Found</h1>"))

        async def closes(world: RelayWorld) -> None:
            await opened(world, WHOLE, 3)
            await world.relay.cache.close_plan(WHOLE.id, by="somebody")
            world.relay.prefetcher.wake()
            await until(lambda: any("discard" in path for _, path in analyzer.asked))
            analyzer.fault = lambda method, path: None
            await until(lambda: sorted(analyzer.discarded) == sorted(analyzer.private))

        story(closes, tmp_path, WHOLE, analyzer)

    def test_a_plan_that_is_refused_does_not_hold_up_others(self, tmp_path: Path) -> None:
        """One plan is paused at the analyzer, or not covered by the token; others go on."""
        first, second = sorted((WHOLE, LONG), key=lambda plan: plan.id)
        analyzer = FakeAnalyzer(first, second)

        def refused(method: str, path: str) -> Any:
            if first.id in path and path.endswith(("/discard", "/crowd-keys")):
                return problem(503, "paused")
            if path.endswith("/crowd-keys"):
                return lambda reply: analyzer.signed(
                    analyzer.crowd_key(
                        second, 0, max(CrowdKey.from_bytes(reply.content).crowd, 4)
                    ).to_bytes()
                )
            return None

        async def live(world: RelayWorld) -> None:
            for plan in (first, second):
                await world.relay.publish(plan)
                await opened(world, plan, 3)
            analyzer.fault = refused
            for _ in range(2):
                with pytest.raises(TransportError, match="paused"):
                    await world.relay.prefetcher.fetch()
            assert (second.id, 0, 1) in analyzer.discarded
            await world.relay.cache.close_plan(first.id, by="somebody")
            await world.relay.cache.close_plan(second.id, by="somebody")
            with pytest.raises(TransportError, match="paused"):
                await world.relay.prefetcher.fetch()
            everything = {where for where in analyzer.private if where[0] == second.id}
            assert set(analyzer.discarded) == everything

        in_relay(live, tmp_path, analyzer)

    @told(story, WHOLE)
    async def test_a_plan_that_the_analyzer_closed_is_closed_here(self, world: RelayWorld) -> None:
        """Reports that nobody will open are not taken, and what came of them is destroyed."""
        analyzer = world.analyzer
        await world.report(WHOLE, made(WHOLE, 5, seed=3))
        analyzer.fault = at("/crowd-keys", problem(410, "plan-closed"))
        await until(lambda: next(iter(world.relay.cache.plans.values())).state == "closed")
        assert (await world.get_key(WHOLE)).status_code == 410
        keys = await world.relay.service.in_store(
            lambda: world.relay.store.database.execute(
                "SELECT count(*) FROM wrapped_keys"
            ).fetchone()[0]
        )
        assert keys == 0

    @told(story, WHOLE)
    async def test_a_crowd_that_ended_at_the_analyzer_is_discarded(self, world: RelayWorld) -> None:
        analyzer = world.analyzer

        def goes_on_with(reply: PeerReply) -> PeerReply:
            asked = CrowdKey.from_bytes(reply.content).crowd
            return analyzer.signed(analyzer.crowd_key(WHOLE, 0, max(asked, 4)).to_bytes())

        await world.report(WHOLE, made(WHOLE, 5, seed=4))
        await opened(world, WHOLE, 3)
        analyzer.fault = at("/crowd-keys", goes_on_with)
        world.relay.prefetcher.wake()
        await until(lambda: b"shoal_crowds_discarded_total 3.0" in world.relay.metrics_text())
        assert "a crowd has ended at the analyzer" in world.log.getvalue()
        async with asyncio.timeout(LONGEST):
            while (await world.key(WHOLE)).crowd != 4:
                await asyncio.sleep(0.01)
        found = await world.relay.service.in_store(world.relay.store.crowds, WHOLE.id)
        assert {one.crowd: one.state for one in found[:3]} == (
            dict.fromkeys((1, 2, 3), "discarded")
        )


def test_a_foreign_file_among_the_chunks_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chunks").mkdir()
    foreign = tmp_path / "chunks" / ".DS_Store"
    foreign.write_bytes(b"x")

    async def live(world: RelayWorld) -> None:
        await world.report(WHOLE, made(WHOLE, 20, seed=5))
        await world.forwarded(WHOLE, 1)
        await until(lambda: "a foreign file is left alone" in world.log.getvalue())
        await until(lambda: list((tmp_path / "chunks").iterdir()) == [foreign])

    story(live, tmp_path, WHOLE)
    assert foreign.read_bytes() == b"x"
