"""Noise of the aggregators: drawn once for a batch, whatever stops, fails or asks again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import estimate
from shoal.analysis.tally import Tally
from shoal.protocol.plan import Aggregators, Promise, ShareNoise
from shoal.server.aggregation import plan as aggregator_plan
from shoal.server.aggregation.plan import draw_noise
from shoal.server.analyst import Analyst
from shoal.server.storage.database import StorageError
from shoal.server.storage.encryption import decrypt
from shoal.theory import discrete_gaussian, laplace
from tests.server.aggregation.test_operating import replace_by_backup, save
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
from tests.server.store_help import told

NOISY = replace(
    PLAN,
    promise=Promise("proven", "2", delta="1e-6"),
    parties=Aggregators(LEADER, HELPER, 4, noise=ShareNoise("laplace", "2")),
)
Drawn = Callable[[ShareNoise, int], list[int]]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect when a test says so, and never before: a full batch stays full until then."""

    async def wait(self: Analyst) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Analyst, "_collect", wait)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Note every draw; each is far from 0, so that two of one batch cannot be mistaken."""
    made: list[list[int]] = []

    def draw(noise: ShareNoise, count: int) -> list[int]:
        made.append([-40 - place for place in draw_noise(noise, count)])
        return made[-1]

    monkeypatch.setattr(aggregator_plan, "draw_noise", draw)
    return made


async def share_of(party: Any) -> bytes:
    """Return the aggregate share that a party keeps of its one full batch."""

    def read() -> bytes:
        (name,) = party.store.database.connection.execute(
            "SELECT batch FROM batches WHERE plan = ? AND state = 'full'", (NOISY.id,)
        ).fetchone()
        found = party.store._plans.get(NOISY.id).batch(bytes(name))
        return bytes(found.share)

    share: bytes = await party.service.in_store(party.store.database.read, "read a share", read)
    return share


def plus(vectors: Sequence[int], draws: Sequence[Sequence[int]]) -> list[int]:
    total: list[int] = (np.array(sums(vectors)) + np.sum(draws, axis=0)).tolist()
    return total


@told(in_parties, plan=NOISY, job_reports=7)
async def test_a_release_has_the_noise_of_both_and_may_be_negative(
    draws: list[list[int]], parties: Parties
):
    vectors = some_vectors(20)
    await parties.deliver(await parties.reports(vectors, plan=NOISY), NOISY)
    (release,) = await parties.collected(1, NOISY)
    assert len(draws) == 2  # one of the leader and one of the helper
    assert release["by_bit"] == plus(vectors, draws)
    assert max(release["by_bit"]) < 0
    tally = Tally.from_json(release, NOISY)
    assert tally.to_json() == release
    counts = estimate(NOISY, tally)["uses"]
    assert [round(one.count) for one in counts.values()] == [
        round((ones - 0.02) / (1 - 2 * float(NOISY.q))) for ones in release["by_bit"]
    ]


def test_an_aggregator_keeps_its_share_with_noise_alone(tmp_path: Path, draws: list[list[int]]):
    """A share at rest has its noise before anybody collects it, also after a restart."""
    vectors = some_vectors(20)

    async def before(parties: Parties) -> dict[str, bytes]:
        await parties.deliver(await parties.reports(vectors, plan=NOISY), NOISY)
        await parties.until_full(plan=NOISY)
        return {one.role.name: await share_of(one) for one in (parties.leader, parties.helper)}

    async def after(parties: Parties) -> None:
        found = {one.role.name: await share_of(one) for one in (parties.leader, parties.helper)}
        assert found == kept
        (release,) = await parties.collected(1, NOISY)
        assert release["by_bit"] == plus(vectors, draws)
        await parties.analyst.collect_plan(NOISY)

    kept = in_parties(before, tmp_path, job_reports=7, plan=NOISY)
    assert len(draws) == 2
    in_parties(after, tmp_path, job_reports=7, plan=NOISY)
    assert len(draws) == 2


@told(in_parties, plan=NOISY, job_reports=7)
async def test_a_full_batch_has_a_key_that_opens_no_earlier_sum(parties: Parties):
    """The log of a database may keep the last sum without noise for as long as it likes."""
    vectors = some_vectors(20)

    async def stored(party: Any) -> tuple[bytes, bytes, str]:
        """Return what the table holds of the one batch, its key, and what it is encrypted about."""

        def read() -> tuple[bytes, bytes, str]:
            plan, database = party.store._plans.get(NOISY.id), party.store.database
            ((number, content),) = database.connection.execute(
                "SELECT number, content FROM batches"
            ).fetchall()
            key = database.keys.key(NOISY.id, "crowd", number)
            return bytes(content), key, plan._about(number)

        found: tuple[bytes, bytes, str] = await party.service.in_store(
            party.store.database.read, "read a batch", read
        )
        return found

    both: tuple[Any, ...] = (parties.leader, parties.helper)
    uploads = await parties.reports(vectors, plan=NOISY)
    await parties.deliver(uploads[:19], NOISY)
    for party in both:
        for _ in range(3000):
            if any(one["progress"] == 90 for one in await parties.batches(party, NOISY)):
                break
            await asyncio.sleep(0.01)
    before = [await stored(party) for party in both]
    for content, key, about in before:
        decrypt(key, content, about)
    await parties.deliver(uploads[19:], NOISY)
    await parties.until_full(plan=NOISY)
    for party, (earlier, _, about) in zip(both, before, strict=True):
        content, key, _ = await stored(party)
        decrypt(key, content, about)
        with pytest.raises(StorageError):
            decrypt(key, earlier, about)


@told(in_parties, plan=NOISY, job_reports=9)
async def test_whoever_asks_again_gets_the_same_noise(draws: list[list[int]], parties: Parties):
    vectors = some_vectors(40)
    parties.to_helper.lose_answers = 9
    await parties.deliver(await parties.reports(vectors, plan=NOISY), NOISY)
    await parties.until_full(plan=NOISY, count=2)
    parties.to_helper.lose_answers = 4
    parties.to_leader.lose_answers = 4
    releases = await parties.collected(2, NOISY)
    assert len(draws) == 4
    total = np.sum([one["by_bit"] for one in releases], axis=0).tolist()
    assert total == plus(vectors, draws)
    shares = [(path, body) for _, path, body in parties.to_helper.requests
              if path.endswith("aggregate_shares")]  # fmt: skip
    assert max(Counter(shares).values()) > 1  # the same share was asked for again


@pytest.mark.parametrize("role", ["leader", "helper"])
@told(in_parties, plan=NOISY, job_reports=20)
async def test_a_draw_that_was_not_stored_never_left(
    draws: list[list[int]], role: str, monkeypatch: pytest.MonkeyPatch, parties: Parties
):
    """The process fails after a draw, inside of its transaction: the draw is undone with it."""
    vectors = some_vectors(20)
    failed: list[list[int]] = []

    def fail_at_first(self: Any, *about: Any) -> None:
        before = len(draws)
        commit(self, *about)
        party = "leader" if "leader" in str(self._records._folder) else "helper"
        if len(draws) > before and party == role and not failed:
            failed.append(draws.pop())
            raise RuntimeError("the process was killed here")

    commit = aggregator_plan.AggregatorPlan.commit
    monkeypatch.setattr(aggregator_plan.AggregatorPlan, "commit", fail_at_first)
    await parties.deliver(await parties.reports(vectors, plan=NOISY), NOISY)
    (release,) = await parties.collected(1, NOISY)
    assert len(failed) == 1
    assert len(draws) == 2
    assert release["by_bit"] == plus(vectors, draws)


@pytest.mark.parametrize("role", ["leader", "helper"])
def test_a_restored_aggregator_never_draws_again_for_a_batch(
    tmp_path: Path, draws: list[list[int]], role: str
):
    """Its backup is older than the batch, or than its collection: no second draw is answered."""
    now, vectors = [NOW], some_vectors(20)

    def clock() -> float:
        return now[0]

    async def before(parties: Parties) -> list[dict[str, Any]]:
        uploads = await parties.reports(vectors, plan=NOISY)
        await parties.deliver(uploads[:12], NOISY)
        await parties.deliver(uploads[12:], NOISY)
        await parties.until_full(plan=NOISY)
        save(tmp_path, role, clock)
        return await parties.collected(1, NOISY)

    async def after(parties: Parties) -> None:
        for _ in range(5):
            await parties.analyst.collect_plan(NOISY)
            await asyncio.sleep(0.05)
        assert await parties.collected(1, NOISY) == first
        assert len(draws) == 2
        now[0] += 2 * WEEK  # the first window that the restored one takes
        for party in (parties.leader, parties.helper):
            await party.service.in_store(party.sweep)
        await parties.deliver(await parties.reports(vectors, plan=NOISY), NOISY)
        _, second = await parties.collected(2, NOISY)
        assert second["by_bit"] == plus(vectors, draws[2:])
        assert len(draws) == 4

    first = in_parties(before, tmp_path, clock, plan=NOISY)
    assert first[0]["by_bit"] == plus(vectors, draws)
    replace_by_backup(tmp_path, role, clock)
    in_parties(after, tmp_path, clock, plan=NOISY)


@told(in_parties, plan=NOISY)
async def test_a_count_that_no_noise_explains_is_refused(
    monkeypatch: pytest.MonkeyPatch, parties: Parties
):
    monkeypatch.setattr(aggregator_plan, "draw_noise", lambda noise, count: [10**6] * count)
    await parties.deliver(await parties.reports(some_vectors(20), plan=NOISY), NOISY)
    await parties.until_full(plan=NOISY)
    for _ in range(5):
        await parties.analyst.collect_plan(NOISY)
        await asyncio.sleep(0.05)
    numbers = parties.analyst.store.released_numbers
    assert await parties.analyst.service.in_store(numbers, NOISY.id, 9) == []


@pytest.mark.parametrize(
    ("noise", "sigma"),
    [
        (ShareNoise("laplace", "2"), laplace.discrete_sigma(2.0)),
        (ShareNoise("gaussian", "3.5"), discrete_gaussian.deviation(3.5)),
    ],
)
def test_draws_have_the_distribution(noise: ShareNoise, sigma: float):
    """Their sum of squares is within nine of its sigmas: below 1e-9 by chance, for such tails."""
    count = 20_000
    drawn = np.array(draw_noise(noise, count), float)
    assert (drawn == drawn.round()).all()
    assert abs(drawn.mean()) < 9 * sigma / count**0.5
    kurtosis = 6.5 if noise.kind == "laplace" else 3.0
    assert abs((drawn**2).mean() / sigma**2 - 1) < 9 * ((kurtosis - 1) / count) ** 0.5


def test_nobody_else_counts_the_reports():
    from shoal import tally
    from shoal.errors import PrivacyRefusal
    from shoal.protocol.wire import Synthetic

    reports = Synthetic(np.array([[1], [3]], np.uint8), bits=4)
    with pytest.raises(PrivacyRefusal, match="counted by them and nowhere else"):
        tally(NOISY, reports)
