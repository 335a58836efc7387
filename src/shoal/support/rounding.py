"""Rounding for print, always the safe way: a promise up, a lower bound down.

What promises nothing, such as a p-value, is rounded to the nearest; all look alike.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal


def float_up(value: Decimal) -> float:
    """Return the smallest float that is not below a decimal."""
    near = float(value)
    return near if Decimal(near) >= value else math.nextafter(near, math.inf)


def round_up(value: float, digits: int = 4) -> float:
    """Round up to significant digits; the float returned is never below the value."""
    return float(text_up(value, digits))


def text_up(value: float, digits: int = 4) -> str:
    """Round up to significant digits, as a decimal text that is never below the value.

    >>> text_up(0.1 + 0.2, 3), text_up(1e-6), text_up(2.0)
    ('0.301', '1e-6', '2')
    """
    return _rounded(value, digits, ROUND_CEILING)


def text_down(value: float, digits: int = 4) -> str:
    """Round down to significant digits, as a decimal text that is never above the value.

    >>> text_down(2.19e-17, 2), text_down(0.00012349)
    ('2.1e-17', '0.0001234')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def text_near(value: float, digits: int = 4) -> str:
    return _rounded(value, digits, ROUND_HALF_EVEN)


def text_bracket(low: float, high: float, digits: int = 4) -> str:
    """Write a number that is known from both sides: one value only where both ends nearly agree."""
    if high - low <= 0.05 * high:
        return f"~  {text_up(high, digits)}"
    return f"between {text_down(low, digits)} and {text_up(high, digits)}"


def truth_text(q: float) -> str:
    """Write the probability 1 - q that a bit is true, with as many digits as tell it from 1."""
    return f"{1 - q:.{max(2, math.ceil(-math.log10(q)))}f}"


def round_down(value: float, digits: int = 4) -> float:
    return float(text_down(value, digits))


def _rounded(value: float, digits: int, direction: str) -> str:
    value = float(value)  # NumPy's floats write themselves otherwise
    exact = Decimal(value)  # every float is a decimal, exactly
    if not exact or not exact.is_finite():
        return str(abs(exact)) if not exact else str(exact)
    last_place = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    rounded = exact.quantize(last_place, rounding=direction)
    # A float has many more decimals than were meant: 0.3 is 0.299999999999999988898.
    near = Decimal(repr(value)).quantize(last_place, rounding=direction)
    chosen = near if float(near) == float(rounded) or near == Decimal(repr(value)) else rounded
    plain = -5 < chosen.adjusted() < 12
    return f"{chosen.normalize():f}" if plain else f"{chosen.normalize():e}"
