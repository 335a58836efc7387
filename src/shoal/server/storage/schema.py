"""The tables of a collector and an analyzer, and how tables are made in SQLite and PostgreSQL.

Tables are written once, in SQLite's dialect; `Schema` translates them. What only one database needs
(triggers, storage parameters) is written for it. `docs/data-model.md` explains the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.errors import InputError
from shoal.server.storage.database import SqlConnection, read_fact, write_fact

VERSION = 3
"""The version of the tables. Data of another version are refused."""

SHARED_TABLES = """
-- 'key' names the key in the file crowd-key, 'signer' is the public signing key, 'restored' is when
-- the data lost their memory, 'role' is the service if not a collector, 'probe' is written to check
-- the disk; 'time', 'origin' and 'boot' are the last trusted time (see clock), 'origins' the web
-- pages that may send reports and 'public_plans' the plans whose releases are public (see records),
-- 'problem' is the one that was notified of last, 'schema' says whose data they are.
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO facts VALUES ('probe', '0');

-- Every change to a plan's data draws a new 'version' in a shared database, so that others see it.
CREATE TABLE plans (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, document BLOB NOT NULL, certificate BLOB,
    oldest_window INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0
);

-- 'expires' is the last day of a token, 'plans' a JSON list of the only plans it is for, 'key' the
-- public key that a relay signs with, 'used_day' the last day on which a person's token was used.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, role TEXT NOT NULL, digest BLOB NOT NULL, label TEXT NOT NULL,
    expires TEXT, plans TEXT, key TEXT, used_day INTEGER
);

-- Notices to be sent on a channel when they are 'due'; NULL if only its 'topic' is remembered, so
-- that there is no second one. Releases of which no notice was made yet (see notifications).
CREATE TABLE notices (
    id TEXT NOT NULL, channel TEXT NOT NULL, topic TEXT NOT NULL, document TEXT NOT NULL,
    made INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, due INTEGER,
    PRIMARY KEY (id, channel)
);
CREATE TABLE unannounced (
    plan TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (plan, number)
);

-- Keyed hashes of report ids in rows of one length, encrypted.
CREATE TABLE seen (
    plan TEXT NOT NULL, window INTEGER NOT NULL, place INTEGER NOT NULL, digests BLOB NOT NULL,
    PRIMARY KEY (plan, window, place)
);

-- The key of each open crowd and of each window, wrapped under the one in the file crowd-key.
CREATE TABLE wrapped_keys (
    plan TEXT NOT NULL, kind TEXT NOT NULL, number INTEGER NOT NULL, wrapped BLOB NOT NULL,
    PRIMARY KEY (plan, kind, number)
) WITHOUT ROWID;
"""
"""Tables of every service."""

# PostgreSQL overwrites nothing: an updated row is written anew, in the same page if it has room. So
# rows that change with every commit leave half of their page free. They are of one length and are
# not compressed: their length would reveal their content.
SHARED_POSTGRES = """
ALTER TABLE plans SET (fillfactor = 50);
ALTER TABLE seen SET (fillfactor = 50);
ALTER TABLE seen ALTER digests SET STORAGE PLAIN;
ALTER TABLE wrapped_keys SET (fillfactor = 50);
-- How the key of each generation follows from the one before, and its name (see ratchet).
CREATE TABLE generations (number INTEGER PRIMARY KEY, salt BLOB NOT NULL, name BLOB NOT NULL);
"""

_CROWDS = """
-- A release is the tally of a complete crowd, written once; 'unreadable' counts messages that an
-- analyzer could not read, 'reason' is why a crowd was discarded. The counts of an open crowd, and
-- how many reports it has, are in the table counts, encrypted.
CREATE TABLE crowds (
    plan TEXT NOT NULL, number INTEGER NOT NULL, window INTEGER NOT NULL, state TEXT NOT NULL,
    opened_day INTEGER NOT NULL, reports INTEGER NOT NULL, progress INTEGER, release BLOB,
    unreadable INTEGER, reason TEXT, PRIMARY KEY (plan, number)
);
CREATE INDEX open_crowds ON crowds (plan) WHERE state = 'open';

-- The signer and signature of each release, and of each plan's certificate (number 0).
CREATE TABLE signatures (
    plan TEXT NOT NULL, number INTEGER NOT NULL, signer TEXT NOT NULL, signature TEXT NOT NULL,
    PRIMARY KEY (plan, number)
) WITHOUT ROWID;

CREATE TABLE counts (
    plan TEXT NOT NULL, number INTEGER NOT NULL, part INTEGER NOT NULL, numbers BLOB NOT NULL,
    PRIMARY KEY (plan, number, part)
);

