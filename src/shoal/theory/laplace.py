"""The Laplace distribution, continuous and on the whole numbers: densities, tails, quantiles.

``b`` is the scale. Continuous: density ``exp(-|z|/b) / (2b)`` (LEC 2). On the whole numbers:
``P[Z = k]`` is proportional to ``exp(-|k|/b)``, with ``tanh(1/(2b))`` as its constant. It has its
own tail, ``P[|Z| >= k] = 2 exp(-k/b) / (1 + exp(-1/b))`` for k >= 1, which at the bound of LEC
Theorem 9 can exceed delta: at scale 1 up to 1.46 times. All of this is elementary (theorem).
"""

from __future__ import annotations

import math


def _check_scale(b: float) -> None:
    if not 0.0 < b < math.inf:
        raise ValueError(f"the scale must be above 0 and finite, got b={b}.")


def _check_probability(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be strictly between 0 and 1, got {name}={value}.")


def tail(z: float, b: float) -> float:
    """``P[|Z| >= z]``, which is ``exp(-z/b)`` for z >= 0 (LEC Theorem 9, proof)."""
    _check_scale(b)
    return math.exp(-max(z, 0.0) / b)


def sigma(b: float) -> float:
    """Return the standard deviation, ``sqrt(2) b`` (LEC 2)."""
    _check_scale(b)
    return math.sqrt(2.0) * b


def radius(miss: float, b: float) -> float:
    """Return the z with ``P[|Z| >= z] = miss``: ``ln(1/miss) b`` (LEC Theorem 9)."""
    _check_scale(b)
    _check_probability("miss", miss)
    return -b * math.log(miss)


def union_radius(miss: float, b: float, d: int) -> float:
    """``ln(d/miss) b``: all of d coordinates stay below it but with probability `miss`.

    LEC Theorem 12. A union bound: the exact value is ``radius(each_miss(miss, d), b)``.
    """
    _check_scale(b)
    _check_probability("miss", miss)
    return b * (math.log(d) - math.log(miss))


def each_miss(miss: float, d: int) -> float:
    """Return how often each of d independent coordinates may miss so that one does with `miss`.

    ``1 - (1 - miss)^(1/d)``, never below ``miss / d``.
    """
    _check_probability("miss", miss)
    if d < 1:
        raise ValueError(f"d must be at least 1, got d={d}.")
    return miss if d == 1 else -math.expm1(math.log1p(-miss) / d)


def discrete_tail(k: int, b: float) -> float:
    """``P[|Z| >= k]`` on the whole numbers.

    >>> round(discrete_tail(3, 1.0), 6)      # the continuous tail is exp(-3) = 0.049787
    0.072795
    """
    _check_scale(b)
    return 1.0 if k <= 0 else 2.0 * math.exp(-k / b) / (1.0 + math.exp(-1.0 / b))


def discrete_radius(miss: float, b: float) -> int:
    """Return the smallest whole m with ``P[|Z| > m] <= miss``.

    >>> discrete_radius(0.05, 1.0), discrete_radius(0.05, 10.0)
    (3, 30)
    """
    _check_scale(b)
    _check_probability("miss", miss)
    place = b * (math.log(2.0) - math.log(miss) - math.log1p(math.exp(-1.0 / b)))
    m = max(math.floor(place), 0)
    while discrete_tail(m + 1, b) > miss:
        m += 1
    while m > 0 and discrete_tail(m, b) <= miss:
        m -= 1
    return m


def discrete_sigma(b: float) -> float:
    """Return the standard deviation on the whole numbers, ``1 / (sqrt(2) sinh(1/(2b)))``."""
    _check_scale(b)
    half = 0.5 / b
    return 0.0 if half > 700.0 else 1.0 / (math.sqrt(2.0) * math.sinh(half))
