"""Argument checks, a few lines each: the rule, the value, the way out."""

from __future__ import annotations

import math
import operator
import re
from decimal import Decimal, InvalidOperation
from typing import SupportsIndex, cast

from shoal.errors import InputError

LARGEST_INTEGER = 2**53 - 1
"""The largest integer that JSON carries exactly to every reader (RFC 8785 section 3.2.2.3)."""


def check_integer(
    name: str,
    value: object,
    *,
    lowest: int,
    highest: int = LARGEST_INTEGER,
    error: type = InputError,
) -> int:
    """Return `value` as an int in [lowest, highest]; booleans and floats are not integers."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise error(f"{name} must be a whole number, got {name}={shown(value)}.")
    number = operator.index(cast(SupportsIndex, value))
    if not lowest <= number <= highest:
        raise error(f"{name} must be between {lowest} and {highest}, got {name}={shown(number)}.")
    return number


def check_level(level: object) -> float:
    """Return a confidence level in (0, 1)."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise InputError(
            f"level must be strictly between 0 and 1, got level={level!r}. For 95 % write 0.95."
        )
    return float(level)


def check_number(name: str, value: object) -> float:
    """Return a finite float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{name} must be a finite number, got {name}={value!r}.")
    return float(value)


_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,4})?")


def check_decimal(
    name: str, value: object, *, above: int, below: int | None = None, error: type = InputError
) -> str:
    """Return `value` as the decimal text the user wrote, checked to be in (above, below).

    A float is taken at its shortest decimal form, which is what the user typed.
    """
    text = str(value).strip() if isinstance(value, (str, Decimal)) else shown(value)
    limit = f"above {above}" + (f" and below {below}" if below is not None else "")
    try:
        number = Decimal(text) if _DECIMAL.fullmatch(text) else Decimal("NaN")
        inside = number.is_finite() and number > above and (below is None or number < below)
    except InvalidOperation:
        inside = False
    if isinstance(value, bool) or not inside or len(text) > 64:
        raise error(f"{name} must be a decimal number {limit}, got {name}={shown(value)}.")
    return text


def check_decimal_text(
    name: str, value: object, *, above: int, below: int | None = None, error: type = InputError
) -> str:
    """Return a decimal that is already the text that is kept: no float, no blanks."""
    if not isinstance(value, str) or value != value.strip():
        raise error(f"{name} must be a decimal written as text, got {name}={shown(value)}.")
    return check_decimal(name, value, above=above, below=below, error=error)


def check_text(name: str, value: object, *, error: type = InputError, longest: int = 200) -> str:
    """Return a short printable text in Unicode normal form C."""
    import unicodedata

    if not isinstance(value, str):
        raise error(f"{name} must be text, got {name}={shown(value)}.")
    text = unicodedata.normalize("NFC", value)
    if not text or text != text.strip() or len(text) > longest or not text.isprintable():
        raise error(
            f"{name} must be 1 to {longest} printable characters without blanks at its ends,"
            f" got {name}={shown(value)}."
        )
    return text


def shown(value: object) -> str:
    """Show a value in a message without letting a huge one flood the terminal."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    from ipaddress import ip_address  # a device that sends nothing does not need it

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
