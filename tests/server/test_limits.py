"""What a sender may bring: how much at once, from one connection, in a second, and with a token."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Plan
from shoal.analysis.report_files import Batch, parse_batch
from shoal.errors import InputError, PrivacyRefusal
from shoal.server.collector import ingest
from shoal.server.collector.ingest import split_by_window
from shoal.server.core import ingest as core_ingest
from shoal.server.core import problems
from shoal.server.core.ingest import Allowance, Committer, ReportLimits, limits_document
from shoal.server.core.problems import Problem
from shoal.server.core.settings import Settings

from .privacy_help import (
    BINARY,
    FLAGS_PLAN,
    LONG_PLAN,
    NOW,
    TEXT_PLAN,
    Headers,
    World,
    in_world,
    make_reports,
    serving,
    with_world,
)
from .test_bad_input import raw, request

NARROW: dict[str, Any] = {"reports_per_request": 100, "max_share_percent": 1}
"""The limits that a collector has unless it is told otherwise."""
LARGE = replace(FLAGS_PLAN, crowd_size=50_000)
SMALL = replace(FLAGS_PLAN, survey=replace(FLAGS_PLAN.survey, name="small"), crowd_size=1000)


def reports(plan: Plan, count: int, seed: int = 0) -> Batch:
    return make_reports(plan, count, np.random.default_rng(seed))


def problem_of(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition(":")[2]


class TestSizes:
    def test_the_defaults_are_narrow(self):
        settings = Settings()
        assert {name: getattr(settings, name) for name in NARROW} == NARROW
        assert ReportLimits.of(LARGE, settings) == (100, 500)
        assert ReportLimits.of(SMALL, settings) == (10, 10)
        assert ReportLimits.of(FLAGS_PLAN, settings) == (1, 1)
        assert ReportLimits.of(replace(FLAGS_PLAN, crowd_size=20), settings) == (1, 1)
        assert ReportLimits.of(replace(SMALL, honest_fraction="0.5"), settings) == (20, 20)

    @with_world(**NARROW)
    async def test_a_request_brings_so_many_and_a_relay_more(self, world: World) -> None:
        for plan in (LARGE, SMALL):
            await world.publish(plan)
        relay = await world.relay()
        app = {"authorization": f"Bearer {await world.make_token('app')}"}
        for headers in ({}, app):
            assert (await world.upload(reports(LARGE, 100), headers)).status_code == 202
            for batch in (reports(LARGE, 101), reports(SMALL, 11)):
                answer = await world.upload(batch, headers)
                assert (answer.status_code, problem_of(answer)) == (413, "too-many-reports")
        assert (await world.upload(reports(SMALL, 999), relay)).status_code == 202

    @with_world(**NARROW)
    async def test_json_is_for_a_few(self, world: World) -> None:
        await world.publish(SMALL)
        path, kind = f"/v1/plans/{SMALL.id}/reports", {"content-type": "application/json"}
        relay = await world.relay()

        async def ask(headers: Headers, body: bytes) -> int:
            answer = await world.ask("public", "POST", path, kind | headers, body)
            return answer.status_code

        assert await ask({}, reports(SMALL, 10).to_json()) == 202
        assert await ask({}, reports(SMALL, 11).to_json()) == 413
        assert await ask(relay, reports(SMALL, 999).to_json()) == 202
        assert await ask(relay, b"{" + b" " * (64 << 10)) == 413

    @pytest.mark.slow
    def test_a_body_that_is_too_large_is_not_waited_for(self, tmp_path: Path):
        """The token is looked at first; without a relay's, no byte of a large body is read."""
        with serving(tmp_path, LARGE, **NARROW) as server:
            path = f"/v1/plans/{LARGE.id}/reports"
            whole = len(reports(LARGE, 100).to_bytes())
            for length, token, status in (
                (whole + 1, "X-A: b", 413),
                (32 << 20, "Authorization: Bearer shoal_relay_0", 413),
                (33 << 20, f"Authorization: {server.relay()['authorization']}", 413),
            ):
                head = request(b"", f"Content-Length: {length}", token, path=path, length=False)
                assert [answer.status for answer in raw(server, head)] == [status]

    def test_what_takes_long_to_parse_does_not_stop_the_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        threads = {}

        def watched(plan: Plan, body: bytes) -> Batch:
            threads[len(body)] = threading.current_thread()
            return parse_batch(plan, body)

        monkeypatch.setattr(ingest, "parse_batch", watched)

        async def live(world: World) -> None:
            await world.publish(LONG_PLAN)
            for count in (1, 100):
                assert (await world.upload(reports(LONG_PLAN, count))).status_code == 202

        in_world(live, tmp_path / "data")
        (small, large) = sorted(threads)
        assert threads[small] is threading.main_thread()
        assert threads[large] is not threading.main_thread()


