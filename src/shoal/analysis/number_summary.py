"""The mean, variance and quantiles of a number question, from the counts of its points or bins.

*Grid.* A device clamps a number x to [low, high] and rounds it to one of the two neighbouring
points g < g + h, up with probability (x - g) / h. The rounded number X has the expectation x, so
the mean of the points is unbiased for the mean of the clamped numbers (theorem). Rounding costs no
privacy: a report is a mixture of reports of points, and the hockey-stick divergence is jointly
convex, so the pair of points that is worst bounds every pair of numbers (theorem).

* The *mean* m solves T(m) = 0 for T(m) = sum_i (g_i - m) d_i over the points' unbiased counts d_i.
  Everybody sets one bit, so the sum of all counts is known; subtracting its error times the average
  weight centres the weights and removes most of the noise. The interval holds every m with
  |T(m)| <= z sigma(m) (Fieller 1954: also right where people may leave the number out, and the mean
  is a ratio). sigma(m)^2 adds the flips, known exactly, and for a crowd the rounding, at most h^2/4
  each, or for a population the sampled and rounded numbers, as counted plus one standard deviation.
  Approximate: normal, for many reports.
* The *variance* of X exceeds that of the numbers by 0 to h^2/4. Approximate.
* A *quantile* of X is within h of that of the numbers, since rounding moves each by less than h.

*Bins.* The outer bins have no end, so no mean follows. A quantile has the bin it is in.

For both, the points or bins of a quantile are all that are compatible with the reports: they
contain the true one with at least the level, for every crowd (theorem: each is left out by one of
two one-sided exact tests).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from shoal.analysis.contrasts import total_limits
from shoal.analysis.estimates import Estimate, Estimates
from shoal.errors import InputError
from shoal.protocol.questions import Number
from shoal.support.checks import check_level, takes
from shoal.support.results import Displayed, Section
from shoal.support.rounding import text_near
from shoal.theory.randomized_response import normal_factor

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)

_MAX_TESTS = 128
"""Edges that are tested; a fine grid has more."""


@dataclass(frozen=True)
class NumberEstimate:
    """An estimate of a mean or a variance, with its interval at `level`."""

    value: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Quantile:
    """In which range a part of the crowd ends: `label` is the estimate; None stands for no end."""

    part: float
    label: str
    low: float | None
    high: float | None
    level: float

    @property
    def range_in_words(self) -> str:
        """The interval, in words where it has no end."""
        if self.low is None:
            return "anywhere" if self.high is None else f"below {self.high:g}"
        return f"{self.low:g} or above" if self.high is None else f"{self.low:g} to {self.high:g}"


class _WeightedSum(NamedTuple):
    """A sum of weights over people, one for each point, and the sigma that the flips give it."""

    value: float
    sigma: float


class NumberStatements(Displayed):
    """Statements about numbers, from estimates of their points or bins, of a crowd or a curator."""

    question: Number
    ranges: tuple[Any, ...]
    level: float

    @property
    def mean(self) -> NumberEstimate | None:
        """The mean of the numbers, clamped to the grid; None for bins, which have none."""
        raise NotImplementedError

    @property
    def variance(self) -> NumberEstimate | None:
        """The variance of the numbers; that of the points is 0 to h^2/4 larger, for a step h."""
        raise NotImplementedError

    @property
    def _parts_below(self) -> list[PartLimits]:
        raise NotImplementedError

    def _sections(self) -> list[Section]:
        rows = []
        if self.mean is not None:
            low, high = text_near(self.mean.low), text_near(self.mean.high)
            rows.append(("mean", text_near(self.mean.value), f"{low} to {high} (approximate)"))
        for part in QUANTILES:
            one = self.quantile(part)
            name = "median" if part == 0.5 else f"{part:.0%} are below"
            rows.append((name, one.label, f"{one.range_in_words} (theorem)"))
        return [Section(("", "estimate", f"interval at {self.level:.6g}"), rows)]

    @cached_property
    def _grid(self) -> NDArray[np.float64]:
        return np.array([float(point) for point in self.question.grid])

    def quantile(self, part: float) -> Quantile:
        """Return the range in which a part of the numbers ends; 0 < part < 1."""
        return find_quantile(self.question, self.ranges, self._parts_below, part, self.level)

    def to_json(self) -> dict[str, Any]:
        """Return the statements as plain JSON values."""
        return {
            "level": self.level,
            "limits": [float(self._grid[0]), float(self._grid[-1])] if self.question.grid else None,
            "mean": self.mean and asdict(self.mean),
            "variance": self.variance and asdict(self.variance),
            "quantiles": [asdict(self.quantile(part)) for part in QUANTILES],
        }


@dataclass(frozen=True, repr=False)
class NumberSummary(NumberStatements):
    """Statements about the numbers of a crowd."""

    question: Number
    ranges: tuple[Estimate, ...]
    level: float
    missing: Estimate | None = None

    def _headline(self) -> str:
        return f"{self.question.name}: {self.ranges[0].reports:,} reports, at {self.level:.6g}"

    def _sum(self, weights: NDArray[np.float64]) -> _WeightedSum:
        """Sum weights over the people at each point; people without a number weigh 0."""
        counts = np.array([one.count for one in self.ranges])
        others = [] if self.missing is None else [self.missing.count]
        first = self.ranges[0]
        excess = first.reports - counts.sum() - sum(others)
        average = weights.sum() / (len(weights) + len(others))
        squares = ((weights - average) ** 2).sum() + len(others) * average**2
        noise = first.noise_sigma * squares**0.5
        return _WeightedSum(float(weights @ counts + average * excess), float(noise))

    @cached_property
    def people(self) -> float:
        """How many gave a number: an estimate, if it may be missing."""
        return self._sum(np.ones(len(self.ranges))).value

    def _spread(self, of_crowd: NDArray[np.float64], of_population: NDArray[np.float64]) -> float:
        """Return the variance of a sum beyond that of flips: by rounding, or who was drawn."""
        if self.ranges[0].target == "crowd":
            return max(sum(self._sum(of_crowd)), 0.0)
        # As in Wilson's interval: a sample may show none of a rare group that is there.
        floor = normal_factor(self.level) ** 2 * float(of_population.max()) / 4
        return max(sum(self._sum(of_population)), floor)

    @cached_property
    def mean(self) -> NumberEstimate | None:
        """The mean of the numbers, clamped to the grid; None for bins, which have none."""
        if not self.question.grid:
            return None
        grid, z = self._grid, normal_factor(self.level)
        rounding = np.full(len(grid), (grid[1] - grid[0]) ** 2 / 4)
        low, high = float(grid[0]), float(grid[-1])
        middle = (low + high) / 2
        if self.people <= 0:
            return NumberEstimate(middle, low, high, self.level)
        value = middle + self._sum(grid - middle).value / self.people
        inside = min(max(value, low), high)

        def end(side: int, outer: float) -> float:
            def beyond(mean: float) -> float:
                tested = self._sum(grid - mean)
                spread = self._spread(rounding, (grid - mean) ** 2)
                return float(side * tested.value - z * (tested.sigma**2 + spread) ** 0.5)

            if beyond(outer) <= 0 or beyond(inside) > 0:
                return outer if beyond(outer) <= 0 else inside
            # In the unit of the grid, which may be tiny.
            return float(brentq(beyond, inside, outer, xtol=1e-12 * (high - low), rtol=1e-15))

        return NumberEstimate(value, end(1, low), end(-1, high), self.level)

    @cached_property
    def variance(self) -> NumberEstimate | None:
        """The variance of the numbers: rounding can have added 0 to h^2/4 to that of the points."""
        mean = self.mean
        if mean is None or self.people <= 0:
            return None
        away, step = self._grid - mean.value, float(self._grid[1] - self._grid[0])
        squares = self._sum(away**2)
        value = squares.value / self.people
        # Rounding moves a square by half of h |away| on either side of its centre, plus h^2/2.
        spread = self._spread((step * (np.abs(away) + step / 2)) ** 2, (away**2 - value) ** 2)
        reach = normal_factor(self.level) * (squares.sigma**2 + spread) ** 0.5 / self.people
        low, high = value - reach - step**2 / 4, value + reach
        return NumberEstimate(value, max(low, 0.0), max(high, 0.0), self.level)

    @cached_property
    def _parts_below(self) -> list[PartLimits]:
        """Limits of the part of the numbers below each edge, each wrong with at most half a miss.

        Where numbers may be missing, those below and those above are both uncertain: misses add.
        """

        def limits(n: int) -> PartLimits:
            if self.question.missing is None:
                low, high = total_limits(self.ranges[:n], self.level)
                return low / self.ranges[0].reports, high / self.ranges[0].reports
            level = (1 + self.level) / 2
            return part_limits(
                total_limits(self.ranges[:n], level), total_limits(self.ranges[n:], level)
            )

        return limits_at_edges(len(self.ranges), limits)


PartLimits = tuple[float, float]
"""Limits of the part of the numbers that is below an edge."""


class RangeCount(Protocol):
    """The count of a range, of whatever noise."""

    @property
    def label(self) -> str: ...
    @property
    def constrained(self) -> float: ...


def find_quantile(
    question: Number,
    ranges: Sequence[RangeCount],
    bounds: Sequence[PartLimits],
    part: float,
    level: float,
) -> Quantile:
    """Return the range in which a part of the numbers ends, given limits at the ranges' edges."""
    if not 0 < part < 1:
        raise InputError(f"a quantile is strictly between 0 and 1, got {part}.")
    edges: list[float | None] = [None, *(float(edge) for edge in question.edges), None]
    if question.grid:  # from the point before the first to the one behind the last
        grid = [float(point) for point in question.grid]
        edges = [grid[0], *grid, grid[-1]]
    below = list(accumulate(one.constrained for one in ranges))
    place = next((n for n, count in enumerate(below) if count >= part * below[-1]), len(below) - 1)
    # The part ends in range n: it is reached at its upper edge, and not at its lower one.
    possible = [
        n
        for n in range(len(ranges))
        if bounds[n + 1][1] >= part and (n == 0 or bounds[n][0] < part)
    ] or [place]
    first, last = min(possible[0], place), max(possible[-1], place)
    above = last + 2 if question.grid else last + 1
    return Quantile(part, ranges[place].label, edges[first], edges[above], level)


