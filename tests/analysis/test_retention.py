"""Retention curves of people who leave and never return, and of daemons that report once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import shoal
from shoal.analysis.crowds import Crowd
from shoal.analysis.retention import AgeCounts, curves_of
from shoal.errors import InputError
from shoal.experiments import Arm, Retention, RetentionOnce, retention

PERIODS, STARTERS, WEEKS = 3, 1_500, 7
STAYS = (0.5, 0.8)
"""The chance to stay another week, in each arm."""
SURVEY = shoal.Survey(
    "weekly", (Arm("start", ("list", "tour")), Retention("age", periods=PERIODS, period="1w"))
).cross("start", "age")


def weeks(seed: int) -> Iterator[list[dict[str, str]]]:
    """Yield the answers of each week. Who leaves never reports again."""
    generator = np.random.default_rng(seed)
    arms = generator.integers(2, size=(WEEKS, STARTERS))
    lives = generator.geometric(1 - np.take(STAYS, arms)) - 1
    for week in range(WEEKS):
        yield [
            {"start": ("list", "tour")[arm], "age": str(week - start)}
            for start in range(max(week - PERIODS, 0), week + 1)
            for arm in arms[start][lives[start] >= week - start]
        ]


@cache
def releases(seed: int = 1) -> tuple[shoal.Plan, tuple[shoal.Tally, ...]]:
    plan = shoal.plan(SURVEY, q="0.02", accept_weak_promise=True)
    found = [
        shoal.simulate(plan, answers=answers, seed=seed + place).estimates.tally
        for place, answers in enumerate(weeks(seed))
    ]
    return plan, tuple(found)


def in_window(tally: shoal.Tally, window: int, name: str | None = None) -> shoal.Tally:
    return replace(tally, crowds=(Crowd(tally.reports, name=name, window=window),))


class TestAgeDesign:
    def test_people_who_left_are_counted_as_gone(self) -> None:
        plan, tallies = releases()
        curve = retention(plan, tallies)
        for point in curve.points:
            truth = np.mean([stay**point.period for stay in STAYS])
            assert point.low <= truth <= point.high
            assert point.value == pytest.approx(truth, abs=0.05)
        # Among those who still report, the curve would be far too high.
        naive = plan.survey["age"].labels
        assert naive == ("0", "1", "2", "3")
        assert curve.points[-1].value < 0.4

    def test_each_arm_has_its_own_curve(self) -> None:
        plan, tallies = releases()
        for arm, stay in zip(("list", "tour"), STAYS, strict=True):
            curve = retention(plan, tallies, group=("start", arm))
            for point in curve.points:
                assert point.low <= stay**point.period <= point.high
        everybody = curves_of(plan, tallies)
        assert list(everybody) == ["everybody", "start: list", "start: tour"]

    def test_rolling_activity_is_of_the_last_periods(self) -> None:
        plan, tallies = releases()
        activity = retention(plan, tallies).activity
        truth = np.mean([stay**age for stay in STAYS for age in (1, 2, 3)])
        assert activity is not None
        assert activity.low <= truth <= activity.high
        assert retention(plan, tallies[:3]).activity is None

    def test_windows_may_be_missing_and_have_several_crowds(self) -> None:
        plan, tallies = releases()
        named = [in_window(tally, 10 + place) for place, tally in enumerate(tallies)]
        whole = retention(plan, named)
        assert whole.points == retention(plan, tallies).points
        assert retention(plan, named[::-1]).points == whole.points
        gap = retention(plan, [one for place, one in enumerate(named) if place != 3])
        assert {start for start, _ in gap.cohorts} == {0, 1, 2, 4, 5}
        assert gap.points[0].started < whole.points[0].started
        twice = [in_window(tallies[0], 10, name) for name in ("a", "b")]
        doubled = retention(plan, [*twice, *named[1:]])
        assert doubled.points[0].started > whole.points[0].started + STARTERS / 2

    def test_nothing_is_known_before_a_later_window(self) -> None:
        plan, tallies = releases()
        curve = retention(plan, tallies[:2])
        assert math.isnan(curve.points[1].value)
        assert (curve.points[1].low, curve.points[1].high) == (0.0, 1.0)
        assert curve.to_json()["points"][1]["value"] is None
        assert "?" in str(curve)

    def test_the_curve_of_the_crowd_is_narrower(self) -> None:
        plan, tallies = releases()
        of_crowd, of_all = (
            retention(plan, tallies, target=target).points[0] for target in ("crowd", "population")
        )
        assert of_crowd.value == of_all.value
        assert of_crowd.high - of_crowd.low < of_all.high - of_all.low

    def test_shows_itself(self) -> None:
        plan, tallies = releases()
        curve = retention(plan, tallies)
        assert max(map(len, str(curve).splitlines())) <= 80
        assert curve.to_arrow().num_rows == PERIODS
        assert len(curve.cohorts) == 6 + 5 + 4

    def test_bad_input_is_refused(self) -> None:
        plan, tallies = releases()
        with pytest.raises(InputError, match="each window"):
            retention(plan, [])
        with pytest.raises(InputError, match="never 'nobody'"):
            retention(plan, tallies, group=("start", "nobody"))
        with pytest.raises(InputError, match="no cross"):
            retention(plan, tallies, group=("nothing", "x"))
        with pytest.raises(InputError, match="name all or none"):
            retention(plan, [in_window(tallies[0], 1), tallies[1]])
        other = shoal.plan(shoal.Survey("s", (shoal.YesNo("done"),)), q="0.1")
        with pytest.raises(InputError, match="kind retention"):
            retention(other, tallies)


class TestAgeCounts:
    def test_noise_of_a_ratio_is_that_of_a_simulation(self) -> None:
        """The variance of T over 40,000 draws: its relative error is below 6 sqrt(2 / 40,000)."""
        generator, q = np.random.default_rng(2), 0.2
        truth = np.array([[300, 0, 0], [200, 150, 0], [250, 100, 60]])
        reports = truth.sum(axis=-1)
        ones = generator.binomial(truth, 1 - q, (40_000, 3, 3))
        ones += generator.binomial(reports[:, None] - truth, q, (40_000, 3, 3))
        counts = (ones - q * reports[:, None]) / (1 - 2 * q)
        variances = reports * q * (1 - q) / (1 - 2 * q) ** 2
        ages = AgeCounts(counts, [0, 1, 2], variances, reports.astype(float), [True] * 3, "crowd")
        value = ages.retention(1, [0, 1])
        share = 250 / 500
        measured = (value.top - share * value.whole).var()
        expected = float(value.variance(np.array(share), 0.0))
        assert measured == pytest.approx(expected, rel=6 * math.sqrt(2 / 40_000))
        assert value.top.mean() == pytest.approx(250, abs=0.5)


class TestOnceDesign:
    def test_is_the_share_of_each_flag(self) -> None:
        survey = shoal.Survey("daemon", (RetentionOnce("weeks", periods=2, period="1w"),))
        plan = shoal.plan(survey, q="0.05", accept_weak_promise=True)
        answers = [{"weeks": ["1", "2"]}] * 300 + [{"weeks": ["1"]}] * 300 + [{"weeks": []}] * 400
        tally = shoal.simulate(plan, answers=answers, seed=1).estimates.tally
        curve = retention(plan, [tally], target="crowd")
        for point, truth in zip(curve.points, (0.6, 0.3), strict=True):
            assert point.low <= truth <= point.high
        with pytest.raises(InputError, match="one tally"):
            retention(plan, [tally, tally])
