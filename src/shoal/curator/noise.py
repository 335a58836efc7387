"""Exact noise of OpenDP, at a scale that provably keeps epsilon and delta, and exact sums.

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

The counts of a whole survey have their own sensitivity: `shoal.curator.counts`. With a delta they
may get Gaussian noise on the whole numbers (`shoal.theory.discrete_gaussian`).

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
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError, PrivacyRefusal, missing_extra
from shoal.support.checks import check_decimal
from shoal.support.files import first_line
from shoal.support.table_format import TableFormat
from shoal.theory.calibration import smallest

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

    The scale is sensitivity / epsilon (LEC Definitions 7 and 11), rounded up to a float.
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
        _check_whole(scale, epsilon, values)
    elif not all(math.isfinite(value) for value in values):
        raise InputError("values must be finite numbers.")
    measurement, claimed = _laplace(scale, sensitivity, whole)
    # The exact loss is sensitivity / scale; OpenDP rounds its claim up to a float.
    if sensitivity / Fraction(scale) > wanted or not claimed <= float_at_least(wanted):
        raise PrivacyRefusal(
            f"OpenDP promises an epsilon of {claimed} at scale {scale}, not {epsilon};"
            " nothing was released."
        )
    return Mechanism(scale, whole, measurement)


def _check_whole(scale: float, epsilon: str, values: Sequence[Any]) -> None:
    """Refuse noise and values that OpenDP would saturate."""
    if scale > _MAX_WHOLE_SCALE:
        raise InputError(f"epsilon={epsilon} is too small for whole numbers; use a larger one.")
    if any(abs(value) > _MAX_WHOLE for value in values):
        raise InputError("whole numbers must stay within 2^62.")


def gaussian_mechanism(
    scale: float, squared: Fraction, epsilon: str, delta: str, values: Sequence[int]
) -> Mechanism:
    """Build the Gaussian mechanism for a squared l2 sensitivity, and check OpenDP's delta."""
    _check_whole(scale, epsilon, values)
    measurement, claimed = _gaussian(scale, squared, epsilon)
    if not Fraction(claimed) <= Fraction(Decimal(delta)):
        raise PrivacyRefusal(
            f"OpenDP promises a delta of {claimed} at scale {scale}, not {delta}; nothing was"
            " released."
        )
    return Mechanism(scale, True, measurement)


@lru_cache(64)
def gaussian_scale(squared: Fraction, epsilon: str, delta: str) -> float:
    """Return the smallest scale of Gaussian noise that OpenDP's map allows, up to 1e-9 of it."""
    loss, wanted = float(epsilon), Fraction(Decimal(delta))
    # rho-zCDP is (rho + 2 sqrt(rho ln(1/delta)), delta)-DP: enough, and more than needed.
    log = -math.log(float(delta))
    root = loss / (math.sqrt(log + loss) + math.sqrt(log))
    enough = math.sqrt(float(squared) / 2) / root * (1 + 1e-9)

    def keeps(scale: float) -> bool:
        return Fraction(_gaussian(scale, squared, epsilon)[1]) <= wanted

    return smallest(keeps, enough / 16, enough, rtol=1e-9)


def _laplace(scale: float, sensitivity: Fraction, whole: bool) -> tuple[Any, float]:
    """Return OpenDP's measurement, and the epsilon that its map gives at the sensitivity."""
    dp = _opendp()
    kind = "i64" if whole else "f64"
    atoms = dp.atom_domain(T=kind) if whole else dp.atom_domain(T=kind, nan=False)
    distance = math.ceil(sensitivity) if whole else float(sensitivity)
    try:
        measurement = dp.m.make_laplace(
            dp.vector_domain(atoms), dp.l1_distance(T=kind), scale=scale
        )
        return measurement, float(measurement.map(distance))
    except dp.OpenDPException as error:
        raise InputError(f"OpenDP will not make this noise: {first_line(error)}.") from error


def _gaussian(scale: float, squared: Fraction, epsilon: str) -> tuple[Any, float]:
    """Return OpenDP's measurement, and the delta that its map gives at the sensitivity."""
    dp = _opendp()
    distance = math.nextafter(math.sqrt(float_at_least(squared)), math.inf)
    loss = float(epsilon)
    if Fraction(loss) > Fraction(Decimal(epsilon)):
        loss = math.nextafter(loss, 0.0)  # delta falls as epsilon rises
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    try:
        measurement = dp.m.make_gaussian(*space, scale=scale)
        curve = dp.c.make_zCDP_to_approxDP(measurement).map(distance)
        return measurement, float(curve.delta(loss))
    except dp.OpenDPException as error:
        raise InputError(f"OpenDP will not make this noise: {first_line(error)}.") from error


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra(error, "a curator's noise") from None
    dp.enable_features("contrib")
    return dp


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


CHANGES = {"replace": "replaced", "add-remove": "added or removed"}
NEIGHBOURS_IN_WORDS = {
    "replace": "Neighbours replace one row by any other; the number of rows is public.",
    "add-remove": "Neighbours add or remove one row; the number of rows is private.",
}


def check_neighbours(value: object) -> Neighbours:
    """Return the neighbour relation, which is never guessed."""
    if value not in get_args(Neighbours):
        found = "" if value is None else f", got {value!r}"
        raise InputError(
            "neighbours must be replace (one row becomes another; the number of rows is public)"
            f" or add-remove (one row comes or goes){found}."
        )
    return value  # type: ignore[return-value]


def check_public_rows(neighbours: Neighbours, table_format: TableFormat) -> None:
    """Refuse to skip rows by their content where the number of rows is public."""
    if neighbours == "replace" and table_format.skip_blank:
        raise PrivacyRefusal(
            "with skip_blank = true a person's row decides whether it is counted, but under replace"
            " the number of rows is public; set it to false, or use add-remove."
        )


def check_epsilon(value: object) -> str:
    text = check_decimal("epsilon", value, above=0)
    if not Decimal("1e-30") <= Decimal(text) <= Decimal("1e30"):
        raise InputError(f"epsilon must be between 1e-30 and 1e30, got epsilon={text}.")
    return text


def check_delta(value: object) -> str:
    text = check_decimal("delta", value, above=0, below=1)
    if Decimal(text) < Decimal("1e-100"):
        raise InputError(f"delta must be at least 1e-100, got delta={text}; or leave it out.")
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
