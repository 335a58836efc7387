"""A plan that takes reports: its open crowds, one for each window that is taken.

People may be asked once in every window, and the promise counts the reports of one person in one
release. So a crowd never mixes windows: it fills within its own or is given up.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.collector import problems
from shoal.collector.crowd import OpenCrowd
from shoal.collector.life import State
from shoal.collector.problems import Problem
from shoal.collector.seen import SeenReports
from shoal.crowds import Crowd
from shoal.plans import Plan
from shoal.randomness import SystemBits
from shoal.reports import Batch
from shoal.vectors import Cohorts, Rows

__all__ = ["OpenPlan", "Time"]

_DAY = 86_400


class Time(NamedTuple):
    """The windows of a plan that are taken at a moment, first and last, and the day."""

    first_window: int
    last_window: int
    day: int

    @classmethod
    def of(cls, plan: Plan, seconds: float) -> Time:
        """Return what a clock says to a plan; a device's clock may be a little ahead of ours."""
        day = int(seconds // _DAY)
        if plan.window is None:
            return cls(0, 0, day)
        now = int(seconds // plan.window)
        return cls(max(now - 1, 0), now + 1, day)


@dataclass
class _Crowd:
    number: int
    counts: OpenCrowd


class OpenPlan:
    """What is in memory of a plan, read from the database and written to it.

    Everything here happens inside a transaction of the store.
    """

    def __init__(self, database: sqlite3.Connection, plan: Plan, state: State, oldest: int) -> None:
        self._database, self.plan, self.state = database, plan, state
        self.oldest_window = oldest
        self._seen: dict[int, SeenReports] = {}
        rows = database.execute(
            "SELECT window, number, reports FROM epochs WHERE plan = ? AND state = 'open'",
            (plan.id,),
        )
        self._crowds = {
            window: _Crowd(number, OpenCrowd(plan, reports, self._parts(number)))
            for window, number, reports in rows.fetchall()
        }

    @classmethod
    def read(cls, database: sqlite3.Connection, plan_id: str) -> OpenPlan | None:
        """Return a plan by its id."""
        row = database.execute(
            "SELECT document, state, oldest_window FROM plans WHERE id = ?", (plan_id,)
        ).fetchone()
        return None if row is None else cls(database, Plan.from_json(json.loads(row[0])), *row[1:])

    def _parts(self, number: int) -> dict[int, bytes]:
        return dict(
            self._database.execute(
                "SELECT part, numbers FROM counts WHERE plan = ? AND number = ?",
                (self.plan.id, number),
            )
        )

    def tenths(self, window: int) -> int:
        """Return how many tenths of the crowd of a window have come; 0 if there is none."""
        crowd = self._crowds.get(window)
        return 0 if crowd is None else self._tenths(crowd)

    def _tenths(self, crowd: _Crowd) -> int:
        return 10 * crowd.counts.reports // self.plan.reports_needed

    # Reports

    def objection(self, upload: Batch, time: Time) -> Problem | None:
        """Return why an upload is not taken, or None."""
        if self.state == "draft":
            return problems.UNKNOWN_PLAN
        if self.state == "paused":
            return problems.PAUSED
        if self.state != "published":
            return problems.PLAN_CLOSED
        windows = upload.windows.tolist()
        if min(windows) < max(time.first_window, self.oldest_window):
            return problems.WINDOW_EXPIRED
        return problems.WINDOW_NOT_OPEN if max(windows) > time.last_window else None

    def count(self, uploads: Sequence[Batch], time: Time) -> list[int]:
        """Count reports that have not come before; return the numbers of crowds they sealed."""
        self.open_crowds(time)
        ids = np.concatenate([upload.ids for upload in uploads])
        rows = np.concatenate([upload.rows for upload in uploads])
        windows = np.concatenate([upload.windows for upload in uploads])
        cohorts = None
        if self.plan.cohorts is not None:
            cohorts = np.concatenate([u.cohorts for u in uploads if u.cohorts is not None])
        sealed = []
        for window in np.unique(windows).tolist():
            here = np.flatnonzero(windows == window)
            # Reports that came together have no order: chance says which of them fill the crowd.
            here = here[np.argsort(np.frombuffer(SystemBits().draw(8 * len(here)), np.uint64))]
            if window not in self._seen:
                self._seen[window] = SeenReports(self._database, self.plan.id, window)
            fresh = self._seen[window].remember(ids[here]).astype(np.int64)
            chosen = None if cohorts is None else cohorts[here]
            sealed += self._fill(window, rows[here], chosen, fresh, time.day)
        return sealed

    def _fill(
        self, window: int, rows: Rows, cohorts: Cohorts | None, weights: NDArray[np.int64], day: int
    ) -> list[int]:
        """Add reports to the crowd of their window, sealing it as often as it is complete."""
        sealed: list[int] = []
        while True:
            crowd = self._crowds[window]
            place = np.cumsum(weights) <= self.plan.reports_needed - crowd.counts.reports
            crowd.counts.add(rows, cohorts, weights * place)
            if crowd.counts.reports < self.plan.reports_needed:
                self._write(crowd)
                return sealed
            self._seal(crowd, window)
            sealed.append(crowd.number)
            self._open_crowd(window, day)
            weights = weights * ~place

    def _write(self, crowd: _Crowd) -> None:
        where = (self.plan.id, crowd.number)
        # SQLite leaves a page alone if what is written to it is there already, and a commit with a
        # page less would tell that nothing was new. So the number always changes, twice.
        for number in (-1, crowd.counts.reports):
            self._database.execute(
                "UPDATE epochs SET reports = ? WHERE plan = ? AND number = ?", (number, *where)
            )
        self._database.executemany(
            "INSERT OR REPLACE INTO counts VALUES (?, ?, ?, ?)",
            [(*where, part, numbers) for part, numbers in crowd.counts.changes()],
        )

    def _seal(self, crowd: _Crowd, window: int) -> None:
        """Write the whole crowd's tally, once."""
        tally = crowd.counts.tally()
        assert tally.reports == self.plan.reports_needed
        named = None if self.plan.window is None else window
        sealed = Crowd(tally.reports, str(crowd.number), named, sealed=True)
        tally = replace(tally, crowds=(sealed,))
        release = json.dumps(tally.to_json(), sort_keys=True, separators=(",", ":")).encode()
        self._end(crowd, "sealed", tally.reports, 10, release)

    # Crowds

    def open_crowds(self, time: Time) -> None:
        """Open a crowd for each window that is taken now, whether or not anybody has reported."""
        for window in range(max(time.first_window, self.oldest_window), time.last_window + 1):
            if window not in self._crowds:
                self._open_crowd(window, time.day)

    def _open_crowd(self, window: int, day: int) -> None:
        (last,) = self._database.execute(
            "SELECT coalesce(max(number), 0) FROM epochs WHERE plan = ?", (self.plan.id,)
        ).fetchone()
        # The deadline of the next window's crowd must not run before people are asked in it.
        begins = window * (self.plan.window or 0) // _DAY
        self._database.execute(
            "INSERT INTO epochs VALUES (?, ?, ?, 'open', ?, 0, NULL, NULL)",
            (self.plan.id, last + 1, window, max(day, begins)),
        )
        self._crowds[window] = _Crowd(last + 1, OpenCrowd(self.plan))

    def give_up(self, *, before_window: int | None = None, before_day: int | None = None) -> None:
        """Destroy open crowds, all or the old ones; what stays is how many tenths there were."""
        opened = dict(
            self._database.execute(
                "SELECT window, opened_day FROM epochs WHERE plan = ? AND state = 'open'",
                (self.plan.id,),
            )
        )
        old = [
            window
            for window in self._crowds
            if (before_window is None or window < before_window)
            and (before_day is None or opened[window] < before_day)
        ]
        for window in old:
            crowd = self._crowds.pop(window)
            self._end(crowd, "given up", 0, self._tenths(crowd), None)

    def _end(
        self, crowd: _Crowd, state: str, reports: int, tenths: int, release: bytes | None
    ) -> None:
        where = (self.plan.id, crowd.number)
        self._database.execute(
            "UPDATE epochs SET state = ?, reports = ?, tenths = ?, release = ?"
            " WHERE plan = ? AND number = ?",
            (state, reports, tenths, release, *where),
        )
        self._database.execute("DELETE FROM counts WHERE plan = ? AND number = ?", where)

    # Windows

    def forget_windows(self, before: int | None = None) -> None:
        """Forget which reports have come, in all windows or in those before one."""
        limit = 2**62 if before is None else before
        for table in ("seen", "window_keys"):
            self._database.execute(
                f"DELETE FROM {table} WHERE plan = ? AND window < ?",  # noqa: S608  two names
                (self.plan.id, limit),
            )
        self._seen = {window: one for window, one in self._seen.items() if window >= limit}

    def expire_windows(self, time: Time) -> None:
        """Close windows that have passed, for good, with the crowds that did not fill in them."""
        if time.first_window <= self.oldest_window:
            return
        self.oldest_window = time.first_window
        self.forget_windows(before=time.first_window)
        self.give_up(before_window=time.first_window)
        self._database.execute(
            "UPDATE plans SET oldest_window = ? WHERE id = ?", (time.first_window, self.plan.id)
        )
