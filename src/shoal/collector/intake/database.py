"""The collector's SQLite file: how it is opened, what it holds, how it fails.

Every commit is on the disk when it returns (write-ahead log, synchronous FULL), and what is deleted
is overwritten (secure_delete). Nothing in the file tells when or from where a report came, and what
it says of open crowds is encrypted (see `encryption`).
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError, ShoalError

__all__ = [
    "COLLECTOR",
    "NAME",
    "SHARED_TABLES",
    "DataInUse",
    "Schema",
    "StorageError",
    "StorageFull",
    "data_lock",
    "open_database",
    "other_version",
    "transaction",
]

NAME = "shoal.db"
VERSION = 5
"""What is stored changes with it. Data of another version are refused, not converted."""

PATIENCE = 10
"""Seconds to wait for another process that writes."""

_USUAL_LOG = 16 << 20
LONGEST_LOG = 1 << 30
"""Bytes of the write-ahead log beyond which no reports are accepted. Every sweep empties it, unless
another process goes on reading an old state of the data."""

SHARED_TABLES = """
-- 'key' names the key in the file crowd-key, 'signer' is the public signing key, 'restored' is when
-- the data lost their memory; 'role' says whose data they are, if not a collector's; 'probe' is
-- written to see that it can be; 'time', 'origin' and 'boot' are the last time that was believed
-- (see `clock`).
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO facts VALUES ('probe', 0);

CREATE TABLE plans (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    document BLOB NOT NULL,
    certificate BLOB,
    oldest_window INTEGER NOT NULL DEFAULT 0
);

-- 'expires' is the last day of a token, 'plans' a JSON list of the only plans it is for, 'key' the
-- public key that a relay signs with, 'used_day' the last day on which a person's token was used.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    digest BLOB NOT NULL,
    label TEXT NOT NULL,
    expires TEXT,
    plans TEXT,
    key TEXT,
    used_day INTEGER
);

-- Keyed hashes of report ids in rows of one length, encrypted.
CREATE TABLE seen (
    id INTEGER PRIMARY KEY,
    plan TEXT NOT NULL,
    window INTEGER NOT NULL,
    place INTEGER NOT NULL,
    digests BLOB NOT NULL
);
CREATE INDEX seen_by_window ON seen (plan, window, place);

-- Of each open crowd and of each window: its key, wrapped under the one in the file crowd-key.
CREATE TABLE wrapped_keys (
    plan TEXT NOT NULL,
    kind TEXT NOT NULL,
    number INTEGER NOT NULL,
    wrapped BLOB NOT NULL,
    PRIMARY KEY (plan, kind, number)
) WITHOUT ROWID;
"""
"""What collectors and relays both keep."""

_TABLES = """
-- A release is the tally of a sealed crowd, written once; 'unreadable' is how many of its messages
-- an analyzer could not read, 'reason' why a crowd was given up. The counts of an open crowd, and
-- how many reports it has, are in the table of that name, encrypted.
CREATE TABLE crowds (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    window INTEGER NOT NULL,
    state TEXT NOT NULL,
    opened_day INTEGER NOT NULL,
    reports INTEGER NOT NULL,
    tenths INTEGER,
    release BLOB,
    unreadable INTEGER,
    reason TEXT,
    PRIMARY KEY (plan, number)
);
-- A sealed crowd does not change, until its plan is closed and all that was collected destroyed.
CREATE TRIGGER what_is_sealed_stays BEFORE UPDATE ON crowds
WHEN old.state <> 'open' AND NOT (
    new.state = 'destroyed' AND new.release IS NULL
    AND new.plan = old.plan AND new.number = old.number
    AND (SELECT state FROM plans WHERE id = old.plan) = 'closed'
)
BEGIN SELECT RAISE(ABORT, 'a sealed crowd does not change'); END;
CREATE TRIGGER what_is_sealed_is_not_removed BEFORE DELETE ON crowds
WHEN old.state <> 'open'
BEGIN SELECT RAISE(ABORT, 'a sealed crowd does not go'); END;
CREATE TRIGGER what_is_sealed_is_not_replaced BEFORE INSERT ON crowds
WHEN EXISTS (SELECT 1 FROM crowds WHERE plan = new.plan AND number = new.number)
BEGIN SELECT RAISE(ABORT, 'a sealed crowd is not replaced'); END;

CREATE TABLE counts (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    part INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    PRIMARY KEY (plan, number, part)
);

-- What people did at the console, to the minute.
CREATE TABLE actions (
    id INTEGER PRIMARY KEY,
    minute INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL
);

-- At an analyzer, of each crowd that its relay has opened: the crowd's number there, the document
-- with its public key, and how many chunks it has, how many have come, with how many messages. The
-- private key is in wrapped_keys.
CREATE TABLE sealing_keys (
    plan TEXT NOT NULL,
    window INTEGER NOT NULL,
    crowd INTEGER NOT NULL,
    number INTEGER NOT NULL,
    document BLOB NOT NULL,
    chunks INTEGER,
    arrived INTEGER NOT NULL DEFAULT 0,
    messages INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (plan, window, crowd)
);

-- Which chunks have come, and their SHA-256; the chunks themselves are files.
CREATE TABLE chunks (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (plan, number, chunk)
) WITHOUT ROWID;
"""


class Schema(NamedTuple):
    """Whose tables a file has: the word for it, SQLite's number for that, and the tables."""

    word: str
    application: int
    tables: str


COLLECTOR = Schema("collector", 0, SHARED_TABLES + _TABLES)


class StorageError(ShoalError):
    """The data could not be read or written now; nothing of what was asked has happened."""


class StorageFull(StorageError):  # noqa: N818  an error of storage, as the name of its base says
    """There is no space left for what was asked; nothing of it has happened."""


class DataInUse(InputError):  # noqa: N818  it names the state
    """Another process holds the data."""


def open_database(
    path: Path, *, create: bool = True, schema: Schema = COLLECTOR
) -> sqlite3.Connection:
    """Open the file, make its tables if it is new, and check that it is whole."""
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
            _make_tables(connection, schema)
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


def _make_tables(connection: sqlite3.Connection, schema: Schema) -> None:
    with transaction(connection):
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _statements(schema.tables):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute(f"PRAGMA application_id = {schema.application}")
        elif application_of(connection) != schema.application:
            raise InputError(f"these are not the data of a {schema.word}; name another folder.")
        elif version < 0:
            raise InputError("this is a backup; restore it with shoal collector restore.")
        elif version != VERSION:
            raise InputError("the {}; {}.".format(*other_version(version)))


def other_version(version: int) -> tuple[str, str]:
    """Say that data of another version are not read, and what to do.

    Examples
    --------
    >>> other_version(99)[1]
    'use the Shoal that wrote them, or a newer one'
    """
    sentence = f"data have version {version}; this Shoal reads version {VERSION} only"
    if version > VERSION:
        return sentence, "use the Shoal that wrote them, or a newer one"
    return sentence, (
        "save their releases with the Shoal that wrote them, then start the collector in an empty"
        " folder and publish its plans anew"
    )


def application_of(connection: sqlite3.Connection) -> int:
    """Return the number that tells whose data a file holds."""
    return int(connection.execute("PRAGMA application_id").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """Yield one statement at a time, since `executescript` would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do everything inside, durably, or nothing of it."""
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
