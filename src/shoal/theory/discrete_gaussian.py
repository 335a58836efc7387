"""The Gaussian distribution on the whole numbers: its tail, and sums of several.

``P[Z = k]`` is proportional to ``f(k) = exp(-k^2 / (2 sigma^2))``. A vector of L2 sensitivity D
with such noise in every coordinate is rho-zCDP with rho = D^2 / (2 sigma^2), and rho-zCDP is
(epsilon, delta)-DP with ``delta = exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1)`` for every
a > 1 (Canonne, Kamath, Steinke, NeurIPS 2020; theorems). Its variance is at most sigma^2.

*Against the normal distribution.* N is normal with standard deviation sigma. f falls, so its sum
from m >= 1 on is at most its integral from m - 1 on, and at least the integral from m on plus half
of f(m). The sum over all whole numbers is sigma sqrt(2 pi) times 1 + 2 exp(-2 pi^2 sigma^2) + ...,
by Poisson's formula. So ``P[Z >= m] <= P[N >= m - 1]`` for every m. If Z and N have equal ranks, Z
is then at most N + 1 and, by symmetry, at least N - 1: a sum of several Z_i with weights w_i is
within sum |w_i| of a normal one (theorem).
"""

from __future__ import annotations

import math
from statistics import NormalDist

_MAX_TERMS = 1 << 14
"""From this sigma on the normal bound is used: it is off by at most one step of sigma / 16384."""


def tail(k: int, sigma: float) -> float:
    """Return ``P[|Z| >= k]``, or a bound of it where sigma is large.

    >>> round(tail(3, 1.0), 6)
    0.009134
    """
    if not 0.0 < sigma < math.inf:
        raise ValueError(f"sigma must be above 0 and finite, got sigma={sigma}.")
    if k <= 0:
        return 1.0
    if sigma >= _MAX_TERMS:
        return min(2.0 * NormalDist().cdf(-(k - 1) / sigma), 1.0)
    import numpy as np

    far = math.ceil(40.0 * sigma) + 1
    masses = np.exp(-0.5 * np.square(np.arange(far + 1) / sigma))
    above = float(masses[min(k, far) :].sum())
    return min(2.0 * above / (2.0 * float(masses[1:].sum()) + 1.0), 1.0)


def radius(miss: float, sigma: float) -> int:
    """Return the smallest whole m with ``P[|Z| > m] <= miss``; of a bound where sigma is large.

    >>> radius(0.05, 1.0), radius(0.05, 10.0)
    (2, 20)
    """
    if not 0.0 < miss < 1.0:
        raise ValueError(f"miss must be strictly between 0 and 1, got miss={miss}.")
    m = max(math.floor(-sigma * NormalDist().inv_cdf(miss / 2.0)) - 1, 0)
    while tail(m + 1, sigma) > miss:
        m += 1
    while m > 0 and tail(m, sigma) <= miss:
        m -= 1
    return m


def sum_radius(miss: float, sigmas: tuple[float, ...]) -> float:
    """Return the z with ``P[sum of N_i > z] = miss`` for independent normal N_i."""
    return max(-NormalDist().inv_cdf(miss), 0.0) * math.hypot(*sigmas) * (1.0 + 1e-12)
