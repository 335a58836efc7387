"""Reports become batches of exactly one crowd and one window, which the analyst collects once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal import Flags, Survey
from shoal.device.encode import SyntheticVector
from shoal.device.randomize import pack_reports
from shoal.device.sharing import share_report
from shoal.protocol.dap import messages as dap
from shoal.protocol.dap.messages import ReportFault, UploadErrors, UploadRequest
from shoal.protocol.plan import Aggregators, Promise
from shoal.protocol.wire import split_batch
from shoal.server import leader as leader_service
from shoal.server.storage.database import StorageError
from shoal.server.storage.encryption import decrypt
from tests.server.aggregation.world import (
    HELPER,
    LEADER,
    NOW,
    PLAN,
    WEEK,
    Parties,
    ask,
    in_parties,
    some_vectors,
    sums,
)
from tests.server.postgres_help import needs_postgres, the_server

Story = Callable[[Parties], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_service, "_PAUSE", 0.01)


def test_a_crowd_is_collected_and_nothing_else(tmp_path: Path):
    vectors = some_vectors(23)

    async def story(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["reports"] == 20
        assert release["by_bit"] == sums(vectors[:20])
        await parties.analyst.collect_plan(PLAN)
        for party in (parties.leader, parties.helper):
            batches = await parties.batches(party)
            first, *others = (one["state"] for one in batches)
            assert first == "collected"
            assert "full" not in others

    in_parties(story, tmp_path, job_reports=7)


@pytest.mark.slow
@needs_postgres
def test_the_same_in_postgresql(tmp_path: Path):
    vectors, databases = some_vectors(40), [the_server().new_database() for _ in range(2)]

    async def begin(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors[:27]))

    async def end(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors[27:]))
        releases = await parties.collected(2)
        assert [one["by_bit"] for one in releases] == [sums(vectors[:20]), sums(vectors[20:])]

    in_parties(begin, tmp_path, job_reports=9, databases=databases)
    in_parties(end, tmp_path, job_reports=9, databases=databases)


@pytest.mark.slow
@needs_postgres
def test_a_share_that_is_longer_than_a_page_of_postgresql(tmp_path: Path):
    """A share takes 16 bytes for each bit, and a page has 8 KiB."""
    wide = replace(
        PLAN,
        survey=Survey("wide", (Flags("uses", tuple(f"option {i}" for i in range(600))),)),
        promise=Promise("proven", "9000", delta="1e-6"),
        parties=Aggregators(LEADER, HELPER, 600),
    )
    vectors, databases = some_vectors(20, 60), [the_server().new_database() for _ in range(2)]

    async def story(parties: Parties) -> None:
        await parties.publish(wide)
        for one in await parties.reports(vectors, wide):
            assert (await parties.upload(one, plan=wide)).status_code == 200
        analyst, release = parties.analyst, None
        for _ in range(3000):
            await analyst.collect_plan(wide)
            release = await analyst.service.in_store(analyst.store.release, wide.id, 1)
            if release is not None:
                break
            await asyncio.sleep(0.02)
        assert release is not None
        assert json.loads(release)["by_bit"] == sums(vectors, 600)

    in_parties(story, tmp_path, databases=databases)


def test_a_report_that_comes_twice_counts_once(tmp_path: Path):
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        reports = await parties.reports(vectors)
        for _ in range(2):
            await parties.deliver(reports[:19])
        await asyncio.sleep(0.2)
        assert "full" not in {one["state"] for one in await parties.batches(parties.helper)}
        await parties.deliver(reports[19:])
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_answers_of_the_helper_may_be_lost(tmp_path: Path):
    vectors = some_vectors(40)

    async def story(parties: Parties) -> None:
        parties.to_helper.lose_answers = 5
        await parties.deliver(await parties.reports(vectors))
        parties.to_leader.lose_answers = 3
        releases = await parties.collected(2)
        assert [one["by_bit"] for one in releases] == [sums(vectors[:20]), sums(vectors[20:])]
        sent = [body for _, path, body in parties.to_helper.requests if path.endswith("jobs")]
        assert len(set(sent)) < len(sent)  # the same bytes were sent again

    in_parties(story, tmp_path, job_reports=9)


def test_parties_that_stop_go_on_where_they_were(tmp_path: Path):
    vectors = some_vectors(20)

    async def begin(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors[:13]))

    async def end(parties: Parties) -> None:
        await parties.deliver(await parties.reports(vectors[13:]))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(begin, tmp_path, job_reports=4)
    in_parties(end, tmp_path, job_reports=4)


def test_a_result_that_was_stored_but_not_ended_is_not_stored_again(tmp_path: Path):
    async def story(parties: Parties) -> None:
        await parties.deliver(await parties.reports(some_vectors(20)))
        analyst = parties.analyst
        ended = analyst._thread.run

        async def interrupted(work: Any, *about: Any) -> Any:
            if work.__name__ == "end":
                raise RuntimeError("the process was killed here")
            return await ended(work, *about)

        setattr(analyst._thread, "run", interrupted)  # noqa: B010
        await parties.collected(1)
        setattr(analyst._thread, "run", ended)  # noqa: B010
        await analyst.collect_plan(PLAN)
        numbers = await analyst.service.in_store(analyst.store.released_numbers, PLAN.id, 9)
        assert numbers == [1]

    in_parties(story, tmp_path)


def test_a_crowd_of_two_windows_is_none(tmp_path: Path):
    """Each of two windows has half a crowd, and more people at last."""
    window, vectors = int(NOW // WEEK), some_vectors(40)

    async def story(parties: Parties) -> None:
        ours, before = vectors[:20], vectors[20:]
        await parties.deliver(await parties.reports(ours[:10]))
        await parties.deliver(await parties.reports(before[:10], window=window - 1))
        for party in (parties.leader, parties.helper):
            for _ in range(3000):
                found = await parties.batches(party)
                if [one["progress"] for one in found] == [50, 50]:
                    break
                await asyncio.sleep(0.01)
            assert {str(one["state"]) for one in found} == {"open"}
        await parties.deliver(await parties.reports(before[10:], window=window - 1))
        await parties.deliver(await parties.reports(ours[10:]))
        releases = await parties.collected(2)
        found_in = {one["crowds"][0]["window"]: one["by_bit"] for one in releases}
        assert found_in == {window - 1: sums(before), window: sums(ours)}

    in_parties(story, tmp_path)


def test_a_batch_that_misses_its_window_expires_with_its_keys(tmp_path: Path):
    now = [NOW]

    async def story(parties: Parties) -> None:
        first = await parties.keys()
        await parties.deliver(await parties.reports(some_vectors(19)))
        await asyncio.sleep(0.3)
        now[0] += 2 * WEEK
        for party in (parties.leader, parties.helper):
            await party.service.in_store(party.sweep)
            states = {one["state"] for one in await parties.batches(party)}
            assert states == {"discarded"}
            connection = party.store.database.connection
            for table in ("uploads", "jobs"):
                count = f"SELECT count(*) FROM {table}"
                assert connection.execute(count).fetchone() == (0,)
            old = "SELECT count(*) FROM wrapped_keys WHERE number = ?"
            assert connection.execute(old, (int(NOW // WEEK),)).fetchone() == (0,)
        later = await parties.keys()
        assert not {one.public_key for one in first[0].configs[:1]} & {
            one.public_key for one in later[0].configs
        }

    in_parties(story, tmp_path, clock=lambda: now[0])


def test_two_stolen_disks_open_no_report_of_an_earlier_window(tmp_path: Path):
    """Not with every upload that was recorded, nor with the keys as they were wrapped before."""
    now, window = [NOW], int(NOW // WEEK)

    def wrapped(party: Any) -> dict[str, bytes]:
        rows = party.store.database.connection.execute(
            "SELECT kind, number, wrapped FROM wrapped_keys"
        ).fetchall()
        return {f"{PLAN.id} {kind} {number}": bytes(row) for kind, number, row in rows}

    def on_the_disks() -> bytes:
        folders = (tmp_path / "leader", tmp_path / "helper")
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return b"".join(path.read_bytes() for path in files)

    async def story(parties: Parties) -> None:
        both: tuple[Any, ...] = (parties.leader, parties.helper)
        uploads = await parties.reports(some_vectors(23))
        reports = [UploadRequest.from_bytes(one).reports[0] for one in uploads]
        secret = [party.tasks[PLAN.id].keys[window].secret for party in both]
        secret += [one.leader_encrypted_input_share.payload[:64] for one in reports]
        secret += [one.helper_encrypted_input_share.payload[:64] for one in reports]
        parties.to_helper.lose_answers = 1000
        await parties.deliver(uploads[:1])
        assert sum(one in on_the_disks() for one in secret) == 2  # so the search finds something
        parties.to_helper.lose_answers = 0
        await parties.deliver(uploads[1:])
        await parties.collected(1)
        before = [await party.service.in_store(wrapped, party) for party in both]
        now[0] += 2 * WEEK
        for party, keys in zip(both, before, strict=True):
            await party.service.in_store(party.sweep)
            assert f"{PLAN.id} hpke {window}" in keys
            left_over = await party.service.in_store(wrapped, party)
            assert f"{PLAN.id} hpke {window}" not in left_over
            root = await party.service.in_store(party.store.database.keys._root.current)
            for about, key in keys.items():
                with pytest.raises(StorageError):
                    decrypt(root, key, about)
        left = on_the_disks()
        assert not [one for one in secret if one in left]

    in_parties(story, tmp_path, clock=lambda: now[0])


def test_what_a_leader_says_about_reports_that_it_does_not_take(tmp_path: Path):
    async def story(parties: Parties) -> None:
        window = int(NOW // WEEK)
        (good,) = await parties.reports([5])
        report = UploadRequest.from_bytes(good).reports[0]
        metadata, first = report.report_metadata, report.leader_encrypted_input_share
        early = dap.ReportMetadata(b"e" * 16, window + 2)
        late = dap.ReportMetadata(b"l" * 16, window - 2)
        key = dap.HpkeCiphertext((window + 3) % 256, first.enc, first.payload)
        long = dap.HpkeCiphertext(first.config_id, first.enc, first.payload + b"\0")
        changed = [
            dap.Report(early, *_rest(report)),
            dap.Report(late, *_rest(report)),
            dap.Report(_named(metadata, 1), report.public_share, key, *_rest(report)[2:]),
            dap.Report(_named(metadata, 2), report.public_share, long, *_rest(report)[2:]),
            dap.Report(
                dap.ReportMetadata(b"\3" * 16, window, dap.Extension(7, b"").to_bytes()),
                *_rest(report),
            ),
        ]
        answer = await parties.upload(UploadRequest((report, *changed)).to_bytes())
        assert answer.headers["content-type"] == UploadErrors.content_type()
        found = UploadErrors.from_bytes(answer.content).status
        assert [one.error for one in found] == [
            ReportFault.REPORT_TOO_EARLY,
            ReportFault.REPORT_DROPPED,
            ReportFault.OUTDATED_CONFIG,
            ReportFault.INVALID_MESSAGE,
            ReportFault.INVALID_MESSAGE,
        ]
        names = [one.report_metadata.report_id for one in changed]
        assert [one.id for one in found] == names
        answer = await parties.upload(UploadRequest((report, report)).to_bytes())
        assert answer.json()["type"] == "urn:ietf:params:ppm:dap:error:invalidMessage"

    in_parties(story, tmp_path)


def test_a_report_whose_id_begins_like_json_is_taken(tmp_path: Path):
    window = int(NOW // WEEK)

    async def story(parties: Parties) -> None:
        leader, helper = await parties.keys()
        while True:
            packed = pack_reports(PLAN, SyntheticVector(3, PLAN.bits), window=window).to_bytes()
            if split_batch(PLAN, packed).content[:1] == b"{":
                break
        await parties.deliver([share_report(PLAN, packed, leader, helper)])

    in_parties(story, tmp_path)


def _rest(report: dap.Report) -> tuple[bytes, dap.HpkeCiphertext, dap.HpkeCiphertext]:
    return (
        report.public_share,
        report.leader_encrypted_input_share,
        report.helper_encrypted_input_share,
    )


def _named(metadata: dap.ReportMetadata, number: int) -> dap.ReportMetadata:
    return dap.ReportMetadata(bytes([number]) * 16, metadata.time)


def test_reports_that_lie_are_rejected_and_others_fill_the_crowd(tmp_path: Path):
    """Shares of something else, a proof that does not hold, a share for another task."""
    vectors = some_vectors(20)

    async def story(parties: Parties) -> None:
        good = await parties.reports(vectors)
        other = await parties.reports(some_vectors(6, seed=2))
        for number, content in enumerate(other):
            (report,) = UploadRequest.from_bytes(content).reports
            metadata = _named(report.report_metadata, 200 + number)  # authenticated with the share
            await parties.upload(UploadRequest((dap.Report(metadata, *_rest(report)),)).to_bytes())
        swapped = [UploadRequest.from_bytes(one).reports[0] for one in other[:2]]
        leader_of_first = swapped[0].leader_encrypted_input_share
        mixed = dap.Report(
            swapped[1].report_metadata,
            swapped[1].public_share,
            leader_of_first,
            swapped[1].helper_encrypted_input_share,
        )
        await parties.upload(UploadRequest((mixed,)).to_bytes())
        await parties.deliver(good)
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path, job_reports=8)


def test_who_may_ask(tmp_path: Path):
    async def story(parties: Parties) -> None:
        task = parties.leader.tasks[PLAN.id].task.path
        base = f"/dap/{task}/tasks/{task}"
        helper, leader = parties.helper.public, parties.leader.public
        job = {"content-type": dap.AggregationJobInitReq.content_type()}
        assert (await ask(helper, "POST", f"{base}/aggregation_jobs", b"", job)).status_code == 401
        share = {"content-type": dap.AggregateShareReq.content_type()}
        wrong = share | {"authorization": "Bearer nobody"}
        answer = await ask(helper, "POST", f"{base}/aggregate_shares", b"", wrong)
        assert answer.status_code == 401
        collection = {"content-type": dap.CollectionJobReq.content_type()}
        answer = await ask(leader, "POST", f"{base}/collection_jobs", b"", collection)
        assert answer.status_code == 401
        answer = await ask(leader, "PUT", f"{base}/collection_jobs/{'A' * 22}")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, DELETE")
        allowed = {"authorization": f"Bearer {parties.analyst._token}"}
        answer = await ask(leader, "GET", f"{base}/collection_jobs/{'A' * 22}", None, allowed)
        assert answer.json()["taskid"] == task
        answer = await ask(leader, "GET", f"/dap/{'A' * 43}/hpke_config")
        assert "taskid" not in answer.json()

    in_parties(story, tmp_path)


def test_no_transaction_begins_inside_of_another(tmp_path: Path):
    async def story(parties: Parties) -> None:
        database = parties.helper.store.database

        def nested() -> None:
            database.read("outer", lambda: database.read("inner", lambda: None))

        with pytest.raises(RuntimeError, match="'inner' begins inside of 'outer'"):
            await parties.helper.service.in_store(nested)

    in_parties(story, tmp_path)
