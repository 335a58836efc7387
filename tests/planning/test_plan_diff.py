"""What an edit means: every field of a plan, in both directions."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given

from shoal import Choice, Flags, Number, Plan, Survey, Text, YesNo, plan
from shoal.device.encode import encode
from shoal.device.memory import DeviceMemory
from shoal.planning.plan_diff import STRENGTH, plan_diff
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Memory, Parties, Promise
from shoal.protocol.survey import Question
from shoal.support.rounding import text_up
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


ORIGINS = ("https://relay.example", "https://analyzer.example")


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

    @pytest.mark.slow
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

    @pytest.mark.slow
    def test_columns_that_are_swapped(self):
        """Rows of the same table then set other bits."""
        old = asking(YesNo("smokes", column="a"), YesNo("drives", column="b"))
        swapped = asking(YesNo("smokes", column="b"), YesNo("drives", column="a"))
        assert kind(old, swapped) == "new plan"
        assert (
            kind(old, asking(YesNo("smokes", column="c"), YesNo("drives", column="b"))) == "label"
        )

    @pytest.mark.slow
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
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "new",
        [
            asking(CHOICE, FLAGS, AGE),
            asking(FLAGS, CHOICE, Number("age", (18, 60))),
            asking(FLAGS, Choice("channel", ("release",), missing="option"), AGE),
            replace(PLAN, joint=((("features", "sync"), ("features", "vpn")),)),
        ],
    )
    def test_other_questions(self, new: Plan):
        assert kind(PLAN, new) == kind(new, PLAN) == "new plan"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "fewer",
        [
            asking(FLAGS, CHOICE),
            asking(Flags("features", FLAGS.options, at_most=1), CHOICE, AGE),
            asking(Flags("features", ("sync", "vpn")), CHOICE, AGE),
            asking(FLAGS, CHOICE, YesNo("adult")),
        ],
    )
    def test_fewer_bits_with_the_same_flips_reveal_less(self, fewer: Plan):
        assert kind(PLAN, fewer) == "new plan"
        assert kind(fewer, PLAN) == "forbidden"
        (change,) = [one for one in plan_diff(fewer, PLAN).changes if one.covers == "one report"]
        assert change.weaker
        assert change.words in plan_diff(fewer, PLAN).reasons


MEMORY = Memory(FlipProbability(1, 3), FlipProbability(3, 4))


def remembering(memory: Memory = MEMORY, old: Plan = PLAN) -> Plan:
    return replace(old, q=memory.q, memory=memory)


def promising(
    kind: Any, epsilon: str, delta: str | None = None, eta: str | None = None, **more: Any
) -> Plan:
    return replace(PLAN, promise=Promise(kind, epsilon, delta, eta), **more)


REMEMBERING = remembering()
WEAKER = {
    "smaller crowd": (PLAN, replace(PLAN, crowd_size=9_999)),
    "larger epsilon": (PLAN, promising("proven", "1.01", "1e-6")),
    "larger delta": (PLAN, promising("proven", "1", "1e-5")),
    "smaller q": (PLAN, replace(PLAN, q=FlipProbability.at_least("0.24"))),
    "more reports": (PLAN, replace(PLAN, max_reports_per_person=2)),
    "more taken for honest": (PLAN, replace(PLAN, honest_fraction="0.95")),
    "all taken for honest": (PLAN, replace(PLAN, honest_fraction=None)),
    "more cohorts": (PLAN, replace(PLAN, cohorts=2)),
    "shorter window": (PLAN, replace(PLAN, window=3_600)),
    "any window": (replace(PLAN, window=None), PLAN),
    "window below what devices take": (PLAN, replace(PLAN, window=3_599)),
    "memory dropped": (REMEMBERING, replace(REMEMBERING, memory=None)),
    "permanent flips fewer": (
        REMEMBERING,
        remembering(Memory(FlipProbability(1, 4), FlipProbability(1, 2))),
    ),
    "fresh flips fewer": (
        REMEMBERING,
        remembering(Memory(FlipProbability(1, 2), FlipProbability(1, 4))),
    ),
    "reports that share their flips": (
        REMEMBERING,
        replace(REMEMBERING, max_reports_per_person=2),
    ),
    "larger eta": tuple(promising("sufficient", "1", eta=eta) for eta in ("0.01", "0.02")),
    "crowd of a local promise dropped": (
        promising("local", "9"),
        promising("local", "9", crowd_size=None),
    ),
    "fewer people behind new labels": (
        PLAN,
        asking(Flags("features", ("sync", "proxy", "reader")), CHOICE, AGE, crowd_size=1),
    ),
}

LOCAL = promising("local", "1", q=FlipProbability.at_least("0.49"), crowd_size=None)
OTHERWISE = {
    "the promise of fewer bits with fewer flips": asking(
        FLAGS, CHOICE, q=FlipProbability.at_least("0.2")
    ),
    "window longer": replace(PLAN, window=100_000),
    "no window": replace(PLAN, window=None),
    "local with no larger epsilon": LOCAL,
}


class TestProtecting:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", WEAKER)
    def test_less(self, name: str):
        old, new = WEAKER[name]
        diff = plan_diff(old, new)
        assert kind(old, new) == "forbidden"
        assert "another name than 'browser'" in diff.reasons[-1]

    @pytest.mark.parametrize(
        "name",
        sorted(name for name, (old, _) in WEAKER.items() if old.memory is None),
    )
    def test_more_is_a_new_plan(self, name: str):
        new, old = WEAKER[name]
        assert kind(old, new) == "new plan"

    @pytest.mark.slow
    def test_memory_hides_answers_and_shows_when_they_change(self):
        """Both numbers are shown, and the one that rises must be declared."""
        fresh = replace(REMEMBERING, memory=None)
        changes = {one.covers: one for one in plan_diff(fresh, REMEMBERING).changes}
        assert kind(fresh, REMEMBERING) == "forbidden"
        assert [covers for covers, one in changes.items() if one.weaker] == [
            "a year of reports, with times"
        ]
        assert changes["all reports of one answer"].old.epsilon.is_infinite()
        assert changes["a year of reports"].new.epsilon < changes["a year of reports"].old.epsilon

    @pytest.mark.parametrize("name", OTHERWISE)
    def test_otherwise(self, name: str):
        assert kind(PLAN, OTHERWISE[name]) == "new plan"

    @pytest.mark.parametrize("name", sorted(set(WEAKER) - {"shorter window", "any window"}))
    def test_another_name_is_the_way_out(self, name: str):
        old, new = WEAKER[name]
        renamed = replace(new, survey=replace(new.survey, name="browser 2"))
        diff = plan_diff(old, renamed)
        assert diff.kind == "new plan"
        assert any("only after 'browser' is closed" in reason for reason in diff.reasons)

    def test_kinds_of_promise(self):
        promises = (
            promising("three-sigma", "9"),
            promising("sufficient", "9", eta="0.01"),
            promising("proven", "9", "1e-6"),
            promising("local", "9"),
        )
        assert [one.promise.kind for one in promises] == list(STRENGTH)
        for weak, strong in itertools.combinations(promises, 2):
            assert kind(strong, weak) == "forbidden"
            assert kind(weak, strong) == "new plan"


class TestAll:
    @given(plans(), plans())
    @bounded(60)
    @pytest.mark.slow
    def test_any_two_plans(self, old: Plan, new: Plan):
        """Two ways round never say the same weakening of both, and labels are symmetric."""
        there, back = kind(old, new), kind(new, old)
        assert (there == "label") == (back == "label")
        renamed = replace(new, survey=Survey("!other name!", new.survey.questions))
        assert kind(old, renamed) != "forbidden"

    @pytest.mark.slow
    @given(plans())
    @bounded(30)
    def test_a_new_name_alone_is_a_label_without_memory(self, plan: Plan):
        """With memory it is another survey, which gets permanent flips of its own."""
        renamed = replace(plan, survey=Survey("!other name!", plan.survey.questions))
        assert kind(plan, renamed) == ("label" if plan.memory is None else "new plan")
        assert plan_diff(plan, renamed).redraws == (plan.memory is not None)

    @pytest.mark.slow
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
        assert plan_diff(PLAN, PLAN).to_json() == {
            "kind": "same", "old": PLAN.id, "new": PLAN.id,
            "reasons": ["The two plans are the same."], "changes": [], "redraws": False,
        }  # fmt: skip
        less = promising("local", "9", crowd_size=None)
        shown = plan_diff(less, replace(less, q=FlipProbability.at_least("0.24"))).to_json()
        assert shown["changes"] == [
            {
                "covers": covers,
                "old": {"kind": "local", "epsilon": pytest.approx(old), "delta": None},
                "new": {"kind": "local", "epsilon": pytest.approx(new), "delta": None},
                "weaker": True,
            }
            for covers, old, new in [
                ("one report", 7.690287, 8.068546),
                ("a year of reports", 2822.33533, 2961.15639),
            ]
        ]


FEATURES = tuple("abcdef")


def planned(options: int, **wish: Any) -> Plan:
    survey = Survey("browser", (Flags("features", FEATURES[:options]),))
    usual: dict[str, Any] = {"crowd_size": 10_000, "epsilon": 1, "delta": "1e-6"}
    return plan(survey, **(usual | wish))


class TestGuarantees:
    """Plans that keep every promise of one release and still reveal more."""

    @pytest.mark.slow
    def test_one_option_more_and_no_limit_for_a_report(self):
        old = planned(5, view="counts", local_epsilon="8")
        diff = plan_diff(old, planned(6, view="counts"))
        assert diff.kind == "forbidden"
        weaker = {one.covers: one for one in diff.changes if one.weaker}
        assert set(weaker) == {"one report", "one release"}
        exact = 5 * math.log((1 - float(old.q)) / float(old.q))
        assert exact <= weaker["one report"].old.epsilon <= exact + 1e-6
        assert "epsilon 26.66 instead of 8 " in weaker["one report"].words
        assert "(local)" in weaker["one report"].words
        assert "(proven, delta 1e-6, view counts)" in weaker["one release"].words

    @pytest.mark.slow
    def test_an_hourly_window(self):
        diff = plan_diff(planned(5), planned(5, window=3600))
        assert diff.kind == "forbidden"
        (year,) = [one for one in diff.changes if one.covers == "a year of releases"]
        assert year.weaker
        assert "(8,785 instead of 1)" in year.words
        # of many releases each is bounded by one blanket, at a q that adapted blankets allow
        assert 470 < year.new.epsilon < 490
        assert year.new.kind == "proven"
        assert any("ever more" in reason for reason in diff.reasons)

    @pytest.mark.slow
    def test_the_same_limit_for_a_report_with_another_rounding_is_not_weaker(self):
        """Both were planned for a local epsilon of 3; q is rounded up to binary digits."""
        plans = [planned(options, local_epsilon="3", epsilon=5) for options in range(1, 7)]
        reveal = [one.local_epsilon for one in plans]
        assert len(set(reveal)) == 6
        assert max(reveal) <= 3
        for old, new in itertools.permutations(plans, 2):
            changes = {one.covers: one.weaker for one in plan_diff(old, new).changes}
            assert not changes["one report"]
        more = planned(6, local_epsilon="3.01", epsilon=5)
        assert plan_diff(plans[4], more).kind == "forbidden"

    def test_lost_parties_are_new_observers(self):
        parties = {"relay": "https://relay.example", "analyzer": "https://analyzer.example"}
        two, one = planned(2, **parties), planned(2)
        diff = plan_diff(two, one)
        assert diff.kind == "forbidden"
        collector = (
            "The collector sees each report as it arrives."
            f" The guarantee against it is epsilon {text_up(one.local_epsilon)} (local)."
        )
        assert collector in diff.reasons
        back = plan_diff(one, two)
        assert back.kind == "new plan"
        assert any(reason.startswith("The relay sees who sends") for reason in back.reasons)

    @pytest.mark.slow
    @pytest.mark.parametrize("shared", [True, False], ids=["leader", "collector"])
    def test_a_smaller_weight_drops_bits_and_costs_delta(self, shared: bool):
        survey = Survey("browser", (Flags("f", tuple("abcdefgh")),))
        promise = Promise("proven", "1", "1e-4")
        all_set, some = (Aggregators(*ORIGINS, most) for most in (8, 4))
        old = Plan(
            survey,
            Q,
            promise,
            10_000,
            view="counts",
            parties=all_set if shared else None,
            window=604_800,
        )
        fewer = replace(old, parties=some)
        assert kind(old, fewer) == "forbidden"
        assert kind(fewer, replace(old, parties=all_set)) == "new plan"

    @pytest.mark.slow
    def test_no_smaller_q_hides_behind_words_that_move(self):
        """One step of rounding at a time would lead to no flips at all."""
        turned = asking(replace(FLAGS, options=FLAGS.options[::-1]), CHOICE, AGE)
        lower = replace(turned, q=FlipProbability.of_fraction(Q.fraction - Fraction(1, 2**16)))
        assert kind(PLAN, turned) == "new plan"
        assert kind(PLAN, lower) == "forbidden"
        assert kind(lower, PLAN) == "new plan"

    @pytest.mark.slow
    def test_a_declaration(self):
        old, new = planned(5), planned(5, window=3600)
        declared = plan_diff(old, new, accept_weak_promise=True)
        assert declared.kind == "new plan"
        assert declared.changes == plan_diff(old, new).changes
        assert "as declared" in declared.reasons[-1]
        assert plan_diff(new, old, accept_weak_promise=True).kind == "new plan"
        assert plan_diff(old, old, accept_weak_promise=True).kind == "same"


class TestRedraws:
    LOCAL: ClassVar[Any] = {"promise": Promise("local", "9"), "crowd_size": None}
    KEPT = remembering(old=asking(FLAGS, CHOICE, **LOCAL))
    WORDS = remembering(old=asking(Flags("f", ("a", "vpn", "c")), CHOICE, **LOCAL))
    DRAWN: ClassVar = {
        "options reordered": remembering(
            old=asking(Flags("features", FLAGS.options[::-1]), CHOICE, **LOCAL)
        ),
        "one question fewer": remembering(old=asking(FLAGS, **LOCAL)),
        "permanent flips": remembering(Memory(FlipProbability(1, 2), MEMORY.q2), KEPT),
        "another name": remembering(old=asking(FLAGS, CHOICE, name="b", **LOCAL)),
    }

    @pytest.mark.slow
    @pytest.mark.parametrize("name", DRAWN)
    def test_new_permanent_flips_are_named(self, name: str):
        diff = plan_diff(self.KEPT, self.DRAWN[name])
        assert diff.redraws
        assert diff.kind == "new plan"
        assert any("spends the lifetime epsilon of an answer again" in r for r in diff.reasons)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "new",
        [
            WORDS,
            replace(KEPT, crowd_size=20_000),
            replace(KEPT, memory=None),
            replace(KEPT, window=1_000_000),
        ],
        ids=["words", "crowd", "no memory", "window"],
    )
    def test_kept_flips_are_not(self, new: Plan):
        assert not plan_diff(self.KEPT, new).redraws

    @pytest.mark.parametrize("name", [*DRAWN, "words"])
    def test_devices_do_what_is_said(self, tmp_path: Path, name: str):
        """An answer without a set bit: its flips are kept if and only if no redraw is named."""
        new = self.DRAWN.get(name, self.WORDS)
        device = DeviceMemory(tmp_path / "memory", bytes(range(32)))
        names = [device.digest(one, encode(one, _nothing(one))) for one in (self.KEPT, new)]
        assert (names[0] != names[1]) == plan_diff(self.KEPT, new).redraws


def _nothing(asked: Plan) -> dict[str, Any]:
    return {q.name: [] if q.kind == "flags" else q.labels[0] for q in asked.survey}
