"""Wide surveys take shortcuts. Each is held against the long way round, on problems small enough.

The shortcuts are made to be taken by lowering the sizes from which on they are. What they return
must still enclose the truth: `slow` is a bracket so narrow that it stands for it.
"""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from shoal.theory import blanket, homogeneous, proven, stop_loss, sufficient
from shoal.theory.brackets import UNIT, binomial_log_weights, log_sum
from shoal.theory.domains import Block, Triple, at_most, choice, classes, flags, maximal_classes
from shoal.theory.stop_loss import tilt as softening
from shoal.theory.stop_loss.reduction import reduce_draw
from tests.theory.plain_draws import draw_of

SURE = blanket.Doubt(0.0, 0.0)

SMALL = [
    (flags(6),),
    (choice(4),),
    (at_most(3, 8),),
    (choice(3), choice(3), choice(3)),
    (choice(2), at_most(2, 5), flags(2)),
    (at_most(1, 4), at_most(1, 4), choice(5)),
    (at_most(3, 4), choice(3)),
]


TINY = [(flags(2),), (choice(3),), (at_most(1, 3),)]


def cells(seed, count, domains=SMALL):
    """Random domains, crowds, flip probabilities and epsilons, most with a delta worth the name."""
    dice = random.Random(seed)
    return [
        (
            dice.choice(domains),
            round(10 ** dice.uniform(0.5, 6)),
            dice.uniform(0.05, 0.45),
            dice.choice([0.0, dice.uniform(0.0, 2.0)]),
        )
        for _ in range(count)
    ]


def meet(fast, slow):
    """Whether a bracket may hold what a narrow bracket holds."""
    return fast.low <= slow.high and slow.low <= fast.high


def fractions(problem):
    """Exact atoms and weights of a problem as its floats say them."""
    return [Fraction(float(x)) for x in problem.x], np.exp(problem.log_weight)


def exact_stop_loss(atoms, weights, n):
    """Sum over all outcomes of n draws."""
    return sum(
        math.prod((weights[i] for i in draws), start=Fraction(1))
        * max(sum((atoms[i] for i in draws), start=Fraction(0)), Fraction(0))
        for draws in itertools.product(range(len(atoms)), repeat=n)
    )


def log_gamma(domain: tuple[Block, ...], q: float) -> float:
    """Logarithm of the blanket's mass: the share of reports that say nothing of their original."""
    return min(log_sum(blanket._totals(domain, q)[0].log_mass), 0.0)


class TestMerging:
    @pytest.fixture(params=range(4))
    def problem(self, request, monkeypatch):
        """A law with atoms over many orders of magnitude and a dozen nodes for them."""
        monkeypatch.setattr(stop_loss, "_NODES", 8)
        dice = np.random.default_rng(request.param)
        size = dice.exponential(1.0, 30) * 10.0 ** dice.uniform(-3, 0, 30)
        atoms = np.append(size * dice.choice([-1, 1], 30), 0.0)
        weights = dice.dirichlet(np.full(31, 0.5))
        return reduce_draw(draw_of(atoms, weights), 2)

    def test_the_pair_encloses_the_truth_and_its_weights_are_as_exact_as_it_says(self, problem):
        pair = stop_loss.merge(problem, 2)
        assert max(pair.below.x.size, pair.above.x.size) <= 12 < problem.x.size
        given = [Fraction(float(x)) for x in problem.x]
        masses = [Fraction(math.exp(w)) for w in problem.log_weight]
        truth = exact_stop_loss(given, masses, 2)
        ends = []
        for merged, sign in ((pair.below, -1), (pair.above, 1)):
            atoms = [
                Fraction(float(x)) + sign * Fraction(float(dx))
                for x, dx in zip(merged.x, merged.dx, strict=True)
            ]
            doubt = 16 * UNIT * (1 + np.abs(merged.log_weight) + merged.blur)
            weights = [
                Fraction(math.exp(w)) * (1 + sign * Fraction(float(d)))
                for w, d in zip(merged.log_weight, doubt, strict=True)
            ]
            ends.append(exact_stop_loss(atoms, weights, 2))
            # The mass and, within the errors that are stated, the mean are kept.
            assert abs(sum(weights) - sum(masses)) <= 2 * max(doubt)
        assert ends[0] <= truth <= ends[1]

    def test_sums_of_weights_are_within_their_blur(self, problem):
        nodes = stop_loss._nodes(problem, 2)
        place = np.clip(np.searchsorted(nodes, problem.x, side="right") - 1, 0, nodes.size - 2)
        below = stop_loss.merge(problem, 2).below
        exact: dict[int, Fraction] = {}
        for where, weight in zip(place, problem.log_weight, strict=True):
            exact[where] = exact.get(where, Fraction(0)) + Fraction(math.exp(weight))
        doubt = 16 * UNIT * (1 + np.abs(below.log_weight) + below.blur)
        for where, log_weight, error in zip(sorted(exact), below.log_weight, doubt, strict=True):
            near = Fraction(math.exp(log_weight))
            assert abs(near - exact[where]) <= Fraction(float(error)) * exact[where]

    def test_errors_of_atoms_are_passed_on(self, problem):
        rough = problem._replace(dx=np.full(problem.x.size, 1e-3))
        pair = stop_loss.merge(rough, 2)
        assert (pair.below.dx >= 1e-3).all()
        assert (pair.above.dx >= 1e-3).all()

    @pytest.mark.slow
    @pytest.mark.parametrize("crowd", [(4, 3, 2), (9, 0, 3), (2, 8, 1)])
    @pytest.mark.parametrize(("N", "q"), [(20, 0.2), (3000, 0.3), (10**6, 0.38), (10**8, 0.4)])
    def test_merged_crowds_enclose_their_delta(self, crowd, N, q, monkeypatch):
        slow = homogeneous.delta(crowd, N, q, 0.5, 1e-7)
        monkeypatch.setattr(stop_loss, "MANY", 20)
        monkeypatch.setattr(stop_loss, "_NODES", 30)
        fast = homogeneous.delta(crowd, N, q, 0.5)
        assert meet(fast, slow)

    def test_a_thousand_nodes_lose_little(self, monkeypatch):
        crowd, N, q = (14, 14, 14), 10**6, 0.37
        slow = homogeneous.delta(crowd, N, q, 1.0)
        monkeypatch.setattr(stop_loss, "MANY", 1000)
        fast = homogeneous.delta(crowd, N, q, 1.0)
        assert meet(fast, slow)
        assert fast.relative_width < 0.01


