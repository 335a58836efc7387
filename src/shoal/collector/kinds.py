"""Whose data a folder holds: a collector's or a relay's."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from shoal.collector.intake.database import COLLECTOR, NAME, Schema, application_of
from shoal.collector.relay.schema import RELAY

__all__ = ["schema_of", "schema_of_file"]


def schema_of(folder: Path) -> Schema:
    """Return the schema of a folder's data; a collector's where it cannot be told."""
    return schema_of_file(folder / NAME)


def schema_of_file(path: Path) -> Schema:
    """Return the schema of a database, or of a backup."""
    if path.is_file():
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database,
        ):
            if application_of(database) == RELAY.application:
                return RELAY
    return COLLECTOR
