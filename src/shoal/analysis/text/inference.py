"""Errors of the counts, and intervals that account for selection.

The error of a count has a normal part, of known variance, and a part that is rare and then large:
unknown texts that do not stand out on its bits.

A popular text that is no candidate raises one bit in a cohort (or `hashes` of them). On most bits
that stands out, and the fit leaves the bit out. On a bit of a popular candidate it may not: how
many of that text's people drew this cohort varies more than on other bits, and with few cohorts its
own count takes the surplus up. Then the count is too large by all people of the unknown text in
that cohort. The bits left out tell how often and by how much: hashes are independent, so unknown
texts add to a bit of a candidate as they add to the quiet bits, which no candidate sets:

    error = normal(0, sigma^2)
            + sum over its bits of weight x (surplus of a quiet bit, if unnoticed)

The second part is taken as compound Poisson, since each surplus is rare on a given bit. With few
cohorts a count is the sum of few bits, and the whole tail of their distribution matters: every
residual beyond two standard deviations is a surplus of its own. Observed to cover (docs/text.md);
no theorem.

A count that was found came out large, so its ordinary interval would cover too seldom. Given that z
passed the cutoff t, z is a truncated normal variable, and inverting its distribution gives the
lower end (Weinstein, Fithian and Benjamini 2013; exact for independent normal estimates, which
these nearly are). The ordinary upper end already covers: passing the cutoff only moves z up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from shoal.analysis.text.least_squares import CLIP, Data, Design, Fit, Floats
from shoal.theory.randomized_response import normal_factor

_BLOCK = 1 << 24
_WINDOW = 0.5


class Errors(NamedTuple):
    """The standard deviation of estimates, and the ends between which estimate - truth is."""

    sigmas: Floats
    below: Floats
    above: Floats


@dataclass(frozen=True, eq=False)
class Regression:
    """The last fit and its data; `blur` is the part of a variance that choosing adds.

    Somebody with text s in cohort j adds g_sj to a combination, the weights at the bits that s sets
    in j. The cohort is drawn: that adds d_s Var_j(g_sj), less what their known sizes take away.
    """

    data: Data
    design: Design
    fit: Fit
    blur: float

    @cached_property
    def hidden(self) -> HiddenTexts:
        return hidden_texts(self.data, self.fit)

    def errors(self, combinations: Floats, level: float) -> Errors:
        """Return the errors of combinations of (background, counts)."""
        result = Errors(*np.empty((3, len(combinations))))
        most = max(self.data.debiased.size, len(self.fit.chosen) * self.design.cohorts)
        step = max(1, _BLOCK // most)
        for start in range(0, len(combinations), step):
            weights = self.fit.weights_of(combinations[start : start + step])
            variances = self._variances(weights)
            part = slice(start, start + len(weights))
            result.sigmas[part] = np.sqrt(variances + weights**2 @ self.hidden.variance)
            ends = [
                self.hidden.ends(row, float(variance), (1 - level) / 2)
                for row, variance in zip(weights, variances, strict=True)
            ]
            result.below[part], result.above[part] = np.transpose(ends)
        return result

    def bounds(self, combination: Floats, level: float) -> tuple[float, float]:
        """Return between what ends one combination of (background, counts) is."""
        centre = float(combination @ np.append(self.fit.background, self.fit.counts))
        _, below, above = self.errors(combination[None, :], level)
        return centre - float(above[0]), centre - float(below[0])

    def covariance(self, combinations: Floats) -> Floats:
        """Return the covariance matrix of combinations of (background, counts)."""
        weights = self.fit.weights_of(combinations)
        drawn = self._drawn(weights)
        drawn = drawn - np.einsum("j,tsj->ts", self.data.shares, drawn)[:, :, None]
        people, shares = np.maximum(self.fit.counts, 0), self.data.shares
        normal = (weights * self.fit.fixed(self.data).ravel()) @ weights.T
        normal += np.einsum("s,j,tsj,usj->tu", people, shares, drawn, drawn, optimize=True)
        whole = np.einsum("s,tsj->tj", people, drawn)
        normal -= (whole * shares) @ whole.T / self.data.reports
        return np.asarray(normal * (1 + self.blur) + (weights * self.hidden.variance) @ weights.T)

    def _variances(self, weights: Floats) -> Floats:
        drawn, shares = self._drawn(weights), self.data.shares
        variances = (weights**2) @ self.fit.fixed(self.data).ravel()
        mean = np.einsum("j,tsj->ts", shares, drawn)
        square = np.einsum("j,tsj->ts", shares, drawn**2)
        people = np.maximum(self.fit.counts, 0)
        variances += (square - mean**2) @ people
        whole = np.einsum("s,tsj->tj", people, drawn)
        variances -= (whole**2 @ shares - (whole @ shares) ** 2) / self.data.reports
        return np.maximum(variances * (1 + self.blur), 1e-12)

    def _drawn(self, weights: Floats) -> Floats:
        """Return g: shape (combinations, texts, cohorts)."""
        tables = self.design.reaching(weights.reshape(-1, *self.data.debiased.shape))
        drawn = np.zeros((len(tables), len(self.fit.chosen), self.design.cohorts))
        for j in range(self.design.cohorts):
            for place in self.design.positions[j][:, self.fit.chosen]:
                drawn[:, :, j] += tables[:, j, place]
        return drawn


def conditional_low(z: Floats, cutoff: float, level: float) -> Floats:
    """Return the lower end of intervals for the means of z, given that z passed the cutoff.

    >>> low = conditional_low(np.array([4.0, 6.0, 20.0]), cutoff=3.5, level=0.95)
    >>> [round(float(value), 2) for value in low]
    [-3.49, 3.85, 18.04]
    """
    z = np.maximum(z, cutoff)
    goal = np.log((1 - level) / 2)
    low, high = np.full(z.shape, -60.0), z.copy()
    for _ in range(60):  # all of them at once, which one calibration after another would not do
        middle = (low + high) / 2
        tail = log_ndtr(middle - z) - log_ndtr(middle - cutoff)
        low, high = np.where(tail < goal, middle, low), np.where(tail < goal, high, middle)
    ordinary = z - normal_factor(level)
    return np.asarray(np.minimum(low, ordinary))


def excess(counts: Floats, sigmas: Floats, z: Floats, cutoff: float) -> tuple[float, float]:
    """Return by how much the counts that were found exceed the truth in sum, and its sigma.

    A normal z with mean mu and variance v has E[(z - mu) 1(z > t)] = v times its density at t. The
    density of the z-values at the cutoff is taken from how many fall just below and just above,
    between which it falls about exponentially. Looking again after each fit blurs the cutoff: the
    correction was observed to be right to a quarter, and its sigma says so.
    """
    near = np.abs(z - cutoff) < _WINDOW
    below, above = (float((near & side).sum()) for side in (z <= cutoff, z > cutoff))
    if not below or not above:
        return 0.0, 0.0
    density = math.sqrt(below * above) / _WINDOW
    scale = sigmas[near] ** 2 * z[near] / np.maximum(counts[near], sigmas[near])
    bias = float(scale.mean()) * density
    return bias, bias * math.sqrt(0.25 / below + 0.25 / above + 1 / 16)


_QUIET = 0.25  # share of the bits that count as quiet: fewest people of fitted texts
_LARGE = 2.0  # standard deviations beyond which residuals are surpluses, the rest is normal
_RATIO = 0.125  # logarithm of the factor within which surpluses are taken for the same

_MAX_POINTS = 1 << 14  # of the lattice of an error's distribution
_STEPS_PER_SIGMA = 16  # of that lattice, if its length allows
_HEAVY = 0.125  # rows below this part of the largest weight are taken as normal altogether


@dataclass(frozen=True, eq=False)
class Jumps:
    """How often (`rates`) an error is raised, and by how many people (`sizes`)."""

    rates: Floats
    sizes: Floats

    @property
    def mean(self) -> float:
        return float(self.rates @ self.sizes)

    @property
    def variance(self) -> float:
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
        step = max(sigma / _STEPS_PER_SIGMA, extent / _MAX_POINTS)
        length = 1 << int(np.ceil(np.log2(extent / step)))
        # Each jump is shared between two neighbours on the lattice, which keeps its mean.
        place, part = np.divmod(self.sizes / step, 1.0)
        lattice = np.zeros(length)
        np.add.at(lattice, place.astype(np.int64) % length, self.rates * (1 - part))
        np.add.at(lattice, (place.astype(np.int64) + 1) % length, self.rates * part)
        turn = 2 * np.pi * np.fft.rfftfreq(length)
        transform = np.exp(np.fft.rfft(lattice) - self.rates.sum() - (turn * sigma / step) ** 2 / 2)
        chances = np.fft.fftshift(np.fft.irfft(transform, length))
        below = np.cumsum(chances) - chances / 2
        values = (np.arange(length) - length // 2) * step
        low, high = np.interp((tail, 1 - tail), np.maximum.accumulate(below), values)
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class HiddenTexts:
    """The large residuals of quiet bits, and how often each would go unnoticed on other bits.

    `rates` has shape (rows, surpluses). Surpluses `inside` do not stand out on quiet bits either:
    the background and `extra` hold them already.
    """

    surpluses: Floats
    rates: Floats
    inside: NDArray[np.bool_]

    @cached_property
    def variance(self) -> Floats:
        """The variance that hidden texts add to each row, beyond what the fit knows."""
        return np.asarray(self.rates[:, ~self.inside] @ self.surpluses[~self.inside] ** 2)

    def ends(self, weights: Floats, variance: float, tail: float) -> tuple[float, float]:
        """Return what a combination of rows' error falls below, and exceeds, with chance `tail`."""
        rows = np.flatnonzero(np.abs(weights) >= _HEAVY * np.abs(weights).max())
        rates, sizes = self.rates[rows], weights[rows, None] * self.surpluses
        known = Jumps(rates[:, self.inside].ravel(), sizes[:, self.inside].ravel())
        sigma = max(variance - known.variance, variance / 4) ** 0.5
        likely = rates > 1e-9
        low, high = Jumps(rates[likely], sizes[likely]).ends(sigma, tail)
        return low - known.mean, high - known.mean


def hidden_texts(data: Data, fitted: Fit) -> HiddenTexts:
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
