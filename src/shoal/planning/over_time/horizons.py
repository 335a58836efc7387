"""How often and for how long somebody reports, in words."""

from __future__ import annotations

import re
from typing import NamedTuple

from shoal.errors import InputError

__all__ = ["Horizon", "parse_horizon", "releases_in_a_year"]

_DAY = 86_400
_RATES = {"hourly": 3600, "daily": _DAY, "weekly": 7 * _DAY, "monthly": 30 * _DAY}
_SPANS = {"day": 1, "week": 7, "month": 31, "year": 366}
_WORDS = re.compile(
    r"(?:(hourly|daily|weekly|monthly)|every ([1-9][0-9]{0,3}) days) for"
    r" (an?|[1-9][0-9]{0,3}) (day|week|month|year)s?"
)


class Horizon(NamedTuple):
    """The window in seconds, one report in each, and how many windows the horizon can overlap."""

    window: int
    releases: int


def parse_horizon(text: str) -> Horizon:
    """Read "daily for a year", "weekly for 2 years", "every 14 days for 6 months".

    Months and years are taken at their longest, 31 and 366 days; a monthly window has 30 days.

    >>> parse_horizon("daily for a year")
    Horizon(window=86400, releases=367)
    >>> parse_horizon("every 14 days for 6 months").releases
    15
    """
    match = _WORDS.fullmatch(" ".join(text.lower().split())) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"a horizon is written like 'daily for a year' or 'every 14 days for 6 months', got"
            f" {str(text)[:60]!r}."
        )
    rate, days, count, span = match.groups()
    window = _RATES[rate] if rate else int(days) * _DAY
    lasts = (1 if count in ("a", "an") else int(count)) * _SPANS[span] * _DAY
    return Horizon(window, _windows_touched(lasts, window))


def releases_in_a_year(window: int) -> int:
    """Return how many windows of a given length a year of 366 days can overlap.

    >>> releases_in_a_year(7 * 86_400)
    54
    """
    return _windows_touched(_SPANS["year"] * _DAY, window)


def _windows_touched(seconds: int, window: int) -> int:
    """Return how many windows a span of time can overlap, wherever it starts.

    Windows start at multiples of their length since 1970 (UTC) and a person starts at any time, so
    the first and the last window may both be partial: ceil(seconds / window) + 1.
    """
    return -(-seconds // window) + 1
