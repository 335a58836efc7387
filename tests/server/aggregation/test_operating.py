"""Operating a leader, a helper and an analyst: backups, closed plans, helpers that refuse."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.collector import _schemas
from shoal.errors import TransportError
from shoal.protocol.dap import Task
from shoal.protocol.dap.messages import UploadRequest
from shoal.server import leader as leader_service
from shoal.server.core.backup import back_up, restore
from shoal.server.core.parties import PeerReply, accept_other
from shoal.server.core.parties import set_up as set_up_party
from shoal.server.doctor.examine import examine
from shoal.server.leader import store as leader_store
from shoal.server.leader.store import LeaderStore
from shoal.server.storage.key_file import EXCHANGE_FILE
from tests.server.aggregation.world import (
    HELPER,
    LEADER,
    NOW,
    PLAN,
    WEEK,
    Parties,
    in_parties,
    some_vectors,
    sums,
)

OTHER = replace(PLAN, survey=replace(PLAN.survey, name="other features"))
URLS = {"leader": LEADER, "helper": HELPER, "analyst": "https://analyst.example"}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_service, "_PAUSE", 0.01)


def replace_by_backup(folder: Path, role: str, clock: Callable[[], float]) -> None:
    """Lose a party's folder, restore its backup, and make it known to the others again."""
    (folder / role).rename(folder / f"lost {role}")
    restore(folder / f"{role}.backup", folder / role, clock=clock)
    if role == "analyst":  # results that wait at the leader are encrypted for this key
        shutil.copy2(folder / f"lost {role}" / EXCHANGE_FILE, folder / role)
    made = set_up_party(folder / role, role=role, url=URLS[role])
    for other in URLS.keys() - {role}:
        theirs = set_up_party(folder / other)
        made = accept_other(made, theirs.file(other), lambda party: True)
        accept_other(theirs, made.file(role), lambda party: False)  # the same signing key


def save(folder: Path, role: str, clock: Callable[[], float] = lambda: NOW) -> None:
    back_up(folder / role, folder / f"{role}.backup", schemas=_schemas(), clock=clock)


@pytest.mark.parametrize("role", ["leader", "helper"])
@pytest.mark.slow
def test_a_restored_aggregator_counts_no_report_again(tmp_path: Path, role: str):
    """A batch was full when the backup was made; its reports must not be in a later one."""
    now, vectors = [NOW], some_vectors(20)

    async def before(parties: Parties) -> list[bytes]:
        uploads = await parties.reports(vectors)
        await parties.deliver(uploads)
        for party in (parties.leader, parties.helper):
            for _ in range(3000):
                if [one["state"] for one in await parties.batches(party)] == ["full"]:
                    break
                await asyncio.sleep(0.01)
        save(tmp_path, role, clock)
        return uploads

    async def after(parties: Parties) -> None:
        for one in uploads:  # devices that had no answer send their reports again
            answer = await parties.upload(one)
            assert answer.status_code == 200
        for _ in range(5):
            await parties.analyst.collect_plan(PLAN)
            await asyncio.sleep(0.1)
        numbers = parties.analyst.store.released_numbers
        assert await parties.analyst.service.in_store(numbers, PLAN.id, 9) == []
        for party in (parties.leader, parties.helper):
            states = {one["state"] for one in await parties.batches(party)}
            assert states <= {"discarded", "open", "full"}
        now[0] += 2 * WEEK  # the first window that the restored one takes
        for party in (parties.leader, parties.helper):
            await party.service.in_store(party.sweep)
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    def clock() -> float:
        return now[0]

    uploads = in_parties(before, tmp_path, clock)
    replace_by_backup(tmp_path, role, clock)
    in_parties(after, tmp_path, clock)


