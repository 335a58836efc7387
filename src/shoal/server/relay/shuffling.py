"""A uniform shuffle of more messages than fit into memory, in two passes.

Every message is thrown into one of B buckets, uniformly and independently; then each bucket is
permuted uniformly, and the buckets follow one another. For given sizes n_1, ..., n_B, each of the
n!/(n_1! ... n_B!) ways to fill the buckets is equally likely, and each order within them has
probability 1/(n_1! ... n_B!), so every order of all messages has probability 1/n! (theorem).

B is a power of two, so that random bits name a bucket exactly. A permutation is the order of random
words of 64 bits, drawn again if two are equal. Data that do not fit into memory are written to
files under a key that is never on the disk.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.random_bits import SystemBits
from shoal.server.storage.encryption import decrypt, encrypt

BUCKET_BYTES = 8 << 20
"""Bytes that a bucket has on average, at most; it is in memory as a whole."""
BUFFERED_BYTES = 32 << 20
"""Bytes in memory before they are written to the buckets' files."""

_LENGTH = struct.Struct("<I")
Messages = NDArray[np.uint8]


def permutation(count: int) -> NDArray[np.intp]:
    """Return a uniformly random order of `count` things."""
    words = np.empty(count, np.uint64)
    while True:
        SystemBits().fill(words)
        order = np.argsort(words)
        ordered = words[order]
        if not (ordered[1:] == ordered[:-1]).any():
            return order


def shuffled(
    parts: Iterable[Messages], total_bytes: int, folder: Path, name: str
) -> Iterator[Messages]:
    """Yield all messages in a uniformly random order, some at a time.

    Each message is a row of `parts`; together they have `total_bytes`. If they do not fit into
    memory, files in `folder` whose names begin with `name` hold the rest.
    """
    buckets = _Buckets(_bucket_count(total_bytes), folder, name)
    try:
        for part in parts:
            buckets.throw(part)
        for bucket in range(buckets.count):
            messages = buckets.take(bucket)
            yield messages[permutation(len(messages))]
    finally:
        buckets.remove()


def _bucket_count(total_bytes: int) -> int:
    count = 1
    while count * BUCKET_BYTES < total_bytes and count < 1 << 16:
        count *= 2
    return count


class _Buckets:
    """Buckets in memory, and in files beyond that."""

    def __init__(self, count: int, folder: Path, name: str) -> None:
        self.count, self._folder, self._name = count, folder, name
        self._held: list[list[Messages]] = [[] for _ in range(count)]
        self._bytes, self._length = 0, 0
        self._key = SystemBits().draw(32)

    def throw(self, messages: Messages) -> None:
        """Throw each message into a bucket of its own choice."""
        self._length = messages.shape[1]
        chosen = np.empty(len(messages), np.uint16)
        SystemBits().fill(chosen)
        chosen &= self.count - 1
        order = np.argsort(chosen, kind="stable")
        sizes = np.bincount(chosen, minlength=self.count)
        ends = np.cumsum(sizes)
        for bucket in np.flatnonzero(sizes).tolist():
            here = order[ends[bucket] - sizes[bucket] : ends[bucket]]
            self._held[bucket].append(messages[here])
        self._bytes += messages.size
        if self.count > 1 and self._bytes > BUFFERED_BYTES:
            self._spill()

    def _spill(self) -> None:
        for bucket, parts in enumerate(self._held):
            if parts:
                content = np.concatenate(parts).tobytes()
                (piece,) = encrypt(self._key, (content, str(bucket)))
                with self._file(bucket).open("ab") as file:
                    file.write(_LENGTH.pack(len(piece)) + piece)
                parts.clear()
        self._bytes = 0

    def take(self, bucket: int) -> Messages:
        parts = self._held[bucket]
        self._held[bucket] = []
        path = self._file(bucket)
        if path.exists():
            with path.open("rb") as file:
                while head := file.read(_LENGTH.size):
                    piece = file.read(_LENGTH.unpack(head)[0])
                    content = decrypt(self._key, piece, str(bucket))
                    parts.append(np.frombuffer(content, np.uint8).reshape(-1, self._length))
            path.unlink()
        return np.concatenate(parts) if parts else np.empty((0, self._length), np.uint8)

    def _file(self, bucket: int) -> Path:
        return self._folder / f"{self._name}-{bucket}.part"

    def remove(self) -> None:
        for bucket in range(self.count):
            self._file(bucket).unlink(missing_ok=True)
