"""A test of independence for a table whose covariance is known, and what it would find.

A table of people drawn from a population has covariance N (diag(pi) - pi pi') + W, with W that of
the flips. If the two answers are independent, pi = a b', and a change of a or b moves the table by
something like x b' + a y'. Contrasts from the complement of a on one side and of b on the other
do not see that, and see every dependence. Their squared length, weighed by their covariance, is
chi-square with (K - 1)(L - 1) degrees of freedom in the limit of many reports. Without flips it is
Pearson's statistic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.estimates import nearest_feasible
from shoal.errors import InputError
from shoal.support.checks import check_level, check_number
from shoal.support.rounding import text_down, text_up

Matrix = NDArray[np.float64]


_MIN_VARIANCE = 5.0  # of a cell, in people, from which on the chi-square distribution will do


@dataclass(frozen=True)
class Independence:
    """A test of the hypothesis that the two answers are independent in the population.

    `kind` is exact for any number of reports, approximate for many, and rough where some cell has
    so few people and flips that the p-value may be far too small.
    """

    statistic: float
    degrees: int
    p_value: float
    kind: Literal["exact", "approximate", "rough"]

    @property
    def in_words(self) -> str:
        """The result of the test in a few words, its p-value rounded up."""
        return f"test of independence: p-value {text_up(self.p_value, 3)} ({self.kind})."


@dataclass(frozen=True)
class Sensitivity:
    """How large an effect must be to be found: people in one cell above or below independence.

    The test at `level` finds `most` people in any cell with a probability of at least `power`;
    fewer than `least`, in whatever cell, with less (approximate).
    """

    level: float
    power: float
    least: float
    most: float

    @property
    def in_words(self) -> str:
        least, most = text_down(self.least, 3), text_up(self.most, 3)
        return (
            f"At level {self.level:.3g}, one cell that is {most} people off independence would be"
            f" seen with probability {self.power:.3g}; an effect below {least} people would not be"
            " seen that often."
        )

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self)) | {"in_words": self.in_words}


@dataclass(frozen=True, eq=False)
class InteractionTest:
    """The test for a table of unbiased counts and the covariance of its flips, row by row."""

    table: Matrix
    noise: Matrix

    @cached_property
    def shares(self) -> tuple[Matrix, Matrix]:
        total = max(round(float(self.table.sum())), 1)
        rows, columns = (
            nearest_feasible(self.table.sum(axis=axis), total, total, total) / total
            for axis in (1, 0)
        )
        return rows, columns

    @cached_property
    def expected(self) -> Matrix:
        """How many people independence gives each cell."""
        return np.asarray(max(float(self.table.sum()), 0.0) * np.outer(*self.shares))

    @cached_property
    def _whitened(self) -> Matrix:
        """The map from the table, row by row, to contrasts that are independent with variance 1."""
        from scipy.linalg import null_space

        contrasts = np.kron(*(null_space(share[None, :]).T for share in self.shares))
        # Contrasts do not see a b', so that - N pi pi' drops out.
        covariance = np.diag(self.expected.reshape(-1)) + self.noise
        root = np.linalg.cholesky(contrasts @ covariance @ contrasts.T)
        return np.asarray(np.linalg.solve(root, contrasts))

    @property
    def degrees(self) -> int:
        rows, columns = self.table.shape
        return (int(rows) - 1) * (int(columns) - 1)

    @cached_property
    def result(self) -> Independence:
        from scipy.stats import chi2

        statistic = float(self.statistics(self.table.reshape(1, -1))[0])
        p_value = float(chi2.sf(statistic, self.degrees))
        variance = self.expected.reshape(-1) + np.diag(self.noise)
        kind: Any = "approximate" if float(variance.min()) >= _MIN_VARIANCE else "rough"
        return Independence(statistic, self.degrees, p_value, kind)

    def statistics(self, tables: Matrix) -> Matrix:
        """Return the statistic of each of several tables, in rows, weighed as this one is."""
        return np.asarray(((tables @ self._whitened.T) ** 2).sum(axis=1))

    def sensitivity(
        self, level: float = 0.05, power: float = 0.8, limit: float | None = None
    ) -> Sensitivity:
        """Return how many people off independence one cell must be to be found.

        An excess x in cell (i, j) that leaves all totals as they are is the table x (1_i - a)
        (1_j - b)' / ((1 - a_i)(1 - b_j)). The statistic is then noncentral chi-square. The test
        finds what is above the `limit`, by default that of chi-square at the level.
        """
        check_level(level)
        if not level < check_number("power", power) < 1:
            raise InputError(f"power must be above the level {level} and below 1, got {power}.")
        from scipy.special import chdtri, chndtrinc

        above = float(chdtri(self.degrees, level)) if limit is None else limit
        needed = np.sqrt(chndtrinc(above, self.degrees, 1 - power))
        rows, columns = (1 - share for share in self.shares)
        reach = np.outer(rows, columns).reshape(-1)
        possible = reach > 0  # where a row or a column has everybody, nothing can be off
        people = needed * reach[possible] / np.sqrt((self._whitened**2).sum(axis=0))[possible]
        return Sensitivity(level, power, float(people.min()), float(people.max()))
