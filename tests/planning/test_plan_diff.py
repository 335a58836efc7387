"""What an edit means: every field of a plan, in both directions."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given

from shoal import (
    Choice,
    Choices,
    Flags,
    FlipProbability,
    Memory,
    Number,
    Parties,
    Plan,
    Promise,
    Question,
    Survey,
    Text,
    plan_diff,
)
from shoal.planning.plan_diff import STRENGTH
from tests.strategies import bounded, plans

FLAGS = Flags("features", ("sync", "vpn", "reader"))
CHOICE = Choice("channel", ("release", "beta"))
AGE = Number("age", (18, 65))
SURVEY = Survey("browser", (FLAGS, CHOICE, AGE))
Q = FlipProbability.at_least("0.25")
PROVEN = Promise("proven", "1", "1e-6")
PLAN = Plan(SURVEY, Q, PROVEN, crowd_size=10_000, window=86_400, honest_fraction="0.9")


def asking(*questions: Question, name: str = "browser", **more: Any) -> Plan:
    return replace(PLAN, survey=Survey(name, questions), cohorts=None, **more)


def kind(old: Plan, new: Plan) -> str:
    diff = plan_diff(old, new)
    assert diff.reasons
    assert all(reason[-1] == "." for reason in diff.reasons)
    assert (diff.old_id, diff.new_id) == (old.id, new.id)
    assert (diff.kind == "same") == (old.id == new.id)
    return diff.kind


class TestWords:
    @pytest.mark.parametrize(
        "new",
        [
            asking(FLAGS, CHOICE, AGE, name="web browser"),
            asking(Flags("extras", FLAGS.options), CHOICE, AGE),
            asking(Flags("features", ("sync", "proxy", "reader")), CHOICE, AGE),
            asking(FLAGS, Choice("channel", ("stable", "preview")), AGE),
        ],
    )
    def test_labels(self, new: Plan):
        assert kind(PLAN, new) == kind(new, PLAN) == "label"

    def test_another_spelling_of_a_number_is_no_change(self):
        new = replace(PLAN, promise=Promise("proven", "1.0", "0.000001"))
        assert kind(PLAN, new) == "same"

    @pytest.mark.parametrize(
        ("new", "word"),
        [
            (asking(Flags("features", ("vpn", "sync", "reader")), CHOICE, AGE), "sync"),
            (asking(Flags("features", ("reader", "vpn", "other")), CHOICE, AGE), "reader"),
            (asking(Flags("features", ("new", "vpn", "sync")), CHOICE, AGE), "sync"),
            (asking(Flags("channel", FLAGS.options), Choice("x", CHOICE.options), AGE), "channel"),
            (
                asking(
                    Flags("features", ("beta", "vpn", "reader")),
                    Choice("channel", ("release", "sync")),
                    AGE,
                ),
                "beta",
            ),
        ],
    )
    def test_words_that_move(self, new: Plan, word: str):
        """A swap of words would swap what people said."""
        assert kind(PLAN, new) == "new plan"
        assert any(f"{word!r} has moved" in said for said in plan_diff(PLAN, new).reasons)

    def test_a_word_may_stand_in_two_questions(self):
        old = asking(Choice("a", ("yes", "no")), Choice("b", ("yes", "no")))
        once = asking(Choice("a", ("yep", "no")), Choice("b", ("yes", "no")))
        assert kind(old, once) == kind(once, old) == "label"
        turned = asking(Choice("a", ("no", "yes")), Choice("b", ("yes", "no")))
        assert kind(old, turned) == "new plan"

    def test_text_hashes_every_word(self):
        """Positions of a text depend on the survey's digest, so no word of it may diff."""
        text = Text("word", bits=16, hashes=2, cohorts=4)
        old, new = asking(text, CHOICE), asking(text, Choice("channel", ("stable", "beta")))
        assert old.survey.text_hash("word").positions("x", 0) != new.survey.text_hash(
            "word"
        ).positions("x", 0)
        assert kind(old, new) == "new plan"
        assert kind(old, asking(text, CHOICE, name="other")) == "new plan"


