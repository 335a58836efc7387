"""Mean, variance and quantiles of numbers that were reported as points of a grid or as bins."""

from __future__ import annotations

import os
from itertools import product
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from shoal import Choice, Number, Plan, Survey, Tally, estimate, plan
from shoal.analysis.estimates import Estimate
from shoal.analysis.intervals import Target
from shoal.analysis.number_summary import NumberSummary, number_summary
from shoal.errors import InputError

EDGES = (20, 30, 50, 80)


def counted(agreed: Plan, people: list[int], random: np.random.Generator) -> Tally:
    """Return the tally of people by range, each bit flipped with the plan's q."""
    q, reports = float(agreed.q), sum(people)
    ones = [random.binomial(n, 1 - q) + random.binomial(reports - n, q) for n in people]
    totals = np.zeros(agreed.bits + 1, np.int64)
    # How many bits each report sets: any split with the right sum; nothing here looks at it.
    whole, rest = divmod(sum(ones), reports)
    totals[whole], totals[whole + 1] = reports - rest, rest
    by_set_bits = totals if agreed.view == "reports" else None
    return Tally(agreed.id, reports, np.array(ones), by_set_bits)


def summary(agreed: Plan, people: list[int], seed: int, level: float = 0.95) -> NumberSummary:
    tally = counted(agreed, people, np.random.default_rng(seed))
    return number_summary(estimate(agreed, tally), "age", level)


PLAIN = plan(Survey("s", (Number("age", EDGES),)), q="0.25")


def law_of_ones(people: int, reports: int, q: float) -> NDArray[np.float64]:
    """Return the probability of each number of ones: those who are set and those who are not."""
    kept = binom.pmf(np.arange(people + 1), people, 1 - q)
    return np.convolve(kept, binom.pmf(np.arange(reports - people + 1), reports - people, q))


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
@pytest.mark.parametrize(
    ("missing", "truth"),
    [
        (None, (6, 3, 5)), (None, (0, 14, 0)), (None, (7, 0, 7)), (None, (1, 1, 12)),
        ("option", (2, 3, 1, 2)), ("option", (0, 4, 0, 4)), ("option", (1, 0, 1, 6)),
    ],
)  # fmt: skip
def test_quantiles_are_in_their_ranges_as_often_as_said(
    missing: Literal["option"] | None, truth: tuple[int, ...], level: float
) -> None:
    """Every outcome of a small crowd with its exact probability, from the law of the flips."""
    agreed = plan(Survey("s", (Number("n", (0, 1), missing=missing),)), q="0.2")
    reports, q = sum(truth), float(agreed.q)
    laws = [law_of_ones(people, reports, q) for people in truth]
    below = np.cumsum(truth[:3])
    question = agreed.survey["n"]
    assert isinstance(question, Number)
    covered = dict.fromkeys((0.25, 0.5, 0.9), 0.0)
    for ones in product(range(reports + 1), repeat=len(truth)):
        chance = float(np.prod([law[one] for law, one in zip(laws, ones, strict=True)]))
        if chance < 1e-7:  # counted as missed
            continue
        ranges = tuple(
            Estimate(question, label, one, reports, agreed.q, "crowd", float(one))
            for label, one in zip(question.labels[:3], ones, strict=False)
        )
        found = NumberSummary(question, ranges, level)
        for part in covered:
            where = int(np.searchsorted(below, part * below[-1]))
            said = found.quantile(part)
            first = 0 if said.low is None else (0.0, 1.0).index(said.low) + 1
            last = 2 if said.high is None else (0.0, 1.0).index(said.high)
            covered[part] += chance * (first <= where <= last)
    for part, probability in covered.items():
        assert probability >= level - 1e-3, part


def test_a_quantile_is_narrow_where_much_is_known() -> None:
    sure = plan(Survey("s", (Number("age", EDGES),)), q="0.001")
    found = summary(sure, [100, 600, 200, 50, 50], 1)
    assert (found.quantile(0.5).low, found.quantile(0.5).high) == (20.0, 30.0)
    assert found.quantile(0.05).low is None
    assert found.quantile(0.99).high is None
    for wrong in (0.0, 1.0, -1.0, 2.0):
        with pytest.raises(InputError, match="between 0 and 1"):
            found.quantile(wrong)


def test_bins_have_no_mean() -> None:
    found = summary(PLAIN, [100, 300, 100, 50, 50], 1).to_json()
    assert found["mean"] is found["variance"] is found["limits"] is None
    assert [one["part"] for one in found["quantiles"]] == [0.1, 0.25, 0.5, 0.75, 0.9]


