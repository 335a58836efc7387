"""Stop-loss transforms ``E[(Y_1 + ... + Y_n - T)_+]`` of iid draws, from both sides.

Every privacy number of the theory is one of these. `reduction` cuts the problem exactly, `tilt`
moves it to where the payoff is decided and truncates heavy tails at a known price, and `inversion`
integrates and bounds its own errors. This module replaces many atoms by few, picks the route,
refines, and falls back on elementary bounds: the result may be wide, it is never wrong.

*Many atoms by few.* Cut the line at nodes, between which no atom is forgotten. *From below*
(theorem): put the atoms between two nodes on their mean. *From above* (theorem): move each atom to
the two nodes around it, so that its mean is kept. The first is smaller and the second larger in
convex order; convex order survives iid sums, and the stop-loss is convex. What the pair loses is of
second order in the distances of the nodes, weighted with what happens there, so nodes are dense
where it matters: in proportion to the cube root of ``w e^(tx) min(x^2, c^2)``, which makes the sum
of squares least. Here c is the scale of the sum, ``n E[min(X^2, c^2)] = c^2``, beyond which one
draw is the whole sum, and t the saddle point of the draw cut at 4c. Where the nodes are decides how
narrow the pair is, never whether it is right.

Round-off: a mean is off by at most the largest error among its atoms, and by that of its weights
times the distance of the nodes. The two weights of a moved atom stand exactly for an atom at most
``4 u`` times that distance away, which is added to the errors of both nodes. A sum of weights is
off by the errors of its terms, in proportion to them, and by one u for each addition.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, Bracket, FloatArray, IntArray
from shoal.theory.stop_loss.inversion import ORDER, invert, terms
from shoal.theory.stop_loss.reduction import Draw, Reduced, enumerated, few_outcomes, reduce_draw
from shoal.theory.stop_loss.tilt import reach, saddle, soften, sum_scale

MAX_TERMS = 1 << 18
"""Samples of the integral allowed in the last attempt."""

_LARGE_LAW = 1000
_TERMS_OF_A_LARGE_LAW = 1 << 16
"""More atoms take longer for each sample; brackets are then a few times wider."""

TINY = 5e-324
"""A positive number that is too small for float64 is rounded up to this."""

MANY = 20_000
"""Problems with more atoms are worth replacing."""

_NODES = 1000
_CELLS = 1 << 13
_FINEST = 1e-3
"""Distances below this part of the typical draw do not matter."""


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


class Enclosure(NamedTuple):
    """Two problems with few atoms, the stop-losses of which enclose that of the original."""

    below: Reduced
    above: Reduced


def merge(problem: Reduced, n: int) -> Enclosure:
    """Replace the atoms of a problem by about a thousand, from below and from above."""
    nodes = _nodes(problem, n)
    # atom i is in [nodes[place], nodes[place + 1]]
    place = np.clip(np.searchsorted(nodes, problem.x, side="right") - 1, 0, nodes.size - 2)
    return Enclosure(_means(problem, nodes, place), _moved(problem, nodes, place))


def _nodes(problem: Reduced, n: int) -> FloatArray:
    """Choose the nodes: the ends, 0, the heaviest atom, and the rest where it matters."""
    x, weight = problem.x, np.exp(problem.log_weight)
    scale = sum_scale(np.abs(x), weight, n)
    unit = max(_FINEST * scale / np.sqrt(n), 1e-290)
    place = np.arcsinh(x / unit)
    ends = np.linspace(place.min(), place.max(), _CELLS + 1)
    cell = np.clip(np.searchsorted(ends, place, side="right") - 1, 0, _CELLS - 1)
    mass = np.bincount(cell, weight, minlength=_CELLS)
    middle = np.sinh(0.5 * (ends[1:] + ends[:-1])) * unit
    cut = np.clip(middle / scale, -4.0, 4.0)
    square = np.minimum(cut**2, 1.0)
    live = mass > 0.0
    shares = [np.full(_CELLS, 0.3 / _CELLS), _share(mass * square, 0.3)]
    if (cut[live] > 0.0).any():
        t = saddle(cut[live], np.log(mass[live]), n).t
        with np.errstate(divide="ignore"):
            tilted = np.log(mass * square) + t * cut
        shares.append(_share(np.exp(tilted - tilted.max()), 0.4))
    total = np.concatenate([[0.0], np.cumsum(np.sum(shares, axis=0))])
    wanted = np.linspace(0.0, total[-1], _NODES)
    inner = np.sinh(np.interp(wanted, total, ends)) * unit
    inner = inner[(inner > x.min()) & (inner < x.max())]
    heaviest = x[np.argmax(problem.log_weight)]
    fixed = [x.min(), x.max(), heaviest] + [0.0] * bool(x.min() < 0.0 < x.max())
    return np.unique(np.concatenate([inner, fixed]))


def _share(importance: FloatArray, part: float) -> FloatArray:
    root = np.cbrt(importance)
    total = float(root.sum())
    return np.asarray(root * (part / total) if total > 0.0 else root)


def _means(problem: Reduced, nodes: FloatArray, place: IntArray) -> Reduced:
    """Put the atoms between two nodes on their mean."""
    size = np.abs(problem.log_weight) + problem.blur
    sums = _summed(problem.log_weight, size, place, nodes.size - 1)
    # relative to the left node: no cancellation where a mean is close to it
    offset = np.bincount(place, sums.part * (problem.x - nodes[place]), minlength=nodes.size - 1)
    mean = nodes[:-1] + offset
    dx = _worst(problem.dx, place, nodes.size - 1) + 4 * UNIT * np.abs(mean)
    dx += 64 * UNIT * (1.0 + np.abs(sums.log_weight) + sums.blur) * np.diff(nodes)
    return _with_atoms(problem, mean, dx, sums)


def _moved(problem: Reduced, nodes: FloatArray, place: IntArray) -> Reduced:
    """Move each atom to the two nodes around it, keeping its mean."""
    left, right = nodes[place], nodes[place + 1]
    share = np.clip((problem.x - left) / (right - left), 0.0, 1.0)
    with np.errstate(divide="ignore"):
        split = np.concatenate([np.log1p(-share), np.log(share)])
    log_weight = np.tile(problem.log_weight, 2)
    where = np.concatenate([place, place + 1])
    size = np.abs(log_weight) + np.where(np.isfinite(split), -split, 0.0)
    size += np.tile(np.broadcast_to(problem.blur, problem.x.shape), 2)
    sums = _summed(log_weight + split, size, where, nodes.size)
    own = problem.dx + 8 * UNIT * np.maximum(np.abs(left), np.abs(right))
    return _with_atoms(problem, nodes, _worst(np.tile(own, 2), where, nodes.size), sums)


class _Sums(NamedTuple):
    """Logarithms of sums of weights, the part that each term has in its sum, and their blur."""

    log_weight: FloatArray
    part: FloatArray
    blur: FloatArray


def _summed(logs: FloatArray, size: FloatArray, where: IntArray, count: int) -> _Sums:
    """Add weights up by place; `size` is the largest logarithm in each, and its blur."""
    top = np.full(count, -np.inf)
    np.maximum.at(top, where, logs)
    some = np.isfinite(top)
    safe = np.where(some, top, 0.0)
    part = np.exp(logs - safe[where])
    total = np.where(some, np.bincount(where, part, minlength=count), 1.0)
    part /= total[where]
    log_weight = top + np.log(total)
    # the errors of the terms in proportion to them, and the rounding of each addition
    mean_size = np.bincount(where, part * size, minlength=count) * (1.0 + 1e-9)
    terms = np.bincount(where, minlength=count) / 16.0
    excess = np.maximum(mean_size - np.abs(np.where(some, log_weight, 0.0)), 0.0)
    return _Sums(log_weight, part, excess + terms)


def _with_atoms(problem: Reduced, x: FloatArray, dx: FloatArray, sums: _Sums) -> Reduced:
    some = np.isfinite(sums.log_weight)
    return problem._replace(
        x=x[some], dx=dx[some], log_weight=sums.log_weight[some], blur=sums.blur[some]
    )


def _worst(values: FloatArray, where: IntArray, count: int) -> FloatArray:
    worst = np.zeros(count)
    np.maximum.at(worst, where, values)
    return worst
