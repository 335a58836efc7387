"""One bit, all crowds: exact privacy for L = 1 (KR 3.1).

A crowd of n bits, m of them 1, shows ``A_n(m) ~ Bin(m, p) + Bin(n-m, q)`` ones. Changing one
record moves m by one, so the worst case over *all* collections is a maximum over m. Statuses:
the recursions, the sandwich and the formulas for delta are theorems. So is the following, which
makes the maximum affordable for large n: write d(k, l) for the delta of changing a record among
k ones and l zeros; adding one more person only adds independent noise to the count, which is
post-processing, so d does not rise in k nor in l.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.theory.homogeneous import check_crowd
from shoal.theory.one_bit.sums import transform_length, upward
from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.distribution import FloatArray

__all__ = [
    "OneBitWorst",
    "count_pmf",
    "privacy_ratio",
    "with_one",
    "with_zero",
    "worst_one_bit_delta",
]


class OneBitWorst(NamedTuple):
    """The worst change of one record: from m ones to m + 1 (`up`), or from m + 1 to m."""

    m: int
    up: bool
    value: Bracket


def with_one(pmf: FloatArray, q: float) -> FloatArray:
    """Pmf of the count after one more original 1 (KR (3.2); theorem).

    Examples
    --------
    >>> with_one(np.array([1.0]), 0.25).tolist()
    [0.25, 0.75]
    """
    longer: FloatArray = np.append(q * pmf, 0.0) + np.append(0.0, (1.0 - q) * pmf)
    return longer


def with_zero(pmf: FloatArray, q: float) -> FloatArray:
    """Pmf of the count after one more original 0 (KR (3.3); theorem).

    Examples
    --------
    >>> with_zero(np.array([1.0]), 0.25).tolist()
    [0.75, 0.25]
    """
    return with_one(pmf, 1.0 - q)


def count_pmf(n: int, m: int, q: float) -> FloatArray:
    """Pmf of ``A_n(m)`` by the recursions, in n^2 steps: all terms positive, so all accurate.

    Examples
    --------
    >>> count_pmf(2, 1, 0.25).tolist()
    [0.1875, 0.625, 0.1875]
    """
    _check_count(n, m)
    pmf = np.ones(1)
    for _ in range(m):
        pmf = with_one(pmf, q)
    for _ in range(n - m):
        pmf = with_zero(pmf, q)
    return pmf


def _check_count(n: int, m: int) -> None:
    if not 0 <= m <= n:
        raise ValueError(f"m must be between 0 and n, got m={m}, n={n}.")


def privacy_ratio(n: int, m: int, q: float) -> FloatArray:
    """``pi(s; m) = P[A_n(m) = s] / P[A_n(m+1) = s]`` for s = 0..n, falling in s (KR 3.1).

    Examples
    --------
    >>> privacy_ratio(1, 0, 0.25).tolist()
    [3.0, 0.3333333333333333]
    """
    _check_count(n, m + 1)
    others = count_pmf(n - 1, m, q)
    return with_zero(others, q) / with_one(others, q)


def _worst_of(n: int, ones: int, low: float, high: float) -> OneBitWorst:
    # among k ones, up; the same number belongs to going down with n - 1 - k
    return OneBitWorst(ones, True, Bracket(float(low), float(max(low, high))))


def worst_one_bit_delta(
    n: int, q: float, epsilon: float, rtol: float = 1e-3, work: int = 30_000_000
) -> OneBitWorst:
    """Largest delta(epsilon) over all m and both directions: exact for L = 1 (theorem).

    All m are tried when that is cheap. Otherwise stretches of m are bounded by the monotonicity
    of d(k, l): for k in [k0, k1] it is at most d(k0, n-1-k1). Stretches that cannot hold the
    maximum are dropped, the others halved, until the bracket is within `rtol` or `work` (points
    transformed) is used up. The high end is valid at any moment.

    Examples
    --------
    >>> worst = worst_one_bit_delta(1000, 0.0119, np.log(2))
    >>> round(worst.value.high, 3)
    0.005
    """
    check_crowd(n, q, epsilon)
    length = transform_length(n, q, epsilon)
    if n * length <= min(work, 2_000_000):
        m = np.arange(n)
        ends = upward(m, n - 1 - m, q, epsilon)
        return _worst_of(n, int(np.argmax(ends.low)), ends.low.max(), ends.high.max())
    edges = np.unique(np.linspace(0, n, 33).astype(np.int64))
    first, last = edges[:-1], edges[1:] - 1
    best_low, best_m = 0.0, 0
    settled = 0.0
    while True:
        work -= 2 * first.size * length
        inner = upward(first, n - 1 - first, q, epsilon)
        outer = upward(last, n - 1 - last, q, epsilon)
        for ends, place in ((inner, first), (outer, last)):
            top = int(np.argmax(ends.low))
            if ends.low[top] > best_low:
                best_low, best_m = float(ends.low[top]), int(place[top])
        above = upward(first, n - 1 - last, q, epsilon).high
        single = first == last
        above = np.where(single, inner.high, above)
        done = single | (above <= max(best_low * (1.0 + rtol), 1e-290))
        settled = max(settled, float(np.max(above[done], initial=0.0)))
        if done.all() or work <= 0:
            return _worst_of(n, best_m, best_low, max(settled, float(above.max(initial=0.0))))
        first, last = first[~done], last[~done]
        middle = (first + last) // 2
        first, last = np.concatenate([first, middle + 1]), np.concatenate([middle, last])
        keep = first <= last
        first, last = first[keep], last[keep]