def test_a_restored_analyst_does_not_store_its_last_batch_again(tmp_path: Path):
    async def before(parties: Parties) -> None:
        await parties.deliver(await parties.reports(some_vectors(20)))
        analyst, run = parties.analyst, parties.analyst._thread.run

        async def interrupted(work: Any, *about: Any) -> Any:
            if work.__name__ == "end":
                raise RuntimeError("the process was killed here")
            return await run(work, *about)

        setattr(analyst._thread, "run", interrupted)  # noqa: B010
        await parties.collected(1)
        save(tmp_path, "analyst")

    async def after(parties: Parties) -> None:
        analyst = parties.analyst
        await analyst.collect_plan(PLAN)
        assert await analyst.service.in_store(analyst.store.released_numbers, PLAN.id, 9) == [1]
        connection = parties.leader.store.database.connection
        waiting = "SELECT count(*) FROM collections WHERE response IS NOT NULL"
        assert connection.execute(waiting).fetchone() == (0,)  # it was seen, and ended

    in_parties(before, tmp_path)
    replace_by_backup(tmp_path, "analyst", lambda: NOW)
    in_parties(after, tmp_path)


def test_a_full_batch_of_a_closed_plan_is_collected(tmp_path: Path):
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        late = (await parties.reports([1]))[0]
        await parties.deliver(await parties.reports(vectors))
        for party in (parties.helper, parties.leader):
            for _ in range(3000):
                if [one["state"] for one in await parties.batches(party)] == ["full"]:
                    break
                await asyncio.sleep(0.01)
            assert await party.close_plan(PLAN.id, by="operator")
        answer = await parties.upload(late)
        assert (answer.status_code, answer.json()["title"]) == (
            410,
            "The plan accepts no more reports.",
        )
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_a_full_batch_that_nobody_collects_ends_at_its_deadline(tmp_path: Path):
    now = [NOW]

    async def story(parties: Parties) -> None:
        leader = parties.leader
        await parties.deliver(await parties.reports(some_vectors(20)))
        for days, state in ((0, "full"), (2, "full"), (3, "discarded")):
            now[0] = NOW + days * 86_400
            for _ in range(3000):
                await leader.service.in_store(leader.sweep)
                if [one["state"] for one in await parties.batches(leader)] == [state]:
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError(f"after {days} days it is not {state}")
        kept = "SELECT count(*) FROM batches WHERE content IS NOT NULL"
        assert leader.store.database.connection.execute(kept).fetchone() == (0,)

    in_parties(story, tmp_path, clock=lambda: now[0], deadline_days=3)


def test_a_plan_that_the_helper_does_not_know_does_not_stop_others(tmp_path: Path):
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        await parties.publish(OTHER)
        uploads = await parties.reports(vectors, OTHER)
        await parties.helper.close_plan(OTHER.id, by="operator")
        for one in uploads:
            assert (await parties.upload(one, plan=OTHER)).status_code == 200
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_a_batch_that_the_helper_lost_is_discarded_and_the_next_collected(tmp_path: Path):
    vectors = some_vectors(40)

    async def story(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors[:20]))
        for _ in range(3000):
            if [one["state"] for one in await parties.batches(parties.helper)] == ["full"]:
                break
            await asyncio.sleep(0.01)

        def lose() -> None:
            store = parties.helper.store
            plan = store._plans.get(PLAN.id)
            assert plan is not None
            plan.end(1, "discarded")

        store = parties.helper.store
        await parties.helper.service.in_store(store.database.run, "lose a batch", lose)
        await parties.deliver(await parties.reports(vectors[20:]))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors[20:])
        states = [one["state"] for one in await parties.batches(parties.leader)]
        assert states[:2] == ["discarded", "collected"]

    in_parties(story, tmp_path)


@pytest.mark.parametrize("role", ["leader", "helper", "analyst"])
def test_the_doctor_knows_the_party(tmp_path: Path, role: str):
    async def story(parties: Parties) -> None:
        return None

    in_parties(story, tmp_path)
    findings = {one.check: one for one in examine(tmp_path / role, environment={})}
    assert findings["settings"].verdict == "ok"
    assert findings["data"].verdict == "ok", findings["data"].sentence
    assert findings["parties"].verdict == "ok", findings["parties"].sentence
    assert ("limits" in findings) == (role == "leader")
    assert ("public address" in findings) == (role != "analyst")
    wrong = {one.check: one for one in examine(tmp_path / role, environment={"SHOAL_LEADER": "x"})}
    way = "collect" if role == "analyst" else role
    assert wrong["settings"].way_out == f"Fix the settings; see shoal {way} -h."


