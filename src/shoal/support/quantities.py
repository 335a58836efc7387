"""Numbers and times as people write them: 1e6, 1_000_000, 5%, .005, 1d.

>>> whole_number("1e6"), whole_number("1_000_000"), whole_number("1,000,000")
(1000000, 1000000, 1000000)
>>> decimal_text("5%"), decimal_text(".005"), decimal_text("1e-6")
('0.05', '0.005', '1e-6')
>>> seconds("1d"), seconds("90 min"), seconds("3600")
(86400, 5400, 3600)
"""

from __future__ import annotations

import re
from decimal import Decimal

from shoal.errors import InputError
from shoal.support.checks import canonical_decimal, shown

__all__ = ["decimal_text", "seconds", "whole_number"]

_NUMBER = re.compile(r"([-+]?)([0-9]+(_[0-9]+)*\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?")
_GROUPED = re.compile(r"[0-9]{1,3}([, ][0-9]{3})+")
_TIME = re.compile(r"([0-9.eE_]+)\s*([a-z]+)?", re.I)
_UNITS = {
    "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400,
    "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip


def decimal_text(text: str) -> str:
    """Return a number that somebody wrote in the one spelling of decimals; 5% is 0.05."""
    bare = text.strip()
    percent = bare.endswith("%")
    bare = bare.removesuffix("%").rstrip()
    if len(bare) > 64 or not _NUMBER.fullmatch(bare):
        raise InputError(f"{shown(text)} is not a number; write it as 0.05, 5% or 1e-6.")
    number = Decimal(bare.replace("_", ""))
    return canonical_decimal(number.scaleb(-2) if percent else number)


def whole_number(text: str) -> int:
    """Return a whole number that somebody wrote, with signs for thousands or an exponent."""
    bare = text.strip()
    if _GROUPED.fullmatch(bare):
        bare = re.sub("[, ]", "", bare)
    if len(bare) <= 64 and _NUMBER.fullmatch(bare):
        number = Decimal(bare.replace("_", ""))
        if number == number.to_integral_value() and abs(number.adjusted()) < 64:
            return int(number)
    raise InputError(f"{shown(text)} is not a whole number; write it as 10000, 10_000 or 1e4.")


def seconds(text: str) -> int:
    """Return a length of time in whole seconds: 3600, 1h, 15min, 1d or 2w."""
    match = _TIME.fullmatch(text.strip())
    unit = _UNITS.get((match[2] or "s").lower()) if match else None
    if match is None or unit is None:
        raise InputError(f"{shown(text)} is no length of time; write it as 3600, 1h, 1d or 1w.")
    length = Decimal(decimal_text(match[1])) * unit
    if length != length.to_integral_value() or not 0 < length < 10**12:
        raise InputError(f"{shown(text)} must be a whole number of seconds above 0.")
    return int(length)
