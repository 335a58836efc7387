"""Begins anew with a database that was restored from a backup, or whose key is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from shoal.server.core.clock import STEP
from shoal.server.storage.database import data_lock, read_fact
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.postgres.connection import PostgresDatabase
from shoal.server.storage.postgres.kinds import schema_in
from shoal.server.storage.postgres.ratchet import Ratchet
from shoal.server.storage.postgres.schema import make_tables
from shoal.server.storage.postgres.shared import lock_all, time_of_both
from shoal.server.storage.recovery import Restoration, begin_anew

__all__ = ["renew"]


def renew(folder: Path, url: str, *, clock: Callable[[], float] = time.time) -> Restoration:
    """Give up open crowds, close what could count a report twice, and draw a new key.

    For a database that was restored from a backup of the server, or whose key is lost. No collector
    or relay may run on it; the others need a copy of the new key. Windows count as begun that any
    collector's clock may have shown, though it was ahead.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data_lock(folder), closing(PostgresDatabase(url)) as database:
        with database.transaction():
            lock_all(database)
            schema = schema_in(database)
            make_tables(database, schema)
            schema.forget(database)
            last = float(read_fact(database, "time") or 0)
            now = max(time_of_both(database, clock()), last) + STEP
            restoration = begin_anew(database, int(now))
            database.execute("DELETE FROM generations")
            (folder / CROWD_KEY_FILE).unlink(missing_ok=True)
            keys = Ratchet(folder, database, schema.word)
            keys.begin()
            keys.rotate()  # a key of the first generation would begin an empty database
        keys.settle()
    return restoration
