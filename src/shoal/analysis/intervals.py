"""Intervals for a count of ones, from how many reports showed a one.

Two targets, never mixed up: the *crowd* itself, where only the flips are random, and the
*population* that the crowd is a sample of, where who was asked is random too.

=============  ============================================================================
exact          inverts the exact law; covers at least the level for every truth (theorem)
simultaneous   exact intervals that cover all options of a question together (theorem)
chebyshev      the truths within 1 / sqrt(1 - level) of their sigmas; covers at least the
               level (theorem, LEC Thm 5); needs no law, and is wide
normal         the truths within a normal quantile of their sigmas; approximate, for large
               crowds: docs/estimate.md says how far off it can be
=============  ============================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from shoal.analysis.limits import CrowdLaw, PopulationLaw
from shoal.errors import InputError
from shoal.support.checks import check_integer, check_level, check_number
from shoal.theory.gaussian import normal_factor

__all__ = ["Interval", "IntervalKind", "Target", "interval"]

IntervalKind = Literal["exact", "normal", "simultaneous", "chebyshev"]
Target = Literal["crowd", "population"]


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
    ones
        How many reports showed a one.
    reports
        How many reports there were.
    q
        The flip probability, 0 < q < 1/2.
    level
        The probability with which intervals made this way cover the truth: at least, or for a
        normal one approximately.
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
    miss = 1 - level
    if kind in ("normal", "chebyshev"):
        factor = normal_factor(level) if kind == "normal" else 1 / math.sqrt(miss)
        within = _crowds_within if target == "crowd" else _populations_within
        return Interval(*within(ones, reports, q, factor), level, kind)
    if kind == "simultaneous":
        # Given the crowd, the flips of different bits are independent, so that levels multiply;
        # bits of people drawn from a population are not, so there misses add.
        miss = -math.expm1(math.log(level) / options) if target == "crowd" else miss / options
    law = (CrowdLaw if target == "crowd" else PopulationLaw)(ones, reports, q)
    low, high = law.low(miss / 2), law.high(miss / 2)
    compatible = math.isfinite(low) and math.isfinite(high)
    return Interval(min(low, reports), max(high, 0), level, kind, compatible)


def sigma(ones: int, reports: int, q: float, target: Target) -> float:
    """Return the standard deviation of the unbiased count.

    For the crowd it is sqrt(N p q) / (p - q) whatever the truth (SDP 4); for the population the
    spread of the sample is estimated with it.
    """
    if target == "crowd":
        return math.sqrt(reports * q * (1 - q)) / (1 - 2 * q)
    rate = ones / reports
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
