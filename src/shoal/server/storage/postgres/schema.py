"""The tables in PostgreSQL, their version, and the steps from one version to the next.

A database holds the data of collectors or of relays, and says of which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shoal.errors import InputError
from shoal.server.storage.database import Database, read_fact, write_fact
from shoal.server.storage.recovery import forget_crowds

__all__ = ["COLLECTOR", "SHARED_TABLES", "VERSION", "SharedSchema", "make_tables"]

VERSION = 2
"""The version of the tables. Data of another version are refused, unless `steps` lead here."""

# The server overwrites nothing: an updated row is written anew, in the same page if it has room.
# So rows that change with every commit leave half of their page free. They are of one length and
# are not compressed: their length would tell what is in them.
SHARED_TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # 'version' is drawn anew by whoever changes what belongs to a plan, so that others see it.
    """CREATE TABLE plans (
        id TEXT PRIMARY KEY,
        state TEXT NOT NULL,
        document BYTEA NOT NULL,
        certificate BYTEA,
        oldest_window BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50)""",
    """CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        role TEXT NOT NULL,
        digest BYTEA NOT NULL,
        label TEXT NOT NULL,
        expires TEXT,
        plans TEXT,
        key TEXT,
        used_day BIGINT
    )""",
    """CREATE TABLE seen (
        plan TEXT NOT NULL,
        window BIGINT NOT NULL,
        place BIGINT NOT NULL,
        digests BYTEA NOT NULL,
        PRIMARY KEY (plan, window, place)
    ) WITH (fillfactor = 50)""",
    "ALTER TABLE seen ALTER digests SET STORAGE PLAIN",
    """CREATE TABLE wrapped_keys (
        plan TEXT NOT NULL,
        kind TEXT NOT NULL,
        number BIGINT NOT NULL,
        wrapped BYTEA NOT NULL,
        PRIMARY KEY (plan, kind, number)
    ) WITH (fillfactor = 50)""",
    # How the key of each generation follows from the one before, and its name; see `ratchet`.
    """CREATE TABLE generations (
        number BIGINT PRIMARY KEY,
        salt BYTEA NOT NULL,
        name BYTEA NOT NULL
    )""",
)
"""What collectors and relays both keep."""

_CROWDS = (
    """CREATE TABLE crowds (
        plan TEXT NOT NULL,
        number BIGINT NOT NULL,
        window BIGINT NOT NULL,
        state TEXT NOT NULL,
        opened_day BIGINT NOT NULL,
        reports BIGINT NOT NULL,
        tenths BIGINT,
        release BYTEA,
        unreadable BIGINT,
        reason TEXT,
        PRIMARY KEY (plan, number)
    )""",
    # A sealed crowd does not change, until its plan is closed and all that was collected destroyed.
    """CREATE FUNCTION what_is_sealed_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF old.state <> 'open' THEN
            IF tg_op = 'UPDATE' THEN
                IF new.state = 'destroyed' AND new.release IS NULL AND new.plan = old.plan
                    AND new.number = old.number
                    AND (SELECT state FROM plans WHERE id = old.plan) = 'closed'
                THEN RETURN new; END IF;
            END IF;
            RAISE EXCEPTION 'a sealed crowd does not change';
        END IF;
        RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
    END $$""",
    """CREATE TRIGGER what_is_sealed_stays BEFORE UPDATE OR DELETE ON crowds
    FOR EACH ROW EXECUTE FUNCTION what_is_sealed_stays()""",
    """CREATE TABLE signatures (
        plan TEXT NOT NULL,
        number BIGINT NOT NULL,
        signer TEXT NOT NULL,
        signature TEXT NOT NULL,
        PRIMARY KEY (plan, number)
    )""",
    """CREATE TABLE counts (
        plan TEXT NOT NULL,
        number BIGINT NOT NULL,
        part BIGINT NOT NULL,
        numbers BYTEA NOT NULL,
        PRIMARY KEY (plan, number, part)
    ) WITH (fillfactor = 50)""",
    "ALTER TABLE counts ALTER numbers SET STORAGE PLAIN",
    """CREATE TABLE actions (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        minute BIGINT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL
    )""",
)


class SharedSchema(NamedTuple):
    """Whose tables a database has: the word for it, its tables, and the steps between versions.

    `steps` has the statements that lead from a version to the next. `forget` gives up all crowds
    that cannot be read any more.
    """

    word: str
    tables: tuple[str, ...]
    steps: dict[int, tuple[str, ...]]
    forget: Callable[[Database], None]


COLLECTOR = SharedSchema("collector", SHARED_TABLES + _CROWDS, {}, forget_crowds)


def word_in(database: Database) -> str | None:
    """Return whose data a database holds, "collector" or "relay"; None if it is empty."""
    (exists,) = database.execute("SELECT to_regclass('facts') IS NOT NULL").fetchone()
    return (read_fact(database, "kind") or COLLECTOR.word) if exists else None


def make_tables(database: Database, schema: SharedSchema) -> None:
    """Make the tables if there are none, or bring older ones to this version, in a transaction."""
    word = word_in(database)
    if word is None:
        for statement in schema.tables:
            database.execute(statement)
        write_fact(database, "version", VERSION)
        write_fact(database, "probe", 0)
        write_fact(database, "kind", schema.word)
        return
    if word != schema.word:
        raise InputError(
            f"the database holds the data of a {word}, not of a {schema.word}; name another one."
        )
    version = int(read_fact(database, "version") or 0)
    if version > VERSION:
        raise InputError(
            f"the database has version {version}; this Shoal reads version {VERSION}. Use the Shoal"
            " that wrote it, or a newer one."
        )
    for step in range(version, VERSION):
        if step not in schema.steps:
            raise InputError(
                f"the database has version {version}, which this Shoal cannot convert; name an"
                " empty database."
            )
        for statement in schema.steps[step]:
            database.execute(statement)
    write_fact(database, "version", VERSION)
