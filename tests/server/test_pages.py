"""The pages about the collector say what the code does."""

from __future__ import annotations

from tests.server.page_tables import PAGE, with_tables


def test_the_tables_are_the_codes():
    page = PAGE.read_text("utf-8")
    assert page == with_tables(page), "run python -m tests.server.page_tables"
