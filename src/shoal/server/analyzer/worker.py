"""A process that opens chunks: `python -m shoal.server.analyzer.worker`.

Opening holds Python's lock, so processes share the work. A worker reads a line with the keys from
its standard input, then a line for each chunk, and answers each with a line. Keys are not in its
arguments, which other users of the machine can see.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from shoal.errors import ReportError
from shoal.protocol.encryption import chunk_header_bytes, decrypt_message
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import ID_BYTES

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


class Keys(NamedTuple):
    """What all chunks of a crowd are opened with."""

    secret: bytes
    info: bytes
    length: int
    """Bytes of an encrypted message."""
    spilling: Spilling

    def to_line(self) -> str:
        """Return the keys as the first line that a worker reads."""
        return msgspec.json.encode(self).decode()


def decrypt_chunk(
    keys: Keys, chunk: int, source: Path, digest: str, target: Path
) -> dict[str, Any]:
    """Decrypt the messages of a chunk into a file; return how many could not be read, and why."""
    content = source.read_bytes() if source.exists() else b""
    if hashlib.sha256(content).hexdigest() != digest:
        return {"damaged": chunk}
    opened = _open_all(content[chunk_header_bytes() :], keys)
    messages = len(opened) // keys.spilling.width
    rows: Messages = np.frombuffer(opened, np.uint8).reshape(messages, keys.spilling.width)
    first = first_of_each(rows)
    keys.spilling.write(target, chunk, first)
    encrypted = (len(content) - chunk_header_bytes()) // keys.length
    return {"chunk": chunk, "unopened": encrypted - messages, "repeated": messages - len(first)}


def _open_all(content: bytes, keys: Keys) -> bytearray:
    """Return the contents of all messages that can be opened, one behind the other."""
    secret, out = X25519PrivateKey.from_private_bytes(keys.secret), bytearray()
    for start in range(0, len(content), keys.length):
        try:
            out += decrypt_message(content[start : start + keys.length], secret, keys.info)
        except ReportError:
            continue
    return out


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


def _work(lines: TextIO, answers: TextIO) -> None:
    keys = msgspec.json.decode(lines.readline(), type=Keys)
    for line in lines:
        chunk, source, digest, target = json.loads(line)
        try:
            answer = decrypt_chunk(keys, chunk, Path(source), digest, Path(target))
        except OSError as error:  # of the disk
            answer = {"failed": error.strerror}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _work(sys.stdin, sys.stdout)
