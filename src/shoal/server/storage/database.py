"""The collector's SQLite file: how it is opened, how it fails; `schema` has its tables.

Every commit is on the disk when it returns (write-ahead log, synchronous FULL), and what is deleted
is overwritten (secure_delete). Nothing in the file tells when or from where a report came, and what
it says of open crowds is encrypted (see `encryption`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from shoal.errors import InputError, ShoalError
from shoal.server.storage.schema import COLLECTOR, Schema, make_tables

__all__ = [
    "MOVED",
    "NAME",
    "DataInUse",
    "Database",
    "SharedDatabase",
    "StorageError",
    "StorageFull",
    "StorageTimeout",
    "data_lock",
    "open_database",
    "read_fact",
    "transaction",
    "write_fact",
]

NAME = "shoal.db"
MOVED = "moved"
"""What the data say when they have been moved to PostgreSQL."""

PATIENCE = 10
"""Seconds to wait for another process that writes."""

_USUAL_LOG = 16 << 20
LONGEST_LOG = 1 << 30
"""Bytes of the write-ahead log beyond which no reports are accepted. Every sweep empties it, unless
another process goes on reading an old state of the data."""


class Rows(Protocol):
    """What a statement returned."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return some rows, the next ones."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection to the data: SQLite's own, or what speaks to PostgreSQL in its words.

    Statements are written so that both understand them; ``?`` stands for a value.
    """

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each of several sequences of values."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...

    def interrupt(self) -> None:
        """End a statement that another thread waits for."""
        ...


@runtime_checkable
class SharedDatabase(Database, Protocol):
    """A database that other processes use at the same time, with transactions of its own."""

    def transaction(self) -> AbstractContextManager[None]:
        """Do everything inside, durably, or nothing of it."""
        ...


class StorageError(ShoalError):
    """The data could not be read or written now; nothing of what was asked has happened."""


class StorageFull(StorageError):  # noqa: N818  an error of storage, as the name of its base says
    """There is no space left for what was asked; nothing of it has happened."""


class StorageTimeout(StorageError):  # noqa: N818  as above
    """The data did not respond in time; it is unknown whether the work was done."""


class DataInUse(InputError):  # noqa: N818  it names the state
    """Another process holds the data."""


def open_database(
    path: Path, *, create: bool = True, schema: Schema = COLLECTOR
) -> sqlite3.Connection:
    """Open the file, make its tables or convert older ones, and check that it is whole.

    An older file is converted by whoever holds the data, in one transaction.
    """
    with storage_errors():
        if not create and not path.exists():
            raise InputError(f"there is no {schema.word} data at {path}.")
        # Before SQLite opens it: the write-ahead log is made with the mode of the database. One
        # that exists is not opened here, since closing it would let go of SQLite's locks.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with suppress(PermissionError):
            os.chmod(path, 0o600)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=PATIENCE
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA journal_size_limit = {_USUAL_LOG}")
            with transaction(connection):
                make_tables(connection, schema)
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if damage != "ok":
                raise StorageError(f"{path} is damaged: {damage}. Restore a backup.")
        except BaseException:
            connection.close()
            raise
    return connection


def log_size(folder: Path) -> int:
    """Return the bytes of the write-ahead log."""
    try:
        return (folder / f"{NAME}-wal").stat().st_size
    except OSError:
        return 0


def read_fact(database: Database, name: str) -> Any:
    """Return what the data say under a name, or None."""
    row = database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_fact(database: Database, name: str, value: float | str) -> None:
    """Let the data say something under a name, in a transaction.

    It is written as text; SQLite turns what looks like a number into one.
    """
    database.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, str(value)),
    )


@contextmanager
def transaction(database: Database) -> Iterator[None]:
    """Do everything inside, durably, or nothing of it."""
    if isinstance(database, SharedDatabase):
        with database.transaction():
            yield
        return
    connection = cast(sqlite3.Connection, database)
    with storage_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite rolls back by itself when the disk is full
                connection.execute("ROLLBACK")
            raise


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn SQLite's errors into two: no space, or not now."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StorageFull("no space is left for the collector's data.") from error
        raise StorageError(f"the collector's data cannot be used: {error}.") from error


@contextmanager
def data_lock(folder: Path, name: str = "lock") -> Iterator[None]:
    """Hold the data for one process; the lock goes with the process, however it ends.

    The lock file can be deleted by mistake, the database cannot. So a collector holds both; SQLite
    locks ranges of its file, which is another kind of lock and does not get in the way.
    """
    try:
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot write in {folder}: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise DataInUse(f"another collector is using {folder}.") from None
    try:
        yield
    finally:
        os.close(handle)
