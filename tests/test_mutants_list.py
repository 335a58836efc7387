"""Every mutant of `tests/mutants` still fits the sources; trying them takes long and is apart."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.mutants import MUTANTS
from tests.mutants.mutant import ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_fits(mutant: Mutant):
    changed = mutant.changed()  # `before` is there once
    if mutant.file.endswith(".py"):
        ast.parse(changed)  # and the result can be read
    assert mutant.before != mutant.after
    assert mutant.test_ids
    assert [test for test in mutant.test_ids if test not in names_in(test.split("::")[0])] == []


def test_there_are_enough_and_no_two_are_the_same():
    assert len(MUTANTS) >= 60
    for what in ([one.name for one in MUTANTS], [one[1:4] for one in MUTANTS]):
        assert [one for one, times in Counter(what).items() if times > 1] == []


def test_a_mutant_that_does_not_fit_is_noticed():
    with pytest.raises(ValueError, match="is not once in"):
        MUTANTS[0]._replace(before="this is nowhere").changed()
    assert "tests/checks.py::no_such_test" not in names_in("tests/checks.py")


@cache
def names_in(file: str) -> set[str]:
    """Return a file, its classes and functions and what is in them, as pytest names them."""

    def below(name: str, body: list[ast.stmt]) -> set[str]:
        inner = [one for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef))]
        return {name}.union(*(below(f"{name}::{one.name}", one.body) for one in inner))

    return below(file, ast.parse((ROOT / file).read_text("utf-8")).body)
