"""Simulated devices that begin, leave for good, and never report again."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from shoal import Plan, Survey, Tally, YesNo, plan, simulate
from shoal.analysis.experiments import experiment
from shoal.analysis.retention import retention
from shoal.errors import InputError
from shoal.lab.simulation import simulate_windows
from shoal.protocol.survey import Arm, Retention

SURVEY = Survey(
    "tool", (Arm("start", ("control", "tour"), (3, 1)), Retention("weeks", 3, "1w"))
).cross("start", "weeks")


@pytest.fixture(scope="module")
def agreed() -> Plan:
    return plan(SURVEY, crowd_size=2000, epsilon=1, delta="1e-6", view="counts")


def test_people_who_leave_are_in_the_curve(agreed: Plan):
    run = simulate_windows(agreed, new_users=4000, windows=8, leave=0.4, pause=0.2, seed=5)
    truth = [run.true_retention(age) for age in (1, 2, 3)]
    assert truth == pytest.approx([0.8 * 0.6**age for age in (1, 2, 3)], abs=0.02)
    curve = retention(agreed, run.tallies, target="crowd", level=0.999)
    for point, true in zip(curve.points, truth, strict=True):
        assert point.low <= true <= point.high
    # A curve of those who stay would be far too high, and outside.
    assert curve.points[2].high < 0.6


@pytest.mark.slow
def test_unbiased(agreed: Plan):
    """The mean error of 30 runs is within 5 of its standard deviations; seeded."""
    errors = []
    for seed in range(30):
        run = simulate_windows(agreed, new_users=2000, windows=4, leave=0.5, pause=0, seed=seed)
        point = retention(agreed, run.tallies).points[0]
        errors.append(point.value - 0.5)
    assert abs(np.mean(errors)) < 5 * np.std(errors) / 30**0.5


def test_arms_leave_differently(agreed: Plan):
    leave = {"control": 0.5, "tour": 0.1}
    run = simulate_windows(agreed, new_users=8000, windows=4, leave=leave, pause=0, seed=7)
    shown = {
        arm: retention(agreed, run.tallies, group=("start", arm)).points[0].value for arm in leave
    }
    assert shown == pytest.approx({"control": 0.5, "tour": 0.9}, abs=0.05)


def test_refused(agreed: Plan):
    with pytest.raises(InputError, match="a retention question"):
        simulate_windows(
            plan(Survey("s", SURVEY.asked[:1]), q="0.1", accept_weak_promise=True),
            new_users=5,
            windows=2,
        )
    with pytest.raises(InputError, match="probabilities, got 2"):
        simulate_windows(agreed, new_users=5, windows=2, leave=2)
    with pytest.raises(InputError, match="a share of each arm"):
        simulate_windows(agreed, new_users=5, windows=2, leave={"control": 0.1})


def test_it_shows_the_truth_beside_the_curve_and_writes_tallies(agreed: Plan, tmp_path: Path):
    run = simulate_windows(agreed, new_users=2000, windows=3, seed=3)
    document = run.to_json()
    assert document["reports"] == [one.reports for one in run.tallies]
    truths = [point["truth"] for point in document["points"]]
    assert truths == [run.true_retention(1), run.true_retention(2), None]  # age 3 is not reached
    row = str(run).splitlines()[-1].split()
    assert row == ["3", "?", "0", "0", "?", "0.00%", "100.00%"]
    assert [path.name for path in run.write(tmp_path / "week.json")] == [
        "week1.json",
        "week2.json",
        "week3.json",
    ]
    assert Tally.read(tmp_path / "week2.json", agreed) == run.tallies[1]


def test_a_value_that_flips_moved_below_zero_is_shown_as_zero(agreed: Plan):
    """With 50 people, of whom nobody comes back, half of all estimates are negative; seeded."""
    runs = [
        simulate_windows(agreed, new_users=50, windows=2, leave=1, seed=seed) for seed in range(8)
    ]
    below = [run.curve for run in runs if run.curve.points[0].value < 0]
    assert below
    for curve in below:
        assert "-" not in str(curve).splitlines()[4]
        assert curve.to_json()["points"][0]["value"] < 0


@pytest.mark.parametrize("missing", [None, "option"])
@pytest.mark.slow
def test_simulated_people_draw_arms_by_their_weights(missing: Literal["option"] | None):
    """The sample-ratio check stays silent; seeded."""
    arm = Arm("start", ("control", "tour", "video"), (2, 1, 1), missing)
    survey = Survey("tool", (arm, YesNo("done"))).cross("start", "done")
    made = plan(survey, crowd_size=20_000, epsilon=1, delta="1e-7", view="counts")
    tally = simulate(made, users=20_000, seed=1).estimates.tally
    ratio = experiment(made, tally).sample_ratio
    assert not ratio.suspicious
    assert ratio.found == pytest.approx((0.5, 0.25, 0.25), abs=0.02)
