"""Whether two answers go together: the table of both, a test of independence, and how strongly.

Only reports that were counted jointly can say so: declare `joint_groups` in the plan, or tally with
`joint`. Joint counts are part of the tally that the plan's promise covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from shoal.agreement.plan import Plan
from shoal.analysis.association.sides import (
    Matrix,
    Side,
    SideName,
    both_set,
    check_sides,
    full_counts,
    joint_groups,
    side_of,
)
from shoal.analysis.association.tables import (
    cross_moments,
    likeliest_table,
    noise_covariance,
    unbiased_table,
)
from shoal.analysis.contrasts import Combination
from shoal.analysis.crowds import way_out
from shoal.analysis.estimating import estimate, nearest_feasible
from shoal.analysis.intervals import Interval, Target, drawn_sigma, normal_interval
from shoal.analysis.tallying import Tally
from shoal.analysis.views import check_links
from shoal.errors import InputError
from shoal.support.checks import check_level
from shoal.theory.normal import normal_factor

__all__ = ["Association", "Independence", "TableCell", "associate", "joint_groups"]


@dataclass(frozen=True)
class TableCell:
    """How many people have both: an unbiased count, its sigma, and the likeliest count.

    `noise` is the sigma of the flips alone; `drawn` is how many people were drawn from a
    population, 0 if the crowd itself is meant.
    """

    first: str
    second: str
    count: float
    noise: float
    constrained: float
    drawn: int

    @property
    def sigma(self) -> float:
        """The standard deviation of the count: of the flips and, for a population, of who."""
        return drawn_sigma(self.constrained, self.noise, self.drawn)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the normal interval of the count, which is approximate: for large crowds."""
        return normal_interval(self.count, self.noise, level, self.drawn)


@dataclass(frozen=True)
class Independence:
    """A test of: in the population, the two answers have nothing to do with each other.

    `kind` is exact where the p-value holds for any number of reports, and approximate where it is
    that of many.
    """

    statistic: float
    degrees: int
    p_value: float
    kind: Literal["exact", "approximate"]


@dataclass(frozen=True)
class Association:
    """The estimated table of two answers: ``association["beta", "sync"]`` is one cell of it."""

    plan: Plan
    tally: Tally
    first: Side
    second: Side
    target: Target

    def __getitem__(self, cell: tuple[str, str]) -> TableCell:
        for entry in self:
            if (entry.first, entry.second) == tuple(cell):
                return entry
        raise InputError(f"the table has no cell {cell!r}.")

    def __iter__(self) -> Iterator[TableCell]:
        noise = np.sqrt(np.diag(self._noise)).reshape(self.table.shape)
        drawn = self.tally.reports if self.target == "population" else 0
        for i, first in enumerate(self.first.categories):
            for j, second in enumerate(self.second.categories):
                cell = i, j
                count, likeliest = float(self.table[cell]), float(self.constrained[cell])
                yield TableCell(first, second, count, float(noise[cell]), likeliest, drawn)

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
    def _noise(self) -> Matrix:
        margins, reports = self._margins, self.tally.reports
        return noise_covariance(self.first, self.second, *margins, reports, self._q)

    @cached_property
    def covariance(self) -> Matrix:
        """The covariance of the table, row by row: of the flips and, for a population, of who.

        Who was asked varies as if each cell had one more person (Agresti and Caffo 2000): a cell
        that nobody showed would not vary at all, and an odds ratio of zero seem certain.
        """
        if self.target == "crowd":
            return self._noise
        n = self.tally.reports
        people = self.constrained.reshape(-1) + 1
        shares = people / people.sum()
        return np.asarray(self._noise + n * (np.diag(shares) - np.outer(shares, shares)))

    @cached_property
    def _counts(self) -> Matrix | None:
        counts = full_counts(self.tally, self.first, self.second)
        return None if counts is None else counts.astype(float)

    @property
    def constrained_by(self) -> str:
        """How `constrained` was found: maximum likelihood needs all bits counted together."""
        return "nearest table" if self._counts is None else "maximum likelihood"

    @cached_property
    def constrained(self) -> Matrix:
        """The table without negative counts that fits best, adding up to the reports."""
        if self._counts is None:
            n = self.tally.reports
            return nearest_feasible(self.table.reshape(-1), n, n, n).reshape(self.table.shape)
        return likeliest_table(self.first, self.second, self._counts, self._q)

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

    def difference(self, level: float = 0.95) -> Combination:
        """Return by how much the second answer's share differs between the first one's two groups.

        P(second | first) - P(second | not first), by the delta method (approximate). A group that
        is not told apart from nobody has no share: the interval is then all of [-1, 1].
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
        counts vary by their variances' product too, which is added.
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

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return the table and what it says as plain JSON values; null where nothing is known."""
        test = self.independence
        cells = []
        for cell in self:
            bounds = cell.interval(level)
            cells.append(
                {
                    "first": cell.first,
                    "second": cell.second,
                    "count": cell.count,
                    "sigma": cell.sigma,
                    "low": bounds.low,
                    "high": bounds.high,
                    "constrained": cell.constrained,
                }
            )
        small = self.table.shape == (2, 2)
        return {
            "plan": self.plan.id,
            "reports": self.tally.reports,
            "simulated": self.tally.simulated,
            "first": self.first.name,
            "second": self.second.name,
            "level": level,
            "target": self.target,
            "table": cells,
            "constrained_by": self.constrained_by,
            "independence": {
                "statistic": test.statistic,
                "degrees": test.degrees,
                "p_value": test.p_value,
                "kind": test.kind,
            },
            "cramers_v": self.cramers_v,
            "difference": _measure(self.difference(level)) if small else None,
            "odds_ratio": _measure(self.odds_ratio(level)) if small else None,
        }


