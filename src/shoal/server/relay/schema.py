"""The relay's tables.

A crowd goes forward only: `open` while it takes reports, `frozen` when it has all of them,
`shuffled` when its chunks are on the disk, then `forwarded`; before that it may be `given up`.
"""

from __future__ import annotations

from shoal.server.storage.schema import SHARED_TABLES, Schema

__all__ = ["RELAY"]

_TABLES = """
-- Documents that the analyzer signed, passed on as they came. The list of its keys has no signature
-- of its own: its links are signed.
CREATE TABLE documents (
    name TEXT PRIMARY KEY,
    content BLOB NOT NULL,
    signature TEXT NOT NULL,
    signer TEXT NOT NULL
);

-- 'number' is the relay's own, 'place' is the number in the window, by which the analyzer knows it.
-- 'day' is when it was opened, and later when it was frozen. The document is the key of the crowd.
CREATE TABLE crowds (
    number INTEGER PRIMARY KEY,
    plan TEXT NOT NULL,
    window INTEGER NOT NULL,
    place INTEGER NOT NULL,
    state TEXT NOT NULL,
    day INTEGER NOT NULL,
    tenths INTEGER,
    chunks INTEGER,
    document BLOB NOT NULL,
    signature TEXT NOT NULL,
    signer TEXT NOT NULL,
    UNIQUE (plan, window, place)
);
-- Who is in a crowd that was frozen stays so, and it is cut into chunks once. The key of a crowd
-- stays, though the analyzer may sign it again.
CREATE TRIGGER crowds_go_forward BEFORE UPDATE ON crowds
WHEN old.plan <> new.plan OR old.window <> new.window OR old.place <> new.place
  OR old.number <> new.number OR old.document <> new.document OR NOT (
    old.state = 'open' AND new.state IN ('open', 'frozen', 'given up')
    OR old.state = 'frozen' AND new.state IN ('shuffled', 'given up')
    OR old.state = 'shuffled' AND new.state IN ('forwarded', 'given up')
        AND new.chunks = old.chunks
)
BEGIN SELECT RAISE(ABORT, 'a crowd goes forward only'); END;
CREATE TRIGGER crowds_are_not_removed BEFORE DELETE ON crowds
BEGIN SELECT RAISE(ABORT, 'a crowd is not removed'); END;

-- Rows of one length, encrypted under the crowd's key, more than are used: the messages of one
-- report each, in random order. The id is the crowd's number and a place.
CREATE TABLE messages (id INTEGER PRIMARY KEY, content BLOB NOT NULL);

-- Crowds whose rows are still to be removed: their keys are gone, or the rows are in chunks.
CREATE TABLE leftovers (number INTEGER PRIMARY KEY);

-- Chunks of a crowd that the analyzer has signed for.
CREATE TABLE receipts (
    number INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (number, chunk)
) WITHOUT ROWID;
"""

_UNTOLD = """
-- Crowds that were discarded here and that the analyzer has not been told about yet.
CREATE TABLE untold (number INTEGER PRIMARY KEY);
"""

RELAY = Schema("relay", 0x5368526C, SHARED_TABLES + _TABLES + _UNTOLD)
