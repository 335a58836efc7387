"""The pages about the collector say what the code does."""

from __future__ import annotations

import re

from shoal.server.core.tokens import ROLES
from shoal.server.storage.records import STATES
from tests.server.page_tables import PAGE, with_tables


def first_column(heading: str) -> list[str]:
    """The first column of the first table under a heading."""
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")
    assert found
    rows = re.findall(r"^\| ([^|]+) \|", rest.partition("\n## ")[0], re.M)
    return rows[1:]


def test_the_tables_are_the_codes():
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "run python -m tests.server.page_tables"


def test_every_state_is_told():
    assert first_column("Life of a plan") == list(STATES)


def test_every_role_is_told():
    assert first_column("Tokens and roles") == list(ROLES)
