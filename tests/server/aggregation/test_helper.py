"""A leader that does not keep to the rules: the helper refuses, and counts nothing twice."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal import Plan, Survey
from shoal.protocol.dap import NEXT_BATCH
from shoal.protocol.dap import messages as dap
from shoal.protocol.dap.messages import BatchMode, ReportFault, Role, UploadRequest, VerifyInit
from tests.server.aggregation.world import NOW, PLAN, WEEK, Parties, ask, in_parties, some_vectors

BATCH, OTHER = b"b" * 32, b"c" * 32
WINDOW = int(NOW // WEEK)


class RogueLeader:
    """Asks the helper for whatever it likes, with the leader's secret."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self._token = parties, parties.leader.agreement.token("helper")
        self.task = parties.leader.tasks[PLAN.id]

    async def inits(
        self, vectors: Sequence[int], window: int = WINDOW, plan: Plan = PLAN
    ) -> list[VerifyInit]:
        """Return reports of devices as far as the leader verifies them."""
        uploads = await self.parties.reports(vectors, plan, window)
        reports = [UploadRequest.from_bytes(one).reports[0] for one in uploads]
        pending = _Pending(plan.id, window, dict(enumerate(reports)))
        started = self.parties.leader._start(pending)  # type: ignore[arg-type]
        assert started is not None
        return list(started.values())

    def job(self, inits: Sequence[VerifyInit], batch: bytes = BATCH) -> bytes:
        extension = dap.Extension(dap.LEADER_SELECTED_BATCH_ID, batch)
        return dap.AggregationJobInitReq(0, b"", (extension,), tuple(inits)).to_bytes()

    async def ask(self, resource: str, kind: type[dap.Message], body: bytes) -> Any:
        path = f"/dap/{self.task.task.path}/tasks/{self.task.task.path}/{resource}"
        headers = {
            "content-type": kind.content_type(),
            "authorization": f"Bearer {self._token}",
        }
        return await ask(self.parties.helper.public, "POST", path, body, headers)

    async def send(self, inits: Sequence[VerifyInit], batch: bytes = BATCH) -> list[Any]:
        """Send a job; return the fault of each report."""
        body = self.job(inits, batch)
        answer = await self.ask("aggregation_jobs", dap.AggregationJobInitReq, body)
        assert answer.status_code == 200, answer.text
        found = dap.AggregationJobResp.from_bytes(answer.content).verify_resps
        assert [one.report_id for one in found] == [_id(one) for one in inits]
        return [one.report_error for one in found]

    async def share(self, batch: bytes, inits: Sequence[VerifyInit], count: int) -> Any:
        checksum = 0
        for one in inits:
            checksum ^= int.from_bytes(hashlib.sha256(_id(one)).digest())
        selector = dap.BatchSelector(BatchMode.LEADER_SELECTED, batch)
        request = dap.AggregateShareReq(NEXT_BATCH, selector, count, checksum.to_bytes(32))
        return await self.ask("aggregate_shares", dap.AggregateShareReq, request.to_bytes())


class _Pending:
    def __init__(self, plan_id: str, window: int, reports: dict[int, dap.Report]) -> None:
        self.plan_id, self.window, self.reports = plan_id, window, reports


def _id(one: VerifyInit) -> bytes:
    return one.report_share.report_metadata.report_id


def _problem(answer: Any) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["type"]).removeprefix("urn:ietf:params:ppm:dap:error:")


def test_a_report_is_in_one_batch(tmp_path: Path):
    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        inits = await rogue.inits(some_vectors(3))
        assert await rogue.send(inits) == [None] * 3
        assert await rogue.send(inits) == [None] * 3  # the same bytes: the same answer
        replayed = ReportFault.REPORT_REPLAYED
        assert await rogue.send(inits, OTHER) == [replayed] * 3
        assert await rogue.send(inits[::-1]) == [replayed] * 3

    in_parties(story, tmp_path)


def test_a_batch_never_mixes_windows(tmp_path: Path):
    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        here, before = await rogue.inits([1, 2]), await rogue.inits([3], WINDOW - 1)
        answer = await rogue.ask(
            "aggregation_jobs", dap.AggregationJobInitReq, rogue.job([*here, *before])
        )
        assert _problem(answer) == "batchInvalid"
        assert await rogue.send(here) == [None, None]
        assert await rogue.send(before) == [ReportFault.REPORT_DROPPED]
        assert await rogue.send(before, OTHER) == [None]

    in_parties(story, tmp_path)