class TestBlanket:
    @pytest.mark.parametrize(("highest", "q"), [(40, 0.3), (60, 0.45), (30, 0.05)])
    def test_spread_ratios_keep_mass_and_mean(self, highest, q, monkeypatch):
        """Sum to 1, have mean (q theta^2 + p)^k, and are larger in convex order."""
        monkeypatch.setattr(blanket, "_MAX_POWERS", 12)
        powers, log_mass, _ = blanket._loose_side(highest, q)
        assert powers.size <= 14
        unit = math.log((1 - q) / q)
        mass = np.exp(log_mass)
        assert math.fsum(mass) == pytest.approx(1.0, rel=1e-12)
        mean = math.fsum(np.exp(log_mass + powers * unit))
        assert mean == pytest.approx(((1 - q) ** 2 / q + 1 - q) ** highest, rel=1e-11)
        full = binomial_log_weights(highest, q)
        for level in np.arange(0, 2 * highest, 5) * unit:
            calls = [
                math.fsum(np.exp(w) * np.maximum(np.exp(np.asarray(i) * unit - level) - 1, 0.0))
                for i, w in ((2 * np.arange(highest + 1), full), (powers, log_mass))
            ]
            assert calls[0] <= calls[1] * (1 + 1e-10)

    @pytest.mark.slow
    @pytest.mark.parametrize(("domain", "N", "q", "epsilon"), cells(1, 14))
    def test_looser_forms_are_no_smaller(self, domain, N, q, epsilon, monkeypatch):
        """The forms that are taken among many questions never promise more than the exact ones."""
        slow = blanket.blanket_delta(domain, N, q, epsilon)
        monkeypatch.setattr(blanket, "_FEW_BITS", 0)
        monkeypatch.setattr(blanket, "_MAX_POWERS", 5)
        assert blanket.blanket_delta(domain, N, q, epsilon).high >= slow.low

    @pytest.mark.parametrize("count", [2, 3, 7, 12])
    @pytest.mark.parametrize("block", [choice(3), choice(12), at_most(1, 5), at_most(2, 3)])
    def test_every_copy_of_a_block_counts(self, block, count, monkeypatch):
        """The blanket of equal blocks is the power of one, in every form."""
        one = log_gamma((block,), 0.3)
        assert log_gamma((block,) * count, 0.3) <= count * one + 1e-9
        monkeypatch.setattr(blanket, "_FEW_BITS", 0)
        many = log_gamma((block,) * count, 0.3)
        assert many <= count * one + 1e-9
        if block.highest == block.lowest:
            assert many >= count * one - blanket._LEAST_GAIN - 1e-9

    def test_equal_pairs_of_powers_are_added(self):
        table = blanket.merged(
            [3, -2, 3, 0], [-5, 4, -5, 0], np.log([0.25, 0.25, 0.25, 0.25]), SURE
        )
        pairs = dict(zip(zip(table.towards, table.away, strict=True), table.log_mass, strict=True))
        assert {pair: round(math.exp(m), 12) for pair, m in pairs.items()} == {
            (-2, 4): 0.25,
            (0, 0): 0.25,
            (3, -5): 0.5,
        }


