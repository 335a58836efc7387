import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory.brackets import binomial_log_weights
from shoal.theory.stop_loss import inversion, reduction, stop_loss_of
from tests.theory.plain_draws import draw_of, stop_loss


def exactly(atoms, weights, n, threshold):
    law = {Fraction(0): Fraction(1)}
    for _ in range(n):
        grown: dict[Fraction, Fraction] = {}
        for total, chance in law.items():
            for y, w in zip(atoms, weights, strict=True):
                grown[total + y] = grown.get(total + y, 0) + chance * w
        law = grown
    return sum(chance * max(total - threshold, 0) for total, chance in law.items())


def dyadic_weights(rng, k):
    cuts = sorted(rng.sample(range(1, 4096), k - 1))
    return [Fraction(b - a, 4096) for a, b in zip([0, *cuts], [*cuts, 4096], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_the_exact_value_is_in_the_bracket(seed, monkeypatch):
    """Few outcomes are enumerated by default; without that the integral has to prove itself."""
    rng = random.Random(seed)
    k = rng.randint(2, 4)
    n = rng.randint(1, 12 if k < 4 else 8)
    atoms = [Fraction(rng.randint(-40, 40), rng.choice([1, 2, 4, 8, 64])) for _ in range(k)]
    # heavy on either side, or on both
    atoms[0] *= rng.choice([1, 1, 1000])
    atoms[1] *= rng.choice([1, 1, 1000])
    weights = dyadic_weights(rng, k)
    threshold = Fraction(rng.randint(-100, 200), 4)
    exact = exactly(atoms, weights, n, threshold)
    # where the sum can equal the threshold the width falls only linearly in the effort
    for few, width in ((reduction._FEW, 1e-9), (0, 1e-2)):
        monkeypatch.setattr(reduction, "_FEW", few)
        bracket = stop_loss(
            [float(y) for y in atoms], [float(w) for w in weights], n, float(threshold)
        )
        assert Fraction(bracket.low) <= exact <= Fraction(bracket.high)
        assert bracket.relative_width < width


def binomial_stop_loss(n, q, up, down):
    """E[(up * B - down * (n - B))_+], B binomial, in 60 digits."""
    with mpmath.workdps(60):
        q, up, down = mpmath.mpf(q), mpmath.mpf(up), mpmath.mpf(down)
        first = int(mpmath.ceil(n * down / (up + down)))
        chance = mpmath.binomial(n, first) * q**first * (1 - q) ** (n - first)
        total = mpmath.mpf(0)
        for k in range(first, n + 1):
            term = chance * (up * k - down * (n - k))
            total += term
            if k > first + 10 and term < total * mpmath.mpf(10) ** -40:
                break
            chance *= q / (1 - q) * (n - k) / (k + 1)
        return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "q", "up", "down"),
    [
        (100, 0.25, 1.0, 0.5),
        (10_000, 0.01, 30.0, 0.5),
        (1_000_000, 0.3, 1.0, 0.431),
        (1_000_000, 1e-5, 1.0, 1e-4),
        (1_000_000, 0.001, 2000.0, 2.3),
        (10_000_000, 0.4, 1.0, 0.6675),
    ],
)
def test_two_atoms_against_sixty_digits(n, q, up, down, monkeypatch):
    monkeypatch.setattr(reduction, "_FEW", 0)
    exact = binomial_stop_loss(n, q, up, down)
    bracket = stop_loss([up, -down], [q, 1 - q], n)
    assert bracket.low <= exact <= bracket.high
    assert bracket.is_within(1e-4)


def test_gridded_and_direct_sums_agree_with_the_factored_one():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, 70)
    w = rng.dirichlet(np.ones(70))
    step, count = 0.37, 900
    v = step * np.arange(count, dtype=np.float64)
    reference = inversion._direct(w, x, v)
    gridded, error = inversion._gridded(w, x, step, count)
    assert (np.abs(gridded - reference) <= error + 1e-13).all()
    assert np.abs(gridded - reference).max() < 1e-13
    assert np.abs(inversion._factored(w, x, v) - reference).max() < 1e-12


def test_shortcuts():
    assert stop_loss([-1.0, -2.0], [0.5, 0.5], 10) == (0.0, 0.0)
    linear = stop_loss([1.0, 2.0], [0.5, 0.5], 10, threshold=5.0)
    assert linear.low <= 10.0 <= linear.high
    assert linear.is_within(1e-12)
    single = stop_loss([-3.0, 5.0], [0.75, 0.25], 1)
    assert single.low <= 1.25 <= single.high
    constant = stop_loss([2.0], [1.0], 7, threshold=20.0)
    assert constant == (0.0, 0.0)


def test_an_impossible_width_is_not_claimed():
    # the sum is exactly at the threshold's kink with a large probability
    bracket = stop_loss([-1.0, 1.0, 0.0], [0.3e-6, 0.2e-6, 1 - 0.5e-6], 10**6, rtol=1e-13)
    assert 0 < bracket.low <= bracket.high
    assert not bracket.is_within(1e-13)


@pytest.mark.parametrize(("n", "rtol"), [(0, 1e-4), (1, 0.0)])
def test_nonsense_is_refused(n, rtol):
    with pytest.raises(ValueError, match="n must be"):
        stop_loss_of(draw_of([1.0], [1.0]), n, rtol)


@pytest.mark.parametrize("n", [300, 2000])
def test_binomial_weights_against_exact_integers(n):
    """Of 2,000 the ends are smaller than any float."""
    q = Fraction(11, 32)
    logs = binomial_log_weights(n, float(q))
    for i in (0, 1, n // 3, 2 * n // 3, n):
        exact = math.comb(n, i) * q**i * (1 - q) ** (n - i)
        with mpmath.workdps(40):
            expected = mpmath.log(mpmath.mpf(exact.numerator) / exact.denominator)
            assert abs(logs[i] - expected) <= 4e-16 * abs(expected)
