"""The result of decoding: candidates with their counts, and what they do not explain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.analysis.intervals import Interval
from shoal.analysis.text.inference import Regression
from shoal.analysis.text.least_squares import Floats
from shoal.errors import InputError
from shoal.protocol.text_hash import normal_text
from shoal.support.checks import did_you_mean
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


_COLUMNS = ("value", "count", "sigma", "low", "high", "found", "constrained")


@dataclass(frozen=True)
class DecodedText:
    """How many people answered one text.

    `count` is the least-squares estimate, perhaps negative. The interval reaches further down than
    up where unknown texts may hide behind this one. `constrained` is the non-negative fit, 0 for
    texts that were not found. `same_as` are candidates that set the same bits: counted with it.
    """

    value: str
    count: float
    sigma: float
    low: float
    high: float
    found: bool
    constrained: float
    same_as: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        row = dict(vars(self))
        same = row.pop("same_as")
        return row | {"same_as": list(same)} if same else row


@dataclass(frozen=True, repr=False)
class DecodedTexts(Displayed, TableExport, Sequence[DecodedText]):
    """The candidates by falling count; ``decoded["word"]`` is the row of one of them.

    `unexplained` reports are of people who answered another text, or nothing. `alike` lists groups
    of candidates that are hard to tell apart, the one that was found first.
    """

    question: str
    reports: int
    fdr: float
    level: float
    texts: tuple[DecodedText, ...]
    unexplained: float
    unexplained_sigma: float
    alike: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    simulated: bool
    _regression: Regression = field(repr=False, compare=False)
    _pattern: Mapping[str, int] = field(repr=False, compare=False)

    @cached_property
    def _by_value(self) -> dict[str, DecodedText]:
        return {value: row for row in self.texts for value in (row.value, *row.same_as)}

    @property
    def discoveries(self) -> tuple[DecodedText, ...]:
        """The texts that were found, by falling count."""
        return tuple(row for row in self.texts if row.found)

    def __getitem__(self, key: Any) -> Any:  # a text, or a place in the order
        if not isinstance(key, str):
            return self.texts[key]
        found = self._by_value.get(key) or self._by_value.get(normal_text(key))
        if found is None:
            guess = did_you_mean(key, self._by_value)
            raise InputError(f"{key!r} is not among the candidates.{guess}")
        return found

    def _headline(self) -> str:
        return (
            f"{self.question}: {self.reports:,} reports{', simulated' if self.simulated else ''},"
            f" {len(self.discoveries):,} of {len(self.texts):,} candidates found at a false"
            f" discovery rate of {self.fdr:g}, intervals at {self.level:g}"
        )

    def _sections(self) -> list[Section]:
        finds, left_out = first_rows(self.discoveries)
        rows = [
            (
                one.value,
                f"{one.count:z,.0f}",
                f"{one.count / self.reports:z.2%}",
                f"{math.floor(one.low):,}",
                f"{math.ceil(one.high):,}",
            )
            for one in finds
        ]
        return [Section(("text", "count", "share", "low", "high"), rows, left_out=left_out)]

    def _remarks(self) -> list[str]:
        rest = f"unexplained: {self.unexplained:z,.0f}, sigma {self.unexplained_sigma:,.0f}"
        alike = [f"hard to tell apart: {', '.join(group[:8])}." for group in self.alike[:5]]
        return [rest, *self.notes, *alike]

    def plot(self, most: int = 20) -> Figure:
        """Draw the most frequent texts that were found, on their intervals; needs matplotlib."""
        from shoal.reports.plots.results import plot_texts

        return plot_texts(self, most)

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[DecodedText]:
        return iter(self.texts)

    def covariance(self, values: Iterable[str]) -> Floats:
        """Return the covariance matrix of the counts of texts that were found."""
        return self._regression.covariance(self._combinations(values))

    def total(self, values: Iterable[str]) -> Interval:
        """Return an interval for the people behind several texts found, chosen beforehand."""
        low, high = self._regression.bounds(self._combinations(values).sum(axis=0), self.level)
        return Interval(max(low, 0.0), high, self.level, "normal")

    def _combinations(self, values: Iterable[str]) -> Floats:
        chosen = self._regression.fit.chosen
        rows = []
        for value in values:
            if not self[value].found:
                raise InputError(f"{value!r} was not found, so its count is not fitted.")
            rows.append(np.flatnonzero(chosen == self._pattern[self[value].value]))
        combinations = np.zeros((len(rows), len(chosen) + 1))
        combinations[np.arange(len(rows)), np.ravel(rows).astype(int) + 1] = 1
        return combinations

    def to_arrow(self) -> pa.Table:
        """Return the candidates as an Arrow table, at the level they were decoded with."""
        rows = [{name: getattr(one, name) for name in _COLUMNS} for one in self.texts]
        return arrow_rows(
            ["value"], rows, level=self.level, reports=self.reports, simulated=self.simulated
        )

    def to_json(self) -> dict[str, Any]:
        """Return the document that `shoal decode --json` prints."""
        names = ("question", "reports", "fdr", "level", "simulated")
        return {name: getattr(self, name) for name in names} | {
            "unexplained": self.unexplained,
            "unexplained_sigma": self.unexplained_sigma,
            "notes": list(self.notes),
            "alike": [list(group) for group in self.alike],
            "candidates": [text.to_json() for text in self.texts],
        }
