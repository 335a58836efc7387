"""Argument checks, exact fields, and numbers as people write them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from shoal import Survey
from shoal.errors import InputError, PlanError, SurveyError
from shoal.support.checks import (
    check_decimal,
    check_decimal_text,
    decimal_text,
    exact_fields,
    seconds,
    whole_number,
)


class TestExactFields:
    def test_every_set_of_fields(self):
        """Accepted are exactly those that hold what is needed and no more than what is allowed."""
        names = ("a", "b", "c", "d")
        for size in range(5):
            for present in itertools.combinations(names, size):
                document = dict.fromkeys(present, 1)
                if {"a", "b"} <= set(present) <= {"a", "b", "c"}:
                    assert exact_fields("it", document, {"a", "b"}, {"c"}) == document
                else:
                    with pytest.raises(InputError):
                        exact_fields("it", document, {"a", "b"}, {"c"})

    def test_words(self):
        with pytest.raises(InputError, match=r"^a plan has no field 'q'\.$"):
            exact_fields("a plan", {}, {"q"})
        with pytest.raises(InputError, match=r"^a plan has an unknown field 'p'; it takes 'q'\.$"):
            exact_fields("a plan", {"q": 1, "p": 2}, {"q"})

    @pytest.mark.parametrize("document", [None, [], ["q"], "q", 3, {"q"}])
    def test_only_an_object_has_fields(self, document: object):
        with pytest.raises(PlanError, match="a plan must be an object with the fields 'q', got"):
            exact_fields("a plan", document, {"q"}, error=PlanError)

    def test_huge_and_strange_names_do_not_flood_the_message(self):
        document = {f"{place}" * 5000: 1 for place in range(50)} | {3: 4, None: 5}
        with pytest.raises(InputError) as caught:
            exact_fields("it", document, set())
        assert len(str(caught.value)) < 900


GOOD: dict[Callable[[str], object], dict[str, object]] = {
    whole_number: {"10000": 10_000, "1e4": 10_000, "10_000": 10_000, "10,000": 10_000,
                   "1 000 000": 1_000_000, "1.5e3": 1500, " 7 ": 7, "-3": -3},
    decimal_text: {".005": "0.005", "0.0050": "0.005", "5%": "0.05", "0.5 %": "0.005", "5.": "5",
                   "1_000.5": "1000.5", "1E-6": "1e-6", "0.000001": "1e-6"},
    seconds: {"3600": 3600, "1d": 86_400, "1 day": 86_400, "2W": 1_209_600, "1.5h": 5400,
              "90min": 5400, "30 s": 30},
}  # fmt: skip
BAD: dict[Callable[[str], object], list[str]] = {
    whole_number: ["", "1.5", "1,00", "1e-1", "ten", "1e999", "0x10", "1__0", "9" * 70],
    decimal_text: ["", "%", "5%%", "0,5", "nan", "inf", "1e99999", ".", "e5"],
    seconds: ["", "d", "1 month", "0d", "-1d", "0.0001s", "1d1h", "1e99d"],
}


def test_numbers_as_people_write_them():
    for read, cases in GOOD.items():
        for text, number in cases.items():
            assert read(text) == number, text
    for text, decimal in GOOD[decimal_text].items():
        assert check_decimal("x", text, above=0) == decimal, text


@pytest.mark.parametrize("read", BAD, ids=lambda read: read.__name__)
def test_what_is_none(read: Callable[[str], object]):
    for text in BAD[read]:
        with pytest.raises(InputError):
            read(text)
    for text in BAD[decimal_text]:
        with pytest.raises(InputError):
            check_decimal("x", text, above=0)


def test_documents_have_one_spelling():
    """A plan or survey that was written by another program is not guessed at."""
    for text in (".5", "5%", "1_0"):
        with pytest.raises(InputError):
            check_decimal_text("epsilon", text, above=0)
    edges = {"kind": "number", "name": "n", "edges": [".5"]}
    with pytest.raises(SurveyError):
        Survey.from_json({"name": "s", "questions": [edges]})
