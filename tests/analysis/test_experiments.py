"""Experiments: arms compared with control, their checks and their power."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare, norm

import shoal
from shoal.analysis.experiments import holm, sample_ratio
from shoal.errors import InputError
from shoal.experiments import (
    Arm,
    Funnel,
    Retention,
    detectable_effect,
    experiment,
    monitor,
    people_to_detect,
)

SURVEY = (
    shoal.Survey(
        "tool",
        (
            Arm("start", ("list", "tour", "video"), weights=(2, 1, 1)),
            shoal.YesNo("done"),
            shoal.Number("minutes", low=0, high=60, points=7),
            Funnel("steps", ("opened", "used", "shared")),
        ),
    )
    .cross("start", "done")
    .cross("minutes", "start")
    .cross("start", "steps")
)


@cache
def crowd(seed: int = 1, q: str = "0.001") -> tuple[shoal.Plan, shoal.Tally, list[dict[str, Any]]]:
    """Return a plan, the tally of 6,000 people, and their answers; the tour helps."""
    plan = shoal.plan(SURVEY, q=q, accept_weak_promise=True)
    generator = np.random.default_rng(seed)
    arms = generator.choice(3, size=6_000, p=[0.5, 0.25, 0.25])
    done = generator.random(6_000) < np.take([0.3, 0.4, 0.3], arms)
    minutes = generator.uniform(0, np.take([40, 50, 40], arms))
    steps = np.where(done, 2, generator.integers(0, 2, 6_000))
    answers = [
        {
            "start": SURVEY["start"].labels[arm],
            "done": bool(one),
            "minutes": float(spent),
            "steps": ("opened", "used", "shared")[step],
        }
        for arm, one, spent, step in zip(arms, done, minutes, steps, strict=True)
    ]
    return plan, shoal.simulate(plan, answers=answers, seed=seed).estimates.tally, answers


class TestExperiment:
    def test_finds_what_is_there_and_nothing_else(self) -> None:
        plan, tally, answers = crowd()
        found = experiment(plan, tally, level=1 - 1e-9)
        names = [one.name for one in found.outcomes]
        assert names == ["done: yes", "mean of minutes", "steps: used or further", "steps: shared"]
        for outcome, tour, video in zip(
            found.outcomes, (0.1, 5.0, 0.05, 0.1), (0.0, 0.0, 0.0, 0.0), strict=True
        ):
            effects = {one.arm: one for one in outcome.effects}
            assert effects["tour"].difference.low <= tour <= effects["tour"].difference.high
            assert effects["video"].difference.low <= video <= effects["video"].difference.high
        assert found.outcomes[0].effects[0].adjusted_p < 0.001
        assert found.outcomes[0].effects[1].adjusted_p > 0.05
        assert not found.sample_ratio.suspicious
        true = np.mean([one["done"] for one in answers if one["start"] == "tour"])
        assert found.outcomes[0].arms[1].value == pytest.approx(true, abs=0.02)

    def test_without_noise_a_mean_difference_is_welchs_interval(self) -> None:
        plan, tally, answers = crowd(2, "0.00001")
        effect = experiment(plan, tally).outcomes[1].effects[0].difference
        groups = [
            np.array([one["minutes"] for one in answers if one["start"] == arm])
            for arm in ("tour", "list")
        ]
        # Rounding to points 10 apart adds the mean of u (1 - u) 100 = 100/6 to each variance.
        welch = math.sqrt(sum((group.var() + 100 / 6) / group.size for group in groups))
        assert (effect.high - effect.low) / 2 / norm.ppf(0.975) == pytest.approx(welch, rel=0.05)
        assert effect.value == pytest.approx(groups[0].mean() - groups[1].mean(), abs=4 * welch)

    def test_an_empty_arm_and_all_yes_say_that_nothing_is_known(self) -> None:
        survey = shoal.Survey("s", (Arm("arm", ("a", "b")), shoal.YesNo("done")))
        plan = shoal.plan(survey.cross("arm", "done"), q="0.01", accept_weak_promise=True)
        answers = [{"arm": "a", "done": True}] * 3_000
        tally = shoal.simulate(plan, answers=answers, seed=3).estimates.tally
        found = experiment(plan, tally)
        (outcome,) = found.outcomes
        (effect,) = outcome.effects
        assert effect.difference.low == -1
        assert effect.difference.high == 1
        assert outcome.arms[0].high == 1
        assert found.sample_ratio.suspicious
        assert "not trust the comparison" in str(found)
        assert found.to_json()["outcomes"][0]["effects"]["b"]["ratio"]["high"] is None

    def test_surveys_without_an_experiment_are_refused(self) -> None:
        plan = shoal.plan(shoal.Survey("s", (shoal.YesNo("done"),)), q="0.1")
        tally = shoal.simulate(plan, users=100, seed=1).estimates.tally
        with pytest.raises(InputError, match="no experiment"):
            experiment(plan, tally)
        real, counted, _ = crowd()
        with pytest.raises(InputError, match="must be one of"):
            experiment(real, counted, "nothing")

    def test_people_who_stayed_are_not_compared(self) -> None:
        """Among those who report every week, an arm that keeps people looks worse or better."""
        survey = shoal.Survey(
            "s",
            (
                Arm("arm", ("a", "b")),
                shoal.YesNo("done"),
                Retention("age", periods=2, period="1w"),
            ),
        )
        plan = shoal.plan(survey.cross("arm", "done").cross("arm", "age"), q="0.1")
        tally = shoal.simulate(plan, users=500, seed=1).estimates.tally
        with pytest.raises(InputError, match="again and again"):
            experiment(plan, tally)
        with pytest.raises(InputError, match="again and again"):
            monitor(plan, [tally])
        assert shoal.publish(plan, tally).to_json()["experiments"] == {}


class TestHolm:
    def test_steps_down_and_never_falls(self) -> None:
        assert holm([]) == []
        assert holm([0.02]) == [0.02]
        assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])
        assert holm([0.9, 0.8]) == [1.0, 1.0]


class TestSampleRatio:
    def test_without_flips_it_is_pearsons_test(self) -> None:
        counts, shares = np.array([510.0, 260.0, 230.0]), np.array([0.5, 0.25, 0.25])
        found = sample_ratio(counts, shares, 0.0)
        assert found.p_value == pytest.approx(chisquare(counts, 1000 * shares).pvalue)

    def test_false_alarms_are_rare_with_flips(self) -> None:
        """1,000 crowds; a level of 5 % is exceeded by six standard errors with chance 1e-9."""
        generator, q, people = np.random.default_rng(4), 0.1, 2_000
        shares = np.array([0.7, 0.3])
        truth = generator.multinomial(people, shares, size=1_000)
        ones = generator.binomial(truth, 1 - q) + generator.binomial(people - truth, q)
        counts = (ones - q * people) / (1 - 2 * q)
        noise = people * q * (1 - q) / (1 - 2 * q) ** 2
        alarms = [sample_ratio(one, shares, noise).p_value < 0.05 for one in counts]
        assert abs(np.mean(alarms) - 0.05) < 6 * math.sqrt(0.05 * 0.95 / 1_000)

    def test_nobody_is_not_suspicious(self) -> None:
        assert sample_ratio(np.array([-1.0, 0.5]), np.array([0.5, 0.5]), 1.0).p_value == 1.0


class TestMonitoring:
    @pytest.mark.slow
    def test_each_look_pools_what_came_before(self) -> None:
        plan, *_ = crowd()
        tallies = [crowd(seed)[1].named(f"release {seed}") for seed in (1, 2, 3)]
        found = monitor(plan, tallies)
        assert [one.estimates.tally.reports for one in found.looks] == [6_000, 12_000, 18_000]
        alone = experiment(plan, tallies[0])
        wide, narrow = (one.outcomes[0].effects[0] for one in (found.looks[0], alone))
        ratio = (wide.difference.high - wide.difference.low) / (
            narrow.difference.high - narrow.difference.low
        )
        assert ratio == pytest.approx(3.66 / 1.96, abs=0.05)
        assert wide.p_value > narrow.p_value
        last = found.latest.outcomes[0].effects[0].difference
        assert last.low <= 0.1 <= last.high
        assert "asymptotic" in str(found)
        assert found.to_arrow().num_rows == 24
        assert len(found.to_json()["looks"]) == 3

    def test_the_same_release_twice_is_refused(self) -> None:
        plan, tally, *_ = crowd()
        with pytest.raises(InputError, match="releases 1 and 2 are the same"):
            monitor(plan, [tally, tally])

    def test_no_release_is_refused(self) -> None:
        plan, *_ = crowd()
        with pytest.raises(InputError, match="at least one"):
            monitor(plan, [])


class TestPower:
    SURVEY = shoal.Survey("s", (Arm("arm", ("a", "b")), shoal.YesNo("done"))).cross("arm", "done")

    @pytest.mark.slow
    def test_open_answers_need_what_textbooks_say(self) -> None:
        needed = people_to_detect(self.SURVEY, 0.02, epsilon=1, delta="1e-6", share=0.1)
        sigmas = norm.ppf(0.975) + norm.ppf(0.8)
        each = sigmas**2 * (0.1 * 0.9 + 0.12 * 0.88) / 0.02**2
        assert needed.open == math.ceil(2 * each)
        sizes = [needed.open, needed.counts, needed.reports, needed.local]
        assert sizes == sorted(one or 0 for one in sizes)

    @pytest.mark.slow
    def test_the_crowd_needed_detects_just_that(self) -> None:
        needed = people_to_detect(self.SURVEY, 0.02, epsilon=1, delta="1e-6")
        assert needed.counts is not None
        plan = shoal.plan(
            self.SURVEY,
            crowd_size=needed.counts,
            epsilon=1,
            delta="1e-6",
            view="counts",
            accept_weak_promise=True,
        )
        effect = detectable_effect(plan)
        assert effect.planned == pytest.approx(0.02, rel=0.01)
        assert effect.open is not None
        assert effect.open < 0.02

    def test_power_is_what_a_simulation_finds(self) -> None:
        """4,000 experiments: the power is within six standard errors of 80 %."""
        q, people = 0.05, 4_000
        plan = shoal.plan(self.SURVEY, q=str(q), accept_weak_promise=True)
        effect = detectable_effect(plan, people=people, share=0.3).planned
        assert effect is not None
        from shoal.lab.experiment_study import _World

        world = _World(people, float(plan.q), 0.3, effect, 0.95, 1, np.random.default_rng(6))
        noisy, _ = world._shares(4_000)
        low, _ = noisy.difference_limits(float(norm.ppf(0.975)))
        assert abs(np.mean(low > 0) - 0.8) < 6 * math.sqrt(0.16 / 4_000)

    @pytest.mark.parametrize(("effect", "share"), [(0.0, 0.5), (0.6, 0.5), (0.1, 2.0)])
    def test_impossible_effects_are_refused(self, effect: float, share: float) -> None:
        with pytest.raises(InputError):
            people_to_detect(self.SURVEY, effect, epsilon=1, delta="1e-6", share=share)

    def test_too_much_noise_detects_nothing(self) -> None:
        plan = shoal.plan(self.SURVEY, crowd_size=200, epsilon="0.1", delta="1e-6")
        assert detectable_effect(plan).local is None


def test_the_test_agrees_with_pearsons_for_open_answers() -> None:
    """Without flips the p-value of the interval is near that of a chi-square test."""
    from shoal.analysis.ratios import GroupTable, p_value

    table = np.array([[300.0, 700.0], [340.0, 660.0]])
    pair = GroupTable(table, np.zeros((4, 4))).pair(1, 0, np.array([1.0, 0.0]))
    expected = chi2_contingency(table, correction=False).pvalue
    assert p_value(pair.zero_factor()) == pytest.approx(expected, rel=0.02)
