r"""Counts of chosen candidates by weighted least squares, whatever else the crowd answered.

A bit that is truly 0 is reported as 1 at the rate p*, and one that is truly 1 at the rate q*; where
each bit is flipped with probability q these are q and 1 - q. With n_j of N reports in cohort j and
M_jb ones at bit b, the debiased count y_jb = (M_jb - p* n_j) / (q* - p*) (BITVEC 3.2, SDP 4;
RAPPOR 4) has, because everybody draws a cohort,

    E[y_jb] = (n_j / N) (sum of the counts of the texts that set bit b in cohort j).

Three things make it vary:

* the flips: p*(1 - p*) / (q* - p*)^2 for every 0 and q*(1 - q*) / (q* - p*)^2 for every 1. With one
  q for both this is n_j q (1 - q) / (1 - 2q)^2, whatever the truth; otherwise it depends on how
  many ones there are, which the fit says;
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
from scipy import linalg, optimize, sparse

from shoal.analysis.tally import CohortCounts
from shoal.analysis.text.design import Design, Floats, Places

CLIP = 4.0  # standard deviations beyond which residuals are clipped, and their bits not fitted
_CLIPPED_SQUARE = 0.99988  # E[min(|Z|, 4)^2] of a standard normal Z, to five digits
_LEFT_OUT = 1e-6  # weight of a bit that is not fitted: a text of such bits has a huge sigma
_BLOCK = 1 << 22
_STEPS = 8  # of fitting at most
_SETTLED = 0.05  # fitting ends when no count moves by more than this part of its sigma


@dataclass(frozen=True, eq=False)
class Data:
    """Debiased counts of a text question, and what is known of their spread.

    `noise` is the variance of the flips where every bit is truly 0, `noise_of_one` what each 1 adds
    to it or takes away.
    """

    debiased: Floats
    noise: Floats
    shares: Floats
    reports: int
    density: float
    noise_of_one: float = 0.0

    def flips(self, ones: Floats) -> Floats:
        """Return the variance of the flips, given how many people's bit is truly 1."""
        if not self.noise_of_one:
            return np.broadcast_to(self.noise, self.debiased.shape)
        # Where only ones are flipped, a bit that seems to be nobody's would be taken for certain.
        least = 1.0 if self.noise_of_one > 0 else 0.0
        people = np.clip(ones, least, np.maximum(self.shares[:, None] * self.reports, least))
        return np.asarray(self.noise + self.noise_of_one * people)

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
    flips: Floats
    extra: float

    def weights_of(self, combinations: Floats) -> Floats:
        """Return the weight of every row in combinations of (background, counts)."""
        return np.asarray((combinations @ self.inverse) @ (self.columns.T * self.weight.ravel()))

    def leverage(self) -> Floats:
        """Return the part of a change in each row that the fit absorbs, 0 to 1."""
        taken = np.empty(self.weight.size)
        rows = sparse.csr_array(self.columns)
        step = max(1, _BLOCK // max(len(self.inverse), 1))
        for start in range(0, len(taken), step):
            part = rows[start : start + step]
            taken[start : start + step] = (part.multiply(part @ self.inverse)).sum(axis=1)
        return np.clip(taken.reshape(self.weight.shape) * self.weight, 0.0, 1.0)

    def fixed(self, data: Data) -> Floats:
        """Return the variance of each row without the fitted texts: flips and `extra`."""
        extra = self.extra * data.shares[:, None] * len(data.shares)
        return np.asarray(self.flips + extra)


def make_data(cohorts: tuple[CohortCounts, ...], bits: slice, q: float, hashes: int) -> Data:
    sizes = np.array([cohort.reports for cohort in cohorts], float)
    ones = np.array([cohort.by_bit[bits] for cohort in cohorts], float)
    return debias(sizes, ones, zero_rate=q, one_rate=1 - q, hashes=hashes)


def debias(sizes: Floats, ones: Floats, *, zero_rate: float, one_rate: float, hashes: int) -> Data:
    """Debias the counts of cohorts; the rates are how often a 0, and a 1, is reported as 1.

    >>> sizes, ones = np.array([1000.0]), np.array([[550.0]])
    >>> data = debias(sizes, ones, zero_rate=0.5, one_rate=0.75, hashes=1)
    >>> data.debiased.tolist(), data.flips(np.array([[200.0]])).tolist()
    ([[200.0]], [[3800.0]])
    """
    total, length, slope = sizes.sum(), ones.shape[1], one_rate - zero_rate
    of_zero, of_one = (rate * (1 - rate) / slope**2 for rate in (zero_rate, one_rate))
    symmetric = math.isclose(zero_rate, 1 - one_rate, rel_tol=1e-12)
    return Data(
        debiased=(ones - zero_rate * sizes[:, None]) / slope,
        noise=(sizes * of_zero)[:, None],
        shares=sizes / total,
        reports=int(total),
        density=-np.expm1(hashes * np.log1p(-1 / length)) if length > 1 else 1.0,
        noise_of_one=0.0 if symmetric else of_one - of_zero,
    )


def fit(data: Data, design: Design, chosen: Places, extra: float, surplus: float = 0.0) -> Fit:
    """Fit the background and the chosen patterns together; `extra` is where to begin.

    Every fitted text takes one degree of freedom from the residuals. `surplus` are those that go
    with texts that were chosen because they came out large; see `selection.surplus`.
    """
    shares = data.shares[:, None]
    other = sparse.csc_array(
        np.broadcast_to(shares * data.density, data.debiased.shape).reshape(-1, 1)
    )
    columns = sparse.csc_array(sparse.hstack((other, design.columns(chosen, data.shares))))
    solution = np.zeros(columns.shape[1])
    residual, variance = np.zeros(data.debiased.shape), np.ones(data.debiased.shape)
    freedom = max(1 - (columns.shape[1] + surplus) / residual.size, 0.1)
    uneven = shares * len(shares)
    fitted = np.broadcast_to(data.debiased.mean(axis=1, keepdims=True), residual.shape)
    for hard in (False, True):
        for _ in range(_STEPS):
            before = solution
            trust = data.used * _trust(residual / np.sqrt(variance), hard=hard)
            flips = data.flips(fitted)
            known = flips + _cohort_spread(data, columns, solution)
            weight = trust / _usable(known + extra * uneven)
            inverse = _inverted(columns, weight)
            solution = inverse @ (columns.T @ (weight * data.debiased).ravel())
            fitted = (columns @ solution).reshape(residual.shape)
            residual = data.debiased - fitted
            extra = _extra_variance(residual, known, uneven, data.used, freedom)
            variance = _usable(known + extra * uneven)
            if (np.abs(solution - before) <= _SETTLED * np.sqrt(np.diag(inverse))).all():
                break
    return Fit(
        chosen=chosen,
        counts=solution[1:],
        background=float(solution[0]),
        inverse=inverse,
        columns=columns,
        residual=residual,
        variance=variance,
        weight=weight,
        flips=flips,
        extra=extra,
    )


def _usable(variance: Floats) -> Floats:
    return np.maximum(variance, 1e-12)  # a cohort without reports has none


def _trust(standardized: Floats, *, hard: bool) -> Floats:
    """Return the weight of residuals: 1 up to `CLIP`, beyond it less and less, or nearly none.

    Least squares alone is misled where a popular unknown text shares one bit with a known one: all
    bits of the known one then seem far off. Huber's weights, the soft ones, find the only minimum
    of a convex loss from any start, and from there the bits far off can be left out.
    """
    beyond = np.maximum(np.abs(standardized) / CLIP, 1.0)
    return np.asarray(np.where(beyond > 1, _LEFT_OUT, 1.0) if hard else 1 / beyond)


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
    upper, _ = linalg.lapack.dpotri(linalg.cholesky(scaled))
    inverse = np.triu(upper) + np.triu(upper, 1).T
    return np.asarray(inverse / scale / scale[:, None])


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

    def gap(extra: float) -> float:
        spread = _usable(known + extra * shape)
        return float((np.minimum(squares / spread, CLIP**2) * used).sum()) / rows - target

    if gap(0.0) <= 0:
        return 0.0
    high = float(squares.max()) + 1.0
    while gap(high) > 0:  # a cohort of few reports has a small part in `shape`
        high *= 4
    while high > 1e-6 and gap(high / 4) <= 0:
        high /= 4
    return float(optimize.brentq(gap, 0.0, high, rtol=1e-6))