-- Actions of people at the console, to the minute.
CREATE TABLE actions (
    id INTEGER PRIMARY KEY, minute INTEGER NOT NULL, actor TEXT NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL
);
"""

_SQLITE_ONLY = """
CREATE TRIGGER releases_are_not_replaced BEFORE INSERT ON crowds
WHEN EXISTS (SELECT 1 FROM crowds WHERE plan = new.plan AND number = new.number)
BEGIN SELECT RAISE(ABORT, 'a released crowd is not replaced'); END;

-- At an analyzer, of each crowd that its relay has opened: the crowd's number there, the document
-- with its public key, and how many chunks it has, how many have come, with how many messages. The
-- private key is in wrapped_keys. 'relay' is the random name of the relay's data.
CREATE TABLE crowd_keys (
    plan TEXT NOT NULL, window INTEGER NOT NULL, crowd INTEGER NOT NULL,
    number INTEGER NOT NULL, document BLOB NOT NULL, chunks INTEGER,
    arrived INTEGER NOT NULL DEFAULT 0, messages INTEGER NOT NULL DEFAULT 0,
    relay TEXT NOT NULL, PRIMARY KEY (plan, window, crowd)
);

-- Which chunks have come, and their SHA-256; the chunks themselves are files.
CREATE TABLE chunks (
    plan TEXT NOT NULL, number INTEGER NOT NULL, chunk INTEGER NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (plan, number, chunk)
) WITHOUT ROWID;

-- Chunks that arrived and are damaged or missing on the disk.
CREATE TABLE damaged_chunks (
    plan TEXT NOT NULL, number INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY
    (plan, number, chunk)
) WITHOUT ROWID;
"""

_POSTGRES_ONLY = """
ALTER TABLE counts SET (fillfactor = 50);
ALTER TABLE counts ALTER numbers SET STORAGE PLAIN;
ALTER TABLE actions ALTER id ADD GENERATED BY DEFAULT AS IDENTITY;
"""


@dataclass(frozen=True)
class Guard:
    """A trigger: rows of a table change only as is allowed, and are not removed.

    The conditions are about the rows `old` and `new`; `shared` stands for whether several services
    share the data.
    """

    name: str
    table: str
    message: str
    allowed: str
    removable: str = "false"

    def statements(self, *, postgres: bool) -> Iterator[str]:
        allowed = self.allowed.format(shared=str(postgres).lower())
        if not postgres:
            refused = f"BEGIN SELECT RAISE(ABORT, '{self.message}'); END"
            on = f"ON {self.table} WHEN NOT coalesce"
            yield f"CREATE TRIGGER {self.name} BEFORE UPDATE {on}({allowed}, false) {refused}"
            yield (
                f"CREATE TRIGGER {self.name}_and_stay BEFORE DELETE {on}({self.removable}, false)"
                f" {refused}"
            )
            return
        yield f"""CREATE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF tg_op = 'UPDATE' THEN
                IF {allowed} THEN RETURN new; END IF;
            ELSIF {self.removable} THEN RETURN old;
            END IF;
            RAISE EXCEPTION '{self.message}';
        END $$"""
        yield (
            f"CREATE TRIGGER {self.name} BEFORE UPDATE OR DELETE ON {self.table}"
            f" FOR EACH ROW EXECUTE FUNCTION {self.name}()"
        )


_RELEASES_STAY = Guard(
    "releases_are_final",
    "crowds",
    "a released crowd does not change",
    # until its plan is closed and all that was collected is destroyed
    "old.state = 'open' OR new.state = 'destroyed' AND new.release IS NULL"
    " AND new.plan = old.plan AND new.number = old.number"
    " AND (SELECT state FROM plans WHERE id = old.plan) = 'closed'",
    removable="old.state = 'open'",
)


@dataclass(frozen=True)
class Schema:
    """The tables of a kind of service, as statements."""

    name: str
    application: int
    tables: str
    postgres: str
    guard: Guard
    forget: tuple[str, ...]
    backup: dict[str, str]
    sqlite: str = ""

    def statements(self, *, postgres: bool) -> Iterator[str]:
        if not postgres:
            yield from _statements(self.tables + self.sqlite)
            yield from self.guard.statements(postgres=False)
            return
        for statement in _statements(self.tables + self.postgres):
            statement = statement.replace(" WITHOUT ROWID", "")
            yield statement.replace("INTEGER", "BIGINT").replace("BLOB", "BYTEA")
        yield from self.guard.statements(postgres=True)

    def forget_crowds(self, connection: SqlConnection) -> None:
        """Discard all open crowds, in a transaction: they cannot be read any more."""
        for statement in self.forget:
            connection.execute(statement)


SHARED_BACKUP = {
    "plans": "SELECT id, state, document, certificate, oldest_window FROM plans",
    "tokens": "SELECT id, role, digest, label, expires, plans, key, used_day FROM tokens",
    # The batches that an analyst has stored: none of them is stored again.
    "facts": "SELECT name, value FROM facts WHERE name IN ('restored', 'role', 'origins',"
    " 'public_plans', 'analyzer') OR name LIKE 'collected %'",
}

COLLECTOR = Schema(
    "collector",
    0,
    SHARED_TABLES + _CROWDS,
    SHARED_POSTGRES + _POSTGRES_ONLY,
    _RELEASES_STAY,
    forget=(
        "UPDATE crowds SET state = 'discarded', reports = 0, progress = 0, reason = 'key'"
        " WHERE state = 'open'",
        "DELETE FROM counts",
        "DELETE FROM seen",
        "DELETE FROM wrapped_keys",
    ),
    backup=SHARED_BACKUP
    | {
        "crowds": "SELECT plan, number, window, opened_day, release, unreadable,"
        " CASE state WHEN 'open' THEN 'discarded' ELSE state END AS state,"
        " CASE state WHEN 'open' THEN 0 ELSE reports END AS reports,"
        " CASE state WHEN 'open' THEN 0 ELSE progress END AS progress,"
        " CASE state WHEN 'open' THEN 'restored' ELSE reason END AS reason FROM crowds",
        "signatures": "SELECT plan, number, signer, signature FROM signatures",
        "actions": "SELECT id, minute, actor, action, subject FROM actions",
    },
    sqlite=_SQLITE_ONLY,
)
ANALYZER = replace(
    COLLECTOR,
    forget=(
        *COLLECTOR.forget,
        "DELETE FROM crowd_keys",
        "DELETE FROM chunks",
        "DELETE FROM damaged_chunks",
    ),
)
"""An analyzer has a collector's tables; its role is a fact."""


