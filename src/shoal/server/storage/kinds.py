"""Whose data a file holds: a collector's or a relay's."""

from __future__ import annotations

from pathlib import Path

from shoal.server.relay.schema import RELAY
from shoal.server.storage.schema import COLLECTOR, Schema

__all__ = ["schema_of"]

_PLACE = slice(68, 72)
"""Where SQLite's file format has the number of the application."""


def schema_of(database: Path) -> Schema:
    """Return the schema of a file of data; a collector's where it cannot be told.

    The file is read and not opened by SQLite, which might make files beside one that is not ours.
    """
    try:
        with database.open("rb") as file:
            head = file.read(_PLACE.stop)
    except OSError:
        return COLLECTOR
    return RELAY if int.from_bytes(head[_PLACE], "big") == RELAY.application else COLLECTOR
