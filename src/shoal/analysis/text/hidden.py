"""Unknown texts that hide behind popular ones: the long tail of a count's error.

A popular text that is no candidate raises one bit in a cohort (or `hashes` of them). On most bits
that stands out, and `fitting` leaves the bit out. On a bit of a popular candidate it may not: how
many of that text's people drew this cohort varies more than on other bits, and with few cohorts
its own count takes the surplus up. Then the count is too large, by all people of the unknown text
in that cohort: mostly not at all, and sometimes by several sigmas. No normal law is like that.

The bits left out tell how often and by how much. Hashes are independent of each other, so what
unknown texts add to a bit of a candidate has the law of what they add to any other bit, the quiet
ones, which no candidate sets. A count's error is then

    normal(0, sigma^2) + sum over its bits of weight x (surplus of a quiet bit, if unnoticed)

and the second part is taken as compound Poisson, since each surplus is rare on a given bit. With
few cohorts a count is the sum of few bits, and then the whole tail of their law matters, also
where it does not stand out: every residual beyond two standard deviations is a surplus of its own.
This is observed to cover (docs/text.md); it is no theorem.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from shoal.analysis.text.design import Floats
from shoal.analysis.text.fitting import CLIP, Data, Fit

__all__ = ["HiddenTexts", "Jumps", "hidden_texts"]

_QUIET = 0.25
"""At least this share of the bits counts as quiet: those with the fewest people of fitted texts."""

_LARGE = 2.0
"""Residuals beyond this many standard deviations have a law of their own, the rest is normal."""

_RATIO = 0.125
"""The logarithm of the factor within which such residuals are taken for the same."""

_LONGEST = 1 << 14
_STEPS = 16
"""The lattice of an error's law: at most so many points, and so many to a sigma if that allows."""

_HEAVY = 0.125
"""Rows with less than this part of the largest weight are taken as normal altogether."""


@dataclass(frozen=True, eq=False)
class Jumps:
    """How often (`rates`) an error is raised, and by how many people (`sizes`)."""

    rates: Floats
    sizes: Floats

    @property
    def mean(self) -> float:
        """The mean that they add."""
        return float(self.rates @ self.sizes)

    @property
    def variance(self) -> float:
        """The variance that they add."""
        return float(self.rates @ self.sizes**2)

    def ends(self, sigma: float, tail: float) -> tuple[float, float]:
        """Return what a normal error plus the jumps falls below, and exceeds, with chance `tail`.

        >>> seldom = Jumps(rates=np.array([0.1]), sizes=np.array([3.0]))
        >>> [round(end, 2) for end in seldom.ends(1.0, 0.025)]
        [-1.92, 3.76]
        """
        if not self.rates.size:
            end = -float(ndtri(tail)) * sigma
            return -end, end
        reach = np.abs(self.sizes)
        extent = 2 * (
            float(self.rates @ reach) + 10 * (sigma + self.variance**0.5) + reach.max(initial=0.0)
        )
        step = max(sigma / _STEPS, extent / _LONGEST)
        length = 1 << int(np.ceil(np.log2(extent / step)))
        # Each jump is shared between two neighbours on the lattice, which keeps its mean.
        place, part = np.divmod(self.sizes / step, 1.0)
        lattice = np.zeros(length)
        np.add.at(lattice, place.astype(np.int64) % length, self.rates * (1 - part))
        np.add.at(lattice, (place.astype(np.int64) + 1) % length, self.rates * part)
        turn = 2 * np.pi * np.fft.rfftfreq(length)
        law = np.exp(np.fft.rfft(lattice) - self.rates.sum() - (turn * sigma / step) ** 2 / 2)
        chances = np.fft.fftshift(np.fft.irfft(law, length))
        below = np.cumsum(chances) - chances / 2
        values = (np.arange(length) - length // 2) * step
        low, high = np.interp((tail, 1 - tail), np.maximum.accumulate(below), values)
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class HiddenTexts:
    """The large residuals of quiet bits, and how often each would go unnoticed on other bits.

    `rates` has shape (rows, surpluses). `inside` are the surpluses that do not stand out on quiet
    bits either: the background holds their mean already, and `extra` their variance.
    """

    surpluses: Floats
    rates: Floats
    inside: NDArray[np.bool_]

    @cached_property
    def variance(self) -> Floats:
        """The variance that hidden texts add to each row, beyond what the fit knows."""
        return np.asarray(self.rates[:, ~self.inside] @ self.surpluses[~self.inside] ** 2)

    def ends(self, weights: Floats, variance: float, tail: float) -> tuple[float, float]:
        """Return what a combination's error falls below, and exceeds, with chance `tail`.

        `weights` are those of the rows in the combination, `variance` is what the fit knows of.
        """
        rows = np.flatnonzero(np.abs(weights) >= _HEAVY * np.abs(weights).max())
        rates, sizes = self.rates[rows], weights[rows, None] * self.surpluses
        known = Jumps(rates[:, self.inside].ravel(), sizes[:, self.inside].ravel())
        sigma = max(variance - known.variance, variance / 4) ** 0.5
        likely = rates > 1e-9
        low, high = Jumps(rates[likely], sizes[likely]).ends(sigma, tail)
        return low - known.mean, high - known.mean


def hidden_texts(data: Data, fitted: Fit) -> HiddenTexts:
    """Find the large residuals on the quiet bits of a fit."""
    spread = np.sqrt(fitted.variance)
    drawn = np.maximum(fitted.variance - fitted.fixed(data), 0)
    used = np.broadcast_to(data.used > 0, drawn.shape)
    quiet = used & (drawn <= np.quantile(drawn[used], _QUIET))
    sizes = np.abs(fitted.residual)
    large = fitted.residual[quiet & (sizes > _LARGE * spread)]
    surpluses, chances = _grouped(large, int(quiet.sum()))
    out = sizes > CLIP * spread
    # With few cohorts a text's own count takes up much of a surplus, and little is left to see.
    left = (1 - fitted.leverage()).reshape(-1, 1) * surpluses
    edge, blur = CLIP * spread.reshape(-1, 1), np.sqrt(drawn + 1e-12).reshape(-1, 1)
    unnoticed = ndtr((edge - left) / blur) - ndtr((-edge - left) / blur)
    rates = unnoticed * (used & ~out).reshape(-1, 1) * chances
    return HiddenTexts(surpluses, rates, np.abs(surpluses) <= np.median(edge[quiet.ravel()]))


def _grouped(values: Floats, bits: int) -> tuple[Floats, Floats]:
    """Return a few values that stand for all of them, and the chance of each on a bit."""
    if not values.size:
        return values, values
    place = np.floor(np.log(np.abs(values)) / _RATIO) * 2 + (values > 0)
    _, group, sizes = np.unique(place, return_inverse=True, return_counts=True)
    return np.bincount(group, values) / sizes, sizes / bits
