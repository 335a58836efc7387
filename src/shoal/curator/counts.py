"""Counts of a table: how many rows set each bit of a survey, how far one row moves them, and noise.

Every row adds a vector w to the counts: the bits of its answers, as a device encodes them, and

* a blank cell of a question without `missing = "option"` sets no bit, nor a cell of its crosses;
* a number x of a grid between the points g_i and g_(i+1) sets no bit but has the weights 1 - t and
  t there, with t = (x - g_i) / (g_(i+1) - g_i) in whole units of 2^-20. So the mean of the points
  is that of the numbers to half a unit, without the noise of rounding at random;
* in a cross a number is at the nearest point of its grid.

Sensitivity (theorem). Take the part of w that belongs to a question of d differing bits and at most
m set bits. Its entries are in [0, 1] and add up to at most m.

* Bits: two rows differ in at most d of them, each by 1, so that their distance is at most d in L1
  and at most the root of d in L2. The row by itself has the norms m and the root of m.
* Weights v, w of a grid: each adds up to at most 1. So the L1 distance is at most 2 = d, and
  ``|v - w|^2 = |v|^2 + |w|^2 - 2 v.w <= |v|_1^2 + |w|_1^2 <= 2``, as no entry is negative. The row
  by itself has norms of at most 1 = m.

Questions stand side by side, so that distances in L1 and squared distances in L2 add. That gives,
with the number of rows as one more count where it is private,

===========  ==========================  =========================
neighbours   L1                          L2 squared
===========  ==========================  =========================
replace      sum of d                    sum of d
add-remove   1 + sum of m                1 + sum of m
===========  ==========================  =========================

Some pair of rows reaches these bounds.

Noise is chosen before any data are read. Every count gets independent noise of one distribution on
the multiples of a unit. Laplace noise keeps epsilon for the L1 sensitivity of the counts, Gaussian
noise epsilon and delta for their L2 sensitivity; where a delta is allowed, the one with the smaller
standard deviation is taken.

*One count.* The radius is that of the distribution itself: exact.

*Several counts.* A sum with weights is within `unit` times their absolute sum of the same sum of
continuous variables, so that its radius is theirs plus that much (theorem). For Gaussian noise
`shoal.theory.discrete_gaussian` shows it. For Laplace noise of scale b on the multiples of u:
``P[|Z| >= k u] = exp(-(k - 1/2) u/b) / cosh(u/(2b))``. If Z and a continuous L have equal ranks,
|Z| = k u while |L| is within (k - 1/2) u + c and (k + 1/2) u + c, with c = b ln cosh(u/(2b)), which
is at most u/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shoal.curator.noise import (
    Mechanism,
    Neighbours,
    float_at_least,
    gaussian_mechanism,
    gaussian_scale,
    mechanism,
)
from shoal.device.arrays.encode import TableEncoder
from shoal.device.arrays.files import read_answers
from shoal.device.arrays.randomize import Original
from shoal.errors import InputError
from shoal.protocol.questions import AskedQuestion, CrossSide, Flags, Number, Text
from shoal.protocol.survey import Cross, Survey
from shoal.support.table_format import TableFormat
from shoal.theory import discrete_gaussian, laplace

_GRID_UNITS = 1 << 20

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class TableCounts:
    """How many rows a table has, and the counts of a survey's bits in whole units."""

    rows: int
    counts: tuple[int, ...]
    unit: Fraction


def released_survey(survey: Survey) -> Survey:
    """Return the survey without its text questions, whose bits only mean something in reports."""
    kept = tuple(one for one in survey if not isinstance(one, Text))
    if not kept:
        raise InputError(
            f"survey {survey.name!r} asks for text only, which a curator does not release; ask for"
            " the frequent answers as a choice, with other = true."
        )
    return replace(survey, questions=kept)


def sensitivity(survey: Survey, neighbours: Neighbours) -> int:
    """Return by how much one row moves the counts: in L1, and squared in L2."""
    if neighbours == "replace":
        return survey.differing_bits
    return 1 + sum(question.max_set_bits for question in survey)


