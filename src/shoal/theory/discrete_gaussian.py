"""The Gaussian distribution on the whole numbers: its tail, its delta, and sums of several.

``P[Z = k]`` is proportional to ``f(k) = exp(-k^2 / (2 sigma^2))``. A vector of L2 sensitivity D
with such noise in every coordinate is rho-zCDP with rho = D^2 / (2 sigma^2), and rho-zCDP is
(epsilon, delta)-DP with ``delta = exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1)`` for every
a > 1 (Canonne, Kamath, Steinke, NeurIPS 2020; theorems). Its variance is at most sigma^2.

*Against the normal distribution.* N is normal with standard deviation sigma. f falls, so its sum
from m >= 1 on is at most its integral from m - 1 on, and at least the integral from m on plus half
of f(m). The sum over all whole numbers is sigma sqrt(2 pi) times 1 + 2 exp(-2 pi^2 sigma^2) + ...,
by Poisson's formula. So ``P[Z >= m] <= P[N >= m - 1]`` for every m. If Z and N have equal ranks, Z
is then at most N + 1 and, by symmetry, at least N - 1: a sum of several Z_i with weights w_i is
within sum |w_i| of a normal one (theorem).

*Delta (theorem).* Noise is added to d whole numbers; one person moves each of them by at most s.
For one number and a shift of exactly s the privacy loss at Z = -k is ``(s / sigma^2)(k + s / 2)``:
all losses are on a lattice, so those of d numbers add up there (`composition.composed_delta`).
A smaller shift is no worse: Z is log-concave, so the best test of a shift rejects above some t, and
``P[Z <= t] - lam P[Z <= t - s]`` rises with s. So the pair of the largest shift dominates every
other, and dominating pairs compose. Both orders of a pair are alike, as Z is symmetric. Larger
losses only raise delta, so for a large sigma the normal N + 1 takes the place of Z, rounded up.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from shoal.theory.brackets import UNIT, Bracket
from shoal.theory.calibration import smallest
from shoal.theory.composition import Losses, composed_delta, gaussian_mu

_MAX_TERMS = 1 << 14
"""From this sigma on the normal bound is used: it is off by at most one step of sigma / 16384."""

_MAX_SIGMA, _MAX_SUM = 5_000.0, 100_000.0
"""Up to this sigma, of one number and of the sum, losses are exact; else they are rounded up."""

_STEPS, _STEPS_OF_SUM = 2_000.0, 300_000.0
"""Then a sigma has so many steps, and that of the sum at most so many."""


def tail(k: int, sigma: float) -> float:
    """Return ``P[|Z| >= k]``, or a bound of it where sigma is large.

    >>> round(tail(3, 1.0), 6)
    0.009134
    """
    if not 0.0 < sigma < math.inf:
        raise ValueError(f"sigma must be above 0 and finite, got sigma={sigma}.")
    if k <= 0:
        return 1.0
    if sigma >= _MAX_TERMS:
        return min(2.0 * NormalDist().cdf(-(k - 1) / sigma), 1.0)
    import numpy as np

    far = math.ceil(40.0 * sigma) + 1
    masses = np.exp(-0.5 * np.square(np.arange(far + 1) / sigma))
    above = float(masses[min(k, far) :].sum())
    return min(2.0 * above / (2.0 * float(masses[1:].sum()) + 1.0), 1.0)


def deviation(sigma: float) -> float:
    """Return the standard deviation, which is at most sigma, and from 2 on equal to it.

    >>> round(deviation(0.3), 4), deviation(2.0)
    (0.0876, 2.0)
    """
    if sigma >= 2.0:
        return sigma
    masses = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(1, 81)]
    squares = sum(mass * k * k for k, mass in enumerate(masses, start=1))
    return math.sqrt(2.0 * squares / (1.0 + 2.0 * sum(masses)))


def radius(miss: float, sigma: float) -> int:
    """Return the smallest whole m with ``P[|Z| > m] <= miss``; of a bound where sigma is large.

    >>> radius(0.05, 1.0), radius(0.05, 10.0)
    (2, 20)
    """
    if not 0.0 < miss < 1.0:
        raise ValueError(f"miss must be strictly between 0 and 1, got miss={miss}.")
    m = max(math.floor(-sigma * NormalDist().inv_cdf(miss / 2.0)) - 1, 0)
    while tail(m + 1, sigma) > miss:
        m += 1
    while m > 0 and tail(m, sigma) <= miss:
        m -= 1
    return m


def sum_radius(miss: float, sigmas: tuple[float, ...]) -> float:
    """Return the z with ``P[sum of N_i > z] = miss`` for independent normal N_i."""
    return max(-NormalDist().inv_cdf(miss), 0.0) * math.hypot(*sigmas) * (1.0 + 1e-12)


def delta_of_shifts(shift: int, count: int, sigma: float, epsilon: float, least: float) -> float:
    """Upper bound of delta at epsilon for `count` numbers that one person moves by up to `shift`.

    A delta below `least` need not be resolved.

    >>> 0.98e-9 < delta_of_shifts(1, 2, 8.5402, 0.906, 1e-9) < 1.01e-9
    True
    """
    return bracket_of_shifts(shift, count, sigma, epsilon, least).high


def bracket_of_shifts(
    shift: int, count: int, sigma: float, epsilon: float, least: float
) -> Bracket:
    """Bracket the same; the low end is what shifts of exactly `shift` reach."""
    mean = count * (shift / sigma) ** 2 / 2.0
    at = epsilon - mean  # losses are counted from their mean
    if at <= 0.0:
        return Bracket(0.0, 1.0)
    step = shift / sigma**2
    rest, root = min(1e-6 * least / count, 0.5), math.sqrt(count)
    is_exact = sigma <= _MAX_SIGMA and sigma * root <= _MAX_SUM
    if is_exact:
        losses = _exact_losses(sigma, step, rest)
    else:
        losses = _rounded_losses(sigma, step, rest, min(_STEPS, _STEPS_OF_SUM / root))
    # rounding of the masses, which count once for each number, and of the losses
    doubt = UNIT * (8.0 + losses.node.size) * count + 8 * UNIT * (epsilon + mean)
    unsure = 8 * UNIT * (at + mean)
    high = composed_delta(losses, count, at - unsure).high
    low = 0.0
    if is_exact:
        missing = count * losses.infinite  # counted as endless losses, in every number
        low = composed_delta(losses, count, at + unsure).low * (1.0 - 4.0 * doubt) - missing
    return Bracket(max(low, 0.0), min(high * (1.0 + 4.0 * doubt), 1.0))


def _exact_losses(sigma: float, step: float, rest: float) -> Losses:
    import numpy as np

    far = radius(rest, sigma)
    node = np.arange(-far, far + 1)
    mass = np.exp(-0.5 * np.square(node / sigma))
    return Losses(step, node, mass / mass.sum(), tail(far + 1, sigma))


def _rounded_losses(sigma: float, step: float, rest: float, steps: float) -> Losses:
    """Losses of N + 1, which Z does not exceed, rounded up to so many steps of sigma."""
    import numpy as np
    from scipy.special import ndtr

    wide = sigma / steps
    top = math.ceil(-NormalDist().inv_cdf(rest) * steps) + 1
    node = np.arange(-top, top + 1)
    above = ndtr((1.0 - node * wide) / sigma)  # of N + 1 > node * wide
    mass = -np.diff(above, prepend=1.0)
    return Losses(step * wide, node, np.maximum(mass, 0.0) * (1.0 + 1e-12), float(above[-1]))


def sigma_of_shifts(shift: int, count: int, epsilon: float, delta: float) -> float:
    """Return a sigma of four digits, about the smallest, that keeps (epsilon, delta).

    Delta falls with sigma only roughly, as losses jump from one place of the lattice to the next:
    so the very number returned was asked.

    >>> sigma_of_shifts(1, 2, 0.906, 1e-9)
    8.536
    """

    def keeps(sigma: float) -> bool:
        return delta_of_shifts(shift, count, sigma, epsilon, delta) <= delta

    normal = math.sqrt(count) * shift / gaussian_mu(epsilon, delta)
    # below this one the mean loss exceeds epsilon / 2, where delta is large and not resolved
    plain = math.sqrt(count / epsilon) * shift
    near = smallest(keeps, normal / 4.0, 16.0 * max(normal, plain), start=normal, rtol=1e-4)
    places = 3 - math.floor(math.log10(near))
    digits = math.ceil(near * 10.0**places)
    while not keeps(digits / 10.0**places):
        digits += 1
    return digits / 10.0**places