class TestConnections:
    @pytest.mark.slow
    def test_one_fills_no_more_than_its_share(self, tmp_path: Path):
        """It ends, in order, with the report that fills its share; the next one begins anew."""
        with serving(tmp_path, SMALL, **NARROW) as server:
            path = f"/v1/plans/{SMALL.id}/reports"
            single = [request(reports(SMALL, 1, seed).to_bytes(), path=path) for seed in range(12)]
            found = raw(server, *single)
            assert [answer.status for answer in found] == [202] * 10
            assert [b"connection: close" in answer.head for answer in found] == [False] * 9 + [True]
            batches = [request(reports(SMALL, 6, s).to_bytes(), path=path) for s in (1, 2, 3)]
            found = raw(server, *batches)  # the second would pass it
            assert [answer.status for answer in found] == [202, 429]
            assert b"connection: close" in found[1].head
            assert [answer.status for answer in raw(server, batches[1])] == [202]


class TestRates:
    def test_a_second_is_earned_anew(self):
        now = 0.0
        allowance = Allowance(10, lambda: now)
        assert [allowance.take(4), allowance.take(6), allowance.take(1)] == [True, True, False]
        now = 0.5
        assert [allowance.take(5), allowance.take(1)] == [True, False]
        now = 2.0
        assert [allowance.take(25), allowance.take(1)] == [True, False]
        now = 3.0
        assert not allowance.take(1)  # what was taken beyond a second's worth is owed
        now = 3.7
        assert allowance.take(1)
        assert Allowance(0).take(10**9)

    @pytest.mark.slow
    def test_whoever_spends_is_refused_and_nobody_else(self, tmp_path: Path):
        """A relay's large batch, and a connection that sends too fast, against all others."""
        with serving(tmp_path, LARGE, **NARROW, reports_per_second=1) as server:
            url, relay = f"{server.public}/v1/plans/{LARGE.id}/reports", server.relay()

            def post(count: int, headers: Headers | None = None) -> int:
                with httpx.Client() as client:
                    body = reports(LARGE, count).to_bytes()
                    answer = client.post(url, headers=BINARY | (headers or {}), content=body)
                return answer.status_code

            assert post(20_000, relay) == 202
            assert post(1, relay) == 429
            assert post(1, server.relay()) == 202
            assert [post(30), post(30), post(30)] == [202] * 3
            path = f"/v1/plans/{LARGE.id}/reports"  # thirty reports are owed for half a minute
            full = request(reports(LARGE, 30).to_bytes(), path=path)
            found = raw(server, full, full, full)
            assert [answer.status for answer in found] == [202, 429]
            assert b"connection: close" in found[1].head  # so that it is nobody else's debt
            assert post(1) == 202


