"""Cross tables: the cells of questions that a survey crosses, with totals, shares and a test.

Every cell is a bit of its own, so its count has an exact interval, like any option's. So have the
totals, and the part that a cell has of its row or column. Three or more questions make one table
for each answer to the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.association import Association, associate, check_people
from shoal.analysis.association_tables import CrossedTable, side_of
from shoal.analysis.contrasts import Combination, part_of, total
from shoal.analysis.estimates import NUMBERS, Estimate, Estimates, estimate
from shoal.analysis.independence import InteractionTest
from shoal.analysis.intervals import Target
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.planning.share_noise import sigma_in
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Cross, Survey
from shoal.support.checks import check_level, did_you_mean, listed, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


Cell = TypeVar("Cell")

_MAX_COLUMNS = 12
"""Columns of a matrix that are shown; data frames have them all."""
_MAX_SLICES = 8


@dataclass(frozen=True, eq=False, repr=False)
class CellTable(Generic[Cell]):
    """The cells of crossed questions: ``table["young", "new"]`` is the count of one.

    `cells` has an axis of `values` for each question. `given` has the answers that all people of a
    slice have.
    """

    questions: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    given: Mapping[str, str]
    cells: NDArray[np.object_]

    def __getitem__(self, cell: str | tuple[str, ...]) -> Cell:
        wanted = (cell,) if isinstance(cell, str) else tuple(cell)
        if len(wanted) != len(self.questions):
            raise InputError(f"a cell is one value of each of {listed(self.questions)}.")
        index = []
        for name, values, value in zip(self.questions, self.values, wanted, strict=True):
            if value not in values:
                raise InputError(
                    f"{name} is never {value!r}; it is one of {listed(values)}."
                    f"{did_you_mean(value, values)}"
                )
            index.append(values.index(value))
        found: Cell = self.cells[tuple(index)]
        return found

    @cached_property
    def slices(self) -> Mapping[str, Self]:
        """One table of the other questions for each answer to the first of three or more."""
        if len(self.questions) < 3:
            raise InputError("only a table of three or more questions is sliced.")
        first, *others = self.questions
        return {
            value: replace(
                self,
                questions=tuple(others),
                values=self.values[1:],
                given={**self.given, first: value},
                cells=cells,
            )
            for value, cells in zip(self.values[0], self.cells, strict=True)
        }

    def _check_two(self) -> None:
        if len(self.questions) != 2:
            raise InputError(
                f"a matrix is of two questions, this table is of {listed(self.questions)};"
                " take its slices."
            )

    def _total(self, cells: Sequence[Cell], level: float) -> Combination:
        raise NotImplementedError

    def _part(self, cell: Cell, others: Sequence[Cell], level: float) -> Combination:
        raise NotImplementedError

    def _totals(self, axis: int, level: float) -> tuple[Combination, ...]:
        rows = self.cells.T if axis else self.cells
        return tuple(self._total(row.tolist(), level) for row in rows)

    def row_totals(self, level: float = 0.95) -> tuple[Combination, ...]:
        """Return how many people each row has, with exact intervals."""
        self._check_two()
        return self._totals(0, level)

    def column_totals(self, level: float = 0.95) -> tuple[Combination, ...]:
        self._check_two()
        return self._totals(1, level)

    def row_shares(self, level: float = 0.95) -> tuple[tuple[Combination, ...], ...]:
        """Return which part of its row each cell is, with exact intervals, row by row."""
        self._check_two()
        return tuple(self._parts(row.tolist(), level) for row in self.cells)

    def column_shares(self, level: float = 0.95) -> tuple[tuple[Combination, ...], ...]:
        """Return which part of its column each cell is, with exact intervals, row by row."""
        self._check_two()
        columns = [self._parts(column.tolist(), level) for column in self.cells.T]
        return tuple(zip(*columns, strict=True))

    def _parts(self, cells: Sequence[Cell], level: float) -> tuple[Combination, ...]:
        return tuple(
            self._part(cell, [*cells[:place], *cells[place + 1 :]], level)
            for place, cell in enumerate(cells)
        )

    def _test_json(self, level: float) -> dict[str, Any]:
        """Return the test of independence, and which effects it finds."""
        raise NotImplementedError

    def _table_json(self, level: float) -> dict[str, Any]:
        document: dict[str, Any] = {"questions": list(self.questions), "given": dict(self.given)}
        if len(self.questions) > 2:
            slices = [one._table_json(level) for one in self.slices.values()]
            return document | {"slices": slices}
        first, second = self.questions
        document |= {"first": first, "second": second, "table": self._cells_json(level)}
        document["totals"] = {
            name: {value: one.to_json() for value, one in zip(values, totals, strict=True)}
            for name, values, totals in (
                ("first", self.values[0], self.row_totals(level)),
                ("second", self.values[1], self.column_totals(level)),
            )
        }
        return document | self._test_json(level)

    def _cells_json(self, level: float) -> list[dict[str, Any]]:
        rows, columns = self.row_shares(level), self.column_shares(level)
        cells = []
        for (i, j), cell in np.ndenumerate(self.cells):
            numbers = cell.to_json(level)
            del numbers["share"]  # the shares of the row and of the column say more
            names = {"first": self.values[0][i], "second": self.values[1][j]}
            shares = {"row_share": rows[i][j], "column_share": columns[i][j]}
            cells.append(names | numbers | {name: x.to_json() for name, x in shares.items()})
        return cells


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable(CellTable[Estimate], Displayed, TableExport):
    """The table of crossed questions in a crowd; a cell is an estimate.

    Totals are from the questions' own bits, which are more precise; in a slice, cells are added.
    """

    estimates: Estimates
    cross: Cross

    def _headline(self) -> str:
        given = "".join(f", {name} is {value}" for name, value in self.given.items())
        return (
            f"{' by '.join(self.questions)}{given}: {self.cells.size:,} cells,"
            f" {self.estimates.tally.in_words}, exact intervals at 0.95"
        )

    def _sections(self) -> list[Section]:
        if len(self.questions) > 2:
            parts, left_out = first_rows(self.slices.values(), _MAX_SLICES)
            sections = [section for part in parts for section in part._sections()]
            rest = Section((), [], left_out=left_out)
            return [*sections, rest] if left_out else sections
        first, second = self.questions
        rows = []
        shown, left_out = first_rows(zip(self.values[0], self.cells, strict=True))
        for value, cells in shown:
            few, hidden = first_rows(cells.tolist(), _MAX_COLUMNS)
            rows.append((value, *map(_in_brief, few), *(["..."] if hidden else [])))
        heads = [*self.values[1][:_MAX_COLUMNS], *(["..."] if hidden else [])]
        given = ", ".join(f"{name}: {value}" for name, value in self.given.items())
        return [Section((f"{first} / {second}", *heads), rows, given, left_out)]

    def _remarks(self) -> list[str]:
        if len(self.questions) != 2 or self.estimates.tally.people_may_repeat:
            return []
        return [self.test.result.in_words]

    def _total(self, cells: Sequence[Estimate], level: float) -> Combination:
        return total(cells, level)

    def _part(self, cell: Estimate, others: Sequence[Estimate], level: float) -> Combination:
        return part_of(cell, others, level)

    def _totals(self, axis: int, level: float) -> tuple[Combination, ...]:
        if self.given:
            return super()._totals(axis, level)
        return tuple(total([one], level) for one in self._answers(self.questions[axis]))

    def _answers(self, name: str) -> list[Estimate]:
        """Return the estimate of each value of a crossed question, from its own bits."""
        (side,) = (side for side in self.cross.sides if side.name == name)
        own = list(self.estimates[side.question.name].options.values())
        if side.bit is None:
            return own
        yes = own[side.bit]
        n = yes.reports
        no = replace(yes, label=side.values[1], ones=n - yes.ones, constrained=n - yes.constrained)
        return [yes, no]

    @cached_property
    def association(self) -> Association:
        """How the two questions go together; see `associate`. A slice has only a `test`."""
        self._check_two()
        if self.given:
            raise InputError("a slice has a test of independence, and no other measure.")
        estimates = self.estimates
        return associate(estimates.plan, estimates.tally, *self.questions, target=estimates.target)

    @cached_property
    def test(self) -> InteractionTest:
        """The test of independence of the two questions, in a slice among its people."""
        plan, tally = self.estimates.plan, self.estimates.tally
        check_people(tally)
        if not self.given:
            first, second = (side_of(plan.survey, name) for name in self.questions)
            return CrossedTable(plan, tally, first, second, self.cross).test
        self._check_two()
        table = np.array([[cell.count for cell in row] for row in self.cells])
        variance = sigma_in(plan, tally.reports) ** 2
        return InteractionTest(table, np.eye(table.size) * variance)

    def plot(self, level: float = 0.95) -> Figure:
        """Draw which part of its row each cell is, with its interval; needs matplotlib."""
        from shoal.reports.plots.results import plot_cross

        return plot_cross(self, level)

    def to_arrow(self, level: float = 0.95) -> pa.Table:
        rows = []
        for answers, cell in zip(product(*self.values), self.cells.ravel().tolist(), strict=True):
            numbers = cell.to_json(level)
            row = dict(zip(self.questions, answers, strict=True))
            rows.append(row | {name: float(numbers[name]) for name in NUMBERS})
        tally = self.estimates.tally
        about = {"reports": tally.reports, "simulated": tally.simulated}
        return arrow_rows(self.questions, rows, level=level, **about)

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        check_level(level)
        estimates = self.estimates
        document: dict[str, Any] = {
            "plan": estimates.plan.id,
            "reports": estimates.tally.reports,
            "simulated": estimates.tally.simulated,
            "cross": self.cross.name,
            "level": level,
            "interval": "exact",
            "target": estimates.target,
        }
        return document | self._table_json(level)

    def _test_json(self, level: float) -> dict[str, Any]:
        test = self.test
        document: dict[str, Any] = {
            "independence": asdict(test.result),
            "sensitivity": test.sensitivity(1 - level).to_json(),
        }
        if not self.given:
            of_both = self.association.to_json(level)
            document |= {name: of_both[name] for name in ("cramers_v", "difference", "odds_ratio")}
        return document


def _in_brief(cell: Estimate) -> str:
    bounds = cell.interval()
    return f"{cell.constrained:,.0f} ({math.floor(bounds.low):,} to {math.ceil(bounds.high):,})"


def cross_named(survey: Survey, names: Sequence[str]) -> Cross | None:
    """Return the cross of exactly these questions, in any order, or of this name."""
    for cross in survey.crosses:
        sides = [side.name for side in cross.sides]
        if list(names) == [cross.name] or sorted(sides) == sorted(names):
            return cross
    return None


@takes(plan=Plan, tally=Tally)
def cross_table(plan: Plan, tally: Tally, *names: str, target: Target = "crowd") -> CrossTable:
    """Return the table of questions that the plan's survey crosses; see docs/crosses.md.

    `names` are the crossed questions in the order wanted, rows before columns, or the name of the
    cross. `target` says whom the counts are about; the test is always about the population.
    """
    estimates = estimate(plan, tally, target=target)
    cross = cross_named(plan.survey, names)
    if cross is None:
        raise InputError(_no_cross(plan.survey, names))
    sides = [side.name for side in cross.sides]
    order = list(range(len(sides)))
    if list(names) != [cross.name]:
        order = [sides.index(name) for name in names]
    cells = np.array([*estimates[cross.name].options.values()], object).reshape(cross.sizes)
    questions = tuple(sides[axis] for axis in order)
    values = tuple(cross.sides[axis].values for axis in order)
    return CrossTable(questions, values, {}, cells.transpose(order), estimates, cross)


def _no_cross(survey: Survey, names: Sequence[str]) -> str:
    wanted = Cross.of(survey.asked, names)  # says why, if they cannot be crossed
    have = listed([cross.name for cross in survey.crosses])
    there = f"there is {have}" if survey.crosses else "there is none"
    flag = ";".join(side.name for side in wanted.sides)
    return f'the survey has no cross of {listed(names)}, {there}; plan it with --cross "{flag}".'
