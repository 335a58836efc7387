"""Noisy counts of a survey and what follows from them: intervals, numbers and cross tables.

All of this is computed from the released counts alone, so that it costs no more privacy.

* *Counts.* Under replace the number of rows is public, and an interval is that of the noise. Under
  add-remove it is a noisy count as well, so that a share is a ratio: s is in its interval if
  |c - s n| is at most the radius of Z_c - s Z_n (Fieller 1954). That radius rises with s, so that
  at the largest s in question it serves the count and the share (theorem).
* *Blank cells* set no bit of a question without `missing = "option"`. If it has one answer, the
  option `(missing)` is the number of rows less its counts.
* *Mean.* m is in its interval if the sum of (g_i - m) c_i over the points is within the radius of
  the same sum of noise (theorem: the sum of true counts is 0 at the true mean).
* *Quantiles* and *shares of a row* follow from two independent totals.
* *Independence.* The statistic is that of a crowd's table. Laplace noise has heavier tails than the
  normal distribution, so its p-value comes from simulated tables of independent answers with the
  same totals and the same noise (approximate, for the population).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from shoal.analysis.contrasts import Combination
from shoal.analysis.cross_tables import CellTable
from shoal.analysis.estimates import count_json
from shoal.analysis.independence import Independence, InteractionTest
from shoal.analysis.intervals import FEW_STEPS, Interval, staircase
from shoal.analysis.number_summary import (
    NumberEstimate,
    NumberStatements,
    PartLimits,
    limits_at_edges,
    part_limits,
)
from shoal.curator.counts import CountNoise
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.protocol.questions import Number
from shoal.protocol.survey import Cross
from shoal.support.checks import check_level

_SIMULATIONS = 9_999
_SHARES = 32
"""A share is rounded up to a multiple of one in so many, so that few radii are computed."""


@dataclass(frozen=True)
class NoisyCount:
    """How many rows have an option: `count` is unbiased, `constrained` fits the question.

    `rows` is public, or a noisy count itself. With `rest` the count is that of all `rows` less the
    counts of `parts` options, and has the noise of all of them.
    """

    label: str
    count: float
    constrained: float
    rows: int
    rows_are_public: bool
    noise: CountNoise
    parts: int = 1
    rest: bool = False

    @property
    def share(self) -> float:
        """The count as a share of the rows."""
        return self.count / self.rows

    @property
    def sigma(self) -> float:
        """The standard deviation of the count."""
        private = self.rest and not self.rows_are_public
        return self.noise.sigma * math.sqrt(self.parts + private)

    def half_width(self, level: float = 0.95) -> float:
        """Return half the width of the interval, before it is cut to what is possible."""
        miss, ones = 1 - check_level(level), [1.0] * self.parts
        if self.rows_are_public:
            return self.noise.reach(miss / 2, ones)
        rounding = 0.0 if self.noise.unit == 1 else 0.5  # of the number of rows
        widest = self.noise.reach(miss / 2, [*ones, 1.0]) + rounding
        if self.rest or self.count + widest >= self.rows:
            return widest
        share = math.ceil(max((self.count + widest) / self.rows, 0.0) * _SHARES) / _SHARES
        return self.noise.reach(miss / 2, [*ones, share]) + share * rounding

    def interval(self, level: float = 0.95) -> Interval:
        """Return an interval of the true count; over `rows`, it is one of the true share."""
        reach = self.half_width(level)
        low, high = self.count - reach, self.count + reach
        top = self.rows if self.rows_are_public else math.inf
        if high < 0 or low > top:
            return Interval(low, high, level, "exact", False)
        return Interval(max(low, 0.0), min(high, top), level, "exact", True)

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return the numbers as plain JSON values, low and high in counts."""
        return count_json(self, self.interval(level))


def _total_limits(counts: Sequence[NoisyCount], miss: float) -> PartLimits:
    """Return limits of a total, each wrong with a chance of at most `miss`."""
    total = math.fsum(one.count for one in counts)
    reach = counts[0].noise.reach(miss, [1.0] * len(counts)) if counts else 0.0
    return max(total - reach, 0.0), max(total + reach, 0.0)


def total(counts: Sequence[NoisyCount], level: float) -> Combination:
    """Return how many rows several options have together."""
    value = math.fsum(one.count for one in counts)
    sigma = counts[0].noise.sigma * math.sqrt(len(counts))
    low, high = _total_limits(counts, (1 - level) / 2)
    return Combination(value, sigma, low, high, level, "exact")


def part_of(first: NoisyCount, others: Sequence[NoisyCount], level: float) -> Combination:
    """Return the first option's part of the total with others."""
    whole = first.count + math.fsum(one.count for one in others)
    ends = [
        (_total_limits([first], x), _total_limits(others, y))
        for x, y in staircase((1 - level) / 2, FEW_STEPS)
    ]
    low = min(part_limits(a, b)[0] for a, b in ends)
    high = max(part_limits(a, b)[1] for a, b in ends)
    if whole <= 0:
        return Combination(math.nan, math.inf, low, high, level, "exact")
    value = min(max(first.count / whole, 0.0), 1.0)
    slopes = math.hypot(1 - value, value * math.sqrt(len(others))) / whole
    return Combination(value, first.noise.sigma * slopes, low, high, level, "exact")


