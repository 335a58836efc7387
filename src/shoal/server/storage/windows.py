"""The windows of a plan: which are open, which reports came in them, and what ends with them.

The collector's plans and the relay's are both made of this. People may be asked once in every
window, and the promise counts the reports of one person in one release. So a crowd never mixes
windows: it fills within its own or is given up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import Database
from shoal.server.storage.duplicates import SeenReports
from shoal.server.storage.encryption import CrowdKeys
from shoal.server.storage.plan_states import State
from shoal.server.storage.records import Reason

__all__ = ["IncompleteCrowd", "Time", "WindowedPlan"]

DAY = 86_400
_OF_STATES: dict[State, Problem] = {
    "draft": problems.UNKNOWN_PLAN,
    "paused": problems.PAUSED,
    "closed": problems.PLAN_CLOSED,
    "destroyed": problems.PLAN_CLOSED,
}
"""Why a plan in a state accepts no reports."""


class Time(NamedTuple):
    """The first and the last open window of a plan at a moment, and the day."""

    first_window: int
    last_window: int
    day: int

    @classmethod
    def of(cls, plan: Plan, seconds: float) -> Time:
        """Return the open windows at a time; a device's clock may be a little ahead of ours."""
        day = int(seconds // DAY)
        if plan.window is None:
            return cls(0, 0, day)
        now = int(seconds // plan.window)
        return cls(max(now - 1, 0), now + 1, day)


class IncompleteCrowd(NamedTuple):
    """A crowd that was given up: its number, and how many tenths of it had come."""

    number: int
    tenths: int


class WindowedPlan(ABC):
    """A plan that accepts reports, in memory.

    Everything here happens inside a transaction of the store.
    """

    def __init__(
        self,
        database: Database,
        keys: CrowdKeys,
        plan: Plan,
        state: State,
        oldest_window: int,
    ) -> None:
        self._database, self._keys, self.plan, self.state = database, keys, plan, state
        self.oldest_window = oldest_window
        self._seen: dict[int, SeenReports] = {}

    def problem(self, first: int, last: int, time: Time) -> Problem | None:
        """Return why reports from a first to a last window are refused, or None."""
        return _OF_STATES.get(self.state) or self._window_problem(first, last, time)

    def _window_problem(self, first: int, last: int, time: Time) -> Problem | None:
        if self.plan.window is None and last:
            return problems.MALFORMED  # such a report is never right
        if first < max(time.first_window, self.oldest_window):
            return problems.WINDOW_EXPIRED
        return problems.WINDOW_NOT_OPEN if last > time.last_window else None

    @abstractmethod
    def give_up(
        self, reason: Reason, *, before_window: int | None = None, before_day: int | None = None
    ) -> list[IncompleteCrowd]:
        """Destroy open crowds, all or the old ones; only how many tenths they had is stored."""

    def forget_windows(self, before: int | None = None) -> None:
        """Forget which reports have come, in all windows or in those before one."""
        limit = 2**62 if before is None else before
        for statement in (
            "DELETE FROM seen WHERE plan = ? AND window < ?",
            "DELETE FROM wrapped_keys WHERE plan = ? AND kind = 'window' AND number < ?",
        ):
            self._database.execute(statement, (self.plan.id, limit))
        self._seen = {window: one for window, one in self._seen.items() if window >= limit}

    def make_room(self) -> None:
        """Do between commits what would make a later commit longer than others."""
        for seen in self._seen.values():
            seen.make_room()

    def expire_windows(self, time: Time) -> list[IncompleteCrowd]:
        """Close windows that are over, for ever, with the crowds that did not fill in time."""
        return self.close_windows(before=time.first_window)

    def close_windows(self, before: int) -> list[IncompleteCrowd]:
        """Accept no more reports of windows before one, for ever."""
        if before <= self.oldest_window:
            return []
        self.oldest_window = before
        self.forget_windows(before=before)
        self._database.execute(
            "UPDATE plans SET oldest_window = ? WHERE id = ?", (before, self.plan.id)
        )
        return self.give_up("window", before_window=before)
