"""The profile of one bit against fractions and forty digits; its errors made large."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory.binomial import BinomialWindow
from shoal.theory.composition import composed_delta
from shoal.theory.counts import profile as profiles
from shoal.theory.counts import spread_losses
from shoal.theory.counts.profile import bit_profile, merged_atoms, steps, upper_curves
from tests.theory.oracle import bit_worst, count_law, hockey_stick
from tests.theory.single_changes import one_bit_delta


@pytest.mark.parametrize("q", [Fraction(1, 1024), Fraction(1, 4), Fraction(31, 64)])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
def test_small_crowds_exactly(n, q):
    profile = bit_profile(n, float(q), 2.5e-4)
    for i in np.linspace(0, profile.high.size - 1, 9).astype(int):
        lam = Fraction(math.exp(i * profile.step))
        truth = float(bit_worst(n, q, lam))
        assert truth * (1 - 1e-12) - 1e-16 <= profile.high[i]
        assert profile.best[i] <= truth * (1 + 1e-9) + 1e-12
        # the stated tolerance
        near = bit_worst(n, q, Fraction(math.exp(i * profile.step / 1.00025)))
        assert profile.high[i] <= 1.0025 * float(near) + 1e-12


@pytest.mark.parametrize("N", [10**9, 10**12])
@pytest.mark.parametrize("q", [1e-12, 1e-6, 0.3, 0.4999])
def test_the_whole_range(N, q):
    """Convex, falling, above what was found, and near a normal law where there is much noise."""
    profile = bit_profile(N, q, 1e-2)
    high = profile.high
    assert (np.diff(high) <= 0.0).all()
    grow = math.exp(profile.step)
    chord = (high[:-2] * grow + high[2:]) / (1.0 + grow)
    assert (high[1:-1] <= chord * (1 + 1e-9)).all()
    assert (profile.high >= profile.best * (1 - 1e-12)).all()
    assert profile.high[-1] <= 1e-38
    sigma = math.sqrt(N * q * (1 - q))
    if sigma > 1e3:
        # at lam = 1 delta is (1 - 2q) times the largest probability
        least = (1 - 2 * q) / (sigma * math.sqrt(2 * math.pi))
        assert 0.999 * least <= profile.high[0] <= (1.03 if sigma < 1e5 else 2.0) * least


def test_stopping_early_is_valid(monkeypatch):
    fine = bit_profile(2000, 0.01, 2.5e-4)
    monkeypatch.setattr(profiles, "_MAX_CROWDS", 1)
    early = bit_profile.__wrapped__(2000, 0.01, 2.5e-4)
    assert early.high.size == fine.high.size
    assert (early.high >= fine.best * (1 - 1e-12)).all()


@pytest.mark.parametrize("q", [Fraction(1, 64), Fraction(1, 4), Fraction(7, 16)])
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_upper_curves_are_exact_for_small_crowds(n, q):
    """Also where lam is the ratio of an outcome, so that two thresholds tie."""
    for m in range(n):
        one, zero = count_law(m + 1, n - 1 - m, q), count_law(m, n - m, q)
        ties = {a / b for a, b in zip(one, zero, strict=True) if a >= b}
        lams = sorted(
            ties | {Fraction(1), Fraction(11, 10), Fraction(5, 2), 1 / q, Fraction(10**6)}
        )
        excess = np.array([float(lam - 1) for lam in lams])
        (row,) = upper_curves(np.array([m]), np.array([n - 1 - m]), float(q), excess)
        for lam, value in zip(excess, row, strict=True):
            truth = hockey_stick(one, zero, Fraction(float(lam)) + 1)
            assert float(truth) * (1 - 1e-15) <= value <= float(truth) * (1 + 1e-9) + 1e-14


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

    monkeypatch.setattr(profiles, "steps", spoiled)
    for m in range(9):
        one, zero = count_law(m + 1, 8 - m, q), count_law(m, 9 - m, q)
        ties = {a / b for a, b in zip(one, zero, strict=True) if a > b}
        near = (1 - Fraction(large), 1, 1 + Fraction(large))
        excess = np.array(sorted(float(lam * factor - 1) for lam in ties for factor in near))
        (row,) = upper_curves(np.array([m]), np.array([8 - m]), float(q), excess)
        for lam, value in zip(excess, row, strict=True):
            truth = float(hockey_stick(one, zero, Fraction(float(lam)) + 1))
            assert truth * (1 - 1e-12) <= value <= truth + 1e-5


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


def holds(entry, truth, least=0.0):
    """Whether every step of `entry` is within its stated error of the truth, a dict by place."""
    above = dict.fromkeys(truth, 0)
    total = 0
    for place in sorted(truth, reverse=True):
        total += truth[place]
        above[place] = total
    for i, place in enumerate(entry.place):
        here = truth.get(int(place), 0)
        exact = truth.get(int(place) - 1, 0), here, above.get(int(place), 0)
        for value, error, wanted in zip(entry[1:4], entry[4:], exact, strict=True):
            off = abs(mpmath.mpf(float(value[i])) - mpmath.mpf(wanted))
            if off > error[i] * (1 + 1e-9) + least:
                return False
    return True


def small_truth(ones, zeros, q):
    """The law of the noise in exact fractions: the count of the others less their ones."""
    exact = count_law(ones, zeros, q)
    return {s - ones: mpmath.mpf(x.numerator) / x.denominator for s, x in enumerate(exact)}


@pytest.mark.parametrize("q", [Fraction(1, 2**20), Fraction(1, 8), Fraction(3, 8), Fraction(1, 2)])
@pytest.mark.parametrize(
    ("ones", "zeros"), [(0, 0), (0, 1), (1, 0), (3, 5), (40, 2), (30, 30), (3, 60)]
)
def test_little_noise_against_fractions(ones, zeros, q):
    with mpmath.workdps(40):
        (entry,) = steps(np.array([ones]), np.array([zeros]), float(q))
        assert holds(entry, small_truth(ones, zeros, q))
        assert entry.place[-1] == zeros + 1 or entry.above[-1] < 1e-50


def binomial_truth(n, q, sign):
    """Bin(n, q) or its negative in 40 digits, by the ratio of terms."""
    mean, reach = int(n * q), int(20 * (n * q) ** 0.5)
    first = max(0, mean - reach)
    q = mpmath.mpf(q)
    term = mpmath.binomial(n, first) * q**first * (1 - q) ** (n - first)
    truth = {}
    for s in range(first, mean + reach):
        truth[sign * s] = term
        term *= q / (1 - q) * (n - s) / (s + 1)
    return truth


@pytest.mark.parametrize(("n", "q"), [(10**5, 0.01), (10**8, 2.0**-16), (10**12, 2.0**-29)])
@pytest.mark.parametrize("sign", [1, -1])
def test_much_noise_against_forty_digits(n, q, sign):
    """One kind of people only: then the noise is a binomial."""
    ones, zeros = (0, n) if sign > 0 else (n, 0)
    with mpmath.workdps(60):
        (entry,) = steps(np.array([ones]), np.array([zeros]), q)
        assert entry.here.min() < 1e-38
        assert holds(entry, binomial_truth(n, q, sign), least=1e-60)
    usual = entry.above > 1e-40
    assert (entry.above_error < 1e-9 * entry.above)[usual].all()
    assert (entry.here_error < 1e-9 * entry.here)[usual].all()


def test_both_routes_agree(monkeypatch):
    """Two kinds of people: transforms against plain convolution."""
    ones, zeros, q = np.array([3000]), np.array([9000]), 0.125
    (much,) = steps(ones, zeros, q)
    monkeypatch.setattr(profiles, "_LITTLE_NOISE", 1e9)
    (little,) = steps(ones, zeros, q)
    by_place = {int(place): i for i, place in enumerate(little.place)}
    seen = 0
    for i, place in enumerate(much.place):
        j = by_place.get(int(place))
        if j is None or little.above[j] < 1e-45:
            continue
        seen += 1
        for mine, doubt, other, other_doubt in zip(
            much[1:4], much[4:], little[1:4], little[4:], strict=True
        ):
            assert abs(mine[i] - other[j]) <= doubt[i] + other_doubt[j]
            assert mine[i] == pytest.approx(other[j], rel=1e-11)
    assert seen > 300


def test_what_is_left_out_is_in_the_error(monkeypatch):
    """Windows far too small: the steps are off by more than round-off, and say so."""
    ones, zeros, q = 60, 60, Fraction(1, 4)
    monkeypatch.setattr(profiles, "_EXPONENT", 4.0)
    with mpmath.workdps(40):
        truth = small_truth(ones, zeros, q)
        (entry,) = steps(np.array([ones]), np.array([zeros]), float(q))
        assert holds(entry, truth)

        window = profiles._window
        monkeypatch.setattr(
            profiles, "_window", lambda n, q: window(n, q)._replace(omitted=0.0, error=1e-13)
        )
        (mutant,) = steps(np.array([ones]), np.array([zeros]), float(q))
        assert not holds(mutant, truth)


def test_round_off_of_a_window():
    """The mass of a binomial in floats, against 40 digits."""
    n, q = 2000, 0.3
    window = profiles._window(n, q)
    with mpmath.workdps(40):
        truth = binomial_truth(n, q, 1)
        errors = [
            abs(mpmath.mpf(float(mass)) / truth[window.first + i] - 1)
            for i, mass in enumerate(window.mass)
            if window.first + i in truth
        ]
    assert len(errors) > 500
    assert 1e-16 < max(errors) <= window.error < 1e-11


def test_round_off_of_a_convolution(monkeypatch):
    """Windows that are exact: what is left is the round-off of their products and sums."""
    rng = np.random.default_rng(1)
    windows = [rng.random(60) for _ in range(2)]
    given = iter([BinomialWindow(mass, 0, 0.0, 0.0) for mass in windows])
    monkeypatch.setattr(profiles, "_window", lambda *_: next(given))
    entry = profiles._convolved(59, 59, 0.25)
    up, down = ([Fraction(x) for x in mass.tolist()] for mass in windows)
    truth = dict.fromkeys(range(-59, 60), Fraction(0))
    for i, j in itertools.product(range(60), repeat=2):
        truth[i - j] += up[i] * down[j]
    with mpmath.workdps(40):
        assert holds(entry, {y: mpmath.mpf(x.numerator) / x.denominator for y, x in truth.items()})
    assert entry.here_error[0] < 1e-13 * entry.here[0]


class TestTransforms:
    """What a transform leaves out is made large, and must still be in its error."""

    n, q = 10**5, 0.01

    def entries(self):
        with mpmath.workdps(60):
            for ones, zeros, sign in ((0, self.n, 1), (self.n, 0, -1)):
                (entry,) = steps(np.array([ones]), np.array([zeros]), self.q)
                yield entry, holds(entry, binomial_truth(self.n, self.q, sign), least=1e-60)

    def test_few_frequencies(self, monkeypatch):
        (plain, _), _ = self.entries()
        monkeypatch.setattr(profiles, "_HIGHEST", 3.0)
        for entry, is_held in self.entries():
            assert is_held
            assert entry.here_error[0] > 1e6 * plain.here_error[0]

    @pytest.mark.parametrize("period", [5.0, 10.0])
    def test_short_periods(self, period, monkeypatch):
        """At 10 a tail gets much from the period before, and little else is wrong."""
        (plain, _), _ = self.entries()
        monkeypatch.setattr(profiles, "_PERIODS", dict.fromkeys(range(1, 16, 2), period))
        for entry, is_held in self.entries():
            assert is_held
            assert entry.above_error[0] > 1e6 * plain.above_error[0]


@pytest.mark.parametrize("name", ["bernstein", "power_error"])
def test_every_error_of_a_transform_arrives(name, monkeypatch):
    """Of the order of round-off, so it is made large where it arises."""
    ones, zeros = np.array([30_000]), np.array([70_000])
    (plain,) = steps(ones, zeros, 0.125)
    honest = getattr(profiles, name)
    monkeypatch.setattr(profiles, name, lambda *arguments: honest(*arguments) + 1e-6)
    (spoiled,) = steps(ones, zeros, 0.125)
    for before, after, value in zip(plain[4:], spoiled[4:], plain[1:4], strict=True):
        assert (after > before + 1e-7 * value).all()
