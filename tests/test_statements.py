"""The table of statements: each has a status and a test that exists, and none is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from shoal.analysis.intervals import IntervalKind
from shoal.planning.guarantees import HoldsFor
from shoal.planning.plan_diff import DiffKind
from shoal.protocol.plan import PROMISES
from shoal.theory.proven import Method
from tests.adversary.kinds import KINDS
from tests.adversary.test_mutants import MUTANTS

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "statements.md").read_text("utf-8")
STATUSES = ("theorem", "conjecture", "observed", "no statement", "as the rows above")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## The adversary")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| statement |")
]


@cache
def names_in(path: Path) -> frozenset[str]:
    """The names of the tests of a file, with their classes."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        before = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {before + one.name for one in members if isinstance(one, ast.FunctionDef)}
    return frozenset(name for name in found if name.rpartition("::")[2].startswith("test_"))


def test_there_are_statements():
    assert len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_statement_has_a_status_and_tests_that_exist(row):
    assert len(row) == 4, row
    _, status, _, noticed = row
    assert status.startswith(STATUSES), status
    names = re.findall(r"`([^`]+)`", noticed)
    assert names, "a statement needs a test"
    for name in names:
        if kind := re.fullmatch(r"adversary\[(.+)\]", name):
            assert kind[1] in KINDS
        else:
            path, _, test = name.partition("::")
            assert test in names_in(TESTS / path), name


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_the_adversary_watches_over_a_statement(kind):
    assert f"`adversary[{kind}]`" in PAGE


@pytest.mark.parametrize(
    "word",
    [word for kind in (DiffKind, HoldsFor, IntervalKind, Method) for word in get_args(kind)],
)
def test_each_kind_of_statement_is_on_the_page(word):
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("kind", PROMISES)
def test_each_promise_is_on_the_page(kind):
    assert f"`{kind}: epsilon E" in PAGE


def test_the_mutants_are_counted():
    assert f"<!-- mutants -->{len(MUTANTS)}<!-- -->" in PAGE
