"""Estimates of all options of one question; a number also has a mean and quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.analysis.intervals import IntervalKind
from shoal.errors import InputError
from shoal.protocol.questions import Number
from shoal.protocol.survey import Question, unknown_option
from shoal.support.results import Displayed, Section, TableExport, first_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

    from shoal.analysis.estimates import Estimate, Estimates
    from shoal.analysis.number_summary import NumberEstimate, NumberSummary, Quantile


T = TypeVar("T")


def option_section(
    question: str, options: Iterable[tuple[str, T]], to_json: Callable[[T], dict[str, Any]]
) -> Section:
    """Return the first options of a question with their intervals, for people to read."""
    shown, left_out = first_rows(options)
    rows: list[tuple[str, ...]] = []
    for label, one in shown:
        row = to_json(one)
        ends = f"{math.floor(row['low']):,}", f"{math.ceil(row['high']):,}"
        name = f"{label} (no true count fits)" if row.get("incompatible") else label
        rows.append((name, f"{row['count']:z,.0f}", f"{row['share']:z.2%}", *ends))
    return Section((question, "count", "share", "low", "high"), rows, left_out=left_out)


@dataclass(frozen=True, repr=False, eq=False)
class QuestionEstimates(Displayed, TableExport, Mapping[str, "Estimate"]):
    """Estimates of the options of one question: ``estimates["features"]["sync"]``.

    A number also has a `mean`, a `variance` and any `quantile`.
    """

    estimates: Estimates
    question: Question
    options: Mapping[str, Estimate]

    def __getitem__(self, label: str) -> Estimate:
        if label not in self.options:
            raise unknown_option(self.question, label)
        return self.options[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def shares(self) -> dict[str, float]:
        """Return the share of each option that fits the question best.

        Every share is between 0 and 1, and the shares of a question with one answer add up to 1.
        The unbiased shares are those of the options: ``estimates["age"]["30+"].share``.
        """
        return {label: one.constrained / one.reports for label, one in self.items()}

    def mean(self, level: float = 0.95) -> NumberEstimate:
        """Return the mean of a number on a grid, with its interval (approximate)."""
        mean = self._numbers("mean", level).mean
        if mean is None:
            raise InputError(
                f"question {self.question.name!r} has bins, and the outer ones have no end, so it"
                " has no mean; give it low, high and points, or take a quantile."
            )
        return mean

    def variance(self, level: float = 0.95) -> NumberEstimate:
        """Return the variance of a number on a grid, with its interval (approximate)."""
        variance = self._numbers("variance", level).variance
        if variance is None:
            raise InputError(
                f"question {self.question.name!r} has no variance: it has bins, or nobody gave a"
                " number."
            )
        return variance

    def quantile(self, part: float, level: float = 0.95) -> Quantile:
        """Return where a part of the numbers ends; 0.5 is the median."""
        return self._numbers("quantile", level).quantile(part)

    def _numbers(self, wanted: str, level: float) -> NumberSummary:
        from shoal.analysis.number_summary import number_summary

        if not isinstance(self.question, Number):
            raise InputError(
                f"question {self.question.name!r} is of kind {self.question.kind}; only a number"
                f" has a {wanted}."
            )
        return number_summary(self.estimates, self.question.name, level)

    def _headline(self) -> str:
        return f"{self.question.name}: {len(self):,} options, {self.estimates.tally.in_words}"

    def _sections(self) -> list[Section]:
        table = self.table()
        if not isinstance(self.question, Number):
            return [table]
        return [table, *self._numbers("mean", 0.95)._sections()]

    def table(self, level: float = 0.95, kind: IntervalKind = "exact") -> Section:
        """Return the first options with their intervals, for people to read."""
        return option_section(
            self.question.name, self.items(), lambda one: one.to_json(level, kind)
        )

    def plot(self, level: float = 0.95) -> Figure:
        """Draw every option on its interval; needs matplotlib."""
        from shoal.reports.plots.results import plot_estimates

        return plot_estimates([self], level)

    def to_arrow(self, level: float = 0.95, kind: IntervalKind = "exact") -> pa.Table:
        """Return the options as an Arrow table, a row for each."""
        from shoal.analysis.estimates import estimates_arrow

        return estimates_arrow({"estimates": self.to_json(level, kind)})

    def to_json(self, level: float = 0.95, kind: IntervalKind = "exact") -> dict[str, Any]:
        """Return the JSON form of the estimates, with this question only."""
        return self.estimates.questions_json([self], level, kind)
