"""Whether two answers go together: the table of both, a test of independence, and how strongly.

A cross in the survey counts them together, in either view. Otherwise joint counts are needed:
declare `joint_groups` in the plan, or tally with `joint`. View `counts` has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.analysis.association_tables import (
    CrossedTable,
    JointTable,
    SideName,
    TableSide,
    check_sides,
    cross_of,
    side_of,
)
from shoal.analysis.association_tables import joint_groups as joint_groups
from shoal.analysis.contrasts import Combination
from shoal.analysis.crowds import repeat_remedy
from shoal.analysis.estimates import estimate
from shoal.analysis.independence import Independence, Matrix, Sensitivity
from shoal.analysis.intervals import Target
from shoal.analysis.joint import JointCell, check_links
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.checks import check_level, takes
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows
from shoal.theory.randomized_response import normal_factor

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class Association(Displayed, TableExport):
    """The estimated table of two answers: ``association["beta", "sync"]`` is a cell."""

    plan: Plan
    tally: Tally
    first: TableSide
    second: TableSide
    target: Target

    def _headline(self) -> str:
        return f"{self.first.name} and {self.second.name}: {self.tally.in_words}"

    def _sections(self) -> list[Section]:
        cells, left_out = first_rows(self)
        rows = [
            (*map(str, cell.values), f"{cell.count:z,.0f}", f"{cell.sigma:,.1f}") for cell in cells
        ]
        return [
            Section((self.first.name, self.second.name, "count", "sigma"), rows, left_out=left_out)
        ]

    def _remarks(self) -> list[str]:
        return [self.independence.in_words]

    def __getitem__(self, cell: tuple[str, str]) -> JointCell:
        for entry in self:
            if entry.values == tuple(cell):
                return entry
        raise InputError(f"the table has no cell {cell!r}.")

    def __iter__(self) -> Iterator[JointCell]:
        drawn = self.tally.reports if self.target == "population" else 0
        numbers = zip(
            product(self.first.categories, self.second.categories),
            self.table.ravel().tolist(),
            np.diag(self._source.noise).tolist(),
            self.constrained.ravel().tolist(),
            strict=True,
        )
        for values, count, variance, likeliest in numbers:
            yield JointCell(
                values, count, variance, math.sqrt(max(variance, 0.0)), drawn, likeliest
            )

    @cached_property
    def _source(self) -> JointTable | CrossedTable:
        """Where the table comes from: a cross of the survey, or else joint counts."""
        cross = cross_of(self.plan.survey, self.first, self.second)
        if cross is None:
            return JointTable(self.plan, self.tally, self.first, self.second)
        return CrossedTable(self.plan, self.tally, self.first, self.second, cross)

    @property
    def table(self) -> Matrix:
        """The unbiased counts; some may be negative."""
        return self._source.table

    @property
    def constrained(self) -> Matrix:
        """The table without negative counts that fits best, adding up to the reports."""
        return self._source.constrained

    @property
    def constrained_by(self) -> str:
        """How `constrained` was found: maximum likelihood needs all bits counted together."""
        return self._source.constrained_by

    @property
    def independence(self) -> Independence:
        """The test of independence, about the population."""
        return self._source.independence

    def sensitivity(self, level: float = 0.05, power: float = 0.8) -> Sensitivity | None:
        """Return which effects the test at `level` finds with `power`; None without a cross."""
        source = self._source
        return source.test.sensitivity(level, power) if isinstance(source, CrossedTable) else None

    @cached_property
    def covariance(self) -> Matrix:
        """The covariance of the table, row by row: of the flips and, for a population, of who.

        A cell that nobody showed would not vary at all, so each is taken to have one person more
        (Agresti and Caffo 2000).
        """
        if self.target == "crowd":
            return self._source.noise
        n = self.tally.reports
        people = self.constrained.reshape(-1) + 1
        shares = people / people.sum()
        return np.asarray(self._source.noise + n * (np.diag(shares) - np.outer(shares, shares)))

    def difference(self, level: float = 0.95) -> Combination:
        """Return how the second answer's share differs between the first one's two groups.

        By the delta method; all of [-1, 1] if a group is not told apart from nobody.
        """
        (a, b), (c, d) = self._two_by_two().tolist()
        z = normal_factor(check_level(level))
        sums = np.array([[1, 1, 0, 0], [0, 0, 1, 1]], float)
        sigmas = np.sqrt(np.diag(sums @ self.covariance @ sums.T))
        if a + b <= z * sigmas[0] or c + d <= z * sigmas[1]:
            return Combination(math.nan, math.inf, -1.0, 1.0, level, "normal")
        slope = np.array([b, -a]) / (a + b) ** 2, np.array([-d, c]) / (c + d) ** 2
        gradient = np.concatenate(slope)
        value = a / (a + b) - c / (c + d)
        sigma = math.sqrt(float(gradient @ self.covariance @ gradient))
        low, high = max(value - z * sigma, -1.0), min(value + z * sigma, 1.0)
        return Combination(value, sigma, low, high, level, "normal")

    def odds_ratio(self, level: float = 0.95) -> Combination:
        """Return the odds ratio with Fieller's interval, unbounded where a denominator may be 0.

        The r with (top - r under)^2 <= z^2 Var(top - r under), approximate; products of two small
        counts vary by their variances' product too.
        """
        (a, b), (c, d) = self._two_by_two().tolist()
        z = normal_factor(check_level(level))
        top, under = a * d, b * c
        slopes = np.array([[d, 0, 0, a], [0, c, b, 0]])
        (var_top, cov), (_, var_under) = (slopes @ self.covariance @ slopes.T).tolist()
        var_a, var_b, var_c, var_d = np.diag(self.covariance).tolist()
        var_top, var_under = var_top + var_a * var_d, var_under + var_b * var_c
        value = max(top, 0.0) / under if under > 0 and min(b, c) > 0 else math.nan
        A, B = under**2 - z * z * var_under, top * under - z * z * cov  # noqa: N806
        C = top**2 - z * z * var_top  # noqa: N806
        root = math.sqrt(max(B * B - A * C, 0.0))
        if A > 0 and min(b, c) > 0:
            spread = math.sqrt(max(var_top - 2 * value * cov + value**2 * var_under, 0.0)) / under
            low, high = max((B - root) / A, 0.0), max((B + root) / A, 0.0)
            return Combination(value, spread, low, high, level, "normal")
        one_sided = A < 0 < C and min(a, d) > 0
        low = (B - root) / A if one_sided else 0.0
        return Combination(value, math.inf, low, math.inf, level, "normal")

    def _two_by_two(self) -> Matrix:
        if self.table.shape != (2, 2):
            raise InputError(
                "a difference or an odds ratio is of two answers with two values each; name one"
                f" option of {self.first.question!r} and of {self.second.question!r}."
            )
        return self.table

    @property
    def cramers_v(self) -> float:
        """Cramér's V of the constrained table, 0 to 1; noise raises it, so look at the test too."""
        shares = self.constrained / self.constrained.sum()
        expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
        used = expected > 0
        squared = float((((shares - expected) ** 2)[used] / expected[used]).sum())
        return math.sqrt(squared / (min(shares.shape) - 1))

    def to_arrow(self, level: float = 0.95) -> pa.Table:
        """Return the cells as an Arrow table."""
        about = {"reports": self.tally.reports, "simulated": self.tally.simulated}
        return arrow_rows(["first", "second"], self._cells_json(level), level=level, **about)

    def _cells_json(self, level: float) -> list[dict[str, Any]]:
        cells = []
        for cell in self:
            first, second = cell.values
            bounds = cell.interval(level)
            row = {"first": first, "second": second, "count": cell.count, "sigma": cell.sigma}
            row |= {"low": bounds.low, "high": bounds.high, "constrained": cell.constrained}
            cells.append(row)
        return cells

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return the table and its measures as plain JSON values; null where nothing is known."""
        check_level(level)
        sensitivity = self.sensitivity(1 - level)
        small = self.table.shape == (2, 2)
        return {
            "plan": self.plan.id,
            "reports": self.tally.reports,
            "simulated": self.tally.simulated,
            "first": self.first.name,
            "second": self.second.name,
            "level": level,
            "target": self.target,
            "table": self._cells_json(level),
            "constrained_by": self.constrained_by,
            "independence": asdict(self.independence),
            "sensitivity": sensitivity and sensitivity.to_json(),
            "cramers_v": self.cramers_v,
            "difference": self.difference(level).to_json() if small else None,
            "odds_ratio": self.odds_ratio(level).to_json() if small else None,
        }


@takes(plan=Plan, tally=Tally)
def associate(
    plan: Plan, tally: Tally, first: SideName, second: SideName, *, target: Target = "crowd"
) -> Association:
    """Estimate how two answers go together; docs/associate.md has an example.

    The plan's survey crosses both answers, or the tally counts their bits jointly. Crowds whose
    people may be the same are refused. An answer is a question with exactly one answer, or one
    option of any question, as a (question, option) pair or as ``"question=option"``; not text.
    `target` says whom the table is about; the test of independence is always about the population.
    """
    estimate(plan, tally, target=target)  # refuses another plan's tally and too small a crowd
    check_people(tally)
    sides = side_of(plan.survey, first), side_of(plan.survey, second)
    check_sides(plan.survey, *sides)
    if cross_of(plan.survey, *sides) is None:
        check_links(plan, "joint counts", (*sides[0].positions, *sides[1].positions))
    association = Association(plan, tally, *sides, target)
    association.table  # noqa: B018  refuses a tally that did not count them together
    return association


def check_people(tally: Tally) -> None:
    if tally.people_may_repeat:
        raise InputError(
            "a test of independence takes every report for another person; the people of these"
            f" {len(tally.crowds):,} crowds may be the same. {repeat_remedy(tally.crowds)}"
        )
