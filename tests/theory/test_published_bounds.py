"""The published bounds of the comparison: known values, and where they fall below the truth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from bench import accounting, published_bounds
from bench.published_bounds import bennett, hoeffding
from scipy import stats

from shoal.theory import shuffled
from shoal.theory.channel import k_ary
from tests.adversary import oracle
from tests.adversary.channels import law, whole_reports

Bound = Callable[[tuple[float, float, float, float], int, float], float]


def released(rows, crowd):
    """The law of the histogram of one report for each answer."""
    return oracle.crowd(law(rows[answer], whole_reports) for answer in crowd)


def test_variation_ratio_is_below_the_truth_for_k_ary_responses():
    """Four answers, e^eps_0 = 4, two others with a third answer, e^epsilon = 5/2."""
    rows = [[Fraction(4 if x == y else 1, 7) for y in range(4)] for x in range(4)]
    factor = Fraction(5, 2)
    first, second = (released(rows, crowd) for crowd in ([0, 2, 2], [1, 2, 2]))
    truth = oracle.delta(first, second, factor)
    # Their three symbols: 0, 1 and the rest, with the published parameters.
    others = [Fraction(1, 7), Fraction(1, 7), Fraction(5, 7)]
    victims = [[Fraction(4, 7), Fraction(1, 7), Fraction(2, 7)]]
    victims.append([victims[0][1], victims[0][0], victims[0][2]])
    table = [*victims, others]
    first, second = (released(table, crowd) for crowd in ([0, 2, 2], [1, 2, 2]))
    formula = oracle.delta(first, second, factor)
    assert (truth, formula) == (Fraction(51, 686), Fraction(3, 49))
    ours = published_bounds.variation_ratio(math.log(4), 3, 3 / 7)(math.log(2.5))
    assert ours == pytest.approx(3 / 49, rel=1e-9)
    proven = shuffled(k_ary(4, math.log(4)), 3).delta(math.log(2.5))
    assert proven.low <= 51 / 686 <= proven.high


def test_variation_ratio_is_half_of_the_truth_for_three_answers():
    """e^eps_0 = 2, e^epsilon = 5/3 and two people, of whom the other one gives the answer 0."""
    rows = [[Fraction(2 if x == y else 1, 4) for y in range(3)] for x in range(3)]
    factor = Fraction(5, 3)
    first, second = (released(rows, crowd) for crowd in ([0, 0], [1, 0]))
    assert oracle.delta(first, second, factor) == Fraction(1, 24)
    formula = published_bounds.variation_ratio(math.log(2), 2, 1 / 4)(math.log(5 / 3))
    assert formula == pytest.approx(1 / 48, rel=1e-9)
    proven = shuffled(k_ary(3, math.log(2)), 2).delta(math.log(5 / 3))
    assert proven.low * (1 - 1e-12) <= 1 / 24 <= proven.high


def test_variation_ratio_is_below_the_truth_for_ten_thousand_people():
    """The cell of 10-RR: all others give a third answer, and every likely outcome is added up."""
    local, n, lie = 2.0, 10**4, 1 / (math.exp(2) + 9)
    theirs = published_bounds.epsilon_of(
        published_bounds.variation_ratio(local, n, math.expm1(local) * lie), 1e-6, local
    )
    truth, excess = math.exp(local) * lie, math.expm1(theirs)
    # delta is 1/n of the mean of (zeros gain0 + ones gain1 + ...)_+ over n reports about answer 2,
    # a gain being the difference of the likelihood ratios of 1 and of 0, times lam
    gain0 = 1 - (1 + excess) * truth / lie
    gain1 = truth / lie - (1 + excess)
    middle, reach = n * lie, 12 * math.sqrt(n * lie)
    zeros = np.arange(int(middle - reach), int(middle + reach))[:, None]
    ones = zeros.T
    left = n - zeros - ones
    chance = stats.binom.pmf(zeros, n, lie) * stats.binom.pmf(ones, n - zeros, lie / (1 - lie))
    # a report 2 is e^local times as likely as under 0 or 1, each of the rest equally likely
    share, slope = truth / (1 - 2 * lie), excess * (1 - lie / truth)
    start = zeros * gain0 + ones * gain1 - left * excess
    least = np.maximum(np.ceil(-start / slope), 0)
    inner = start * stats.binom.sf(least - 1, left, share)
    inner += slope * left * share * stats.binom.sf(least - 2, left - 1, share)
    exact = float((chance * inner).sum() / n)
    assert exact > 1e-6 * (1 + 1e-3)
    bracket = shuffled(k_ary(10, local), n).attack(theirs).delta
    assert bracket.low * (1 - 1e-6) <= exact <= bracket.high * (1 + 1e-6)


@pytest.mark.slow
def test_noise_of_dummies_is_that_of_its_epsilon():
    """Both counts that an answer changes are e^(1/2) likelier at most, one up and one down."""
    decay, reach = math.exp(-0.5), np.arange(-200, 201)
    mass = decay ** np.abs(reach)
    mass /= mass.sum()
    assert mass[1:] / mass[:-1] == pytest.approx(np.exp(-0.5 * np.sign(reach[1:] - 0.5)))
    variance = float((mass * reach**2).sum())
    assert accounting.geometric_variance(0.5) == pytest.approx(variance, rel=1e-9)
    table = accounting.squared_errors()
    for row, (people, answers) in zip(table.rows, accounting._DATA.values(), strict=True):
        assert float(row[3]) == pytest.approx(answers * variance / people**2, rel=1e-2)
        assert float(row[4]) == pytest.approx(2 * answers * variance / people**2, rel=1e-2)


def test_published_examples():
    """What the authors' programs print for their own examples, to the digits that agree."""
    for k, known in [(2, (0.023979, 0.024283)), (100, (0.026881, 0.003521))]:
        for bound, value in zip((hoeffding, bennett), known, strict=True):

            def curve(epsilon: float, k: int = k, bound: Bound = bound) -> float:
                return bound(published_bounds.k_ary_moments(k, 0.4, epsilon), 5000, epsilon)

            found = published_bounds.epsilon_of(curve, 1e-6, 0.4)
            assert found == pytest.approx(value, rel=1e-3)
    exact = published_bounds.epsilon_of(published_bounds.clones(4.0, 10**5), 1e-6, 4.0)
    assert 0.1675385583317841 < exact < 0.172790550755978


def test_the_page_is_current():
    found = json.loads(accounting.RESULTS.read_text("utf-8"))
    text = accounting.PAGE.read_text("utf-8")
    assert accounting.page(text, found) == text
    cells = {cell.name: cell for cell in accounting.cells()}
    rows = [row for row in found["cells"]["rows"] if row[1] in cells]
    assert len(rows) == len(found["cells"]["rows"]) == len(accounting.cells())


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            cell,
            id=f"{cell.source} {cell.name}",
            marks=[pytest.mark.slow] * (not cell.source.startswith("Wang")),
        )
        for cell in accounting.cells()
    ],
)
def test_ours_is_at_most_the_best_that_holds(cell):
    """Each number of ours on the page is what the library returns; no valid one is smaller."""
    stored = json.loads(accounting.RESULTS.read_text("utf-8"))["cells"]["rows"]
    now = accounting.row_of(cell)[:-1]
    assert now in [row[:-1] for row in stored]
    theirs, words, proven = now[3], now[4], float(now[5])
    if words == "holds":
        assert proven <= float(theirs.split()[0])
