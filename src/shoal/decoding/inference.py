"""How far estimates may be off: their spread, and intervals that know what was selected.

A count that was found is reported because it came out large, so its ordinary interval would cover
too seldom. Given that z passed the cutoff t, z has a truncated normal law, and its inversion gives
the lower end (Weinstein, Fithian and Benjamini 2013; exact for independent normal estimates, which
these nearly are). The ordinary upper end already covers: passing the cutoff only moves z up.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from shoal.decoding.design import Design, Floats
from shoal.decoding.fitting import Data, Fit
from shoal.intervals import normal_factor

__all__ = ["conditional_low", "covariance", "excess", "spread"]

_BLOCK = 1 << 24
_WINDOW = 0.5


def spread(data: Data, design: Design, fitted: Fit, combinations: Floats) -> Floats:
    """Return the standard deviations of combinations of (background, counts).

    Somebody with text s in cohort j adds g_sj to a combination, the weights at the bits that s sets
    in j, and the cohort is drawn: that adds d_s Var_j(g_sj), less what the known sizes of the
    cohorts take away. A text's own count is not blurred by it, since all its people are somewhere.
    """
    variances = np.empty(len(combinations))
    step = max(1, _BLOCK // max(data.debiased.size, len(fitted.chosen) * design.cohorts))
    for start in range(0, len(combinations), step):
        part = slice(start, start + step)
        weights = fitted.weights_of(combinations[part])
        drawn = _drawn(data, design, fitted, weights)
        fixed = fitted.fixed(data)
        variances[part] = (weights**2) @ fixed.ravel()
        mean = np.einsum("j,tsj->ts", data.shares, drawn)
        square = np.einsum("j,tsj->ts", data.shares, drawn**2)
        people = np.maximum(fitted.counts, 0)
        variances[part] += (square - mean**2) @ people
        whole = np.einsum("s,tsj->tj", people, drawn)
        varies = whole**2 @ data.shares - (whole @ data.shares) ** 2
        variances[part] -= varies / data.reports
    return np.sqrt(np.maximum(variances, 0))


def covariance(data: Data, design: Design, fitted: Fit, combinations: Floats) -> Floats:
    """Return the covariance matrix of combinations of (background, counts)."""
    weights = fitted.weights_of(combinations)
    drawn = _drawn(data, design, fitted, weights)
    drawn = drawn - np.einsum("j,tsj->ts", data.shares, drawn)[:, :, None]
    people = np.maximum(fitted.counts, 0)
    result = (weights * fitted.fixed(data).ravel()) @ weights.T
    result += np.einsum("s,j,tsj,usj->tu", people, data.shares, drawn, drawn, optimize=True)
    whole = np.einsum("s,tsj->tj", people, drawn)
    result -= (whole * data.shares) @ whole.T / data.reports
    return np.asarray(result)


def conditional_low(z: Floats, cutoff: float, level: float) -> Floats:
    """Return the lower end of intervals for the means of z, given that z passed the cutoff.

    >>> low = conditional_low(np.array([4.0, 6.0, 20.0]), cutoff=3.5, level=0.95)
    >>> [round(float(value), 2) for value in low]
    [-3.49, 3.85, 18.04]
    """
    z = np.maximum(z, cutoff)
    goal = np.log((1 - level) / 2)
    low, high = np.full(z.shape, -60.0), z.copy()
    for _ in range(60):
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


def _drawn(data: Data, design: Design, fitted: Fit, weights: Floats) -> Floats:
    """Return g: shape (combinations, texts, cohorts)."""
    tables = weights.reshape(-1, *data.debiased.shape)
    drawn = np.zeros((len(tables), len(fitted.chosen), design.cohorts))
    for j in range(design.cohorts):
        for place in design.positions[j][:, fitted.chosen]:
            drawn[:, :, j] += tables[:, j, place]
    return drawn
