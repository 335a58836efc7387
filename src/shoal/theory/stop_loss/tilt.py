"""Exponential tilting: where to integrate, and how far the law reaches.

``K(t)`` is the logarithm of the moment generating function of one draw. For any t > 0

    E[(S - s)_+] <= exp(n K(t) - t s) / (e t)              (theorem: x_+ <= e^(t x) / (e t))

and the inversion integral is taken on the line Re z = t, at best through its saddle point
``n K'(t) = 2 / t``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.stop_loss.distribution import FloatArray, dot
from shoal.theory.stop_loss.reduction import UNIT, Reduced


class Tilt(NamedTuple):
    """A point t, ``n K(t)``, and the standard deviation of the tilted sum."""

    t: float
    log_mgf: float
    sigma: float


def log_mgf(x: FloatArray, log_weight: FloatArray, t: FloatArray) -> FloatArray:
    """``K`` at each of the points `t`."""
    exponents = log_weight[:, None] + x[:, None] * t[None, :]
    top = exponents.max(axis=0)
    total: FloatArray = top + np.log(np.exp(exponents - top).sum(axis=0))
    return total


def tilted(x: FloatArray, log_weight: FloatArray, t: float) -> tuple[FloatArray, float]:
    """Tilted probabilities, which sum to 1, and ``K(t)``."""
    exponents = log_weight + t * x
    top = float(exponents.max())
    weights = np.exp(exponents - top)
    total = float(weights.sum())
    return weights / total, top + math.log(total)


class Pivoted(NamedTuple):
    """Tilted weights w of the atoms x - x_pivot, ``K(t)``, and the relative error of M(t+iv).

    ``own`` is the part of that error that comes from the weights, ``rounding`` that of K itself.
    """

    pivot: int
    weights: FloatArray
    k: float
    own: float
    rounding: float


def pivoted(problem: Reduced, t: float) -> Pivoted:
    """Tilt relative to the heaviest atom, whose weight is what the others leave.

    With y = x - x_pivot, ``M(z) e^(-z x_pivot) = 1 - lost + sum w (e^(zy) - 1)``: the heaviest
    weight does not appear, nor does its error, which n would multiply. Where the heaviest atom is
    not heavy at all, the plain sum is the better one. Weights are off by ``16 u (1 + |ln w|)``,
    and by the problem's blur.
    """
    x, log_weight = problem.x, problem.log_weight
    pivot = int(np.argmax(log_weight))
    y = x - x[pivot]
    doubt = 16 * UNIT * (1.0 + np.abs(log_weight) + problem.blur + np.abs(t * y))
    weights, k = tilted(y, log_weight, t)
    plain = dot(weights, doubt) + (x.size + 8) * UNIT
    lost = math.exp(problem.log_lost)
    light = np.arange(x.size) != pivot
    mass = np.exp(log_weight[light])
    terms = mass * np.expm1(np.minimum(t * y[light], 700.0))
    value = float(terms.sum()) - lost
    log_total = math.log1p(value) if value > -1.0 else k
    spread = dot(weights[light], doubt[light]) + dot(mass, doubt[light]) * math.exp(-log_total)
    spread += (
        64 * UNIT * lost * (1.0 + abs(problem.log_lost if lost else 0.0)) * math.exp(-log_total)
    )
    rounding = (x.size + 8) * UNIT * (float(np.abs(terms).sum()) + lost) * math.exp(-log_total)
    if not (value > -1.0 and spread + rounding < plain):
        return Pivoted(pivot, weights, k + t * x[pivot], plain, (x.size + 8) * UNIT)
    weights = np.exp(log_weight + t * y - log_total)
    weights[pivot] = 0.0  # its atom is 0 and does not appear
    return Pivoted(pivot, weights, log_total + t * float(x[pivot]), spread, rounding)


def saddle(x: FloatArray, log_weight: FloatArray, n: int) -> Tilt:
    """Solve ``t n K'(t) = 2`` by bisection in ln t; the left side increases where it is positive.

    Any t > 0 gives a valid bracket; the saddle point gives a narrow one. So this is no calibration:
    30 halvings are enough, and it is called too often for more.
    """

    def excess(log_t: float) -> float:
        t = math.exp(log_t)
        weights, _ = tilted(x, log_weight, t)
        return t * n * dot(weights, x) - 2.0

    low = high = 0.0
    while excess(high) < 0.0 and high < 600.0:
        high += 4.0
    while excess(low) > 0.0 and low > -600.0:
        low -= 4.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        if excess(middle) < 0.0:
            low = middle
        else:
            high = middle
    t = math.exp(0.5 * (low + high))
    weights, k = tilted(x, log_weight, t)
    mean = dot(weights, x)
    variance = dot(weights, (x - mean) ** 2)
    return Tilt(t, n * k, math.sqrt(n * variance))


def noise_log_mgf(t: FloatArray, width: float, order: int) -> FloatArray:
    """``ln E[e^(t e)]`` of a sum e of `order` uniforms on [-width/2, width/2]."""
    v = np.maximum(np.abs(t) * (width / 2.0), 1e-12)
    # ln(sinh v / v), written so that neither end overflows or cancels
    value = np.where(v < 1e-3, v * v / 6.0, v + np.log(-np.expm1(-2.0 * v) / (2.0 * v)))
    result: FloatArray = order * value
    return result


class Reach(NamedTuple):
    """Period of the sampled integral and a bound on what leaks in from its other periods."""

    period: float
    leak: float


def reach(
    x: FloatArray,
    log_weight: FloatArray,
    n: int,
    tilt: Tilt,
    width: float,
    order: int,
    tolerance: float,
) -> Reach:
    """Choose the period P so that the aliases ``e^(tkP) E[(S + e - kP)_+]``, k != 0, are small.

    Each alias is bounded by the inequality of this module at some other point t': for k > 0 a
    larger one, for k < 0 a smaller one; the bounds fall geometrically in |k|. `tolerance` and the
    leak are in units of ``exp(n K(t))``.
    """
    t = tilt.t
    steps = 2.0 ** np.arange(-7.0, 13.0)
    others = np.concatenate([t * (1.0 + steps), t * np.array([0.002, 0.01, 0.03])])
    others = np.concatenate([others, t * np.linspace(0.06, 0.97, 24)])
    gap = np.abs(others - t)
    height = n * log_mgf(x, log_weight, others) - tilt.log_mgf
    height += noise_log_mgf(others, width, order) - np.log(others) - 1.0
    needed = (height - math.log(tolerance)) / gap
    right = others > t
    period = 0.0
    picks = []
    for side in (right, ~right):
        pick = int(np.argmin(np.where(side, needed, np.inf)))
        picks.append(pick)
        period = max(period, float(needed[pick]))
    top = float(x.max())
    period = max(period, 2.0 * order * width, 4.0 * tilt.sigma)
    leak = 0.0
    for pick, is_right in zip(picks, (True, False), strict=True):
        if is_right and period > n * top + order * width:
            continue
        fall = float(gap[pick]) * period
        exponent = float(height[pick]) - fall
        if fall <= 0.0 or exponent > 700.0:
            leak = math.inf
        else:
            leak += 1.01 * math.exp(exponent) / -math.expm1(-fall)
    return Reach(period, leak)
