"""The threat model: each attack has an answer, and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_statements import TESTS, names_in

PAGE = (TESTS.parent / "docs" / "threats.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| attack |")
]


def test_there_are_attacks():
    assert len(ROWS) > 25


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_each_attack_has_tests_that_exist(row: list[str]) -> None:
    attack, happens, held_off = row
    assert attack
    assert happens
    names = re.findall(r"`([^`]+)`", held_off)
    assert names, "an attack needs a test"
    for name in names:
        path, _, test = name.partition("::")
        assert test in names_in(TESTS / Path(path)), name
