"""A quick guess of a stop-loss: good enough to rank problems, certified by nothing.

Heavy tails are cut at four times the scale of the sum. What is left is taken at its saddle point.
What was cut off is taken as one draw that is the whole sum: it pays what it has above the drift of
the others. Against brackets the guess is mostly within a few per cent.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.theory.stop_loss.distribution import FloatArray, Law, dot, log_sum
from shoal.theory.stop_loss.reduction import reduce_law
from shoal.theory.stop_loss.tilt import saddle

__all__ = ["log_estimate", "sum_scale"]


def log_estimate(law: Law, n: int) -> float:
    """Guess ``ln E[(Y_1 + ... + Y_n)_+]``.

    Examples
    --------
    >>> guess = log_estimate(Law.of([-1.0, 1.0], [0.5, 0.5]), 4)
    >>> abs(guess - math.log(0.75)) < 0.7
    True
    """
    problem = reduce_law(law, n)
    x, log_weight = problem.x, problem.log_weight
    if not (x > 0.0).any():
        return problem.log_linear
    level = 4.0 * sum_scale(np.abs(x), np.exp(log_weight), n)
    mild = np.clip(x / level, -1.0, 1.0)
    tilt = saddle(mild, log_weight, n)
    curved = tilt.log_mgf - math.log(tilt.t * (1.0 + 2.5 * tilt.t * tilt.sigma))
    drift = max(1.0, -n * dot(np.exp(log_weight), mild))
    jump = x / level > drift
    single = math.log(n) + log_sum(log_weight[jump] + np.log(x[jump] / level - drift))
    both = float(np.logaddexp(curved, single)) + math.log(level) + problem.log_scale
    return float(np.logaddexp(problem.log_linear, both))


def sum_scale(size: FloatArray, weight: FloatArray, n: int) -> float:
    """Find the largest size c with ``n E[min(X^2, c^2)] >= c^2``: the scale of a sum of n draws.

    One draw beyond it is the whole sum. The left side over c^2 falls as c rises.

    Examples
    --------
    >>> sum_scale(np.array([1.0, 1000.0]), np.array([1.0, 1e-9]), 10_000)
    1.0
    """
    order = np.argsort(size)
    # the squares of atoms a hundred orders of magnitude below the largest do not fit in a float
    ordered, mass = size[order].astype(np.longdouble), weight[order]
    inside = np.cumsum(mass * ordered**2)
    beyond = np.maximum(float(mass.sum()) - np.cumsum(mass), 0.0)
    enough = n * (inside + beyond * ordered**2) >= ordered**2
    scales = ordered[enough & (ordered > 0.0)]
    # so that nothing of size 1 overflows when it is divided by the scale
    return max(float(scales[-1] if scales.size else ordered[-1]), 1e-280)
