"""Bracket a reduced problem, ever more finely, until the width asked for or the effort allowed."""

from __future__ import annotations

import math

from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.inversion import ORDER, invert, terms
from shoal.theory.stop_loss.reduction import UNIT, Reduced
from shoal.theory.stop_loss.tilt import reach, saddle

TINY = 5e-324
"""What a positive number that is too small for float64 is rounded up to."""


def safe_exp(value: float) -> float:
    """Exponential, infinite where it does not fit."""
    return math.exp(value) if value < 709.0 else math.inf


def refine(problem: Reduced, n: int, rtol: float, beside: float, most_terms: int) -> Bracket:
    """Bracket the stop-loss of the problem's atoms, unscaled.

    The width asked for is `rtol` times the result plus `beside`, a part known elsewhere.
    """
    scale = problem.log_scale
    tilt = saddle(problem.x, problem.log_weight, n)
    t = tilt.t
    # theorem, see _tilt: the elementary bound that nothing below may exceed
    chernoff = tilt.log_mgf - 1.0 - math.log(t)
    best = Bracket(0.0, safe_exp(chernoff) * (1.0 + 1e-3))
    if safe_exp(chernoff + scale) <= 1e-3 * rtol * beside or abs(chernoff) > 650.0:
        return rescaled(best, scale)
    drift = 64 * UNIT * (1.0 + abs(tilt.log_mgf))
    shared = safe_exp(math.log(beside) - scale) if beside > 0.0 else 0.0
    width = 0.7 * math.sqrt(8.0 * max(rtol, 1e-3) / ORDER) / t
    guess = 0.1 / (t * (1.0 + t * tilt.sigma))
    sharpness, cut = 1e-4 * rtol, 2.5
    for _ in range(12):
        edge = reach(problem.x, problem.log_weight, n, tilt, width, ORDER, sharpness * guess)
        count = terms(width, edge.period, cut)
        if count > most_terms:
            width *= count / (most_terms - 4)
        if width * t > 40.0:
            break  # noise wider than the law itself tells nothing
        result = invert(problem, n, tilt, width, edge.period, cut)
        error = result.roundoff + result.cutoff
        factor = math.exp(result.log_unit)
        upper = factor * (result.narrow + error) * (1.0 + drift)
        lower = factor * (2.0 * result.narrow - result.wide - error - 2.0 * edge.leak)
        high = min(best.high, max(upper, 0.0))
        best = Bracket(min(max(best.low, lower * (1.0 - drift)), high), high)
        if count > most_terms or best.high - best.low <= rtol * (best.high + shared):
            break
        wanted = 0.5 * rtol * (best.low + shared) / factor
        if 2.0 * result.roundoff > wanted and result.roundoff > result.wide - result.narrow:
            break  # refining cannot help any more
        if 4.0 * result.cutoff > wanted:
            cut *= 1.5
        if 4.0 * edge.leak > wanted:
            sharpness *= 1e-3
        # the width of the bracket falls between linearly and quadratically in that of the noise
        gap = max(result.wide - result.narrow, 1e-300)
        width *= min(0.7, max(0.02, math.sqrt(wanted / gap)))
    return rescaled(best, scale)


def rescaled(bracket: Bracket, log_scale: float) -> Bracket:
    """Multiply by ``exp(log_scale)``, neither end overflowing nor the high end vanishing."""
    low, high = (safe_exp(math.log(end) + log_scale) if end > 0.0 else 0.0 for end in bracket)
    slack = 8 * UNIT * (1.0 + abs(log_scale))
    return Bracket(low * (1.0 - slack), max(high * (1.0 + slack), TINY))