def limits_at_edges(number: int, limits: Callable[[int], PartLimits]) -> list[PartLimits]:
    """Return limits of the part below each edge of ranges; of many edges some are tested."""
    tested = sorted({round(n) for n in np.linspace(1, number - 1, min(number - 1, _MAX_TESTS))})
    found = {0: (0.0, 0.0), number: (1.0, 1.0)} | {n: limits(n) for n in tested}
    # The part below an edge rises with the edge: edges in between have limits of tested ones.
    places = np.array([0, *tested, number])
    before = places[np.searchsorted(places, range(number + 1), side="right") - 1]
    after = places[np.searchsorted(places, range(number + 1))]
    return [(found[a][0], found[b][1]) for a, b in zip(before, after, strict=True)]


def part_limits(below: PartLimits, above: PartLimits) -> PartLimits:
    """Return limits of a part from those of the people in it and of the others."""
    return _part(below[0], above[1], 0.0), _part(below[1], above[0], 1.0)


def _part(first: float, second: float, otherwise: float) -> float:
    both = max(first, 0.0) + max(second, 0.0)
    return max(first, 0.0) / both if both else otherwise


@takes(estimates=Estimates)
def number_summary(estimates: Estimates, name: str, level: float = 0.95) -> NumberSummary:
    """Return the mean and the quantiles of a number question, with intervals.

    >>> import shoal
    >>> from shoal.device.arrays.simulation_bits import SimulationBits
    >>> from shoal.device.encode import encode
    >>> from shoal.device.randomize import flip
    >>> survey = shoal.Survey("people", (shoal.Number("age", low=0, high=100, points=11),))
    >>> plan = shoal.plan(survey, q="0.01")
    >>> answers = [{"age": age} for age in (15, 30, 35, 50) for _ in range(500)]
    >>> noise = SimulationBits(1)
    >>> reports = flip(plan, encode(survey, answers, random_bits=noise), random_bits=noise)
    >>> ages = number_summary(shoal.estimate(plan, shoal.tally(plan, reports)), "age")
    >>> round(ages.mean.low, 1), round(ages.mean.high, 1)
    (32.1, 33.2)
    >>> ages.quantile(0.6)
    Quantile(part=0.6, label='30', low=20.0, high=40.0, level=0.95)
    """
    check_level(level)
    question = estimates.plan.survey[name]
    if not isinstance(question, Number):
        raise InputError(f"question {name!r} is not a number; only numbers have a mean.")
    options = list(estimates[name].options.values())
    missing = options.pop() if question.missing else None
    return NumberSummary(question, tuple(options), level, missing)


def numbers_of(estimates: Estimates, level: float = 0.95) -> dict[str, Any]:
    return {
        question.name: number_summary(estimates, question.name, level).to_json()
        for question in estimates.plan.survey
        if isinstance(question, Number)
    }
