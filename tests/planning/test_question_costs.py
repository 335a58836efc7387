"""What a question costs, and how many people an error needs: against plans made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoal import Choice, Flags, Number, Survey, YesNo, plan
from shoal.errors import InputError
from shoal.planning.costs import people_needed, survey_costs

ASKED = (YesNo("y"), Choice("c", ("a", "b", "c")), Flags("f", ("p", "q")), Number("n", (1, 2)))
PROMISE: dict[str, Any] = {"crowd_size": 2000, "epsilon": "1", "delta": "1e-4"}


@pytest.mark.parametrize("view", ["counts"])
def test_costs_are_those_of_the_survey_without_the_question(view):
    survey = Survey("s", ASKED)
    costs = survey_costs(survey, **PROMISE, view=view)
    assert costs.q == float(plan(survey, **PROMISE, view=view).q)
    for place, one in enumerate(costs.questions):
        left = Survey("s", ASKED[:place] + ASKED[place + 1 :])
        assert one.q_without == float(plan(left, **PROMISE, view=view).q)
        assert one.sigma_without is not None
        assert one.sigma_without < costs.sigma
    q = costs.q
    assert costs.sigma == pytest.approx(math.sqrt(2000 * q * (1 - q)) / (1 - 2 * q))


def test_a_question_takes_its_crosses_with_it():
    survey = Survey("s", ASKED).cross("c", "n")
    costs = survey_costs(survey, **PROMISE, view="counts")
    by_name = {one.question.name: one for one in costs.questions}
    without_c = Survey("s", (ASKED[0], ASKED[2], ASKED[3]))
    assert by_name["c"].q_without == float(plan(without_c, **PROMISE, view="counts").q)
    assert by_name["c x n"].q_without == float(plan(Survey("s", ASKED), **PROMISE, view="counts").q)


def test_the_only_question_has_no_alternative():
    (one,) = survey_costs(Survey("s", ASKED[:1]), **PROMISE).questions
    assert one.q_without is None


@pytest.mark.parametrize("share", [None, 0.1])
def test_so_many_people_reach_the_error_and_fewer_do_not(share):
    """With two per cent more people the error is reached; with two per cent fewer it is not."""
    survey = Survey("s", ASKED[:3])
    needed = people_needed(survey, epsilon=1, delta="1e-6", within=0.02, share=share)
    assert needed.local is not None
    assert needed.reports is not None
    assert needed.counts is not None
    assert needed.local > needed.reports > needed.counts

    def reach(crowd: int, view) -> float:
        q = float(plan(survey, crowd_size=crowd, epsilon=1, delta="1e-6", view=view).q)
        flips = q * (1 - q) / (1 - 2 * q) ** 2
        sampled = 0 if share is None else share * (1 - share)
        return 1.959964 * math.sqrt((flips + sampled) / crowd)

    for view, people in (("reports", needed.reports), ("counts", needed.counts)):
        assert reach(round(people * 1.02), view) <= 0.02
        assert reach(round(people * 0.97), view) > 0.02


@pytest.mark.parametrize(
    "wrong",
    [{"within": 0}, {"within": 1}, {"within": 0.1, "share": 0}, {"within": 0.1, "share": 2}],
)
def test_what_is_refused(wrong):
    with pytest.raises(InputError):
        people_needed(Survey("s", ASKED[:1]), epsilon=1, delta="1e-6", **wrong)
