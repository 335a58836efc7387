"""Exact Laplace noise of OpenDP, at a scale that provably keeps an epsilon, and exact sums.

Sensitivity of each query (LEC Definitions 6 and 10), by the neighbour relation:

=====================  ============  ====================
query                  replace       add-remove
=====================  ============  ====================
count of all rows      0 (public)    1
count by a predicate   1             1
fraction               1/n           refused: n is private
sum in [a, b]          b - a         max(|a|, |b|)
mean in [a, b]         (b - a)/n     refused: n is private
histogram              2             1
=====================  ============  ====================

Without bounds a sum or a mean has an infinite sensitivity (LEC 2: the average salary).

OpenDP samples the discrete Laplace distribution exactly, on the whole numbers and, for floats, on
the multiples of 2^-1074; the sum is rounded to a float last. So the attack of Mironov (CCS 2012) on
the low bits of naive floating-point noise fails. OpenDP silently saturates whole numbers at 2^63
and takes NaN for 0; both are refused here first.

Adding floats rounds, so the sensitivity of a floating-point sum is larger than that of the sum
(Casacuberta, Shoemate, Vadhan, Wagaman, CCS 2022). Here the sum is exact and rounded once, to a
multiple of a power of two that does not depend on the data: |round(x) - round(y)| <= ceil(|x - y|)
when halves are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError, PrivacyRefusal, missing_extra
from shoal.support.checks import check_decimal
from shoal.support.files import first_line

_MAX_WHOLE = 2**62
_MAX_WHOLE_SCALE = 2.0**53  # noise reaches 2^62 with probability exp(-512)
_MIN_SCALE, _MAX_SCALE = 1e-200, 1e200


@dataclass(frozen=True)
class Mechanism:
    """A checked measurement of OpenDP; call it once per release."""

    scale: float
    whole: bool
    _measurement: Any

    def __call__(self, values: Sequence[int] | Sequence[float]) -> list[Any]:
        return list(self._measurement(list(values)))


def mechanism(
    sensitivity: Fraction, epsilon: str, values: Sequence[int] | Sequence[float], *, whole: bool
) -> Mechanism:
    """Build the Laplace mechanism for values of an l1 sensitivity, and check its epsilon.

    The scale is sensitivity / epsilon (LEC Definitions 7 and 11), rounded up to a float. OpenDP's
    own privacy map at the sensitivity must not exceed epsilon.
    """
    if not 0 < sensitivity < _MAX_SCALE:
        raise InputError(f"the sensitivity must be above 0 and finite, got {sensitivity}.")
    wanted = Fraction(Decimal(epsilon))
    if not _MIN_SCALE < sensitivity / wanted < _MAX_SCALE:
        raise InputError(f"sensitivity / epsilon must be between {_MIN_SCALE} and {_MAX_SCALE}.")
    if not whole:
        sensitivity = Fraction(float_at_least(sensitivity))
    scale = float_at_least(sensitivity / wanted)
    if whole:
        if scale > _MAX_WHOLE_SCALE:
            raise InputError(f"epsilon={epsilon} is too small for whole numbers; use a larger one.")
        if any(abs(value) > _MAX_WHOLE for value in values):
            raise InputError("whole numbers must stay within 2^62.")
    elif not all(math.isfinite(value) for value in values):
        raise InputError("values must be finite numbers.")
    measurement, claimed = _opendp(scale, sensitivity, whole)
    # The exact loss is sensitivity / scale; OpenDP rounds its claim up to a float.
    if sensitivity / Fraction(scale) > wanted or not claimed <= float_at_least(wanted):
        raise PrivacyRefusal(
            f"OpenDP promises an epsilon of {claimed} at scale {scale}, not {epsilon};"
            " nothing was released."
        )
    return Mechanism(scale, whole, measurement)


def _opendp(scale: float, sensitivity: Fraction, whole: bool) -> tuple[Any, float]:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra(error, "a curator's noise") from None
    dp.enable_features("contrib")
    kind = "i64" if whole else "f64"
    atoms = dp.atom_domain(T=kind) if whole else dp.atom_domain(T=kind, nan=False)
    distance = math.ceil(sensitivity) if whole else float(sensitivity)
    try:
        measurement = dp.m.make_laplace(
            dp.vector_domain(atoms), dp.l1_distance(T=kind), scale=scale
        )
        return measurement, float(measurement.map(distance))  # type: ignore[no-untyped-call]
    except dp.OpenDPException as error:
        raise InputError(f"OpenDP will not make this noise: {first_line(error)}.") from error


def float_at_least(value: Fraction) -> float:
    """Return the smallest float that is not below a positive fraction."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


_MAX_ROWS = 2**32
_FINENESS = 20  # the step is 2^-21 to 2^-20 of the sensitivity: 2^32 rows still fit in a float


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """Return the sum of finite floats without any rounding.

    >>> exact_sum(np.array([1e100, 1.0, -1e100])), float(np.sum([1e100, 1.0, -1e100]))
    (Fraction(1, 1), 0.0)
    """
    assert len(values) < _MAX_ROWS
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
    """Return the step for sums of a given sensitivity: a power of two about 2^-20 of it."""
    power = math.frexp(float(sensitivity))[1] - 1
    return Fraction(2) ** (power - _FINENESS)


def on_lattice(value: Fraction, step: Fraction) -> Fraction:
    return math.floor(value / step + Fraction(1, 2)) * step


Neighbours = Literal["replace", "add-remove"]


def check_neighbours(value: object) -> Neighbours:
    """Return the neighbour relation, which is never guessed."""
    if value not in get_args(Neighbours):
        raise InputError(
            f"neighbours must be replace (one row becomes another; the number of rows is public)"
            f" or add-remove (one row comes or goes), got {value!r}."
        )
    return value  # type: ignore[return-value]


def check_epsilon(value: object) -> str:
    text = check_decimal("epsilon", value, above=0)
    if not Decimal("1e-30") <= Decimal(text) <= Decimal("1e30"):
        raise InputError(f"epsilon must be between 1e-30 and 1e30, got epsilon={text}.")
    return text


def count_sensitivity(neighbours: Neighbours, *, all_rows: bool = False) -> Fraction:
    """Return the sensitivity of a count: of all rows, or of those that a predicate picks."""
    return Fraction(0 if all_rows and neighbours == "replace" else 1)


def histogram_sensitivity(neighbours: Neighbours) -> Fraction:
    """Return the l1 sensitivity of a histogram of two cells or more (LEC after Definition 10)."""
    return Fraction(2 if neighbours == "replace" else 1)


def sum_sensitivity(neighbours: Neighbours, low: Fraction, high: Fraction) -> Fraction:
    return high - low if neighbours == "replace" else max(abs(low), abs(high))


def check_public_size(query: str, neighbours: Neighbours, remedy: str) -> None:
    """Refuse to divide by a number of rows that is itself private."""
    if neighbours != "replace":
        raise PrivacyRefusal(
            f"under add-remove the number of rows is private, and a {query} would divide by it;"
            f" release {remedy} and divide yourself, or use replace."
        )
