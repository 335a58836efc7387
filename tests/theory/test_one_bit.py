import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.theory.binomial import pmf as count_pmf_of_windows
from shoal.theory.enumeration import AnswerPair, delta_of_pair, eta_of_pair, histogram_pmf
from shoal.theory.homogeneous import delta
from shoal.theory.one_bit import privacy_ratio, worst_one_bit_delta

from .single_changes import count_pmf, one_bit_delta, one_bit_eta


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 63))
def test_recursions_against_the_histogram(n, m, a):
    """KR (3.2), (3.3)."""
    m = min(m, n)
    q = Fraction(a, 128)
    law = histogram_pmf([(1,)] * m + [(0,)] * (n - m), q)
    pmf = count_pmf(n, m, float(q))
    for (zeros, ones), chance in law.items():
        assert zeros + ones == n
        assert pmf[ones] == pytest.approx(float(chance), rel=1e-13)
    assert count_pmf_of_windows(n, m, float(q)) == pytest.approx(pmf, rel=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_pairs_against_fractions(n):
    rng = random.Random(n)
    for m in range(n):
        q = Fraction(rng.randint(1, 60), 128)
        lam = Fraction(rng.randint(65, 300), 64)
        others = ((1,),) * m + ((0,),) * (n - 1 - m)
        for up in (True, False):
            pair = AnswerPair(others, (0,), (1,)) if up else AnswerPair(others, (1,), (0,))
            for exact, bracket in (
                (delta_of_pair(pair, q, lam), one_bit_delta(n, m, float(q), math.log(lam), up)),
                (eta_of_pair(pair, q, lam), one_bit_eta(n, m, float(q), math.log(lam), up)),
            ):
                assert bracket.low * (1 - 1e-12) <= exact <= bracket.high * (1 + 1e-12) + 1e-18


def reverse_in_many_digits(n, q, lam):
    """Delta of going from one outlier to none: binomial sums in 50 digits."""
    with mpmath.workdps(50):
        q, lam = mpmath.mpf(q), mpmath.mpf(lam)
        theta = (1 - q) / q
        total, b = mpmath.mpf(0), (1 - q) ** n
        # P[A(0) = s] = b, P[A(1) = s] = b R(s), R(s) = ((n-s)/theta + s theta) / n
        for s in range(n + 1):
            gain = 1 - lam * ((n - s) / theta + s * theta) / n
            if gain <= 0:
                break
            total += b * gain
            b *= q / (1 - q) * (n - s) / (s + 1)
        return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "q", "lam"),
    [(1000, 0.05, 2.0), (1000, 0.0119, 2.0), (100_000, 1e-3, 1.5), (1_000_000, 0.0125, 1.05)],
)
def test_ends_against_fifty_digits(n, q, lam):
    """The reverse crowd, also through the general engine."""
    exact = reverse_in_many_digits(n, q, lam)
    for bracket in (
        one_bit_delta(n, 0, q, math.log(lam), up=False),
        delta((0, 1, 0), n, q, math.log(lam)),
    ):
        assert bracket.low <= exact * (1 + 1e-10)
        assert exact * (1 - 1e-10) <= bracket.high
        assert bracket.is_within(1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "q", "epsilon"), [(2, 0.02, 0.07784), (21, 0.05, 0.05889), (300, 0.03, 0.5)]
)
def test_worst_over_m_by_trying_all(n, q, epsilon):
    lam = math.exp(epsilon)
    best = 0.0
    for m in range(n):
        P, Q = count_pmf(n, m + 1, q), count_pmf(n, m, q)
        best = max(best, np.maximum(P - lam * Q, 0).sum(), np.maximum(Q - lam * P, 0).sum())
    worst = worst_one_bit_delta(n, q, epsilon)
    assert worst.value.low * (1 - 1e-11) <= best <= worst.value.high * (1 + 1e-11)
    assert one_bit_delta(n, worst.m, q, epsilon).low == pytest.approx(worst.value.low)


def test_halving_agrees_with_trying_all():
    n, q, epsilon = 4000, 0.004, 0.6
    all_of_them = worst_one_bit_delta(n, q, epsilon)
    halved = worst_one_bit_delta(n, q, epsilon, work=2_000_000 - 1)
    assert halved.value.low <= all_of_them.value.high
    assert all_of_them.value.low <= halved.value.high
    assert halved.value.is_within(2e-3)


@pytest.mark.parametrize(("q", "epsilon"), [(0.02, 0.3), (0.1, 0.5), (0.3, 0.01)])
def test_little_work_makes_a_wide_bracket_and_no_wrong_one(q, epsilon):
    """Where the search ends early, crowds that it did not try are covered all the same."""
    all_of_them = worst_one_bit_delta(1000, q, epsilon).value
    ended_early = worst_one_bit_delta(1000, q, epsilon, work=1).value
    assert ended_early.low <= all_of_them.high
    assert all_of_them.low <= ended_early.high


def test_delta_is_zero_from_the_local_epsilon_on():
    assert one_bit_delta(50, 3, 0.25, math.log(3) + 1e-9) == (0.0, 0.0)
    with pytest.raises(ValueError, match="m must be"):
        privacy_ratio(5, 5, 0.2)
