"""Every mutant fits the sources, and each privacy statement has one; trying them takes long."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutants import MUTANTS
from tests.mutants.mutant import Mutant
from tests.test_claims import STATEMENTS, missing, rows_of

PRIVACY = ("One release", "Over time", "A trusted curator")


def test_every_mutant_fits():
    wrong = []
    for mutant in MUTANTS:
        try:
            mutant.check()
        except ValueError as error:
            wrong.append(str(error))
        wrong += missing(", ".join(f"`{test}`" for test in mutant.tests))
    assert wrong == []


def test_every_privacy_statement_has_one():
    """But for those about clients in JavaScript, whose sources are not mutated here."""
    noticed = {test for mutant in MUTANTS for test in mutant.tests}
    sections = [part for part in STATEMENTS.split("\n## ") if part.startswith(PRIVACY)]
    assert len(sections) == len(PRIVACY)
    rows = [row for section in sections for row in rows_of(section) if "`clients/" not in row[3]]
    assert [row[0] for row in rows if not any(f"`{test}`" in row[3] for test in noticed)] == []


def test_there_are_few_and_no_two_are_the_same():
    assert len(MUTANTS) <= 80
    for what in ([one.name for one in MUTANTS], [one[1:4] for one in MUTANTS]):
        assert [one for one, times in Counter(what).items() if times > 1] == []


def test_a_mutant_that_does_not_fit_is_noticed():
    source = "class C:\n    @property\n    def f(self):\n        return 1  # one\n\nx = 2\n"
    mutant = Mutant("m", "shoal.a:C.f", "return 1", "return 2", ())
    assert mutant.changed(source) == source.replace("return 1  # one", "return 2")
    for other in (
        mutant._replace(before="return 3"),
        mutant._replace(function="shoal.a:C.g"),
        mutant._replace(function="shoal.a:C"),
    ):
        with pytest.raises(ValueError, match="m: "):
            other.changed(source)
    with pytest.raises(ValueError, match="no module"):
        mutant.check()
