"""Score intervals of shares and means among groups, against exact enumeration and textbooks."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binom, norm

from shoal.analysis.association_tables import TableDesign
from shoal.analysis.ratios import (
    GroupTable,
    GroupValue,
    Pair,
    anytime_factor,
    no_spread,
    p_value,
    share_spread,
)
from shoal.errors import InputError
from shoal.theory.randomized_response import count_sigma

Z = float(norm.ppf(0.975))
YES = np.array([1.0, 0.0])


def open_table(counts: object) -> GroupTable:
    """Counts without any flips."""
    table = np.array(counts, float)
    size = table.shape[-1] * table.shape[-2]
    return GroupTable(table, np.zeros((size, size)))


class TestShare:
    @pytest.mark.parametrize(("yes", "people"), [(0, 20), (3, 20), (20, 20), (500, 1000)])
    def test_without_flips_it_is_wilsons_interval(self, yes: int, people: int) -> None:
        low, high = open_table([[yes, people - yes]]).share(0, YES).interval(Z)
        rate = yes / people
        centre = (rate + Z**2 / (2 * people)) / (1 + Z**2 / people)
        spread = rate * (1 - rate) / people + Z**2 / (4 * people**2)
        reach = Z * math.sqrt(spread) / (1 + Z**2 / people)
        assert (float(low), float(high)) == pytest.approx(
            (centre - reach, centre + reach), abs=1e-9
        )

    def test_for_the_crowd_it_is_fiellers_interval(self) -> None:
        noise = np.array([[9.0, 2.0], [2.0, 16.0]])
        value = GroupValue(np.array(40.0), np.array(100.0), noise, no_spread)
        ends = [float(end) for end in value.limits(Z)]
        # (40 - 100 v)^2 = z^2 (9 - 4 v + 16 v^2)
        roots = np.roots([100**2 - 16 * Z**2, -8000 + 4 * Z**2, 1600 - 9 * Z**2])
        assert ends == pytest.approx(sorted(roots.real.tolist()), abs=1e-9)

    def test_nobody_has_no_limits(self) -> None:
        for whole in (0.0, -5.0, 3.0):
            value = GroupValue(
                np.array(1.0), np.array(whole), np.eye(2) * 100, share_spread(np.array(whole))
            )
            assert [float(end) for end in value.interval(Z)] == [0.0, 1.0]
        assert math.isnan(
            float(GroupValue(np.array(1.0), np.array(0.0), np.eye(2), no_spread).value)
        )


class TestMean:
    def test_two_points_are_a_share(self) -> None:
        noise = np.eye(4) * 7.0
        table = GroupTable(np.array([[30.0, 70.0], [45.0, 55.0]]), noise)
        share, mean = table.share(0, YES), table.mean(0, np.array([0.0, 1.0]))
        ends = [float(end) for end in mean.limits(Z)]
        # With two points n v (1 - v) bounds the second moment, and the ends change places.
        low, high = (1 - float(end) for end in share.limits(Z)[::-1])
        assert ends[0] >= low - 1e-9
        assert ends[1] <= high + 1e-9
        assert float(mean.value) == pytest.approx(1 - float(share.value))

    def test_people_without_a_number_do_not_count(self) -> None:
        grid = np.array([0.0, 10.0])
        table = open_table([[25, 75, 900], [50, 50, 900]])
        assert float(table.mean(0, grid).value) == pytest.approx(7.5)
        assert float(table.mean_pair(1, 0, grid).difference) == pytest.approx(-2.5)


class TestPair:
    def test_without_flips_the_difference_is_newcombes(self) -> None:
        # Newcombe 1998, method 10, example (a): 56/70 against 48/80 has 0.0524 to 0.3339.
        pair = open_table([[56, 14], [48, 32]]).pair(0, 1, YES)
        low, high = (float(end) for end in pair.difference_limits(Z))
        assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)

    def test_p_value_is_where_the_interval_reaches_zero(self) -> None:
        pair = open_table([[56, 14], [48, 32]]).pair(0, 1, YES)
        factor = pair.zero_factor()
        assert float(pair.difference_limits(factor)[0]) == pytest.approx(0, abs=1e-9)
        assert p_value(factor) == pytest.approx(2 * float(norm.sf(factor)))
        mirrored = open_table([[48, 32], [56, 14]]).pair(0, 1, YES)
        assert mirrored.zero_factor() == pytest.approx(factor)

    @pytest.mark.parametrize("control", [0, 1])
    def test_ratio_to_a_share_that_may_be_zero_has_no_limit(self, control: int) -> None:
        noise = np.eye(4) * 9.0
        table = GroupTable(np.array([[20.0, 80.0], [control, 100.0 - control]]), noise)
        low, high = (float(end) for end in table.pair(0, 1, YES).ratio_limits(Z))
        assert high == math.inf
        assert 0 < low < 20

    def test_ratio_of_an_empty_arm_is_anything(self) -> None:
        pair = open_table([[0, 0], [50, 50]]).pair(0, 1, YES)
        assert [float(end) for end in pair.ratio_limits(Z)] == [0.0, math.inf]
        assert [float(end) for end in pair.difference_limits(Z)] == [-1.0, 1.0]

    def test_flips_that_move_both_alike_cancel(self) -> None:
        own = np.array([[4.0, 0.0], [0.0, 4.0]])
        first, second = (
            GroupValue(np.array(top), np.array(100.0), own, no_spread) for top in (40.0, 30.0)
        )
        apart = Pair(first, second, np.zeros((2, 2))).difference_limits(Z)
        together = Pair(first, second, own).difference_limits(Z)
        assert float(together[1] - together[0]) < float(apart[1] - apart[0]) / 3


def exact_coverage(people: int, q: float, shares: tuple[float, float]) -> float:
    """The coverage of the difference, summed over every count of four cells by its probability.

    The oracle knows nothing of the estimator's algebra: it lists who is in which cell, and how many
    ones each of the four bits then shows.
    """

    cells = [0.5 * shares[0], 0.5 * (1 - shares[0]), 0.5 * shares[1], 0.5 * (1 - shares[1])]

    design = TableDesign(np.ones((2, 2)), (0, 0))
    noise = count_sigma(people, q) ** 2 * design.covariance
    ones = np.array(list(product(range(people + 1), repeat=4)))
    unbiased = (ones - q * people) / (1 - 2 * q)
    table = design.combine(unbiased, np.zeros((len(ones), 0)), people).reshape(-1, 2, 2)
    low, high = GroupTable(table, noise).pair(0, 1, YES).difference_limits(Z)
    truth = shares[0] - shares[1]
    held = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    total = 0.0
    for counts in product(range(people + 1), repeat=4):
        if sum(counts) != people:
            continue
        chance = float(math.factorial(people))
        for count, cell in zip(counts, cells, strict=True):
            chance *= cell**count / math.factorial(count)
        if chance == 0:
            continue
        shown = np.ones(len(ones))
        for place, count in enumerate(counts):
            shown = shown * _ones_of(count, people, q)[ones[:, place]]
        total += chance * float(shown[held].sum())
    return total


def _ones_of(count: int, people: int, q: float) -> NDArray[np.float64]:
    stay = binom.pmf(np.arange(count + 1), count, 1 - q)
    flip = binom.pmf(np.arange(people - count + 1), people - count, q)
    return np.convolve(stay, flip)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.9), (0.0, 0.0), (1.0, 0.5)])
def test_even_eight_people_are_covered(shares: tuple[float, float]) -> None:
    """Far from any limit theorem, nearly all intervals hold; exact enumeration, no chance."""
    assert exact_coverage(8, 0.2, shares) > 0.93


class TestConfidenceSequence:
    def test_factor_is_that_of_the_mixture(self) -> None:
        """The mixture of exp(a T - a^2 V / 2) over a ~ N(0, 1/tau), integrated by brute force."""
        tau, variance, level = 2.0, 14.0, 0.95
        weights = np.linspace(-12, 12, 200_001) / math.sqrt(tau)
        density = norm.pdf(weights, scale=1 / math.sqrt(tau)) * (weights[1] - weights[0])

        def mixture(total: float) -> float:
            return float((np.exp(weights * total - weights**2 * variance / 2) * density).sum())

        crossing = brentq(lambda total: mixture(total) - 1 / (1 - level), 0.0, 60.0)
        factor = anytime_factor(level, variance / tau)
        assert factor == pytest.approx(crossing / math.sqrt(variance), rel=1e-6)

    def test_p_value_is_the_inverse_of_the_factor(self) -> None:
        for information, level in ((1.0, 0.95), (7.0, 0.99), (52.0, 0.5)):
            factor = anytime_factor(level, information)
            assert p_value(factor, information) == pytest.approx(1 - level)
        assert p_value(0.0, 3.0) == 1.0

    def test_no_reports_are_refused(self) -> None:
        with pytest.raises(InputError, match="needs reports"):
            anytime_factor(0.95, 0.0)
