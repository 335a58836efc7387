"""The transactions of the collector: reports in, sealed crowds out, nothing in between.

A store is used by one thread of one process. Its caches hold what is in the database and are thrown
away whenever a transaction fails.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from shoal.collector import problems
from shoal.collector.database import NAME, PATIENCE, open_database, told, transaction
from shoal.collector.life import State, may_become
from shoal.collector.open_plan import OpenPlan, Time
from shoal.collector.problems import Problem
from shoal.errors import InputError
from shoal.plans import Plan
from shoal.reports import Batch
from shoal.tallying import Tally

__all__ = ["Epoch", "KeptPlan", "Store"]


@dataclass(frozen=True)
class KeptPlan:
    """A plan as the collector keeps it: its state, and from its publication on its certificate."""

    plan: Plan
    state: State
    certificate: bytes | None


@dataclass(frozen=True)
class Epoch:
    """One crowd of a plan.

    `window` is the one whose reports it takes, 0 where the plan has none. `reports` is known of a
    sealed crowd only; of one that was given up, `tenths` says how full it was.
    """

    number: int
    window: int
    state: str
    reports: int | None
    tenths: int


class Store:
    """Plans, open crowds and releases in one folder.

    Parameters
    ----------
    folder
        Where the database is, or shall be.
    deadline_days
        After how many days a crowd that is not complete is given up; 0 for never. They count from
        its opening, and not before its window begins.
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
        self._open: dict[str, OpenPlan] = {}

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
                here, kept = list(places), self._opened(plan_id)
                if kept is None:
                    for place in here:
                        answers[place] = problems.UNKNOWN_PLAN
                    continue
                time = self._time(kept.plan)
                for place in here:
                    answers[place] = kept.objection(uploads[place], time)
                taken = [uploads[place] for place in here if answers[place] is None]
                if taken:
                    sealed += [(plan_id, number) for number in kept.count(taken, time)]
            # Something is written whatever came, so that a repeated report takes as long.
            self._database.execute("UPDATE facts SET value = value + 1 WHERE name = 'commits'")
        for plan_id, number in sealed:
            self._sealed(plan_id, number)
        return answers

    def _time(self, plan: Plan) -> Time:
        return Time.of(plan, self._clock())

    def _opened(self, plan_id: str) -> OpenPlan | None:
        """Return what is in memory of a plan, read from the database if need be."""
        if plan_id not in self._open:
            kept = OpenPlan.read(self._database, plan_id)
            if kept is None:
                return None
            self._open[plan_id] = kept
        return self._open[plan_id]

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

        The first publication needs the plan's certificate and opens the first crowds. Closing
        destroys the open crowds, and destroying all that was collected.
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
                kept.open_crowds(self._time(kept.plan))
            if wanted == "closed":
                kept.give_up()
                kept.forget_windows()
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

    def _scrub(self) -> None:
        """Take what was deleted or overwritten out of the write-ahead log too.

        While somebody else reads, a backup for one, that cannot be done; reports do not wait for
        it, and the next sweep tries again.
        """
        with told():
            self._database.execute("PRAGMA busy_timeout = 0")
            try:
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._database.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")

    # Crowds

    def progress(self, plan_id: str) -> int:
        """Return how many tenths of the crowd of this window have come; 0 if none is open."""
        with told():
            kept = self._opened(plan_id)
        return 0 if kept is None else kept.tenths(self._window(kept.plan))

    def _window(self, plan: Plan) -> int:
        return 0 if plan.window is None else int(self._clock() // plan.window)

    def epochs(self, plan_id: str) -> list[Epoch]:
        """Return a plan's crowds; of those that are open no more than their tenths."""
        with told():
            kept = self._opened(plan_id)
            rows = self._database.execute(
                "SELECT number, window, state, reports, tenths FROM epochs"
                " WHERE plan = ? ORDER BY number",
                (plan_id,),
            ).fetchall()
        epochs = []
        for number, window, state, reports, tenths in rows:
            if state == "open" and kept is not None:
                tenths = kept.tenths(window)
            shown = reports if state == "sealed" else None
            epochs.append(Epoch(number, window, state, shown, tenths or 0))
        return epochs

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
        """Do what time asks for: close expired windows, give up crowds past their deadline.

        Windows only go forward: once forgotten, a window stays closed though the clock went back.
        The log is emptied each time: it holds the counts of every commit, whose differences are the
        reports of that commit, and after a crash what was deleted just before.
        """
        with self._transaction():
            published = "SELECT id FROM plans WHERE state IN ('published', 'paused')"
            for (plan_id,) in self._database.execute(published).fetchall():
                kept = self._opened(plan_id)
                assert kept is not None
                time = self._time(kept.plan)
                kept.expire_windows(time)
                if self._deadline_days:
                    kept.give_up(before_day=time.day - self._deadline_days + 1)
                kept.open_crowds(time)
        self._scrub()
