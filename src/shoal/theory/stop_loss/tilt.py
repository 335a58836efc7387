"""Exponential tilting: where to integrate, how far a sum reaches, and what cutting its tails costs.

``K(t)`` is the logarithm of the moment generating function of one draw. For any t > 0

    E[(S - s)_+] <= exp(n K(t) - t s) / (e t)              (theorem: x_+ <= e^(t x) / (e t))

and the inversion integral is taken on the line Re z = t, at best through its saddle point
``n K'(t) = 2 / t``.

*Truncation* (`soften`). Where a distribution is heavy on both sides the exact cuts of `reduction`
do not bite. Raise atoms below -d to -d (total weight w) and clamp atoms above c to c. Let S be the
sum after the cuts and ``e = E[(Y - c)_+]``.

* From above (theorem): ``(sum Y)_+ <= S_+ + sum (Y - c)_+``, so ``C <= E[S_+] + n e``.
* From below (theorem): losing every sequence with a raised atom costs ``E[S_+]`` at most
  ``n w E[(S' - d)_+]``, S' the sum of n-1 draws. On the others, one draw above c has its linear
  payoff unless the rest falls below -c, which has probability at most
  ``v = inf_s exp((n-1) K(-s) - s c)``, K without the raised atoms. So
  ``C >= E[S_+] - n w E[(S' - d)_+] + n e ((1-w)^(n-1) - v)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, FloatArray, dot, log_sum
from shoal.theory.stop_loss.reduction import Reduced

_SPEEDS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_RATIOS = (1.5, 4.0, 16.0, 64.0, 256.0)


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

    Any t > 0 gives a valid bracket, the saddle point a narrow one: 16 halvings are enough.
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
    for _ in range(16):
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


class Soft(NamedTuple):
    """A milder problem in its own scale, the linear part cut off, and the price of the cuts.

    The stop-loss of the original problem is between that of `problem` plus ``exp(log_extra)``
    and that minus ``exp(log_price)``, all unscaled.
    """

    problem: Reduced
    log_extra: float
    log_price: float


def soften(problem: Reduced, n: int, log_budget: float) -> Soft | None:
    """Find the lowest cut whose price is below ``exp(log_budget)``, unscaled, if there is one."""
    x = problem.x
    budget = log_budget - problem.log_scale
    levels = np.unique(-x[x < -1e-280])
    if levels.size > 40:
        levels = levels[np.unique(np.linspace(0, levels.size - 1, 40).astype(int))]
    best: tuple[float, float, float] | None = None
    for level in levels:
        highest = 0.5 if best is None else min(0.5, best[1])
        ceilings = [ratio * float(level) for ratio in _RATIOS if ratio * float(level) < highest]
        # The price falls as the ceiling rises: what the highest one cannot afford, none can.
        if not ceilings or _log_price(problem, n, float(level), ceilings[-1]) >= budget:
            continue
        for ceiling in ceilings:
            price = _log_price(problem, n, float(level), ceiling)
            if price < budget:
                best = (float(level), ceiling, price)
                break
    if best is None:
        return None
    level, ceiling, price = best
    mild = np.clip(x, -level, ceiling)
    scale = float(np.abs(mild).max())
    reduced = problem._replace(
        x=mild / scale,
        dx=np.where(x > ceiling, 0.0, problem.dx) / scale + 4 * UNIT * np.abs(mild) / scale,
        log_scale=problem.log_scale + math.log(scale),
    )
    log_extra = math.log(n) + _log_excess(problem, ceiling) + problem.log_scale
    return Soft(reduced, log_extra, price + problem.log_scale + 1e-9)


def _log_excess(problem: Reduced, ceiling: float) -> float:
    above = problem.x > ceiling
    return log_sum(problem.log_weight[above] + np.log(problem.x[above] - ceiling))


def _log_price(problem: Reduced, n: int, level: float, ceiling: float) -> float:
    """Logarithm of what the lower bound gives up, in the scale of the problem."""
    x, weight = problem.x, problem.log_weight
    log_n = math.log(n)
    kept = x >= -level
    log_raised = log_n + log_sum(weight[~kept])
    if log_raised > -1.0:
        return math.inf
    speeds = _SPEEDS / level
    mild = np.minimum(x[kept], ceiling)
    fall = (n - 1) * log_mgf(mild, weight[kept], -speeds) - speeds * ceiling
    # draws lost in the exact cuts spoil the linear payoff as raised ones do
    doubt = float(np.logaddexp(log_raised, min(float(np.min(fall)), 0.0)))
    doubt = float(np.logaddexp(doubt, log_n + problem.log_lost))
    parts = [log_n + _log_excess(problem, ceiling) + doubt]
    # the excess itself carries the errors of its atoms
    above = x > ceiling
    parts.append(log_n + log_sum(weight[above] + np.log(problem.dx[above])))
    if log_raised > -math.inf:
        # (S' - d)_+ <= sum (Y - d/4)_+ + (sum min(Y, d/4) - d)_+, the latter as above
        low = np.clip(x, -level, level / 4.0)
        tail = (n - 1) * log_mgf(low, weight, speeds) - speeds * level - 1.0 - np.log(speeds)
        rest = np.logaddexp(log_n + _log_excess(problem, level / 4.0), float(np.min(tail)))
        parts.append(log_raised + float(rest))
    return log_sum(np.array(parts)) + 1e-9


def sum_scale(size: FloatArray, weight: FloatArray, n: int) -> float:
    """Find the largest size c with ``n E[min(X^2, c^2)] >= c^2``: the scale of a sum of n draws.

    One draw beyond it is the whole sum. The left side over c^2 falls as c rises.
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