class TestAttack:
    @pytest.mark.slow
    @pytest.mark.parametrize(("domain", "N", "q", "epsilon"), cells(2, 10))
    def test_a_shorter_list_finds_no_more_and_little_less(self, domain, N, q, epsilon, monkeypatch):
        slow = homogeneous.attack(domain, N, q, epsilon)
        monkeypatch.setattr(homogeneous, "_FEW_ATOMS", 0)
        fast = homogeneous.attack(domain, N, q, epsilon)
        assert fast.delta.low <= slow.delta.high
        assert fast.delta.high >= 0.8 * slow.delta.low

    @pytest.mark.parametrize(("domain", "N", "q", "epsilon"), cells(3, 6, TINY))
    def test_eta_of_a_shorter_list_is_no_larger(self, domain, N, q, epsilon, monkeypatch):
        slow = sufficient.sufficient_eta(domain, N, q, epsilon)
        monkeypatch.setattr(homogeneous, "_FEW_ATOMS", 0)
        monkeypatch.setattr(sufficient, "MAX_KINDS", 0)
        fast = sufficient.sufficient_eta(domain, N, q, epsilon)
        assert not fast.exhaustive
        assert fast.eta.low <= slow.eta.high
        assert fast.kinds <= 2

    @pytest.mark.parametrize("crowd", [(1, 1, 0), (2, 0, 0), (0, 2, 0), (1, 1, 1), (2, 1, 0)])
    def test_the_bound_on_eta_holds(self, crowd):
        """It is what is left where delta is hardly known."""
        sizes = [(2, 0.2), (5, 0.3), (9, 0.4)]
        for (N, q), epsilon in itertools.product(sizes, [0.0, 0.3, 1.0]):
            truth = homogeneous._eta_enumerated(crowd, N, q, epsilon)
            assert homogeneous._eta_bound(crowd, N, q, epsilon) >= truth.low, (N, q, epsilon)

    def test_eta_falls_back_where_delta_is_hardly_known(self, monkeypatch):
        crowd, N, q, epsilon = (3, 2, 0), 2000, 0.3, 0.2
        slow = homogeneous.eta(crowd, N, q, epsilon)
        whole = homogeneous._delta

        def vague(*args, **kwargs):
            bracket = whole(*args, **kwargs)
            return type(bracket)(0.5 * bracket.low, min(2.0 * bracket.high, 1.0))

        monkeypatch.setattr(homogeneous, "_delta", vague)
        fast = homogeneous.eta(crowd, N, q, epsilon)
        assert fast.low <= slow.low <= slow.high <= fast.high

    def test_a_net_of_equal_blocks_is_feasible(self, monkeypatch):
        domain = (choice(3),) * 5
        every = classes(domain)
        monkeypatch.setattr("shoal.theory.domains._FEW_COPIES", 2)
        net = maximal_classes(domain)
        assert net <= every
        assert {Triple(10, 0, 0), Triple(0, 10, 0), Triple(5, 5, 5)} <= net


@pytest.mark.parametrize("seed", range(3))
def test_the_price_of_a_cut_falls_as_its_ceiling_rises(seed):
    """What `soften` leaves out because the highest ceiling is too dear."""
    dice = np.random.default_rng(seed)
    atoms = dice.normal(size=60) * 10.0 ** dice.uniform(-4, 0, 60)
    problem = reduce_draw(draw_of(atoms, dice.dirichlet(np.full(60, 0.4))), 500)
    for level in (1e-3, 1e-2, 0.1):
        prices = [
            softening._log_price(problem, 500, level, level * ratio)
            for ratio in softening._RATIOS
            if level * ratio < 0.5
        ]
        for dearer, cheaper in itertools.pairwise(prices):
            assert cheaper <= dearer + 1e-9


def test_a_wide_plan_is_as_good_to_four_digits(monkeypatch):
    tight = proven.proven_q((flags(20),), 10**5, 1.0, 1e-6)
    monkeypatch.setattr(proven, "_WIDE", 0)
    wide = proven.proven_q((flags(20),), 10**5, 1.0, 1e-6)
    assert wide.at.high <= 1e-6
    assert wide.value == pytest.approx(tight.value, rel=1e-4)


def test_masses_that_no_float_holds_are_merged():
    far = blanket.Ratios(np.array([0, 1]), np.array([1, 0]), np.array([0.0, -20_000.0]), SURE)
    assert blanket._convolved(far, far) is None
    assert blanket.product(far, far, 0.5).log_mass[-1] == pytest.approx(-40_000.0)