@dataclass(frozen=True, repr=False)
class NoisyNumbers(NumberStatements):
    """Statements about the numbers of a table."""

    question: Number
    ranges: tuple[NoisyCount, ...]
    level: float

    def _headline(self) -> str:
        return f"{self.question.name}: {self.ranges[0].rows:,} rows, at {self.level:.6g}"

    @cached_property
    def _counts(self) -> NDArray[np.float64]:
        return np.array([one.count for one in self.ranges])

    def _ratio(self, weights: NDArray[np.float64]) -> NumberEstimate | None:
        """Return the average of weights over the people, with Fieller's interval."""
        people = float(self._counts.sum())
        low, high = float(weights.min()), float(weights.max())
        if people <= 0:
            return None
        value = float(weights @ self._counts) / people
        inside = min(max(value, low), high)
        noise, miss = self.ranges[0].noise, (1 - self.level) / 2

        def end(side: int, outer: float) -> float:
            def beyond(average: float) -> float:
                apart = weights - average
                return side * float(apart @ self._counts) - noise.reach(miss, apart.tolist())

            if beyond(outer) <= 0 or beyond(inside) > 0:
                return outer if beyond(outer) <= 0 else inside
            found = float(brentq(beyond, inside, outer, xtol=1e-9 * (high - low), rtol=1e-12))
            return found - side * 2e-9 * (high - low)  # the safe side of where it ended

        return NumberEstimate(value, max(end(1, low), low), min(end(-1, high), high), self.level)

    @cached_property
    def mean(self) -> NumberEstimate | None:
        """The mean of the numbers, clamped to the grid; None for bins, which have none."""
        if not self.question.grid:
            return None
        grid = self._grid
        low, high = float(grid[0]), float(grid[-1])
        found = self._ratio(grid) or NumberEstimate((low + high) / 2, low, high, self.level)
        unit = float(self.ranges[0].noise.unit) * float(grid[1] - grid[0])  # weights are rounded
        return replace(found, low=max(found.low - unit, low), high=min(found.high + unit, high))

    @cached_property
    def variance(self) -> NumberEstimate | None:
        """The variance of the numbers (approximate): that of the points is 0 to h^2/4 larger.

        The squares are around the estimated mean, from which the true one may differ.
        """
        if self.mean is None:
            return None
        squares = self._ratio((self._grid - self.mean.value) ** 2)
        if squares is None:
            return None
        off = max(self.mean.high - self.mean.value, self.mean.value - self.mean.low) ** 2
        step = float(self._grid[1] - self._grid[0])
        return replace(squares, low=max(squares.low - off - step**2 / 4, 0.0))

    @cached_property
    def _parts_below(self) -> list[PartLimits]:
        """Limits of the part below each edge, each wrong with at most half a miss."""
        miss = (1 - self.level) / 4

        def limits(n: int) -> PartLimits:
            below, above = self.ranges[:n], self.ranges[n:]
            return part_limits(_total_limits(below, miss), _total_limits(above, miss))

        return limits_at_edges(len(self.ranges), limits)


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCross(CellTable[NoisyCount]):
    """The table of crossed questions in a curator's release; a cell is a noisy count."""

    @classmethod
    def of(cls, cross: Cross, counts: Sequence[NoisyCount]) -> NoisyCross:
        names = tuple(side.name for side in cross.sides)
        cells = np.array([*counts], object).reshape(cross.sizes)
        return cls(names, tuple(side.values for side in cross.sides), {}, cells)

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return counts, shares, totals and the test as plain JSON values."""
        return {"level": level} | self._table_json(level)

    def _total(self, cells: Sequence[NoisyCount], level: float) -> Combination:
        return total(cells, level)

    def _part(self, cell: NoisyCount, others: Sequence[NoisyCount], level: float) -> Combination:
        return part_of(cell, others, level)

    def _test_json(self, level: float) -> dict[str, Any]:
        table = np.array([[cell.count for cell in row] for row in self.cells])
        noise: CountNoise = self.cells.item(0).noise
        test = InteractionTest(table, np.eye(table.size) * noise.sigma**2)
        result, limit = test.result, None
        if noise.distribution == "Laplace":
            drawn = np.sort(test.statistics(_simulated(test, noise)))
            above = len(drawn) - int(np.searchsorted(drawn, result.statistic))
            p_value = (1 + above) / (1 + len(drawn))
            result = Independence(result.statistic, result.degrees, p_value, result.kind)
            limit = float(drawn[math.ceil(level * len(drawn)) - 1])
        sensitivity = test.sensitivity(1 - level, limit=limit).to_json()
        return {"independence": asdict(result), "sensitivity": sensitivity}


def _simulated(test: InteractionTest, noise: CountNoise) -> NDArray[np.float64]:
    """Return tables of people whose answers are independent, with Laplace noise, in rows."""
    draws = simulation_generator(1)
    expected = test.expected.reshape(-1)
    people = round(float(expected.sum()))
    shares = expected / expected.sum() if people else np.full(len(expected), 1 / len(expected))
    drawn = draws.multinomial(people, shares, _SIMULATIONS)
    return np.asarray(drawn + draws.laplace(scale=noise.scale, size=drawn.shape))
