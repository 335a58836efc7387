"""Shuffles a complete crowd, and stores it as chunks: more messages than fit into memory.

Every message is thrown into one of B buckets, uniformly and independently; then each bucket is
permuted uniformly, and the buckets follow one another. For given sizes n_1, ..., n_B, each of the
n!/(n_1! ... n_B!) ways to fill the buckets is equally likely, and each order within them has
probability 1/(n_1! ... n_B!), so every order of all messages has probability 1/n! (theorem).

B is a power of two, so that random bits name a bucket exactly. A permutation is the order of random
words of 64 bits, drawn again if two are equal. Data that do not fit into memory are written to
files under a key that is never on the disk.

Chunks are files or rows under the crowd's key, written once, then only read. They are made anew
until the database says that all are there; no byte of them leaves before that.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.protocol.encryption import Chunk, chunk_header_bytes, message_bytes
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.server.relay.frozen_crowds import FrozenCrowd, FrozenCrowds
from shoal.server.storage.database import StorageError, own_files, storage_errors
from shoal.server.storage.encryption import decrypt, encrypt
from shoal.support.disk import Disk

BUCKET_BYTES = 8 << 20
"""Bytes that a bucket has on average, at most; it is in memory as a whole."""
BUFFERED_BYTES = 32 << 20
"""Bytes in memory before they are written to the buckets' files."""

FOLDER = "chunks"
LARGEST_CHUNK = 8 << 20
"""Bytes of a chunk with its header."""
_ROWS_AT_ONCE = 500
_NAME = re.compile(r"([0-9]+)-.*")
_LENGTH = struct.Struct("<I")

Messages = NDArray[np.uint8]
Reports = Callable[[int, int], tuple[list[bytes], int | None]]
"""Returns encrypted reports from a row on, and where to go on."""


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


def crowd_bytes(plan: Plan) -> int:
    return plan.reports_needed * message_bytes(plan)


class ShuffledChunks:
    """The chunks of all crowds on their way, and the files of shuffles, in the relay's folder.

    Where several relays share a database, `frozen` has the chunks, and the folder has only the
    buckets of a shuffle. `ask` then runs a function on the store's thread and waits for it.
    """

    def __init__(
        self, folder: Path, frozen: FrozenCrowds | None = None, ask: Callable[..., Any] = map
    ) -> None:
        self._folder, self._disk, self._frozen, self._ask = folder / FOLDER, Disk(), frozen, ask
        self._foreign: set[str] = set()

    def write(self, plan: Plan, crowd: FrozenCrowd, key: bytes, reports: Reports) -> int:
        """Shuffle a crowd, write its chunks durably, and return how many there are."""
        length = message_bytes(plan)
        each = (LARGEST_CHUNK - chunk_header_bytes()) // length
        count = -(-plan.reports_needed // each)
        with storage_errors():
            self._disk.make_folder(self._folder)
            self._begin(crowd)
            rows = _messages(reports, length)
            parts = shuffled(rows, crowd_bytes(plan), self._folder, str(crowd.number))
            written = 0
            for number, content in enumerate(_cut(parts, each)):
                written += len(content)
                about = plan.id, crowd.window, crowd.key.digest, number, count
                chunk = Chunk(*about, content.tobytes()).to_bytes()
                (piece,) = encrypt(key, (chunk, _about(crowd.number, number)))
                self._put(crowd, number, piece)
            self._disk.sync_folder(self._folder)
        if written != plan.reports_needed:
            raise StorageError(
                f"a crowd of {plan.reports_needed} reports has {written} on the disk."
            )
        return count

    def read(self, crowd: FrozenCrowd, key: bytes, number: int) -> bytes:
        with storage_errors():
            piece = self._get(crowd, number)
        return decrypt(key, piece, _about(crowd.number, number))

    def _begin(self, crowd: FrozenCrowd) -> None:
        """Remove the leftovers of an earlier shuffle of a crowd."""
        self.keep_only(crowd.number)
        while self._frozen is not None and self._ask(self._frozen.begin_attempt, crowd):
            pass

    def _put(self, crowd: FrozenCrowd, number: int, piece: bytes) -> None:
        if self._frozen is not None:
            self._ask(self._frozen.add_chunk, crowd, number, piece)
            return
        path = self._path(crowd.number, number)
        self._disk.write(path, piece)
        self._disk.sync_file(path)

    def _get(self, crowd: FrozenCrowd, number: int) -> bytes:
        if self._frozen is not None:
            return bytes(self._ask(self._frozen.chunk, crowd, number))
        return self._path(crowd.number, number).read_bytes()

    def keep_only(self, *less: int, numbers: Collection[int] | None = None) -> None:
        """Remove the files of some crowds, or of all but some; foreign names are logged once."""
        for path, named in own_files(self._folder, _NAME, self._foreign):
            number = int(named[1])
            if number in less or (numbers is not None and number not in numbers):
                self._disk.unlink(path)

    @property
    def size(self) -> int:
        total = 0
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another thread removes unneeded files
                    total += entry.stat().st_size
        return total

    def _path(self, number: int, chunk: int) -> Path:
        return self._folder / f"{number}-{chunk}.chunk"


def _about(number: int, chunk: int) -> str:
    return f"chunk {number} {chunk}"


def _messages(reports: Reports, length: int) -> Iterator[Messages]:
    """Yield the messages of a crowd, each a row, as they are on the disk."""
    following: int | None = 0
    while following is not None:
        found, following = reports(following, _ROWS_AT_ONCE)
        if found:
            yield np.frombuffer(b"".join(found), np.uint8).reshape(-1, length)


def _cut(parts: Iterable[Messages], each: int) -> Iterator[Messages]:
    """Yield the messages of all parts again, in batches of a given size."""
    held: list[Messages] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part)
        while count >= each:
            whole = np.concatenate(held)
            yield whole[:each]
            held, count = [whole[each:]], count - each
    if count:
        yield np.concatenate(held)
