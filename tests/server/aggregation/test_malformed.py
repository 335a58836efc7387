"""Malformed requests and devices that lie: refused by both aggregators, and never counted."""

from __future__ import annotations

import asyncio
import os
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.device import sharing
from shoal.protocol.dap import NEXT_BATCH, Task
from shoal.protocol.dap import messages as dap
from shoal.protocol.dap.messages import UploadRequest
from shoal.protocol.vdaf import Prio3
from shoal.protocol.vdaf.circuits import MultihotCountVec
from shoal.server import leader as leader_service
from shoal.server.core.parties import PeerReply
from shoal.server.leader import FORMAT
from tests.protocol.vdaf.test_prio3 import TwoFaced
from tests.server.aggregation.test_helper import BATCH, RogueLeader
from tests.server.aggregation.world import (
    NOW,
    PLAN,
    WEEK,
    Parties,
    ask,
    in_parties,
    some_vectors,
    sums,
)

REQUESTS = int(os.environ.get("SHOAL_MALFORMED", "10000"))


def changed(body: bytes, chance: random.Random, fixed: bytes = b"") -> bytes:
    """Return a body with some bytes flipped, cut off, inserted or repeated, but not `fixed`."""
    held = range(at, at + len(fixed)) if fixed and (at := body.find(fixed)) >= 0 else range(0)
    while True:
        place = chance.randrange(len(body))
        if place in held:
            continue
        kind = chance.randrange(5)
        if kind == 0:
            return body[:place]
        if kind == 1:
            return body[:place] + chance.randbytes(chance.randrange(1, 40)) + body[place:]
        if kind == 2:
            return chance.randbytes(chance.randrange(2000))
        flipped = bytearray(body)
        flipped[place] ^= 1 << chance.randrange(8)
        return bytes(flipped)


class Spoiler(Prio3[Any, Any]):
    """Flips a bit of the public share, the leader's share with its proof, or the helper's."""

    chance = random.Random(19)

    def shard(
        self, ctx: bytes, measurement: Any, nonce: bytes, rand: bytes
    ) -> tuple[bytes, list[bytes]]:
        public, inputs = super().shard(ctx, measurement, nonce, rand)
        parts = [bytearray(part) for part in (public, *inputs)]
        spoiled = self.chance.choice(parts)
        spoiled[self.chance.randrange(len(spoiled))] ^= 1 << self.chance.randrange(8)
        public, *inputs = map(bytes, parts)
        return public, inputs


