import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory.counts import profile as law
from shoal.theory.counts.profile import steps

from .oracle import count_law


def holds(entry, truth, least=0.0):
    """Whether every step of `entry` is within its stated error of the truth, a dict by place."""
    above = dict.fromkeys(truth, 0)
    total = 0
    for place in sorted(truth, reverse=True):
        total += truth[place]
        above[place] = total
    for i, place in enumerate(entry.place):
        here = truth.get(int(place), 0)
        triples = (
            (entry.before[i], entry.before_error[i], truth.get(int(place) - 1, 0)),
            (entry.here[i], entry.here_error[i], here),
            (entry.above[i], entry.above_error[i], above.get(int(place), 0)),
        )
        for value, error, exact in triples:
            if abs(mpmath.mpf(float(value)) - mpmath.mpf(exact)) > error * (1 + 1e-9) + least:
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
    monkeypatch.setattr(law, "_LITTLE_NOISE", 1e9)
    (little,) = steps(ones, zeros, q)
    by_place = {int(place): i for i, place in enumerate(little.place)}
    seen = 0
    for i, place in enumerate(much.place):
        j = by_place.get(int(place))
        if j is None or little.above[j] < 1e-45:
            continue
        seen += 1
        for mine, doubt, other, other_doubt in (
            (much.here, much.here_error, little.here, little.here_error),
            (much.before, much.before_error, little.before, little.before_error),
            (much.above, much.above_error, little.above, little.above_error),
        ):
            assert abs(mine[i] - other[j]) <= doubt[i] + other_doubt[j]
            assert mine[i] == pytest.approx(other[j], rel=1e-11)
    assert seen > 300


def test_what_is_left_out_is_in_the_error(monkeypatch):
    """Windows far too small: the steps are off by more than round-off, and say so."""
    ones, zeros, q = 60, 60, Fraction(1, 4)
    monkeypatch.setattr(law, "_EXPONENT", 4.0)
    with mpmath.workdps(40):
        truth = small_truth(ones, zeros, q)
        (entry,) = steps(np.array([ones]), np.array([zeros]), float(q))
        assert holds(entry, truth)

        window = law._window
        monkeypatch.setattr(
            law, "_window", lambda n, q: window(n, q)._replace(omitted=0.0, error=1e-13)
        )
        (mutant,) = steps(np.array([ones]), np.array([zeros]), float(q))
        assert not holds(mutant, truth)


def test_round_off_of_a_window():
    """The mass of a binomial in floats, against 40 digits."""
    n, q = 2000, 0.3
    window = law._window(n, q)
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
    given = iter([law._BinomialPart(mass, 0, 0.0, 0.0) for mass in windows])
    monkeypatch.setattr(law, "_window", lambda *_: next(given))
    entry = law._convolved(59, 59, 0.25)
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
        monkeypatch.setattr(law, "_HIGHEST", 3.0)
        for entry, is_held in self.entries():
            assert is_held
            assert entry.here_error[0] > 1e6 * plain.here_error[0]

    @pytest.mark.parametrize("period", [5.0, 10.0])
    def test_short_periods(self, period, monkeypatch):
        """At 10 a tail gets much from the period before, and little else is wrong."""
        (plain, _), _ = self.entries()
        monkeypatch.setattr(law, "_PERIODS", dict.fromkeys(range(1, 16, 2), period))
        for entry, is_held in self.entries():
            assert is_held
            assert entry.above_error[0] > 1e6 * plain.above_error[0]


@pytest.mark.parametrize("name", ["_bernstein", "power_error"])
def test_every_error_of_a_transform_arrives(name, monkeypatch):
    """Of the order of round-off, so it is made large where it arises."""
    ones, zeros = np.array([30_000]), np.array([70_000])
    (plain,) = steps(ones, zeros, 0.125)
    honest = getattr(law, name)
    monkeypatch.setattr(law, name, lambda *arguments: honest(*arguments) + 1e-6)
    (spoiled,) = steps(ones, zeros, 0.125)
    for before, after, value in zip(plain[4:], spoiled[4:], plain[1:4], strict=True):
        assert (after > before + 1e-7 * value).all()
