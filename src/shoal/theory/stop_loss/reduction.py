"""Cut a stop-loss problem down to atoms of one scale, exactly, and enumerate small ones.

One draw is a finite distribution of differences ``Y = e^plus - e^minus``, kept in logarithms:
likelihood ratios run over hundreds of orders of magnitude (``theta^L`` with L = 1000), so neither
the ratios nor their probabilities are ever formed before they are scaled.

Two exact cuts (both theorems, one line each), repeated until nothing changes. Let ``y_min`` and
``y_max`` be the extreme atoms, ``n`` the number of draws and 0 the threshold.

* One draw above ``c = -(n-1) y_min`` makes the sum positive whatever the others are, so its
  payoff is linear there: replace the atom by c and add ``n w (y - c)`` (times the probability
  that the other draws survive the second cut). This is what cures heavy tails.
* One draw at or below ``-(n-1) y_max`` makes the payoff 0: drop its mass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.brackets import UNIT, Bracket, FloatArray, IntArray, log_sum

_MARGIN = 1e-9
"""Slack, in logarithms, kept on the safe side of both cuts."""

_FEW = 20_000


class Reduced(NamedTuple):
    """Atoms in [-1, 1] around threshold 0, with what was already settled exactly.

    The stop-loss is ``exp(log_linear) + exp(log_scale) * (stop-loss of x)``. ``dx`` bounds the
    absolute error of each x. ``exp(log_lost)`` is the mass dropped by the second cut. The linear
    part is off by at most ``linear_error`` of itself and by ``exp(log_linear_doubt)``, what the
    atoms in it may have lost when two exponentials cancelled. The relative error of a weight is
    ``16 u (1 + |log_weight| + blur)``: `blur` is what its own logarithm does not tell, of a weight
    that is the sum of others.
    """

    x: FloatArray
    dx: FloatArray
    log_weight: FloatArray
    log_lost: float
    log_scale: float
    log_linear: float
    log_linear_doubt: float
    log_mean_plus: float
    linear_error: float
    blur: FloatArray | float = 0.0


def log_difference(draw: Draw) -> tuple[FloatArray, npt.NDArray[np.int8]]:
    """``ln |e^plus - e^minus|`` and the sign."""
    larger = np.maximum(draw.log_plus, draw.log_minus)
    smaller = np.minimum(draw.log_plus, draw.log_minus)
    nothing = np.isneginf(larger)
    apart = np.where(nothing, 0.0, smaller) - np.where(nothing, 0.0, larger)
    with np.errstate(divide="ignore"):
        log_size = larger + np.log(-np.expm1(apart))
    sign = np.sign(np.where(draw.log_plus >= draw.log_minus, -apart, apart))
    return log_size, sign.astype(np.int8)


def reduce_draw(draw: Draw, n: int) -> Reduced:
    """Apply both cuts to a distribution drawn `n` >= 1 times, and scale what is left.

    Whether an atom is above 0, and which is the largest, is decided in floats; so each decision is
    taken for the worst value that the atom's own error allows.
    """
    alive = draw.log_weight > -np.inf
    blur = np.broadcast_to(draw.blur, alive.shape)[alive]
    draw = Draw(draw.log_plus[alive], draw.log_minus[alive], draw.log_weight[alive])
    size, sign = log_difference(draw)
    plus, minus, weight = draw.log_plus, draw.log_minus, draw.log_weight
    entries = np.concatenate([plus, minus])
    own = 16 * UNIT * (1.0 + float(np.max(np.abs(entries[np.isfinite(entries)]), initial=0.0)))
    doubt = np.logaddexp(plus, minus) + math.log(own)
    outer = np.logaddexp(size, doubt)
    nonzero = doubt < size
    certain = nonzero | np.isneginf(outer)  # an exact 0 is no doubt either
    inner = size.copy()
    inner[nonzero] += np.log(-np.expm1(doubt[nonzero] - size[nonzero]))
    log_mean_plus = log_sum((weight + outer)[(sign > 0) | ~certain])
    # an atom that is 0 is in no sum, however blurred it is
    spread = float(np.max(np.abs(weight) + np.where(sign == 0, 0.0, blur), initial=1.0))
    spread += float(np.max(np.abs(size[np.isfinite(size)]), initial=1.0))
    log_linear = log_linear_doubt = -math.inf
    log_mass = 0.0
    log_lost = -math.inf
    others = math.log(n - 1) if n > 1 else -math.inf

    def linear(part: FloatArray) -> float:
        return math.log(n) + (n - 1) * log_mass + log_sum(part)

    while True:
        rising, falling = (sign > 0) | ~certain, (sign < 0) | ~certain
        if not (rising & certain).any():
            # nothing is surely above 0, and (sum Y)_+ <= sum Y_+ (theorem) bounds what may be
            log_linear_doubt = _log_add(log_linear_doubt, linear((weight + outer)[rising]))
            size = size[:0]
            break
        if not falling.any() or n == 1:
            log_linear = _log_add(log_linear, linear((weight + size)[sign > 0]))
            log_linear_doubt = _log_add(log_linear_doubt, linear((weight + doubt)[rising]))
            size = size[:0]
            break
        ceiling = others + float(outer[falling].max())
        ceiling += 1e-12 * (1.0 + abs(ceiling))  # any level above the exact one is exact too
        heavy = (sign > 0) & certain & (size > ceiling + _MARGIN)
        if heavy.any():
            excess = size[heavy] + np.log(-np.expm1(ceiling - size[heavy]))
            log_linear = _log_add(log_linear, linear(weight[heavy] + excess))
            log_linear_doubt = _log_add(
                log_linear_doubt, linear(weight[heavy] + doubt[heavy] + math.log(2.0))
            )
            size = np.where(heavy, ceiling, size)
            plus = np.where(heavy, ceiling, plus)
            minus = np.where(heavy, -np.inf, minus)
            doubt = np.where(heavy, ceiling + math.log(own), doubt)
            outer = np.logaddexp(size, doubt)
        highest = float(outer[rising].max())
        dead = (sign < 0) & certain & (inner > others + highest + _MARGIN)
        if dead.any():
            keep = ~dead
            log_lost = _log_add(log_lost, log_sum(weight[dead]))
            plus, minus, weight, blur, size, sign, doubt, inner, outer, certain = (
                plus[keep], minus[keep], weight[keep], blur[keep], size[keep], sign[keep],
                doubt[keep], inner[keep], outer[keep], certain[keep],
            )  # fmt: skip
            log_mass = math.log1p(-math.exp(log_lost)) if log_lost < -1.0 else log_sum(weight)
        if not (heavy.any() or dead.any()):
            break
    error = 64 * UNIT * (spread + n * (1.0 + spread) * min(1.0, math.exp(log_lost)))
    settled = log_lost, 0.0, log_linear, log_linear_doubt, log_mean_plus, error
    scale = float(np.max(size, initial=-math.inf))
    if scale == -math.inf:
        empty = np.zeros(0)
        return Reduced(empty, empty, empty, *settled)
    x = sign.astype(np.float64) * np.exp(size - scale)
    dx = np.full(x.shape, 2.0**-1000)
    for part in (plus, minus):
        finite = np.isfinite(part)
        # log(e^plus - e^minus) may cancel, so that the error is that of the larger exponential
        grown = np.exp(np.minimum(part[finite] - scale, 700.0))
        dx[finite] += (own + 32 * UNIT * (1.0 + np.abs(part[finite]) + abs(scale))) * grown
    return Reduced(x, dx, weight, *settled, blur)._replace(log_scale=scale)


def _log_add(first: float, second: float) -> float:
    return float(np.logaddexp(first, second))


class Draw(NamedTuple):
    """Atoms ``exp(log_plus) - exp(log_minus)`` with probabilities ``exp(log_weight)``.

    ``-inf`` stands for 0. Each value is taken to be exact up to ``8 u (1 + m)``, u = 2^-53, m the
    largest of all finite values of both signs: a few additions of correctly rounded logarithms lose
    no more. Each log-weight is taken to be exact up to ``8 u (1 + |entry| + blur)``; `blur` is what
    its own size does not tell, of a weight that was added up. The engine carries both into its
    brackets. The weights are those of a probability: the heaviest one is what the others leave.
    """

    log_plus: FloatArray
    log_minus: FloatArray
    log_weight: FloatArray
    blur: FloatArray | float = 0.0


def compositions(n: int, parts: int) -> IntArray:
    """List all ways to divide n draws among `parts` atoms, one row each.

    >>> compositions(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    rows = np.zeros((1, 0), dtype=np.int64)
    left = np.array([n])
    for _ in range(parts - 1):
        copies = left + 1
        count = np.arange(int(copies.sum())) - np.repeat(np.cumsum(copies) - copies, copies)
        rows = np.column_stack([np.repeat(rows, copies, axis=0), count])
        left = np.repeat(left, copies) - count
    return np.column_stack([rows, left])


def few_outcomes(n: int, parts: int) -> bool:
    """Whether `compositions` is short enough to be the best method."""
    return parts <= 64 and math.comb(n + parts - 1, min(n, parts - 1)) * parts <= 2 * _FEW


def outcome_chances(
    counts: IntArray, log_weight: FloatArray, blur: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Multinomial probability of each row, and a bound on its relative error."""
    n = int(counts[0].sum())
    # a table of lgamma, since few numbers occur; SciPy would take longer to load
    log_factorial = np.array([math.lgamma(k + 1.0) for k in range(n + 1)])
    logs = counts * log_weight - log_factorial[counts]
    size = (counts * (np.abs(log_weight) + blur)).sum(axis=1) + log_factorial[n] * 2.0
    chance = np.exp(logs.sum(axis=1) + log_factorial[n])
    return chance, 16 * UNIT * (2.0 + size + 2.0 * n)


def enumerated(problem: Reduced, n: int) -> Bracket:
    """Stop-loss of a reduced problem, in its scale, summed over all outcomes."""
    counts = compositions(n, problem.x.size)
    chance, wobble = outcome_chances(counts, problem.log_weight, problem.blur)
    total = np.einsum("ij,j->i", counts, problem.x)
    own = problem.dx + 8 * UNIT * (1 + problem.x.size) * np.abs(problem.x)
    doubt = np.einsum("ij,j->i", counts, own)
    low = float(np.sum(chance * (1.0 - wobble) * np.maximum(total - doubt, 0.0)))
    high = float(np.sum(chance * (1.0 + wobble) * np.maximum(total + doubt, 0.0)))
    return Bracket(max(low, 0.0) * (1.0 - 1e-12), high * (1.0 + 1e-12))
