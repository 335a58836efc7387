"""The same people again: composition, sums of windows, and memory."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from shoal import Plan, PrivacyRefusal, ShoalError, Survey, Tally, estimate, plan, publish, tally
from shoal.analysis.estimates import Estimate
from shoal.analysis.screening import screen
from shoal.planning.certificate import certify
from shoal.planning.guarantees import guarantees_over_time
from shoal.planning.threats import observers
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.survey import Arm, Retention
from shoal.protocol.wire import Synthetic

from . import oracle, worlds
from .crowds import pair_of
from .judging import Claim, at_least
from .worlds import World

NO_MEMORY = Fraction(0)


def composition(rng: random.Random) -> Iterator[Claim]:
    """Several releases with fresh flips, side by side or, for many, their sum."""
    world = worlds.one_bit() if rng.random() < 0.8 else worlds.any_world(rng, 2)
    size = rng.choice([2, 3, 4, 6, 10, 25] if world.bits == 1 else [2, 3])
    releases = rng.choice([1, 2, 2, 3, 4, 12, 52])
    size = min(size, max(160 // releases, 2))
    q = Fraction(rng.randint(2, 31), 64)
    together = certify(world.survey, q=q, crowd_size=size).compose(releases)
    where = f"{releases} releases, {world.survey.questions}, N={size}, q={q}"
    local = world.distance * math.log((1 - q) / q)
    for _ in range(3):
        epsilon = rng.choice([0.0, local, rng.random() * local * releases, rng.random() * local])
        claimed = together.delta(epsilon=epsilon)
        for truth in repeated(rng, world, size, releases, q, epsilon):
            yield at_least(claimed, truth, f"delta at {epsilon!r}, {where}")
    wish = 10.0 ** rng.uniform(-8, -1)
    for reached in (together.epsilon(delta=wish), together.to_json(wish)["epsilon"]):
        for truth in repeated(rng, world, size, releases, q, reached):
            yield at_least(wish, truth, f"epsilon {reached!r} at {wish!r}, {where}")


def releases_of_one(rng: random.Random) -> Iterator[Claim]:
    """Many releases of a person without a crowd: randomized response, however small delta is."""
    world = worlds.flags(rng.choice([1, 1, 2, 3]))
    releases = rng.choice([1, 2, 3, 7, 30, 100, rng.randint(2, 400)])
    q = rng.choice([Fraction(rng.randint(1, 255), 512), Fraction(1, 2) - Fraction(1, 2**20)])
    together = certify(world.survey, q=q, crowd_size=1).compose(releases)
    count = releases * world.bits
    where = f"{releases} releases of {world.bits} flags, q={q}"
    local = count * math.log((1 - q) / q)
    for epsilon in (0.0, local * rng.random(), local * (1 - 10.0 ** rng.uniform(-9, -1))):
        _, lam = oracle.lam_between(epsilon)
        truth = oracle.coins(count, q, lam)
        yield at_least(together.delta(epsilon=epsilon), truth, f"delta at {epsilon!r}, {where}")
    for wish in (10.0 ** rng.uniform(-16, -0.3), rng.choice([3e-15, 1e-30, 1e-100, 1e-300])):
        reached = together.epsilon(delta=wish)
        _, lam = oracle.lam_between(reached)
        truth = oracle.coins(count, q, lam)
        yield at_least(wish, truth, f"epsilon {reached!r} at {wish!r}, {where}")
    ratio = oracle.log_of(((1 - q) / q) ** count)[0]
    yield at_least(together.epsilon(delta=0.0), ratio, f"epsilon at delta 0, {where}")


def device_past(rng: random.Random) -> Iterator[Claim]:
    """Arm, age and their cells, in both releases that a device is in: what their reader learns."""
    arms, size = rng.choice([2, 2, 3]), rng.choice([1, 2, 3])
    arm = Arm("arm", tuple("abc"[:arms]))
    survey = Survey("w", (arm, Retention("age", periods=1, period="1d"))).cross("arm", "age")
    # As the documents define them: the arm, the age, and the cell of both, age changing fastest.
    vectors = {
        (i, age): 1 << i | 1 << arms + age | 1 << arms + 2 + 2 * i + age
        for i in range(arms)
        for age in (0, 1)
    }
    q = Fraction(rng.randint(1, 28), 64)
    certificate = certify(survey, q=q, crowd_size=size, view="counts")
    epsilon = rng.random() ** 2 * certificate.local_epsilon
    reader, of_all, *_ = observers(certificate, epsilon)
    where = f"{arms} arms, N={size}, q={q}, epsilon={epsilon!r}"
    _, lam = oracle.lam_between(reader.epsilon)
    _, lam_of_all = oracle.lam_between(of_all.epsilon)
    for others in ("like one", "like the other", "anybody"):
        x, y = rng.sample(range(arms), 2)
        pairs = []
        for age in (0, 1):  # the device keeps its arm; others are of any age
            crowd = {
                "like one": [(x, age)] * (size - 1),
                "like the other": [(y, age)] * (size - 1),
                "anybody": [rng.choice(list(vectors)) for _ in range(size - 1)],
            }[others]
            answers = [vectors[x, age], vectors[y, age], *(vectors[one] for one in crowd)]
            # Looking only at the bits that differ is post-processing.
            seen = [bit for bit in range(survey.bits) if (answers[0] ^ answers[1]) >> bit & 1]
            cut = [sum((v >> bit & 1) << j for j, bit in enumerate(seen)) for v in answers]
            law = oracle.counted(len(seen))
            pairs.append(oracle.neighbours(len(seen), q, cut[2:], cut[0], cut[1], law))
        for pair in pairs:
            yield at_least(
                reader.delta, oracle.delta(*pair, lam), f"one release, {others}, {where}"
            )
        truth = oracle.product(pairs, lam_of_all)
        yield at_least(of_all.delta, truth, f"both releases, {others}, {where}")


def repeated(
    rng: random.Random, world: World, size: int, releases: int, q: Fraction, epsilon: float
) -> Iterator[Fraction]:
    """Delta of all releases together, or a lower bound of it, in a few crowds."""
    _, lam = oracle.lam_between(epsilon)
    histograms = math.comb(size + 2**world.bits - 1, size)
    if world.bits > 1:
        if histograms**releases <= 5000:
            others = worlds.any_crowd(rng, world, size - 1)
            x, y = rng.sample(world.originals, 2) if len(world.originals) > 1 else (0, 0)
            yield oracle.product([pair_of(world, q, others, x, y)] * releases, lam)
        return
    for share in {1, releases}:
        _, m, up = oracle.worst_m(size, float(q), math.exp(epsilon / share))[0]
        if histograms**releases <= 5000:
            pair = oracle.one_bit_pair(size, m, up, q)
            yield oracle.product([pair] * releases, lam)
        # Adding the releases up is post-processing: its delta is no larger than theirs.
        total = [
            dict(enumerate(oracle.one_bit(size * releases, releases * ones, q)))
            for ones in ((m + 1, m) if up else (m, m + 1))
        ]
        yield oracle.delta(total[0], total[1], lam)


def sums(rng: random.Random) -> Iterator[Claim]:
    """Tallies of several windows of the same people, added up."""
    world, size, windows = worlds.one_bit(), rng.choice([2, 3, 5, 8, 12]), rng.choice([2, 3, 5])
    memory = rng.random() < 0.5
    q1 = Fraction(rng.randint(3, 24), 64) if memory else NO_MEMORY
    q2 = Fraction(rng.randint(3, 24), 64)
    agreed = _agreed(world, size, q1, q2, rng)
    if agreed is None:
        return
    where = f"{windows} windows, N={size}, q1={q1}, q2={q2}"
    named = rng.random() < 0.7
    total = windows_of(agreed, [rng.randint(0, size) for _ in range(windows)], size, named)
    yield from published_sum(agreed, total, size, windows, q1, q2, where)
    m = rng.randint(0, size)
    law = summed_law(size, m, windows, q1, q2)
    yield from covered_sum(agreed, total, law, m * windows, where)
    if windows * size <= 16:
        yield from screened_sum(agreed, law, size, windows, named, where)


def _agreed(world: World, size: int, q1: Fraction, q2: Fraction, rng: random.Random) -> Plan | None:
    q = FlipProbability.of_fraction(q1 + q2 - 2 * q1 * q2)
    if q.is_blind:
        return None
    wish = f"{rng.uniform(0.2, 1.5):.4f}"
    try:
        agreed = plan(world.survey, q=q, crowd_size=size, epsilon=wish)
    except PrivacyRefusal:
        return None
    if not q1:
        return agreed
    memory = Memory(FlipProbability.of_fraction(q1), FlipProbability.of_fraction(q2))
    return replace(agreed, memory=memory)


def windows_of(agreed: Plan, ones: list[int], size: int, named: bool) -> Tally:
    """The sum of one tally for each window, so many ones in each."""
    total = None
    for window, count in enumerate(ones):
        rows = np.array([[1]] * count + [[0]] * (size - count), np.uint8)
        name: dict[str, Any] = {"crowd": f"window {window}"} if named else {}
        one = tally(agreed, Synthetic(rows, bits=1), **name)
        total = one if total is None else total + one
    assert total is not None
    return total


def summed_law(size: int, m: int, windows: int, q1: Fraction, q2: Fraction) -> list[int]:
    """Weights of the number of ones in all windows, the same m people of `size` set in each."""
    key = oracle.summed(1)
    kinds = [oracle.person((x,) * windows, 1, q2, key, q1) for x in (1, 0)]
    law = oracle.crowd([kinds[0]] * m + [kinds[1]] * (size - m))
    return [law.get(ones, 0) for ones in range(size * windows + 1)]


def published_sum(
    agreed: Plan, total: Tally, size: int, windows: int, q1: Fraction, q2: Fraction, where: str
) -> Iterator[Claim]:
    """What a publication of the sum promises, if it is not refused."""
    try:
        document = publish(agreed, total).to_json()
    except ShoalError:
        return
    for epsilon, delta in stated(document):
        _, lam = oracle.lam_between(Fraction(epsilon))
        for m in {0, size // 2, size - 1}:
            laws = [dict(enumerate(summed_law(size, ones, windows, q1, q2))) for ones in (m + 1, m)]
            for towards, away in (laws, laws[::-1]):
                truth = oracle.delta(towards, away, lam)
                yield at_least(
                    Fraction(delta), truth, f"published: epsilon {epsilon}, delta {delta}, {where}"
                )


def stated(document: dict[str, object]) -> list[tuple[str, str]]:
    """The pairs of epsilon and delta that a publication promises for the whole of it."""
    promise = document["promise"]
    assert isinstance(promise, dict)
    number = r"([0-9][0-9.e+-]*)"
    pairs = re.findall(rf"^proven: epsilon {number}, delta {number}", promise["short"])
    if promise.get("sum"):
        whole = promise["sum"]
        pairs += [
            (repr(whole["epsilon"]), repr(whole["delta"])),
            (repr(whole["promised_epsilon"]), repr(whole["delta_at_promised"])),
        ]
    if not pairs:
        raise AssertionError(f"the publication of a proven plan promises nothing: {promise}")
    return [(epsilon.rstrip(","), delta.rstrip(",")) for epsilon, delta in pairs]


def covered_sum(
    agreed: Plan, total: Tally, law: list[int], truth: int, where: str
) -> Iterator[Claim]:
    """How often the exact interval of the sum holds the truth, if it is not refused."""
    try:
        one = estimate(agreed, total)["f"]["option 0"]
    except ShoalError:
        return
    covered = 0
    for ones, weight in enumerate(law):
        bounds = Estimate(
            one.question, one.label, ones, one.reports, one.q, one.target, 0.0
        ).interval(0.95)
        covered += weight if truth in bounds else 0
    coverage = Fraction(covered, sum(law))
    yield at_least(coverage, Fraction(95, 100), f"coverage of the sum at truth {truth}, {where}")


def screened_sum(
    agreed: Plan, law: list[int], size: int, windows: int, named: bool, where: str
) -> Iterator[Claim]:
    """How often an honest crowd is accused, if a sum is screened at all."""
    p_values: list[tuple[float, int]] = []
    for ones, weight in enumerate(law):
        split = [ones // windows + (w < ones % windows) for w in range(windows)]
        try:
            seen = screen(agreed, windows_of(agreed, split, size, named))
        except ShoalError:
            return
        p_values.append((seen.p_value, weight))
    yield from honest_alarms(p_values, f"screening of a sum, {where}")


def honest_alarms(p_values: list[tuple[float, int]], words: str) -> Iterator[Claim]:
    """An honest crowd has a p-value of at most a with probability at most a, for every a."""
    total, below = sum(weight for _, weight in p_values), 0
    for p, weight in sorted(p_values):
        below += weight
        if p < 1:
            yield at_least(p, Fraction(below, total), words)


def memory(rng: random.Random) -> Iterator[Claim]:
    """What is stated about many releases, with memory or without."""
    world = worlds.one_bit() if rng.random() < 0.8 else worlds.any_world(rng, 2)
    releases = rng.choice([1, 2, 2, 3]) if world.bits == 1 else 2
    size = rng.choice([2, 3, 4]) if world.bits == 1 else 2
    if not world.distance:
        return
    q1 = rng.choice([NO_MEMORY, *[Fraction(rng.randint(2, 28), 64)] * 3])
    q2 = Fraction(rng.randint(2, 28), 64)
    q = FlipProbability.of_fraction(q1 + q2 - 2 * q1 * q2)
    if q.is_blind:
        return
    kept = Memory(FlipProbability.of_fraction(q1), FlipProbability.of_fraction(q2)) if q1 else None
    agreed = Plan(world.survey, q, Promise("proven", "9", delta="0.5"), size, memory=kept)
    wish, changed = 10.0 ** rng.uniform(-5, -0.5), rng.choice([0, 0, 1])
    where = f"{world.survey.questions}, {releases} releases, N={size}, q1={q1}, q2={q2}"
    laws = _PairsOfLaws(rng, world, releases, size, changed if q1 else 0, q1, q2)
    for one in guarantees_over_time(agreed, releases, delta=wish, changed=changed):
        for towards, away in laws.pairs(one.holds_for, one.kind):
            if one.delta:
                _, lam = oracle.lam_between(one.epsilon)
                truth = oracle.delta(towards, away, lam)
                yield at_least(one.delta, truth, f"{one.holds_for}, {one.epsilon!r}, {where}")
            else:
                low, _ = oracle.log_of(oracle.largest_ratio(towards, away))
                yield at_least(one.epsilon, low, f"{one.holds_for}, {where}")


@dataclass
class _PairsOfLaws:
    """Pairs of laws that a statement is about, for each thing that it may hold for."""

    rng: random.Random
    world: World
    releases: int
    size: int
    changed: int
    q1: Fraction
    q2: Fraction

    def pairs(self, holds_for: str, kind: str) -> Iterator[tuple[oracle.Law, oracle.Law]]:
        """Laws under two answers, or two histories of answers, of one person."""
        for _ in range(4):
            x, y = self.rng.sample(self.world.originals, 2)
            always = (x,) * self.releases, (y,) * self.releases
            one, other, *others = self._histories(2 + self.size - 1)
            changing = one, other
            if holds_for == "one report":
                yield self._among((x,), (y,), [])
            elif holds_for == "one release":
                yield self._among((x,), (y,), [history[:1] for history in others])
            elif holds_for == "one answer, every release":
                yield self._among(*always, [])
            elif holds_for == "answers that change, every release":
                yield self._among(*changing, [])
            elif holds_for == "same crowd, every release":
                still = [(h[0],) * self.releases for h in others[self.changed :]]
                yield self._among(*always, [*still, *others[: self.changed]])
            else:
                # A local statement about changing crowds is one about a single answer.
                yield self._among(*(changing if kind == "proven" else always), others)

    def _histories(self, count: int) -> list[oracle.Answers]:
        answers = self.world.originals
        return [tuple(self.rng.choices(answers, k=self.releases)) for _ in range(count)]

    def _among(
        self, one: oracle.Answers, other: oracle.Answers, others: Sequence[oracle.Answers]
    ) -> tuple[oracle.Law, oracle.Law]:
        bits, key = self.world.bits, oracle.histogram(self.world.bits)
        towards, away, *rest = (
            oracle.person(answers, bits, self.q2, key, self.q1) for answers in (one, other, *others)
        )
        hidden = oracle.crowd(rest)
        return oracle.together(hidden, towards), oracle.together(hidden, away)
