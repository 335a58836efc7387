"""A place in a database to try something, beside what it holds, which is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from psycopg.conninfo import make_conninfo

from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.postgres.connection import PostgresDatabase

__all__ = ["trial_schema"]


@contextmanager
def trial_schema(url: str) -> Iterator[str]:
    """Make a schema of its own in a database; yield what connects to it, and remove it."""
    name = f"shoal_trial_{SystemBits().draw(8).hex()}"
    with closing(PostgresDatabase(url)) as database:
        database.execute(f"CREATE SCHEMA {name}")
        try:
            yield make_conninfo(url, options=f"-csearch_path={name}")
        finally:
            database.execute(f"DROP SCHEMA {name} CASCADE")