def unit_of(survey: Survey) -> Fraction:
    """Return the unit of the counts: whole people, unless numbers are between points of a grid."""
    return Fraction(1, _GRID_UNITS if survey.has_grids else 1)


def count_table(survey: Survey, table: Path | str | Any, table_format: TableFormat) -> TableCounts:
    """Count a file, a data frame, an Arrow table, lists by column, or a list of mappings."""
    asked = Survey(survey.name, tuple(map(_may_be_missing, survey.asked)))
    encoder = TableEncoder(asked, table_format, keep_positions=True)
    unit, rows = unit_of(survey), 0
    total = np.zeros(survey.bits, np.int64)
    for original in _originals(asked, table, table_format, encoder):
        rows += len(original)
        total += _Part(asked, original, encoder).counts(survey, int(1 / unit))
    encoder.errors.raise_all()
    return TableCounts(rows, tuple(total.tolist()), unit)


def _may_be_missing(question: AskedQuestion) -> AskedQuestion:
    """Return a question that has an option for blank cells, to tell them from other answers."""
    return question if isinstance(question, Flags) else question.replaced(missing="option")


def _originals(
    asked: Survey, table: Any, table_format: TableFormat, encoder: TableEncoder
) -> Iterator[Original]:
    if isinstance(table, (str, Path)):
        yield from read_answers(asked, Path(table), table_format, encoder)
    elif isinstance(table, Mapping):
        yield encoder.rows(_rows(asked, table))
    elif isinstance(table, Sequence):
        yield encoder.rows(table)
    elif hasattr(table, "__arrow_c_stream__"):
        yield encoder.table(table)
    else:
        raise InputError(
            "a table is a file, a data frame, an Arrow table, a list of answers, or lists by"
            f" column, got {type(table).__name__}."
        )


