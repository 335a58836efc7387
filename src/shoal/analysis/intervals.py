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
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from shoal.errors import InputError
from shoal.protocol.plan import Plan, ShareNoise
from shoal.support.checks import check_integer, check_level, check_number, check_one_of
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    from shoal.theory.binomial import BinomialWindow

IntervalKind = Literal["exact", "normal", "simultaneous", "chebyshev"]
Target = Literal["crowd", "population"]

_STEPS = 32  # of a staircase; with many more its limit is narrower by less than 3 %
FEW_STEPS = 8  # of a staircase where many limits are wanted: wider by up to 6 %
_XTOL = 1e-14  # of a share
_WIDEST = 2.0**19  # sigma whose distribution is still summed: it takes about a gigabyte


class Noise(NamedTuple):
    """Noise of aggregators in a count: so many independent draws, or none."""

    of: ShareNoise | None = None
    draws: int = 0

    @classmethod
    def in_counts(cls, plan: Plan, reports: int) -> Noise:
        """Return the noise in the counts of reports: leader and helper each draw for a batch."""
        return NO_NOISE if plan.noise is None else cls(plan.noise, 2 * plan.batches(reports))

    def times(self, options: int) -> Noise:
        """Return the noise of a sum over several options."""
        return Noise(self.of, self.draws * options)

    @property
    def variance(self) -> float:
        if self.of is None:
            return 0.0
        from shoal.planning.share_noise import sigma_of

        return self.draws * sigma_of(self.of) ** 2

    @property
    def window(self) -> BinomialWindow | None:
        """The distribution of the sum."""
        if self.of is None:
            return None
        from shoal.planning.share_noise import noise_window

        return noise_window(self.of, self.draws)


