"""The law of the score of a text that nobody answered: a sum of draws from known values.

The bits of such a text are uniform draws, `hashes` of them from each row of a table of residuals.
With many draws the tail of their sum is a saddlepoint approximation (Barndorff-Nielsen's r*) from
the exact cumulants: residuals are skew and the tails needed are far out. A sum of few draws has
atoms instead of a smooth tail: a text that sets one bit of m has no p-value below 1 / m, however
many people stand at that bit. So few draws are added up one by one on a lattice, each rounded up,
which can only make the tail heavier.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from shoal.analysis.text.design import Floats

__all__ = ["FEW_DRAWS", "NullLaw", "null_law"]

FEW_DRAWS = 8
"""Up to so many draws are added up one by one."""

_LATTICE = 1 << 12
"""Places of the lattice for one draw."""

_ROUND_OFF = 1e-15
"""What a Fourier transform adds to a probability, and more."""


class NullLaw:
    """Scores that rise, and the standard normal quantile whose tail is that of each score."""

    def __init__(self, sigma: float, scores: Floats, normal: Floats) -> None:
        self.sigma = sigma
        self._scores, self._normal = scores, normal

    def normal_score(self, scores: Floats) -> Floats:
        """Return the standard normal quantile whose tail is that of each score."""
        inside = np.interp(scores, self._scores, self._normal)
        beyond = np.maximum(scores - self._scores[-1], 0) / self.sigma
        return np.asarray(inside + beyond)


def null_law(table: Floats, hashes: int) -> NullLaw:
    """Return the law of the sum of independent draws, `hashes` from each row of a centred table.

    >>> table = np.array([[3.0] + [0.0] * 99]) - 0.03
    >>> law = null_law(table, 1)     # one bit in a hundred: p = .01
    >>> round(float(law.normal_score(np.array([2.97]))[0]), 2)
    2.33
    """
    sigma = math.sqrt(max(hashes * float((table**2).mean(axis=1).sum()), 1e-300))
    if len(table) * hashes <= FEW_DRAWS and (added := _added(table, hashes)) is not None:
        return NullLaw(sigma, *added)
    return NullLaw(sigma, *_saddlepoints(table, hashes, sigma))


def _added(table: Floats, hashes: int) -> tuple[Floats, Floats] | None:
    """Return the places of the lattice and P[sum >= place] as normal quantiles.

    Between two places the tail is that of the upper one, so that interpolation is on the safe side.
    """
    lowest, span = table.min(axis=1, keepdims=True), float(np.ptp(table, axis=1).max())
    if span <= 0:
        return None
    step = span / (_LATTICE - 1)
    # a value on the lattice stays where it is, in spite of round-off
    places = np.ceil((table - lowest) / step - 1e-6).astype(np.int64)
    draws = len(table) * hashes
    length = 1 << math.ceil(math.log2(draws * _LATTICE + 1))
    law = np.ones(length // 2 + 1, complex)
    for row in places:
        chances = np.bincount(row, minlength=length) / row.size
        law *= np.fft.rfft(chances) ** hashes
    tail = np.cumsum(np.fft.irfft(law, length)[::-1])[::-1]
    last = int(places.max(axis=1).sum()) * hashes
    chance = np.clip(tail[: last + 1] + _ROUND_OFF * length, 0.0, 1.0 - 1e-12)
    scores = float(lowest.sum()) * hashes + step * np.arange(last + 1, dtype=np.float64)
    return scores, -ndtri(np.minimum.accumulate(chance))


def _saddlepoints(table: Floats, hashes: int, sigma: float) -> tuple[Floats, Floats]:
    points = []
    for tilt in np.arange(-5.75, 14, 0.5) / sigma:
        power = np.exp(tilt * table)
        mass = power.mean(axis=1)
        first = (power * table).mean(axis=1) / mass
        second = (power * table**2).mean(axis=1) / mass - first**2
        score = hashes * first.sum()
        root = 2 * (tilt * score - hashes * np.log(mass).sum())
        w = np.sign(tilt) * np.sqrt(max(root, 1e-300))
        u = tilt * np.sqrt(max(hashes * second.sum(), 1e-300))
        if u / w > 0.02:  # else the tilt has reached the largest values there are
            points.append((score, w + np.log(u / w) / w))
    scores, normal = np.maximum.accumulate(np.array(points), axis=0).T
    return scores, normal
