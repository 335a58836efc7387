"""What trust costs: SDP section 4 recomputed, and the curator beside it."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import pytest

from shoal import Choice, Flags, Number, Survey, YesNo, plan
from shoal.cli import run
from shoal.errors import InputError
from shoal.planning.costs import Comparison, Trust, compare, people_needed, survey_costs
from shoal.reports.plots.results import plot_costs
from shoal.theory import laplace as laplace_law
from shoal.theory.randomized_response import count_sigma


def flags(count: int) -> Survey:
    return Survey("s", (Flags("f", tuple(str(i) for i in range(count))),))


@pytest.fixture(scope="module")
def two() -> Comparison:
    return compare(flags(2), crowd_size=500, epsilon=math.log(2), delta="0.005")


class TestCurator:
    def test_scale_and_sigma(self, two: Comparison):
        curator = two["curator"]
        assert curator.scale is not None
        # two bits may change, over epsilon ln 2
        assert curator.scale == pytest.approx(2 / math.log(2), rel=1e-3)
        assert curator.scale * math.log(2) >= 2
        assert curator.sigma == pytest.approx(
            1 / (math.sqrt(2) * math.sinh(math.log(2) / 4)), rel=2e-3
        )
        assert curator.half_width == laplace_law.discrete_radius(0.05, curator.scale)
        # so many people are 10 % of 1 % of these
        assert curator.people_needed == 1000 * curator.half_width

    @pytest.mark.slow
    @pytest.mark.parametrize("bits", [1, 2])
    def test_the_gain_is_the_root_of_half_the_crowd(self, bits: int):
        """sqrt(pq)/(p-q) = 1/(2 sinh(u/2)), Laplace's sigma = 1/(sqrt 2 sinh(u/2)), u = eps/d."""
        found = compare(flags(bits), crowd_size=5000, epsilon=1, delta="1e-3")
        assert found["curator"].gain_over_local == pytest.approx(math.sqrt(2500), rel=1e-9)


class TestPeopleNeeded:
    @pytest.mark.parametrize(
        "kind", [pytest.param("proven", marks=pytest.mark.slow), "three-sigma"]
    )
    def test_a_plan_for_that_many_reaches_the_error(self, two: Comparison, kind: str):
        """Independent route: plan for that crowd and look at its precision."""
        crowd = two[kind].people_needed
        assert crowd is not None

        def reached(people: int) -> float:
            delta = "0.005" if kind == "proven" else None
            wish: Any = {"epsilon": two.epsilon, "delta": delta, "promise": kind}
            made = plan(flags(2), crowd_size=people, **wish, accept_weak_promise=True)
            return 1.959964 * count_sigma(people, float(made.q)) / (0.01 * people)

        assert 0.0985 < reached(crowd) < 0.1005
        assert reached(crowd * 98 // 100) > 0.1

    @pytest.mark.slow
    def test_more_than_anybody_has(self):
        found = compare(flags(1), crowd_size=100, epsilon="0.01", delta="1e-3", share=1e-5)
        assert found["local"].people_needed is None
        assert found["proven"].people_needed is not None

    def test_one_is_enough(self):
        found = compare(flags(2), crowd_size=50, epsilon=90, delta="0.5", relative_error=100.0)
        assert [cost.people_needed for cost in found] == [1] * 7


class TestEdges:
    @pytest.mark.slow
    def test_no_rule_of_thumb(self):
        """mean + 3 sigma of one report alone is beyond lambda: the rule has no answer."""
        found = compare(flags(3), crowd_size=1, epsilon="1e-6", delta="1e-6")
        for cost in found:
            assert cost.sigma is None or math.isfinite(cost.sigma)
        json.dumps(found.to_json(), allow_nan=False)
        assert plot_costs(found).axes

    def test_unknown_kind(self, two: Comparison):
        with pytest.raises(InputError, match="trust must be one of 'local', 'proven'"):
            two["oracle"]

    @pytest.mark.parametrize(
        "change",
        [
            {"crowd_size": 0}, {"crowd_size": 2.5}, {"epsilon": 0}, {"epsilon": "nan"},
            {"epsilon": 1000}, {"delta": 1}, {"delta": "x"}, {"share": 0.0}, {"share": math.nan},
            {"relative_error": -1.0}, {"level": 1.0},
        ],
    )  # fmt: skip
    def test_bad_arguments(self, change):
        wish = {"crowd_size": 100, "epsilon": 1, "delta": "1e-3"} | change
        with pytest.raises(InputError):
            compare(flags(2), **wish)


class TestCommand:
    ARGUMENTS = ("--crowd", "2000", "--epsilon", "1", "--delta", "1e-4")

    @pytest.mark.slow
    def test_json(self, capsys: pytest.CaptureFixture[str]):
        assert run(["compare", "--flags", "3", *self.ARGUMENTS, "--json"]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        document = json.loads(said.out)
        for kind in get_args(Trust):
            noise = {"curator": {"scale"}, "curator_gaussian": set()}.get(kind, {"q"})
            assert set(document[kind]) == noise | {
                "sigma", "half_width", "people_needed", "gain_over_local",
            }  # fmt: skip
        assert document["gain_over_local"] == document["proven"]["gain_over_local"] > 1
        assert document["curator"]["scale"] == 3.0

    @pytest.mark.parametrize(
        "words",
        [
            ["compare", *ARGUMENTS],
            ["compare", "--flags", "3", "--crowd", "0", "--epsilon", "1", "--delta", "1e-4"],
            ["compare", "--flags", "3", "--crowd", "10", "--epsilon", "-1", "--delta", "1e-4"],
            ["compare", "--flags", "3", *ARGUMENTS, "--plot", "x.gif"],
            ["compare", "--flags", "3", "--epsilon", "1", "--delta", "1e-4"],
            ["compare", "missing.toml", *ARGUMENTS],
        ],
    )
    def test_bad_input(self, words, capsys, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert run(words) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []


ASKED = (YesNo("y"), Choice("c", ("a", "b", "c")), Flags("f", ("p", "q")), Number("n", (1, 2)))
PROMISE: dict[str, Any] = {"crowd_size": 2000, "epsilon": "1", "delta": "1e-4"}


@pytest.mark.slow
def test_costs_are_those_of_the_survey_without_the_question():
    survey = Survey("s", ASKED)
    costs = survey_costs(survey, **PROMISE, view="counts")
    q = costs.q
    assert q == float(plan(survey, **PROMISE, view="counts").q)
    assert costs.sigma == pytest.approx(math.sqrt(2000 * q * (1 - q)) / (1 - 2 * q))
    for place, one in enumerate(costs.questions):
        left = Survey("s", ASKED[:place] + ASKED[place + 1 :])
        assert one.q_without == float(plan(left, **PROMISE, view="counts").q)
        assert one.sigma_without is not None
        assert one.sigma_without < costs.sigma


@pytest.mark.slow
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


@pytest.mark.slow
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