def numbers(kind: str, people: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Draw numbers in [0, 1]; their means are 0.5, 0.05 (1 - e^-20) and 0.437."""
    if kind == "uniform":
        return random.random(people)
    return np.full(people, 0.437) if kind == "constant" else random.exponential(0.05, people)


MEANS = {"uniform": 0.5, "skewed": 0.05 * (1 - np.exp(-20)), "constant": 0.437}
VARIANCES = {"uniform": 1 / 12, "skewed": 0.05**2, "constant": 0.0}


def grid_plan(missing: Literal["option"] | None, q: str) -> Plan:
    return plan(Survey("s", (Number("age", low=0, high=1, points=11, missing=missing),)), q=q)


def rounded(values: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """Round to a grid of 11 points on [0, 1], up with the probability of the fraction."""
    places = np.clip(values, 0, 1) * 10
    return (np.floor(places) + (random.random(values.size) < places % 1)).astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["crowd", "population"])
@pytest.mark.parametrize("kind", list(MEANS))
@pytest.mark.parametrize(
    ("missing", "q", "people"),
    [(None, "0.0025", 20_000), ("option", "0.02", 2_000), (None, "0.3", 1_000)],
)
def test_intervals_of_mean_and_variance_cover(
    missing: Literal["option"] | None, q: str, people: int, kind: str, target: Target
) -> None:
    """Seeded; fewer than four standard errors below 95 % has a chance of 3e-5 otherwise."""
    agreed, random = grid_plan(missing, q), np.random.default_rng(7)
    covered, tries = np.zeros(2), int(os.environ.get("SHOAL_SURVEYS", "200"))
    bias = 0.0
    for _ in range(tries):
        values = np.minimum(numbers(kind, people, random), 1.0)
        absent = random.random(people) < (0.3 if missing else 0)
        points = np.where(absent, 11, rounded(values, random))
        truth = np.bincount(points, minlength=agreed.bits).tolist()
        tally = counted(agreed, truth, random)
        found = number_summary(estimate(agreed, tally, target=target), "age")
        assert found.mean is not None
        assert found.variance is not None
        given = values[~absent]
        moments = MEANS[kind], VARIANCES[kind]
        if target == "crowd":
            moments = given.mean(), given.var()
        pairs = zip((found.mean, found.variance), moments, strict=True)
        covered += [one.low <= moment <= one.high for one, moment in pairs]
        bias += (found.mean.value - moments[0]) / tries
    assert (covered / tries >= 0.95 - 4 * (0.95 * 0.05 / tries) ** 0.5).all()
    assert abs(bias) < 0.005


def test_a_grid_costs_little_precision() -> None:
    """20,000 people, epsilon 1, view counts: flips and rounding widen it by less than 5 %."""
    agreed = grid_plan(None, "0.0025")
    random = np.random.default_rng(3)
    values = random.random(20_000)
    truth = np.bincount(rounded(values, random), minlength=11).tolist()
    tally = counted(agreed, truth, random)
    found = number_summary(estimate(agreed, tally, target="population"), "age").mean
    assert found is not None
    openly = 2 * 1.959964 * values.std() / np.sqrt(values.size)
    assert 1.0 < (found.high - found.low) / openly < 1.05


def test_a_quantile_of_a_grid_is_widened_by_a_step() -> None:
    people = [0, 0, 1000, 0, 0, 0, 0, 0, 0, 0, 1000]
    found = summary(grid_plan(None, "0.001"), people, 1)
    median = found.quantile(0.3)
    assert (median.label, median.low, median.high) == ("0.2", 0.1, 0.3)
    assert found.quantile(0.9).high == 1.0


def test_nobody_gave_a_number() -> None:
    """Everything is possible then."""
    found = summary(grid_plan("option", "0.3"), [0] * 11 + [50], 3).mean
    assert found is not None
    assert (found.low, found.high) == (0.0, 1.0)


def test_only_numbers_have_one() -> None:
    agreed = plan(Survey("s", (Choice("c", ("a", "b")),)), q="0.25")
    tally = counted(agreed, [50, 50], np.random.default_rng(1))
    with pytest.raises(InputError, match="not a number"):
        number_summary(estimate(agreed, tally), "c")


def test_the_interval_has_the_unit_of_the_grid() -> None:
    """However small that is: the same counts give the same interval in steps."""
    widths = []
    for high in ("1", "1e-20"):
        agreed = plan(Survey("s", (Number("age", low=0, high=high, points=11),)), q="0.1")
        mean = summary(agreed, [200] * 11, 5).mean
        assert mean is not None
        widths.append((mean.high - mean.low) / float(high))
    assert widths[0] == pytest.approx(widths[1], rel=1e-6)
    assert widths[0] > 0.01
