"""Sealed reports in, whole shuffled crowds out: each report in exactly one, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shoal import Plan
from shoal.errors import PlanError
from shoal.protocol.encryption import CrowdKey
from shoal.protocol.plan import Aggregators, Promise
from tests.server.store_help import told

from .relay_help import (
    LONG,
    SEALED,
    WEEKLY,
    WHOLE,
    FakeAnalyzer,
    RelayWorld,
    contents_of,
    in_relay,
    made,
    problem,
    sealed,
    story,
    this_window,
    until,
)


@pytest.mark.parametrize("plan", [WHOLE, LONG, WEEKLY], ids=lambda plan: plan.survey.name)
def test_a_whole_crowd_arrives_and_nothing_else(plan: Plan, tmp_path: Path) -> None:
    analyzer = FakeAnalyzer(plan)
    reports = made(plan, 30, seed=1)

    async def live(world: RelayWorld) -> None:
        analyzer.relay_key = world.relay.service.signer.public_key
        await world.publish(plan)
        for report in reports[:19]:
            await world.report(plan, [report])
        assert analyzer.crowds == {}
        await world.report(plan, [reports[19]])
        (where,) = await world.forwarded(plan, 1)
        assert where == (plan.id, this_window(plan), 1)
        for report in reports[20:]:
            await world.report(plan, [report])
        arrived = analyzer.opened(where)
        assert len(arrived) == 20
        assert contents_of(reports[:20]) == {one: arrived.count(one) for one in arrived}

    in_relay(live, tmp_path, analyzer)
    assert len(analyzer.crowds) == 1


@pytest.mark.slow
def test_keys_are_asked_for_in_the_order_of_crowds(tmp_path: Path) -> None:
    """The analyzer numbers crowds as they are asked for, whatever request fails."""
    failing = [problem(401, "token-needed"), problem(401, "token-needed")]
    analyzer = FakeAnalyzer(LONG)

    def fault(method: str, path: str) -> object:
        return failing.pop() if path.endswith("crowd-keys") and failing else None

    analyzer.fault = fault

    async def live(world: RelayWorld) -> None:
        await until(lambda: len(analyzer.private) == 3)

    story(live, tmp_path, LONG, analyzer)
    assert list(analyzer.private) == [(LONG.id, 0, crowd) for crowd in (1, 2, 3)]


class TestOnce:
    @told(story, WHOLE)
    async def test_a_repeated_report_is_forwarded_once(self, world: RelayWorld) -> None:
        reports = made(WHOLE, 20, seed=2)
        key = await world.key(WHOLE)
        upload = sealed(WHOLE, key, reports[:10])
        assert [await world.post(upload) for _ in range(4)] == [202] * 4
        twice = replace(upload, content=upload.content[: 2 * upload.length] * 2)
        assert await world.post(twice) == 202
        assert await world.post(sealed(WHOLE, key, reports[:10])) == 202  # sealed again
        assert await world.post(sealed(WHOLE, key, reports[10:])) == 202
        (where,) = await world.forwarded(WHOLE, 1)
        assert contents_of(reports) == dict.fromkeys(world.analyzer.opened(where), 1)

    @told(story, WHOLE)
    async def test_the_same_id_twice_in_one_request_is_one_report(self, world: RelayWorld) -> None:
        reports = made(WHOLE, 20, seed=2)
        key = await world.key(WHOLE)
        other = replace(reports[1], name=reports[0].name)
        assert await world.post(sealed(WHOLE, key, [reports[0], other])) == 202
        assert await world.post(sealed(WHOLE, key, reports[1:])) == 202
        (where,) = await world.forwarded(WHOLE, 1)
        assert contents_of(reports) == dict.fromkeys(world.analyzer.opened(where), 1)

    @pytest.mark.parametrize("plan", [WHOLE, LONG], ids=lambda plan: plan.survey.name)
    def test_a_report_that_was_accepted_is_known_whatever_its_key(
        self, plan: Plan, tmp_path: Path
    ) -> None:
        reports = made(plan, 45, seed=3)

        async def live(world: RelayWorld) -> None:
            first = await world.key(plan)
            late = sealed(plan, first, reports[20:21])
            assert await world.post(sealed(plan, first, reports[:20])) == 202
            assert (await world.key(plan)).crowd == 2
            # Known reports, sealed for the crowd that is gone: their sender did not hear of it.
            assert await world.post(sealed(plan, first, reports[3:7])) == 202
            answer = await world.send(late)
            assert (answer.status_code, answer.json()["type"]) == (
                412, "urn:shoal:problem:key-changed",
            )  # fmt: skip
            await world.report(plan, reports[15:40])
            await world.forwarded(plan, 2)
            await world.report(plan, reports[40:])

        analyzer = story(live, tmp_path, plan)
        arrived = [one for where in analyzer.complete(plan) for one in analyzer.opened(where)]
        assert contents_of(reports[:40]) == {one: arrived.count(one) for one in arrived}

    def test_what_fits_is_taken_and_the_rest_is_sealed_again(self, tmp_path: Path) -> None:
        reports = made(WHOLE, 40, seed=4)

        async def live(world: RelayWorld) -> None:
            key = await world.key(WHOLE)
            assert await world.post(sealed(WHOLE, key, reports[:12])) == 202
            assert await world.post(sealed(WHOLE, key, reports[10:25])) == 412
            (where,) = await world.forwarded(WHOLE, 1)
            known = set(world.analyzer.opened(where))
            assert len(known) == 20
            assert known <= set(contents_of(reports[:25]))
            await world.report(WHOLE, reports[:25])
            await world.report(WHOLE, reports[25:])
            await world.forwarded(WHOLE, 2)

        analyzer = story(live, tmp_path, WHOLE)
        arrived = [one for where in analyzer.complete(WHOLE) for one in analyzer.opened(where)]
        assert contents_of(reports) == {one: arrived.count(one) for one in arrived}

    def test_a_restart_changes_nothing(self, tmp_path: Path) -> None:
        analyzer, reports = FakeAnalyzer(LONG), made(LONG, 20, seed=5)
        for start in range(0, 20, 4):

            async def live(world: RelayWorld, start: int = start) -> None:
                await world.report(LONG, reports[max(start - 2, 0) : start + 4])
                if start == 16:
                    await world.forwarded(LONG, 1)

            story(live, tmp_path, LONG, analyzer)
        (where,) = analyzer.complete(LONG)
        assert contents_of(reports) == dict.fromkeys(analyzer.opened(where), 1)


class TestKeys:
    @told(story, WHOLE)
    async def test_only_the_key_of_the_open_crowd(self, world: RelayWorld) -> None:
        key, reports = await world.key(WHOLE), made(WHOLE, 1, seed=6)
        for other in (
            world.analyzer.crowd_key(WHOLE, 0, 2),
            replace(key, public_key=bytes(range(32))),
        ):
            assert await world.post(sealed(WHOLE, other, reports)) == 412
        assert await world.post(sealed(WHOLE, key, reports)) == 202

    @told(story, WHOLE)
    async def test_documents_are_passed_on_as_they_came(self, world: RelayWorld) -> None:
        client, analyzer = world.clients["public"], world.analyzer
        for path in (f"/v1/plans/{WHOLE.id}", f"/v1/plans/{WHOLE.id}/certificate"):
            answer, theirs = await client.get(path), analyzer.ask("GET", path, None, {})
            assert answer.content == theirs.content
            for name in ("shoal-signature", "shoal-key"):
                assert answer.headers[name] == theirs.headers[name]
        keys = await client.get("/v1/keys")
        assert keys.content == analyzer.ask("GET", "/v1/keys", None, {}).content
        answer = await world.get_key(WHOLE)
        assert answer.headers["cache-control"] == "no-store"
        assert CrowdKey.from_bytes(answer.content) == analyzer.crowd_key(WHOLE, 0, 1)
        assert (await client.get(f"/v1/plans/{'0' * 64}")).status_code == 404
        assert (await client.get(f"/v1/plans/{'0' * 64}/crowd-key")).status_code == 404

    @told(story, WEEKLY)
    async def test_windows(self, world: RelayWorld) -> None:
        now = this_window(WEEKLY)
        statuses = [
            (await world.get_key(WEEKLY, window)).status_code for window in (now - 2, now + 2, now)
        ]
        assert statuses == [410, 425, 200]
        key = await world.key(WEEKLY)
        for window, status in ((now - 2, 410), (now + 2, 425)):
            other = replace(sealed(WEEKLY, key, made(WEEKLY, 1, seed=7)), window=window)
            assert await world.post(other) == status

    @told(in_relay, FakeAnalyzer())
    async def test_a_plan_of_a_collector_is_refused(self, world: RelayWorld) -> None:
        plan = replace(WHOLE, parties=None)
        with pytest.raises(PlanError, match="shoal serve"):
            await world.relay.publish(plan)

    @told(in_relay, FakeAnalyzer())
    async def test_a_plan_of_a_leader_and_a_helper_is_refused(self, world: RelayWorld) -> None:
        promise = Promise("proven", "99", delta="1e-6")
        counts = replace(LONG, parties=None, view="counts", promise=promise, window=604_800)
        shared = Aggregators("https://leader.example", "https://helper.example", 4)
        with pytest.raises(PlanError, match="use shoal leader"):
            await world.relay.publish(replace(counts, parties=shared))

    @told(story, WHOLE)
    async def test_other_bodies_are_refused(self, world: RelayWorld) -> None:
        upload = sealed(WHOLE, await world.key(WHOLE), made(WHOLE, 2, seed=8)).to_bytes()
        client, path = world.clients["public"], f"/v1/plans/{WHOLE.id}/encrypted"
        for body in (b"", upload[:-1], upload + b"x", b"SHUFFL\1" + upload[7:], b"{}"):
            assert (await client.post(path, content=body, headers=SEALED)).status_code == 400
        headers = {"content-type": "application/json"}
        assert (await client.post(path, content=upload, headers=headers)).status_code == 415
        assert (await client.get(path)).status_code == 405
