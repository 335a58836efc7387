"""Numbers known from both sides, and bounds on round-off.

``(1 + a)^k`` is computed as ``e^(k ln(1 + a))``. Where 1 + a nearly vanishes (a fair coin turned by
pi) its logarithm is anything between minus infinity and round-off. So `log_one_plus` keeps its size
from falling below four times its error, and the bound includes that change.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

UNIT = 2.0**-53
"""Unit round-off of float64."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ComplexArray = npt.NDArray[np.complex128]

_FLOOR = 4.0
_LOST = 1.2
"""ln(3.25) rounded up: see `log_one_plus`."""


class _Ends(NamedTuple):
    low: float
    high: float


class Bracket(_Ends):
    """An interval ``[low, high]`` that holds a non-negative number, ends included.

    A bracket may be wide; it is never wrong. NaN, a negative end, and ends in the wrong order are
    refused: they are an error in the code that computed them.

    >>> Bracket(0.25, 0.5).relative_width
    0.5
    """

    __slots__ = ()

    def __new__(cls, low: float, high: float) -> Self:
        if not 0 <= low <= high:
            raise ValueError(f"a bracket needs 0 <= low <= high, got [{low}, {high}].")
        return super().__new__(cls, low, high)

    @classmethod
    def _make(cls, iterable: Iterable[float]) -> Self:  # type: ignore[override]  # any tuple there
        # the way that `_replace` takes
        return cls(*iterable)

    @property
    def relative_width(self) -> float:
        """``(high - low) / high``, between 0 and 1; 0 when both ends are 0."""
        if math.isinf(self.high):
            return 1.0
        return (self.high - self.low) / self.high if self.high > 0 else 0.0

    def is_within(self, rtol: float) -> bool:
        """Whether the relative width is at most `rtol`."""
        return self.relative_width <= rtol

    def times(self, factor: float) -> Bracket:
        """Multiply by a factor >= 0 and widen by the rounding of the product."""
        high = self.high * factor * (1 + 4e-16)
        if self.high > 0.0 and factor > 0.0:
            high = max(high, 5e-324)  # an upper end must not vanish by underflow
        return Bracket(self.low * factor * (1 - 4e-16), high)

    def capped(self, ceiling: float) -> Bracket:
        """Cut both ends at a value that the number is known not to exceed."""
        return Bracket(min(self.low, ceiling), min(self.high, ceiling))


def log_one_plus(a: ComplexArray, error: FloatArray) -> tuple[ComplexArray, FloatArray]:
    """``ln(1 + a)``, always finite, and a bound d on its error where a is off by `error`.

    For every k >= 1 the true ``(1 + a)^k`` differs from e^(k times the result) by at most ``e^(kd)
    - 1`` times its size (theorem). With r = |1 + a| and e its error: if r >= 4e, the quotient of
    the two is a power of a number that is off 1 by at most e/r, so d = e/r. Otherwise r is replaced
    by 4e, the truth is below 5e, and ``(5/4)^k + 1 <= 3.25^k - 1``.
    """
    real = 1.0 + a.real
    size = np.hypot(real, a.imag)
    lost = size < _FLOOR * error
    size = np.where(lost, _FLOOR * error, size)
    square = 2.0 * a.real + a.real**2 + a.imag**2
    with np.errstate(divide="ignore"):  # an error of 0 stands for a = 0, where r is 1
        far = np.log(size)
    # near 1 the square of the size less 1 is the accurate one
    log_size = np.where(square > -0.5, 0.5 * np.log1p(np.maximum(square, -0.5)), far)
    doubt = np.where(lost, _LOST, error / size)
    return log_size + 1j * np.arctan2(a.imag, real), doubt


def power_error(size: FloatArray, wobble: FloatArray) -> FloatArray:
    """Bound the error of a product of size at most 1 whose logarithm is off by `wobble`.

    No characteristic function exceeds 1, so the error never exceeds 1 + size.
    """
    grown = size * np.expm1(np.minimum(wobble, 700.0))
    return np.asarray(np.minimum(grown, 1.0 + size) + 1e-300)


@functools.lru_cache(maxsize=256)
def binomial_log_weights(n: int, q: float) -> FloatArray:
    """``ln P[Bin(n, q) = i]`` for i = 0..n, each correct to a few units in the last place.

    A sum of log-gammas would lose 1e-13 at n = 1000, which a crowd of 1e9 multiplies by 1e9.

    >>> np.exp(binomial_log_weights(2, 0.5)).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, got n={n}.")
    with decimal.localcontext() as context:
        context.prec = 40
        context.Emin = decimal.MIN_EMIN
        heads = decimal.Decimal(q)
        tails = 1 - heads
        term = tails**n
        logs = np.empty(n + 1)
        for i in range(n + 1):
            near, power = float(term), 0
            if near <= 1e-290:
                power = term.adjusted()
                near = float(term.scaleb(-power))
            logs[i] = math.log(near) + power * math.log(10.0)
            term = term * (n - i) / (i + 1) * heads / tails
    logs.setflags(write=False)
    return logs


def log_sum(values: FloatArray) -> float:
    """Logarithm of a sum of exponentials; ``-inf`` for an empty sum."""
    top = float(np.max(values, initial=-math.inf))
    if top == -math.inf:
        return top
    return top + math.log(float(np.sum(np.exp(values - top))))


def dot(left: FloatArray, right: FloatArray) -> float:
    """Sum of products in one thread: on a busy machine the threads of `@` wait for each other."""
    return float(np.einsum("i,i->", left, right))


def bernstein(x: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """Bound P[|S - E S| >= x] for a sum of independent bits or their negatives (theorem)."""
    return np.asarray(2.0 * np.exp(-(x**2) / (2.0 * (variance + x / 3.0))))


def bernstein_reach(exponent: float, variance: float) -> float:
    """Return the x at which `bernstein` is ``2 e^-exponent``."""
    third = exponent / 3.0
    return third + math.sqrt(third**2 + 2.0 * exponent * variance)