def _measure(combination: Combination) -> dict[str, float | None]:
    parts = {
        "value": combination.value,
        "sigma": combination.sigma,
        "low": combination.low,
        "high": combination.high,
    }
    return {name: value if math.isfinite(value) else None for name, value in parts.items()}


def associate(
    plan: Plan, tally: Tally, first: SideName, second: SideName, *, target: Target = "crowd"
) -> Association:
    """Estimate how two answers go together.

    Parameters
    ----------
    plan, tally
        The plan, and a tally that counts the bits of both answers jointly. Crowds whose people may
        be the same are refused.
    first, second
        A question with exactly one answer, or one option of any question, as a (question, option)
        pair or as ``"question=option"``. Text is refused.
    target
        Whom the table is about: those who reported, or the population they are a sample of. The
        test of independence is always about the population.

    Examples
    --------
    >>> from shoal import Flags, Survey, Synthetic, plan as make_plan, tally
    >>> plan = make_plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), q="0.25")
    >>> rows = np.repeat(np.array([[0], [1], [2], [3]], np.uint8), [400, 230, 220, 150], axis=0)
    >>> counts = tally(plan, Synthetic(rows, bits=2))
    >>> association = associate(plan, counts, "features=sync", "features=vpn")
    >>> round(association["sync", "vpn"].count, 6), round(association.odds_ratio().value, 2)
    (100.0, 2.68)
    >>> round(association.independence.p_value, 3)
    0.225
    """
    estimate(plan, tally, target=target)  # refuses another plan's tally and too small a crowd
    if tally.people_may_repeat:
        raise InputError(
            "a test of independence takes every report for another person; the people of these"
            f" {len(tally.crowds):,} crowds may be the same. {way_out(tally.crowds)}"
        )
    sides = side_of(plan.survey, first), side_of(plan.survey, second)
    check_sides(plan.survey, *sides)
    check_links(plan, "joint counts", (*sides[0].positions, *sides[1].positions))
    association = Association(plan, tally, *sides, target)
    association.table  # noqa: B018  refuses a tally that did not count them together
    return association
