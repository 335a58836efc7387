"""How often honest reports can show something: tails that hold for every honest crowd.

The people of a crowd are fixed and their bits are flipped independently, so the number of reports
in a set A is a sum of independent coins whose rates differ. If no original reaches A with more than
`rate`, the sum's mean is at most n * rate, and Hoeffding (1956, theorem 5) says that from the mean
plus one on its upper tail is at most that of a binomial with the same mean; a binomial's tail rises
with its rate.

Every bound here falls as its count grows more extreme, so that it is a valid p-value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincc

from shoal.theory.one_bit.distribution import tails

__all__ = ["LARGEST_EXACT", "at_least", "at_most", "hoeffding_at_least", "sum_p_values"]

LARGEST_EXACT = 10**11
"""Up to so many bits the law of a sum of bits is computed, beyond it is bounded."""

_ROUNDING = 1 + 1e-9  # the incomplete beta function is good to about 1e-12


def at_least(count: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> NDArray[np.float64]:
    """Return P[Bin(trials, rate) >= count], rounded up; for any whole numbers.

    >>> at_least([0, 1, 2, 3], 2, 0.5).round(6).tolist()
    [1.0, 0.75, 0.25, 0.0]
    """
    s, n, p = (np.asarray(x, float) for x in (count, trials, rate))
    inside = (s >= 1) & (s <= n)
    tail = betainc(np.where(inside, s, 1.0), np.where(inside, n - s + 1, 1.0), p)
    return np.minimum(np.where(inside, tail * _ROUNDING, np.where(s < 1, 1.0, 0.0)), 1.0)


def at_most(count: ArrayLike, trials: ArrayLike, rate: float) -> NDArray[np.float64]:
    """Return P[Bin(trials, rate) <= count], rounded up.

    >>> at_most([-1, 0, 1, 2], 2, 0.5).round(6).tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    s, n = np.asarray(count, float), np.asarray(trials, float)
    inside = (s >= 0) & (s < n)
    # The other way round, at_least takes 1 - rate, which has no more digits than 1 where q is tiny.
    tail = betaincc(np.where(inside, s + 1, 1.0), np.where(inside, n - s, 1.0), rate)
    return np.minimum(np.where(inside, tail * _ROUNDING, np.where(s < 0, 0.0, 1.0)), 1.0)


def hoeffding_at_least(count: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> NDArray[np.float64]:
    """Bound P[S >= count] for every sum S of `trials` coins of mean rate at most `rate`.

    One wherever the theorem does not hold: below the mean plus one.

    >>> hoeffding_at_least([10, 11, 20], 20, 0.5).round(9).tolist()
    [1.0, 0.411901474, 9.54e-07]
    """
    s, n, p = (np.asarray(x, float) for x in (count, trials, rate))
    return np.where(s >= n * p + 1, at_least(s, n, p), 1.0)


def sum_p_values(
    ones: int, reports: int, bits: int, fewest: int, most: int, q: float, fakes: int = 0
) -> tuple[float, float]:
    """Return p-values for too few and for too many ones in a block of `bits` bits.

    The ones of all reports together rise stochastically with every true bit, so they are between
    A(reports * fewest) and A(reports * most) over reports * bits bits (KR 3.1.2, theorem). The
    `fakes` reports among them may hold anything.

    >>> [round(p, 4) for p in sum_p_values(0, reports=1, bits=2, fewest=1, most=1, q=0.25)]
    [0.1875, 1.0]
    """
    honest = reports - fakes
    size, needed = honest * bits, ones - fakes * bits
    if size == 0:
        return 1.0, 1.0
    too_few = 1.0 if ones >= size else _lower(ones, size, honest * fewest, q)
    # Turning every bit over turns too many into too few.
    too_many = 1.0 if needed <= 0 else _lower(size - needed, size, size - honest * most, q)
    return too_few, too_many


def _lower(ones: int, size: int, true_ones: int, q: float) -> float:
    """Bound P[A_size(true_ones) <= ones]."""
    if size <= LARGEST_EXACT:
        return tails(ones, size, true_ones, q).at_most_bound
    share = true_ones / size
    return float(hoeffding_at_least(size - ones, size, 1 - (q + share * (1 - 2 * q))))