def test_notices_of_aggregators_name_no_pages(tmp_path: Path):
    """They have batches, not crowds: a sweep must not look for crowds that expire."""

    async def story(parties: Parties) -> None:
        for party in (parties.leader, parties.helper):
            assert (party.crowd_columns, party.has_pages) == (None, False)

    in_parties(story, tmp_path)


def test_a_job_that_fails_does_not_stop_other_windows(tmp_path: Path):
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        way, stuck = parties.to_helper.ask, await parties.reports([5], window=int(NOW // WEEK) - 1)

        def refusing(method: str, path: str, body: bytes | None, headers: Any) -> PeerReply:
            (report,) = UploadRequest.from_bytes(stuck[0]).reports
            if body is not None and report.report_metadata.report_id in body:
                tried.append(body)
                raise TransportError("this job never succeeds.")
            return way(method, path, body, headers)

        tried: list[bytes] = []
        setattr(parties.to_helper, "ask", refusing)  # noqa: B010
        await parties.deliver(stuck)
        await parties.until(lambda: len(tried) > 1, "the job was tried again")
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_a_collection_job_that_is_deleted_takes_no_batch_with_it(tmp_path: Path):
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        leader = parties.leader
        ask_for_share = leader._ask_for_share

        def interrupted(one: Any) -> Any:
            share = ask_for_share(one)
            deleted.append(one.name)
            if len(deleted) == 1:
                store = leader.store
                leader.service.wait_for_store(store.forget_collection, PLAN.id, one.name)
            return share

        deleted: list[bytes] = []
        setattr(leader, "_ask_for_share", interrupted)  # noqa: B010
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)
        assert len(set(deleted)) == 2

    in_parties(story, tmp_path)


def test_a_leader_waits_for_the_sweep_when_a_window_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now = [NOW]

    async def nothing(leader: leader_service.Leader) -> None:
        await asyncio.Event().wait()

    async def story(parties: Parties) -> None:
        await parties.deliver(await parties.reports([1]))
        now[0] += 2 * WEEK
        assert not await parties.leader._aggregate_some()

    monkeypatch.setattr(leader_service.Leader, "_aggregate", nothing)
    in_parties(story, tmp_path, clock=lambda: now[0])


def test_a_job_is_never_too_large_for_the_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    vectors, largest = some_vectors(20), 3 * Task(PLAN).report_bytes
    monkeypatch.setattr(leader_store, "LARGEST_JOB", largest)

    async def story(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)
        sent = parties.to_helper.requests
        jobs = [len(body or b"") for _, path, body in sent if path.endswith("n_jobs")]
        assert jobs
        assert max(jobs) <= largest

    in_parties(story, tmp_path)


def test_a_long_queue_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """SQLite counts its steps: with 3,000 reports waiting they are those of a few."""

    async def nothing(leader: leader_service.Leader) -> None:
        await asyncio.Event().wait()

    def steps(store: LeaderStore) -> int:
        taken: list[int] = []
        connection: Any = store.database.connection
        connection.set_progress_handler(lambda: taken.append(1), 10)
        assert [len(one.reports) for one in store.pending(1)] == [1]
        connection.set_progress_handler(None, 0)
        return len(taken)

    async def story(parties: Parties) -> None:
        store, in_store = parties.leader.store, parties.leader.service.in_store
        await parties.deliver(await parties.reports([1]))
        before = await in_store(steps, store)
        more = (
            "INSERT INTO uploads (plan, window, report) SELECT plan, window, report FROM uploads,"
            " (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
            " SELECT i FROM n)"
        )
        await in_store(store.database.connection.execute, more)
        assert await in_store(steps, store) < before + 50

    monkeypatch.setattr(leader_service.Leader, "_aggregate", nothing)
    in_parties(story, tmp_path)


def test_another_status_of_success_is_one_too(tmp_path: Path):
    """DAP lets a server choose it: others answer 201 where something was created."""
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        for way in (parties.to_helper, parties.to_leader):
            ask = way.ask

            def created(*about: Any, ask: Any = ask) -> PeerReply:
                reply: PeerReply = ask(*about)
                return reply._replace(status=201) if reply.status == 200 else reply

            setattr(way, "ask", created)  # noqa: B010
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)
