r"""Hockey sticks of one bit in one crowd, for all lam at once.

Among others with noise Y the count of a 1 has pmf ``P(t) = p b(t-1) + q b(t)``, that of a 0
``Q(t) = q b(t-1) + p b(t)``, b the pmf of Y (shifted by what is known; KR (3.2), (3.3)).

*Theorem.* ``H_lam(P||Q) = max_t F_t(lam)`` with ``F_t(lam) = A b(t-1) - (lam - 1) P[Y >= t]``,
``A = p - lam q``, and it equals F_t(lam) exactly where lam is between P(t-1)/Q(t-1) and
``lam_t = P(t)/Q(t)``. Proof: a sum of independent bits is log-concave (a convolution of log-concave
sequences), so b(t-1)/b(t) rises in t, and with it ``P/Q = (p x + q) / (q x + p)``,
x = b(t-1)/b(t), since p >= q. So P - lam Q is positive on an upper set {s >= t}, and
``sum_{s >= t} (P - lam Q) = p b(t-1) + P[Y >= t] - lam (q b(t-1) + P[Y >= t]) = F_t(lam)``.

*From above.* H is convex and falls in lam. So ``H(lam_t) = F_t(lam_t)`` at any places t one likes,
joined by chords, with H(0) = 1 and H(p/q) = 0, is an upper bound for every lam. Where only
``low <= lam_t <= high`` is known, ``H(high) <= H(lam_t) = F_t(lam_t) <= F_t(low)``: the point
(high, F_t(low)) is above.

*From below.* The points ``(Q[S >= t], P[S >= t])`` at any places t are on the trade-off curve of
the pair; joined by chords they are the curve of what is left when the counts between are merged,
which is post-processing. Points to the right and below are dominated by it too.

Everything is in terms of ``x = lam - 1``, which does not cancel for lam near 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.theory.counts.distribution import CountArray, Steps, steps
from shoal.theory.stop_loss.distribution import FloatArray
from shoal.theory.stop_loss.reduction import UNIT

__all__ = ["Atoms", "largest_excess", "merged_atoms", "upper_curves"]

_USABLE = 1e-6
"""Relative error up to which a step is worth a point of the curve."""


class Atoms(NamedTuple):
    """Masses under P and losses ``ln(P/Q)``, both rounded down."""

    mass: FloatArray
    loss: FloatArray


def largest_excess(q: float) -> float:
    """``p/q - 1``, rounded up: H is 0 from here on, for without any others the loss is ln(p/q).

    Examples
    --------
    >>> largest_excess(0.25)
    2.000000000000...
    """
    return (1.0 - 2.0 * q) / q * (1.0 + 8 * UNIT)


def upper_curves(ones: CountArray, zeros: CountArray, q: float, excess: FloatArray) -> FloatArray:
    """Upper bounds of ``H_lam(P||Q)``, one row per crowd, at ``lam = 1 + excess``.

    `excess` rises and is not negative.

    Examples
    --------
    >>> float(upper_curves(np.array([1]), np.array([1]), 0.25, np.array([0.1])).item() * 320)
    89.0000000...
    """
    rows = [_on_nodes(*_upper_points(entry, q), excess) for entry in steps(ones, zeros, q)]
    return np.array(rows).reshape(ones.size, excess.size)


def _upper_points(entry: Steps, q: float) -> tuple[FloatArray, FloatArray]:
    """Points ``(lam - 1, H)`` on or above the curve, lam rising."""
    usable = np.ones(entry.here.size, dtype=bool)
    for part, error in zip(entry[1:4], entry[4:], strict=True):
        usable &= error <= _USABLE * part
    usable &= entry.before + entry.here > 0.0
    before, here, above, before_error, here_error, above_error = (
        part[usable] for part in entry[1:]
    )
    p, open_ = 1.0 - q, 1.0 - 2.0 * q
    low, high = before - before_error, before + before_error
    here_low, here_high = here - here_error, here + here_error
    excess_high = open_ * (high - here_low) / (q * high + p * here_low)
    excess_low = open_ * (low - here_high) / (q * low + p * here_high)
    excess_high += 8 * UNIT * np.abs(excess_high)
    excess_low -= 8 * UNIT * np.abs(excess_low)
    # A = p - lam q, rounded up
    rise = np.maximum(open_ - q * excess_low + 4 * UNIT * (open_ + q * np.abs(excess_low)), 0.0)
    tail = np.where(excess_low > 0.0, above - above_error, above + above_error)
    gain, loss = rise * high, excess_low * tail
    value = gain - loss + 4 * UNIT * (gain + np.abs(loss))
    top = largest_excess(q)
    inside = excess_high < top
    x = np.concatenate(([-1.0], excess_high[inside], [top]))
    y = np.concatenate(([1.0], np.clip(value[inside], 0.0, 1.0), [0.0]))
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _on_nodes(x: FloatArray, y: FloatArray, nodes: FloatArray) -> FloatArray:
    """Chords at the nodes, as sums of positive terms; 0 beyond the last point."""
    right = np.minimum(np.searchsorted(x, nodes, side="right"), x.size - 1)
    left = right - 1
    width = x[right] - x[left]
    fall = np.clip(x[right] - nodes, 0.0, None)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (y[left] * fall + y[right] * np.clip(nodes - x[left], 0.0, width)) / width
    value = np.where(width > 0.0, value, y[left])
    return np.asarray(np.where(nodes >= x[-1], 0.0, np.minimum(value * (1.0 + 16 * UNIT), 1.0)))


def merged_atoms(ones: int, zeros: int, q: float) -> Atoms:
    """Outcomes of what is left of ``(P, Q)`` after counts are merged: from below.

    The upper half is that of the crowd. The lower half is that of the crowd with ones and zeros
    exchanged, which has 1 - S in place of the count S, and in which P and Q change places.

    Examples
    --------
    >>> merged_atoms(0, 0, 0.25).mass.round(12).tolist()
    [0.25, 0.75]
    """
    forward, backward = steps(np.array([ones, zeros]), np.array([zeros, ones]), q)
    above, above_p, above_q = _tails(forward, q)
    below, below_q, below_p = _tails(backward, q)
    # {1 - S >= t} is {S <= 1 - t}; a place between the two halves ends the lower one
    keep = 1.0 - below < above[0]
    below_p, below_q = below_p[:, keep], below_q[:, keep]
    middle_p, middle_q = (
        np.array([1.0 - a[1, :1] - b[1, :1] - 4 * UNIT, 1.0 - a[0, :1] - b[0, :1] + 4 * UNIT])
        for a, b in ((above_p, below_p), (above_q, below_q))
    )
    p = np.concatenate((_between(below_p)[:, ::-1], middle_p, _between(above_p)), axis=1)
    q_ = np.concatenate((_between(below_q)[:, ::-1], middle_q, _between(above_q)), axis=1)
    good = p[0] > 0.0
    least, most = p[0, good], q_[1, good]
    return Atoms(least * (1.0 - 8 * UNIT), np.log(least / most) - 16 * UNIT)


def _tails(entry: Steps, q: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Places t where P(t) >= Q(t), and both ends of P[S >= t] and Q[S >= t] there."""
    place, before, here, above, before_error, _, above_error = entry
    usable = (before > here) & (before_error <= _USABLE * before)
    usable &= above_error <= _USABLE * above
    order = np.flatnonzero(usable)[np.argsort(place[usable], kind="stable")]
    # tilts overlap
    order = order[np.diff(place[order], prepend=-np.inf) > 0.0]
    b, e = before[order], before_error[order] + 4 * UNIT * before[order]
    a, f = above[order], above_error[order] + 4 * UNIT * above[order]
    one, zero = (
        np.array([a - f + share * (b - e), a + f + share * (b + e)]) for share in (1.0 - q, q)
    )
    return place[order], one, zero


def _between(tails: FloatArray) -> FloatArray:
    """Both ends of the masses between places that rise, and beyond the last one."""
    low, high = tails
    return np.array([low - np.append(high[1:], 0.0), high - np.append(low[1:], 0.0)])
