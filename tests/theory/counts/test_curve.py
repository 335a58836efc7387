import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.theory.composition import composed_delta
from shoal.theory.counts import profile as curve
from shoal.theory.counts import spread_losses
from shoal.theory.counts.profile import largest_excess, merged_atoms, steps, upper_curves
from tests.theory.single_changes import one_bit_delta

from .oracle import count_law, hockey_stick


@pytest.mark.parametrize("q", [Fraction(1, 64), Fraction(1, 4), Fraction(7, 16)])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_upper_curves_are_exact_for_small_crowds(n, q):
    """Also where lam is the ratio of an outcome, so that two thresholds tie."""
    for m in range(n):
        one, zero = count_law(m + 1, n - 1 - m, q), count_law(m, n - m, q)
        ties = {a / b for a, b in zip(one, zero, strict=True) if a >= b}
        lams = sorted(ties | {Fraction(1), Fraction(11, 10), Fraction(5, 2), Fraction(100)})
        excess = np.array([float(lam - 1) for lam in lams])
        (row,) = upper_curves(np.array([m]), np.array([n - 1 - m]), float(q), excess)
        for lam, value in zip(excess, row, strict=True):
            truth = hockey_stick(one, zero, Fraction(float(lam)) + 1)
            assert float(truth) * (1 - 1e-15) <= value <= float(truth) * (1 + 1e-9) + 1e-14


def test_the_interior_example():
    """N = 3, q = 1/4, lam = 11/10: 89/320 in the middle, less at the ends."""
    values = upper_curves(np.array([0, 1, 2]), np.array([2, 1, 0]), 0.25, np.array([0.1])).ravel()
    assert values == pytest.approx([143 / 640, 89 / 320, 171 / 640], rel=1e-9)


@pytest.mark.parametrize(("n", "q"), [(10**5, 0.05), (10**8, 1e-3)])
def test_upper_curves_against_the_one_bit_engine(n, q):
    """Another engine, with a tilt of its own for each epsilon; sampled places cost little."""
    sigma = math.sqrt(n * q * (1 - q))
    epsilons = np.array([0.0, 1.0, 3.0, 6.0]) / sigma
    for ones in (0, n // 3, n - 1):
        (row,) = upper_curves(np.array([ones]), np.array([n - 1 - ones]), q, np.expm1(epsilons))
        for epsilon, value in zip(epsilons, row, strict=True):
            other = one_bit_delta(n, ones, q, float(epsilon))
            assert other.low * (1 - 1e-9) <= value <= other.high * (1 + 2e-2)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("part", ["before", "here", "above"])
@pytest.mark.parametrize("q", [Fraction(1, 64), Fraction(1, 4)])
def test_errors_of_the_steps_arrive(q, part, sign, monkeypatch):
    """A probability that is wrong by what it says: the curve is above the truth all the same."""
    large = 5e-7

    def spoiled(*arguments):
        for entry in steps(*arguments):
            wrong = getattr(entry, part) * (1 + sign * large)
            yield entry._replace(**{part: wrong, f"{part}_error": 1.01 * large * wrong})

    monkeypatch.setattr(curve, "steps", spoiled)
    for m in range(9):
        one, zero = count_law(m + 1, 8 - m, q), count_law(m, 9 - m, q)
        ties = {a / b for a, b in zip(one, zero, strict=True) if a > b}
        near = (1 - Fraction(large), 1, 1 + Fraction(large))
        excess = np.array(sorted(float(lam * factor - 1) for lam in ties for factor in near))
        (row,) = upper_curves(np.array([m]), np.array([8 - m]), float(q), excess)
        for lam, value in zip(excess, row, strict=True):
            truth = float(hockey_stick(one, zero, Fraction(float(lam)) + 1))
            assert truth * (1 - 1e-12) <= value <= truth + 1e-5


def test_the_ends_of_a_curve():
    excess = np.array([0.0, largest_excess(0.25), 1e6])
    row = upper_curves(np.array([5]), np.array([5]), 0.25, excess)[0]
    assert row[0] > 0.0
    assert row[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("ones", "zeros"), [(0, 0), (2, 0), (0, 3), (4, 4)])
def test_atoms_are_below_the_pair(ones, zeros):
    """For a small crowd nothing is merged: the same losses, a little lower."""
    q = Fraction(3, 16)
    one, zero = count_law(ones + 1, zeros, q), count_law(ones, zeros + 1, q)
    atoms = merged_atoms(ones, zeros, float(q))
    assert atoms.mass == pytest.approx([float(x) for x in one], rel=1e-9)
    for mass, loss, a, b in zip(atoms.mass, atoms.loss, one, zero, strict=True):
        assert mass <= float(a)
        assert loss <= math.log(a / b)
        assert loss == pytest.approx(math.log(a / b), abs=1e-9)


@pytest.mark.parametrize(("n", "q"), [(10**4, 0.01), (10**6, 0.01)])
def test_merged_atoms_lose_little(n, q):
    epsilon = 3.0 / math.sqrt(n * q)
    atoms = merged_atoms(n - 1, 0, q)
    assert 1.0 - 1e-8 < atoms.mass.sum() <= 1.0
    below = float(atoms.mass @ np.maximum(-np.expm1(epsilon - atoms.loss), 0.0))
    truth = one_bit_delta(n, n - 1, q, epsilon)
    assert 0.99 * truth.low <= below <= truth.high
    grid = composed_delta(spread_losses(atoms, 1e-3 * epsilon), 1, epsilon)
    assert grid.low == pytest.approx(below, rel=1e-2)
