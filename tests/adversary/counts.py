"""Intervals, p-values and error bounds: how often they are wrong, by the exact law."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np

from shoal import Choice, Flags, Plan, tally
from shoal.analysis.contrasts import difference, ratio, share_difference, total
from shoal.analysis.estimates import Estimate
from shoal.analysis.screening import screen
from shoal.curator import Curator
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic

from . import oracle, worlds
from .judging import Claim, at_least
from .times import honest_alarms

LEVELS = (Fraction(1, 2), Fraction(4, 5), Fraction(9, 10), Fraction(19, 20), Fraction(99, 100))


def _estimates(n: int, q: Fraction, target: str, options: int = 1) -> list[Estimate]:
    question = Flags("f", tuple(f"option {j}" for j in range(options)))
    flip = FlipProbability.of_fraction(q)
    return [
        Estimate(question, "option 0", ones, n, flip, target, 0.0)  # type: ignore[arg-type]
        for ones in range(n + 1)
    ]


def _interval_q(rng: random.Random) -> Fraction:
    if rng.random() < 0.3:
        return Fraction(1, 2 ** rng.randint(7, 20))
    if rng.random() < 0.15:
        return Fraction(1, 2) - Fraction(1, 2 ** rng.randint(5, 12))
    return worlds.dyadic_q(rng)


def crowd_coverage(rng: random.Random) -> Iterator[Claim]:
    """Intervals for the crowd itself, at every truth: exact, Chebyshev, and all options at once."""
    n, q, level = rng.choice([1, 2, 3, 5, 8, 12, 20, 35]), _interval_q(rng), rng.choice(LEVELS)
    kind = rng.choice(["exact", "exact", "exact", "chebyshev", "simultaneous"])
    options = rng.choice([2, 3, 10]) if kind == "simultaneous" else 1
    bounds = [e.interval(float(level), kind) for e in _estimates(n, q, "crowd", options)]  # type: ignore[arg-type]
    words = f"{kind} for {options} options, n={n}, q={q}, level {level}"
    for m in range(n + 1):
        law = oracle.one_bit(n, m, q)
        covered = sum(w for ones, w in enumerate(law) if m in bounds[ones])
        # Given the crowd, options are independent; the worst truth may be that of all of them.
        coverage = Fraction(covered, sum(law)) ** options
        yield at_least(coverage, _floor(level), f"m={m}, {words}")


def _floor(level: Fraction) -> Fraction:
    """The level that was asked for is a float, next to the fraction."""
    return level - Fraction(1, 10**12)


def population_coverage(rng: random.Random) -> Iterator[Claim]:
    """Intervals for the population that the crowd is a sample of, at many shares."""
    n, q, level = rng.choice([1, 2, 3, 5, 8, 12, 20, 35]), _interval_q(rng), rng.choice(LEVELS)
    kind = rng.choice(["exact", "exact", "chebyshev"])
    bounds = [e.interval(float(level), kind) for e in _estimates(n, q, "population")]  # type: ignore[arg-type]
    shares = [Fraction(0), Fraction(1), Fraction(1, 2), Fraction(1, 20), Fraction(1, 1000)]
    shares += [Fraction(rng.randint(0, 1000), 1000) for _ in range(4)]
    # Just outside an end of an interval the coverage is least.
    ends = [end for bound in bounds for end in (bound.low, bound.high)]
    shares += [
        min(max(Fraction(end) / n + step, Fraction(0)), Fraction(1))
        for end in rng.sample(ends, min(4, len(ends)))
        for step in (Fraction(1, 10**9), Fraction(-1, 10**9))
    ]
    for share in shares:
        rate = q + (1 - 2 * q) * share
        law = oracle.one_bit(n, 0, rate)
        truth = share * n
        covered = sum(w for o, w in enumerate(law) if bounds[o].low <= truth <= bounds[o].high)
        words = f"{kind} for the population, share {float(share)!r}, n={n}, q={q}, level {level}"
        yield at_least(Fraction(covered, sum(law)), _floor(level), words)


def population_together(rng: random.Random) -> Iterator[Claim]:
    """Simultaneous intervals for two options whose answers go together in the population."""
    n, q, level = rng.choice([2, 3, 4, 6]), worlds.dyadic_q(rng, 5), rng.choice(LEVELS)
    bounds = [e.interval(float(level), "simultaneous") for e in _estimates(n, q, "population", 2)]
    cuts = sorted(rng.randint(0, 20) for _ in range(3))
    cells = [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], 20 - cuts[2]]
    law, truths = _two_options(n, q, cells, "population", False)
    covered = 0
    for outcome, weight in law.items():
        ones = (outcome & ((1 << oracle.DIGIT) - 1), outcome >> oracle.DIGIT)
        held = (bounds[o].low <= t <= bounds[o].high for o, t in zip(ones, truths, strict=True))
        covered += weight if all(held) else 0
    words = f"two options at once for the population, {cells}, n={n}, q={q}, level {level}"
    yield at_least(Fraction(covered, sum(law.values())), _floor(level), words)


def honest_crowds(rng: random.Random) -> Iterator[Claim]:
    """Screening one crowd: how often honest people are accused, at every alarm."""
    bits, size = rng.choice([(1, 3), (1, 6), (1, 10), (2, 2), (2, 3)])
    q = worlds.dyadic_q(rng, 6)
    world = worlds.flags(bits) if rng.random() < 0.5 or bits == 1 else worlds.any_world(rng, 2)
    flip = FlipProbability.of_fraction(q)
    agreed = Plan(world.survey, flip, Promise("local", "99"))
    seen: dict[int, float] = {}
    key = oracle.histogram(world.bits)
    for vectors in itertools.combinations_with_replacement(range(2**world.bits), size):
        rows = Synthetic(np.array(vectors, np.uint8)[:, None], bits=world.bits)
        seen[sum(key(0, v) for v in vectors)] = screen(agreed, tally(agreed, rows)).p_value
    for _ in range(3):
        people = worlds.any_crowd(rng, world, size)
        law = oracle.crowd(oracle.person((x,), world.bits, q, key) for x in people)
        p_values = [(seen[outcome], weight) for outcome, weight in law.items()]
        yield from honest_alarms(
            p_values, f"screening of {people}, {world.survey.questions}, q={q}"
        )


def curator(rng: random.Random) -> Iterator[Claim]:
    """A trusted curator: the scale keeps epsilon, and errors beyond alpha are rare enough."""
    epsilon = f"{10.0 ** rng.uniform(-2, 1):.3f}1"
    neighbours = rng.choice(["replace", "add-remove"])
    cells = rng.choice([1, 1, 2, 5])
    if cells == 1:
        people = Curator({"x": [1, 0, 1]}, neighbours=neighbours)  # type: ignore[arg-type]
        release = people.count("x=1", epsilon=epsilon)
        moved = 1
    else:
        labels = [f"cell {j}" for j in range(cells)]
        people = Curator({"x": labels}, neighbours=neighbours)  # type: ignore[arg-type]
        release = people.histogram("x", categories=labels, epsilon=epsilon)
        moved = 2 if neighbours == "replace" else 1
    scale = Fraction(release.scale)
    words = f"{release.query} of {cells} cells, {neighbours}, epsilon {epsilon}"
    # The largest log ratio of two discrete Laplace laws moved apart is the move over the scale.
    yield at_least(Fraction(epsilon), moved / scale, f"epsilon of a {words}")
    miss = rng.choice([0.5, 0.1, 0.05, 0.01, 1e-6])
    beyond = _beyond(release.accuracy(miss).alpha, scale)
    yield at_least(
        Fraction(miss), _any(beyond, cells) * (1 - Fraction(1, 10**12)), f"alpha, {words}"
    )
    level = float(rng.choice(LEVELS))
    reach = release.half_width(level, simultaneous=True)
    missed = _any(_beyond(reach, scale), cells) * (1 - Fraction(1, 10**12))
    yield at_least(1 - Fraction(level), missed, f"simultaneous at {level}, {words}")


def _beyond(reach: float, scale: Fraction) -> Fraction:
    """P[|Z| > reach] of the law proportional to exp(-|k| / scale), summed term by term."""
    first = math.floor(reach) + 1
    with mpmath.workdps(40):
        step = mpmath.exp(-mpmath.mpf(scale.denominator) / mpmath.mpf(scale.numerator))
        # sum of step^|k| over |k| >= first, over the sum of all: geometric series
        tail = 2 * step**first / (1 - step)
        whole = 1 + 2 * step / (1 - step)
        return Fraction(str(tail / whole))


def _any(chance: Fraction, cells: int) -> Fraction:
    return 1 - (1 - chance) ** cells


def contrasts(rng: random.Random) -> Iterator[Claim]:
    """Differences, totals and ratios of two options, and shares of two crowds compared."""
    n, q, level = rng.choice([1, 2, 3, 5, 7]), worlds.dyadic_q(rng, 6), rng.choice(LEVELS)
    target = rng.choice(["crowd", "population"])
    exclusive, apart = rng.random() < 0.5, rng.random() < 0.25
    cells = [0, 0, 0, 0]
    for _ in range(n if target == "crowd" else 20):
        cells[rng.choice([0, 1, 2] if exclusive else [0, 1, 2, 3])] += 1
    law, truths = _two_options(n, q, cells, target, apart)
    names = ("option 0", "option 1", "option 2")
    question = Choice("f", names) if exclusive else Flags("f", names)
    flip, digit = FlipProbability.of_fraction(q), (1 << oracle.DIGIT) - 1
    held = dict.fromkeys(("share_difference",) if apart else ("difference", "total", "ratio"), 0)
    for outcome, weight in law.items():
        one, other = (
            Estimate(question, label, ones, n, flip, target, 0.0)  # type: ignore[arg-type]
            for label, ones in zip(
                names[:2], (outcome & digit, outcome >> oracle.DIGIT), strict=True
            )
        )
        for name in held:
            held[name] += weight if _holds(name, one, other, truths, n, float(level)) else 0
    for name, covered in held.items():
        words = f"{name} for the {target}, {cells}, {question}, n={n}, q={q}, level {level}"
        yield at_least(Fraction(covered, sum(law.values())), _floor(level), words)


def _two_options(
    n: int, q: Fraction, cells: list[int], target: str, apart: bool
) -> tuple[oracle.Law, tuple[Fraction, Fraction]]:
    """The law of the ones of two options, and how many people have each.

    Cells count who has neither, the first, the second and both. Apart, the second option is that
    of another crowd, with the same cells.
    """
    total = sum(cells)
    seen = [oracle.person((answer,), 2, q, oracle.counted(2)) for answer in range(4)]
    if target == "crowd":
        law = oracle.crowd(seen[a] for a, count in enumerate(cells) for _ in range(count))
    else:
        drawn = {
            outcome: sum(count * one[outcome] for one, count in zip(seen, cells, strict=True))
            for outcome in seen[0]
        }
        law = oracle.crowd([drawn] * n)
    if apart:
        first: oracle.Law = {}
        second: oracle.Law = {}
        for outcome, weight in law.items():
            ones, others = outcome & ((1 << oracle.DIGIT) - 1), outcome >> oracle.DIGIT
            first[ones] = first.get(ones, 0) + weight
            second[others << oracle.DIGIT] = second.get(others << oracle.DIGIT, 0) + weight
        law = oracle.together(first, second)
    have = (cells[1] + cells[3], cells[2] + cells[3])
    return law, (Fraction(have[0] * n, total), Fraction(have[1] * n, total))


def _holds(
    name: str,
    one: Estimate,
    other: Estimate,
    truths: tuple[Fraction, Fraction],
    n: int,
    level: float,
) -> bool:
    a, b = truths
    if name == "ratio":
        # 0 / 0 is every ratio; and there is no ratio to an estimate of exactly nobody.
        if b == 0 or other.count == 0:
            return True
        found, truth = ratio(one, other, level), a / b
    elif name == "total":
        found, truth = total([one, other], level), a + b
    elif name == "difference":
        found, truth = difference(one, other, level), a - b
    else:
        found, truth = share_difference(one, other, level), (a - b) / n
    # Ends are floats next to the exact ones.
    slack = Fraction(1, 10**9) * (1 + abs(truth))
    low, high = (end if math.isinf(end) else Fraction(end) for end in (found.low, found.high))
    return bool(low - slack <= truth <= high + slack)
