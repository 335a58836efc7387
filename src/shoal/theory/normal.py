"""The normal law."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["log_normal", "normal_factor"]


def normal_factor(level: float) -> float:
    """Return how many sigmas a normal interval at the level reaches.

    >>> round(normal_factor(0.95), 4)
    1.96
    """
    return -NormalDist().inv_cdf((1 - level) / 2)


def log_normal(x: float) -> float:
    """Return the logarithm of Phi(x), the chance that a normal number is below x.

    >>> round(log_normal(0.0), 9), round(log_normal(-40.0), 9)
    (-0.693147181, -804.608442014)
    """
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x / math.sqrt(2.0)))
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))
    # 1 - 1/x^2 + 3/x^4 - ..., of which ten terms are more than enough here
    total = term = 1.0
    for k in range(1, 10):
        term *= -(2 * k - 1) / x**2
        total += term
    return -0.5 * x**2 - math.log(-x * math.sqrt(2.0 * math.pi)) + math.log(total)