NO_NOISE = Noise()


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`, in people; covers the truth at `level`, a normal one approximately.

    If no truth fits the reports under this plan, `compatible` is False and the interval the nearest
    end point.
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
    noise: Noise = NO_NOISE,
) -> Interval:
    """Return an interval for how many people's bit is set; 0 < q < 1/2.

    `options` is the number of options of the question; only `simultaneous` uses it. `noise` of
    aggregators is in `ones`, which then may be any whole number.

    >>> interval(300, 1000, 0.25)
    Interval(low=45, high=154, level=0.95, kind='exact', compatible=True)
    """
    check_level(level)
    check_integer("reports", reports, lowest=1)
    if not noise.draws:
        check_integer("ones", ones, lowest=0, highest=reports)
    check_integer("options", options, lowest=1)
    if not 0 < check_number("q", q) < 0.5:
        raise InputError(f"q must be strictly between 0 and 1/2 to estimate, got q={q}.")
    check_one_of("interval", kind, get_args(IntervalKind))
    check_target(target)
    miss = 1 - level
    if kind in ("normal", "chebyshev"):
        factor = normal_factor(level) if kind == "normal" else 1 / math.sqrt(miss)
        count = (ones - q * reports) / (1 - 2 * q)
        spread = sigma(ones, reports, q, "crowd", noise)
        drawn = reports if target == "population" else 0
        return Interval(*_within(count, spread, factor, drawn), level, kind)
    if kind == "simultaneous":
        # Given the crowd, the noise of different bits is independent, so that levels multiply;
        # bits of people drawn from a population are not, so there misses add.
        miss = -math.expm1(math.log(level) / options) if target == "crowd" else miss / options
    limits = Limits(ones, reports, q, target, noise=noise)
    low, high = limits.low(miss / 2), limits.high(miss / 2)
    compatible = math.isfinite(low) and math.isfinite(high)
    return Interval(min(low, reports), max(high, 0), level, kind, compatible)


def sigma(ones: int, reports: int, q: float, target: Target, noise: Noise = NO_NOISE) -> float:
    """Return the standard deviation of the unbiased count.

    For the crowd it is sqrt(N p q) / (p - q) whatever the truth (SDP 4); for the population the
    spread of the sample is estimated with it.
    """
    rate = q if target == "crowd" else min(max(ones / reports, 0.0), 1.0)
    return math.sqrt(reports * rate * (1 - rate) + noise.variance) / (1 - 2 * q)


def normal_interval(count: float, noise: float, level: float, drawn: int = 0) -> Interval:
    """Return the interval of a normal estimate whose flips have sigma `noise` (approximate)."""
    factor = normal_factor(check_level(level))
    return Interval(*_within(count, noise, factor, drawn), level, "normal")


def _within(count: float, noise: float, factor: float, drawn: int) -> tuple[float, float]:
    """Return the truths that are at most `factor` sigmas away.

    For `drawn` people of a population, these are the counts n s in it with
    (count - n s)^2 <= factor^2 (noise^2 + n s (1 - s)): Wilson's interval. A sigma estimated from
    the same ones would be zero where none were seen.
    """
    reach = factor * noise
    if not drawn:
        return count - reach, count + reach
    centre, shrink = count + factor**2 / 2, 1 + factor**2 / drawn
    square = count * (1 - count / drawn) + shrink * noise**2 + factor**2 / 4
    root = factor * math.sqrt(max(square, 0.0))
    return (centre - root) / shrink, (centre + root) / shrink


def drawn_sigma(count: float, noise: float, drawn: int) -> float:
    """Return the sigma of a count: of the flips, and of who was drawn from a population."""
    share = min(max(count / drawn, 0.0), 1.0) if drawn else 0.0
    return math.hypot(noise, math.sqrt(drawn * share * (1 - share)))


def check_target(target: object) -> None:
    if target not in get_args(Target):
        raise InputError(f"target must be crowd or population, got {target!r}.")


@dataclass(frozen=True)
class Limits:
    """One-sided limits of how many of `size` have a property, given `ones`.

    For a crowd, `size` are bits of anybody, each flipped with probability q: A_n(m) of KR 3.1.

    For a population, `size` people were drawn: Bin(size, q + (p - q) share) of the ones are theirs,
    and Bin(coins, coin) carry no information. The total of L options that exclude each other has
    n (L - 1) such coins of probability q: who has one of them differs from others in a single bit.

    With `noise` of aggregators the ones are those and the noise; the sum rises with the truth too.
    """

    ones: int
    size: int
    q: float
    target: Target = "crowd"
    coins: int = 0
    coin: float = 0.5
    noise: Noise = NO_NOISE

    def __post_init__(self) -> None:
        is_summed = self.target == "crowd" or self.coins or self.noise.draws
        widest = math.sqrt((self.size + self.coins) / 4 + self.noise.variance)
        if is_summed and widest > _WIDEST:
            raise InputError(
                f"exact limits for {self.size:,} bits and {self.noise.draws:,} draws of noise take"
                " too much memory; choose intervals of the kind normal or chebyshev."
            )

    def low(self, miss: float) -> float:
        """Return the smallest truth with P[at least `ones`] above `miss`, or infinity."""
        if self.target == "crowd":
            return _crowd_low(self.ones, self.size, self.q, miss, self.noise)
        return self.size * _share_low(self, miss)

    def high(self, miss: float) -> float:
        """Return the upper limit, yes and no exchanged; minus infinity if no truth fits."""
        zeros = self.size + self.coins - self.ones
        return self.size - replace(self, ones=zeros, coin=1 - self.coin).low(miss)

    def ends(self, miss: float) -> tuple[float, float]:
        """Return both limits; where no truth fits, the nearest one."""
        low, high = self.low(miss), self.high(miss)
        return (high if low == math.inf else low), (low if high == -math.inf else high)

    def wide_ends(self, miss: float) -> tuple[float, float]:
        """Return limits that are never tighter than those of a truth at an end; `miss` < 1/2.

        Ones that no truth explains leave a single point, which looks certain. Here ones below those
        expected of nobody count as these for the upper limit, and likewise at the other end: limits
        only move outwards.
        """
        nobody = self.size * self.q + self.coins * self.coin
        everybody = nobody + self.size * (1 - 2 * self.q)
        low = replace(self, ones=min(self.ones, math.floor(everybody))).low(miss)
        return low, replace(self, ones=max(self.ones, math.ceil(nobody))).high(miss)


@lru_cache(4096)  # the steps of a staircase, and one estimate set against several
def _crowd_low(ones: int, bits: int, q: float, miss: float, noise: Noise) -> float:
    from shoal.theory.binomial import tails
    from shoal.theory.calibration import NoValueError, smallest

    def likely(m: int) -> bool:  # rises with m (KR 3.1.2, theorem)
        return tails(ones, bits, m, q, noise=noise.window).at_least_bound > miss

    # The normal limit with a continuity correction is off by about one 1, 1 / (1 - 2q) people.
    reach = -NormalDist().inv_cdf(miss) * math.sqrt(bits * q * (1 - q) + noise.variance)
    guess = (ones - 0.5 - q * bits - reach) / (1 - 2 * q)
    try:
        step = math.ceil(0.5 / (1 - 2 * q))
        return smallest(likely, 0, bits, start=round(guess), step=step)
    except NoValueError:
        return math.inf


@lru_cache(4096)
def _share_low(seen: Limits, miss: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import betaincinv

    from shoal.theory.binomial import sum_tails

    q, ones, reports = seen.q, seen.ones, seen.size
    if not seen.coins and not seen.noise.draws:  # Clopper and Pearson's limit of the rate
        rate = float(betaincinv(ones, reports - ones + 1, miss)) if ones else 0.0
        share = (rate - q) / (1 - 2 * q)
        return max(share, 0.0) if share <= 1 else math.inf

    def excess(share: float) -> float:  # rises with the share
        people, coins = (reports, q + (1 - 2 * q) * share), (seen.coins, seen.coin)
        return sum_tails(ones, people, coins, seen.noise.window).at_least_bound - miss

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
    p-values are not smaller than uniform ones, and the stairs are a lower set (theorem). An end of
    a difference is 1.22 times as far away as one of a single test; with two limits at half the miss
    each it would be up to 1.62 times.
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
