"""The door to OpenDP: exact Laplace noise at a scale that provably keeps an epsilon.

OpenDP samples the discrete Laplace law exactly: on the whole numbers, and for floats on the
multiples of 2^-1074, which every float is one of; the sum is rounded to a float last. So the
attack of Mironov (CCS 2012) on the low bits of naive floating-point noise has nothing to see.
OpenDP cuts whole numbers off at 2^63 and takes NaN for 0 without a word; both are refused here
before it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from shoal.errors import InputError, PrivacyRefusal
from shoal.support.files import first_line

__all__ = ["Mechanism", "float_at_least", "mechanism"]

_LARGEST_WHOLE = 2**62
_LARGEST_WHOLE_SCALE = 2.0**53  # noise reaches 2^62 with probability exp(-512)
_SMALLEST, _LARGEST = 1e-200, 1e200


@dataclass(frozen=True)
class Mechanism:
    """A checked measurement of OpenDP; call it once per release."""

    scale: float
    whole: bool
    _measurement: Any

    def __call__(self, values: Sequence[int] | Sequence[float]) -> list[Any]:
        """Return the values with noise."""
        return list(self._measurement(list(values)))


def mechanism(
    sensitivity: Fraction, epsilon: str, values: Sequence[int] | Sequence[float], *, whole: bool
) -> Mechanism:
    """Build the Laplace mechanism for values of an l1 sensitivity, and check what it promises.

    The scale is sensitivity / epsilon (LEC Definitions 7 and 11), rounded up to a float. OpenDP's
    own privacy map at the sensitivity must not exceed epsilon.
    """
    if not 0 < sensitivity < _LARGEST:
        raise InputError(f"the sensitivity must be above 0 and finite, got {sensitivity}.")
    wanted = Fraction(Decimal(epsilon))
    if not _SMALLEST < sensitivity / wanted < _LARGEST:
        raise InputError(f"sensitivity / epsilon must be between {_SMALLEST} and {_LARGEST}.")
    if not whole:
        sensitivity = Fraction(float_at_least(sensitivity))
    scale = float_at_least(sensitivity / wanted)
    if whole:
        if scale > _LARGEST_WHOLE_SCALE:
            raise InputError(f"epsilon={epsilon} is too small for whole numbers; use a larger one.")
        if any(abs(value) > _LARGEST_WHOLE for value in values):
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
    """Return OpenDP's measurement and the epsilon it claims at the sensitivity."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise InputError(
            "a curator's noise needs OpenDP, which is not installed: pip install 'shoal[curator]'."
        ) from None
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
    """Return the smallest float that is not below a positive fraction.

    >>> float_at_least(Fraction(1, 4)), Fraction(float_at_least(Fraction(1, 3))) >= Fraction(1, 3)
    (0.25, True)
    """
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)
