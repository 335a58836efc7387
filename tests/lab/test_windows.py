"""Simulated devices that begin, leave for good, and never report again."""

from __future__ import annotations

import numpy as np
import pytest

from shoal import Plan, Survey, plan
from shoal.analysis.retention import retention
from shoal.errors import InputError
from shoal.lab.windows import simulate_windows
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
