"""Words and rules of a survey: words that move are seen, and only rules are part of the key."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import ClassVar

import pytest

from shoal import Choice, Flags, Number, Plan, Survey, YesNo
from shoal.planning.plan_diff import plan_diff
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.survey import Question
from shoal.protocol.wording import Wording, permanent_key

MEMORY = Memory(FlipProbability(1, 3), FlipProbability(1, 3))


def asking(*questions: Question, name: str = "s", crossed: tuple[str, ...] = ()) -> Plan:
    survey = Survey(name, questions)
    if crossed:
        survey = survey.cross(*crossed)
    return Plan(survey, MEMORY.q, Promise("local", "9999"), memory=MEMORY)


def test_words_that_move_by_brute_force():
    """Every pair of wordings of three bits with up to four words."""
    for old, new in itertools.product(itertools.product("abcd", repeat=3), repeat=2):
        said = {word for _, word, _ in Wording(("q",), old).moved(Wording(("q",), new))}
        true = {
            word
            for i, j in itertools.permutations(range(3), 2)
            for word in old[i]
            if new[j] == word and new[i] != word and old[j] != word
        }
        assert said == true, (old, new)


def test_titles_that_are_swapped_have_moved():
    before = asking(YesNo("y", titles={"yes": "I do", "no": "I do not"}))
    after = asking(YesNo("y", titles={"yes": "I do not", "no": "I do"}))
    moved = list(Wording.of(before.survey).moved(Wording.of(after.survey)))
    assert moved == [("title", "I do", "I do not"), ("title", "I do not", "I do")]
    assert plan_diff(before, after).kind == "new plan"
    retitled = asking(YesNo("y", title="Why", titles={"yes": "Yes!", "no": "I do not"}))
    found = plan_diff(before, retitled)
    assert found.kind == "label"
    assert found.reasons == (
        "People read another title of question 'y'.",
        "People read other titles of options of question 'y'.",
    )


def test_texts_that_are_swapped_have_moved():
    """People answer the text they are asked, whatever the question is called."""
    before = asking(YesNo("a", text="Do you smoke?"), YesNo("b", text="Do you drink?"))
    after = asking(YesNo("a", text="Do you drink?"), YesNo("b", text="Do you smoke?"))
    moved = list(Wording.of(before.survey).moved(Wording.of(after.survey)))
    assert moved == [
        ("text", "Do you drink?", "Do you smoke?"),
        ("text", "Do you smoke?", "Do you drink?"),
    ]
    assert plan_diff(before, after).kind == "new plan"
    one_less = asking(YesNo("a"), YesNo("b", text="Do you drink wine?"))
    assert plan_diff(before, one_less).kind == "label"


@pytest.mark.parametrize("kind", [Choice, Flags])
def test_an_option_is_no_word_where_others_are_allowed(kind: type[Choice] | type[Flags]):
    """An answer that is no longer listed would set the bit of others."""
    closed, renamed = (asking(kind("q", ("a", word))) for word in "bc")
    assert permanent_key(closed) == permanent_key(renamed)
    before, after = (asking(kind("q", ("a", word), other=True)) for word in "bc")
    assert permanent_key(before) != permanent_key(after)
    assert plan_diff(before, after).kind == "new plan"
    titled = asking(kind("q", ("a", "b"), other=True, titles={"b": "c"}))
    assert permanent_key(before) == permanent_key(titled)


class TestKey:
    SMOKES = YesNo("smokes")
    AGE = Number("age", (18, 65))
    CHANNEL = Choice("channel", ("release", "beta"))
    PLAN = asking(SMOKES, AGE, CHANNEL, crossed=("age", "channel"))

    SAME: ClassVar = {
        "names of questions": asking(
            YesNo("smoker"),
            Number("years", (18, 65)),
            CHANNEL,
            crossed=("years", "channel"),
        ),
        "labels": asking(
            SMOKES, AGE, Choice("channel", ("stable", "beta")), crossed=("age", "channel")
        ),
        "titles": asking(
            YesNo("smokes", title="Smoking", text="Do you smoke?", titles={"yes": "I do"}),
            Number("age", (18, 65), title="Age"),
            Choice("channel", CHANNEL.options, titles={"beta": "Beta"}),
            crossed=("age", "channel"),
        ),
        "a column": asking(
            SMOKES,
            AGE,
            Choice("channel", CHANNEL.options, column="c"),
            crossed=("age", "channel"),
        ),
        "a window": replace(PLAN, window=3600),
    }
    OTHER: ClassVar = {
        "edges": asking(SMOKES, Number("age", (18, 66)), CHANNEL, crossed=("age", "channel")),
        "other sides of the cross": asking(SMOKES, AGE, CHANNEL, crossed=("channel", "age")),
        "a unit": asking(
            SMOKES, Number("age", (18, 65), unit="years"), CHANNEL, crossed=("age", "channel")
        ),
        "no cross": asking(SMOKES, AGE, CHANNEL),
        "another kind": asking(
            SMOKES, AGE, Flags("channel", CHANNEL.options), crossed=("age", "channel=beta")
        ),
        "a name": replace(PLAN, survey=Survey("t", PLAN.survey.questions)),
    }

    @pytest.mark.parametrize("name", SAME)
    def test_words_are_no_part_of_it(self, name: str):
        assert permanent_key(self.SAME[name]) == permanent_key(self.PLAN)

    @pytest.mark.parametrize("name", OTHER)
    def test_rules_and_the_name_are(self, name: str):
        assert permanent_key(self.OTHER[name]) != permanent_key(self.PLAN)

    def test_how_many_options_may_be_chosen_is(self):
        colours = ("red", "blue", "green", "black")
        two, three = (asking(Flags("c", colours, at_most=most)) for most in (2, 3))
        assert permanent_key(two) != permanent_key(three)

    def test_without_memory_there_is_none(self):
        assert permanent_key(replace(self.PLAN, memory=None)) is None
