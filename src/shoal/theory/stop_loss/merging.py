"""Replace a problem of many atoms by two of few: one below it and one above it.

Cut the line at nodes, between which no atom is forgotten. *From below* (theorem): put the atoms
between two nodes on their mean. *From above* (theorem): move each atom to the two nodes around it,
so that its mean is kept. The first is smaller and the second larger in convex order; convex order
survives iid sums, and the stop-loss is convex. What the pair loses is of second order in the
distances of the nodes, weighted with what happens there, so nodes are dense where it matters:
in proportion to the cube root of ``w e^(tx) min(x^2, c^2)``, which makes the sum of squares least.
Here c is the scale of the sum, ``n E[min(X^2, c^2)] = c^2``, beyond which one draw is the whole
sum, and t the saddle point of the draw cut at 4c. Where the nodes are decides how narrow the pair
is, never whether it is right.

Round-off: a mean is off by at most the largest error among its atoms, and by that of its weights
times the distance of the nodes. The two weights of a moved atom stand exactly for an atom at most
``4 u`` times that distance away, which is added to the errors of both nodes. A sum of weights is
off by the errors of its terms, in proportion to them, and by one u for each addition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, FloatArray, IntArray
from shoal.theory.stop_loss.reduction import Reduced
from shoal.theory.stop_loss.tilt import saddle, sum_scale

MANY = 20_000
"""Problems with more atoms are worth replacing."""

_NODES = 1000
_CELLS = 1 << 13
_FINEST = 1e-3
"""Distances below this part of the typical draw do not matter."""


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
