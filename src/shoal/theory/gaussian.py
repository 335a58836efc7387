r"""The Gaussian mechanism of a trusted curator, calibrated exactly.

A vector whose l2 sensitivity is D gets normal noise of standard deviation sigma in every
coordinate. With ``mu = D / sigma`` its delta is (Balle and Wang 2018, Theorem 8; theorem, and
equality)

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu),

which rises with mu, so that the largest mu, and with it the smallest sigma, is found by a root.
The noise is continuous: no sampler of floats draws it exactly. Shoal computes it to compare, and
draws none.
"""

from __future__ import annotations

import math
from statistics import NormalDist

_NOTHING = -745.0
"""Logarithm of the smallest float."""


def _log_delta(mu: float, epsilon: float) -> float:
    from scipy.special import log_ndtr  # here, so that other commands begin sooner

    near = float(log_ndtr(mu / 2.0 - epsilon / mu))
    far = float(log_ndtr(-mu / 2.0 - epsilon / mu)) + epsilon
    if far >= near:  # lost in round-off
        return _NOTHING
    return max(near + math.log(-math.expm1(far - near)), _NOTHING)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta at epsilon of a shift by `mu` > 0 standard deviations.

    >>> round(gaussian_delta(1.0, 1.0), 4)
    0.1269
    """
    return math.exp(_log_delta(mu, epsilon))


def gaussian_mu(epsilon: float, delta: float, xtol: float = 1e-4) -> float:
    """Shift, in standard deviations, at which delta is reached at epsilon.

    Within a relative `xtol`.

    >>> round(gaussian_mu(1.0, 1e-6), 2)
    0.24
    """
    from scipy.optimize import brentq

    def gap(log_mu: float) -> float:
        return _log_delta(math.exp(log_mu), epsilon) - math.log(delta)

    return math.exp(float(brentq(gap, -60.0, 7.0, xtol=xtol)))


def gaussian_sigma(differing_bits: int, epsilon: float, delta: float) -> float:
    """Smallest noise of counts of which a person changes at most so many, each by one.

    The l2 sensitivity is ``sqrt(differing_bits)``.

    >>> round(gaussian_sigma(5, 1.0, 1e-6), 2), round(gaussian_sigma(40, 2.0, 1e-6), 1)
    (9.45, 14.1)
    """
    return math.sqrt(differing_bits) / gaussian_mu(epsilon, delta, 1e-10)


def normal_factor(level: float) -> float:
    """Return how many sigmas a normal interval at the level reaches.

    >>> round(normal_factor(0.95), 4)
    1.96
    """
    return -NormalDist().inv_cdf((1 - level) / 2)
