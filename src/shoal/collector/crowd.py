"""The counts of an open crowd, in parts that are written as they change.

The same counts as `shoal.tally` makes, kept as arrays: adding reports and adding nothing take the
same steps, because who measures the time of an answer must not learn whether a report was new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from shoal.plans import Plan
from shoal.tallying import SMALL_VECTOR, CohortCounts, Counts, Tally
from shoal.vectors import Cohorts, Rows, row_bytes, unpack

__all__ = ["OpenCrowd"]

_SET_BITS, _BITS, _VECTORS, _JOINT, _COHORT = 0, 1, 2, 100, 1_000_000


class OpenCrowd:
    """How many reports a crowd has so far, and their counts.

    Parameters
    ----------
    plan
        The plan of the reports.
    reports, parts
        What was counted before: the number of reports, and the parts as they were written.
    """

    def __init__(
        self, plan: Plan, reports: int = 0, parts: Mapping[int, bytes] | None = None
    ) -> None:
        self._plan, self.reports = plan, reports
        self._joint = tuple(tuple(plan.survey.bit(*bit) for bit in group) for group in plan.joint)
        sizes = {_SET_BITS: plan.bits + 1}
        if plan.bits <= SMALL_VECTOR:
            sizes[_VECTORS] = 1 << plan.bits
        if plan.cohorts is None:
            sizes[_BITS] = plan.bits
        for number, bits in enumerate(self._joint):
            sizes[_JOINT + number] = 1 << len(bits)
        for cohort in range(plan.cohorts or 0):
            sizes[_COHORT + cohort] = 1 + plan.bits
        self._parts = {part: np.zeros(size, np.int64) for part, size in sizes.items()}
        for part, numbers in (parts or {}).items():
            self._parts[part] += np.frombuffer(numbers, "<i8")
        self._changed: set[int] = set()

    def add(self, rows: Rows, cohorts: Cohorts | None, weights: NDArray[np.int64]) -> None:
        """Add reports, each as often as its weight says: once or not at all."""
        bits = unpack(rows, self._plan.bits).astype(np.int64)
        self.reports += int(weights.sum())
        self._count(_SET_BITS, bits.sum(axis=1), weights)
        if _VECTORS in self._parts:
            self._count(_VECTORS, _values(bits, range(self._plan.bits)), weights)
        for number, chosen in enumerate(self._joint):
            self._count(_JOINT + number, _values(bits, chosen), weights)
        if cohorts is None:
            self._parts[_BITS] += weights @ bits
            self._changed.add(_BITS)
            return
        order = np.argsort(cohorts, kind="stable")
        present, starts = np.unique(cohorts[order], return_index=True)
        counted = np.column_stack((weights, weights[:, None] * bits))[order]
        sums = np.add.reduceat(counted, starts, axis=0)
        for cohort, numbers in zip(present.tolist(), sums, strict=True):
            self._parts[_COHORT + cohort] += numbers
            self._changed.add(_COHORT + cohort)

    def _count(self, part: int, values: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        np.add.at(self._parts[part], values, weights)
        self._changed.add(part)

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the parts that changed since the last call, to be written."""
        for part in sorted(self._changed):
            yield part, self._parts[part].astype("<i8").tobytes()
        self._changed.clear()

    def tally(self) -> Tally:
        """Return the counts as a tally."""
        by_bit, cohorts = self._by_bit()
        return Tally(
            self._plan.id,
            self.reports,
            by_bit,
            self._parts[_SET_BITS].copy(),
            self._by_vector(),
            {bits: self._parts[_JOINT + k].copy() for k, bits in enumerate(self._joint)},
            False,
            cohorts,
        )

    def _by_bit(self) -> tuple[Counts, tuple[CohortCounts, ...] | None]:
        if self._plan.cohorts is None:
            return self._parts[_BITS].copy(), None
        parts = [self._parts[_COHORT + cohort] for cohort in range(self._plan.cohorts)]
        counts = tuple(CohortCounts(int(part[0]), part[1:].copy()) for part in parts)
        return np.sum([part[1:] for part in parts], axis=0, dtype=np.int64), counts

    def _by_vector(self) -> dict[str, int] | None:
        if _VECTORS not in self._parts:
            return None
        table, width = self._parts[_VECTORS], row_bytes(self._plan.bits)
        rows = {int(v).to_bytes(width, "little").hex(): int(table[v]) for v in table.nonzero()[0]}
        return dict(sorted(rows.items()))


def _values(bits: NDArray[np.int64], chosen: range | tuple[int, ...]) -> NDArray[np.int64]:
    """Return the joint value of chosen bits, the first one least significant."""
    powers = 1 << np.arange(len(chosen), dtype=np.int64)
    return np.asarray(bits[:, list(chosen)] @ powers)
