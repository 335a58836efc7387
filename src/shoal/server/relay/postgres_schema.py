"""The relay's tables in PostgreSQL; a crowd goes forward as in a folder.

What differs from the tables of a folder: how many reports a crowd has is in a row of its own, since
several relays write to it, and chunks are rows, since any relay may forward them.
"""

from __future__ import annotations

from shoal.server.relay.frozen_crowds import forget_crowds
from shoal.server.storage.postgres.schema import SHARED_TABLES, SharedSchema

__all__ = ["RELAY"]

_TABLES = (
    """CREATE TABLE documents (
        name TEXT PRIMARY KEY,
        content BYTEA NOT NULL,
        signature TEXT NOT NULL,
        signer TEXT NOT NULL
    )""",
    # 'attempt' is which of the crowd's shuffles is forwarded.
    """CREATE TABLE crowds (
        number BIGINT PRIMARY KEY,
        plan TEXT NOT NULL,
        window BIGINT NOT NULL,
        place BIGINT NOT NULL,
        state TEXT NOT NULL,
        day BIGINT NOT NULL,
        tenths BIGINT,
        chunks BIGINT,
        document BYTEA NOT NULL,
        signature TEXT NOT NULL,
        signer TEXT NOT NULL,
        attempt BYTEA,
        UNIQUE (plan, window, place)
    )""",
    "CREATE INDEX crowds_under_way ON crowds (plan) WHERE state IN ('open', 'frozen', 'shuffled')",
    # Who is in a crowd that was frozen stays so, and it is cut into chunks once. The key of a crowd
    # stays, though the analyzer may sign it again.
    """CREATE FUNCTION crowds_go_forward() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF tg_op = 'UPDATE' THEN
            IF new.plan = old.plan AND new.window = old.window AND new.place = old.place
                AND new.number = old.number AND new.document = old.document AND (
                    old.state = 'open' AND new.state IN ('open', 'frozen', 'given up')
                    OR old.state = 'frozen' AND (
                        new.state = 'given up' OR new.state = 'shuffled'
                        AND new.chunks IS NOT NULL AND new.attempt IS NOT NULL)
                    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'given up')
                        AND new.chunks = old.chunks AND new.attempt = old.attempt)
            THEN RETURN new; END IF;
        END IF;
        RAISE EXCEPTION 'a crowd goes forward only';
    END $$""",
    """CREATE TRIGGER crowds_go_forward BEFORE UPDATE OR DELETE ON crowds
    FOR EACH ROW EXECUTE FUNCTION crowds_go_forward()""",
    # How many reports an open crowd has, and how many rows were made for them, encrypted.
    """CREATE TABLE fills (number BIGINT PRIMARY KEY, content BYTEA NOT NULL)
    WITH (fillfactor = 50)""",
    "ALTER TABLE fills ALTER content SET STORAGE PLAIN",
    "CREATE TABLE messages (id BIGINT PRIMARY KEY, content BYTEA NOT NULL) WITH (fillfactor = 50)",
    "ALTER TABLE messages ALTER content SET STORAGE EXTERNAL",
    "CREATE TABLE leftovers (number BIGINT PRIMARY KEY)",
    # Crowds that were discarded here and that the analyzer has not been told about yet.
    "CREATE TABLE untold (number BIGINT PRIMARY KEY)",
    # The chunks of every shuffle of a frozen crowd; of one that is shuffled, those of its attempt.
    """CREATE TABLE chunks (
        number BIGINT NOT NULL,
        attempt BYTEA NOT NULL,
        chunk BIGINT NOT NULL,
        content BYTEA NOT NULL,
        PRIMARY KEY (number, attempt, chunk)
    )""",
    "ALTER TABLE chunks ALTER content SET STORAGE EXTERNAL",
    """CREATE TABLE receipts (
        number BIGINT NOT NULL,
        chunk BIGINT NOT NULL,
        PRIMARY KEY (number, chunk)
    )""",
)

RELAY = SharedSchema("relay", SHARED_TABLES + _TABLES, {}, forget_crowds)
