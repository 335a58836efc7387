"""Intervals for a count of ones, from how many reports showed a one.

Two targets, never mixed up: the *crowd* itself, where only the flips are random, and the
*population* that the crowd is a sample of, where who was asked is random too.

=============  ============================================================================
exact          inverts the exact distribution; covers at least the level for every truth
               (theorem)
simultaneous   exact intervals that cover all options of a question together (theorem)
chebyshev      the truths within 1 / sqrt(1 - level) of their sigmas; covers at least the
               level (theorem, LEC Thm 5); assumes no distribution, and is wide
normal         the truths within a normal quantile of their sigmas; approximate, for large
               crowds: docs/estimate.md says how far off it can be
=============  ============================================================================

A one-sided limit at `miss` is on the wrong side of the truth with probability at most `miss`,
whatever the truth is: it inverts a one-sided test of a distribution that rises with the truth
(Neyman; theorem).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, Protocol, get_args

from shoal.errors import InputError
from shoal.support.checks import check_integer, check_level, check_number
from shoal.theory.randomized_response import normal_factor

IntervalKind = Literal["exact", "normal", "simultaneous", "chebyshev"]
Target = Literal["crowd", "population"]

_STEPS = 32  # of a staircase; with many more its limit is narrower by less than 3 %
FEW_STEPS = 8  # of a staircase where many limits are wanted: wider by up to 6 %
_XTOL = 1e-14  # of a share


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in people; covers the truth at `level`, a normal one approximately.

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
    ones, reports
        How many reports showed a one, and how many reports there were.
    q
        The flip probability, 0 < q < 1/2.
    level
        The probability with which intervals made this way cover the truth: at least, or for a
        normal one approximately.
    kind, target
        See the module.
    options
        How many options the question has; only `simultaneous` uses it.

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
    miss = 1 - level
    if kind in ("normal", "chebyshev"):
        factor = normal_factor(level) if kind == "normal" else 1 / math.sqrt(miss)
        within = _crowds_within if target == "crowd" else _populations_within
        return Interval(*within(ones, reports, q, factor), level, kind)
    if kind == "simultaneous":
        # Given the crowd, the flips of different bits are independent, so that levels multiply;
        # bits of people drawn from a population are not, so there misses add.
        miss = -math.expm1(math.log(level) / options) if target == "crowd" else miss / options
    limits = (CrowdLimits if target == "crowd" else PopulationLimits)(ones, reports, q)
    low, high = limits.low(miss / 2), limits.high(miss / 2)
    compatible = math.isfinite(low) and math.isfinite(high)
    return Interval(min(low, reports), max(high, 0), level, kind, compatible)


def sigma(ones: int, reports: int, q: float, target: Target) -> float:
    """Return the standard deviation of the unbiased count.

    For the crowd it is sqrt(N p q) / (p - q) whatever the truth (SDP 4); for the population the
    spread of the sample is estimated with it.
    """
    rate = q if target == "crowd" else ones / reports
    return math.sqrt(reports * rate * (1 - rate)) / (1 - 2 * q)


def normal_interval(count: float, noise: float, level: float, drawn: int = 0) -> Interval:
    """Return the interval of a normal estimate whose flips have sigma `noise` (approximate).

    If so many people were `drawn` from a population, the counts in it that are within the quantile
    of their own sigmas: (count - n s)^2 <= z^2 (noise^2 + n s (1 - s)), Wilson's idea.
    """
    z = normal_factor(check_level(level))
    if not drawn:
        return Interval(count - z * noise, count + z * noise, level, "normal")
    centre, shrink = count + z * z / 2, 1 + z * z / drawn
    reach = math.sqrt(max(centre**2 - shrink * (count**2 - (z * noise) ** 2), 0.0))
    return Interval((centre - reach) / shrink, (centre + reach) / shrink, level, "normal")


def drawn_sigma(count: float, noise: float, drawn: int) -> float:
    """Return the sigma of a count: of the flips, and of who was drawn from a population."""
    share = min(max(count / drawn, 0.0), 1.0) if drawn else 0.0
    return math.hypot(noise, math.sqrt(drawn * share * (1 - share)))


def check_target(target: object) -> None:
    """Refuse a target that does not exist."""
    if target not in get_args(Target):
        raise InputError(f"target must be crowd or population, got {target!r}.")


def _crowds_within(ones: int, reports: int, q: float, factor: float) -> tuple[float, float]:
    """Return the crowds that are at most `factor` sigmas away."""
    centre = (ones - q * reports) / (1 - 2 * q)
    reach = factor * sigma(ones, reports, q, "crowd")
    return centre - reach, centre + reach


def _populations_within(ones: int, reports: int, q: float, factor: float) -> tuple[float, float]:
    """Return the populations that are at most `factor` of their own sigmas away.

    The rates with (ones - n rate)^2 <= factor^2 n rate (1 - rate): Wilson's interval. A sigma that
    is estimated from the same ones is zero where none were seen, and would cover nothing.
    """
    squared = factor * factor
    root = factor * math.sqrt(ones * (reports - ones) / reports + squared / 4)
    rates = ((ones + squared / 2 + side) / (reports + squared) for side in (-root, root))
    low, high = (reports * (rate - q) / (1 - 2 * q) for rate in rates)
    return low, high


class OneSidedLimits(Protocol):
    """One-sided limits of a truth between 0 and some size, given what was seen."""

    def low(self, miss: float) -> float:
        """Return the lower limit; infinite if every truth makes so many ones too unlikely."""

    def high(self, miss: float) -> float:
        """Return the upper limit; minus infinity if every truth makes so few too unlikely."""


@dataclass(frozen=True)
class CrowdLimits:
    """Of `ones` ones among `bits` bits, each flipped with probability q: A_n(m) of KR 3.1.

    It does not matter whose bits they are: several bits of each person have the same distribution.
    """

    ones: int
    bits: int
    q: float

    def low(self, miss: float) -> float:
        """Return the smallest m whose P[A >= ones] is above `miss`."""
        return _crowd_low(self.ones, self.bits, self.q, miss)

    def high(self, miss: float) -> float:
        """Return the upper limit: yes and no exchanged."""
        return self.bits - _crowd_low(self.bits - self.ones, self.bits, self.q, miss)


@dataclass(frozen=True)
class PopulationLimits:
    """Of the ones of people drawn from a population in which a share has some property.

    Bin(reports, q + (p - q) share) of them, and beside these Bin(coins, coin) that say nothing. The
    total of L options that exclude each other has n (L - 1) such coins of probability q: a person
    with one of them differs from one with none in a single bit.
    """

    ones: int
    reports: int
    q: float
    coins: int = 0
    coin: float = 0.5

    def low(self, miss: float) -> float:
        """Return `reports` times the smallest share whose P[so many ones] is above `miss`."""
        return self.reports * _share_low(self, miss)

    def high(self, miss: float) -> float:
        """Return the upper limit: yes and no exchanged."""
        zeros = self.reports + self.coins - self.ones
        other = PopulationLimits(zeros, self.reports, self.q, self.coins, 1 - self.coin)
        return self.reports * (1 - _share_low(other, miss))


@lru_cache(4096)  # the steps of a staircase, and one estimate set against several
def _crowd_low(ones: int, bits: int, q: float, miss: float) -> float:
    from shoal.theory.binomial import tails
    from shoal.theory.calibration import NoValueError, smallest

    def likely(m: int) -> bool:  # rises with m (KR 3.1.2, theorem)
        return tails(ones, bits, m, q).at_least_bound > miss

    # The normal limit with a continuity correction is off by about one 1, 1 / (1 - 2q) people.
    reach = -NormalDist().inv_cdf(miss) * math.sqrt(bits * q * (1 - q))
    guess = (ones - 0.5 - q * bits - reach) / (1 - 2 * q)
    try:
        step = math.ceil(0.5 / (1 - 2 * q))
        return smallest(likely, 0, bits, start=round(guess), step=step)
    except NoValueError:
        return math.inf


@lru_cache(4096)
def _share_low(seen: PopulationLimits, miss: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import betaincinv

    from shoal.theory.binomial import sum_tails

    q, ones, reports = seen.q, seen.ones, seen.reports
    if not seen.coins:  # Clopper and Pearson's limit of the rate
        rate = float(betaincinv(ones, reports - ones + 1, miss)) if ones else 0.0
        share = (rate - q) / (1 - 2 * q)
        return max(share, 0.0) if share <= 1 else math.inf

    def excess(share: float) -> float:  # rises with the share
        people, coins = (reports, q + (1 - 2 * q) * share), (seen.coins, seen.coin)
        return sum_tails(ones, people, coins).at_least_bound - miss

    if excess(0.0) > 0:
        return 0.0
    if excess(1.0) <= 0:
        return math.inf
    root = brentq(excess, 0.0, 1.0, xtol=_XTOL, rtol=_XTOL)
    return max(root - 4 * _XTOL, 0.0)  # the safe side of where it ended


@lru_cache(64)
def staircase(miss: float, steps: int = _STEPS) -> tuple[tuple[float, float], ...]:
    """Return pairs of misses: two independent limits leave all of them with probability `miss`.

    With z the normal quantile of a p-value, two independent exact tests stay below a quarter of a
    circle in (z, z'), drawn as stairs, with at least the probability that two normal variables do:
    p-values are not smaller than uniform ones, and the stairs are a lower set (theorem). For large
    counts an end of any difference or ratio is 1.22 times as far away as one of a single normal
    test at 95 %; two limits at half the miss each would be up to 1.62 times as far.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr

    angles = np.linspace(0, math.pi / 2, steps + 1)
    across, up = np.cos(angles[:-1]), np.sin(angles[1:])

    def outside(radius: float) -> float:
        beyond = np.append(ndtr(-radius * across), 1.0)
        return float(beyond[0] + np.diff(beyond) @ ndtr(-radius * up))

    radius = brentq(lambda r: outside(r) - miss, 0.0, 40.0) * (1 + 1e-9)
    return tuple(zip(ndtr(-radius * across).tolist(), ndtr(-radius * up).tolist(), strict=True))
