"""One-sided exact limits of a count, and of two counts together.

A limit at `miss` is on the wrong side of the truth with probability at most `miss`, whatever the
truth is: it inverts a one-sided test of a law that rises with the truth (Neyman; theorem).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

__all__ = ["FEW_STEPS", "CrowdLaw", "Law", "PopulationLaw", "staircase"]

_STEPS = 32
"""Of a staircase; the limit of many steps is narrower by less than 3 %."""

FEW_STEPS = 8
"""Of a staircase where many limits are wanted: a quarter of the work, wider by up to 6 %."""


_XTOL = 1e-14
"""Of a share."""


class Law(Protocol):
    """What was seen, and the law that it follows for every truth between 0 and some size."""

    def low(self, miss: float) -> float:
        """Return the lower limit; infinite if every truth makes so many ones too unlikely."""

    def high(self, miss: float) -> float:
        """Return the upper limit; minus infinity if every truth makes so few too unlikely."""


@dataclass(frozen=True)
class CrowdLaw:
    """So many ones of `bits` bits, each flipped with probability q: A_n(m) of KR 3.1.

    It does not matter whose bits they are: several bits of each person follow the same law.
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
class PopulationLaw:
    """Ones of people drawn from a population in which a share has some property.

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
        other = PopulationLaw(zeros, self.reports, self.q, self.coins, 1 - self.coin)
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
def _share_low(law: PopulationLaw, miss: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import betaincinv

    from shoal.theory.binomial import sum_tails

    q = law.q
    if not law.coins:  # Clopper and Pearson's limit of the rate
        rate = float(betaincinv(law.ones, law.reports - law.ones + 1, miss)) if law.ones else 0.0
        share = (rate - q) / (1 - 2 * q)
        return max(share, 0.0) if share <= 1 else math.inf

    def excess(share: float) -> float:  # rises with the share
        rate = q + (1 - 2 * q) * share
        coins = (law.coins, law.coin)
        return sum_tails(law.ones, (law.reports, rate), coins).at_least_bound - miss

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
