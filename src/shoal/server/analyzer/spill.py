"""What workers leave on the disk for whoever counts: opened messages, in partitions, encrypted.

A message that came twice is found by its identifier. All identifiers of a crowd need not fit into
memory: messages are spread over partitions by a hash of their identifier, so that equal ones meet
in one partition, and a partition is read at a time. The hash is drawn anew for each opening.
Whoever chooses identifiers cannot choose where they go.

Opened messages must not be on a disk before the crowd is sealed, so each piece is encrypted under
a key that is in memory only and gone with the opening.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES

__all__ = ["Messages", "Spilling", "first_of_each"]

PARTITION_BYTES = 16 << 20
"""About how many bytes of messages a partition has."""

Messages = NDArray[np.uint8]
"""Opened messages, one a row."""

_TAG = 16
_NONCE = struct.Struct("<III")


@dataclass(frozen=True)
class Spilling:
    """How the messages of one opening are spread and encrypted."""

    width: int
    """Bytes of a message, opened."""
    partitions: int
    """A power of two."""
    multipliers: tuple[int, int]
    key: bytes

    @classmethod
    def new(cls, messages: int, width: int) -> Spilling:
        """Choose partitions for so many messages, with a hash and a key of their own."""
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
        """Return the messages of a partition, in the order of the chunks."""
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
