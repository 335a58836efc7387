"""The discrete Gaussian distribution against sums of mpmath, and sums of it by convolution."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal.theory import discrete_gaussian
from shoal.theory.composition import gaussian_sigma


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


def _by_enumeration(shifts: tuple[int, ...], sigma: float, epsilon: float) -> float:
    """Return delta from every point of a box: the noise against the noise after all shifts."""
    far = math.ceil(11 * sigma) + max(shifts)
    places, variance = range(-far, far + 1), mpmath.mpf(sigma) ** 2
    one = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * variance)) for k in places}
    total, lam = mpmath.fsum(one.values()), mpmath.exp(epsilon)
    gaps = []
    for point in itertools.product(places, repeat=len(shifts)):
        here = mpmath.fprod(one[k] for k in point)
        there = mpmath.fprod(one.get(k - s, 0) for k, s in zip(point, shifts, strict=True))
        gaps.append(max(here - lam * there, 0))
    return float(mpmath.fsum(gaps) / total ** len(shifts))


@pytest.mark.parametrize(
    ("shift", "count", "sigma", "epsilon"),
    [(1, 1, 0.4, 4.0), (1, 1, 3.0, 0.5), (3, 1, 4.0, 1.0), (1, 2, 1.5, 1.0), (2, 2, 1.0, 6.0)],
)
def test_delta_is_that_of_an_enumeration(shift: int, count: int, sigma: float, epsilon: float):
    exact = _by_enumeration((shift,) * count, sigma, epsilon)
    said = discrete_gaussian.delta_of_shifts(shift, count, sigma, epsilon, exact)
    assert exact <= said <= exact * (1 + 1e-5)


def test_smaller_shifts_reveal_no_more():
    said = discrete_gaussian.delta_of_shifts(2, 2, 1.5, 1.0, 1e-9)
    for shifts in itertools.product((0, 1, 2), repeat=2):
        assert _by_enumeration(shifts, 1.5, 1.0) <= said


@pytest.mark.parametrize(("shift", "count"), [(200, 1), (20, 60)])
def test_rounded_losses_are_above_exact_ones(
    shift: int, count: int, monkeypatch: pytest.MonkeyPatch
):
    at = (shift, count, 900.0, 1.2, 1e-9)
    exact = discrete_gaussian.delta_of_shifts(*at)
    monkeypatch.setattr(discrete_gaussian, "_MAX_SIGMA", 10.0)
    # each number moves by 1 and half a step, its sum by this many sigmas, where 8 sigmas decide
    moved = math.sqrt(count) * (1 / 900 + 1 / 4000)
    assert exact <= discrete_gaussian.delta_of_shifts(*at) <= math.exp(8 * moved) * exact


def test_sigma_keeps_its_promise_and_is_near_the_normal_one():
    wishes = ((1, 2, 0.3, 1e-9), (1, 40, 1.0, 1e-6), (255, 3, 2.0, 1e-5))
    for shift, count, epsilon, delta in wishes:
        sigma = discrete_gaussian.sigma_of_shifts(shift, count, epsilon, delta)
        assert discrete_gaussian.delta_of_shifts(shift, count, sigma, epsilon, delta) <= delta
        assert sigma == pytest.approx(shift * gaussian_sigma(count, epsilon, delta), rel=2e-3)


def test_a_promise_that_hardly_promises():
    assert delta_kept(discrete_gaussian.sigma_of_shifts(1, 1, 1e-6, 0.9), 1e-6, 0.9)
    assert delta_kept(discrete_gaussian.sigma_of_shifts(1, 1, 50.0, 0.9), 50.0, 0.9)


def delta_kept(sigma: float, epsilon: float, delta: float) -> bool:
    return discrete_gaussian.delta_of_shifts(1, 1, sigma, epsilon, delta) <= delta


@pytest.mark.slow
def test_less_noise_than_by_concentrated_privacy():
    from shoal.curator.noise import gaussian_scale

    sigma = discrete_gaussian.sigma_of_shifts(1, 2, 0.906, 1e-9)
    assert 0.9 < sigma / gaussian_scale(Fraction(2), "0.906", "1e-9") < 1.0


def test_the_deviation_by_summing():
    for sigma in (0.1, 0.3, 1.0, 1.9, 5.0):
        squares = mpmath.fsum(k * k * mpmath.exp(-k * k / (2 * sigma**2)) for k in range(-99, 100))
        total = mpmath.fsum(mpmath.exp(-k * k / (2 * sigma**2)) for k in range(-99, 100))
        exact = float(mpmath.sqrt(squares / total))
        assert discrete_gaussian.deviation(sigma) == pytest.approx(exact, rel=1e-9)
