"""A service's data in one SQLite file: how it is opened, how it commits, how it is scrubbed.

Every commit is on the disk when it returns (write-ahead log, synchronous FULL), and deleted data
are overwritten (secure_delete). Data about open crowds are encrypted (see `encryption`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shoal.errors import InputError
from shoal.server.core.clock import GuardedClock, read_moment
from shoal.server.storage.database import (
    NAME,
    Database,
    StorageError,
    read_fact,
    storage_errors,
    transaction,
)
from shoal.server.storage.encryption import FileKey, Keyring, generation_without_log
from shoal.server.storage.recovery import begin_anew
from shoal.server.storage.schema import COLLECTOR, Schema, make_tables

MOVED = "moved"
"""The fact that the data have been moved to PostgreSQL."""

PATIENCE = 10
"""Seconds to wait for another process that writes."""

_USUAL_LOG = 16 << 20
LONGEST_LOG = 1 << 30
"""Bytes of the write-ahead log beyond which no reports are accepted. Every sweep empties it, unless
another process goes on reading an old state of the data."""


def open_data(
    folder: Path,
    schema: Schema,
    clock: Callable[[], float],
    *,
    url: str = "",
    timeout: float = 10.0,
) -> Database:
    """Open a service's data: in its folder, or in the PostgreSQL database at a URL.

    The folder has the keys in any case. The connection to a server that does not respond within
    `timeout` seconds is closed.
    """
    if not url:
        return SqliteDatabase(folder, schema, clock)
    from shoal.server.storage.postgres import PostgresDatabase  # an extra: not always there

    return PostgresDatabase(folder, url, schema, clock, timeout=timeout)


class SqliteDatabase(Database):
    """The data in a folder, for one process."""

    connection: sqlite3.Connection

    def __init__(self, folder: Path, schema: Schema, clock: Callable[[], float]) -> None:
        self.folder = folder
        with storage_errors():
            without_log = generation_without_log(folder / NAME)
        self.connection = open_database(folder / NAME, schema=schema)
        try:
            self._start(schema, clock, without_log)
        except BaseException:
            self.connection.close()
            raise

    def _start(self, schema: Schema, clock: Callable[[], float], without_log: bytes | None) -> None:
        """Check that the key fits the data; without it, discard data that only it could read."""
        with storage_errors():
            if read_fact(self.connection, MOVED) is not None:
                raise InputError(
                    f"the data in {self.folder} were moved to PostgreSQL, and would count"
                    " reports again; serve the database, or name another folder."
                )
            root = FileKey(self.folder, self.connection)
            self.keys = Keyring(self.connection, root)
            root.check(without_log)
            last = read_moment(self.connection)
            if isinstance(clock, GuardedClock) and last is not None:
                clock.resume(last)
            is_new = root.is_new or root.is_lost
        if is_new:
            with transaction(self.connection):
                if root.is_lost:
                    schema.forget_crowds(self.connection)
                    self.begun_anew = begin_anew(self.connection, int(clock()))
                self.keys.rotate()
        self._settle(scrub=is_new)

    def _settle(self, *, scrub: bool) -> None:
        log_is_empty = scrub and self._empty_log()
        with storage_errors():
            self.keys.settle(log_is_empty=log_is_empty)

    def _empty_log(self) -> bool:
        """Empty the write-ahead log of deleted data; return whether that was possible."""
        # It is not while another connection reads, for example a backup. Reports do not wait for
        # it: the next sweep tries again.
        with storage_errors():
            self.connection.execute("PRAGMA busy_timeout = 0")
            try:
                (busy, *_), *_ = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                return not busy
            finally:
                self.connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")

    @property
    def data_bytes(self) -> int:
        return (self.folder / NAME).stat().st_size + log_size(self.folder)


def open_database(
    path: Path, *, create: bool = True, schema: Schema | None = COLLECTOR
) -> sqlite3.Connection:
    """Open a file, make its tables if it is new, and check it; any service's without schema."""
    with storage_errors():
        if not create and not path.exists():
            raise InputError(f"there is no {schema.name if schema else 'service'} data at {path}.")
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
    try:
        return (folder / f"{NAME}-wal").stat().st_size
    except OSError:
        return 0
