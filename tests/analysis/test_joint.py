"""Joint estimates: unbiased, counts and variances, by enumerating every output."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from shoal import Estimates, Flags, Plan, Survey, estimate, tally
from shoal.analysis.joint import estimate_joint
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic

BITS = [("f", "a"), ("f", "b"), ("f", "c"), ("f", "d")]


def outputs(people: tuple[int, ...], j: int, q: Fraction):
    """Every collection of reports with its exact probability."""
    weight = [q**k * (1 - q) ** (j - k) for k in range(j + 1)]
    for reports in itertools.product(range(1 << j), repeat=len(people)):
        chance = Fraction(1)
        for truth, seen in zip(people, reports, strict=True):
            chance *= weight[(truth ^ seen).bit_count()]
        yield np.bincount(reports, minlength=1 << j), chance


COLLECTIONS = [((0,), 1), ((0, 1, 1), 1), ((0, 3), 2), ((1, 1, 2), 2), ((5, 2), 3), ((7, 0), 3)]


class TestUnbiased:
    @pytest.mark.parametrize("q", [Fraction(1, 8), Fraction(3, 8), Fraction(7, 16)])
    @pytest.mark.parametrize(("people", "j"), COLLECTIONS)
    def test_counts(self, people: tuple[int, ...], j: int, q: Fraction):
        mean = np.zeros(1 << j)
        for counts, chance in outputs(people, j, q):
            made = estimate_joint(counts, float(q), BITS[:j])
            mean += float(chance) * np.array(
                [made[index_values(v, j)].count for v in range(1 << j)]
            )
        assert np.allclose(mean, np.bincount(people, minlength=1 << j), atol=1e-11)

    @pytest.mark.parametrize("q", [Fraction(1, 8), Fraction(3, 8), Fraction(7, 16)])
    @pytest.mark.parametrize(("people", "j"), COLLECTIONS)
    def test_variances(self, people: tuple[int, ...], j: int, q: Fraction):
        mean, square, claimed = (np.zeros(1 << j) for _ in range(3))
        for counts, chance in outputs(people, j, q):
            made = estimate_joint(counts, float(q), BITS[:j])
            cells = [made[index_values(v, j)] for v in range(1 << j)]
            mean += float(chance) * np.array([cell.count for cell in cells])
            square += float(chance) * np.array([cell.count**2 for cell in cells])
            claimed += float(chance) * np.array([cell.variance for cell in cells])
        assert np.allclose(claimed, square - mean**2, rtol=1e-9)

    def test_one_bit_agrees_with_the_known_sigma(self):
        """For j = 1 the mean of the claimed variance is n q p / (p - q)^2, whatever the truth."""
        q = Fraction(3, 8)
        for people in ((0, 0, 1), (1, 1, 1)):
            claimed = sum(
                float(chance) * estimate_joint(counts, float(q), BITS[:1])[1].variance
                for counts, chance in outputs(people, 1, q)
            )
            assert math.isclose(claimed, 3 * q * (1 - q) / (1 - 2 * q) ** 2)

    @pytest.mark.parametrize("q", [0.01, 0.1, 0.25])
    @pytest.mark.parametrize("j", [1, 2, 3])
    def test_sigma_is_never_below_what_any_crowd_has(self, q: float, j: int):
        """However the reports fall, n people give a cell at least n times the least variance.

        A person at distance d from the cell adds a^(j-d) b^d, minus 1 if d = 0, with
        a = E[w^2 | same bit] and b = E[w^2 | other bit]; an estimate that is cut off at zero would
        claim to know the cell exactly.
        """
        keep, flip = (1 - q) / (1 - 2 * q), -q / (1 - 2 * q)
        a, b = (1 - q) * keep**2 + q * flip**2, (1 - q) * flip**2 + q * keep**2
        least = min(a ** (j - d) * b**d - (d == 0) for d in range(j + 1))
        for shown in range(1 << j):
            counts = np.zeros(1 << j, np.int64)
            counts[shown] = 3
            for cell in estimate_joint(counts, q, BITS[:j]).cells:
                assert cell.sigma**2 >= 3 * least * (1 - 1e-9)


def index_values(index: int, j: int) -> tuple[int, ...]:
    return tuple(index >> place & 1 for place in range(j))


class TestInverse:
    @pytest.mark.parametrize("j", [1, 2, 3, 4, 8])
    @pytest.mark.parametrize("q", [0.01, 0.25, 0.45])
    def test_against_the_dense_inverse(self, j: int, q: float):
        counts = np.random.default_rng(j).integers(0, 1000, 1 << j)
        channel = np.ones((1, 1))
        for _ in range(j):
            channel = np.kron(channel, np.array([[1 - q, q], [q, 1 - q]]))
        inverse = np.linalg.inv(channel)
        wanted = inverse @ counts
        spread = (inverse**2) @ counts - wanted
        made = estimate_joint(counts, q, [("f", str(i)) for i in range(j)])
        for cell in made.cells:
            index = sum(value << place for place, value in enumerate(cell.values))
            assert math.isclose(cell.count, wanted[index], rel_tol=1e-6, abs_tol=1e-6)
            assert math.isclose(cell.variance, spread[index], rel_tol=1e-6, abs_tol=1e-5)
        assert math.isclose(sum(cell.count for cell in made.cells), counts.sum())

    def test_marginals_are_the_single_estimates(self):
        counts = np.array([10, 20, 30, 40])
        made = estimate_joint(counts, 0.25, BITS[:2])
        assert math.isclose(made[1, 0].count + made[1, 1].count, (60 - 25) / 0.5)
        assert math.isclose(made[0, 1].count + made[1, 1].count, (70 - 25) / 0.5)


class TestThroughEstimates:
    PLAN = Plan(
        Survey("s", (Flags("f", ("a", "b")), Flags("g", ("c",)))),
        FlipProbability(1, 2),
        Promise("local", "9"),
    )

    def estimates(self) -> Estimates:
        rows = np.array([[1]] * 4 + [[3]] * 2 + [[5]] * 3 + [[0]] * 3, np.uint8)
        return estimate(self.PLAN, tally(self.PLAN, Synthetic(rows, 3)))

    def test_by_names_in_any_order(self):
        one = self.estimates().joint(("f", "a"), ("g", "c"))
        two = self.estimates().joint(("g", "c"), ("f", "a"))
        for a, c in itertools.product((0, 1), repeat=2):
            assert math.isclose(one[a, c].count, two[c, a].count)
        channel = np.array([[0.75, 0.25], [0.25, 0.75]])
        table = np.array([[3, 0], [6, 3]])  # [a][c] as reported
        undone = np.linalg.inv(channel) @ table @ np.linalg.inv(channel)
        assert math.isclose(one[1, 1].count, undone[1, 1])
        assert math.isclose(one[1, 0].count, undone[1, 0])

    def test_a_bit_with_itself(self):
        with pytest.raises(InputError):
            self.estimates().joint(("f", "a"), ("f", "a"))

    def test_no_bits(self):
        with pytest.raises(InputError):
            self.estimates().joint()

    def test_unknown(self):
        with pytest.raises(InputError, match="no option"):
            self.estimates().joint(("f", "z"))
        with pytest.raises(InputError, match="2 values of 0 or 1"):
            self.estimates().joint(("f", "a"), ("f", "b"))[1, 2]

    def test_interval(self):
        cell = self.estimates().joint(("f", "a"), ("f", "b"))[1, 0]
        made = cell.interval(0.9)
        assert math.isclose(made.high - made.low, 2 * 1.6448536269514722 * cell.sigma)
        assert made.kind == "normal"

    def test_a_population_varies_by_who_was_drawn_too(self):
        """Few flips: the count of both is that of a sample, and its interval Wilson's."""
        rows = np.array([[3]] * 30 + [[0]] * 70, np.uint8)
        plan = Plan(self.PLAN.survey, FlipProbability.at_least("1e-12"), Promise("local", "99"))
        counts = tally(plan, Synthetic(rows, 3))
        crowd, population = (
            estimate(plan, counts, target=target).joint(("f", "a"), ("f", "b"))[1, 1]
            for target in ("crowd", "population")
        )
        assert crowd.sigma < 1e-3
        assert math.isclose(population.sigma, math.sqrt(100 * 0.3 * 0.7), rel_tol=1e-6)
        wilson = binomtest(30, 100).proportion_ci(0.95, "wilson")
        made = population.interval(0.95)
        assert math.isclose(made.low, 100 * wilson.low, rel_tol=1e-6)
        assert math.isclose(made.high, 100 * wilson.high, rel_tol=1e-6)

    def test_counts_of_another_size(self):
        with pytest.raises(InputError, match="2 bits have 4 joint counts, got 3"):
            estimate_joint(np.zeros(3, np.int64), 0.25, BITS[:2])