def make_tables(connection: SqlConnection, schema: Schema | None) -> None:
    """Make the tables of new data, or check known ones, which may be any without a schema."""
    version = version_of(connection)
    if version == 0 and schema is not None:
        is_sqlite = isinstance(connection, sqlite3.Connection)
        for statement in schema.statements(postgres=not is_sqlite):
            connection.execute(statement)
        write_fact(connection, "schema", schema.name)
        if is_sqlite:
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute(f"PRAGMA application_id = {schema.application}")
        else:
            write_fact(connection, "version", VERSION)
        return
    if version < 0:
        raise InputError("this is a backup; restore it with shoal collector restore.")
    check_version(version)
    name = read_fact(connection, "schema")
    if schema is not None and name != schema.name:
        raise InputError(
            f"these are the data of a {name}, not of a {schema.name}; name another folder or"
            " database."
        )


def version_of(connection: SqlConnection) -> int:
    """Return the version of the data; 0 if there are none, negative for a backup."""
    if isinstance(connection, sqlite3.Connection):
        return int(connection.execute("PRAGMA user_version").fetchone()[0])
    (exists,) = connection.execute("SELECT to_regclass('facts') IS NOT NULL").fetchone()
    return int(read_fact(connection, "version") or 0) if exists else 0


def check_version(version: int) -> None:
    if version != VERSION:
        raise InputError(f"the {other_version(version)}; use the Shoal that wrote them.")


def other_version(version: int) -> str:
    """Return why data of another version are refused."""
    return f"data have version {version}; this Shoal reads version {VERSION} only"


def application_of(path: Path) -> int:
    """Return SQLite's number of the application that a file belongs to; 0 if it cannot be told."""
    # The file is not opened by SQLite, which might make files beside one that is not ours.
    try:
        with path.open("rb") as file:
            return int.from_bytes(file.read(72)[68:], "big")
    except OSError:
        return 0


def schema_name(connection: SqlConnection) -> str | None:
    """Return the name of the schema that data have; None if there are no data."""
    return read_fact(connection, "schema") if version_of(connection) else None


def schema_in(connection: SqlConnection, schemas: Iterable[Schema]) -> Schema:
    """Return the schema that data have; the first one if there are no data."""
    first, *others = schemas
    name = schema_name(connection)
    return next((one for one in others if one.name == name), first)


def copy_rows(source: SqlConnection, target: SqlConnection, table: str, query: str) -> None:
    """Copy the rows that a query returns into a table, some at a time."""
    cursor = source.execute(query)
    columns = [column[0] for column in cursor.description]
    marks = ", ".join("?" for _ in columns)
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608  names
    while rows := cursor.fetchmany(500):
        target.executemany(statement, rows)


def _statements(script: str) -> Iterator[str]:
    """Yield one statement at a time: `executescript` would commit before the first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
