"""A service's data in PostgreSQL, shared by several processes: locks, versions, keys, clocks.

A transaction that changes the key of the data is exclusive. Reports of different plans are accepted
side by side, those of one plan one commit after another: its windows share one sequence of crowd
numbers. A plan's version tells whether another process has written since. The memory goes with the
connection: the next one may lead to a standby that lacks commits.

All collectors have the root key of the data, and the database does not. PostgreSQL keeps
overwritten data in tables, logs, archives and replicas, and the difference of two states of an open
crowd is a report. So the key changes all the time, as in a folder (`encryption`). Collectors
communicate only through the database: each generation's key is computed from the one before and a
salt in the database, a one-way ratchet. A collector whose file is behind turns it on and destroys
the older key. A database that is older than the file is refused, and so is one whose salts lead to
another key.

A standby may lack commits. So the database also names the server's time line on which the key was
turned. A server that took over or was restored begins another one; it is refused, unless the old
one waited for standbys with each commit.

Limitation: anyone who copied the file once can follow the ratchet while they can read the database.
Only new keys (`renew`) end that.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.server.core.clock import SETTLING, STEP, GuardedClock, read_moment
from shoal.server.storage.database import (
    NAME,
    Database,
    SqlConnection,
    StorageError,
    data_lock,
    read_fact,
)
from shoal.server.storage.encryption import CROWD_KEY_FILE, Keyring, name_of
from shoal.server.storage.postgres_connection import PostgresConnection
from shoal.server.storage.recovery import Restoration, begin_anew
from shoal.server.storage.schema import COLLECTOR, Schema, make_tables, schema_in
from shoal.support.disk import Disk

KEPT = 100_000
"""Salts that the database keeps; with a sweep every 20 seconds, those of three weeks."""

_SALT = 16
_TIMELINE = 'left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) COLLATE "C"'
_LAST = (
    "SELECT number, name, (SELECT value FROM facts WHERE name = 'timeline' AND value <> ''"  # noqa: S608  fixed
    f" AND value < {_TIMELINE}) FROM generations ORDER BY number DESC LIMIT 1"
)
_NOTE_TIMELINE = (
    "INSERT INTO facts VALUES ('timeline', CASE current_setting('synchronous_standby_names')"  # noqa: S608  fixed
    f" WHEN '' THEN {_TIMELINE} ELSE '' END)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_RENEW = (
    "run shoal collector renew: then open crowds are discarded and plans without a window are"
    " closed."
)


class Step(NamedTuple):
    """The key of a generation."""

    generation: int
    key: bytes

    def next(self, salt: bytes) -> Step:
        key = blake2b(salt, key=self.key, digest_size=32, person=b"shoal ratchet").digest()
        return Step(self.generation + 1, key)


class Ratchet:
    """The root key of a shared database, in this process's file.

    `service` is the kind of service that shares it: "collector" or "relay".
    """

    def __init__(self, folder: Path, connection: SqlConnection, service: str = "collector") -> None:
        self._path, self._connection, self._service = folder / CROWD_KEY_FILE, connection, service
        self._way_out = (
            f"copy {CROWD_KEY_FILE} and signing-key from a {service} that runs. If there is none,"
            f" or if the database was restored from a backup, {_RENEW}"
        )
        self._filed = self._read() if self._path.exists() else None
        self._known = self._filed  # the newest that the database is known to have had
        self._now = self._filed

    def _read(self) -> Step:
        try:
            number, key = self._path.read_text("ascii").split()
            step = Step(int(number), bytes.fromhex(key))
        except (OSError, ValueError) as error:
            raise StorageError(f"{self._path} holds no key of a shared database.") from error
        if len(step.key) != 32:
            raise StorageError(f"{self._path} holds no key of a shared database.")
        return step

    def start(self) -> None:
        """Begin the keys of a new database, or find the present one, in a transaction."""
        last = self._last()
        if last is None:
            if self._filed is not None and self._filed.generation > 0:
                raise InputError(f"{self._path} belongs to other data than this database's.")
            self.begin()
        elif self._filed is None:
            raise InputError(
                f"the database is in use, and there is no {self._path}; {self._way_out}"
            )
        else:
            self.follow()

    def begin(self) -> None:
        """Make the first key; it is in the file before the database knows of it."""
        if self._filed is None:
            self._write(Step(0, SystemBits().draw(32)))
        assert self._filed is not None
        self._now = self._known = self._filed
        self._note(bytes(_SALT), self._now)

    def follow(self) -> None:
        """Turn the ratchet on to the generation of the database; refuse one that does not fit."""
        # Every transaction does this first: the server may have been replaced meanwhile, by one
        # that lacks what this collector has seen, whether or not its file has it.
        last, known = self._last(), self._known
        assert known is not None
        if last is None or last[0] < known.generation:
            raise StorageError(
                f"the database is older than {self._path}, or another; {self._way_out}"
            )
        generation, name, left = last
        if left is not None:
            raise StorageError(
                "the server was restored, or replaced by a standby that may lack commits; stop all"
                f" {self._service}s and {_RENEW}"
            )
        step = self._turned(known, generation)
        if name_of(step.key) != name:
            raise StorageError(f"{self._path} is not of this database; {self._way_out}")
        self._now = self._known = step

    def _last(self) -> tuple[int, bytes, str | None] | None:
        """Return the last generation, its name, and the time line that the server left, if any."""
        row: tuple[int, bytes, str | None] | None = self._connection.execute(_LAST).fetchone()
        return row

    def _turned(self, step: Step, generation: int) -> Step:
        if step.generation == generation:
            return step
        salts = self._connection.execute(
            "SELECT number, salt FROM generations WHERE number > ? ORDER BY number",
            (step.generation,),
        ).fetchall()
        if len(salts) != generation - step.generation:
            raise StorageError(
                f"{self._path} is older than the state in the database; {self._way_out}"
            )
        for _, salt in salts:
            step = step.next(salt)
        return step

    def rotate(self) -> tuple[bytes, bytes]:
        """Turn the ratchet by one; return the key before and the key now."""
        before = self._now
        assert before is not None
        salt = SystemBits().draw(_SALT)
        self._now = before.next(salt)
        self._note(salt, self._now)
        self._connection.execute(
            "DELETE FROM generations WHERE number <= ?", (self._now.generation - KEPT,)
        )
        self._connection.execute(_NOTE_TIMELINE)
        return before.key, self._now.key

    def _note(self, salt: bytes, step: Step) -> None:
        self._connection.execute(
            "INSERT INTO generations VALUES (?, ?, ?)", (step.generation, salt, name_of(step.key))
        )

    def settle(self, *, log_is_empty: bool = False) -> None:
        if self._now is not None and self._now != self._filed:
            self._write(self._now)

    def current(self) -> bytes:
        assert self._now is not None
        return self._now.key

    def _write(self, step: Step) -> None:
        content = f"{step.generation} {step.key.hex()}\n".encode()
        try:
            Disk().store(self._path, content, f"{self._path.name}.part")
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}.") from error
        self._filed = step


R = TypeVar("R")


class PostgresDatabase(Database):
    """The data in a database that several processes share; see `open_data`.

    The folder has this process's copy of the key, and its other secrets.
    """

    is_shared = True
    connection: PostgresConnection

    def __init__(
        self,
        folder: Path,
        url: str,
        schema: Schema,
        clock: Callable[[], float],
        *,
        timeout: float = 10.0,
    ) -> None:
        self.folder = folder
        self._is_exclusive = False
        self._opened = self._size = 0
        if (folder / NAME).exists():
            move = "take them along with shoal collector move, or "
            way_out = f"{move if schema.name == 'collector' else ''}name a new folder"
            raise InputError(f"{folder} holds data of its own in {NAME}; {way_out}.")
        self.connection = PostgresConnection(url, timeout)
        try:
            with self.connection.transaction():
                lock_all(self.connection)
                make_tables(self.connection, schema)
                self._ratchet = Ratchet(folder, self.connection, schema.name)
                self.keys = Keyring(self.connection, self._ratchet)
                self._ratchet.start()
                self.keys.rotate()
            self.keys.settle()
            if isinstance(clock, GuardedClock):
                self._start_clock(clock)
        except BaseException:
            self.connection.close()
            raise

    def _start_clock(self, clock: GuardedClock) -> None:
        """Refuse to start with a clock that differs from the database's: windows are shared."""
        # A clock that the database's confirms is trusted, however long the machine was off.
        last = read_moment(self.connection)
        if last is not None:
            clock.resume(last)
        _agreed_time(self.connection, clock.wall())
        if clock.is_held:
            clock.accept(settling=SETTLING)

    def _settle(self, *, scrub: bool) -> None:
        self.keys.settle()
        if scrub:  # the server's log is not: the data of open crowds in it are encrypted
            query = "SELECT pg_database_size(current_database())"
            (self._size,) = self.connection.execute(query).fetchone()

    def read(self, name: str, work: Callable[[], R]) -> R:
        with self._attempt(name), self.connection.transaction():
            self._begin(exclusive=False)
            return work()

    def _begin(self, exclusive: bool) -> None:
        """Wait for others, and adopt their key; a statement after the lock sees their commits."""
        if self._opened != self.connection.opened:
            self._opened = self.connection.opened
            self.plans.forget_all()
        self._is_exclusive = exclusive
        if exclusive:
            lock_all(self.connection)
        else:
            query = "SELECT pg_advisory_xact_lock_shared(?)"
            self.connection.execute(query, (_lock_number("all plans"),))
        self._ratchet.follow()

    def _write_versions(self) -> None:
        """Give the plans that may have changed a new version."""
        # It is random: two databases that part after a failover would count to the same number.
        drawn = self.plans.new_versions(lambda: int.from_bytes(SystemBits().draw(8)) >> 1)
        for plan_id, version in drawn.items():
            self.connection.execute("UPDATE plans SET version = ? WHERE id = ?", (version, plan_id))

    def lock_plan(self, plan_id: str) -> tuple[int, Any, int] | None:
        if not self._is_exclusive:
            query = "SELECT pg_advisory_xact_lock(?)"
            self.connection.execute(query, (_lock_number(plan_id),))
        row: tuple[int, Any, int] | None = self.connection.execute(
            "SELECT version, state, oldest_window FROM plans WHERE id = ?", (plan_id,)
        ).fetchone()
        return row

    def claim(self, name: str, *, in_transaction: bool = False) -> bool:
        """Claim a piece of work; the claim ends with its holder's connection, or with a commit."""
        query = f"SELECT pg_try_advisory_{'xact_' if in_transaction else ''}lock(?)"
        (is_free,) = self.connection.execute(query, (_lock_number(name),)).fetchone()
        return bool(is_free)

    def unclaim(self, name: str) -> None:
        self.connection.execute("SELECT pg_advisory_unlock(?)", (_lock_number(name),))

    def keep_up(self) -> None:
        self.read("keep up", lambda: None)
        self.keys.settle()

    def confirms(self, clock: GuardedClock) -> bool:
        return abs(clock() - _database_time(self.connection)) <= STEP

    @property
    def data_bytes(self) -> int:
        return self._size


