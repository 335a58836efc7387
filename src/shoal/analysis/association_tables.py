"""The table of two answers, from joint counts or from a cross of the survey.

With u the debiased bits of one side and w those of the other, u = (bit - q)/(p - q), the flips of
different bits are independent, so the sum of u_i w_j over the reports counts the people who have
both without bias; this is the Kronecker inverse of the channel on these bits (`JointTable`).

A cell of a cross is one bit, so that its unbiased count has the variance s^2 = N pq / (p - q)^2
whatever the truth, and different cells are independent given the people (`CrossedTable`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.estimates import nearest_feasible
from shoal.analysis.independence import Independence, InteractionTest, Matrix
from shoal.analysis.joint import MAX_JOINT_BITS, Counts
from shoal.analysis.tally import Tally
from shoal.errors import InputError, TallyError
from shoal.planning.share_noise import sigma_in
from shoal.protocol.plan import Plan
from shoal.protocol.questions import CrossSide
from shoal.protocol.survey import Cross, Survey, Text, YesNo

MAX_CELLS = 2048  # of a table: its covariance has as many rows and columns
_MAX_STEPS = 5000

SideName = str | tuple[str, str]
"""A question, a (question, option) pair, or "question=option"."""


@dataclass(frozen=True)
class TableSide:
    """One side of a table: its categories and the bits that tell them apart.

    They are the options of a question with one answer; or one option, such as yes, and the rest.
    """

    question: str
    option: str | None
    categories: tuple[str, ...]
    positions: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.question if self.option is None else f"{self.question}={self.option}"

    @property
    def affine(self) -> Matrix:
        """Each category's indicator in terms of 1 and the bits: one row per category."""
        if self.option is not None:
            return np.array([[0.0, 1.0], [1.0, -1.0]])
        return np.hstack((np.zeros((len(self.positions), 1)), np.eye(len(self.positions))))

    @property
    def spread(self) -> Matrix:
        """The covariance of the debiased indicators of one person, in units of pq / (p - q)^2."""
        bits = self.affine[:, 1:]
        return np.asarray(bits @ bits.T)

    @property
    def values(self) -> NDArray[np.int64]:
        """The bits of every value they can have together, the first bit least significant."""
        return np.arange(1 << len(self.positions))[:, None] >> np.arange(len(self.positions)) & 1

    def likelihood(self, q: float) -> Matrix:
        """Return the chance of each reported value of the bits (row) for each category."""
        one = self.option is not None
        truth = np.array([[1.0], [0.0]]) if one else np.eye(len(self.positions))
        wrong = (self.values[:, None, :] != truth[None, :, :]).sum(axis=2)
        return np.asarray(q**wrong * (1 - q) ** (len(self.positions) - wrong))


def side_of(survey: Survey, name: SideName) -> TableSide:
    question, option = _split_name(survey, name)
    whole = survey[question]
    if isinstance(whole, Text):
        raise InputError(
            f"question {question!r} is text, and a tally keeps no joint counts of its bits by"
            " cohort; ask for it as a choice among the candidates to associate it."
        )
    if option is None and isinstance(whole, YesNo) and not whole.takes_one:
        (option,) = whole.labels
    if option is not None:
        position = survey.bit(question, option)
        return TableSide(question, option, (option, f"not {option}"), (position,))
    if not whole.takes_one:
        raise InputError(
            f"question {question!r} takes several answers; name one of its options, such as"
            f" {question}={whole.labels[0]}."
        )
    start = survey.slice_of(question).start
    return TableSide(question, None, whole.labels, tuple(range(start, start + whole.bits)))


def _split_name(survey: Survey, name: SideName) -> tuple[str, str | None]:
    if not isinstance(name, str):
        question, option = name
        return question, option
    if name in {question.name for question in survey}:
        return name, None
    question, equals, option = name.partition("=")
    return question.strip(), option.strip() if equals else None


def check_sides(survey: Survey, first: TableSide, second: TableSide) -> None:
    if set(first.positions) & set(second.positions):
        raise InputError(f"{first.name} and {second.name} share options; name two other answers.")
    if first.question == second.question and survey[first.question].takes_one:
        raise InputError(
            f"{first.name} and {second.name} exclude each other: {first.question!r} has one answer."
        )


