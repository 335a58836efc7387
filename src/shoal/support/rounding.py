"""Rounding for print, always the safe way: a promise up, a lower bound down.

What promises nothing, such as a p-value, is rounded to the nearest; all look alike.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

__all__ = [
    "float_up",
    "round_down",
    "round_up",
    "text_bracket",
    "text_down",
    "text_near",
    "text_up",
    "truth_text",
]


def float_up(value: Decimal) -> float:
    """Return the smallest float that is not below a decimal.

    >>> float_up(Decimal("0.25")), Decimal(float_up(Decimal("0.3"))) >= Decimal("0.3")
    (0.25, True)
    """
    near = float(value)
    return near if Decimal(near) >= value else math.nextafter(near, math.inf)


def round_up(value: float, digits: int = 4) -> float:
    """Round up to significant digits; the float returned is never below the value.

    >>> round_up(0.00012341), round_up(6.48), round_up(0.0)
    (0.0001235, 6.48, 0.0)
    """
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
    """Round to significant digits, as a decimal text.

    >>> text_near(5.484e-7, 3), text_near(0.25), text_near(12345.6)
    ('5.48e-7', '0.25', '12350')
    """
    return _rounded(value, digits, ROUND_HALF_EVEN)


def text_bracket(low: float, high: float, digits: int = 4) -> str:
    """Write a number that is known from both sides: one value only where both ends nearly agree.

    >>> text_bracket(0.1234, 0.1236, 3), text_bracket(0.0, 0.99999, 3), text_bracket(0.0, 0.0)
    ('~  0.124', 'between 0 and 1', '~  0')
    """
    if high - low <= 0.05 * high:
        return f"~  {text_up(high, digits)}"
    return f"between {text_down(low, digits)} and {text_up(high, digits)}"


def truth_text(q: float) -> str:
    """Write the probability 1 - q that a bit is true, with as many digits as tell it from 1.

    >>> truth_text(0.25), truth_text(0.00002)
    ('0.75', '0.99998')
    """
    return f"{1 - q:.{max(2, math.ceil(-math.log10(q)))}f}"


def round_down(value: float, digits: int = 4) -> float:
    """Round down to significant digits.

    >>> round_down(0.00012349)
    0.0001234
    """
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
