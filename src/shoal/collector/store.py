"""The transactions of the collector: reports in, sealed crowds out, nothing in between.

A store is used by one thread of one process. Its caches hold what is in the database and are thrown
away whenever a transaction fails.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from shoal.collector import problems
from shoal.collector.crowd import OpenCrowd
from shoal.collector.database import NAME, open_database, told, transaction
from shoal.collector.life import State, may_become
from shoal.collector.problems import Problem
from shoal.collector.seen import SeenReports
from shoal.errors import InputError
from shoal.plans import Plan
from shoal.randomness import SystemBits
from shoal.reports import Batch
from shoal.tallying import Tally

__all__ = ["Epoch", "KeptPlan", "Store"]

_DAY = 86_400


@dataclass(frozen=True)
class KeptPlan:
    """A plan as the collector keeps it: its state, and from its publication on its certificate."""

    plan: Plan
    state: State
    certificate: bytes | None


@dataclass(frozen=True)
class Epoch:
    """One crowd of a plan.

    `reports` is known of a sealed crowd only; of one that was given up, `tenths` says how full it
    was.
    """

    number: int
    state: str
    reports: int | None
    tenths: int


@dataclass
class _Open:
    """What is in memory of a plan that takes reports."""

    plan: Plan
    state: State
    oldest_window: int
    number: int
    crowd: OpenCrowd
    seen: dict[int, SeenReports]


class Store:
    """Plans, open crowds and releases in one folder.

    Parameters
    ----------
    folder
        Where the database is, or shall be.
    deadline_days
        After how many days a crowd that is not complete is given up; 0 for never.
    clock
        Seconds since 1970, to tell windows and days.
    sealed
        Called with a plan's id and the number of the epoch when a crowd was sealed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        deadline_days: int = 0,
        clock: Callable[[], float] = time.time,
        sealed: Callable[[str, int], None] = lambda plan_id, number: None,
    ) -> None:
        self._database = open_database(folder / NAME)
        self._deadline_days, self._clock, self._sealed = deadline_days, clock, sealed
        self._open: dict[str, _Open] = {}

    @property
    def database(self) -> sqlite3.Connection:
        """The connection, for what else is kept in the same file."""
        return self._database

    def close(self) -> None:
        """Close the database; what was committed is in it."""
        self._database.close()

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written now."""
        with transaction(self._database):
            self._database.execute("UPDATE facts SET value = value WHERE name = 'commits'")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with transaction(self._database):
                yield
        except BaseException:
            self._open.clear()  # it may be ahead of the database
            raise

    # Reports

    def accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        """Count the reports of several uploads; when this returns they are on the disk.

        Each upload is taken as a whole or refused as a whole, with a problem. A report that has
        come before is taken and not counted, at the same cost.
        """
        answers: list[Problem | None] = [None] * len(uploads)
        sealed: list[tuple[str, int]] = []
        order = sorted(range(len(uploads)), key=lambda place: uploads[place].plan_id)
        with self._transaction():
            for plan_id, places in groupby(order, lambda place: uploads[place].plan_id):
                kept = self._opened(plan_id)
                taken = []
                for place in places:
                    answers[place] = self._objection(kept, uploads[place])
                    if answers[place] is None:
                        taken.append(uploads[place])
                if kept is not None and taken:
                    sealed += self._count(kept, taken)
            # Something is written whatever came, so that a repeated report takes as long.
            self._database.execute("UPDATE facts SET value = value + 1 WHERE name = 'commits'")
        for plan_id, number in sealed:
            self._sealed(plan_id, number)
        return answers

    def _objection(self, kept: _Open | None, upload: Batch) -> Problem | None:
        if kept is None or kept.state == "draft":
            return problems.UNKNOWN_PLAN
        if kept.state == "paused":
            return problems.PAUSED
        if kept.state != "published":
            return problems.PLAN_CLOSED
        now = self._window(kept.plan)
        if int(upload.windows.min()) < max(now - 1, kept.oldest_window):
            return problems.WINDOW_EXPIRED
        # A device's clock may be a little ahead of ours.
        if int(upload.windows.max()) > now + (kept.plan.window is not None):
            return problems.WINDOW_NOT_OPEN
        return None

    def _window(self, plan: Plan) -> int:
        return 0 if plan.window is None else int(self._clock() // plan.window)

    def _count(self, kept: _Open, uploads: list[Batch]) -> list[tuple[str, int]]:
        ids = np.concatenate([upload.ids for upload in uploads])
        rows = np.concatenate([upload.rows for upload in uploads])
        windows = np.concatenate([upload.windows for upload in uploads])
        cohorts = None
        if kept.plan.cohorts is not None:
            cohorts = np.concatenate([u.cohorts for u in uploads if u.cohorts is not None])
        fresh = np.zeros(len(ids), bool)
        for window in np.unique(windows).tolist():
            if window not in kept.seen:
                kept.seen[window] = SeenReports(self._database, kept.plan.id, window)
            here = windows == window
            fresh[here] = kept.seen[window].remember(ids[here])
        sealed = []
        needed = kept.plan.reports_needed
        # Reports that came together have no order: chance says which of them fill the crowd.
        order = np.argsort(np.frombuffer(SystemBits().draw(8 * len(ids)), np.uint64))
        weights = fresh[order].astype(np.int64)
        rows, cohorts = rows[order], None if cohorts is None else cohorts[order]
        while True:
            place = np.cumsum(weights) <= needed - kept.crowd.reports
            kept.crowd.add(rows, cohorts, weights * place)
            if kept.crowd.reports < needed:
                break
            sealed.append((kept.plan.id, kept.number))
            self._seal(kept)
            weights = weights * ~place
        self._write_crowd(kept)
        return sealed

    def _write_crowd(self, kept: _Open) -> None:
        # SQLite leaves a page alone if what is written to it is there already, and a commit with a
        # page less would tell that nothing was new. So the number always changes, twice.
        for number in (-1, kept.crowd.reports):
            self._database.execute(
                "UPDATE epochs SET reports = ? WHERE plan = ? AND number = ?",
                (number, kept.plan.id, kept.number),
            )
        self._database.executemany(
            "INSERT OR REPLACE INTO counts VALUES (?, ?, ?)",
            [(kept.plan.id, part, numbers) for part, numbers in kept.crowd.changes()],
        )

    def _seal(self, kept: _Open) -> None:
        """Write the whole crowd's tally once, and open the next crowd."""
        tally = kept.crowd.tally()
        assert tally.reports == kept.plan.reports_needed
        release = json.dumps(tally.to_json(), sort_keys=True, separators=(",", ":")).encode()
        self._database.execute(
            "UPDATE epochs SET state = 'sealed', reports = ?, tenths = 10, release = ?"
            " WHERE plan = ? AND number = ?",
            (tally.reports, release, kept.plan.id, kept.number),
        )
        self._next_epoch(kept.plan, kept.number + 1)
        kept.number, kept.crowd = kept.number + 1, OpenCrowd(kept.plan)

    def _next_epoch(self, plan: Plan, number: int) -> None:
        self._database.execute("DELETE FROM counts WHERE plan = ?", (plan.id,))
        self._database.execute(
            "INSERT INTO epochs VALUES (?, ?, 'open', ?, 0, NULL, NULL)",
            (plan.id, number, self._today()),
        )

    def _today(self) -> int:
        return int(self._clock() // _DAY)

    def _opened(self, plan_id: str) -> _Open | None:
        """Return what is in memory of a plan, read from the database if need be."""
        if plan_id in self._open:
            return self._open[plan_id]
        row = self._database.execute(
            "SELECT document, state, oldest_window FROM plans WHERE id = ?", (plan_id,)
        ).fetchone()
        if row is None:
            return None
        plan, state, oldest = Plan.from_json(json.loads(row[0])), row[1], row[2]
        number, reports = self._database.execute(
            "SELECT number, reports FROM epochs WHERE plan = ? AND state = 'open'", (plan_id,)
        ).fetchone() or (0, 0)
        parts = dict(
            self._database.execute("SELECT part, numbers FROM counts WHERE plan = ?", (plan_id,))
        )
        kept = _Open(plan, state, oldest, number, OpenCrowd(plan, reports, parts), {})
        self._open[plan_id] = kept
        return kept

    # Plans

    def add_plan(self, plan: Plan) -> bool:
        """Keep a plan as a draft; tell whether it is new."""
        document = json.dumps({"id": plan.id} | plan.to_json(), separators=(",", ":"))
        with self._transaction():
            added = self._database.execute(
                "INSERT OR IGNORE INTO plans (id, state, document) VALUES (?, 'draft', ?)",
                (plan.id, document.encode()),
            )
            return added.rowcount == 1

    def plan(self, plan_id: str) -> KeptPlan | None:
        """Return a plan by its id."""
        with told():
            row = self._database.execute(
                "SELECT document, state, certificate FROM plans WHERE id = ?", (plan_id,)
            ).fetchone()
        return None if row is None else KeptPlan(Plan.from_json(json.loads(row[0])), *row[1:])

    def plans(self) -> list[KeptPlan]:
        """Return all plans, in the order of their ids."""
        with told():
            ids = self._database.execute("SELECT id FROM plans ORDER BY id").fetchall()
        return [kept for (plan_id,) in ids if (kept := self.plan(plan_id)) is not None]

    def move(self, plan_id: str, wanted: State, certificate: bytes | None = None) -> bool:
        """Bring a plan into another state; tell whether that is allowed.

        The first publication needs the plan's certificate and opens the first crowd. Closing
        destroys the open crowd, and destroying all that was collected.
        """
        with self._transaction():
            kept = self._opened(plan_id)
            if kept is None:
                raise InputError("there is no such plan.")
            before = kept.state
            if not may_become(before, wanted):
                return False
            if before == "draft" and wanted == "published":
                if certificate is None:
                    raise InputError("a plan is published with its certificate.")
                self._database.execute(
                    "UPDATE plans SET certificate = ? WHERE id = ?", (certificate, plan_id)
                )
                self._next_epoch(kept.plan, 1)
            if wanted == "closed":
                self._give_up(kept)
                self._forget_reports(plan_id)
            if wanted == "destroyed":
                self._database.execute(
                    "UPDATE epochs SET state = 'destroyed', release = NULL WHERE plan = ?",
                    (plan_id,),
                )
            self._database.execute("UPDATE plans SET state = ? WHERE id = ?", (wanted, plan_id))
            self._open.pop(plan_id, None)
        if wanted in ("closed", "destroyed"):
            self._scrub()
        return True

    def _give_up(self, kept: _Open) -> None:
        """Destroy the open crowd; what stays is how many tenths of it there were."""
        self._database.execute(
            "UPDATE epochs SET state = 'given up', reports = 0, tenths = ?"
            " WHERE plan = ? AND number = ?",
            (_tenths(kept), kept.plan.id, kept.number),
        )
        self._database.execute("DELETE FROM counts WHERE plan = ?", (kept.plan.id,))

    def _forget_reports(self, plan_id: str, before: int | None = None) -> None:
        limit = 2**62 if before is None else before
        for table in ("seen", "window_keys"):
            self._database.execute(
                f"DELETE FROM {table} WHERE plan = ? AND window < ?",  # noqa: S608  two names
                (plan_id, limit),
            )

    def _scrub(self) -> None:
        """Take what was deleted out of the write-ahead log too."""
        with told():
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # Crowds

    def progress(self, plan_id: str) -> int:
        """Return how many tenths of the open crowd have come; 0 if none is open."""
        with told():
            kept = self._opened(plan_id)
        return 0 if kept is None or kept.number == 0 else _tenths(kept)

    def epochs(self, plan_id: str) -> list[Epoch]:
        """Return a plan's crowds; of the open one no more than its tenths."""
        with told():
            rows = self._database.execute(
                "SELECT number, state, reports, tenths FROM epochs WHERE plan = ? ORDER BY number",
                (plan_id,),
            ).fetchall()
        return [
            Epoch(number, state, reports if state == "sealed" else None,
                  self.progress(plan_id) if state == "open" else tenths or 0)
            for number, state, reports, tenths in rows
        ]  # fmt: skip

    def release(self, plan_id: str, number: int) -> bytes | None:
        """Return the tally of a sealed crowd, the same bytes every time; None if there is none."""
        with told():
            row = self._database.execute(
                "SELECT release FROM epochs WHERE plan = ? AND number = ? AND state = 'sealed'",
                (plan_id, number),
            ).fetchone()
        return None if row is None else bytes(row[0])

    def tally(self, plan_id: str, number: int) -> tuple[Plan, Tally] | None:
        """Return a sealed crowd's plan and tally."""
        kept, release = self.plan(plan_id), self.release(plan_id, number)
        if kept is None or release is None:
            return None
        return kept.plan, Tally.from_json(json.loads(release), kept.plan)

    # Time

    def sweep(self) -> None:
        """Do what time asks for: forget expired windows, give up crowds past their deadline.

        Windows only go forward: once forgotten, a window stays closed though the clock went back.
        """
        scrub = False
        with self._transaction():
            published = "SELECT id FROM plans WHERE state IN ('published', 'paused')"
            for (plan_id,) in self._database.execute(published).fetchall():
                kept = self._opened(plan_id)
                assert kept is not None
                scrub |= self._expire_windows(kept) | self._expire_crowd(kept)
        if scrub:
            self._open.clear()
            self._scrub()

    def _expire_windows(self, kept: _Open) -> bool:
        oldest = max(self._window(kept.plan) - 1, 0)
        if oldest <= kept.oldest_window:
            return False
        self._forget_reports(kept.plan.id, before=oldest)
        self._database.execute(
            "UPDATE plans SET oldest_window = ? WHERE id = ?", (oldest, kept.plan.id)
        )
        return True

    def _expire_crowd(self, kept: _Open) -> bool:
        (opened,) = self._database.execute(
            "SELECT opened_day FROM epochs WHERE plan = ? AND number = ?",
            (kept.plan.id, kept.number),
        ).fetchone()
        if not self._deadline_days or self._today() < opened + self._deadline_days:
            return False
        self._give_up(kept)
        self._next_epoch(kept.plan, kept.number + 1)
        return True


def _tenths(kept: _Open) -> int:
    return math.floor(10 * kept.crowd.reports / kept.plan.reports_needed)