class TestRelays:
    def mixed(self) -> Batch:
        """Reports of the last, this and the next window, between some that no clock allows."""
        batch = reports(TEXT_PLAN, 9)
        windows = batch.windows.copy()
        windows += np.array([0, -1, -2, 2, 1, 0, -500, 0, 7], np.int64).astype(np.uint32)
        return replace(batch, windows=windows)

    @with_world()
    async def test_a_late_report_does_not_refuse_the_others(self, world: World) -> None:
        await world.publish(TEXT_PLAN)
        relay, whole = (await world.relay(), {"window-expired": [2, 6], "window-not-open": [3, 8]})
        first = await world.upload(self.mixed(), relay)
        again = await world.upload(self.mixed(), relay)
        assert first.status_code == 202
        assert first.json() == {"refused": whole}
        assert (first.content, first.headers) == (again.content, again.headers)
        fine = await world.upload(reports(TEXT_PLAN, 95, 1), relay)
        assert fine.json() == {"refused": {"window-expired": [], "window-not-open": []}}
        window = int(NOW // 3600)
        states = {
            crowd.window: crowd.progress
            for crowd in await world.collector.service.in_store(
                world.collector.store.crowds, TEXT_PLAN.id
            )
            if crowd.state == "open"
        }
        assert states == {window - 1: 0, window: 90, window + 1: 0}  # 3 + 95 of 100, 1 and 1
        alone = await world.upload(self.mixed())
        assert (alone.status_code, problem_of(alone)) == (410, "window-expired")

    @with_world()
    async def test_what_is_about_the_plan_is_told_as_ever(self, world: World) -> None:
        await world.publish(TEXT_PLAN)
        relay = await world.relay()
        await world.collector.administration.move_plan(TEXT_PLAN.id, "paused")
        answer = await world.upload(self.mixed(), relay)
        assert (answer.status_code, problem_of(answer)) == (503, "paused")

    def test_no_end_of_windows(self):
        batch = reports(TEXT_PLAN, 1001)
        everywhere = replace(batch, windows=np.arange(1001, dtype=np.uint32))
        assert split_by_window(everywhere) is problems.MALFORMED


class TestCommitting:
    def test_nobody_waits_for_ever(self):
        """What is under way may be counted; what has not begun is not any more."""
        begun: list[int] = []

        async def live() -> list[Problem | None]:
            never = asyncio.Event()

            async def accept(uploads: Any) -> list[Problem | None]:
                begun.extend(len(upload) for upload in uploads)
                await never.wait()
                return [None] * len(uploads)

            committer = Committer(accept, 10**6, len, 0.2)
            running = asyncio.create_task(committer.run())
            first = asyncio.create_task(committer.submit(range(1)))
            while not begun:
                await asyncio.sleep(0)
            async with asyncio.timeout(60):
                second = await committer.submit(range(2))
                answers = [await first, second]
            assert committer.fill == 0
            never.set()
            committer.stop()
            await running
            return answers

        assert asyncio.run(live()) == [problems.UNAVAILABLE] * 2
        assert begun == [1]

    def test_nor_when_it_is_cancelled(self):
        async def live() -> list[Problem | None]:
            async def accept(uploads: Any) -> list[Problem | None]:
                await asyncio.Event().wait()
                return []

            committer = Committer(accept, 10**6, len, 600.0)
            running = asyncio.create_task(committer.run())
            waiting = [asyncio.create_task(committer.submit(range(1))) for _ in range(2)]
            await asyncio.sleep(0.05)
            running.cancel()
            async with asyncio.timeout(60):
                return await asyncio.gather(*waiting)

        assert asyncio.run(live()) == [problems.UNAVAILABLE] * 2

    def waited(self, sizes: list[int], max_queued_reports: int = 10**6) -> list[list[int]]:
        """Submit uploads of these sizes at once; return the sizes in each commit, or 503."""
        commits: list[list[int]] = []

        async def accept(uploads: Any) -> list[Problem | None]:
            commits.append([len(upload) for upload in uploads])
            return [None] * len(uploads)

        async def live() -> None:
            committer = Committer(accept, max_queued_reports, len, 60.0)
            batches = [range(size) for size in sizes]
            waiting = [asyncio.create_task(committer.submit(one)) for one in batches]
            await asyncio.sleep(0)
            running = asyncio.create_task(committer.run())
            answers = await asyncio.gather(*waiting)
            committer.stop()
            await running
            found = [size for size, answer in zip(sizes, answers, strict=True) if answer is None]
            assert sorted(found) == sorted(size for group in commits for size in group)

        asyncio.run(live())
        return commits

    def test_small_uploads_do_not_stand_behind_large_ones(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(core_ingest, "MAX_PER_COMMIT", 100)
        assert self.waited([60, 60, 60, 1, 2]) == [[1, 2, 60], [60], [60]]
        assert self.waited([1, 2]) == [[1, 2]]
        assert self.waited([5000, 90, 90, 1])[:2] == [[1, 90], [5000]]  # in turns with the oldest

    def test_large_uploads_do_not_keep_small_ones_out(self):
        assert self.waited([60, 60, 1, 1], max_queued_reports=100) == [[60, 1, 1]]
        assert self.waited([1] * 5, max_queued_reports=3) == [[1, 1, 1]]
        assert self.waited([500], max_queued_reports=100) == [[500]]


class TestPublishing:
    @with_world(**NARROW)
    async def test_somebody_says_which_part_is_honest(self, world: World) -> None:
        survey = replace(FLAGS_PLAN.survey, name="told")
        told = replace(FLAGS_PLAN, survey=survey, honest_fraction="0.5")
        collector, admin = world.collector, world.admin()
        for plan in (FLAGS_PLAN, told):
            assert await collector.administration.add_plan(plan) is None
        path = f"/v1/plans/{FLAGS_PLAN.id}/publish"
        answer = await world.ask("console", "POST", path, admin)
        assert (answer.status_code, problem_of(answer)) == (422, "honest-fraction-unsaid")
        assert "shoal plan --honest" in answer.json()["title"]
        assert (await world.ask("console", "POST", path + "?honest=some", admin)).is_error
        for where in (path + "?honest=all", f"/v1/plans/{told.id}/publish"):
            assert (await world.ask("console", "POST", where, admin)).status_code == 200
        for plan, fraction, by in ((FLAGS_PLAN, "1", "publisher"), (told, "0.5", "plan")):
            where = f"/v1/plans/{plan.id}/certificate"
            document = (await world.ask("public", "GET", where)).json()
            assert document["honest_fraction"] == fraction
            assert document["honest_fraction_said_by"] == by
            assert document["limits_when_published"] == {
                "token_needed": False,
                "reports_per_request": plan.reports_needed // 100,
                "reports_per_connection": plan.reports_needed // 100,
                "reports_per_second": None,
                "not_for": "relays with a token",
            }
        # Going on after a pause is no publication.
        assert await collector.administration.move_plan(FLAGS_PLAN.id, "paused") is None
        assert await collector.administration.move_plan(FLAGS_PLAN.id, "published") is None

    def test_serve_asks_too(self, tmp_path: Path):
        from shoal.server import serve

        settings = Settings(public="127.0.0.1:0", console="127.0.0.1:0", log_level="error")
        with pytest.raises(PrivacyRefusal, match="states no honest fraction"):
            serve(tmp_path / "data", settings, plans=[FLAGS_PLAN])


class TestSettings:
    @pytest.mark.parametrize("name", ["SHOAL_INGES", "SHOAL_", "SHOAL_ingest", "SHOAL_PUBLIC_URL"])
    def test_a_misspelt_variable(self, name: str):
        with pytest.raises(InputError, match=rf"'{name}' is no setting; there are SHOAL_PUBLIC, "):
            Settings.read({"HOME": "/", name: "token"})

    def test_variables_of_other_commands(self):
        other = {"SHOAL_DEBUG": "1", "SHOAL_MEMORY_KEY": "x", "SHOALS": "y"}
        assert Settings.read(other | {"SHOAL_MAX_SHARE_PERCENT": "7"}) == Settings(
            max_share_percent=7
        )

    def test_a_share_is_a_part(self):
        for share in (0, 101):
            with pytest.raises(InputError, match="at least 1 and at most 100"):
                Settings.read({}, max_share_percent=share)


@with_world()
async def test_a_slash_too_many_leads_nowhere(world: World) -> None:
    """A redirect would repeat the Host header to whoever asks."""
    await world.publish(FLAGS_PLAN)
    plan = f"/v1/plans/{FLAGS_PLAN.id}"
    for path in ("/v1/keys/", f"{plan}/", f"{plan}/reports/", "/healthz/"):
        side = "console" if path == "/healthz/" else "public"
        answer = await world.ask(side, "GET", path, {"host": "canary.example"})
        assert answer.status_code == 404
        assert "location" not in answer.headers
        assert "canary" not in answer.text + str(answer.headers)


def test_the_certificate_of_a_shared_database_says_that_rates_are_of_each_process():
    """A token that is used at two collectors may send twice as much."""
    alone = limits_document(FLAGS_PLAN, Settings(reports_per_second=5))
    shared = limits_document(FLAGS_PLAN, Settings(reports_per_second=5, database="postgresql:///x"))
    assert shared == alone | {"reports_per_second_at": "each process"}
