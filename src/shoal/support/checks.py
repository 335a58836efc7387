"""Argument checks, a few lines each: the rule, the value, the way out."""

from __future__ import annotations

import decimal
import math
import numbers
import operator
import re
import unicodedata
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
    number = operator.index(cast("SupportsIndex", value))
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


_DECIMAL = r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,4})?"


def canonical_decimal(number: decimal.Decimal) -> str:
    """Return the one spelling of a finite decimal.

    No zeros that say nothing and no plus sign; plain from 0.0001 to below 10^16, and otherwise one
    digit before the point and an exponent without leading zeros.

    >>> texts = ("1.0", "0.000001", "2.50E-07", "1e3")
    >>> [canonical_decimal(decimal.Decimal(text)) for text in texts]
    ['1', '1e-6', '2.5e-7', '1000']
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    magnitude = len(text) + exponent - 1
    text, minus = text.rstrip("0"), "-" * sign
    if not text:
        return "0"
    if not -4 <= magnitude < 16:
        return f"{minus}{text[0]}{'.' * (len(text) > 1)}{text[1:]}e{magnitude}"
    if magnitude < 0:
        return f"{minus}0.{'0' * (-magnitude - 1)}{text}"
    whole, part = text[: magnitude + 1].ljust(magnitude + 1, "0"), text[magnitude + 1 :]
    return f"{minus}{whole}.{part}" if part else f"{minus}{whole}"


def check_decimal(
    name: str,
    value: object,
    *,
    above: int,
    below: int | None = None,
    error: type = InputError,
    lenient: bool = True,
) -> str:
    """Return `value` as canonical decimal text, checked to be in (above, below).

    A float is taken at its shortest decimal form, which is what the user typed. Text may be written
    as people do, .005, 1_000 or 5%, unless it is from a document (`lenient=False`).

    >>> check_decimal("delta", ".005", above=0), check_decimal("delta", "5%", above=0)
    ('0.005', '0.05')
    """
    text = str(value).strip() if isinstance(value, (str, decimal.Decimal)) else shown(value)
    if isinstance(value, str) and lenient and len(text) <= 64:
        text = _as_written(text)
    limit = f"above {above}" + (f" and below {below}" if below is not None else "")
    spelling, inside = "", False
    if not isinstance(value, bool) and len(text) <= 64 and re.fullmatch(_DECIMAL, text):
        number = decimal.Decimal(text)
        spelling = canonical_decimal(number)
        inside = number > above and (below is None or number < below)
    # Whatever is kept can be read again.
    if not inside or len(spelling) > 64 or not re.fullmatch(_DECIMAL, spelling):
        raise error(f"{name} must be a decimal number {limit}, got {name}={shown(value)}.")
    return spelling


def check_decimal_text(
    name: str, value: object, *, above: int, below: int | None = None, error: type = InputError
) -> str:
    """Return a decimal that is already text, no float and no blanks, in its one spelling."""
    if not isinstance(value, str) or value != value.strip():
        raise error(f"{name} must be a decimal written as text, got {name}={shown(value)}.")
    return check_decimal(name, value, above=above, below=below, error=error, lenient=False)


def _as_written(text: str) -> str:
    from shoal.support.quantities import decimal_text  # which uses this module

    try:
        return decimal_text(text)
    except InputError:
        return text  # the caller says what it should be


_PORT = "(:([1-9][0-9]{0,4}))?"
_ORIGIN = rf"https://([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\]){_PORT}"
_LOCAL_ORIGIN = rf"http://(localhost|127\.0\.0\.1|(\[::1\])){_PORT}"


def check_origin(name: str, value: object, *, error: type = InputError) -> str:
    """Return an https origin in its one spelling: lower case, no path, no port 443.

    On this machine itself http will do, for trying things out.

    >>> check_origin("relay", "https://relay.example:8443")
    'https://relay.example:8443'
    >>> check_origin("relay", "http://127.0.0.1:8402")
    'http://127.0.0.1:8402'
    """
    text = value if isinstance(value, str) and len(value) <= 300 else ""
    match = re.fullmatch(_ORIGIN, text) or re.fullmatch(_LOCAL_ORIGIN, text)
    port = int(match[4] or 0) if match else 0
    usual = 80 if text.startswith("http:") else 443
    if match is None or port == usual or port > 65_535:
        raise error(
            f"{name} must be an origin such as https://host or https://host:8443, in lower case"
            f" and without a path, got {name}={shown(value)}."
        )
    return match[0]


def check_text(name: str, value: object, *, error: type = InputError, longest: int = 200) -> str:
    """Return a short printable text in Unicode normal form C."""
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


def whole_digits(value: object) -> str | None:
    """Return the digits of a whole number, also of a float that is one; None for anything else.

    Where one cell is missing or a fraction, a library makes floats of the whole column. 1 and 1.0
    must be the same answer then.

    >>> whole_digits(30), whole_digits(30.0), whole_digits(30.5), whole_digits(True)
    ('30', '30', None, None)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    if isinstance(value, numbers.Integral):
        return str(int(value)) if int(value).bit_length() <= 256 else None
    number = float(value)
    return str(int(number)) if abs(number) <= LARGEST_INTEGER and number.is_integer() else None