@pytest.mark.slow
def test_malformed_requests_are_refused_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service_log: pytest.LogCaptureFixture
):
    """A stranger, a leader and an analyst send what is almost right: 2xx or 4xx, never 5xx.

    Each upload is of a report of its own, all of whose bits but the first are set; good reports
    have the first bit alone, so that a malformed one that is counted is seen.
    """
    chance, task = random.Random(18), Task(PLAN)
    task.prio3 = Spoiler(task.prio3.circuit)

    async def story(parties: Parties) -> None:
        rogue = RogueLeader(parties)
        uploads = await parties.reports([0b1110] * (50 + REQUESTS // 4))
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "task_of", lambda plan: task)
            spoiled = await parties.reports([0b1110] * (50 + REQUESTS // 4))
        inits = await rogue.inits(some_vectors(10, seed=6))
        jobs = [rogue.job([one], BATCH) for one in inits]
        share = dap.AggregateShareReq(
            NEXT_BATCH, dap.BatchSelector(dap.BatchMode.LEADER_SELECTED, BATCH), 20, bytes(32)
        ).to_bytes()
        to_helper = f"Bearer {parties.leader.agreement.token('helper')}"
        to_leader = f"Bearer {parties.analyst._token}"
        leader, helper, base = parties.leader.public, parties.helper.public, rogue.task.task.path
        kinds: Sequence[tuple[object, str, type[dap.Message], Callable[[], bytes], str]] = [
            (leader, "reports", UploadRequest, lambda: changed(uploads.pop(), chance), ""),
            (leader, "reports", UploadRequest, spoiled.pop, ""),
            (helper, "aggregation_jobs", dap.AggregationJobInitReq,
             lambda: changed(chance.choice(jobs), chance, BATCH), to_helper),
            (helper, "aggregate_shares", dap.AggregateShareReq,
             lambda: changed(share, chance), to_helper),
            (leader, "collection_jobs", dap.CollectionJobReq,
             lambda: changed(NEXT_BATCH.to_bytes(), chance), to_leader),
        ]  # fmt: skip
        statuses: dict[int, int] = {}
        for _ in range(REQUESTS):
            app, resource, kind, make, token = kinds[chance.choice((0, 0, 1, 1, 2, 2, 2, 2, 3, 4))]
            headers = {"content-type": kind.content_type(), "authorization": token}
            path, method = f"/dap/{base}/tasks/{base}/{resource}", "POST"
            if chance.random() < 0.1:
                path = path[:-3] + chance.choice(("%00", "/../", "//", "/A", "s/" + "A" * 43))
            if chance.random() < 0.05:
                method = chance.choice(("GET", "PUT", "DELETE", "PATCH", "HEAD"))
            if chance.random() < 0.05:
                headers["content-type"] = chance.choice(("", ";;", "application/ppm-dap"))
            answer = await ask(app, method, path, make(), headers)
            status = answer.status_code
            if status == 503:  # the machine is busy
                await asyncio.sleep(0.1)
                continue
            assert 200 <= status < 300 or 400 <= status < 500, (path, status, answer.text)
            statuses[status] = statuses.get(status, 0) + 1
        assert statuses.keys() >= {200, 400, 404, 405, 415}, statuses
        assert sum(statuses.values()) > 0.9 * REQUESTS
        await parties.deliver(await parties.reports([0b0001] * 20))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == [20, 0, 0, 0]

    in_parties(story, tmp_path, job_reports=50)
    assert not [one.message for one in service_log.records if one.exc_info]


class Liar(MultihotCountVec):
    """Encodes a vector as it likes: an entry that is 2, or a weight that is too small."""

    lie: tuple[int, ...] = ()

    def encode(self, measurement: Sequence[int]) -> bytes:
        return self.field.vector(self.lie)


@pytest.mark.parametrize(
    "lie", [(2, 0, 0, 0, 0, 1, 0), (1, 1, 1, 1, 1, 0, 0), (0, 0, 0, 0, 0, 0, 2)]
)
def test_a_device_that_lies_about_bits_or_weight_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: tuple[int, ...]
):
    monkeypatch.setattr(leader_service, "_PAUSE", 0.01)
    vectors, task = some_vectors(20), Task(PLAN)
    circuit = Liar(PLAN.bits, 4, task.prio3.circuit.gadget.arity // 2)
    assert len(circuit.field.vector(lie)) == len(task.prio3.circuit.encode([0] * 4))
    circuit.lie = lie
    task.prio3 = Prio3(circuit)

    async def story(parties: Parties) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "task_of", lambda plan: task)
            lies = await parties.reports([0] * 5)
        await parties.deliver(lies)  # the leader cannot tell before it asks the helper
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_a_report_that_only_the_helper_could_accept_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leader_service, "_PAUSE", 0.01)
    vectors, task = some_vectors(20), Task(PLAN)
    task.prio3 = TwoFaced(task.prio3.circuit)

    async def story(parties: Parties) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sharing, "task_of", lambda plan: task)
            poisoned = await parties.reports([0b1111])
        await parties.deliver(poisoned)
        await parties.deliver(await parties.reports(vectors))
        (release,) = await parties.collected(1)
        assert release["by_bit"] == sums(vectors)

    in_parties(story, tmp_path)


def test_an_upload_takes_no_more_memory_than_its_reports(tmp_path: Path):
    """Tiny reports and extensions would become objects of many times their size."""
    nothing = dap.HpkeCiphertext(0, b"a", b"b")
    window = int(NOW // WEEK)

    def tiny(number: int, extensions: bytes = b"") -> dap.Report:
        metadata = dap.ReportMetadata(number.to_bytes(16), window, extensions)
        return dap.Report(metadata, b"", nothing, nothing)

    async def story(parties: Parties) -> None:
        one = UploadRequest((tiny(1),)).to_bytes()
        (found,) = dap.UploadErrors.from_bytes((await parties.upload(one)).content).status
        assert found.error == dap.ReportFault.INVALID_MESSAGE
        answer = await parties.upload(UploadRequest(tuple(map(tiny, range(100)))).to_bytes())
        assert answer.json()["type"] == "urn:ietf:params:ppm:dap:error:invalidMessage"

    in_parties(story, tmp_path)
    body = UploadRequest((tiny(1, dap.Extension(0, b"").to_bytes() * 16_000),)).to_bytes()
    tracemalloc.start()
    try:
        assert len(FORMAT.parse(PLAN, body)) == 1
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()


def test_a_leader_that_gives_out_old_batches_adds_no_release(tmp_path: Path):
    vectors = some_vectors(40)

    async def story(parties: Parties) -> None:
        way, results = parties.to_leader.ask, list[PeerReply]()

        def repeating(method: str, path: str, body: bytes | None, headers: Any) -> PeerReply:
            reply = way(method, path, body, headers)
            if reply.content:
                results.append(reply)
            elif method == "POST" and len(results) >= 2:  # the first, the second, the first, ...
                results.append(results[-2])
                return results[-1]
            return reply

        setattr(parties.to_leader, "ask", repeating)  # noqa: B010
        await parties.deliver(await parties.reports(vectors))
        releases = await parties.collected(2)
        for _ in range(3):
            await asyncio.wait_for(parties.analyst.collect_plan(PLAN), 60)
        store = parties.analyst.store
        numbers = await parties.analyst.service.in_store(store.released_numbers, PLAN.id, 9)
        assert len(numbers) == len(releases) == 2
        assert len(results) > 4

    in_parties(story, tmp_path)
