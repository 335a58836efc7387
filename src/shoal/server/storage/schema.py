"""The tables of collectors and relays in SQLite, and their version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from shoal.errors import InputError

__all__ = [
    "COLLECTOR",
    "SHARED_TABLES",
    "VERSION",
    "Schema",
    "check_version",
    "make_tables",
    "other_version",
]

VERSION = 6
"""What is stored changes with it. Data of another version are refused."""

SHARED_TABLES = """
-- 'key' names the key in the file crowd-key, 'signer' is the public signing key, 'restored' is when
-- the data lost their memory; 'role' says whose data they are, if not a collector's; 'probe' is
-- written to see that it can be; 'time', 'origin' and 'boot' are the last time that was believed
-- (see `clock`); 'origins' are those of web pages (see `records`).
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

_CROWDS = """
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

-- The signer and signature of each release, and of each plan's certificate (number 0).
CREATE TABLE signatures (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    signer TEXT NOT NULL,
    signature TEXT NOT NULL,
    PRIMARY KEY (plan, number)
) WITHOUT ROWID;

CREATE TABLE counts (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    part INTEGER NOT NULL,
    numbers BLOB NOT NULL,
    PRIMARY KEY (plan, number, part)
);
"""

_ACTIONS = """
-- What people did at the console, to the minute.
CREATE TABLE actions (
    id INTEGER PRIMARY KEY,
    minute INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL
);
"""

_SEALING = """
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
    -- The relay data folder that the crowd belongs to, by its random name.
    relay TEXT NOT NULL,
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

_DAMAGE = """
-- Chunks that arrived and are damaged or missing on the disk.
CREATE TABLE damaged_chunks (
    plan TEXT NOT NULL,
    number INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (plan, number, chunk)
) WITHOUT ROWID;
"""


class Schema(NamedTuple):
    """Whose tables a file has: the word for it, SQLite's number for that, and the tables."""

    word: str
    application: int
    tables: str


COLLECTOR = Schema("collector", 0, SHARED_TABLES + _CROWDS + _ACTIONS + _SEALING + _DAMAGE)


def make_tables(connection: sqlite3.Connection, schema: Schema) -> None:
    """Make the tables of a new file, or check the version of a known one, in a transaction."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        _run(connection, schema.tables)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {schema.application}")
        return
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != schema.application:
        raise InputError(f"these are not the data of a {schema.word}; name another folder.")
    if version < 0:
        raise InputError("this is a backup; restore it with shoal collector restore.")
    check_version(version)


def check_version(version: int) -> None:
    """Refuse data of another version."""
    if version != VERSION:
        raise InputError("the {}; {}.".format(*other_version(version)))


def other_version(version: int) -> tuple[str, str]:
    """Return the sentence that refuses data of another version, and the advice.

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


def _run(connection: sqlite3.Connection, script: str) -> None:
    """Run one statement at a time, since `executescript` would commit before the first."""
    for statement in _statements(script):
        connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
