"""Proven and attack against exhaustive enumeration, and mutants that the enumeration catches."""

from __future__ import annotations

import itertools
import math
import os
import random
from fractions import Fraction

import pytest

from shoal.theory import composition
from shoal.theory import counts as delta
from shoal.theory.composition import dominating_losses
from shoal.theory.counts import (
    FINE,
    counts_crowd,
    counts_delta,
    counts_epsilon,
    counts_q,
    profile,
    proven_counts,
)
from shoal.theory.counts.profile import bit_profile, merged_atoms
from shoal.theory.randomized_response import local_q, log_theta
from tests.theory.oracle import bit_worst, collections_worst, count_law, product_worst

CELLS = int(os.environ.get("SHOAL_COUNTS_CELLS", "40"))


@pytest.mark.parametrize(("d", "N"), [(1, 4), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_the_oracle_against_people_and_coins(d, N):
    """Counts of bits are independent, and only the numbers of ones matter."""
    q, lam = Fraction(3, 16), Fraction(5, 4)
    exact = collections_worst(d, N, q, lam)
    assert product_worst(d, N, q, float(lam)) == pytest.approx(float(exact), rel=1e-12)
    bracket = counts_delta(d, N, float(q), math.log(1.25))
    assert bracket.low <= float(exact) * (1 + 1e-12)
    assert float(exact) <= bracket.high * (1 + 1e-12)


def small_cells(count, seed=1):
    rng = random.Random(seed)
    for _ in range(count):
        d = rng.randint(1, 4)
        N = rng.randint(1, 12)
        q = Fraction(rng.randint(1, 511), 1024)
        local = d * log_theta(float(q))
        yield (
            d,
            N,
            q,
            rng.choice([0.0, 0.1, math.log(2), 1.0, 0.3 * local, 0.5 * local, 0.98 * local]),
        )


def failures(cells, proven):
    """Cells where what is said to be proven is below the truth."""
    for d, N, q, epsilon in cells:
        truth = product_worst(d, N, q, math.exp(epsilon))
        if proven(d, N, float(q), epsilon) * (1 + 1e-11) + 1e-15 < truth:
            yield d, N, q, epsilon


@pytest.mark.slow
def test_brackets_contain_the_enumeration():
    for d, N, q, epsilon in small_cells(CELLS):
        truth = product_worst(d, N, q, math.exp(epsilon))
        bracket = counts_delta(d, N, float(q), epsilon)
        assert 0.0 <= bracket.low <= truth * (1 + 1e-11) + 1e-15
        assert truth * (1 - 1e-11) - 1e-15 <= bracket.high <= 1.0
        # the bound is loose where N is tiny, since no crowd is the worst at every loss
        assert bracket.high <= 2.0 * truth + 1e-9
        if d == 1 and q < Fraction(1, 2):
            # a chord is below its left end, and that within the tolerance
            left = max(epsilon - bit_profile(N, float(q), FINE).step, 0.0)
            near = bit_worst(N, q, Fraction(math.exp(left / (1 + FINE))))
            assert bracket.high <= (1 + 9 * FINE) * float(near) + 1e-15


def test_four_bits_of_twelve_people():
    """The largest case: 1,365 crowds of 28,561 outcomes."""
    truth = product_worst(4, 12, Fraction(1, 5), math.e)
    bracket = counts_delta(4, 12, 0.2, 1.0)
    assert bracket.low <= truth <= bracket.high <= 1.2 * truth
    assert bracket.low >= 0.98 * truth


@pytest.mark.parametrize(
    "q", [0.25, 0.5, *(pytest.param(q, marks=pytest.mark.slow) for q in (2.0**-30, 0.5 - 2.0**-20))]
)
@pytest.mark.parametrize("N", [1, 2, 40])
def test_coincidences(N, q):
    """Epsilon at 0, at half the local one, where it ends, and beyond."""
    local = 3 * log_theta(q)
    last = 1.0
    for share in (0.0, 0.5, 1 / 3, 1.0, 1.0 + 1e-12, 2.0):
        bracket = counts_delta(3, N, q, share * local)
        assert 0.0 <= bracket.low <= bracket.high <= 1.0
        if share in (0.0, 0.5, 1.0):
            assert bracket.high <= last
            last = bracket.high
    assert counts_delta(3, N, q, local * (1 + 1e-12)) == (0.0, 0.0)
    assert counts_delta(0, N, q, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    "wrong", [(-1, 10, 0.1, 1.0), (1, 0, 0.1, 1.0), (1, 10, 0.6, 1.0), (1, 10, 0.1, math.nan)]
)
def test_refusals(wrong):
    d, N, q, epsilon = wrong
    with pytest.raises(ValueError, match="got"):
        counts_delta(d, N, q, epsilon)
    with pytest.raises(ValueError, match="got"):
        counts_q(d, N, epsilon, 0.0 if q > 0.5 else 0.1)


def test_no_crowd_is_randomized_response():
    """One person, d bits: a binomial number of bits tells the truth."""
    for d, q, epsilon in ((1, 0.3, 0.2), (5, 0.4, 0.7), (60, 0.45, 3.0)):
        theta = log_theta(q)
        truth = math.fsum(
            math.comb(d, k)
            * (1 - q) ** k
            * q ** (d - k)
            * max(0.0, -math.expm1(epsilon - (2 * k - d) * theta))
            for k in range(d + 1)
        )
        bracket = counts_delta(d, 1, q, epsilon)
        assert bracket.low <= truth * (1 + 1e-12)
        assert truth * (1 - 1e-12) <= bracket.high <= truth * (1 + 1e-6)


def test_the_attack_pays_for_its_grid():
    """A grid so coarse that moving losses to it shows: what is below stays below."""
    q, positive = Fraction(3, 16), 0
    for ones, d, epsilon in itertools.product((0, 3, 8), (1, 2, 3), (0.0, 0.3, 1.0)):
        one, zero = count_law(ones + 1, 8 - ones, q), count_law(ones, 9 - ones, q)
        first = [math.prod(some) for some in itertools.product(map(float, one), repeat=d)]
        second = [math.prod(some) for some in itertools.product(map(float, zero), repeat=d)]
        truth = math.fsum(
            max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(first, second, strict=True)
        )
        atoms = merged_atoms(ones, 8 - ones, float(q))
        for nodes in (20, 100, 1000):
            low = delta._from_below(atoms, d, epsilon, 1.0, nodes)
            assert low <= truth * (1 + 1e-12)
            positive += low > 0.9 * truth
    assert positive > 15


@pytest.mark.slow
def test_attack_and_proven_nearly_meet():
    for d, N, q, epsilon, gap in (
        (5, 10_000, 0.00996, 1.0, 1.03),
        (2, 10_000, 0.00869, math.log(2), 1.01),
        (200, 10**6, 0.00130, 1.0, 1.065),
        (2000, 10**8, 6e-5, 1.0, 1.03),
    ):
        bracket = counts_delta(d, N, q, epsilon)
        assert bracket.high <= gap * bracket.low


def without_infinite_losses(step, high):
    return dominating_losses(step, high)._replace(infinite=0.0)


class TestErrorTerms:
    """Dropping what is cut off, or round-off, is noticed by the enumeration."""

    def test_truncated_losses_dropped(self, monkeypatch):
        """Losses are cut where the profile is below 1e-40: cut them where it shows."""
        monkeypatch.setattr(profile, "NEGLIGIBLE", 1e-2)
        monkeypatch.setattr(
            delta, "bit_profile", lambda N, q, _: bit_profile.__wrapped__(N, q, 1e-6)
        )
        cells = [(d, 9, Fraction(1, 8), epsilon) for d in (1, 2) for epsilon in (0.5, 1.5, 1.9)]
        assert not list(failures(cells, proven_counts))
        monkeypatch.setattr(delta, "dominating_losses", without_infinite_losses)
        assert list(failures(cells, proven_counts))

    @pytest.mark.slow
    def test_round_off_of_the_transform_dropped(self, monkeypatch):
        """A transform that is wrong by 1e-3 and says so is honest; otherwise it is caught."""
        power, cells = composition.mass_of_sum, list(small_cells(12, seed=2))
        for said in (1e-3, 0.0):
            monkeypatch.setattr(
                composition,
                "mass_of_sum",
                lambda *given, said=said: (power(*given)[0] - 1e-3, said),
            )
            assert bool(list(failures(cells, proven_counts))) == (said == 0.0)


@pytest.mark.slow
def test_round_trips():
    answer = counts_q(4, 1500, 1.2, 1e-4)
    q = answer.value
    assert answer.delta <= 1e-4 < proven_counts(4, 1500, q * (1 - 3e-3), 1.2)
    assert counts_epsilon(4, 1500, q, 1e-4).value == pytest.approx(1.2, rel=2e-3)
    crowd = counts_crowd(4, q, 1.2, 1e-4)
    assert crowd.value == pytest.approx(1500, rel=3e-3)
    assert crowd.delta <= 1e-4
    assert proven_counts(4, int(crowd.value * 0.99), q, 1.2) > 1e-4


def test_small_crowds_to_the_person():
    answer = counts_crowd(2, 0.3, 1.0, 0.01)
    assert proven_counts(2, int(answer.value), 0.3, 1.0) <= 0.01
    assert proven_counts(2, int(answer.value) - 1, 0.3, 1.0) > 0.01


@pytest.mark.slow
def test_ends():
    assert counts_q(0, 10, 1.0, 1e-6).value == 1e-12
    assert counts_q(1, 10, 30.0, 1e-6).value == 1e-12
    # nobody else: at most the local q, less where delta allows it
    alone = counts_q(3, 1, 1.0, 1e-9)
    assert alone.value == pytest.approx(local_q(3, 1.0), rel=1e-3)
    assert alone.delta <= 1e-9
    assert counts_crowd(2, 0.4, 2.0, 1e-9).value == 1
    assert counts_crowd(1000, 1e-9, 0.01, 1e-9).value == math.inf
    assert counts_epsilon(3, 100, 0.2, 0.0).value == pytest.approx(3 * log_theta(0.2))
    assert counts_epsilon(3, 10**6, 0.2, 0.5).value == 0.0


def test_epsilon_zero():
    """Then delta is a distance, and q near 1/2 is the answer for a small crowd."""
    answer = counts_q(2, 5, 0.0, 1e-3)
    assert 0.49 < answer.value < 0.5
    assert answer.delta <= 1e-3
