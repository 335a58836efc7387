"""The table of two answers whose bits were counted jointly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.analysis.association.independence import Independence
from shoal.analysis.association.sides import Matrix, Side, both_set, full_counts
from shoal.analysis.association.tables import (
    cross_moments,
    likeliest_table,
    noise_covariance,
    unbiased_table,
)
from shoal.analysis.estimates import nearest_feasible
from shoal.analysis.tally import Tally
from shoal.protocol.plan import Plan

__all__ = ["JointTable"]


@dataclass(frozen=True, eq=False)
class JointTable:
    """Two sides of which a tally has joint counts: table, covariance and test of independence."""

    plan: Plan
    tally: Tally
    first: Side
    second: Side

    @property
    def _q(self) -> float:
        return float(self.plan.q)

    @cached_property
    def _moments(self) -> Matrix:
        both = both_set(self.tally, self.plan.survey, self.first, self.second)
        first, second = (
            self.tally.by_bit[list(side.positions)].astype(float)
            for side in (self.first, self.second)
        )
        return cross_moments(both.astype(float), first, second, self.tally.reports, self._q)

    @cached_property
    def table(self) -> Matrix:
        """The unbiased counts; some may be negative."""
        return unbiased_table(self.first, self.second, self._moments)

    @cached_property
    def _margins(self) -> tuple[Matrix, Matrix]:
        """The counts of each side's categories, made to fit: not negative, adding up."""
        n = self.tally.reports
        rows = self.first.affine @ self._moments[:, 0]
        columns = self.second.affine @ self._moments[0]
        return nearest_feasible(rows, n, n, n), nearest_feasible(columns, n, n, n)

    @cached_property
    def noise(self) -> Matrix:
        """The covariance of the table, row by row, given the people."""
        margins, reports = self._margins, self.tally.reports
        return noise_covariance(self.first, self.second, *margins, reports, self._q)

    @cached_property
    def counts(self) -> Matrix | None:
        """How many reports show each pair of values, if all bits were counted together."""
        counts = full_counts(self.tally, self.first, self.second)
        return None if counts is None else counts.astype(float)

    @property
    def constrained_by(self) -> str:
        """How `constrained` was found: maximum likelihood needs all bits counted together."""
        return "nearest table" if self.counts is None else "maximum likelihood"

    @cached_property
    def constrained(self) -> Matrix:
        """The table without negative counts that fits best, adding up to the reports."""
        if self.counts is None:
            n = self.tally.reports
            return nearest_feasible(self.table.reshape(-1), n, n, n).reshape(self.table.shape)
        return likeliest_table(self.first, self.second, self.counts, self._q)

    @cached_property
    def independence(self) -> Independence:
        """The test of independence.

        Under independence the sums D of (u - mean u)(w - mean w) have covariance N C1 x C2, with
        C = v I + diag(pi) - pi pi' for a question with one answer. True dependence has no row or
        column sums, so D is projected there by generalized least squares; the squared length is
        chi-square with (K1 - 1)(K2 - 1) degrees in the limit of many reports. Without flips it is
        Pearson's statistic.

        Two options need no limit: independent answers with independent flips are independent
        reports, so the p-value is that of Fisher's exact test of the reported table (theorem).
        """
        from scipy.stats import chi2

        n = self.tally.reports
        moments = self._moments
        lifted = moments[1:, 1:] - np.outer(moments[1:, 0], moments[0, 1:]) / n
        (first, freedom_1), (second, freedom_2) = (
            self._contrasts(side, margin)
            for side, margin in zip((self.first, self.second), self._margins, strict=True)
        )
        statistic = float(((first @ lifted @ second.T) ** 2).sum() / n)
        degrees = freedom_1 * freedom_2
        if self.first.option is not None and self.second.option is not None:
            return Independence(statistic, degrees, self._fisher(), "exact")
        return Independence(statistic, degrees, float(chi2.sf(statistic, degrees)), "approximate")

    def _fisher(self) -> float:
        from scipy.stats import fisher_exact

        both = int(both_set(self.tally, self.plan.survey, self.first, self.second)[0, 0])
        first, second = (
            int(self.tally.by_bit[side.positions[0]]) for side in (self.first, self.second)
        )
        neither = self.tally.reports - first - second + both
        table = np.array([[both, first - both], [second - both, neither]])
        return float(fisher_exact(table).pvalue)

    def _contrasts(self, side: Side, margin: Matrix) -> tuple[Matrix, int]:
        """Return the map that makes a side's part of D white, and how many dimensions it keeps."""
        v = self._q * (1 - self._q) / (1 - 2 * self._q) ** 2
        shares = margin / margin.sum()
        if side.option is not None:
            return np.array([[1 / math.sqrt(v + shares[0] * shares[1])]]), 1
        size = len(shares)
        covariance = v * np.eye(size) + np.diag(shares) - np.outer(shares, shares)
        basis = np.eye(size)[:, :-1] - np.eye(size)[:, -1:]
        weighed = np.linalg.solve(covariance, basis)
        root = np.linalg.cholesky(basis.T @ weighed)
        return np.linalg.solve(root, weighed.T), size - 1
