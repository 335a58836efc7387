"""Sums of losses against all tuples of them, and each error term made large."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from shoal.theory import composition
from shoal.theory.calibration import smallest_epsilon
from shoal.theory.composition import (
    Losses,
    composed_delta,
    convex_profile,
    dominating_losses,
    gaussian_delta,
    gaussian_mu,
    losses_of_curve,
)
from shoal.theory.counts.profile import bit_profile


def truth(losses, d, epsilon):
    """All d-tuples of losses, sums of many floats left to fsum."""
    atoms = list(zip((losses.node * losses.step).tolist(), losses.mass.tolist(), strict=True))
    terms = []
    for some in itertools.product(atoms, repeat=d):
        rest = math.fsum(x for x, _ in some) - epsilon
        if rest > 0.0:
            terms.append(math.prod(w for _, w in some) * -math.expm1(-rest))
    total = math.fsum(losses.mass.tolist()) + losses.infinite
    return math.fsum(terms) - total**d * math.expm1(d * math.log1p(-losses.infinite / total))


def random_losses(rng, nodes=9):
    node = np.array(sorted(rng.sample(range(-40, 41), nodes)))
    mass = np.array([rng.random() ** 4 for _ in range(nodes)])
    return Losses(rng.choice([0.01, 0.2, 3.0]), node, mass / mass.sum(), rng.choice([0.0, 1e-9]))


@pytest.mark.slow
def test_sums_of_random_losses():
    """Whatever is asked: losses on both sides, heavy ends, epsilon at a node or beyond the last."""
    rng = random.Random(5)
    for case in range(120):
        losses, d = random_losses(rng), rng.randint(1, 4)
        top = d * losses.step * float(losses.node[-1])
        epsilon = max(0.0, rng.choice([0.0, 0.3 * top, 0.9 * top, top, 1.1 * top, losses.step]))
        exact, bracket = truth(losses, d, epsilon), composed_delta(losses, d, epsilon)
        assert bracket.low <= exact * (1 + 1e-12), case
        assert exact <= bracket.high * (1 + 1e-12) + 1e-300, case
        room = d * losses.infinite * 1.01
        assert bracket.high - room <= exact * (1 + 1e-6) + 1e-13, case
        if losses.infinite == 0.0 and exact > 1e-30:
            assert bracket.low >= exact * (1 - 1e-6), case


def test_tiny_deltas_keep_their_digits():
    """Biased coins: delta is a binomial tail, here between 1e-4 and 1e-60."""
    losses = Losses(0.5, np.array([-1, 1]), np.array([0.75, 0.25]), 0.0)
    for d, heads in ((20, 15), (100, 60), (100, 95), (400, 250)):
        epsilon = 0.5 * (2 * heads - d) - 0.25
        exact = math.fsum(
            float(Fraction(math.comb(d, k) * 3 ** (d - k), 4**d))
            * -math.expm1(epsilon - 0.5 * (2 * k - d))
            for k in range(heads, d + 1)
        )
        bracket = composed_delta(losses, d, epsilon)
        assert bracket.low <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= bracket.high <= exact * (1 + 1e-8)
        assert bracket.is_within(1e-7)


def test_two_thousand_normal_losses():
    """Losses of a normal mechanism, whose sum is known in closed form."""
    mu, h, d = 0.01, 0.0005, 2000
    node = np.arange(-200, 221)
    mass = np.exp(-((node * h - mu**2 / 2) ** 2) / (2 * mu**2))
    bracket = composed_delta(Losses(h, node, mass / mass.sum(), 0.0), d, 1.5)
    total = mu * math.sqrt(d)

    def below(x):
        return 0.5 * math.erfc(-x / math.sqrt(2))

    normal = below(total / 2 - 1.5 / total) - math.exp(1.5) * below(-total / 2 - 1.5 / total)
    assert bracket.high == pytest.approx(normal, rel=1e-5)
    assert bracket.is_within(1e-8)


@pytest.mark.parametrize(("N", "q"), [(1, 0.25), (3, 0.25), (12, 0.01), (500, 0.03), (10**6, 0.01)])
def test_losses_dominate_the_profile_on_both_sides_of_one(N, q):
    profile = bit_profile(N, q, 1e-2)
    losses = dominating_losses(profile.step, profile.high)
    assert 1.0 <= losses.mass.sum() + losses.infinite + 1e-15 < 1.0 + 1e-7
    x = losses.node * losses.step
    for i in np.linspace(0, profile.high.size - 1, 12).astype(int):
        lam = math.exp(i * profile.step)
        value = profile.high[i]
        above = losses.infinite + losses.mass @ np.maximum(-np.expm1(i * profile.step - x), 0.0)
        mirrored = losses.infinite + losses.mass @ np.maximum(-np.expm1(-i * profile.step - x), 0.0)
        assert value * (1 - 1e-12) <= above <= value * (1 + 1e-6) + 1e-9
        below = 1 - 1 / lam + value / lam
        assert below - 1e-12 <= mirrored <= below + 1e-7


def test_no_kink_at_one():
    """Stretches of different length on both sides of the middle must not add mass at lam = 1."""
    profile = bit_profile(525_795, 1.3945761348397322e-05, 1e-3)
    losses = dominating_losses(profile.step, profile.high)
    assert losses.mass.sum() < 1.0 + 1e-9
    assert composed_delta(losses, 9, 6.13).high < 0.0060


def test_a_dent_of_round_off_only_lifts_the_curve():
    h = 0.1
    high = np.array([0.5, 0.3, 0.25, 0.1, 0.0])
    assert (np.diff(np.diff(high) / np.diff(np.exp(h * np.arange(5)))) < 0).any()
    losses = dominating_losses(h, high)
    x = losses.node * h
    for i, value in enumerate(high):
        assert losses.mass @ np.maximum(-np.expm1(i * h - x), 0.0) >= value - 1e-15


def test_nodes_without_mass_change_nothing():
    """Much noise leaves the largest losses no mass that is a float, and tilts are large."""
    node, mass = np.array([-3, -1, 0, 1, 3, 400]), np.array([0.0, 0.25, 0.5, 0.25, 0.0, 0.0])
    bracket = composed_delta(Losses(1e-6, node, mass, 0.0), 2, 1e-6)
    some = composed_delta(Losses(1e-6, node[1:4], mass[1:4], 0.0), 2, 1e-6)
    exact = truth(Losses(1e-6, node, mass, 0.0), 2, 1e-6)
    assert bracket == some
    assert bracket.low <= exact <= bracket.high < exact * (1 + 1e-9)


class TestErrorTerms:
    """Each is made large where it arises, and must arrive in the bracket."""

    losses = Losses(0.1, np.array([-1, 0, 1]), np.array([0.3, 0.4, 0.3]), 0.0)

    def test_round_off_of_the_transform(self, monkeypatch):
        exact = truth(self.losses, 4, 0.05)
        honest = composition.mass_of_sum

        for shift in (-1e-3, 1e-3):

            def spoiled(*arguments, shift=shift):
                values, error = honest(*arguments)
                return values + shift, error + 1e-3

            monkeypatch.setattr(composition, "mass_of_sum", spoiled)
            bracket = composed_delta(self.losses, 4, 0.05)
            assert bracket.low <= exact <= bracket.high

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_round_off_of_the_weights(self, sign, monkeypatch):
        """Floats of six digits, and tilted masses that are wrong by what these allow."""

        def exact_power(parts, length):
            ((node, mass, d),) = parts
            assert d == 1
            return np.bincount(np.mod(node, length), weights=mass, minlength=length), 0.0

        losses = Losses(0.01, np.array([-1, 1]), np.array([0.3, 0.7]), 0.0)
        exact = truth(losses, 1, 0.0)
        honest = composition._tilt

        def spoiled(*arguments):
            tilt = honest(*arguments)
            return tilt._replace(mass=tilt.mass * (1 + sign * 40e-6))

        monkeypatch.setattr(composition, "mass_of_sum", exact_power)
        monkeypatch.setattr(composition, "_tilt", spoiled)
        monkeypatch.setattr(composition, "UNIT", 1e-6)
        bracket = composed_delta(losses, 1, 0.0)
        assert bracket.low <= exact <= bracket.high < 1.001 * exact

    def test_round_off_of_the_losses(self):
        """Epsilon is what a float makes of the largest loss, which is a little more."""
        h = 0.1
        nodes = [k for k in range(3, 400) if Fraction(k * h) < k * Fraction(h)]
        assert len(nodes) > 50
        for k in nodes:
            losses = Losses(h, np.array([-k, k]), np.array([0.5, 0.5]), 0.0)
            exact = (k * Fraction(h) - Fraction(k * h)) / 2
            assert composed_delta(losses, 1, k * h).high >= exact * (1 - Fraction(1, 10**9))

    def test_the_stated_round_off_is_large_enough(self):
        """Against an exact power, for lengths that are and are not powers of two."""
        rng = random.Random(3)
        node = np.arange(64)
        mass = np.array([rng.random() for _ in node])
        mass /= mass.sum()
        exact = [Fraction(0)] * 256
        parts = [Fraction(x) for x in mass.tolist()]
        for i, j in itertools.product(range(64), repeat=2):
            exact[i + j] += parts[i] * parts[j]
        for length in (128, 135, 154, 256):
            values, error = composition.mass_of_sum([(node, mass, 2)], length)
            wrapped = [sum(exact[j] for j in range(i, 256, length)) for i in range(length)]
            worst = max(abs(Fraction(v) - x) for v, x in zip(values.tolist(), wrapped, strict=True))
            assert worst <= error < 1e-13

    def test_windows_leak(self, monkeypatch):
        """A window that is far too small: what leaks is counted, at both ends."""
        fair = Losses(0.1, np.array([-1, 1]), np.array([0.45, 0.55]), 0.0)
        exact = composed_delta(fair, 200, 1.0)
        monkeypatch.setattr(composition, "_LEAK", 1.0)
        bracket = composed_delta(fair, 200, 1.0)
        assert bracket.low <= exact.low < exact.high <= bracket.high
        assert bracket.relative_width > 0.05

    def test_a_window_leaks_on_the_right(self, monkeypatch):
        """No sum is below the window, so that nothing that wraps round makes up for it."""
        monkeypatch.setattr(composition, "_LEAK", 0.0)
        cut = 0
        for d, share, epsilon in itertools.product((4, 8, 11), (0.05, 0.2, 0.5), (0.1, 0.5, 1.5)):
            losses = Losses(0.1, np.array([0, 7]), np.array([1 - share, share]), 0.0)
            exact, bracket = truth(losses, d, epsilon), composed_delta(losses, d, epsilon)
            assert bracket.low <= exact <= bracket.high
            cut += bracket.high > 1.001 * exact
        assert cut > 10

    def test_an_infinite_loss_is_counted_once_for_each_bit(self):
        bracket = composed_delta(self.losses._replace(infinite=1e-3), 5, 10.0)
        assert bracket.high == pytest.approx(5e-3, rel=1e-2)
        assert bracket.high >= 1 - (1 - 1e-3) ** 5


class TestCurves:
    """Losses of a curve: it is asked at finitely many places, and chords join them."""

    @staticmethod
    def hockey_stick(losses, epsilon):
        x = losses.node * losses.step
        return losses.infinite + losses.mass @ np.maximum(-np.expm1(epsilon - x), 0.0)

    @pytest.mark.parametrize("bulk", [0.2, 1.0, 2.9, 40.0])
    def test_losses_dominate_the_curve(self, bulk):
        def curve(epsilon):
            return max(0.4 - 0.02 * math.expm1(epsilon), 0.0)

        top = math.log(21.0) + 1e-9
        losses = losses_of_curve(curve, bulk, top)
        assert losses.infinite == 0.0
        for epsilon in np.linspace(0.0, top, 301).tolist():
            stick = self.hockey_stick(losses, epsilon)
            assert curve(epsilon) <= stick <= 1.02 * curve(epsilon) + 2e-3
            mirrored = -math.expm1(-epsilon) + math.exp(-epsilon) * curve(epsilon)
            assert self.hockey_stick(losses, -epsilon) >= mirrored - 1e-12

    def test_a_curve_that_does_not_end(self):
        """What is left at the top counts as an infinite loss."""
        losses = losses_of_curve(lambda epsilon: 0.5 * math.exp(-epsilon), 1.0, 3.0)
        assert losses.infinite == pytest.approx(0.5 * math.exp(-3.0))
        assert composed_delta(losses, 5, 100.0).high >= 1 - (1 - losses.infinite) ** 5
        assert losses_of_curve(lambda _: 0.5, 1.0, 1e6).infinite == 0.5

    def test_points_that_are_too_high_are_pulled_down(self):
        """The true profile is convex, so it is below every chord of points that are above it."""
        excess = np.array([0.0, 0.5, 1.0, 2.0])
        truth = (3.0 - excess) ** 2 / 36.0
        noisy = truth + np.array([0.0, 0.05, 0.0, 0.0])
        hull = convex_profile(excess, noisy)
        assert (hull >= truth - 1e-15).all()
        assert hull[1] < noisy[1] - 0.01

    def test_what_is_too_small_for_a_float_is_not_nothing(self):
        """A million coins of which nearly all must fall one way: 1e-1377, not 0."""
        losses = Losses(0.5, np.array([-1, 1]), np.array([0.3, 0.7]), 0.0)
        assert composed_delta(losses, 10**6, 300_000.0).high > 0.0
        assert composed_delta(losses, 10**6, 500_000.1).high == 0.0

    @pytest.mark.parametrize("d", [1, 10, 10**4, 10**6])
    def test_large_losses_stay_within_the_floats(self, d):
        """Whatever is asked, from a delta of nearly 1 to the largest loss that there is."""
        losses = Losses(13.0, np.array([-1, 1]), np.array([1e-6, 1.0 - 1e-6]), 0.0)
        for part in (0.0, 1e-3, 0.5, 0.99, 0.9999999, 1.0):
            epsilon = part * 13.0 * d
            all_heads = (1.0 - 1e-6) ** d * -math.expm1(epsilon - 13.0 * d)
            bracket = composed_delta(losses, d, epsilon)
            assert all_heads * (1 - 1e-9) <= bracket.high
            assert bracket.low <= all_heads + d * 1e-6


def test_the_smallest_epsilon_keeps_delta():
    for delta in (0.4, 1e-3, 1e-250):
        for rate in (1e-3, 1.0, 1e3):

            def curve(epsilon, rate=rate):
                return 0.5 * math.exp(-rate * epsilon)

            root = smallest_epsilon(curve, delta, 1e9)
            assert curve(root) <= delta
            assert root * rate == pytest.approx(math.log(0.5 / delta), rel=1e-4)
    assert smallest_epsilon(lambda _: 0.1, 0.2, 5.0) == 0.0
    assert smallest_epsilon(lambda _: 0.3, 0.2, 5.0) == 5.0


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 1.0), (2.5, 0.5), (0.24, 1.0)])
def test_delta_is_the_hockey_stick_of_two_normal_laws(mu, epsilon):
    def excess(x):
        return stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x)

    start = epsilon / mu + mu / 2  # from here on the excess is positive
    value, _ = integrate.quad(excess, start, start + 40, epsabs=1e-16, epsrel=1e-10)
    assert gaussian_delta(mu, epsilon) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.3])
def test_the_shift_reaches_delta(epsilon, delta):
    assert gaussian_delta(gaussian_mu(epsilon, delta, 1e-12), epsilon) == pytest.approx(delta)