def test_a_batch_is_of_one_plan(tmp_path: Path):
    other = replace(PLAN, survey=Survey("others", PLAN.survey.questions))

    async def story(parties: Parties) -> None:
        await parties.publish(other)
        rogue = RogueLeader(parties)
        assert await rogue.send(await rogue.inits([1])) == [None]
        inits = await rogue.inits([2], plan=other)
        rogue.task = parties.leader.tasks[other.id]
        answer = await rogue.ask("aggregation_jobs", dap.AggregationJobInitReq, rogue.job(inits))
        assert (answer.status_code, _problem(answer)) == (400, "batchInvalid")
        assert await rogue.send(inits, OTHER) == [None]

    in_parties(story, tmp_path)


def test_a_share_is_given_out_for_exactly_one_crowd(tmp_path: Path):
    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        inits = await rogue.inits(some_vectors(22))
        assert await rogue.send(inits[:19]) == [None] * 19
        assert _problem(await rogue.share(BATCH, inits[:19], 19)) == "invalidBatchSize"
        assert _problem(await rogue.share(OTHER, [], 0)) == "batchInvalid"
        too_many = ReportFault.BATCH_COLLECTED
        assert await rogue.send(inits[19:]) == [None, too_many, too_many]
        assert _problem(await rogue.share(BATCH, inits[:19], 20)) == "batchMismatch"
        assert _problem(await rogue.share(BATCH, inits[:20], 21)) == "batchMismatch"
        answer = await rogue.share(BATCH, inits[:20], 20)
        assert answer.status_code == 200
        again = await rogue.share(BATCH, inits[:20], 20)
        assert again.content == answer.content
        assert again.headers["location"] == answer.headers["location"]
        assert _problem(await rogue.share(BATCH, inits[:19], 20)) == "batchOverlap"
        assert await rogue.send(inits[20:21]) == [too_many]
        assert await rogue.send(inits[21:], OTHER) == [None]

    in_parties(story, tmp_path)


def test_what_the_draft_does_not_allow(tmp_path: Path):
    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        (init,) = await rogue.inits([3])
        batch = dap.Extension(dap.LEADER_SELECTED_BATCH_ID, BATCH)
        cases = {
            "invalidAggregationParameter": (0, b"x", (batch,), (init,)),
            "unsupportedExtension": (0, b"", (batch, dap.Extension(2, b"")), (init,)),
            "invalidMessage": (0, b"", (), (init,)),
        }
        for name, about in cases.items():
            body = dap.AggregationJobInitReq(*about).to_bytes()
            answer = await rogue.ask("aggregation_jobs", dap.AggregationJobInitReq, body)
            assert _problem(answer) == name
        answer = await rogue.ask("aggregation_jobs/abc", dap.AggregationJobInitReq, b"")
        assert _problem(answer) == "stepMismatch"
        metadata, public, _ = vars(init.report_share).values()
        key = parties.helper.tasks[PLAN.id].keys[WINDOW].public
        short = rogue.task.task.seal_input_share(Role.HELPER, key, metadata, public, bytes(63))
        cut = VerifyInit(dap.ReportShare(metadata, public, short), init.payload)
        assert await rogue.send([cut]) == [ReportFault.INVALID_MESSAGE]
        forged = VerifyInit(init.report_share, init.payload[:-1] + b"\xff")
        assert await rogue.send([forged]) == [ReportFault.VDAF_VERIFY_ERROR]
        assert await rogue.send([init]) == [None]  # it was not counted, and may still be

    in_parties(story, tmp_path)


def test_whatever_comes_is_answered_without_a_trace_in_any_batch(tmp_path: Path):
    """Random changes of a good job: nothing is counted but the reports that were left whole."""

    async def story(parties: Parties) -> None:
        rogue, chance = RogueLeader(parties), random.Random(4)
        good = rogue.job(await rogue.inits(some_vectors(2)))
        for _ in range(300):
            changed = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(good))] = chance.randrange(256)
            body = (
                bytes(changed)[: chance.randrange(len(good) + 1)]
                if chance.random() < 0.3
                else changed
            )
            answer = await rogue.ask("aggregation_jobs", dap.AggregationJobInitReq, bytes(body))
            assert answer.status_code in (200, 400), answer.text
        answer = await rogue.ask("aggregation_jobs", dap.AggregationJobInitReq, good)
        assert answer.status_code == 200

    in_parties(story, tmp_path)


def test_the_clock_decides_which_windows_are_open(tmp_path: Path):
    now = [NOW]

    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        inits = await rogue.inits([1])
        now[0] += 2 * WEEK
        await parties.helper.service.in_store(parties.helper.sweep)
        answer = await rogue.ask("aggregation_jobs", dap.AggregationJobInitReq, rogue.job(inits))
        assert _problem(answer) == "batchInvalid"

    in_parties(story, tmp_path, clock=lambda: now[0])
