"""Funnels: who reached at least a step, and which part went on."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.analysis.funnels import choice_table, conversion
from shoal.errors import InputError
from shoal.experiments import Funnel, funnel

STEPS = ("installed", "signed in", "invited")


def plan_of(*, missing: bool = False, q: str = "0.02") -> shoal.Plan:
    asked = Funnel("setup", STEPS, missing="option" if missing else None)
    return shoal.plan(shoal.Survey("tool", (asked,)), q=q, accept_weak_promise=True)


def tally_of(plan: shoal.Plan, furthest: dict[str | None, int]) -> shoal.Tally:
    answers = [{"setup": step} for step, people in furthest.items() for _ in range(people)]
    return shoal.simulate(plan, answers=answers, seed=1).estimates.tally


def test_counts_and_conversions_hold_the_truth() -> None:
    plan = plan_of()
    found = funnel(plan, tally_of(plan, {"installed": 2_000, "signed in": 1_500, "invited": 500}))
    reached = [4_000, 2_000, 500]
    for step, people in zip(found.steps, reached, strict=True):
        assert step.reached.low <= people <= step.reached.high
    assert found.steps[0].conversion is None
    for step, part in zip(found.steps[1:], (0.5, 0.25), strict=True):
        assert step.conversion is not None
        assert step.conversion.low <= part <= step.conversion.high


def test_people_who_reached_no_step_are_left_out_of_it() -> None:
    plan = plan_of(missing=True)
    tally = tally_of(plan, {None: 3_000, "installed": 600, "signed in": 400})
    found = funnel(plan, tally)
    assert found.steps[0].reached.value == pytest.approx(1_000, abs=150)
    went = found.steps[1].conversion
    assert went is not None
    assert went.low <= 0.4 <= went.high


def test_nobody_and_everybody() -> None:
    plan = plan_of()
    found = funnel(plan, tally_of(plan, {"invited": 3_000}))
    for step in found.steps[1:]:
        assert step.conversion is not None
        assert step.conversion.high == 1
        assert step.conversion.low > 0.9
    stuck = funnel(plan, tally_of(plan, {"installed": 3_000})).steps
    assert stuck[2].conversion is not None
    assert stuck[2].conversion.high == 1  # of nobody, any part may go on
    assert stuck[1].conversion is not None
    assert stuck[1].conversion.low == 0


def test_variance_of_a_conversion_is_that_of_a_simulation() -> None:
    """Sums of one choice share the excess over the reports; 40,000 draws, six standard errors."""
    generator, q, truth = np.random.default_rng(3), 0.15, np.array([400, 300, 200, 100])
    ones = generator.binomial(truth, 1 - q, (40_000, 4))
    ones += generator.binomial(1_000 - truth, q, (40_000, 4))
    variance = 1_000 * q * (1 - q) / (1 - 2 * q) ** 2
    counts = np.asarray((ones - q * 1_000) / (1 - 2 * q), np.float64)
    value = conversion(choice_table(counts, 1_000, variance), 1, 4)
    (tops, both), (_, wholes) = value.noise
    measured = (value.top - 0.5 * value.whole).var()
    expected = tops - both + wholes / 4
    assert measured == pytest.approx(expected, rel=6 * (2 / 40_000) ** 0.5)


def test_shows_itself_everywhere() -> None:
    plan = plan_of()
    tally = tally_of(plan, {"installed": 500, "signed in": 300, "invited": 200})
    found = funnel(plan, tally, "setup")
    assert max(map(len, str(found).splitlines())) <= 80
    assert found.to_arrow().num_rows == 3
    page = shoal.publish(plan, tally)
    assert page.to_json()["funnels"]["setup"]["steps"][2]["step"] == "invited"
    assert "of the step before" in page.to_html()


def test_bad_input_is_refused() -> None:
    plan = plan_of()
    tally = tally_of(plan, {"installed": 500, "signed in": 300, "invited": 200})
    with pytest.raises(InputError, match="not a funnel"):
        funnel(plan, tally, "other")
    none = shoal.plan(shoal.Survey("s", (shoal.YesNo("done"),)), q="0.1")
    with pytest.raises(InputError, match="kind funnel"):
        funnel(none, tally)