def _rows(asked: Survey, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return lists by column as rows, so that no cell decides how another one is read."""
    lists = {}
    for question in asked.asked:
        if question.table_column not in columns:
            raise InputError(f"the table has no column {question.table_column!r}.")
        lists[question.name] = list(columns[question.table_column])
    if len({len(cells) for cells in lists.values()}) > 1:
        raise InputError("the columns of the table must have the same length.")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


class _Part:
    """Some rows of a table: for each question its bits or, of a grid, where its numbers are."""

    def __init__(self, asked: Survey, original: Original, encoder: TableEncoder) -> None:
        bits = np.unpackbits(original.rows, axis=1, bitorder="little", count=asked.bits)
        self._bits = {one.name: bits[:, asked.slice_of(one.name)] for one in asked}
        self._positions = {
            name: np.concatenate([np.empty(0), *parts]) for name, parts in encoder.positions.items()
        }
        for parts in encoder.positions.values():
            parts.clear()

    def counts(self, survey: Survey, units: int) -> Whole:
        """Return the sum of the rows' vectors, in units."""
        found: list[Whole] = []
        for question in survey.asked:
            if question.name in self._positions:
                found.append(self._weights(question, units))
            else:
                added = self._bits[question.name].sum(axis=0, dtype=np.int64)
                found.append(added[: question.bits] * units)
        return np.concatenate([*found, *(self._cells(one) * units for one in survey.crosses)])

    def _weights(self, question: AskedQuestion, units: int) -> Whole:
        positions = self._positions[question.name]
        given = positions[~np.isnan(positions)]
        below = given.astype(np.int64)
        above = np.rint((given - below) * units).astype(np.int64)
        weights = np.zeros(question.bits + 1, np.int64)
        np.add.at(weights, below, units - above)
        np.add.at(weights, below + 1, above)  # nothing, where the last point is the number
        if getattr(question, "missing", None):
            weights[question.bits - 1] = units * (len(positions) - len(given))
        return weights[: question.bits]

    def _cells(self, cross: Cross) -> Whole:
        """Count the cells of a cross; a row with a blank side is in none."""
        sides = [self._values(side) for side in cross.sides]
        whole = np.logical_and.reduce([values >= 0 for values in sides])
        cells = np.zeros(int(whole.sum()), np.int64)
        for values, size in zip(sides, cross.sizes, strict=True):
            cells = cells * size + values[whole]
        return np.bincount(cells, minlength=cross.bits)

    def _values(self, side: CrossSide) -> Whole:
        """Return which value of a side each row has, -1 where its cell is blank."""
        question = side.question
        if isinstance(question, Flags):
            assert side.bit is not None
            return 1 - self._bits[question.name][:, side.bit].astype(np.int64)
        if isinstance(question, Number) and question.grid:
            positions = self._positions[question.name]
            values = np.floor(np.nan_to_num(positions, nan=-1.0) + 0.5).astype(np.int64)
            blank = np.isnan(positions)
        else:
            values = self._bits[question.name].argmax(axis=1).astype(np.int64)
            blank = values == self._bits[question.name].shape[1] - 1
        missing = getattr(question, "missing", None)
        return np.where(blank, len(side.values) - 1 if missing else -1, values)


Distribution = Literal["Laplace", "Gaussian"]


@dataclass(frozen=True)
class CountNoise:
    """Noise on the multiples of `unit`; `scale` is in people, as are all results.

    `sensitivity` is that of the counts in L1, and its square in L2. `delta` is what is spent of it:
    0 for Laplace noise.
    """

    distribution: Distribution
    scale: float
    unit: Fraction
    sensitivity: int
    epsilon: str
    delta: str

    @classmethod
    def choose(
        cls, survey: Survey, neighbours: Neighbours, epsilon: str, delta: str | None
    ) -> CountNoise:
        """Return the noise of a survey's counts; it depends on nothing else."""
        change, unit = sensitivity(survey, neighbours), unit_of(survey)
        scale = float_at_least(change / Fraction(Decimal(epsilon)))
        chosen = cls("Laplace", scale, unit, change, epsilon, "0")
        if delta is not None:
            steps = gaussian_scale(change / unit**2, epsilon, delta)
            other = cls("Gaussian", steps * float(unit), unit, change, epsilon, delta)
            chosen = min(chosen, other, key=lambda noise: noise.sigma)
        return chosen

    def mechanism(self, values: Sequence[int]) -> Mechanism:
        """Return the mechanism for counts in units; it checks the counts and OpenDP's promise."""
        if self.distribution == "Laplace":
            return mechanism(self.sensitivity / self.unit, self.epsilon, values, whole=True)
        squared = self.sensitivity / self.unit**2
        return gaussian_mechanism(self._steps, squared, self.epsilon, self.delta, values)

    @property
    def _steps(self) -> float:
        return self.scale / float(self.unit)

    @property
    def sigma(self) -> float:
        """The standard deviation; of Gaussian noise, hardly less."""
        if self.distribution == "Laplace":
            return laplace.discrete_sigma(self._steps) * float(self.unit)
        return self.scale

    def radius(self, miss: float) -> float:
        """Return the smallest distance that noise exceeds, up or down, with at most `miss`."""
        radius = _radius[self.distribution]
        return radius(miss, self._steps) * float(self.unit)

    def reach(self, miss: float, weights: Sequence[float]) -> float:
        """Return a bound that a weighted sum of noise exceeds with a chance of at most `miss`."""
        used = tuple(abs(weight) for weight in weights if weight)
        if not used or miss >= 0.5:
            return 0.0
        if len(used) == 1:
            return used[0] * self.radius(2 * miss)
        reach = _sum_radius[self.distribution](miss, tuple(w * self.scale for w in used))
        return reach + math.fsum(used) * float(self.unit)


_radius = {
    "Laplace": lru_cache(1024)(laplace.discrete_radius),
    "Gaussian": lru_cache(1024)(discrete_gaussian.radius),
}
_sum_radius = {
    "Laplace": lru_cache(4096)(laplace.sum_radius),
    "Gaussian": lru_cache(4096)(discrete_gaussian.sum_radius),
}
