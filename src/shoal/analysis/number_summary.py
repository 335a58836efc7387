"""The mean and the quantiles of a number question, from the counts of its ranges.

A report says only in which range a number falls, and the first and last range have no end. So there
are two statements, neither of which guesses:

* the *limited mean*: the mean when numbers beyond the outer edges count as these edges. The ranges
  tell it up to the place of each number in its range; the interval contains every place
  (approximate: normal, a sum of independent flips).
* for each quantile the range it is in, with all ranges compatible with the reports: they contain
  the true one with at least the level, for every crowd (theorem: each range is left out by one of
  two one-sided exact tests).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from shoal.analysis.contrasts import Combination, total
from shoal.analysis.estimates import Estimate, Estimates
from shoal.errors import InputError
from shoal.protocol.questions import Number
from shoal.support.checks import check_level
from shoal.theory.randomized_response import normal_factor

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Quantile:
    """In which range a part of the crowd ends: `label` is the estimate.

    The true quantile is at least `low` and at most `high`; None stands for no end.
    """

    part: float
    label: str
    low: float | None
    high: float | None
    level: float


@dataclass(frozen=True)
class NumberSummary:
    """What the counts of ranges say about the numbers themselves."""

    question: Number
    ranges: tuple[Estimate, ...]
    level: float

    @property
    def _edges(self) -> list[float]:
        return [float(edge) for edge in self.question.edges]

    @property
    def mean(self) -> Combination | None:
        """The limited mean; None if nobody may have given a number, or there is only one edge.

        Its value takes every number to be in the middle of its range; low and high allow for any
        place in it, and for the flips at `level`.
        """
        edges = self._edges
        counts = [one.constrained for one in self.ranges]
        people = sum(counts)
        if len(edges) < 2 or people <= 0:
            return None
        lows, highs = [edges[0], *edges], [*edges, edges[-1]]
        below, above = (
            sum(count * place for count, place in zip(counts, places, strict=True)) / people
            for places in (lows, highs)
        )
        middle = (below + above) / 2
        centres = [(a + b) / 2 - middle for a, b in zip(lows, highs, strict=True)]
        sigma = self._spread(centres) / people
        reach = normal_factor(self.level) * sigma
        low, high = max(below - reach, edges[0]), min(above + reach, edges[-1])
        return Combination(middle, sigma, low, high, self.level, "normal")

    def _spread(self, weights: Sequence[float]) -> float:
        """Return the sigma of the sum of the ranges' counts with these weights.

        Everybody has one option, so that all counts together are known: a weight matters by how
        far it is from the average weight. The option of no answer has the weight 0.
        """
        missing = self.question.bits - len(weights)
        average = sum(weights) / self.question.bits
        squares = sum((weight - average) ** 2 for weight in weights) + missing * average**2
        return self.ranges[0].sigma * math.sqrt(squares)

    def quantile(self, part: float) -> Quantile:
        """Return the range in which a part of the numbers ends; 0 < part < 1."""
        if not 0 < part < 1:
            raise InputError(f"a quantile is strictly between 0 and 1, got {part}.")
        edges: list[float | None] = [None, *self._edges, None]
        below = list(accumulate(one.constrained for one in self.ranges))
        place = next(
            (n for n, count in enumerate(below) if count >= part * below[-1]), len(below) - 1
        )
        bounds = self._parts_below
        # The part ends in range n: it is reached at its upper edge, and not at its lower one.
        possible = [
            n
            for n in range(len(self.ranges))
            if bounds[n + 1][1] >= part and (n == 0 or bounds[n][0] < part)
        ] or [place]
        first, last = min(possible[0], place), max(possible[-1], place)
        return Quantile(part, self.ranges[place].label, edges[first], edges[last + 1], self.level)

    @cached_property
    def _parts_below(self) -> list[tuple[float, float]]:
        """Limits of the part of the numbers below each edge, each wrong with at most half a miss.

        Without the option of no answer everybody gave a number, and a total of ranges is compared
        with the reports. Otherwise those below and those above are both uncertain: misses add.
        """
        number, reports = len(self.ranges), self.ranges[0].reports
        inner = []
        for n in range(1, number):
            if self.question.missing is None:
                below = total(self.ranges[:n], self.level)
                inner.append((below.low / reports, below.high / reports))
            else:
                level = (1 + self.level) / 2
                below, above = total(self.ranges[:n], level), total(self.ranges[n:], level)
                low, high = _part(below.low, above.high, 0.0), _part(below.high, above.low, 1.0)
                inner.append((low, high))
        return [(0.0, 0.0), *inner, (1.0, 1.0)]

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "mean": self.mean and self.mean.to_json() | {"level": self.level},
            "quantiles": [asdict(self.quantile(part)) for part in QUANTILES],
        }


def _part(first: float, second: float, otherwise: float) -> float:
    both = max(first, 0.0) + max(second, 0.0)
    return max(first, 0.0) / both if both else otherwise


def number_summary(estimates: Estimates, name: str, level: float = 0.95) -> NumberSummary:
    """Return the mean and the quantiles of a number question, with intervals."""
    check_level(level)
    question = estimates.plan.survey[name]
    if not isinstance(question, Number):
        raise InputError(f"question {name!r} is not a number; only numbers have a mean.")
    options = list(estimates[name].values())
    return NumberSummary(question, tuple(options[: len(question.edges) + 1]), level)


def numbers_of(estimates: Estimates, level: float = 0.95) -> dict[str, Any]:
    return {
        question.name: number_summary(estimates, question.name, level).to_json()
        for question in estimates.plan.survey
        if isinstance(question, Number)
    }
