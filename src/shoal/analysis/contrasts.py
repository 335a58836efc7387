"""Differences, totals and ratios of estimates, with intervals of their own.

Combining intervals by hand goes wrong: adding two of them is too wide, and testing whether they
overlap is too strict.

======  =====================================================================================
exact   covers at least the level for every truth, whatever the people's answers have to do
        with each other (theorem)
normal  approximate: the normal intervals of the parts, combined by their correlations
======  =====================================================================================

The exact ones are narrow for these reasons. Within one crowd the flips of different bits are
independent, so the ones of several bits, or the ones of one and the zeros of another, are
distributed like those of one bit in a larger crowd. Options of a question with one answer exclude
each other, so their total is one share of the population. Two crowds are independent. Other bits of
the same people are not independent as to who is in the sample: there the misses of the parts add.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from typing import Literal, get_args

from shoal.analysis.estimates import Estimate
from shoal.analysis.intervals import FEW_STEPS, Limits, staircase
from shoal.errors import InputError
from shoal.support.checks import check_level

CombinedKind = Literal["exact", "normal"]


@dataclass(frozen=True)
class Combination:
    """A value made of several estimates, its sigma and its interval at `level`.

    An exact interval covers at least the level, a normal one approximately. The interval of a ratio
    can be unbounded: then the denominator is not told apart from zero.
    """

    value: float
    sigma: float
    low: float
    high: float
    level: float
    kind: CombinedKind

    @property
    def differs(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def to_json(self) -> dict[str, float | None]:
        """Return value, sigma, low and high; null where nothing is known."""
        numbers = {name: getattr(self, name) for name in ("value", "sigma", "low", "high")}
        return {name: number if math.isfinite(number) else None for name, number in numbers.items()}


def difference(
    first: Estimate, second: Estimate, level: float = 0.95, *, kind: CombinedKind = "exact"
) -> Combination:
    """Return how many more people are behind the first option than behind the second."""
    parts = _Parts((first, second), (1, -1))
    value = first.count - second.count
    miss = _miss(level, kind)
    if kind == "normal":
        low, high = parts.normal(value, level)
    elif first.target == "crowd":
        low, high = _same_crowd_difference(first, second, miss)
    else:
        low, high = _extremes(operator.sub, _own(first), _own(second), _halves(miss))
    return Combination(value, parts.sigma, low, high, level, kind)


def total(
    estimates: Sequence[Estimate], level: float = 0.95, *, kind: CombinedKind = "exact"
) -> Combination:
    """Return how many answers several options have together."""
    if not estimates:
        raise InputError("a total needs at least one estimate.")
    parts = _Parts(tuple(estimates), (1,) * len(estimates))
    value = sum(one.count for one in estimates)
    miss = _miss(level, kind)
    if kind == "normal":
        low, high = parts.normal(value, level)
    else:
        low, high = total_limits(estimates, 1 - miss)
    return Combination(value, parts.sigma, low, high, level, kind)


def ratio(
    first: Estimate, second: Estimate, level: float = 0.95, *, kind: CombinedKind = "exact"
) -> Combination:
    """Return the first count over the second; the normal interval is Fieller's."""
    parts = _Parts((first, second), (1, -1))
    a, b = first.count, second.count
    if b == 0:
        raise InputError(f"the estimate of {second.label!r} is exactly 0; there is no ratio to it.")
    miss = _miss(level, kind)
    if kind == "normal":
        low, high = parts.fieller(level)
    else:
        corners = staircase(miss / 2) if first.target == "crowd" else _halves(miss)
        low, high = _extremes(_quotient, _own(first), _own(second), corners)
    value = a / b
    sigma = parts.spread((first.sigma, abs(value) * second.sigma)) / abs(b)
    return Combination(value, sigma, low, high, level, kind)


