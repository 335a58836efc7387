"""Numbers known from both sides, and bounds on what round-off does to them.

``(1 + a)^k`` is computed as ``e^(k ln(1 + a))``. Where 1 + a nearly vanishes (a fair coin turned by
pi) its logarithm is anything between minus infinity and round-off. So `log_one_plus` keeps its size
from falling below four times its error; what that changes is part of the bound.
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

ComplexArray = npt.NDArray[np.complex128]
_FLOOR = 4.0
_LOST = 1.2
"""ln(3.25) rounded up: see `log_one_plus`."""


class _Ends(NamedTuple):
    low: float
    high: float


class Bracket(_Ends):
    """An interval ``[low, high]`` that holds a non-negative number, ends included.

    The width says how well the number is known. A bracket may be wide; it is never wrong. An end
    that is negative or not a number, and ends in the wrong order, are an error in the code that
    computed them: no such bracket can be made.

    >>> Bracket(0.25, 0.5).relative_width
    0.5
    >>> Bracket(0.25, 0.5).is_within(1e-4)
    False
    """

    __slots__ = ()

    def __new__(cls, low: float, high: float) -> Self:
        """Refuse NaN, negative ends and ends in the wrong order."""
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

    Whatever k >= 1 is, the true ``(1 + a)^k`` differs from e^(k times the result) by at most
    ``e^(kd) - 1`` times its size (theorem). With r = |1 + a| and e its error: if r >= 4e, the
    quotient of the two is a power of a number that is off 1 by at most e/r, so d = e/r. Otherwise
    r is replaced by 4e, the truth is below 5e, and ``(5/4)^k + 1 <= 3.25^k - 1``.

    >>> log, doubt = log_one_plus(np.array([-1.0 + 0j]), np.array([1e-16]))
    >>> bool(np.isfinite(log).all()), doubt.tolist()
    (True, [1.2])
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

    No characteristic function is larger than 1, so neither is the error more than 1 + size.

    >>> power_error(np.array([0.5]), np.array([1e9])).tolist()
    [1.5]
    """
    grown = size * np.expm1(np.minimum(wobble, 700.0))
    return np.asarray(np.minimum(grown, 1.0 + size) + 1e-300)


@functools.lru_cache(maxsize=256)
def _binomial_log_weights(n: int, q: float) -> FloatArray:
    with decimal.localcontext() as context:
        context.prec = 40
        context.Emin = decimal.MIN_EMIN
        heads = decimal.Decimal(q)
        tails = 1 - heads
        term = tails**n
        logs = np.empty(n + 1)
        for i in range(n + 1):
            near = float(term)
            logs[i] = math.log(near) if near > 1e-290 else _log_of_tiny(term)
            term = term * (n - i) / (i + 1) * heads / tails
    logs.setflags(write=False)
    return logs


def _log_of_tiny(term: decimal.Decimal) -> float:
    """Logarithm of a number too small for a float, as that of its digits and of a power of ten."""
    power = term.adjusted()
    return math.log(float(term.scaleb(-power))) + power * math.log(10.0)


def binomial_log_weights(n: int, q: float) -> FloatArray:
    """``ln P[Bin(n, q) = i]`` for i = 0..n, each correct to a few units in the last place.

    A sum of log-gammas would lose 1e-13 at n = 1000, which a crowd of 1e9 multiplies by 1e9.

    >>> np.exp(binomial_log_weights(2, 0.5)).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, got n={n}.")
    return _binomial_log_weights(n, q)


def log_sum(values: FloatArray) -> float:
    """Logarithm of a sum of exponentials; ``-inf`` for an empty sum."""
    top = float(np.max(values, initial=-math.inf))
    if top == -math.inf:
        return top
    return top + math.log(float(np.sum(np.exp(values - top))))


def dot(left: FloatArray, right: FloatArray) -> float:
    """Sum of products, by one thread.

    Where `@` hands a long sum to a threaded matrix library, its threads wait for each other longer
    than they add: that took four fifths of the processor's time of a wide survey.
    """
    return float(np.einsum("i,i->", left, right))
