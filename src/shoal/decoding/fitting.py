r"""Counts of chosen candidates by weighted least squares, whatever else the crowd answered.

With n_j of N reports in cohort j and M_jb ones at bit b, the debiased count
y_jb = (M_jb - q n_j) / (1 - 2q) (BITVEC 3.2, SDP 4) has, because everybody draws a cohort afresh,

    E[y_jb] = (n_j / N) (sum of the counts of the texts that set bit b in cohort j).

Three things make it vary:

* the lies, n_j p q / (p - q)^2, whatever the truth;
* who drew which cohort: a text of count d contributes d (n_j / N)(1 - n_j / N) at its bits;
* texts that are not in the regression. Their mean is a column of its own, the background; their
  unevenness is `extra`, estimated from the residuals.

A popular text that is not among the candidates raises a few bits far above the rest. Such bits are
left out of the fit, and residuals are clipped where they are used to look for more texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg, sparse

from shoal.decoding.design import Design, Floats, Places
from shoal.tallying import CohortCounts

__all__ = ["CLIP", "Data", "Fit", "fit", "make_data"]

CLIP = 4.0
"""Residuals beyond this many standard deviations are clipped, and their bits not fitted."""

_CLIPPED_SQUARE = 0.99988
"""E[min(|Z|, 4)^2] of a standard normal Z, to five digits."""

_STEPS = 4


@dataclass(frozen=True, eq=False)
class Data:
    """Debiased counts of a text question, and what is known of their spread."""

    debiased: Floats
    noise: Floats
    shares: Floats
    reports: int
    density: float

    @property
    def used(self) -> Floats:
        """1 for cohorts that have reports, 0 for the others: shape (cohorts, 1)."""
        return np.asarray((self.shares > 0)[:, None], float)


@dataclass(frozen=True, eq=False)
class Fit:
    """Counts of chosen patterns; `inverse` is of the normal equations, background first."""

    chosen: Places
    counts: Floats
    background: float
    inverse: Floats
    columns: sparse.csc_array
    residual: Floats
    variance: Floats
    weight: Floats
    extra: float

    def weights_of(self, combinations: Floats) -> Floats:
        """Return the weight of every row in combinations of (background, counts)."""
        return np.asarray((combinations @ self.inverse) @ (self.columns.T * self.weight.ravel()))


def make_data(cohorts: tuple[CohortCounts, ...], bits: slice, q: float, hashes: int) -> Data:
    """Debias the counts of one question, cohort by cohort."""
    sizes = np.array([cohort.reports for cohort in cohorts], float)
    ones = np.array([cohort.by_bit[bits] for cohort in cohorts], float)
    total = sizes.sum()
    length = ones.shape[1]
    return Data(
        debiased=(ones - q * sizes[:, None]) / (1 - 2 * q),
        noise=(sizes * q * (1 - q) / (1 - 2 * q) ** 2)[:, None],
        shares=sizes / total,
        reports=int(total),
        density=-np.expm1(hashes * np.log1p(-1 / length)) if length > 1 else 1.0,
    )


def fit(data: Data, design: Design, chosen: Places, extra: float, surplus: float = 0.0) -> Fit:
    """Fit the background and the chosen patterns together; `extra` is where to begin.

    Every fitted text takes one degree of freedom from the residuals. `surplus` are those that go
    with texts that were chosen because they came out large; see `selecting.surplus`.
    """
    shares = data.shares[:, None]
    other = sparse.csc_array(
        np.broadcast_to(shares * data.density, data.debiased.shape).reshape(-1, 1)
    )
    columns = sparse.csc_array(sparse.hstack((other, design.columns(chosen, data.shares))))
    solution = np.zeros(columns.shape[1])
    residual = data.debiased - _mean(data)
    keep = data.used
    for _ in range(_STEPS):
        known = data.noise + _cohort_spread(data, columns, solution)
        variance = _usable(known + extra * shares * len(shares))
        weight = np.broadcast_to(keep / variance, variance.shape)
        inverse = _inverted(columns, weight)
        solution = inverse @ (columns.T @ (weight * data.debiased).ravel())
        residual = data.debiased - (columns @ solution).reshape(variance.shape)
        freedom = max(1 - (columns.shape[1] + surplus) / variance.size, 0.1)
        extra = _extra_variance(residual, known, shares * len(shares), data.used, freedom)
        variance = _usable(known + extra * shares * len(shares))
        keep = data.used * (np.abs(residual) <= CLIP * np.sqrt(variance))
    return Fit(
        chosen,
        solution[1:],
        float(solution[0]),
        inverse,
        columns,
        residual,
        variance,
        weight,
        extra,
    )


def _mean(data: Data) -> Floats:
    centre = data.debiased.sum() / data.debiased.shape[1]
    return np.asarray(data.shares[:, None] * centre)


def _usable(variance: Floats) -> Floats:
    return np.maximum(variance, 1e-12)  # a cohort without reports has none


def _cohort_spread(data: Data, columns: sparse.csc_array, solution: Floats) -> Floats:
    """Return the variance of the fitted texts' shares of each cohort."""
    mean = (columns[:, 1:] @ np.maximum(solution[1:], 0)).reshape(data.debiased.shape)
    return np.asarray(mean * (1 - data.shares[:, None]))


def _inverted(columns: sparse.csc_array, weight: Floats) -> Floats:
    normal = (columns.T @ (columns * weight.reshape(-1, 1))).toarray()
    scale = np.sqrt(np.maximum(np.diag(normal), 1e-300))
    # Patterns that are nearly the same are told apart badly, not wrongly: a ridge of one part in
    # 10^9 keeps the equations solvable and shows as a huge sigma.
    scaled = normal / scale / scale[:, None] + 1e-9 * np.eye(len(scale))
    factor = linalg.cho_factor(scaled)
    return np.asarray(linalg.cho_solve(factor, np.eye(len(scale))) / scale / scale[:, None])


def _extra_variance(
    residual: Floats, known: Floats, shape: Floats, used: Floats, freedom: float
) -> float:
    """Return the variance that the known sources leave over, from clipped residuals.

    It solves mean(min(u^2, 16)) = E[min(Z^2, 16)] for the standardized residuals u (Huber's
    proposal 2); clipping keeps a popular unknown text from widening every interval.
    """
    squares = residual**2
    rows = max(float(used.sum()) * float(residual.shape[1]), 1.0)
    target = _CLIPPED_SQUARE * freedom

    def ratio(extra: float) -> float:
        spread = _usable(known + extra * shape)
        return float((np.minimum(squares / spread, CLIP**2) * used).sum()) / rows

    if ratio(0.0) <= target:
        return 0.0
    low: float = 0.0
    high: float = float(squares.max()) + 1.0
    for _ in range(40):
        middle = (low + high) / 2 if high < 4 * low or low == 0 else math.sqrt(low * high)
        low, high = (middle, high) if ratio(middle) > target else (low, middle)
    return high