def share_difference(
    first: Estimate, second: Estimate, level: float = 0.95, *, kind: CombinedKind = "exact"
) -> Combination:
    """Return the difference of the shares in two independent crowds, for example two windows.

    The same people may be in both crowds: flips are independent, and permanent ones that repeat
    only make the interval wider than it need be. Samples of a population are independent draws.
    """
    if first.target != second.target:
        raise InputError("these are shares of a crowd and of a population; compare like with like.")
    m, n = first.reports, second.reports
    value = first.share - second.share
    miss = _miss(level, kind)
    if kind == "normal":
        (down, up), (less, more) = (_deviations(one, level) for one in (first, second))
        low, high = value - math.hypot(down / m, more / n), value + math.hypot(up / m, less / n)
    elif first.target == "crowd" and (m, first.q) == (n, second.q):
        low, high = (end / n for end in _same_crowd_difference(first, second, miss))
    else:
        limits = _own(first), _own(second)
        low, high = _extremes(lambda a, b: a / m - b / n, *limits, staircase(miss / 2))
    sigma = math.hypot(first.sigma / m, second.sigma / n)
    return Combination(value, sigma, low, high, level, kind)


def part_of(first: Estimate, others: Sequence[Estimate], level: float = 0.95) -> Combination:
    """Return the first option's part of the total with others; all exclude each other.

    The interval is exact wherever there is anybody at all (theorem). The value is the nearest part
    from 0 to 1, or not a number if the total is not above zero.
    """
    parts = _Parts((first, *others), (1,) + (-1,) * len(others))
    if not others or not all(one.question == first.question for one in others):
        raise InputError("a part is of one or more other options of the same question.")
    a, whole = first.count, first.count + sum(one.count for one in others)
    miss = _miss(level, "exact")
    corners = staircase(miss / 2, FEW_STEPS) if first.target == "crowd" else _halves(miss)
    rest = _limits(sum(one.ones for one in others), first, len(others))
    if whole <= 0:
        return Combination(math.nan, math.inf, 0.0, 1.0, level, "exact")
    ends = [(_own(first).wide_ends(x), rest.wide_ends(y)) for x, y in corners]
    low = min(_fraction(a[0], b[1]) for a, b in ends)
    high = max(_fraction(a[1], b[0]) for a, b in ends)
    value = min(max(a / whole, 0.0), 1.0)
    slopes = [(1 - value) / whole, *[value / whole] * len(others)]
    pairs = zip(slopes, parts.estimates, strict=True)
    sigma = parts.spread([abs(slope) * one.sigma for slope, one in pairs])
    return Combination(value, sigma, low, high, level, "exact")


def _miss(level: float, kind: str) -> float:
    if kind not in get_args(CombinedKind):
        raise InputError(f"the interval of a combination is exact or normal, got {kind!r}.")
    return 1 - check_level(level)


def _own(one: Estimate) -> Limits:
    return _limits(one.ones, one)


def _same_crowd_difference(first: Estimate, second: Estimate, miss: float) -> tuple[float, float]:
    """Return limits from the ones of the first and the zeros of the second, of 2 n bits."""
    n = first.reports
    low, high = _limits(first.ones + n - second.ones, first, 2).ends(miss / 2)
    return low - n, high - n


def _limits(ones: int, like: Estimate, options: int = 1) -> Limits:
    """Return the limits of a total: of bits of a crowd, or options of a population that exclude."""
    n, q = like.reports, float(like.q)
    if like.target == "crowd":
        return Limits(ones, options * n, q, noise=like.noise.times(options))
    return Limits(ones, n, q, "population", n * (options - 1), q, like.noise.times(options))


def _total_limits(estimates: Sequence[Estimate]) -> list[Limits]:
    """Return limits of parts of a total: where they cannot be one, for each group that can."""

    def group(one: Estimate) -> tuple[str, str]:
        if one.target == "crowd":
            return "", ""
        return one.question.name, "" if one.question.takes_one else one.label

    groups = (list(options) for _, options in groupby(sorted(estimates, key=group), key=group))
    return [_limits(sum(o.ones for o in some), some[0], len(some)) for some in groups]


def total_limits(estimates: Sequence[Estimate], level: float) -> tuple[float, float]:
    """Return exact limits of a total: each part's at its share of the miss; misses at most add."""
    parts = _total_limits(estimates)
    miss = (1 - level) / 2 / len(parts)
    lows, highs = zip(*(part.ends(miss) for part in parts), strict=True)
    return sum(lows), sum(highs)


