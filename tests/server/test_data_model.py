"""The page on the data model names every table and column, and no other."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shoal.server.aggregation.store import AGGREGATOR
from shoal.server.relay.store import RELAY
from shoal.server.storage.schema import COLLECTOR, Schema

PAGE = Path(__file__).parents[2] / "docs" / "data-model.md"
Tables = dict[str, list[str]]


def documented(*sections: str) -> Tables:
    """Return the columns of each table in some sections of the page."""
    found: Tables = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:] if title in sections else []:
            name = part.split("`")[1]
            found[name] = found.get(name, []) + re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
    return found


def made(schema: Schema) -> Tables:
    """Return the columns of each table that a schema makes, in SQLite or PostgreSQL."""
    found: Tables = {}
    for postgres in (False, True):
        with closing(sqlite3.connect(":memory:")) as connection:
            for statement in schema.statements(postgres=postgres):
                if "CREATE TABLE" in statement:
                    connection.execute(statement)
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            for (name,) in tables.fetchall():
                rows = connection.execute(f"PRAGMA table_info({name})")
                found[name] = [column for _, column, *_ in rows]
    return found


@pytest.mark.parametrize(
    ("schema", "sections"),
    [
        (COLLECTOR, ("Every service", "Collector and analyzer", "Analyzer only")),
        (RELAY, ("Every service", "Relay")),
        (AGGREGATOR, ("Every service", "Leader and helper")),
    ],
    ids=["collector", "relay", "aggregator"],
)
def test_every_table_and_column_is_documented(schema: Schema, sections: tuple[str, ...]) -> None:
    assert documented(*sections) == made(schema)
    assert len(made(schema)) > 10
