"""Intervals for a count of ones, from how many reports showed a one.

Two targets, never mixed up: the *crowd* itself, where only the lies are random, and the
*population* that the crowd is a sample of, where who was asked is random too.

=============  ============================================================================
exact          inverts the exact law; covers at least the level for every truth
normal         sigma times a normal quantile; for large crowds
simultaneous   exact intervals that cover all options of a question together at the level
chebyshev      sigma / sqrt(1 - level), LEC Thm 5; needs no law, and is wide
=============  ============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

from shoal._check import check_integer, check_level, check_number
from shoal.errors import InputError

__all__ = ["Interval", "IntervalKind", "Target", "interval"]

IntervalKind = Literal["exact", "normal", "simultaneous", "chebyshev"]
Target = Literal["crowd", "population"]


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in people; covers the truth at `level`.

    `compatible` is False when no truth at all fits the reports under this plan (something other
    than the plan's noise was at work); the interval is then the nearest end point.
    """

    low: float
    high: float
    level: float
    kind: IntervalKind
    compatible: bool = True

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def interval(
    ones: int,
    reports: int,
    q: float,
    *,
    level: float = 0.95,
    kind: IntervalKind = "exact",
    target: Target = "crowd",
    options: int = 1,
) -> Interval:
    """Return an interval for how many people's bit is set.

    Parameters
    ----------
    ones
        How many reports showed a one.
    reports
        How many reports there were.
    q
        The lie probability, 0 < q < 1/2.
    level
        The probability with which intervals made this way cover the truth.
    kind, target
        See the module.
    options
        How many options the question has; only `simultaneous` looks at it.

    Examples
    --------
    >>> interval(300, 1000, 0.25)
    Interval(low=45, high=154, level=0.95, kind='exact', compatible=True)
    """
    check_level(level)
    check_integer("reports", reports, lowest=1)
    check_integer("ones", ones, lowest=0, highest=reports)
    check_integer("options", options, lowest=1)
    if not 0 < check_number("q", q) < 0.5:
        raise InputError(f"q must be strictly between 0 and 1/2 to estimate, got q={q}.")
    if kind not in get_args(IntervalKind):
        kinds = ", ".join(get_args(IntervalKind))
        raise InputError(f"interval must be one of {kinds}, got {kind!r}.")
    check_target(target)
    if kind in ("normal", "chebyshev"):
        centre = (ones - q * reports) / (1 - 2 * q)
        miss = 1 - level
        factor = normal_factor(level) if kind == "normal" else 1 / math.sqrt(miss)
        reach = factor * sigma(ones, reports, q, target)
        return Interval(centre - reach, centre + reach, level, kind)
    miss = 1 - level
    if kind == "simultaneous":
        # Given the crowd, the lies about different bits are independent, so that levels multiply;
        # bits of people drawn from a population are not, so there misses add.
        miss = -math.expm1(math.log(level) / options) if target == "crowd" else miss / options
    exact = _exact_crowd if target == "crowd" else _exact_population
    low, high, compatible = exact(ones, reports, q, miss)
    return Interval(low, high, level, kind, compatible)


def sigma(ones: int, reports: int, q: float, target: Target) -> float:
    """Return the standard deviation of the unbiased count.

    For the crowd it is sqrt(N p q) / (p - q) whatever the truth (SDP 4); for the population the
    spread of the sample is estimated with it.
    """
    if target == "crowd":
        return math.sqrt(reports * q * (1 - q)) / (1 - 2 * q)
    rate = ones / reports
    return math.sqrt(reports * rate * (1 - rate)) / (1 - 2 * q)


def normal_factor(level: float) -> float:
    """Return how many sigmas a normal interval at the level reaches."""
    return -NormalDist().inv_cdf((1 - level) / 2)


def normal_interval(count: float, sigma: float, level: float) -> Interval:
    """Return the interval that a normal estimate with this sigma gives."""
    reach = normal_factor(check_level(level)) * sigma
    return Interval(count - reach, count + reach, level, "normal")


def check_target(target: object) -> None:
    """Refuse a target that does not exist."""
    if target not in get_args(Target):
        raise InputError(f"target must be crowd or population, got {target!r}.")


def _exact_crowd(ones: int, reports: int, q: float, miss: float) -> tuple[int, int, bool]:
    """Invert the two one-sided tests of A_n(m) (Neyman; intervals by KR 3.1.2, theorem)."""
    from shoal.theory.one_bit_law import tails

    def high_enough(m: int) -> bool:  # rises with m
        return tails(ones, reports, m, q).at_least_bound > miss / 2

    def too_high(m: int) -> bool:  # rises with m
        return tails(ones, reports, m, q).at_most_bound <= miss / 2

    centre = (ones - q * reports) / (1 - 2 * q)
    reach = normal_factor(1 - miss) * sigma(ones, reports, q, "crowd") if miss > 1e-15 else reports
    low = _first_true(high_enough, reports, round(centre - reach), reach)
    high = _first_true(too_high, reports, round(centre + reach), reach) - 1
    if low > reports:
        return reports, reports, False
    if high < 0:
        return 0, 0, False
    return low, high, True


def _first_true(rises: Callable[[int], bool], last: int, guess: int, scale: float) -> int:
    """Return the first m in 0..last where the predicate is true, last + 1 if it never is."""
    step = max(1, int(scale / 64))
    below, above = -1, last + 1  # false at `below`, true at `above`, by convention at the ends
    probe = min(max(guess, 0), last)
    while below < probe < above:
        if rises(probe):
            above, probe = probe, max(probe - step, below)
        else:
            below, probe = probe, min(probe + step, above)
        step *= 2
    while above - below > 1:
        middle = (below + above) // 2
        if rises(middle):
            above = middle
        else:
            below = middle
    return above


def _exact_population(ones: int, reports: int, q: float, miss: float) -> tuple[float, float, bool]:
    """Clopper and Pearson's interval for the rate of ones, carried over to the share."""
    from scipy.special import betaincinv

    rate_low = betaincinv(ones, reports - ones + 1, miss / 2) if ones else 0.0
    rate_high = betaincinv(ones + 1, reports - ones, 1 - miss / 2) if ones < reports else 1.0
    low, high = ((float(rate) - q) / (1 - 2 * q) for rate in (rate_low, rate_high))
    if low > 1:
        return reports, reports, False
    if high < 0:
        return 0.0, 0.0, False
    return max(low, 0.0) * reports, min(high, 1.0) * reports, True
