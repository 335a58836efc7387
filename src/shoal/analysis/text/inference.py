"""How far estimates may be off: their errors, and intervals that know what was selected.

The error of a count has a normal part, of known variance, and a part that is seldom there and then
large: unknown texts that do not stand out on its bits (`hidden`).

A count that was found is reported because it came out large, so its ordinary interval would cover
too seldom. Given that z passed the cutoff t, z has a truncated normal law, and its inversion gives
the lower end (Weinstein, Fithian and Benjamini 2013; exact for independent normal estimates, which
these nearly are). The ordinary upper end already covers: passing the cutoff only moves z up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from shoal.analysis.text.design import Design, Floats
from shoal.analysis.text.fitting import Data, Fit
from shoal.analysis.text.hidden import HiddenTexts, hidden_texts
from shoal.theory.gaussian import normal_factor

__all__ = ["Errors", "Regression", "conditional_low", "excess"]

_BLOCK = 1 << 24
_WINDOW = 0.5


class Errors(NamedTuple):
    """Of several estimates the standard deviation, and between what ends estimate - truth is."""

    sigmas: Floats
    below: Floats
    above: Floats


@dataclass(frozen=True, eq=False)
class Regression:
    """The last fit and its data; `blur` is the part of a variance that choosing adds.

    Somebody with text s in cohort j adds g_sj to a combination, the weights at the bits that s sets
    in j, and the cohort is drawn: that adds d_s Var_j(g_sj), less what the known sizes of the
    cohorts take away. A text's own count is not blurred by it, since all its people are somewhere.
    To this normal part come the texts that hide behind those of the combination.
    """

    data: Data
    design: Design
    fit: Fit
    blur: float

    @cached_property
    def hidden(self) -> HiddenTexts:
        """What hides behind the fitted texts."""
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
        """Return the diagonal of the normal part of the covariance."""
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

    A normal z with mean mu and variance v has E[(z - mu) 1(z > t)] = v times its density at t. So
    the sum over all candidates follows from the density of their z-values at the cutoff, taken from
    how many fall just below and just above; between the two it falls about exponentially. Looking
    again after each fit blurs the cutoff: the correction was observed to be right to a quarter, and
    its sigma says so.
    """
    near = np.abs(z - cutoff) < _WINDOW
    below, above = (float((near & side).sum()) for side in (z <= cutoff, z > cutoff))
    if not below or not above:
        return 0.0, 0.0
    density = math.sqrt(below * above) / _WINDOW
    scale = sigmas[near] ** 2 * z[near] / np.maximum(counts[near], sigmas[near])
    bias = float(scale.mean()) * density
    return bias, bias * math.sqrt(0.25 / below + 0.25 / above + 1 / 16)
