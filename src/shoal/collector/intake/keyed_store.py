"""A database with the keys of its open crowds: how it starts, commits, and forgets.

The collector's store and the relay's are both made of it. A store is used by one thread of one
process. Its caches hold what is in the database and are thrown away when a transaction fails that
touched them.
"""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from shoal.agreement.plan import Plan
from shoal.collector.clock import GuardedClock, read_moment, write_moment
from shoal.collector.consistency import Restoration, begin_anew
from shoal.collector.intake.database import (
    NAME,
    PATIENCE,
    Schema,
    open_database,
    storage_errors,
    transaction,
)
from shoal.collector.intake.encryption import CrowdKeys, Generation, generation_without_log
from shoal.collector.intake.windows import Time

__all__ = ["KeyedStore"]

P = TypeVar("P")


class KeyedStore(ABC, Generic[P]):
    """Plans and their open crowds in one folder; `P` is what is in memory of a plan.

    Parameters
    ----------
    folder
        The folder of the database.
    schema
        Its tables.
    clock
        Seconds since 1970, to tell windows and days.
    """

    def __init__(self, folder: Path, schema: Schema, clock: Callable[[], float]) -> None:
        self.folder, self._clock = folder, clock
        with storage_errors():
            without_log = generation_without_log(folder / NAME)
        self._database = open_database(folder / NAME, schema=schema)
        self._open: dict[str, P] = {}
        self._touched: set[str] = set()
        self.begun_anew: Restoration | None = None
        try:
            self._start(without_log)
        except BaseException:
            self._database.close()
            raise

    def _start(self, without_log: Generation) -> None:
        """Bring the keys of the data in order."""
        with storage_errors():
            self._keys = CrowdKeys(self.folder, self._database)
            self._keys.check(without_log)
            last = read_moment(self._database)
            if isinstance(self._clock, GuardedClock) and last is not None:
                self._clock.resume(last)
            is_new = self._keys.is_new or self._keys.is_lost
        if is_new:
            with self._transaction():
                if self._keys.is_lost:
                    self._forget_crowds()
                    self.begun_anew = begin_anew(self._database, int(self._clock()))
                self._keys.rotate()
        self._settle(self._scrub() if is_new else False)

    @abstractmethod
    def _forget_crowds(self) -> None:
        """Give up all open crowds, none of which can be read any more."""

    @abstractmethod
    def _read_plan(self, plan_id: str) -> P | None:
        """Read a plan from the database."""

    @property
    def database(self) -> sqlite3.Connection:
        """The connection, for what else is stored in the same file."""
        return self._database

    def close(self) -> None:
        """Close the database; what was committed is in it."""
        self._database.close()

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written now."""
        with transaction(self._database):
            self._database.execute("UPDATE facts SET value = random() WHERE name = 'probe'")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._touched.clear()
        try:
            with transaction(self._database):
                yield
        except BaseException:
            for plan_id in self._touched:
                self._open.pop(plan_id, None)  # it may be ahead of the database
            raise

    @contextmanager
    def _changing_key(self, *, scrub: bool = False) -> Iterator[None]:
        """Do something after which an older copy of the data is of no use."""
        with self._transaction():
            yield
            self._keys.rotate()
        self._settle(self._scrub() if scrub else False)

    def _settle(self, log_is_empty: bool) -> None:
        with storage_errors():
            self._keys.settle(log_is_empty=log_is_empty)

    def _scrub(self) -> bool:
        """Take what was deleted or overwritten out of the write-ahead log too.

        While somebody else reads, a backup for one, that cannot be done; reports do not wait for
        it, and the next sweep tries again. Tells whether it was done.
        """
        with storage_errors():
            self._database.execute("PRAGMA busy_timeout = 0")
            try:
                (busy, *_), *_ = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return not busy
            finally:
                self._database.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")

    # Plans

    def add_plan(self, plan: Plan) -> bool:
        """Add a plan as a draft; return whether it is new."""
        document = json.dumps({"id": plan.id} | plan.to_json(), separators=(",", ":"))
        with self._transaction():
            added = self._database.execute(
                "INSERT OR IGNORE INTO plans (id, state, document) VALUES (?, 'draft', ?)",
                (plan.id, document.encode()),
            )
            return added.rowcount == 1

    def _opened(self, plan_id: str) -> P | None:
        """Return what is in memory of a plan, read from the database if need be."""
        self._touched.add(plan_id)
        if plan_id not in self._open:
            plan = self._read_plan(plan_id)
            if plan is None:
                return None
            self._open[plan_id] = plan
        return self._open[plan_id]

    # Time

    def _time(self, plan: Plan) -> Time:
        return Time.of(plan, self._clock())

    @property
    def _may_destroy(self) -> bool:
        return not isinstance(self._clock, GuardedClock) or self._clock.is_settled

    def _write_moment(self) -> None:
        if isinstance(self._clock, GuardedClock):
            write_moment(self._database, self._clock.moment)
