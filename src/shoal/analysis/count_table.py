"""All counts of a tally in one array of numbers, in a fixed order.

The order is: the number of reports; counts by number of set bits; counts by bit; counts by vector,
if vectors are short; one table for each joint group; and for each cohort its number of reports and
its counts by bit. A plan with cohorts has no separate counts by bit: they are the cohorts' sum. A
plan with view `counts` has no counts by number of set bits and by vector, and no joint group.

Reports may have weights, 0 or 1. A report of weight 0 takes the same steps as any other and changes
no number: whoever measures the time cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.bit_counter import BitCounter, column_sums, count_set_bits
from shoal.analysis.joint_counts import Bits, joint_values
from shoal.protocol.plan import Plan
from shoal.protocol.wire import Cohorts, Rows, row_bytes

__all__ = ["CountTable", "Weights"]

_FEW_BYTES = 1 << 14
"""Bytes of rows that are summed directly; the adder tree is faster for more."""

_BYTES_AT_ONCE = 1 << 18
"""Bytes of rows that are handled at a time; some steps turn each bit into a byte."""

Counts = NDArray[np.int64]
Weights = NDArray[np.int64]


class CountTable:
    """The counts of the reports of one plan.

    Parameters
    ----------
    plan
        The plan of the reports.
    joint
        Groups of bit positions whose joint values are counted.
    vectors
        Whether to count whole vectors, which must be short.
    extra
        How many numbers of the caller are kept at the start of the array.
    """

    def __init__(
        self,
        plan: Plan,
        joint: Sequence[Bits],
        *,
        vectors: bool,
        extra: int = 0,
    ) -> None:
        self._bits = plan.bits
        sizes = [
            extra,
            1,
            plan.bits + 1 if plan.view == "reports" else 0,
            plan.bits if plan.cohorts is None else 0,
            1 << plan.bits if vectors else 0,
            *(1 << len(bits) for bits in joint),
            (plan.cohorts or 0) * (1 + plan.bits),
        ]
        ends = [0, *accumulate(sizes)]
        self._numbers = np.zeros(ends[-1], np.int64)
        parts = [self._numbers[start:end] for start, end in pairwise(ends)]
        _, self._reports, self.by_set_bits, self._by_bit, self.by_vector, *tables, cohorts = parts
        self.joint: dict[Bits, Counts] = dict(zip(joint, tables, strict=True))
        self.cohorts = cohorts.reshape(-1, 1 + plan.bits)
        """A row for each cohort: how many reports it has, and its counts by bit."""
        self.cohorts_start = ends[-2]
        """Where the numbers of the cohorts start."""
        self._counter: BitCounter | None = None  # of rows that are not yet in the numbers

    @property
    def numbers(self) -> Counts:
        """All numbers, which may be written to."""
        self._gather()
        return self._numbers

    @property
    def reports(self) -> int:
        """How many reports were counted."""
        return int(self._reports[0])

    @property
    def by_bit(self) -> Counts:
        """How many reports have a one at each position."""
        self._gather()
        return self.cohorts[:, 1:].sum(axis=0) if len(self.cohorts) else self._by_bit.copy()

    def add(
        self, rows: Rows, cohorts: Cohorts | None = None, weights: Weights | None = None
    ) -> None:
        """Count more rows, each as often as its weight says: once or not at all."""
        if weights is not None:
            # A report that does not count is all zeros, and is counted that many times: not at all.
            rows = rows & (weights * 255).astype(np.uint8)[:, None]
        whole = cohorts is None and weights is None and rows.size > _FEW_BYTES
        if cohorts is None:
            self._add_bits(rows, self.by_set_bits if whole and self.by_set_bits.size else None)
        step = max(1, _BYTES_AT_ONCE // rows.shape[1])
        for start in range(0, len(rows), step):
            here = slice(start, start + step)
            chosen = None if weights is None else weights[here]
            self._add(rows[here], chosen, set_bits=not whole)
            if cohorts is not None:
                self._add_cohorts(rows[here], cohorts[here], chosen)

    def _add(self, rows: Rows, weights: Weights | None, *, set_bits: bool) -> None:
        self._reports += len(rows) if weights is None else weights.sum()
        if self.by_set_bits.size and set_bits:  # else they were counted with the single bits
            _add_at(self.by_set_bits, count_set_bits(rows), weights)
        if self.by_vector.size:
            _add_at(self.by_vector, rows @ (1 << 8 * np.arange(rows.shape[1])), weights)
        for bits, table in self.joint.items():
            _add_at(table, joint_values(rows, bits), weights)

    def _add_bits(self, rows: Rows, by_set_bits: Counts | None) -> None:
        if rows.size <= _FEW_BYTES:
            self._by_bit += column_sums(_unpack(rows, self._bits))
            return
        if self._counter is None:
            self._counter = BitCounter(row_bytes(self._bits))
        self._counter.add(rows, by_set_bits)

    def _gather(self) -> None:
        if self._counter is not None:
            self._by_bit += self._counter.counts()[: self._bits]
            self._counter = None

    def _add_cohorts(self, rows: Rows, cohorts: Cohorts, weights: Weights | None) -> None:
        order = np.argsort(cohorts, kind="stable")
        present, starts = np.unique(cohorts[order], return_index=True)
        ones = np.ones(len(rows), np.int64) if weights is None else weights[order]
        bits = _unpack(rows[order], self._bits)
        self.cohorts[present, 0] += np.add.reduceat(ones, starts)
        self.cohorts[present, 1:] += np.add.reduceat(bits, starts, axis=0, dtype=np.int64)

    def vectors(self) -> dict[str, int]:
        """Return how often each packed row, in hexadecimal, was counted."""
        width = row_bytes(self._bits)
        values = self.by_vector.nonzero()[0].tolist()
        rows = {
            value.to_bytes(width, "little").hex(): int(self.by_vector[value]) for value in values
        }
        return dict(sorted(rows.items()))


def _unpack(rows: Rows, bits: int) -> NDArray[np.uint8]:
    return np.unpackbits(rows, axis=1, count=bits, bitorder="little")


def _add_at(table: Counts, places: NDArray[np.integer], weights: Weights | None) -> None:
    """Add one, or its weight, at the place of each report."""
    if weights is None and len(places) >= table.size:
        table += np.bincount(places, minlength=table.size)
    else:
        np.add.at(table, places, 1 if weights is None else weights)
