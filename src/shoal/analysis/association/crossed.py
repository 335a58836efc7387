"""The table of two questions that the survey crosses, from its cells and from their own answers.

A cell of the cross is one bit, so that its unbiased count has the variance s^2 = N pq / (p - q)^2
whatever the truth, and different cells are independent given the people. Where a category has
several values of the cross, or the cross has more sides than two, cells are added. The questions
themselves were counted too: they say what rows and columns add up to. Together with the number of
reports this makes one least-squares table, whose covariance is known exactly (theorem).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.analysis.association.independence import Independence, InteractionTest
from shoal.analysis.association.sides import Matrix, Side
from shoal.analysis.estimates import nearest_feasible
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol import questions
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Cross, Survey

__all__ = ["CrossedTable", "cross_of"]

MOST_CELLS = 2048
"""Of a table: its covariance has so many rows and columns."""


def cross_of(survey: Survey, first: Side, second: Side) -> Cross | None:
    """Return the smallest cross that has both sides, if there is one.

    >>> from shoal import Choice, YesNo
    >>> from shoal.analysis.association.sides import side_of
    >>> survey = Survey("s", (YesNo("a"), Choice("b", ("x", "y")))).cross("b", "a")
    >>> cross_of(survey, side_of(survey, "a"), side_of(survey, "b=x")).name
    'b x a'
    """
    fitting = [
        cross
        for cross in survey.crosses
        if all(_axis(cross, side) is not None for side in (first, second))
    ]
    return min(fitting, key=lambda cross: cross.bits, default=None)


@dataclass(frozen=True, eq=False)
class CrossedTable:
    """Two sides of a cross: the best table, its covariance and the test of independence."""

    plan: Plan
    tally: Tally
    first: Side
    second: Side
    cross: Cross

    constrained_by = "nearest table"

    @property
    def _variance(self) -> float:
        """The variance of one bit's unbiased count."""
        q = float(self.plan.q)
        return self.tally.reports * q * (1 - q) / (1 - 2 * q) ** 2

    def _counts(self, places: slice | list[int]) -> Matrix:
        q = float(self.plan.q)
        return np.asarray((self.tally.by_bit[places] - q * self.tally.reports) / (1 - 2 * q))

    @cached_property
    def _cells(self) -> tuple[Matrix, Matrix]:
        """The count of each pair of categories, and how many cells it is the sum of."""
        axes, members = [], []
        for side in (self.first, self.second):
            axis = _axis(self.cross, side)
            assert axis is not None
            axes.append(axis)
            members.append(_members(side, self.cross.sides[axis]))
        counts = self._counts(self.plan.survey.slice_of(self.cross.name))
        shaped = np.moveaxis(counts.reshape(self.cross.sizes), axes, (0, 1))
        pairs = shaped.reshape(*shaped.shape[:2], -1).sum(axis=2)
        others = self.cross.bits // pairs.size
        added = others * np.outer(*(each.sum(axis=1) for each in members))
        return np.asarray(members[0] @ pairs @ members[1].T), added

    @cached_property
    def _best(self) -> tuple[Matrix, Matrix]:
        """The least-squares table and its covariance, row by row."""
        cells, added = self._cells
        if cells.size > MOST_CELLS:
            raise InputError(
                f"the table has {cells.size:,} cells, and a test of independence takes up to"
                f" {MOST_CELLS:,}; name one option of a question instead of all."
            )
        rows, columns = cells.shape
        precision = np.diag(1 / added.reshape(-1))
        weighed = (cells / added).reshape(-1)
        across = np.kron(np.eye(rows), np.ones(columns))
        down = np.kron(np.ones(rows), np.eye(columns))
        for side, sums in ((self.first, across), (self.second, down)):
            counted = sums[: len(side.positions)]
            precision += counted.T @ counted
            weighed += counted.T @ self._counts(list(side.positions))
        spread = np.linalg.inv(precision)
        whole = spread.sum(axis=1)
        # The table adds up to the reports exactly.
        known = spread - np.outer(whole, whole) / whole.sum()
        best = known @ weighed + whole * self.tally.reports / whole.sum()
        return best.reshape(cells.shape), self._variance * known

    @property
    def table(self) -> Matrix:
        """The unbiased counts; some may be negative."""
        return self._best[0]

    @property
    def noise(self) -> Matrix:
        """The covariance of the table, row by row, given the people."""
        return self._best[1]

    @cached_property
    def constrained(self) -> Matrix:
        """The nearest table without negative counts that adds up to the reports."""
        n = self.tally.reports
        return nearest_feasible(self.table.reshape(-1), n, n, n).reshape(self.table.shape)

    @cached_property
    def test(self) -> InteractionTest:
        """The test of independence."""
        return InteractionTest(self.table, self.noise)

    @property
    def independence(self) -> Independence:
        """The result of the test."""
        return self.test.result


def _axis(cross: Cross, side: Side) -> int | None:
    """Return which side of the cross tells the categories apart."""
    for axis, crossed in enumerate(cross.sides):
        same = crossed.question.name == side.question
        if same and crossed.flag in (None, side.option):
            return axis
    return None


def _members(side: Side, crossed: questions.Side) -> Matrix:
    """Return which values of the cross each category has: one row per category."""
    size = len(crossed.values)
    if side.option is None:
        return np.eye(size)
    chosen = np.zeros(size)
    chosen[crossed.question.labels.index(side.option) if crossed.bit is None else 0] = 1
    return np.stack((chosen, 1 - chosen))
