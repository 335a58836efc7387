import math

import pytest
from scipy import integrate, stats

from shoal.theory.gaussian import gaussian_delta, gaussian_mu, gaussian_sigma


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


@pytest.mark.parametrize(
    ("bits", "epsilon", "delta", "sigma"),
    [
        (5, 1.0, 1e-6, 9.4),
        (5, math.log(2), 0.005, 6.3),
        (2, math.log(2), 1e-6, 8.4),
        (40, 2.0, 1e-6, 14.1),
    ],
)
def test_a_curators_noise(bits, epsilon, delta, sigma):
    assert gaussian_sigma(bits, epsilon, delta) == pytest.approx(sigma, abs=0.06)