def _database_time(connection: SqlConnection) -> float:
    query = "SELECT extract(epoch FROM clock_timestamp())::float8"
    (there,) = connection.execute(query).fetchone()
    return float(there)


def _agreed_time(connection: SqlConnection, here: float) -> float:
    """Return the later one of two times that agree; refuse others."""
    there = _database_time(connection)
    if abs(here - there) > STEP:
        raise InputError(
            f"the clock here and that of the database differ by more than {STEP:.0f} seconds;"
            " set both, for example with NTP."
        )
    return max(here, there)


def lock_all(connection: SqlConnection) -> None:
    """Make all other processes wait until the end of the transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(?)", (_lock_number("all plans"),))


def _lock_number(name: str) -> int:
    digest = hashlib.blake2b(name.encode(), digest_size=8, person=b"shoal lock").digest()
    return int.from_bytes(digest, signed=True)


def renew(
    folder: Path,
    url: str,
    schemas: Sequence[Schema] = (COLLECTOR,),
    *,
    clock: Callable[[], float] = time.time,
) -> Restoration:
    """Discard open crowds, close plans that could count a report twice, and draw a new key.

    For a database that was restored from a backup of the server, or whose key is lost. No service
    may run on it; the others need a copy of the new key. Windows count as begun that the clock of
    any of them may have shown, though it was ahead. `schemas` are those that the database may have.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data_lock(folder), closing(PostgresConnection(url)) as connection:
        with connection.transaction():
            lock_all(connection)
            schema = schema_in(connection, schemas)
            make_tables(connection, schema)
            schema.forget_crowds(connection)
            last = float(read_fact(connection, "time") or 0)
            now = max(_agreed_time(connection, clock()), last) + STEP
            restoration = begin_anew(connection, int(now))
            connection.execute("DELETE FROM generations")
            (folder / CROWD_KEY_FILE).unlink(missing_ok=True)
            ratchet = Ratchet(folder, connection, schema.name)
            ratchet.begin()
            # A key of the first generation would begin an empty database.
            Keyring(connection, ratchet).rotate()
        ratchet.settle()
    return restoration


@contextmanager
def trial_schema(url: str) -> Iterator[str]:
    """Yield the URL of a temporary schema in a database; it is dropped on exit."""
    from psycopg.conninfo import make_conninfo

    name = f"shoal_trial_{SystemBits().draw(8).hex()}"
    with closing(PostgresConnection(url)) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        try:
            yield make_conninfo(url, options=f"-csearch_path={name}")
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