def _extremes(
    value: Callable[[float, float], float],
    first: Limits,
    second: Limits,
    corners: Sequence[tuple[float, float]],
) -> tuple[float, float]:
    """Return the extremes of a value that rises with the first count and falls with the second."""
    ends = [(first.ends(x), second.ends(y)) for x, y in corners]
    return min(value(a[0], b[1]) for a, b in ends), max(value(a[1], b[0]) for a, b in ends)


def _halves(miss: float) -> tuple[tuple[float, float]]:
    """Return the one corner of two limits that may depend on each other: their misses add."""
    return ((miss / 4, miss / 4),)


def _quotient(a: float, b: float) -> float:
    return a / b if b else math.inf if a else 0.0


def _fraction(a: float, b: float) -> float:
    return a / (a + b) if a else 0.0


def _deviations(one: Estimate, level: float) -> tuple[float, float]:
    """Return how far the normal interval reaches below and above the count."""
    around = one.interval(level, "normal")
    return one.count - around.low, around.high - one.count


class _Parts:
    """Estimates of one tally and their signs, combined by their correlations.

    With each part's deviation from its own interval in place of z sigma (Zou and Donner 2008).
    """

    def __init__(self, estimates: tuple[Estimate, ...], signs: tuple[int, ...]) -> None:
        if len({(one.reports, one.q, one.target) for one in estimates}) > 1:
            raise InputError(
                "these estimates are not of one tally; use share_difference for two crowds."
            )
        if len({(one.question.name, one.label) for one in estimates}) < len(estimates):
            raise InputError("an option is named twice; combine different options.")
        self.estimates, self.signs = estimates, signs
        self.correlations = [
            0.0 if estimates[0].target == "crowd" else _correlation(*pair, *their)
            for pair, their in zip(combinations(estimates, 2), combinations(signs, 2), strict=True)
        ]

    def spread(self, deviations: Sequence[float]) -> float:
        """Return the root of the deviations' squares and their products' part."""
        squares = sum(one * one for one in deviations)
        pairs = zip(self.correlations, combinations(deviations, 2), strict=True)
        return math.sqrt(max(squares + 2 * sum(rho * a * b for rho, (a, b) in pairs), 0.0))

    @property
    def sigma(self) -> float:
        return self.spread([one.sigma for one in self.estimates])

    def deviations(self, level: float) -> tuple[list[float], list[float]]:
        """Return each part's deviation towards a low and towards a high result."""
        towards = [
            _deviations(one, level)[::sign]
            for one, sign in zip(self.estimates, self.signs, strict=True)
        ]
        return [down for down, _ in towards], [up for _, up in towards]

    def normal(self, value: float, level: float) -> tuple[float, float]:
        down, up = self.deviations(level)
        return value - self.spread(down), value + self.spread(up)

    def fieller(self, level: float) -> tuple[float, float]:
        """Return the t between which a - t b is not told apart from zero."""
        a, b = (one.count for one in self.estimates)
        (rho,) = self.correlations
        ends = []
        for side, (x, y) in zip((-1, 1), self.deviations(level), strict=True):
            # (a - t b)^2 <= x^2 + 2 rho t x y + t^2 y^2, that is A t^2 - 2 B t + C <= 0
            A, B, C = b * b - y * y, a * b + rho * x * y, a * a - x * x  # noqa: N806
            if A <= 0 or b < 0:
                return -math.inf, math.inf
            ends.append((B + side * math.sqrt(max(B * B - A * C, 0.0))) / A)
        return ends[0], ends[1]


def _correlation(a: Estimate, b: Estimate, sign_a: int, sign_b: int) -> float:
    """Return the largest correlation that sampling can give two signed counts."""
    shares = [min(max(one.share, 0.0), 1.0) for one in (a, b)]
    spread = a.sigma * b.sigma
    if not spread:
        return 0.0
    apart = -a.reports * shares[0] * shares[1]  # nobody has both: the multinomial covariance
    together = a.reports * (min(shares) - shares[0] * shares[1])  # one group inside the other
    overlap = a.reports * max(sum(shares) - 1 - shares[0] * shares[1], -shares[0] * shares[1])
    exclusive = a.question == b.question and a.question.takes_one
    possible = (apart,) if exclusive else (overlap, together)
    return min(max(sign_a * sign_b * covariance for covariance in possible) / spread, 1.0)