def joint_groups(
    survey: Survey, first: SideName, second: SideName
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the groups of bits that a plan must declare as `joint` to associate two answers.

    One group of all bits where they are few enough; else every pair.
    """
    sides = side_of(survey, first), side_of(survey, second)
    check_sides(survey, *sides)
    labels = survey.labels
    bits = [[labels[position] for position in side.positions] for side in sides]
    if len(bits[0]) + len(bits[1]) <= MAX_JOINT_BITS:
        return (tuple(bits[0] + bits[1]),)
    return tuple((a, b) for a in bits[0] for b in bits[1])


def _not_counted(survey: Survey, first: TableSide, second: TableSide) -> str:
    names = [s.question if s.option is None else (s.question, s.option) for s in (first, second)]
    groups = joint_groups(survey, *names)
    group = ";".join(f"{question}={label}" for question, label in groups[0])
    more = f" and {len(groups) - 1} more groups" if len(groups) > 1 else ""
    return (
        f"the tally does not count {first.name} and {second.name} together; count the reports"
        f" with --joint {group!r}{more}, or declare"
        " shoal.analysis.association.joint_groups in the plan."
    )


@dataclass(frozen=True, eq=False)
class JointTable:
    """Two sides of which a tally has joint counts."""

    plan: Plan
    tally: Tally
    first: TableSide
    second: TableSide

    @cached_property
    def counts(self) -> Counts | None:
        """How many reports show each pair of values, if all bits were counted together."""
        bits = (*self.first.positions, *self.second.positions)
        if len(bits) > MAX_JOINT_BITS:
            return None
        try:
            counts = self.tally.joint_counts(bits)
        except TallyError:
            return None
        return np.asarray(counts.reshape(1 << len(self.second.positions), -1).T)

    @cached_property
    def _both(self) -> Counts:
        """How many reports show both bits, for each bit of each side."""
        if self.counts is not None:
            return np.asarray(self.first.values.T @ self.counts @ self.second.values)
        pairs = product(self.first.positions, self.second.positions)
        try:
            both = [self.tally.joint_counts(pair)[3] for pair in pairs]
        except TallyError as error:
            wrong = _not_counted(self.plan.survey, self.first, self.second)
            raise TallyError(wrong) from error
        return np.array(both).reshape(len(self.first.positions), -1)

    @cached_property
    def _moments(self) -> Matrix:
        """The sums over reports of 1, u_i, w_j and u_i w_j; the 1 stands first."""
        q, n = float(self.plan.q), self.tally.reports
        first, second = (
            self.tally.by_bit[list(side.positions)].astype(float)
            for side in (self.first, self.second)
        )
        moments = np.empty((len(first) + 1, len(second) + 1))
        moments[0, 0] = n
        moments[1:, 0], moments[0, 1:] = ((ones - q * n) / (1 - 2 * q) for ones in (first, second))
        flips = q * (first[:, None] + second[None, :]) - q * q * n
        moments[1:, 1:] = (self._both - flips) / (1 - 2 * q) ** 2
        return moments

    @cached_property
    def table(self) -> Matrix:
        return np.asarray(self.first.affine @ self._moments @ self.second.affine.T)

    @cached_property
    def _margins(self) -> tuple[Matrix, Matrix]:
        """The counts of each side's categories, made to fit: not negative, adding up."""
        n = self.tally.reports
        rows = self.first.affine @ self._moments[:, 0]
        columns = self.second.affine @ self._moments[0]
        return nearest_feasible(rows, n, n, n), nearest_feasible(columns, n, n, n)

    @cached_property
    def noise(self) -> Matrix:
        margins, q = self._margins, float(self.plan.q)
        return noise_covariance(self.first, self.second, *margins, self.tally.reports, q)

    @property
    def constrained_by(self) -> str:
        return "nearest table" if self.counts is None else "maximum likelihood"

    @cached_property
    def constrained(self) -> Matrix:
        if self.counts is None:
            return _nearest_table(self.table, self.tally.reports)
        q = float(self.plan.q)
        return likeliest_table(self.first, self.second, self.counts.astype(float), q)

    @cached_property
    def independence(self) -> Independence:
        """The test of independence.

        Under independence the sums D of (u - mean u)(w - mean w) have covariance N C1 x C2, with
        C = v I + diag(pi) - pi pi' for a question with one answer. True dependence has no row or
        column sums, so D is projected there by generalized least squares; the squared length is
        chi-square with (K1 - 1)(K2 - 1) degrees in the limit of many reports.

        For two options, independent answers with independent flips are independent reports, so the
        p-value is that of Fisher's exact test of the reported table (theorem).
        """
        from scipy.stats import chi2, fisher_exact

        n, q, moments = self.tally.reports, float(self.plan.q), self._moments
        lifted = moments[1:, 1:] - np.outer(moments[1:, 0], moments[0, 1:]) / n
        (first, freedom_1), (second, freedom_2) = (
            _contrasts(side, margin / margin.sum(), q * (1 - q) / (1 - 2 * q) ** 2)
            for side, margin in zip((self.first, self.second), self._margins, strict=True)
        )
        statistic = float(((first @ lifted @ second.T) ** 2).sum() / n)
        degrees = freedom_1 * freedom_2
        if self.first.option is not None and self.second.option is not None:
            assert self.counts is not None  # two bits
            return Independence(statistic, degrees, float(fisher_exact(self.counts)[1]), "exact")
        return Independence(statistic, degrees, float(chi2.sf(statistic, degrees)), "approximate")


def _contrasts(side: TableSide, shares: Matrix, v: float) -> tuple[Matrix, int]:
    """Return the map that makes a side's part of D white, and how many dimensions it keeps."""
    if side.option is not None:
        return np.array([[1 / math.sqrt(v + shares[0] * shares[1])]]), 1
    size = len(shares)
    covariance = v * np.eye(size) + np.diag(shares) - np.outer(shares, shares)
    basis = np.eye(size)[:, :-1] - np.eye(size)[:, -1:]
    weighed = np.linalg.solve(covariance, basis)
    root = np.linalg.cholesky(basis.T @ weighed)
    return np.linalg.solve(root, weighed.T), size - 1


def _nearest_table(table: Matrix, reports: int) -> Matrix:
    return nearest_feasible(table.reshape(-1), reports, reports, reports).reshape(table.shape)


def noise_covariance(
    first: TableSide, second: TableSide, rows: Matrix, columns: Matrix, reports: int, q: float
) -> Matrix:
    """Return the covariance of the unbiased table, row by row, given the people (theorem).

    `rows` and `columns` are how many people each category has. One person in row a and column b
    adds Cov(g_c h_d, g_e h_f) = v^2 S_ce T_df + v S_ce y_d y_f + v T_df x_c x_e, where v is
    pq/(p-q)^2, S and T the spreads of the two sides and x, y the person's indicators.
    """
    v = q * (1 - q) / (1 - 2 * q) ** 2
    S, T = first.spread, second.spread  # noqa: N806
    return np.asarray(
        reports * v * v * np.kron(S, T)
        + v * (np.kron(S, np.diag(columns)) + np.kron(np.diag(rows), T))
    )


def likeliest_table(first: TableSide, second: TableSide, counts: Matrix, q: float) -> Matrix:
    """Return the table without negative counts that makes the reports likeliest.

    Expectation maximization, extrapolated (SQUAREM); the likelihood is concave.
    """
    left, right = first.likelihood(q), second.likelihood(q)
    reports = counts.sum()

    def step(shares: Matrix) -> Matrix:
        fit = left @ shares @ right.T
        return np.asarray(shares * (left.T @ (counts / fit) @ right) / reports)

    def value(shares: Matrix) -> float:
        return float((counts * np.log(left @ shares @ right.T)).sum())

    shares = np.full((left.shape[1], right.shape[1]), 1 / (left.shape[1] * right.shape[1]))
    for _ in range(_MAX_STEPS):
        once = step(shares)
        twice = step(once)
        change, bend = once - shares, twice - 2 * once + shares
        if float(np.abs(twice - shares).max()) < 1e-12:
            break
        length = max(math.sqrt(float((change**2).sum() / max((bend**2).sum(), 1e-300))), 1.0)
        far = np.maximum(shares + 2 * length * change + length**2 * bend, twice * 1e-3)
        far = step(far / far.sum())
        shares = far if value(far) >= value(twice) else twice
    return np.asarray(shares * reports)


def cross_of(survey: Survey, first: TableSide, second: TableSide) -> Cross | None:
    """Return the smallest cross that has both sides, if there is one."""
    both = first, second
    fitting = [
        cross for cross in survey.crosses if all(_axis(cross, side) is not None for side in both)
    ]
    return min(fitting, key=lambda cross: cross.bits, default=None)


@dataclass(frozen=True, eq=False)
class TableDesign:
    """The least-squares table from counts of its cells and of some of its row and column sums.

    `added` is how many bits each cell is the sum of; `counted`, how many of the first rows and
    columns have a bit of their own. The table adds up to the reports exactly.
    """

    added: Matrix
    counted: tuple[int, int]

    @cached_property
    def sums(self) -> Matrix:
        """Which cells each counted row and column adds up."""
        rows, columns = self.added.shape
        across = np.kron(np.eye(rows), np.ones(columns))[: self.counted[0]]
        down = np.kron(np.ones(rows), np.eye(columns))[: self.counted[1]]
        return np.concatenate((across, down))

    @cached_property
    def _spread(self) -> Matrix:
        precision = np.diag(1 / self.added.reshape(-1)) + self.sums.T @ self.sums
        return np.asarray(np.linalg.inv(precision))

    @cached_property
    def covariance(self) -> Matrix:
        """The covariance of the table, row by row, in units of the variance of one bit's count."""
        whole = self._spread.sum(axis=1)
        return np.asarray(self._spread - np.outer(whole, whole) / whole.sum())

    def combine(self, cells: Matrix, sums: Matrix, reports: int) -> Matrix:
        """Return the table, row by row, from unbiased counts; leading axes are repetitions."""
        whole = self._spread.sum(axis=1)
        weighed = cells / self.added.reshape(-1) + sums @ self.sums
        return np.asarray(weighed @ self.covariance + whole * (reports / whole.sum()))


@dataclass(frozen=True, eq=False)
class CrossedTable:
    """Two sides of a cross: the least-squares table of its cells and of the questions' own bits.

    Cells are added where a category has several values of the cross, or the cross has more sides.
    The covariance is known exactly (theorem).
    """

    plan: Plan
    tally: Tally
    first: TableSide
    second: TableSide
    cross: Cross

    constrained_by = "nearest table"

    def _counts(self, places: slice | list[int]) -> Matrix:
        q = float(self.plan.q)
        return np.asarray((self.tally.by_bit[places] - q * self.tally.reports) / (1 - 2 * q))

    @cached_property
    def _cells(self) -> tuple[Matrix, Matrix]:
        """The count of each pair of categories, and how many cells it is the sum of."""
        sides = self.first, self.second
        axes = [axis for side in sides if (axis := _axis(self.cross, side)) is not None]
        members = [
            _members(side, self.cross.sides[axis]) for side, axis in zip(sides, axes, strict=True)
        ]
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
        if cells.size > MAX_CELLS:
            raise InputError(
                f"the table has {cells.size:,} cells, and a test of independence takes up to"
                f" {MAX_CELLS:,}; name one option of a question instead of all."
            )
        sides = self.first, self.second
        design = TableDesign(added, (len(self.first.positions), len(self.second.positions)))
        sums = np.concatenate([self._counts(list(side.positions)) for side in sides])
        table = design.combine(cells.reshape(-1), sums, self.tally.reports)
        variance = sigma_in(self.plan, self.tally.reports) ** 2  # of one bit's count
        return table.reshape(cells.shape), variance * design.covariance

    @property
    def table(self) -> Matrix:
        return self._best[0]

    @property
    def noise(self) -> Matrix:
        return self._best[1]

    @cached_property
    def constrained(self) -> Matrix:
        return _nearest_table(self.table, self.tally.reports)

    @cached_property
    def test(self) -> InteractionTest:
        return InteractionTest(self.table, self.noise)

    @property
    def independence(self) -> Independence:
        return self.test.result


def _axis(cross: Cross, side: TableSide) -> int | None:
    """Return which side of the cross tells the categories apart."""
    for axis, crossed in enumerate(cross.sides):
        same = crossed.question.name == side.question
        if same and crossed.flag in (None, side.option):
            return axis
    return None


def _members(side: TableSide, crossed: CrossSide) -> Matrix:
    """Return which values of the cross each category has: one row per category."""
    size = len(crossed.values)
    if side.option is None:
        return np.eye(size)
    chosen = np.zeros(size)
    chosen[crossed.question.labels.index(side.option) if crossed.bit is None else 0] = 1
    return np.stack((chosen, 1 - chosen))
