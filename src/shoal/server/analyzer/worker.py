"""A process that opens chunks: `python -m shoal.server.analyzer.worker`.

Opening holds Python's lock, so processes share the work. A worker reads a line with the keys from
its standard input, then a line for each chunk, and answers each with a line. Keys are not in its
arguments, which other users of the machine can see.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shoal.errors import ReportError
from shoal.protocol.encryption import chunk_header_bytes, decrypt_message
from shoal.server.analyzer.counting import Messages, Spilling, first_of_each


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
