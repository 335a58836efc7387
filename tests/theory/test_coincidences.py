"""Where formulas meet: equal atoms, vanishing differences, thresholds exactly on an atom.

Random points never hit these. So q and epsilon are built so that a coincidence holds, and moved an
ulp or two to either side. The truth is a sum of fractions over every outcome: q is the float that
the theory gets, e^epsilon a fraction that is right to 120 digits, and nothing here is imported from
the theory but what is tested.
"""

import itertools
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory import mixed_crowds
from shoal.theory.brackets import log_one_plus, power_error
from shoal.theory.domains import flags
from shoal.theory.homogeneous import delta, eta, local_delta
from shoal.theory.mixed_crowds import mixed_crowd
from shoal.theory.one_bit import worst_one_bit_delta
from shoal.theory.proven import proven_delta
from shoal.theory.stop_loss import reduction
from shoal.theory.worlds import world_of

from .oracle import count_law, histogram_pair, hockey_stick
from .oracle import eta as eta_of
from .single_changes import one_bit_delta, one_bit_eta, worst_one_bit_eta

QS = [0.25, 1 / 3, 0.125, 0.4, 2.0**-20, 1e-6, 0.5 - 2.0**-10, 0.5 - 1e-9, 0.5 - 2.0**-50, 0.5]


def exp(epsilon):
    """e^epsilon as a fraction, right to 120 digits; exactly 1 at 0."""
    with mpmath.workprec(400):
        value = mpmath.exp(mpmath.mpf(epsilon))
        return Fraction(int(mpmath.floor(value * 2**400)), 2**400) if epsilon else Fraction(1)


def log(value):
    with mpmath.workprec(400):
        return float(mpmath.log(mpmath.mpf(value.numerator) / value.denominator))


def near(epsilon, ulps=(-2, -1, 0, 1, 2)):
    """The same float and its neighbours, none of them negative."""
    for count in ulps:
        value = epsilon
        for _ in range(abs(count)):
            value = math.nextafter(value, math.inf if count > 0 else -math.inf)
        if value >= 0.0:
            yield value


def both(towards, away, lam):
    return hockey_stick(towards, away, lam), eta_of(towards, away, lam)


def one_bit_truth(ones, zeros, q, epsilon):
    """Delta and eta of changing a 0 to a 1."""
    q = Fraction(q)
    return both(count_law(ones + 1, zeros, q), count_law(ones, zeros + 1, q), exp(epsilon))


def one_bit_coincidences(ones, zeros, q):
    """Epsilons at which something meets, for one bit among these others."""
    exact = Fraction(q)
    p = 1 - exact
    yield 0.0
    yield 5e-324
    yield log(p / exact)  # p = lam q
    yield log(p / exact) / 2.0
    yield log((p * p + exact * exact) / (2 * p * exact))  # the tilted coin is fair
    law = count_law(ones, zeros, exact)
    for before, here in itertools.pairwise(law):
        # the hockey stick's threshold is exactly on this count
        if before > here:
            ratio = before / here
            yield log((p * ratio + exact) / (p + exact * ratio))


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("q", QS)
def test_one_bit(q):
    for n in (1, 2, 3, 6):
        for m in range(n):
            for start in set(one_bit_coincidences(m, n - 1 - m, q)):
                for epsilon in near(start, (-1, 0, 1)):
                    true_delta, true_eta = one_bit_truth(m, n - 1 - m, q, epsilon)
                    low, high = one_bit_delta(n, m, q, epsilon)
                    assert low <= true_delta <= high, (n, m, epsilon)
                    low, high = one_bit_eta(n, m, q, epsilon)
                    assert low <= true_eta <= high, (n, m, epsilon)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("q", [0.25, 0.4, 1e-3, 0.5 - 1e-9, 0.5 - 2.0**-53])
@pytest.mark.parametrize("n", [2, 100, 700])
def test_one_bit_when_the_tilted_coin_is_fair(q, n):
    p = 1 - Fraction(q)
    fair = log((p * p + Fraction(q) ** 2) / (2 * p * Fraction(q)))
    for epsilon in {*near(fair, (0, 1)), 0.0}:
        for worst in (worst_one_bit_delta(n, q, epsilon), worst_one_bit_eta(n, q, epsilon)):
            assert 0.0 <= worst.value.low <= worst.value.high <= 1.0
        # the search looks at all crowds too, so both see the same maximum
        world = world_of((flags(1),), n, q, epsilon, eta=False)
        best = max(world.step(index)[0].value.low for index in range(world.steps))
        value = worst_one_bit_delta(n, q, epsilon).value
        assert value.low * (1 - 1e-3) <= best <= value.high
        assert value.is_within(2e-3)


def upper_ends_near_zero(q):
    """Around epsilon = ln(p/q) delta of a single report, p - lam q, is lost in round-off."""
    exact = Fraction(q)
    for epsilon in near(log((1 - exact) / exact), range(-6, 7)):
        yield epsilon, max(1 - exact - exp(epsilon) * exact, Fraction(0))


@pytest.mark.parametrize("q", QS)
def test_an_exact_zero_is_true(q):
    for epsilon, truth in upper_ends_near_zero(q):
        for low, high in (
            one_bit_delta(1, 0, q, epsilon),
            delta((1, 0, 0), 1, q, epsilon),
            local_delta((flags(1),), q, epsilon),
            proven_delta((flags(1),), 1, q, epsilon).delta,
        ):
            assert low <= truth <= high
        for n in (2, 5):
            others = one_bit_truth(n - 1, 0, q, epsilon)
            assert one_bit_delta(n, n - 1, q, epsilon).high >= others[0]
            assert one_bit_eta(n, n - 1, q, epsilon).high >= others[1]
            assert proven_delta((flags(1),), n, q, epsilon).delta.high >= others[0]


