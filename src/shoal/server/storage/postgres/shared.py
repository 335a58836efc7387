"""What makes a store one of several on the same PostgreSQL database: locks, versions, keys, clocks.

What changes the key of the data (sealing, sweeping, moving a plan) is alone. Reports of different
plans are taken side by side, and those of one plan one commit after another: its windows have one
row of crowd numbers. A process remembers what it read, and a plan's version tells whether another
has written since. Then only that is read. What was remembered goes with the connection: the next
one may lead to a standby that lacks commits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.core.clock import SETTLING, STEP, GuardedClock
from shoal.server.storage.database import NAME, Database, transaction
from shoal.server.storage.keyed_store import KeyedStore
from shoal.server.storage.postgres.connection import PostgresDatabase
from shoal.server.storage.postgres.ratchet import Ratchet
from shoal.server.storage.postgres.schema import SharedSchema, make_tables
from shoal.server.storage.records import State
from shoal.server.storage.schema import Schema

__all__ = ["SharedStore", "database_time", "lock_all", "time_of_both"]


class Followed(Protocol):
    """A plan in memory that can follow what other processes do."""

    def catch_up(self, state: State, oldest_window: int) -> None:
        """Read what another process has written; what it says of the plan is given."""


F = TypeVar("F", bound=Followed)


class SharedStore(KeyedStore[F]):
    """A store in a database that several processes share; mixed with what it stores.

    Parameters
    ----------
    folder
        The folder of this process: its key of open crowds, and what else is secret.
    url
        The database: ``postgresql://user@host/name``.
    timeout
        Seconds to wait for a response from the server before the connection is closed.
    options
        As of the store that it is mixed with.
    """

    is_shared = True
    tables: SharedSchema
    """Its tables in PostgreSQL."""

    def __init__(self, folder: Path, url: str, *, timeout: float = 10.0, **options: Any) -> None:
        self._url, self._timeout = url, timeout
        self._versions: dict[str, int] = {}
        self._is_alone = False
        self._connection = 0
        self._size = 0
        super().__init__(folder, **options)

    def _start(self, schema: Schema) -> None:
        if (self.folder / NAME).exists():
            raise InputError(f"{self.folder} holds data of its own in {NAME}; {self._way_out}.")
        self._database = PostgresDatabase(self._url, self._timeout)
        try:
            with self._database.transaction():
                lock_all(self._database)
                make_tables(self._database, self.tables)
                self._keys = Ratchet(self.folder, self._database, self.tables.word)
                self._keys.start()
                self._keys.rotate()
            self._settle(log_is_empty=False)
            self._resume_clock()
            self._check_clocks()
        except BaseException:
            self._database.close()
            raise

    @property
    def _way_out(self) -> str:
        """What to do with the data of a folder."""
        return "name a new folder"

    @property
    def _ratchet(self) -> Ratchet:
        assert isinstance(self._keys, Ratchet)
        return self._keys

    # Locks

    @contextmanager
    def _transaction(self, *, alone: bool = True) -> Iterator[None]:
        """Commit, and then let the file have the key that was followed to."""
        with super()._transaction(alone=alone):
            yield
        self._settle(log_is_empty=False)

    def _after_begin(self, alone: bool) -> None:
        """Wait for others. A statement after the lock sees all that they committed."""
        assert isinstance(self._database, PostgresDatabase)
        if self._connection != self._database.opened:
            self._connection = self._database.opened
            self._open.clear()
        self._is_alone = alone
        if alone:
            lock_all(self._database)
        else:
            self._database.execute(
                "SELECT pg_advisory_xact_lock_shared(?)", (lock_of("all plans"),)
            )
        self._ratchet.follow()

    def _before_commit(self) -> None:
        """Give the plans that may have changed a new version.

        It is random: two databases that part after a failover would count to the same number.
        """
        for plan_id in sorted(self._touched):
            if plan_id in self._versions:
                self._versions[plan_id] = int.from_bytes(SystemBits().draw(8)) >> 1
                self._database.execute(
                    "UPDATE plans SET version = ? WHERE id = ?", (self._versions[plan_id], plan_id)
                )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._touched.clear()
        try:
            with transaction(self._database):
                self._after_begin(alone=False)
                yield
        except BaseException:
            for plan_id in self._touched:
                self._open.pop(plan_id, None)
            raise

    def _lock_plan(self, plan_id: str) -> None:
        """Keep others away from a plan until the end of the transaction."""
        if not self._is_alone:
            self._database.execute("SELECT pg_advisory_xact_lock(?)", (lock_of(plan_id),))

    def _opened(self, plan_id: str) -> F | None:
        self._lock_plan(plan_id)
        row = self._database.execute(
            "SELECT version, state, oldest_window FROM plans WHERE id = ?", (plan_id,)
        ).fetchone()
        version, known = (None, None) if row is None else (row[0], self._open.get(plan_id))
        if known is not None and self._versions.get(plan_id) != version:
            self._touched.add(plan_id)  # if it fails in between, it is read anew
            known.catch_up(*row[1:])
        if version is not None:
            self._versions[plan_id] = version
        return super()._opened(plan_id)

    def keep_up(self) -> None:
        """Turn the file's key on to that of the database, and destroy the older one."""
        with self._reading():
            pass
        self._settle(log_is_empty=False)

    # Time and space

    def _check_clocks(self) -> None:
        """Refuse to start with a clock that differs from the database's: windows are shared.

        A clock that the database's confirms is believed, however long the machine was off.
        """
        if isinstance(self._clock, GuardedClock):
            time_of_both(self._database, self._clock.wall())
            if self._clock.is_held:
                self._clock.accept(settling=SETTLING)

    def _clocks_agree(self) -> bool:
        if not isinstance(self._clock, GuardedClock):
            return True
        return abs(self._clock() - database_time(self._database)) <= STEP

    @property
    def _may_destroy(self) -> bool:
        return super()._may_destroy and self._clocks_agree()

    @property
    def data_bytes(self) -> int:
        """How many bytes the database had at the last sweep."""
        return self._size

    def _scrub(self) -> bool:
        """Nothing can be taken out of the server's log; what is in it is encrypted."""
        query = "SELECT pg_database_size(current_database())"
        (self._size,) = self._database.execute(query).fetchone()
        return False


def database_time(database: Database) -> float:
    """Return what the clock of the database's machine shows."""
    query = "SELECT extract(epoch FROM clock_timestamp())::float8"
    (there,) = database.execute(query).fetchone()
    return float(there)


def time_of_both(database: Database, here: float) -> float:
    """Return the later one of two times that agree; refuse others."""
    there = database_time(database)
    if abs(here - there) > STEP:
        raise InputError(
            f"the clock here and that of the database differ by more than {STEP:.0f} seconds;"
            " set both, for example with NTP."
        )
    return max(here, there)


def lock_all(database: Database) -> None:
    """Keep all other processes away until the end of the transaction."""
    database.execute("SELECT pg_advisory_xact_lock(?)", (lock_of("all plans"),))


def lock_of(name: str) -> int:
    """Return the number of the lock with a name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"shoal lock").digest()
    return int.from_bytes(digest, signed=True)
