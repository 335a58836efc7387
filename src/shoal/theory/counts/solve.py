"""Turn the question round: which q, how large a crowd, which epsilon keeps a promise on counts.

Delta falls in q, in N and in epsilon (theorems: more noise and more people are post-processing).
The search uses a coarse profile until it is near, and a fine one for the answer: what is returned
is certified there, whatever the search did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from shoal.theory.composition import smallest_epsilon
from shoal.theory.counts.delta import FINE, check_fragments, proven_counts
from shoal.theory.gaussian import gaussian_mu
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import local_q, log_theta

__all__ = ["CountsAnswer", "counts_crowd", "counts_epsilon", "counts_q", "rough_counts_q"]

_COARSE = 3e-3
_WIDE = 100
_TOL_IF_WIDE = 2e-3
"""From so many differing bits on, where a fine profile is dear, this is the least tolerance of q:
a thousandth of the standard deviation of a count."""

_LEAD = 1.3
"""There the fine curve is about so many coarse tolerances ahead of the coarse one (observed)."""

_ROUGH = 5e-3
"""From this tolerance of the answer on, the coarse profile certifies it."""

_SMALLEST_Q = 1e-12
_LARGEST_CROWD = 10**12

_Curve = Callable[[float, float], float]
"""Proven delta at a point, with a profile of the given tolerance."""


class CountsAnswer(NamedTuple):
    """The smallest value that keeps the promise, and the proven delta there."""

    value: float
    delta: float


def _check_target(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be strictly between 0 and 1, got delta={delta}.")


def _smallest(curve: _Curve, start: float, low: float, high: float, target: float,
              xtol: float) -> float:  # fmt: skip
    """Smallest x in [low, high], to within `xtol`, at which the curve is within target.

    `curve` falls, and `high` is known to keep the promise.
    """

    def gap(x: float, tolerance: float) -> float:
        return math.log(max(curve(x, tolerance), 1e-300) / target)

    def near(x: float) -> float:
        return gap(x, _COARSE)

    # widen a stretch from the start until the coarse curve crosses the target in it
    x, width = min(max(start, low), high), 0.05
    value = near(x)
    fails = value > 0.0
    while True:
        if x == (high if fails else low):
            return _certified(gap, x, -1.0, low, high, xtol)
        other = min(x + width, high) if fails else max(x - width, low)
        beyond = near(other)
        if (beyond > 0.0) != fails:
            break
        x, value, width = other, beyond, 3.0 * width
    from scipy.optimize import brentq  # here, so that commands that need none of it begin sooner

    slope = (beyond - value) / (other - x)
    left, right = min(x, other), max(x, other)
    x = float(brentq(near, left, right, xtol=4.0 * xtol, rtol=1e-10))
    if _TOL_IF_WIDE <= xtol < _ROUGH:
        x = max(x - _LEAD * _COARSE, low)
    return _certified(gap, x, slope, low, high, xtol)


def _certified(gap: Callable[[float, float], float], x: float, slope: float, low: float,
               high: float, xtol: float) -> float:  # fmt: skip
    """Step along the curve until it passes at x and not, or hardly, at x - xtol."""
    failing, passing = -math.inf, high
    tolerance = _tolerance(xtol)
    for _ in range(12):
        value = gap(x, tolerance)
        if value <= 0.0:
            passing = min(passing, x)
            if value >= 1.5 * xtol * slope or x <= low:
                break
        else:
            failing = max(failing, x)
        if passing - failing <= xtol:
            break
        # aim at half a tolerance inside
        aim = x - value / slope + 0.5 * xtol
        if not failing < aim < passing:
            aim = 0.5 * (max(failing, low) + passing)
        x = min(max(aim, low), high)
    return passing


def _tolerance(xtol: float) -> float:
    return FINE if xtol < _ROUGH else _COARSE


def _log_noise(q: float) -> float:
    """``ln(q (1 - q) / (1 - 2q)^2)``: the variance of an estimated count per person."""
    return math.log(q * (1.0 - q)) - 2.0 * math.log(1.0 - 2.0 * q)


def _q_of(log_noise: float) -> float:
    """Invert `_log_noise`."""
    odds = 4.0 * math.exp(log_noise)
    return 0.5 * odds / (1.0 + odds) / (1.0 + 1.0 / math.sqrt(1.0 + odds))


def counts_q(d: int, N: int, epsilon: float, delta: float, xtol: float = 5e-4) -> CountsAnswer:
    """Smallest flip probability that keeps (epsilon, delta).

    Within `xtol`, or `_TOL_IF_WIDE` for many bits, as a share of the variance of a count. Round q
    up to what the sampler can draw: the true delta can only fall.

    Examples
    --------
    >>> answer = counts_q(2, 100, 1.0, 1e-3)
    >>> 0.121 < answer.value < 0.124, 0.99e-3 < answer.delta <= 1e-3
    (True, True)
    """
    check_crowd(N, 0.5, epsilon)
    check_fragments(d)
    _check_target(delta)
    if d == 0:
        return CountsAnswer(_SMALLEST_Q, 0.0)
    local = min(math.nextafter(local_q(d, epsilon * (1.0 - 1e-13)), 1.0), 0.5)
    if local <= _SMALLEST_Q:
        return CountsAnswer(_SMALLEST_Q, proven_counts(d, N, _SMALLEST_Q, epsilon))
    if d > _WIDE:
        xtol = max(xtol, _TOL_IF_WIDE)
    # a normal count is no promise, and where the search begins (Dong, Roth and Su 2022)
    guess = math.log(d / max(N - 1, 1)) - 2.0 * math.log(gaussian_mu(epsilon, delta))

    def curve(log_noise: float, tolerance: float) -> float:
        return proven_counts(d, N, min(_q_of(log_noise), local), epsilon, tolerance)

    # q = 1/2 has no finite noise, and is never needed where delta > 0
    ends = _log_noise(_SMALLEST_Q), _log_noise(min(local, 0.5 - 1e-9))
    q = min(_q_of(_smallest(curve, guess, *ends, delta, xtol)), local)
    return CountsAnswer(q, proven_counts(d, N, q, epsilon, _tolerance(xtol)))


def rough_counts_q(d: int, N: int, epsilon: float, delta: float) -> float:
    """Return a flip probability that keeps (epsilon, delta), about a percent above the smallest.

    It is certified as `counts_q` is, by a coarser profile, and takes a fraction of the time.

    Examples
    --------
    >>> 1 <= rough_counts_q(5, 100, 1.0, 1e-3) / counts_q(5, 100, 1.0, 1e-3).value < 1.02
    True
    """
    return counts_q(d, N, epsilon, delta, xtol=1e-2).value


def counts_crowd(
    d: int, q: float, epsilon: float, delta: float, xtol: float = 5e-4
) -> CountsAnswer:
    """Smallest crowd, to within a relative `xtol`, that keeps (epsilon, delta) at q.

    Infinite when 1e12 people are not enough.

    Examples
    --------
    >>> 98 <= counts_crowd(2, 0.1225, 1.0, 1e-3).value <= 101
    True
    """
    check_crowd(1, q, epsilon)
    check_fragments(d)
    _check_target(delta)

    def curve(log_n: float, tolerance: float) -> float:
        return proven_counts(d, math.ceil(math.exp(log_n) - 1e-6), q, epsilon, tolerance)

    if proven_counts(d, 1, q, epsilon) <= delta:
        return CountsAnswer(1, proven_counts(d, 1, q, epsilon))
    top = math.log(_LARGEST_CROWD)
    if curve(top, _COARSE) > delta and curve(top, FINE) > delta:
        return CountsAnswer(math.inf, 1.0)
    sigma = math.sqrt(d) * (1.0 - 2.0 * q) / gaussian_mu(epsilon, delta)
    guess = math.log(2.0 + sigma**2 / (q * (1.0 - q)))
    N = math.ceil(math.exp(_smallest(curve, guess, 0.0, top, delta, xtol)) - 1e-6)
    while N * xtol < 1.0 and N > 1 and proven_counts(d, N - 1, q, epsilon) <= delta:
        N -= 1
    return CountsAnswer(N, proven_counts(d, N, q, epsilon))


def counts_epsilon(d: int, N: int, q: float, delta: float, xtol: float = 1e-5) -> CountsAnswer:
    """Smallest epsilon, to within a relative `xtol`, at which delta is kept.

    ``delta = 0`` asks for the local epsilon.

    Examples
    --------
    >>> 0.99 < counts_epsilon(2, 100, 0.1225, 1e-3).value < 1.01
    True
    """
    check_crowd(N, q, 0.0)
    check_fragments(d)
    local = d * log_theta(q) * (1.0 + 1e-13)
    if delta == 0.0:
        return CountsAnswer(local, 0.0)
    _check_target(delta)

    def curve(epsilon: float) -> float:
        return proven_counts(d, N, q, epsilon)

    root = smallest_epsilon(curve, delta, local, 0.5 * xtol)
    return CountsAnswer(root, curve(root))
