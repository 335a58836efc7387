"""Whose data a database holds: those of collectors or of relays."""

from __future__ import annotations

from shoal.server.relay.postgres_schema import RELAY
from shoal.server.storage.database import Database
from shoal.server.storage.postgres.schema import COLLECTOR, SharedSchema, word_in

__all__ = ["schema_in"]


def schema_in(database: Database) -> SharedSchema:
    """Return the schema of a database; a collector's for one that is empty."""
    return RELAY if word_in(database) == RELAY.word else COLLECTOR
