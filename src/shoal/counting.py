"""Counting set bits by position: a carry-save adder tree over packed words.

Three words of weight w add up, bit by bit and without carries between positions, to one word of
weight w and one of weight 2w (Harley and Seal). Chained, this counts every position at once with
about five logic operations per word of input, whatever the data. The accumulators stay between
calls, so memory is constant however long the stream is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.vectors import Rows

_WORDS = 8192
"""Words that one logic operation handles: 64 KiB, so that the operands stay in the cache."""

Words = NDArray[np.uint64]


class BitCounter:
    """How often each bit position was set in all the rows added so far."""

    def __init__(self, row_bytes: int) -> None:
        self._row_bytes = row_bytes
        # The bit pattern of rows repeats after this many words.
        self._period = row_bytes // math.gcd(row_bytes, 8)
        self._width = max(1, _WORDS // self._period) * self._period
        self._sums: list[Words] = []  # one plane of weight 2^j each
        self._waiting: list[Words | None] = []  # a second plane of that weight, if there is one
        self._free: list[Words] = []
        self._scratch = (self._plane(), self._plane())
        self._folded = np.zeros(self._period * 64, np.int64)
        self._rest = np.zeros(2 * self._width * 8, np.uint8)  # rows short of a block
        self._rest_bytes = 0

    def _plane(self) -> Words:
        return np.zeros(self._width, np.uint64)

    def add(self, rows: Rows) -> None:
        """Count more rows."""
        flat = np.ascontiguousarray(rows).reshape(-1)
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
        total = self._folded.copy()
        planes = [(plane, j) for j, plane in enumerate(self._sums)]
        planes += [(plane, j) for j, plane in enumerate(self._waiting) if plane is not None]
        for plane, j in planes:
            total += self._column_sums(plane.view(np.uint8)) << j
        positions = total.reshape(-1, self._row_bytes * 8).sum(axis=0)
        rest = self._rest[: self._rest_bytes].reshape(-1, self._row_bytes)
        bits = np.unpackbits(rest, axis=1, bitorder="little")
        return np.asarray(positions + bits.sum(axis=0, dtype=np.int64))

    def _column_sums(self, flat: NDArray[np.uint8]) -> NDArray[np.int64]:
        bits = np.unpackbits(flat.reshape(-1, self._period * 8), axis=1, bitorder="little")
        return np.asarray(bits.sum(axis=0, dtype=np.int64))

    def _push_blocks(self, flat: NDArray[np.uint8]) -> None:
        for first, second in flat.view(np.uint64).reshape(-1, 2, self._width):
            self._push(first, second)

    def _push(self, first: Words, second: Words) -> None:
        """Add two planes of weight 1 and carry as far as pairs of planes are complete."""
        level = 0
        while True:
            if level == len(self._sums):
                self._sums.append(self._plane())
                self._waiting.append(None)
            carry = self._free.pop() if self._free else self._plane()
            self._add_carry_save(self._sums[level], first, second, carry)
            if level:  # at level 0 the planes are the caller's
                self._free += (first, second)
            level += 1
            if level == len(self._waiting):
                self._sums.append(self._plane())
                self._waiting.append(None)
            waiting = self._waiting[level]
            if waiting is None:
                self._waiting[level] = carry
                return
            self._waiting[level] = None
            first, second = waiting, carry

    def _add_carry_save(self, total: Words, first: Words, second: Words, carry: Words) -> None:
        """Set total, carry to the low and high bit of total + first + second."""
        differ, both = self._scratch
        xor, both_of = np.bitwise_xor, np.bitwise_and
        xor(first, second, differ)
        both_of(first, second, both)
        both_of(differ, total, carry)
        np.bitwise_or(carry, both, carry)
        xor(total, differ, total)


def count_set_bits(rows: Rows) -> NDArray[np.int64]:
    """Return how many bits each row has set."""
    if rows.shape[1] > 32:
        return np.asarray(np.bitwise_count(rows).sum(axis=1, dtype=np.int64))
    # For short rows a sum along the row is slow in NumPy; columns are few.
    total = np.zeros(len(rows), np.uint16)
    for column in rows.T:
        total += np.bitwise_count(column)
    return total.astype(np.int64)
