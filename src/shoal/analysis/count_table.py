"""Count set bits: `BitCounter` by position, `CountTable` all that a tally counts, in one array.

Reports may have weights, 0 or 1. A report of weight 0 takes the same steps as any other and changes
no number: timing does not tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.joint import Bits, joint_values
from shoal.protocol.plan import Plan
from shoal.protocol.wire import Cohorts, Rows, row_bytes
from shoal.support.kernels import Kernels, load_kernels

_FEW_BYTES = 1 << 14  # of rows are summed directly; for more the adder tree is faster
_BYTES_AT_ONCE = 1 << 18  # of rows; some steps turn each bit into a byte

Counts = NDArray[np.int64]
Weights = NDArray[np.int64]


class CountTable:
    """The counts of the reports of one plan, in one array in a fixed order.

    The order is: `extra` numbers of the caller; the number of reports; counts by number of set
    bits and by bit; by vector, if `vectors`, which must be short; one table for each `joint` group;
    and for each cohort its number of reports and its counts by bit, whose sum are then those by
    bit. View `counts` has none by number of set bits and by vector, and no joint group.
    """

    def __init__(self, plan: Plan, joint: Sequence[Bits], *, vectors: bool, extra: int = 0) -> None:
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
        self.cohorts = cohorts.reshape(-1, 1 + plan.bits)  # reports, then counts by bit
        self.cohorts_start = ends[-2]
        self._counter: BitCounter | None = None  # of rows that are not yet in the numbers

    @property
    def numbers(self) -> Counts:
        """All numbers, which may be written to."""
        self._gather()
        return self._numbers

    @property
    def reports(self) -> int:
        return int(self._reports[0])

    @property
    def by_bit(self) -> Counts:
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
            self._by_bit += column_sums(unpack(rows, self._bits))
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
        bits = unpack(rows[order], self._bits)
        self.cohorts[present, 0] += np.add.reduceat(ones, starts)
        self.cohorts[present, 1:] += np.add.reduceat(bits, starts, axis=0, dtype=np.int64)

    def vectors(self) -> dict[str, int]:
        """Return how often each packed row, in hexadecimal, was counted."""
        width = row_bytes(self._bits)
        values = self.by_vector.nonzero()[0].tolist()
        return {
            value.to_bytes(width, "little").hex(): int(self.by_vector[value]) for value in values
        }


def unpack(rows: Rows, bits: int) -> NDArray[np.uint8]:
    """Unpack rows into an array of 0 and 1, shape (vectors, bits).

    >>> unpack(np.array([[1, 1]], dtype=np.uint8), bits=9)
    array([[1, 0, 0, 0, 0, 0, 0, 0, 1]], dtype=uint8)
    """
    return np.unpackbits(rows, axis=1, count=bits, bitorder="little")


def _add_at(table: Counts, places: NDArray[np.integer], weights: Weights | None) -> None:
    """Add one, or its weight, at the place of each report."""
    if weights is None and len(places) >= table.size:
        table += np.bincount(places, minlength=table.size)
    else:
        np.add.at(table, places, 1 if weights is None else weights)


_WORDS = 8192  # that one logic operation handles: 64 KiB, so that operands stay in the cache


Words = NDArray[np.uint64]


class BitCounter:
    """How often each bit position was set in all the rows added so far.

    A carry-save adder tree over packed words: three words of weight w add up, bit by bit and
    without carries between positions, to one word of weight w and one of weight 2w (Harley and
    Seal): about five logic operations per word, whatever the data, and constant memory. The C
    kernel, where there is one, counts the same in one pass, rows by their set bits included.
    """

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        kernels = load_kernels()
        self._kernel = None if kernels is None else _Kernel(kernels, row_bytes)
        # The bit pattern of rows repeats after this many words, some 50 of them at least.
        pattern = row_bytes // math.gcd(row_bytes, 8)
        self._period = pattern * max(1, 64 // pattern)
        self._width = max(1, _WORDS // self._period) * self._period
        self._sums: list[Words] = []  # one plane of weight 2^j each
        self._waiting: dict[int, Words] = {}  # by level: a plane of that weight to be added
        self._free: list[Words] = []
        self._rest = np.zeros(2 * self._width * 8, np.uint8)  # rows short of a block
        self._rest_bytes = 0

    def add(self, rows: Rows, by_set_bits: Counts | None = None) -> None:
        """Count more rows, also by their number of set bits if an array for that is given."""
        if self._kernel is not None:
            self._kernel.add(np.ascontiguousarray(rows), by_set_bits)
            return
        self._add_planes_of(np.ascontiguousarray(rows).reshape(-1))
        if by_set_bits is not None:
            step = max(1, _BYTES_AT_ONCE // self._row_bytes)
            for start in range(0, len(rows), step):
                counts = count_set_bits(rows[start : start + step])
                by_set_bits += np.bincount(counts, minlength=by_set_bits.size)

    def _add_planes_of(self, flat: NDArray[np.uint8]) -> None:
        block = self._rest.size
        if self._rest_bytes:
            missing = min(block - self._rest_bytes, flat.size)
            self._rest[self._rest_bytes : self._rest_bytes + missing] = flat[:missing]
            self._rest_bytes += missing
            flat = flat[missing:]
            if self._rest_bytes < block:
                return
            self._push_blocks(self._rest)
        whole = flat.size - flat.size % block
        self._push_blocks(flat[:whole])
        self._rest_bytes = flat.size - whole
        self._rest[: self._rest_bytes] = flat[whole:]

    def counts(self) -> NDArray[np.int64]:
        """Return the count of each bit position of a row, padding included."""
        if self._kernel is not None:
            return self._kernel.by_bit.copy()
        used = -(-self._rest_bytes // (self._period * 8)) * self._period * 8
        self._rest[self._rest_bytes : used] = 0
        total = self._column_sums(self._rest[:used])
        for level, plane in [*enumerate(self._sums), *self._waiting.items()]:
            total += self._column_sums(plane.view(np.uint8)) << level
        return np.asarray(total.reshape(-1, self._row_bytes * 8).sum(axis=0))

    def _column_sums(self, flat: NDArray[np.uint8]) -> NDArray[np.int64]:
        rows = flat.reshape(-1, self._period * 8)
        return column_sums(np.unpackbits(rows, axis=1, bitorder="little"))

    def _push_blocks(self, flat: NDArray[np.uint8]) -> None:
        for first, second in flat.view(np.uint64).reshape(-1, 2, self._width):
            self._add_planes(0, first, second)

    def _add_planes(self, level: int, first: Words, second: Words) -> None:
        """Add two planes of weight 2^level to the sum of that weight, and carry what is over."""
        if level == len(self._sums):
            self._sums.append(np.zeros(self._width, np.uint64))
        total, carry = self._sums[level], self._plane()
        low = first if level else self._plane()  # at level 0 the planes are the caller's
        xor, both = np.bitwise_xor, np.bitwise_and
        # Where the two agree they are the carry, else the total is; in place where possible,
        # since an operation on two arrays is a third faster than one on three.
        xor(total, first, low)
        xor(total, second, carry)
        both(low, carry, carry)
        xor(low, second, low)
        xor(carry, total, carry)
        self._sums[level] = low
        self._free += (total, second) if level else (total,)
        self._carry(level + 1, carry)

    def _carry(self, level: int, plane: Words) -> None:
        """Keep a plane of weight 2^level until there is a second one."""
        waiting = self._waiting.pop(level, None)
        if waiting is None:
            self._waiting[level] = plane
        else:
            self._add_planes(level, waiting, plane)

    def _plane(self) -> Words:
        return self._free.pop() if self._free else np.empty(self._width, np.uint64)


class _Kernel:
    """The counts of the C kernel, which keeps nothing of the rows."""

    def __init__(self, kernels: Kernels, row_bytes: int) -> None:
        self._kernels, self._row_bytes = kernels, row_bytes
        self.by_bit = np.zeros(8 * row_bytes, np.int64)
        self._scratch = np.empty(kernels.tally_scratch(row_bytes), np.uint8)

    def add(self, rows: Rows, by_set_bits: Counts | None) -> None:
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != self._row_bytes:
            raise ValueError(f"rows must be bytes, {self._row_bytes} each.")
        found = None if by_set_bits is None else np.zeros(8 * self._row_bytes + 1, np.int64)
        self._kernels.tally(
            rows.ctypes.data,
            len(rows),
            self._row_bytes,
            self.by_bit.ctypes.data,
            None if found is None else found.ctypes.data,
            self._scratch.ctypes.data,
        )
        if by_set_bits is not None and found is not None:
            if found[by_set_bits.size :].any():
                raise ValueError("a row has more set bits than there are counts.")
            by_set_bits += found[: by_set_bits.size]


def column_sums(bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how many ones each column has, of rows of a byte for each bit."""
    total = np.zeros(bits.shape[1], np.int64)
    for start in range(0, len(bits), 255):  # a byte holds 255 ones, and bytes add up fast
        total += bits[start : start + 255].sum(axis=0, dtype=np.uint8)
    return total


def count_set_bits(rows: Rows) -> NDArray[Any]:
    count, width = rows.shape
    if width > 512:
        return np.asarray(np.bitwise_count(rows).sum(axis=1, dtype=np.int64))
    # A sum along short rows is slow in NumPy. Read 8 bytes at once instead, wherever a row starts.
    flat = np.zeros(rows.size + width + 8, np.uint8)
    flat[: rows.size] = rows.reshape(-1)
    total = np.zeros(count, np.min_scalar_type(8 * width))
    for start in range(0, width, 8):
        words: Words = np.ndarray(count, "<u8", flat, start, (width,))
        if start + 8 > width:  # the last bytes are the next row's
            words = words << np.uint64(8 * (start + 8 - width))
        total += np.bitwise_count(words)
    return total
