"""The relay's tables.

A crowd goes forward only: `open` while it takes reports, `frozen` when it has all of them,
`shuffled` when its chunks are stored, then `forwarded`; before that it may be `discarded`.
"""

from __future__ import annotations

from shoal.server.storage.schema import SHARED_BACKUP, SHARED_POSTGRES, SHARED_TABLES, Schema

ANALYZER_KEY = "analyzer"
"""The fact with the analyzer's key that was given, and the one that it led to, in base64url."""
DATA_NAME = "data"
"""The fact that is the random name of these data; the analyzer gives each crowd's key to one."""

_TABLES = """
-- Documents that the analyzer signed, passed on as they came. The list of its keys has no signature
-- of its own: its links are signed.
CREATE TABLE documents (
    name TEXT PRIMARY KEY, content BLOB NOT NULL, signature TEXT NOT NULL, signer TEXT NOT NULL
);

-- 'number' is the relay's own, 'place' is the number in the window, by which the analyzer knows it.
-- 'day' is when it was opened, and later when it was frozen. The document is the key of the crowd.
-- 'attempt' is which of the crowd's shuffles is forwarded, where several relays may shuffle it.
CREATE TABLE crowds (
    number INTEGER PRIMARY KEY, plan TEXT NOT NULL, window INTEGER NOT NULL,
    place INTEGER NOT NULL, state TEXT NOT NULL, day INTEGER NOT NULL, progress INTEGER,
    chunks INTEGER, document BLOB NOT NULL, signature TEXT NOT NULL, signer TEXT NOT NULL,
    attempt BLOB, UNIQUE (plan, window, place)
);

-- Rows of one length, encrypted under the crowd's key, more than are used: the message of one
-- report each, in random order. The id is the crowd's number and a place.
CREATE TABLE messages (id INTEGER PRIMARY KEY, content BLOB NOT NULL);

-- Crowds whose rows are still to be removed: their keys are gone, or the rows are in chunks.
CREATE TABLE leftovers (number INTEGER PRIMARY KEY);

-- Crowds that were discarded here and that the analyzer has not been told about yet.
CREATE TABLE untold (number INTEGER PRIMARY KEY);

-- Chunks of a crowd that the analyzer has signed for.
CREATE TABLE receipts (
    number INTEGER NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (number, chunk)
) WITHOUT ROWID;
"""

# The reports of a frozen crowd stay the same, and it is cut into chunks once. The key of a crowd
# stays, though the analyzer may sign it again.
_SQLITE_ONLY = """
CREATE TRIGGER crowds_go_forward BEFORE UPDATE ON crowds
WHEN old.plan <> new.plan OR old.window <> new.window OR old.place <> new.place
  OR old.number <> new.number OR old.document <> new.document OR NOT (
    old.state = 'open' AND new.state IN ('open', 'frozen', 'discarded')
    OR old.state = 'frozen' AND new.state IN ('shuffled', 'discarded')
    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'discarded')
        AND new.chunks = old.chunks
)
BEGIN SELECT RAISE(ABORT, 'a crowd goes forward only'); END;
CREATE TRIGGER crowds_are_not_removed BEFORE DELETE ON crowds
BEGIN SELECT RAISE(ABORT, 'a crowd is not removed'); END;
"""

_POSTGRES_ONLY = """
CREATE INDEX crowds_under_way ON crowds (plan) WHERE state IN ('open', 'frozen', 'shuffled');
-- How many reports an open crowd has, and how many rows were made for them, encrypted: several
-- relays write to it.
CREATE TABLE fills (number INTEGER PRIMARY KEY, content BLOB NOT NULL);
ALTER TABLE fills SET (fillfactor = 50);
ALTER TABLE fills ALTER content SET STORAGE PLAIN;
ALTER TABLE messages SET (fillfactor = 50);
ALTER TABLE messages ALTER content SET STORAGE EXTERNAL;
-- The chunks of every shuffle of a frozen crowd; of one that is shuffled, those of its attempt. Any
-- relay may forward them.
CREATE TABLE chunks (
    number INTEGER NOT NULL, attempt BLOB NOT NULL, chunk INTEGER NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (number, attempt, chunk)
);
ALTER TABLE chunks ALTER content SET STORAGE EXTERNAL;
"""

_FORWARD_ONLY = (
    """CREATE FUNCTION crowds_go_forward() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF tg_op = 'UPDATE' THEN
            IF new.plan = old.plan AND new.window = old.window AND new.place = old.place
                AND new.number = old.number AND new.document = old.document AND (
                    old.state = 'open' AND new.state IN ('open', 'frozen', 'discarded')
                    OR old.state = 'frozen' AND (
                        new.state = 'discarded' OR new.state = 'shuffled'
                        AND new.chunks IS NOT NULL AND new.attempt IS NOT NULL)
                    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'discarded')
                        AND new.chunks = old.chunks AND new.attempt = old.attempt)
            THEN RETURN new; END IF;
        END IF;
        RAISE EXCEPTION 'a crowd goes forward only';
    END $$""",
    """CREATE TRIGGER crowds_go_forward BEFORE UPDATE OR DELETE ON crowds
    FOR EACH ROW EXECUTE FUNCTION crowds_go_forward()""",
)

_UNDER_WAY = "state IN ('open', 'frozen', 'shuffled')"

RELAY = Schema(
    "relay",
    0x5368526C,
    SHARED_TABLES + _TABLES,
    _SQLITE_ONLY,
    SHARED_POSTGRES + _POSTGRES_ONLY,
    _FORWARD_ONLY,
    forget=(
        f"INSERT INTO leftovers SELECT number FROM crowds WHERE {_UNDER_WAY}"  # noqa: S608  fixed
        " ON CONFLICT DO NOTHING",
        f"INSERT INTO untold SELECT number FROM crowds WHERE {_UNDER_WAY} ON CONFLICT DO NOTHING",  # noqa: S608  fixed
        "UPDATE crowds SET state = 'discarded', progress = coalesce(progress, 0)"  # noqa: S608  fixed
        f" WHERE {_UNDER_WAY}",
        "DELETE FROM seen",
        "DELETE FROM wrapped_keys",
        "DELETE FROM receipts",
        # From here on these are other data: they get no key that was given to those before.
        f"DELETE FROM facts WHERE name = '{DATA_NAME}'",  # noqa: S608  fixed
    ),
    backup=SHARED_BACKUP
    | {
        "documents": "SELECT name, content, signature, signer FROM documents",
        "crowds": "SELECT number, plan, window, place, day, document, signature, signer,"
        " CASE state WHEN 'forwarded' THEN state ELSE 'discarded' END AS state,"
        " CASE state WHEN 'open' THEN 0 ELSE progress END AS progress,"
        " CASE state WHEN 'forwarded' THEN chunks END AS chunks FROM crowds",
        "untold": "SELECT number FROM crowds WHERE state <> 'forwarded'",
    },
)
