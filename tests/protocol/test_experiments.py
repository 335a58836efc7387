"""Arms, retention and funnels in surveys and plans."""

from __future__ import annotations

from typing import Any

import pytest

from shoal import Cross, Plan, Survey, YesNo, randomize
from shoal.errors import PlanError, SurveyError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.survey import Arm, Funnel, Retention, RetentionOnce
from shoal.protocol.wording import encoding_rules

WEEK = 604_800

TOML = """
name = "tool"

[[question]]
name = "onboarding"
kind = "arm"
arms = ["control", "tour", "video"]
weights = [2, 1, 1]

[[question]]
name = "weeks"
kind = "retention"
periods = 4
period = "1w"

[[question]]
name = "setup"
kind = "funnel"
steps = ["installed", "signed in"]
missing = "option"

[[question]]
name = "finished"
kind = "yes/no"

[[cross]]
questions = ["onboarding", "weeks", "finished"]
"""


def made(*questions: Any, **more: Any) -> Plan:
    survey = Survey("tool", questions)
    return Plan(survey, FlipProbability(1, 2), Promise("local", "100"), **more)


def test_toml_and_json_are_read_and_written():
    survey = Survey.from_toml(TOML)
    assert survey["onboarding"] == Arm("onboarding", ("control", "tour", "video"), (2, 1, 1))
    assert survey["weeks"] == Retention("weeks", 4, WEEK)
    assert survey["setup"] == Funnel("setup", ("installed", "signed in"), "option")
    assert Survey.from_toml(survey.to_toml()) == survey
    assert Survey.from_json(survey.to_json()) == survey
    once = Survey.from_toml(
        TOML.replace("periods = 4", 'periods = 4\ndesign = "once"').split("[[c")[0]
    )
    assert once["weeks"] == RetentionOnce("weeks", 4, "1w")
    assert Survey.from_json(once.to_json()) == once


def test_an_answer_is_a_name():
    assert Retention("r", 2, WEEK).labels == ("0", "1", "2")
    assert RetentionOnce("r", 2, WEEK).labels == ("1", "2")
    cross = Survey.from_toml(TOML)["onboarding x weeks x finished"]
    assert isinstance(cross, Cross)
    assert cross.bits == 3 * 5 * 2
    plan = Plan(Survey.from_toml(TOML), FlipProbability(1, 2), Promise("local", "100"))
    answer = {"onboarding": "tour", "weeks": 3, "setup": None, "finished": True}
    assert randomize(plan, answer)


def test_equal_weights_are_one_spelling():
    assert Arm("a", ("x", "y"), (7, 7)) == Arm("a", ("x", "y"))
    assert Arm("a", ("x", "y"), (3, 1)).shares == (0.75, 0.25)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("weights = [2, 1, 1]", "weights = [2, 1]"), "weights of question 'onboarding'"),
        (("weights = [2, 1, 1]", "weights = [0, 1, 1]"), "must be between 1 and 10,000"),
        (("weights = [2, 1, 1]", "other = true"), "unknown field 'other'"),
        (('"control", "tour", "video"', '"control"'), "at least 2"),
        (("periods = 4", "periods = 0"), "periods of question 'weeks'"),
        (('"1w"', '"1 moon"'), "period of question 'weeks': '1 moon' is no length of time"),
        (("periods = 4", 'periods = 4\ndesign = "often"'), "design of question 'weeks'"),
        (("periods = 4", "periods = 4\nfold = true"), "unknown field 'fold'"),
    ],
)
def test_invalid_fields_are_named(change: tuple[str, str], why: str):
    with pytest.raises(SurveyError, match=why):
        Survey.from_toml(TOML.replace(*change))


def test_reports_of_a_device():
    arm, done, ages = Arm("a", ("x", "y")), YesNo("done"), Retention("r", 4, WEEK)
    assert Survey("s", (done,)).reports_per_device is None
    assert Survey("s", (arm, done)).reports_per_device == 1
    assert Survey("s", (arm, ages)).reports_per_device == 5
    assert Survey("s", (RetentionOnce("r", 4, WEEK),)).reports_per_device == 1
    assert Survey("s", (ages.replaced(missing="option"),)).reports_per_device is None


def test_in_which_plans_devices_return():
    arm, done = Arm("a", ("x", "y")), YesNo("done")
    assert not made(done).devices_return
    assert made(done, window=WEEK).devices_return
    assert not made(arm, done, window=WEEK).devices_return
    assert made(arm, Retention("r", 4, WEEK)).devices_return


def test_retention_brings_its_window():
    assert made(Retention("r", 4, "1d")).window == 86_400
    with pytest.raises(PlanError, match="question 'r' counts periods of 604800 seconds"):
        made(Retention("r", 4, "1w"), window=3600)
    with pytest.raises(SurveyError, match="at most one retention question"):
        Survey("s", (Retention("r", 4, "1w"), RetentionOnce("o", 4, "1w")))


def test_names_of_arms_are_words_and_weights_are_rules():
    survey = Survey.from_toml(TOML)
    renamed = Survey.from_toml(TOML.replace('"tour"', '"walk"'))
    other = Survey.from_toml(TOML.replace("[2, 1, 1]", "[1, 1, 2]"))
    rules = [encoding_rules(one, one["onboarding"]) for one in (survey, renamed, other)]
    assert rules[0] == rules[1] != rules[2]
