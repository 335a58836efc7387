"""Mean and quantiles of numbers that were reported as ranges."""

from __future__ import annotations

from itertools import product
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from shoal import Choice, Number, Plan, Survey, Tally, estimate, plan
from shoal.analysis.estimates import Estimate
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
    return Tally(agreed.id, reports, np.array(ones), totals)


def summary(agreed: Plan, people: list[int], seed: int, level: float = 0.95) -> NumberSummary:
    tally = counted(agreed, people, np.random.default_rng(seed))
    return number_summary(estimate(agreed, tally), "age", level)


PLAIN = plan(Survey("s", (Number("age", EDGES),)), q="0.25")
MISSING = plan(Survey("s", (Number("age", EDGES, missing="option"),)), q="0.25")


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


def test_the_mean_covers_every_place_in_a_range() -> None:
    """Numbers at the lower or the upper end of their ranges, with the outer ones at the edges."""
    people, lows, highs = [100, 300, 100, 50, 50], [20, 20, 30, 50, 80], [20, 30, 50, 80, 80]
    missed = 0
    for seed in range(200):
        mean = summary(PLAIN, people, seed).mean
        assert mean is not None
        assert EDGES[0] <= mean.low <= mean.value <= mean.high <= EDGES[-1]
        for places in (lows, highs):
            truth = float(np.average(places, weights=people))
            missed += not mean.low <= truth <= mean.high
    assert missed <= 20 + 3 * 5  # of 400, at a level of 95 %


def test_the_sigma_of_the_mean_is_that_of_many_tries() -> None:
    """Large counts, so that none is cut off at zero; 2,000 tries know a sigma to 5 %."""
    for agreed, extra in ((PLAIN, []), (MISSING, [3000])):
        people = [3000, 4000, 3000, 3000, 3000, *extra]
        means = [summary(agreed, people, seed).mean for seed in range(2000)]
        values = np.array([mean.value for mean in means if mean is not None])
        sigmas = np.array([mean.sigma for mean in means if mean is not None])
        assert values.std() == pytest.approx(sigmas.mean(), rel=0.08)


def test_one_edge_has_no_mean() -> None:
    agreed = plan(Survey("s", (Number("age", (18,)),)), q="0.25")
    found = summary(agreed, [100, 300], 1)
    assert found.mean is None
    assert found.to_json()["mean"] is None
    assert [one["part"] for one in found.to_json()["quantiles"]] == [0.1, 0.25, 0.5, 0.75, 0.9]


def test_only_numbers_have_one() -> None:
    agreed = plan(Survey("s", (Choice("c", ("a", "b")),)), q="0.25")
    tally = counted(agreed, [50, 50], np.random.default_rng(1))
    with pytest.raises(InputError, match="not a number"):
        number_summary(estimate(agreed, tally), "c")
