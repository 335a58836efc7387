"""Windows, crowds and promises in words, for pages and responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from shoal.analysis.screening import Screening
from shoal.protocol.plan import Plan
from shoal.protocol.promise import read_certificate
from shoal.reports.formatting import THIN, flip_in_words
from shoal.server.storage.records import CrowdRecord, PlanRecord, Reason
from shoal.support.rounding import round_down, text_near, text_up

__all__ = ["crowd_in_words", "promise_in_words", "window_in_words", "window_times"]

_DAY = 86_400

_REASONS: dict[Reason, str] = {
    "window": "its window ended before it was complete",
    "deadline": "it was not complete before the deadline",
    "closed": "its plan was closed",
    "key": "the key of open crowds was lost",
    "restored": "the data were restored from a backup",
    "unreadable": "too few of its reports could be read",
    "relay": "the relay discarded it",
}


def window_times(plan: Plan, window: int) -> tuple[str, str] | None:
    """Return when a window begins and ends (UTC), as ISO 8601; None for a plan without windows."""
    if plan.window is None:
        return None
    first, last = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(place * plan.window))
        for place in (window, window + 1)
    )
    return first, last


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


def promise_in_words(record: PlanRecord) -> str:
    """Return the computed promise of a plan's certificate; a draft has only a requested one."""
    if record.certificate is None:
        return record.plan.promise.in_words
    return read_certificate(record.plan, record.certificate).in_words


def progress(crowd: CrowdRecord) -> int:
    """Return how full a crowd is in per cent, rounded down to 10 %, the most that may be shown."""
    return crowd.progress


def about(percent: int) -> str:
    """Return a rounded progress in words."""
    return f"about {percent}{THIN}%"


def crowd_in_words(plan: Plan, crowd: CrowdRecord) -> str:
    """Return the state of a crowd; of an open one its rounded progress and nothing else."""
    state = crowd.state
    if state == "released":
        note = f". {unreadable_note(plan, crowd.unreadable)}" if crowd.unreadable else ""
        return f"released, {crowd.reports:,} reports{note}"
    why = "" if crowd.reason is None else f": {_REASONS[crowd.reason]}"
    if crowd.unreadable:
        why += f" ({crowd.unreadable:,} messages could not)"
    if plan.parties is not None:  # only the relay knows the progress of a crowd
        return "waiting for the relay" if state == "open" else f"{state}{why}"
    if state == "open":
        return f"open, {about(progress(crowd))}"
    return f"{state}{why}; it was {about(progress(crowd))} complete"


def unreadable_note(plan: Plan, unreadable: int) -> str:
    """Describe the messages that an analyzer could not read."""
    if plan.view == "counts":
        return f"{unreadable:,} messages could not be read; each may have made a report incomplete."
    return f"{unreadable:,} reports could not be read, and are not counted."


def traces(screening: Screening | None) -> str:
    """Return the traces of fake reports in few words."""
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


def name_of_crowd(plan: Plan, crowd: Mapping[str, Any]) -> str:
    """Return the display name of a crowd: its number, and its window as dates."""
    number = f"crowd {crowd['name']}"
    return number if plan.window is None else f"{number}, {window_in_words(plan, crowd['window'])}"


FILTERS: dict[str, Callable[..., str]] = {
    "about": about,
    "count": lambda number: f"{number:,}",
    "flips": flip_in_words,
    "near": lambda number: text_near(number, 3),
    "up": lambda number: "-" if number is None else text_up(number, 3),
    "promise": promise_in_words,
}
"""Filters of the console's templates."""
