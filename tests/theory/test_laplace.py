"""The Laplace laws against mpmath, quadrature and direct sums."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.theory import laplace as law

SCALES = (0.05, 0.5, 1.0, 3.7, 20.0, 1e6)
MISSES = (0.9, 0.5, 0.05, 1e-3, 1e-12)
scales = st.floats(1e-2, 1e12)
misses = st.floats(1e-15, 1.0, exclude_max=True)


def mass(k: int, b: float) -> mpmath.mpf:
    """The whole-number law from its definition: exp(-|k|/b) over the sum of all of them."""
    ratio = mpmath.exp(-1 / mpmath.mpf(b))
    return ratio ** abs(k) * (1 - ratio) / (1 + ratio)


class TestContinuous:
    @pytest.mark.parametrize("b", [0.5, 1.0, 3.0])
    @pytest.mark.parametrize("z", [0.0, 0.3, 1.0, 7.0])
    def test_the_tail_is_the_integral_of_the_density(self, b: float, z: float):
        outside = mpmath.quad(lambda t: mpmath.exp(-t / b) / b, [z, mpmath.inf])
        assert law.tail(z, b) == pytest.approx(float(outside), abs=1e-12)

    def test_sigma(self):
        second = mpmath.quad(lambda t: t**2 * mpmath.exp(-t / 3) / 3, [0, mpmath.inf])
        assert law.sigma(3.0) == pytest.approx(float(mpmath.sqrt(second)))

    @given(misses, scales)
    def test_radius_inverts_the_tail(self, miss: float, b: float):
        """LEC Theorem 9 holds with equality."""
        assert law.tail(law.radius(miss, b), b) == pytest.approx(miss, rel=1e-12)

    @given(st.floats(1e-9, 0.99), st.integers(1, 10_000))
    def test_simultaneous(self, miss: float, d: int):
        """The exact bound over d coordinates, and LEC Theorem 12 never below it."""
        each = law.each_miss(miss, d)
        assert -math.expm1(d * math.log1p(-each)) == pytest.approx(miss, rel=1e-9)
        exact = law.radius(each, 2.0)
        assert exact <= law.union_radius(miss, 2.0, d) * (1 + 1e-12)
        assert law.union_radius(miss, 2.0, 1) == pytest.approx(law.radius(miss, 2.0))


class TestDiscrete:
    @pytest.mark.parametrize("b", [0.05, 0.5, 1.0, 3.7])
    def test_against_direct_sums(self, b: float):
        masses = {k: mass(k, b) for k in range(-400, 401)}
        assert float(sum(masses.values())) == pytest.approx(1, abs=1e-15)
        for k in (-9, -2, -1, 0, 1, 2, 5, 30):
            outside = float(mpmath.fsum(p for j, p in masses.items() if abs(j) >= k))
            assert law.discrete_tail(k, b) == pytest.approx(outside, rel=1e-13)
        second = float(mpmath.sqrt(mpmath.fsum(j**2 * p for j, p in masses.items())))
        assert law.discrete_sigma(b) == pytest.approx(second, rel=1e-12)

    @pytest.mark.parametrize(("b", "miss"), list(itertools.product(SCALES, MISSES)))
    def test_radius_is_the_smallest(self, b: float, miss: float):
        m = law.discrete_radius(miss, b)
        tail = 2 * mpmath.exp(-(m + 1) / mpmath.mpf(b)) / (1 + mpmath.exp(-1 / mpmath.mpf(b)))
        assert tail <= miss * (1 + 1e-12)
        if m:
            tail *= mpmath.exp(1 / mpmath.mpf(b))
            assert tail > miss * (1 - 1e-9)

    def test_the_lecture_s_bound_can_be_missed_146_times_in_100(self):
        """At scale 1 and k = ln(1/delta) the tail is 2 / (1 + 1/e) = 1.46 delta."""
        delta = math.exp(-3)
        assert law.discrete_tail(3, 1.0) / delta == pytest.approx(2 / (1 + math.exp(-1)))
        assert 1.46 < law.discrete_tail(3, 1.0) / delta < 1.463


@pytest.mark.parametrize(
    "call",
    [
        lambda: law.sigma(0.0),
        lambda: law.tail(1.0, math.inf),
        lambda: law.tail(1.0, math.nan),
        lambda: law.radius(0.0, 1.0),
        lambda: law.discrete_radius(1.0, 1.0),
        lambda: law.discrete_radius(math.nan, 1.0),
        lambda: law.each_miss(0.5, 0),
        lambda: law.union_radius(2.0, 1.0, 3),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(ValueError, match="must be"):
        call()


class TestSums:
    @pytest.mark.parametrize("count", [2, 3, 10, 60])
    @pytest.mark.parametrize("miss", [0.3, 0.025, 1e-4])
    def test_equal_scales_by_a_race_of_two_gamma_variables(self, count: int, miss: float):
        """A sum of k is a difference of two waiting times of k events, each as likely the next."""
        b = 3.0
        reach = law.sum_radius(miss, [b] * count)
        tail = mpmath.fsum(
            mpmath.binomial(count - 1 + lost, lost)
            / mpmath.mpf(2) ** (count + lost)
            * mpmath.gammainc(count - lost, reach / b, regularized=True)
            for lost in range(count)
        )
        assert 1 - 1e-3 < float(tail / miss) <= 1

    @pytest.mark.parametrize("scales", [(1.0, 0.03), (5.0, 2.0, 0.5), (1.0, 1.5, 2.0, 7.0)])
    def test_different_scales_by_partial_fractions(self, scales: tuple[float, ...]):
        for miss in (0.2, 0.025, 1e-4):
            reach = law.sum_radius(miss, scales)
            tail = mpmath.mpf(0)
            for own in scales:
                others = (other for other in scales if other != own)
                factor = math.prod(own**2 / (own**2 - other**2) for other in others)
                tail += factor * mpmath.exp(-mpmath.mpf(reach) / own) / 2
            assert 1 - 1e-3 < float(tail / miss) <= 1

    def test_one_term_and_no_side(self):
        assert law.sum_radius(0.025, [2.0]) == law.radius(0.05, 2.0)
        assert law.sum_radius(0.5, [2.0, 3.0]) == 0
