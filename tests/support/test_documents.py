"""Exact fields: nothing missing, nothing unknown, one wording."""

from __future__ import annotations

import itertools

import pytest

from shoal.errors import InputError, PlanError
from shoal.support.checks import exact_fields, listed


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

    def test_what_comes_back_is_a_copy(self):
        document = {"q": 1}
        exact_fields("it", document, {"q"}).clear()
        assert document == {"q": 1}

    def test_huge_and_strange_names_do_not_flood_the_message(self):
        document = {f"{place}" * 5000: 1 for place in range(50)} | {3: 4, None: 5}
        with pytest.raises(InputError) as caught:
            exact_fields("it", document, set())
        assert len(str(caught.value)) < 900


def test_long_lists_are_cut_short():
    assert listed("abcdefgh").count(",") == 7
    assert listed("abcdefghi").endswith("'h' and 1 more")
