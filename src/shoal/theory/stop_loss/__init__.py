"""Stop-loss transforms ``E[(Y_1 + ... + Y_n - T)_+]`` of iid draws, from both sides.

Every privacy number of the theory is one of these. `reduction` cuts the problem exactly, `tilt`
moves it to where the payoff is decided and truncates heavy tails at a known price, `inversion`
integrates and bounds its own errors, `merging` replaces many atoms by few. This module picks the
route, refines, and falls back on elementary bounds: the result may be wide, it is never wrong.
"""

from __future__ import annotations

import math

from shoal.theory.brackets import UNIT, Bracket
from shoal.theory.stop_loss.inversion import ORDER, invert, terms
from shoal.theory.stop_loss.merging import MANY, merge
from shoal.theory.stop_loss.reduction import Draw, Reduced, enumerated, few_outcomes, reduce_draw
from shoal.theory.stop_loss.tilt import reach, saddle, soften

MAX_TERMS = 1 << 18
"""Samples of the integral allowed in the last attempt."""

_LARGE_LAW = 1000
_TERMS_OF_A_LARGE_LAW = 1 << 16
"""More atoms take longer for each sample; brackets are then a few times wider."""

TINY = 5e-324
"""A positive number that is too small for float64 is rounded up to this."""


def stop_loss_of(draw: Draw, n: int, rtol: float = 1e-4, max_terms: int = MAX_TERMS) -> Bracket:
    """Bracket ``E[(Y_1 + ... + Y_n)_+]`` for a distribution in logarithms; threshold 0.

    `max_terms` limits the effort: the bracket is then as narrow as that allows.
    """
    if n < 1 or not rtol > 0.0:
        raise ValueError(f"n must be at least 1 and rtol positive, got n={n}, rtol={rtol}.")
    problem = reduce_draw(draw, n)
    # theorem: (sum Y)_+ <= sum Y_+
    most = safe_exp(math.log(n) + problem.log_mean_plus)
    most *= 1.0 + problem.linear_error + 64 * UNIT
    known = _known(problem)
    if problem.x.size > _LARGE_LAW:
        max_terms = min(max_terms, _TERMS_OF_A_LARGE_LAW)
    if problem.x.size == 0:
        result = known
    elif few_outcomes(n, problem.x.size):
        curved = rescaled(enumerated(problem, n), problem.log_scale)
        result = Bracket(known.low + curved.low, known.high + curved.high)
    elif problem.x.size > MANY:
        pair = merge(problem, n)
        result = Bracket(
            _refined(pair.below, n, rtol, known, most, max_terms).low,
            _refined(pair.above, n, rtol, known, most, max_terms).high,
        )
    else:
        result = _refined(problem, n, rtol, known, most, max_terms)
    high = min(result.high, most)
    return Bracket(min(max(result.low, 0.0), high), high)


def delta_of_draws(draw: Draw, n: int, rtol: float = 1e-4, max_terms: int = MAX_TERMS) -> Bracket:
    """Bracket ``(1/n) E[(Y_1 + ... + Y_n)_+]``, which is a delta if Y is a difference of ratios."""
    return stop_loss_of(draw, n, rtol, max_terms).times(1.0 / n).capped(1.0)


def _known(problem: Reduced, extra: float = 0.0) -> Bracket:
    """Bracket the part that was settled exactly, and more of the kind."""
    linear = safe_exp(problem.log_linear) + extra
    doubt = safe_exp(problem.log_linear_doubt)
    slack = problem.linear_error
    low = max(linear * (1.0 - slack) - doubt, 0.0) if math.isfinite(linear) else 0.0
    return Bracket(low, linear * (1.0 + slack) + doubt)


def _refined(
    problem: Reduced, n: int, rtol: float, known: Bracket, most: float, max_terms: int
) -> Bracket:
    """Try more and more samples, on softer and softer versions of the problem."""
    best = Bracket(0.0, most)
    current, price = problem, 0.0
    before: Bracket | None = None
    for effort in (*(e for e in (1 << 13, 1 << 16) if e < max_terms), max_terms):
        curved = refine(current, n, rtol, known.low, effort)
        low = max(best.low, known.low + curved.low - price)
        high = min(best.high, known.high + curved.high)
        best = Bracket(min(low, high), high)
        if best.is_within(rtol) or best.high == 0.0 or curved == before:
            break
        before = curved
        hope = max(best.low, 1e-4 * best.high)
        soft = soften(problem, n, math.log(0.05 * rtol * hope)) if hope > 1e-300 else None
        if soft is not None:
            current, price = soft.problem, safe_exp(soft.log_price)
            known = _known(problem, safe_exp(soft.log_extra))
    return best


def safe_exp(value: float) -> float:
    """Exponential, infinite where it does not fit."""
    return math.exp(value) if value < 709.0 else math.inf


def refine(problem: Reduced, n: int, rtol: float, beside: float, max_terms: int) -> Bracket:
    """Bracket the stop-loss of the problem's atoms, unscaled.

    The width asked for is `rtol` times the result plus `beside`, a part known elsewhere.
    """
    scale = problem.log_scale
    tilt = saddle(problem.x, problem.log_weight, n)
    t = tilt.t
    # theorem, see `tilt`: the elementary bound that nothing below may exceed
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
        if count > max_terms:
            width *= count / (max_terms - 4)
        if width * t > 40.0:
            break  # noise wider than the distribution itself tells nothing
        result = invert(problem, n, tilt, width, edge.period, cut)
        error = result.roundoff + result.cutoff
        factor = math.exp(result.log_unit)
        upper = factor * (result.narrow + error) * (1.0 + drift)
        lower = factor * (2.0 * result.narrow - result.wide - error - 2.0 * edge.leak)
        high = min(best.high, max(upper, 0.0))
        best = Bracket(min(max(best.low, lower * (1.0 - drift)), high), high)
        if count > max_terms or best.high - best.low <= rtol * (best.high + shared):
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