def test_zero_is_still_zero_beyond_the_local_epsilon():
    for q in QS:
        epsilon = log((1 - Fraction(q)) / Fraction(q)) * (1 + 1e-13) + (q == 0.5)
        assert one_bit_delta(7, 3, q, epsilon) == (0.0, 0.0)
        assert local_delta((flags(1),), q, epsilon) == (0.0, 0.0)
        assert proven_delta((flags(1),), 7, q, epsilon).delta == (0.0, 0.0)


def homogeneous_truth(crowd, n, q, epsilon):
    a, b, c = crowd
    z, x = (0,) * (a + b + c), (0,) * a + (1,) * (b + c)
    x_prime = (1,) * a + (0,) * b + (1,) * c
    return both(*histogram_pair([z] * (n - 1), x, x_prime, Fraction(q)), exp(epsilon))


CROWDS = [(1, 0, 0), (0, 1, 0), (2, 0, 0), (1, 1, 0), (0, 1, 1), (1, 1, 1)]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("crowd", CROWDS)
def test_homogeneous_crowds(crowd, inverted, monkeypatch):
    """lam = theta^j, where atoms of w' - lam w are 0; epsilon 0; ties of sums of reports."""
    if inverted:
        monkeypatch.setattr(reduction, "_FEW", 0)
    rng = random.Random(str(crowd))
    for q in QS[::2] if inverted else QS:
        theta = (1 - Fraction(q)) / Fraction(q)
        ties = [Fraction(1), theta, theta**2, (theta + 1) / 2, (theta**2 + theta) / 2]
        for n in (1, 2) if sum(crowd) > 2 or inverted else (1, 2, 3):
            epsilon = rng.choice(list(near(log(rng.choice(ties)))))
            true_delta, true_eta = homogeneous_truth(crowd, n, q, epsilon)
            low, high = delta(crowd, n, q, epsilon)
            assert low <= true_delta <= high, (n, q, epsilon)
            low, high = eta(crowd, n, q, epsilon)
            assert low <= true_eta <= high, (n, q, epsilon)


@pytest.mark.parametrize("bits", [1, 2, 3, 10, 40])
def test_the_local_pair_loses_no_digit_unnoticed(bits):
    """Close to the local epsilon all that is left of delta is a difference that cancels."""
    rng = random.Random(bits)
    for q in QS:
        exact = Fraction(q)
        theta = (1 - exact) / exact
        for _ in range(4):
            epsilon = bits * log(theta) - rng.choice([0.0, 10 ** rng.uniform(-17, -3)])
            if epsilon < 0.0:
                continue
            lam = exp(epsilon)
            terms = (
                math.comb(bits, i) * exact**i * (1 - exact) ** (bits - i)
                * (1 - lam * theta ** (2 * i - bits))
                for i in range(bits + 1)
            )  # fmt: skip
            truth = sum((term for term in terms if term > 0), Fraction(0))
            low, high = local_delta((flags(bits),), q, epsilon)
            assert low <= truth <= high, (q, epsilon)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("q", [1 - 2**-0.5, 0.25, 0.5 - 2.0**-53, 0.4999999])
def test_mixed_crowds_by_transform(q, monkeypatch):
    """Cells of probability 1/2, whose characteristic function vanishes at an angle of pi."""
    monkeypatch.setattr(mixed_crowds, "_FEW_STEPS", 0)
    crowds: list[dict[tuple[int, ...], int]]
    crowds = [{(0,): 3}, {(0,): 1, (1,): 2}, {(0, 0): 2}, {(0, 0): 1, (1, 1): 1}]
    lone = Fraction(q)
    for epsilon in (0.0, 0.3, log((1 - lone) / lone)):
        for others in crowds:
            bits = len(next(iter(others)))
            x, x_prime = (0,) * bits, (1,) * bits
            people = [vector for vector, count in others.items() for _ in range(count)]
            true = both(*histogram_pair(people, x, x_prime, lone), exp(epsilon))
            for value, truth in zip(
                (mixed_crowd(others, x, x_prime, q, epsilon, wants) for wants in (False, True)),
                true,
                strict=True,
            ):
                assert value.low <= truth <= value.high, (others, epsilon, bool(truth))


def test_powers_of_numbers_near_zero():
    """A fair coin turned by pi: the power's error is bounded though its logarithm is not."""
    with mpmath.workprec(400):
        for turn in (0.0, 1e-17, 1e-12, 1e-8, 1e-3, 0.8):
            for error in (1e-18, 1e-16, 1e-12, 1e-3):
                a = complex(-1.0 + turn, turn / 2.0)
                log_, doubt = log_one_plus(np.array([a]), np.array([error]))
                for k in (1, 2, 7, 1000):
                    size = np.exp(k * log_.real)
                    bound = power_error(size, k * doubt + 1e-13)[0]
                    computed = mpmath.exp(k * mpmath.mpc(complex(log_[0])))
                    for shift in (0, error, -error, 1j * error):
                        truth = (1 + mpmath.mpc(a) + mpmath.mpc(shift)) ** k
                        assert abs(computed - truth) <= bound
