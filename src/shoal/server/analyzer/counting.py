"""From opened messages to a tally of the reports that can be read.

A message is a report. It counts if it was encrypted for the crowd, has the plan's bits and a cohort
of the plan, and an identifier of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from shoal.analysis.tally import Tally, Tallying
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES, padding_mask, row_bytes


@dataclass(frozen=True)
class OpenedCrowd:
    """The tally of a crowd that was opened, and how many of its messages could not be read.

    `unopened` were not encrypted for the crowd; `out_of_range` set a bit beyond the plan's, or name
    no cohort of the plan; `repeated` have the identifier of another message.
    """

    tally: Tally
    unopened: int
    out_of_range: int
    repeated: int

    @property
    def unreadable(self) -> int:
        """How many messages do not count towards the size of the crowd."""
        return self.unopened + self.out_of_range + self.repeated


class ReportCounting:
    """Counts a crowd's messages, of which no two have the same identifier."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.out_of_range = plan, 0
        self._tallying = Tallying(plan)

    def add(self, messages: Messages) -> None:
        plan, start = self._plan, ID_BYTES
        cohorts: NDArray[np.uint16] | None = None
        if plan.cohorts is not None:
            cohorts = np.ascontiguousarray(messages[:, start : start + 2]).view("<u2").reshape(-1)
            start += 2
        rows = messages[:, start : start + row_bytes(plan.bits)]
        inside = np.ones(len(rows), bool)
        if plan.bits % 8:
            inside &= (rows[:, -1] & (0xFF ^ padding_mask(plan.bits))) == 0
        if cohorts is not None and plan.cohorts is not None:
            inside &= cohorts < plan.cohorts
            cohorts = cohorts[inside].astype(np.uint16)
        self._tallying.add(rows[inside], cohorts=cohorts)
        self.out_of_range += len(rows) - int(inside.sum())

    def result(self, *, unopened: int, repeated: int) -> OpenedCrowd:
        return OpenedCrowd(self._tallying.result(), unopened, self.out_of_range, repeated)


PARTITION_BYTES = 16 << 20
"""About how many bytes of messages a partition has."""

Messages = NDArray[np.uint8]
"""Opened messages, one a row."""

_TAG = 16
_NONCE = struct.Struct("<III")


@dataclass(frozen=True)
class Spilling:
    """Decrypted messages on the disk, spread over partitions and encrypted again.

    A repeated message is found by its identifier. The identifiers of a crowd need not fit into
    memory: a hash of the identifier chooses the partition, so equal ones meet in one, and one
    partition is read at a time. The hash is drawn for each opening, so nobody who chooses
    identifiers chooses partitions. The key is in memory only: decrypted messages must not be on a
    disk before the crowd is released.
    """

    width: int
    """Bytes of a message, opened."""
    partitions: int
    """A power of two."""
    multipliers: tuple[int, int]
    key: bytes

    @classmethod
    def new(cls, messages: int, width: int) -> Spilling:
        """Choose partitions for a number of messages, with a hash and a key of their own."""
        wanted = max(-(-messages * width // PARTITION_BYTES), 1)
        drawn = SystemBits().draw(48)
        low, high = (int.from_bytes(drawn[at : at + 8], "little") | 1 for at in (32, 40))
        return cls(width, 1 << (wanted - 1).bit_length(), (low, high), drawn[:32])

    def _places(self, messages: Messages) -> NDArray[np.int64]:
        if self.partitions == 1:
            return np.zeros(len(messages), np.int64)
        low, high = identifiers(messages)
        a, b = (np.uint64(multiplier) for multiplier in self.multipliers)
        shift = np.uint64(64 - (self.partitions.bit_length() - 1))
        return ((low * a + high * b) >> shift).astype(np.int64)

    def write(self, path: Path, chunk: int, messages: Messages) -> None:
        """Write the messages of a chunk: how long each piece is, and the pieces."""
        places = self._places(messages)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places, minlength=self.partitions))
        sizes = np.diff(ends, prepend=0) * self.width + _TAG
        with path.open("wb") as file:
            file.write(sizes.astype("<u8").tobytes())
            start = 0
            for partition, end in enumerate(ends.tolist()):
                piece = messages[order[start:end]].tobytes()
                file.write(self._cipher.encrypt(_nonce(chunk, partition), piece, None))
                start = end

    @property
    def _cipher(self) -> AESGCM:
        return AESGCM(self.key)

    def read(self, paths: list[Path], partition: int) -> Messages:
        pieces = list(self._pieces(paths, partition))
        return np.frombuffer(b"".join(pieces), np.uint8).reshape(-1, self.width)

    def _pieces(self, paths: list[Path], partition: int) -> Iterator[bytes]:
        for chunk, path in enumerate(paths):
            with path.open("rb") as file:
                sizes = np.frombuffer(file.read(8 * (partition + 1)), "<u8")
                file.seek(8 * self.partitions + int(sizes[:-1].sum()))
                piece = file.read(int(sizes[-1]))
            yield self._cipher.decrypt(_nonce(chunk, partition), piece, None)


def _nonce(chunk: int, partition: int) -> bytes:
    return _NONCE.pack(chunk, partition, 0)


def identifiers(messages: Messages) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the identifiers of messages, as two numbers each."""
    numbers = np.ascontiguousarray(messages[:, :ID_BYTES]).view("<u8")
    return numbers[:, 0], numbers[:, 1]


def first_of_each(messages: Messages) -> Messages:
    """Return the messages without those whose identifier came before, in their order."""
    low, high = identifiers(messages)
    order = np.lexsort((low, high))  # stable: of equal ones, the first stays first
    same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
    if not same.any():
        return messages
    first = np.sort(order[np.concatenate([[True], ~same])])
    kept: Messages = messages[first]
    return kept
