"""A database with the keys of its open crowds: how it starts, commits, and forgets.

The collector's store and the relay's are both made of it. A store is used by one thread of one
process. Its caches hold what is in the database and are thrown away when a transaction fails that
touched them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.core.clock import GuardedClock, read_moment, write_moment
from shoal.server.storage.database import (
    MOVED,
    NAME,
    PATIENCE,
    Database,
    log_size,
    open_database,
    read_fact,
    storage_errors,
    transaction,
)
from shoal.server.storage.encryption import CrowdKeys, FolderKeys, generation_without_log
from shoal.server.storage.recovery import Restoration, begin_anew
from shoal.server.storage.schema import Schema
from shoal.server.storage.windows import OpenWindows

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

    is_shared: ClassVar[bool] = False
    """Whether other processes use the data at the same time."""

    def __init__(self, folder: Path, schema: Schema, clock: Callable[[], float]) -> None:
        self.folder, self._clock = folder, clock
        self._open: dict[str, P] = {}
        self._touched: set[str] = set()
        self.begun_anew: Restoration | None = None
        self._database: Database
        self._keys: CrowdKeys
        self._start(schema)

    def _start(self, schema: Schema) -> None:
        """Open the data, and bring their keys in order."""
        with storage_errors():
            without_log = generation_without_log(self.folder / NAME)
        self._database = open_database(self.folder / NAME, schema=schema)
        try:
            with storage_errors():
                if read_fact(self._database, MOVED) is not None:
                    raise InputError(
                        f"the data in {self.folder} were moved to PostgreSQL, and would count"
                        " reports again; serve the database, or name another folder."
                    )
                self._keys = keys = FolderKeys(self.folder, self._database)
                keys.check(without_log)
                self._resume_clock()
                is_new = keys.is_new or keys.is_lost
            if is_new:
                with self._transaction():
                    if keys.is_lost:
                        self._forget_crowds()
                        self.begun_anew = begin_anew(self._database, int(self._clock()))
                    keys.rotate()
            self._settle(self._scrub() if is_new else False)
        except BaseException:
            self._database.close()
            raise

    def _resume_clock(self) -> None:
        last = read_moment(self._database)
        if isinstance(self._clock, GuardedClock) and last is not None:
            self._clock.resume(last)

    @abstractmethod
    def _forget_crowds(self) -> None:
        """Give up all open crowds, none of which can be read any more."""

    @abstractmethod
    def _read_plan(self, plan_id: str) -> P | None:
        """Read a plan from the database."""

    @property
    def database(self) -> Database:
        """The connection, for what else is stored in the same file."""
        return self._database

    def close(self) -> None:
        """Close the database; what was committed is in it."""
        self._database.close()

    @property
    def data_bytes(self) -> int:
        """How many bytes the data have."""
        return (self.folder / NAME).stat().st_size + log_size(self.folder)

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written now."""
        with transaction(self._database):
            self._database.execute("UPDATE facts SET value = random() WHERE name = 'probe'")

    @contextmanager
    def _transaction(self, *, alone: bool = True) -> Iterator[None]:
        """Do everything inside or nothing of it; others may do the same unless it is alone."""
        self._touched.clear()
        try:
            with transaction(self._database):
                self._after_begin(alone)
                yield
                self._before_commit()
        except BaseException:
            for plan_id in self._touched:
                self._open.pop(plan_id, None)  # it may be ahead of the database
            raise

    def _after_begin(self, alone: bool) -> None:
        """Keep other processes away, if there are any."""

    def _before_commit(self) -> None:
        """Let other processes know of what was done, if there are any."""

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one state of the data."""
        with storage_errors():
            yield

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
            query = "SELECT 1 FROM plans WHERE id = ?"
            if self._database.execute(query, (plan.id,)).fetchone() is not None:
                return False
            self._database.execute(
                "INSERT INTO plans (id, state, document) VALUES (?, 'draft', ?)",
                (plan.id, document.encode()),
            )
            return True

    def _opened(self, plan_id: str) -> P | None:
        """Return what is in memory of a plan, read from the database if need be."""
        self._touched.add(plan_id)
        if plan_id not in self._open:
            plan = self._read_plan(plan_id)
            if plan is None:
                return None
            self._open[plan_id] = plan
        return self._open[plan_id]

    # OpenWindows

    def _time(self, plan: Plan) -> OpenWindows:
        return OpenWindows.of(plan, self._clock())

    @property
    def _may_destroy(self) -> bool:
        return not isinstance(self._clock, GuardedClock) or self._clock.is_settled

    def _write_moment(self) -> None:
        if isinstance(self._clock, GuardedClock):
            write_moment(self._database, self._clock.moment)