class TestAsking:
    @pytest.mark.parametrize(
        "new",
        [
            asking(FLAGS, CHOICE),
            asking(CHOICE, FLAGS, AGE),
            asking(FLAGS, CHOICE, Number("age", (18, 60))),
            asking(FLAGS, CHOICE, Number("age", (18, 40, 65))),
            asking(FLAGS, Choice("channel", ("release",), missing="option"), AGE),
            asking(Choices("features", FLAGS.options, at_most=2), CHOICE, AGE),
            asking(Flags("features", ("sync", "vpn")), CHOICE, AGE),
            replace(PLAN, joint=((("features", "sync"), ("features", "vpn")),)),
        ],
    )
    def test_other_questions(self, new: Plan):
        assert kind(PLAN, new) == kind(new, PLAN) == "new plan"

    def test_fewer_bits_may_need_fewer_flips(self):
        """The promise is the same; a smaller q counts only where the bits are the same."""
        smaller = asking(FLAGS, CHOICE, q=FlipProbability.at_least("0.2"))
        assert kind(PLAN, smaller) == "new plan"
        assert kind(PLAN, replace(smaller, promise=Promise("proven", "2", "1e-6"))) == "forbidden"


MEMORY = Memory(FlipProbability(1, 3), FlipProbability(3, 4))
REMEMBERING = replace(PLAN, q=MEMORY.q, memory=MEMORY)

WEAKER = {
    "smaller crowd": (PLAN, replace(PLAN, crowd_size=9_999)),
    "larger epsilon": (PLAN, replace(PLAN, promise=Promise("proven", "1.01", "1e-6"))),
    "larger delta": (PLAN, replace(PLAN, promise=Promise("proven", "1", "1e-5"))),
    "smaller q": (PLAN, replace(PLAN, q=FlipProbability.at_least("0.24"))),
    "more reports": (PLAN, replace(PLAN, max_reports_per_person=2)),
    "more taken for honest": (PLAN, replace(PLAN, honest_fraction="0.95")),
    "all taken for honest": (PLAN, replace(PLAN, honest_fraction=None)),
    "more cohorts": (PLAN, replace(PLAN, cohorts=2)),
    "window below what devices take": (PLAN, replace(PLAN, window=3_599)),
    "memory dropped": (REMEMBERING, replace(REMEMBERING, memory=None)),
    "permanent flips fewer": (
        REMEMBERING,
        replace(
            REMEMBERING, memory=(m := Memory(FlipProbability(1, 4), FlipProbability(1, 2))), q=m.q
        ),
    ),
    "fresh flips fewer": (
        REMEMBERING,
        replace(
            REMEMBERING, memory=(n := Memory(FlipProbability(1, 2), FlipProbability(1, 4))), q=n.q
        ),
    ),
    "larger eta": (
        replace(PLAN, promise=Promise("sufficient", "1", eta="0.01")),
        replace(PLAN, promise=Promise("sufficient", "1", eta="0.02")),
    ),
    "crowd of a local promise dropped": (
        replace(PLAN, promise=Promise("local", "9")),
        replace(PLAN, promise=Promise("local", "9"), crowd_size=None),
    ),
}

OTHERWISE = {
    "window shorter, but long enough": (PLAN, replace(PLAN, window=3_600)),
    "window longer": (PLAN, replace(PLAN, window=100_000)),
    "no window": (PLAN, replace(PLAN, window=None)),
    "memory added": (replace(REMEMBERING, memory=None), REMEMBERING),
    "local with no larger epsilon": (
        PLAN,
        replace(
            PLAN,
            q=FlipProbability.at_least("0.49"),
            promise=Promise("local", "1"),
            crowd_size=None,
        ),
    ),
}


