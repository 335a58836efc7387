"""The discrete Gaussian distribution against sums of mpmath, and sums of it by convolution."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from shoal.theory import discrete_gaussian


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5, 40.0])
def test_tail_and_radius(sigma: float):
    def mass(k: int) -> mpmath.mpf:
        return mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2))

    far = math.ceil(12 * sigma) + 3
    total = 2 * mpmath.fsum(mass(k) for k in range(1, far)) + 1

    def tail(k: int) -> float:
        return float(2 * mpmath.fsum(mass(j) for j in range(k, far)) / total)

    for k in (1, 2, math.ceil(2 * sigma)):
        assert discrete_gaussian.tail(k, sigma) == pytest.approx(tail(k), rel=1e-12)
    for miss in (0.4, 0.05, 1e-4):
        radius = discrete_gaussian.radius(miss, sigma)
        assert tail(radius + 1) <= miss
        assert radius == 0 or tail(radius) > miss


def test_a_large_sigma_has_a_radius_that_is_hardly_too_large():
    sigma = 2.0**14
    exact = 1.959963984540054 * sigma
    assert exact - 1 <= discrete_gaussian.radius(0.05, sigma) <= exact + 2


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_a_sum_is_within_its_terms_of_a_normal_one(sigma: float):
    """The tail of a sum of four, by convolution, beyond the normal radius and a step for each."""
    places = np.arange(-200, 201)
    pmf = np.exp(-0.5 * (places / sigma) ** 2)
    pmf /= pmf.sum()
    four = np.convolve(np.convolve(pmf, pmf), np.convolve(pmf, pmf))
    sums = np.arange(len(four)) - len(four) // 2
    for miss in (0.2, 0.025, 1e-4):
        reach = discrete_gaussian.sum_radius(miss, (sigma,) * 4)
        assert reach == pytest.approx(-float(mpmath.erfinv(2 * miss - 1)) * 2 * sigma * 2**0.5)
        assert four[sums > reach + 4].sum() <= miss
