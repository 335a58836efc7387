"""The Laplace distribution, continuous and on the whole numbers: densities, tails, quantiles.

``b`` is the scale. Continuous: density ``exp(-|z|/b) / (2b)`` (LEC 2). On the whole numbers:
``P[Z = k]`` is proportional to ``exp(-|k|/b)``, with ``tanh(1/(2b))`` as its constant. It has its
own tail, ``P[|Z| >= k] = 2 exp(-k/b) / (1 + exp(-1/b))`` for k >= 1, which at the bound of LEC
Theorem 9 can exceed delta: at scale 1 up to 1.46 times. All of this is elementary (theorem).

*Delta (theorem).* Such noise is added to d whole numbers; one person moves each by at most 1. The
privacy loss of one number is then 1/b where Z <= 0, which has probability 1 / (1 + exp(-1/b)), and
-1/b elsewhere. So d numbers lose (2 j - d) / b with j ~ Bin(d, 1 / (1 + exp(-1/b))), at most d / b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from shoal.theory.brackets import UNIT, Bracket


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


_MAX_COUNT = 1 << 20


def delta_of_shifts(count: int, b: float, epsilon: float) -> Bracket:
    """Bracket delta at epsilon for `count` whole numbers that one person moves by up to 1.

    >>> delta_of_shifts(2, 2.0, 1.0).high, round(delta_of_shifts(2, 2.0, 0.5).high, 4)
    (0.0, 0.1525)
    """
    _check_scale(b)
    if Fraction(b) * Fraction(epsilon) >= count:
        return Bracket(0.0, 0.0)
    if count > _MAX_COUNT:
        return Bracket(0.0, 1.0)
    import numpy as np
    from scipy.special import gammaln

    j = np.arange(count // 2, count + 1)
    excess = np.maximum((2 * j - count) / b - epsilon, 0.0)
    ways = gammaln(count + 1) - gammaln(j + 1) - gammaln(count - j + 1)
    above = math.log1p(math.exp(-1.0 / b))
    mass = np.exp(ways - (count - j) / b - count * above)
    delta = float(mass @ -np.expm1(-excess))
    # rounding of the logarithms, and of the excess, which matters where it is small
    doubt = 16 * UNIT * (count * (math.log(count + 1.0) + 1.0 / b + 1.0) + epsilon)
    moved = 8 * UNIT * (count / b + epsilon)
    return Bracket(max(delta * (1.0 - doubt) - moved, 0.0), min(delta * (1.0 + doubt) + moved, 1.0))


_FAR = 60.0  # standard deviations beyond which a sum has no mass that matters: below 1e-35
_TAIL_ERROR = 1e-8


def sum_radius(miss: float, scales: Sequence[float]) -> float:
    """Return a z with ``P[sum of Z_i > z] <= miss`` for independent continuous Z_i of these scales.

    The tail comes from the characteristic function ``prod 1 / (1 + b_i^2 t^2)`` (Gil-Pelaez 1951),
    integrated by the trapezoidal rule: its nodes are so dense that the sum would have to be 60
    standard deviations away to be taken for another one, and so many that what is cut off is below
    ``_TAIL_ERROR``, which the tail is raised by (theorem, but for rounding).

    >>> round(sum_radius(0.025, [1.0]), 4), round(sum_radius(0.025, [1.0] * 100), 2)
    (2.9957, 27.75)
    """
    _check_probability("miss", miss)
    for b in scales:
        _check_scale(b)
    if len(scales) == 1:
        return radius(min(2.0 * miss, 1.0 - 1e-15), scales[0])
    if miss >= 0.5:
        return 0.0
    import numpy as np
    from scipy.optimize import brentq

    squares = np.square(np.asarray(scales, float))
    deviation = math.sqrt(2.0 * float(squares.sum()))
    parts = squares / deviation**2
    last = 16.0
    while float(np.log1p(parts * last**2).sum()) < -math.log(_TAIL_ERROR):
        last *= 2.0  # what is cut off is below half of the function here: it falls as 1 / t^2
    step = math.pi / _FAR
    nodes = np.arange(step, last, step)
    values = np.empty_like(nodes)
    for some in np.array_split(np.arange(len(nodes)), len(nodes) * len(parts) // 2**22 + 1):
        values[some] = np.exp(-np.log1p(np.outer(nodes[some] ** 2, parts)).sum(axis=1))
    values *= step / (math.pi * nodes)

    def tail(z: float) -> float:
        inner = step * z / (2.0 * math.pi) + float(np.sin(nodes * z) @ values)
        return 0.5 - inner + _TAIL_ERROR

    if tail(_FAR / 2.0) > miss:
        raise ValueError(f"miss={miss} is too small for a sum of Laplace variables.")
    root = float(brentq(lambda z: tail(z) - miss, 0.0, _FAR / 2.0, xtol=1e-9))
    return (root + 2e-9) * deviation