class TestProtecting:
    @pytest.mark.parametrize("name", WEAKER)
    def test_less(self, name: str):
        old, new = WEAKER[name]
        diff = plan_diff(old, new)
        assert kind(old, new) == "forbidden"
        assert "another name than 'browser'" in diff.reasons[-1]

    @pytest.mark.parametrize(
        "name", sorted(set(WEAKER) - {"permanent flips fewer", "fresh flips fewer"})
    )
    def test_more_is_a_new_plan(self, name: str):
        new, old = WEAKER[name]
        assert kind(old, new) == "new plan"

    @pytest.mark.parametrize("name", OTHERWISE)
    def test_otherwise(self, name: str):
        assert kind(*OTHERWISE[name]) == "new plan"

    @pytest.mark.parametrize("name", WEAKER)
    def test_another_name_is_the_way_out(self, name: str):
        old, new = WEAKER[name]
        renamed = replace(new, survey=replace(new.survey, name="browser 2"))
        diff = plan_diff(old, renamed)
        assert diff.kind == "new plan"
        assert any("only after 'browser' is closed" in reason for reason in diff.reasons)

    def test_kinds_of_promise(self):
        promises = {
            "three-sigma": Promise("three-sigma", "9"),
            "sufficient": Promise("sufficient", "9", eta="0.01"),
            "proven": Promise("proven", "9", "1e-6"),
            "local": Promise("local", "9"),
        }
        assert set(promises) == set(STRENGTH)
        for (weak, a), (strong, b) in itertools.combinations(promises.items(), 2):
            low, high = (replace(PLAN, promise=promise) for promise in (a, b))
            assert kind(high, low) == "forbidden", (weak, strong)
            assert kind(low, high) == "new plan", (weak, strong)

    def test_a_weaker_plan_hides_behind_no_new_label(self):
        new = asking(Flags("features", ("sync", "proxy", "reader")), CHOICE, AGE, crowd_size=1)
        assert kind(PLAN, new) == "forbidden"


class TestAll:
    @given(plans())
    @bounded(30)
    def test_the_same(self, plan: Plan):
        assert kind(plan, Plan.from_json(plan.to_json())) == "same"

    @given(plans(), plans())
    @bounded(60)
    def test_any_two_plans(self, old: Plan, new: Plan):
        """Two ways round never say the same weakening of both, and labels are symmetric."""
        there, back = kind(old, new), kind(new, old)
        assert (there == "label") == (back == "label")
        renamed = replace(new, survey=Survey("!other name!", new.survey.questions))
        assert kind(old, renamed) != "forbidden"

    @given(plans())
    @bounded(30)
    def test_a_new_name_alone_is_a_label(self, plan: Plan):
        renamed = replace(plan, survey=Survey("!other name!", plan.survey.questions))
        assert kind(plan, renamed) == "label"

    def test_every_field_is_looked_at(self):
        """No field of a plan may change unnoticed; a new one must be decided on."""
        changed: dict[str, Any] = {
            "survey": asking(FLAGS).survey,
            "q": FlipProbability.at_least("0.3"),
            "promise": Promise("proven", "0.5", "1e-6"),
            "crowd_size": 20_000,
            "max_reports_per_person": 3,
            "cohorts": 7,
            "window": 1000,
            "memory": Memory(FlipProbability(1, 3), FlipProbability(1, 3)),
            "joint": ((("features", "sync"), ("features", "vpn")),),
            "honest_fraction": "0.5",
            "parties": Parties("https://relay.example", "https://analyzer.example"),
            "view": "counts",
        }
        assert set(changed) == {field.name for field in fields(Plan)}
        for name, value in changed.items():
            more = {"q": value.q} if name == "memory" else {}
            assert kind(PLAN, replace(PLAN, **{name: value}, **more)) in ("new plan", "forbidden")

    def test_json(self):
        diff = plan_diff(PLAN, PLAN)
        assert diff.to_json() == {
            "kind": "same",
            "old": PLAN.id,
            "new": PLAN.id,
            "reasons": ["The two plans are the same."],
        }
