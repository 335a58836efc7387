"""The tables of statements and threats: each row has tests that exist, and no kind is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

from shoal.analysis.intervals import IntervalKind
from shoal.planning.guarantees import HoldsFor
from shoal.planning.plan_diff import DiffKind
from shoal.protocol.plan import PROMISES
from shoal.theory.proven import Method
from tests.adversary.kinds import KINDS
from tests.doc_pages import ROOT

STATEMENTS = (ROOT / "docs" / "statements.md").read_text("utf-8")
THREATS = (ROOT / "docs" / "threats.md").read_text("utf-8")
STATUSES = ("theorem", "conjecture", "observed", "no statement", "as the rows above")


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of the tables of a page, without their heads."""
    heads = re.findall(r"^\| (.*) \|\n\|---", text, re.M)
    rows = re.findall(r"^\| (.*) \|$", text, re.M)
    return [re.split(r" ?\| ", row) for row in rows if row not in heads]


@cache
def names_in(file: str) -> frozenset[str]:
    """Return the classes and functions of a file below tests/, as pytest names them."""
    path, found, inside = ROOT / "tests" / file, set(), ""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    for line in lines:
        if top := re.match(r"(?:(class)|(?:async )?def) (\w+)", line):
            inside = top[2] if top[1] else ""
            found.add(top[2])
        elif inside and (method := re.match(r"    (?:async )?def (\w+)", line)):
            found.add(f"{inside}::{method[1]}")
    return frozenset(found)


def missing(cell: str) -> list[str]:
    """Return the tests named in a cell that do not exist."""
    names = re.findall(r"`([^`]+)`", cell)
    assert names, "a row needs a test"
    tests = [name.partition("::") for name in names if not name.startswith("adversary[")]
    return [
        *(f"{file}::{test}" for file, _, test in tests if test not in names_in(file)),
        *(kind for kind in re.findall(r"adversary\[(.+?)\]", cell) if kind not in KINDS),
    ]


def test_every_statement_has_a_status_and_tests():
    rows = rows_of(STATEMENTS.partition("## The adversary")[0])
    assert len(rows) > 50
    assert [row for row in rows if len(row) != 4 or not row[1].startswith(STATUSES)] == []
    assert [name for row in rows for name in missing(row[3])] == []


def test_every_attack_has_tests():
    rows = rows_of(THREATS)
    assert len(rows) > 25
    assert [row for row in rows if len(row) != 3] == []
    assert [name for row in rows for name in missing(row[2])] == []


def test_every_kind_of_statement_is_on_the_page():
    kinds = [word for kind in (DiffKind, HoldsFor, IntervalKind, Method) for word in get_args(kind)]
    wanted = [f"`{kind}`" for kind in kinds]
    wanted += [f"`adversary[{kind}]`" for kind in KINDS]
    wanted += [f"`{promise}: epsilon E" for promise in PROMISES]
    assert [one for one in wanted if one not in STATEMENTS] == []


def test_the_map_of_the_code_is_true():
    """Every file, function and folder that CONTRIBUTING names exists, and no folder is left out."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"\| `(src/\S+\.py)` \| `(\S+)` \|", text)
    assert len(named) > 25
    assert [(file, name) for file, name in named if not defines(ROOT / file, name)] == []
    folders = re.findall(r"`([a-z_]+/(?:[a-z_]+/)*)`(?= [^|]*\|| \|)", text)
    source = ROOT / "src" / "shoal"
    assert [one for one in folders if not any((top / one).is_dir() for top in (source, ROOT))] == []
    assert {f"{path.parent.name}/" for path in source.glob("*/__init__.py")} <= {
        folder.split("/")[0] + "/" for folder in folders
    }


def defines(path: Path, name: str) -> bool:
    """Say whether a file defines a class, a function or `Class.method`."""
    nodes: list[ast.AST] = [ast.parse(path.read_text("utf-8"))] if path.is_file() else []
    for word in name.split("."):
        nodes = [
            one
            for node in nodes
            for one in ast.iter_child_nodes(node)
            if getattr(one, "name", None) == word
        ]
    return bool(nodes)


def test_a_missing_test_is_found():
    assert missing("`test_claims.py::test_a_missing_test_is_found`") == []
    assert missing("`test_claims.py::test_nothing`, `adversary[nothing]`, `no.py::x`") == [
        "test_claims.py::test_nothing", "no.py::x", "nothing",
    ]  # fmt: skip
