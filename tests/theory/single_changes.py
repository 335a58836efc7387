"""One bit and one change at a time, for comparison: delta and eta of each, and KR's bounds."""

from __future__ import annotations

import numpy as np

from shoal.theory.brackets import Bracket, FloatArray
from shoal.theory.homogeneous import check_crowd
from shoal.theory.one_bit import OneBitWorst, upward


def count_pmf(n: int, m: int, q: float) -> FloatArray:
    """Pmf of A_n(m), one person after the other (KR (3.2) and (3.3)); all terms are positive."""
    pmf = np.ones(1)
    for up in [1.0 - q] * m + [q] * (n - m):
        pmf = np.append((1.0 - up) * pmf, 0.0) + np.append(0.0, up * pmf)
    return pmf


def _pair(n: int, m: int, q: float, epsilon: float, up: bool, eta: bool) -> Bracket:
    check_crowd(n, q, epsilon)
    # going down among m ones is going up among m zeros, by exchanging 0 and 1
    ones, zeros = (m, n - 1 - m) if up else (n - 1 - m, m)
    ends = upward(np.array([ones]), np.array([zeros]), q, epsilon, eta)
    return Bracket(float(ends.low[0]), float(ends.high[0]))


def one_bit_delta(n: int, m: int, q: float, epsilon: float, up: bool = True) -> Bracket:
    """Bracket delta(epsilon) of going from m to m + 1 ones among n (`up`), or from m + 1 to m."""
    return _pair(n, m, q, epsilon, up, eta=False)


def one_bit_eta(n: int, m: int, q: float, epsilon: float, up: bool = True) -> Bracket:
    """Bracket eta(epsilon), the chance of a ratio above e^epsilon, of the same change."""
    return _pair(n, m, q, epsilon, up, eta=True)


def worst_one_bit_eta(n: int, q: float, epsilon: float) -> OneBitWorst:
    """Largest eta over all m and both directions, by trying them all."""
    check_crowd(n, q, epsilon)
    m = np.arange(n)
    ends = upward(m, n - 1 - m, q, epsilon, eta=True)
    value = Bracket(float(ends.low.max()), float(ends.high.max()))
    return OneBitWorst(int(np.argmax(ends.low)), value)
