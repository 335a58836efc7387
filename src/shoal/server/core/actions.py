"""What people did: a list of every change that somebody made to plans, tokens and the clock.

A line says who, by the label of a token, what, and to which plan or token, to the minute. It says
nothing about reports, so it can be read while crowds are open.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.server.storage.database import Database, storage_errors, transaction

__all__ = ["Action", "Actions"]


@dataclass(frozen=True)
class Action:
    """One line: `subject` is the id of a plan or a token, or empty."""

    minute: int
    by: str
    action: str
    subject: str

    @property
    def time(self) -> str:
        """When it happened (UTC)."""
        return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self.minute * 60))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"time": self.time, "by": self.by, "action": self.action, "subject": self.subject}


class Actions:
    """The list of actions, in the collector's database; used by the store's thread."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    def add(self, by: str, action: str, subject: str = "") -> None:
        """Store that something was done just now."""
        row = (int(self._clock() // 60), by, action, subject)
        with transaction(self._database):
            self._database.execute(
                "INSERT INTO actions (minute, actor, action, subject) VALUES (?, ?, ?, ?)", row
            )

    def last(self, skip: int, length: int) -> list[Action]:
        """Return some actions, the last one first."""
        query = (
            "SELECT minute, actor, action, subject FROM actions ORDER BY id DESC LIMIT ? OFFSET ?"
        )
        with storage_errors():
            return [Action(*row) for row in self._database.execute(query, (length, skip))]
