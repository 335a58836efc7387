"""The counts of an open crowd: one row of numbers, written in blocks of a page each.

The same counts as `shoal.tally` makes. Adding reports and adding nothing take the same steps and
write the same blocks, because whoever measures the time of an answer must not learn whether a
report was new. A crowd of few blocks is written whole, whatever came; of a larger one, which a plan
with many cohorts has, only the blocks whose cohorts came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from shoal.agreement.plan import Plan
from shoal.agreement.vectors import Cohorts, Rows, row_bytes
from shoal.analysis.report_rows import unpack
from shoal.analysis.tallying import SMALL_VECTOR, CohortCounts, Counts, Tally

__all__ = ["BLOCK_BYTES", "OpenCrowd", "number_type"]

_HEAD, _SET_BITS, _BITS, _VECTORS, _JOINT, _COHORTS = range(6)
BLOCK_BYTES = 3840
"""Of a block, or less of the last: with what encryption adds, it fits in a page."""

_FEW_BLOCKS = 16
_CHUNK = 1 << 21
"""Bits that are unpacked at a time, to a byte each."""


class OpenCrowd:
    """How many reports a crowd has so far, and their counts.

    Parameters
    ----------
    plan
        The plan of the reports.
    blocks
        What was counted before, as it was written.
    """

    def __init__(self, plan: Plan, blocks: Mapping[int, bytes] | None = None) -> None:
        self._plan = plan
        self._joint = tuple(tuple(plan.survey.bit(*bit) for bit in group) for group in plan.joint)
        sizes = {
            _HEAD: 2,
            _SET_BITS: plan.bits + 1,
            _BITS: plan.bits if plan.cohorts is None else 0,
            _VECTORS: 1 << plan.bits if plan.bits <= SMALL_VECTOR else 0,
            _JOINT: sum(1 << len(bits) for bits in self._joint),
            _COHORTS: (plan.cohorts or 0) * (1 + plan.bits),
        }
        ends = list(accumulate(sizes.values()))
        self._numbers = np.zeros(ends[-1], np.int64)
        starts = [0, *ends]
        self._parts = {part: self._numbers[starts[part] : starts[part + 1]] for part in sizes}
        self._cohorts_from = starts[_COHORTS]
        self._kind = number_type(plan)
        self._block = BLOCK_BYTES // self._kind.itemsize
        for block, content in (blocks or {}).items():
            there = self._numbers[block * self._block : (block + 1) * self._block]
            there[:] = np.frombuffer(content, self._kind)
        self._changed: set[int] = set()
        self._touch_always()

    @property
    def reports(self) -> int:
        """How many reports were counted."""
        return int(self._numbers[0])

    @property
    def window_reports(self) -> int:
        """How many reports of the window had come when this was written, in all its crowds."""
        return int(self._numbers[1])

    @window_reports.setter
    def window_reports(self, count: int) -> None:
        self._numbers[1] = count

    @property
    def is_whole(self) -> bool:
        """Whether the crowd has all the reports it needs."""
        return self.reports == self._plan.reports_needed

    def _touch_always(self) -> None:
        is_small = self._numbers.size <= _FEW_BLOCKS * self._block
        self._touch(0, self._numbers.size if is_small else self._cohorts_from)

    def _touch(self, start: int, end: int) -> None:
        self._changed.update(range(start // self._block, -(-end // self._block)))

    def add(self, rows: Rows, cohorts: Cohorts | None, weights: NDArray[np.int64]) -> None:
        """Add reports, each as often as its weight says: once or not at all."""
        step = max(1, _CHUNK // self._plan.bits)
        for start in range(0, len(rows), step):
            here = slice(start, start + step)
            self._add(rows[here], None if cohorts is None else cohorts[here], weights[here])
        self._touch_always()

    def _add(self, rows: Rows, cohorts: Cohorts | None, weights: NDArray[np.int64]) -> None:
        # A report that does not count is all zeros, and is counted that many times: not at all.
        bits = unpack(rows & (weights * 255).astype(np.uint8)[:, None], self._plan.bits)
        self._numbers[0] += weights.sum()
        np.add.at(self._parts[_SET_BITS], bits.sum(axis=1, dtype=np.int64), weights)
        if self._parts[_VECTORS].size:
            np.add.at(self._parts[_VECTORS], _values(bits, range(self._plan.bits)), weights)
        for table, chosen in zip(self._tables(), self._joint, strict=True):
            np.add.at(table, _values(bits, chosen), weights)
        if cohorts is None:
            self._parts[_BITS] += _column_sums(bits)
            return
        width = 1 + self._plan.bits
        order = np.argsort(cohorts, kind="stable")
        present, starts = np.unique(cohorts[order], return_index=True)
        table = self._parts[_COHORTS].reshape(-1, width)
        table[present, 0] += np.add.reduceat(weights[order], starts)
        table[present, 1:] += np.add.reduceat(bits[order], starts, axis=0, dtype=np.int64)
        for cohort in present.tolist():
            start = self._cohorts_from + cohort * width
            self._touch(start, start + width)

    def _tables(self) -> Iterator[Counts]:
        start = 0
        for bits in self._joint:
            yield self._parts[_JOINT][start : start + (1 << len(bits))]
            start += 1 << len(bits)

    def all_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield all blocks, whether or not they changed."""
        self._touch(0, self._numbers.size)
        return self.changes()

    def changes(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks that changed since the last call, to be written.

        The length of each is the same whatever was counted.
        """
        for block in sorted(self._changed):
            numbers = self._numbers[block * self._block : (block + 1) * self._block]
            yield block, numbers.astype(self._kind).tobytes()
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
            {bits: table.copy() for bits, table in zip(self._joint, self._tables(), strict=True)},
            False,
            cohorts,
        )

    def _by_bit(self) -> tuple[Counts, tuple[CohortCounts, ...] | None]:
        if self._plan.cohorts is None:
            return self._parts[_BITS].copy(), None
        parts = self._parts[_COHORTS].reshape(-1, 1 + self._plan.bits)
        counts = tuple(CohortCounts(int(part[0]), part[1:].copy()) for part in parts)
        return np.sum(parts[:, 1:], axis=0, dtype=np.int64), counts

    def _by_vector(self) -> dict[str, int] | None:
        table, width = self._parts[_VECTORS], row_bytes(self._plan.bits)
        if not table.size:
            return None
        rows = {int(v).to_bytes(width, "little").hex(): int(table[v]) for v in table.nonzero()[0]}
        return dict(sorted(rows.items()))


def number_type(plan: Plan) -> np.dtype[np.unsignedinteger]:
    """Return the type of a crowd's numbers as they are written."""
    return np.dtype("<u4" if plan.reports_needed < 1 << 32 else "<u8")


def _values(bits: NDArray[np.uint8], chosen: range | tuple[int, ...]) -> NDArray[np.int64]:
    """Return the joint value of chosen bits, the first one least significant."""
    powers = 1 << np.arange(len(chosen), dtype=np.int64)
    return np.asarray(bits[:, list(chosen)] @ powers)


def _column_sums(bits: NDArray[np.uint8]) -> Counts:
    total = np.zeros(bits.shape[1], np.int64)
    for start in range(0, len(bits), 255):  # so many fit in a byte, and bytes add up fast
        total += bits[start : start + 255].sum(axis=0, dtype=np.uint8)
    return total
