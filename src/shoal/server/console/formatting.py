"""A window as dates: from when to when its people are asked."""

from __future__ import annotations

import time

from shoal.protocol.plan import Plan

__all__ = ["window_in_words", "window_times"]

_DAY = 86_400


def window_times(plan: Plan, window: int) -> tuple[str, str] | None:
    """Return when a window begins and ends (UTC), as ISO 8601; None for a plan without windows."""
    if plan.window is None:
        return None
    first, last = window * plan.window, (window + 1) * plan.window
    return _iso(first), _iso(last)


def window_in_words(plan: Plan, window: int) -> str:
    """Return the days of a window, or its hours if it does not begin and end at midnight."""
    if plan.window is None:
        return "no window"
    first, last = window * plan.window, (window + 1) * plan.window
    if first % _DAY == 0 == last % _DAY:
        days = [_date(first), _date(last - _DAY)]
        return days[0] if days[0] == days[1] else f"{days[0]} to {days[1]}"
    same = _date(first) == _date(last)
    end = _clock(last) if same else f"{_date(last)} {_clock(last)}"
    return f"{_date(first)} {_clock(first)} to {end} UTC"


def _date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _clock(seconds: int) -> str:
    return time.strftime("%H:%M", time.gmtime(seconds))


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
