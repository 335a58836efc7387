"""Exact sums of floats, on a lattice whose step does not depend on the data.

Adding floats rounds, by an amount that depends on all of them and on their order: the sensitivity
of a floating-point sum is larger than that of the sum (Casacuberta, Shoemate, Vadhan, Wagaman, CCS
2022). Here the sum is exact and is rounded once, to a multiple of a power of two that is known
before the data are: |round(x) - round(y)| <= ceil(|x - y|) when halves are rounded up.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["exact_sum", "lattice_step", "on_lattice"]

_MOST_ROWS = 2**32
_FINENESS = 20
"""The step is between 2^-21 and 2^-20 of the sensitivity: 2^32 rows still fit in a float."""


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """Return the sum of finite floats without any rounding.

    >>> exact_sum(np.array([1e100, 1.0, -1e100])), float(np.sum([1e100, 1.0, -1e100]))
    (Fraction(1, 1), 0.0)
    """
    assert len(values) < _MOST_ROWS
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)  # a float is whole * 2^(exponent - 53)
    high, low = whole >> 27, whole & (2**27 - 1)  # 2^32 of these add up without overflow
    total = Fraction(0)
    for exponent in np.unique(exponents):
        here = exponents == exponent
        part = (int(high[here].sum()) << 27) + int(low[here].sum())
        total += part * Fraction(2) ** (int(exponent) - 53)
    return total


def lattice_step(sensitivity: Fraction) -> Fraction:
    """Return the step for sums of a given sensitivity: a power of two about 2^-20 of it.

    >>> lattice_step(Fraction(3)) == Fraction(2, 2**20)
    True
    """
    power = math.frexp(float(sensitivity))[1] - 1
    return Fraction(2) ** (power - _FINENESS)


def on_lattice(value: Fraction, step: Fraction) -> Fraction:
    """Round to the nearest multiple of the step, halves up.

    >>> on_lattice(Fraction(5, 2), Fraction(1)), on_lattice(Fraction(-5, 2), Fraction(1))
    (Fraction(3, 1), Fraction(-2, 1))
    """
    return math.floor(value / step + Fraction(1, 2)) * step
