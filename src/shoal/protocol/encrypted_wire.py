"""The wire form of sealed reports: from devices to a relay, and from a relay to the analyzer.

A device sends reports of one plan, window and key, each with all of its messages or not at all:

======== ===== ================================================================
header   7     magic ``SEALED`` and the version, 1
.        32    plan id
.        4     window number, little endian
.        32    digest of the key that the messages are sealed for
.        4     count, little endian
report   16    report id, random: a report sent twice is forwarded once
.        W n   its W messages of n bytes
======== ===== ================================================================

A relay forwards the messages of a whole crowd, shuffled, in chunks:

======== ===== ================================================================
header   7     magic ``SHUFFL`` and the version, 1
.        32    plan id
.        4     window number, little endian
.        32    digest of the key
.        4     number of this chunk, from 0
.        4     number of chunks
.        8     messages in all chunks
messages       of n bytes each
======== ===== ================================================================

Neither has a field for who, where or when.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shoal.errors import ReportError
from shoal.protocol.encryption import message_bytes, sealed_report_bytes
from shoal.protocol.plan import Plan
from shoal.protocol.wire import ID_BYTES, MOST_REPORTS, SEALED_MAGIC

__all__ = ["Chunk", "SealedReports", "chunk_header_bytes", "split_chunk", "split_sealed"]

CHUNK_MAGIC = b"SHUFFL\x01"
CHUNK_TYPE = "application/vnd.shoal.shuffled"

_SEALED = struct.Struct("<7s32sI32sI")
_CHUNK = struct.Struct("<7s32sI32sIIQ")


@dataclass(frozen=True)
class SealedReports:
    """Sealed reports of one plan, window and key, `length` bytes each, one behind the other."""

    plan_id: str
    window: int
    key: bytes
    length: int
    content: bytes

    def __len__(self) -> int:
        return len(self.content) // self.length

    @property
    def ids(self) -> list[bytes]:
        """The identifier of each report, which the relay sees."""
        places = range(0, len(self.content), self.length)
        return [self.content[place : place + ID_BYTES] for place in places]

    def to_bytes(self) -> bytes:
        """Return the reports as they are sent."""
        plan_id = bytes.fromhex(self.plan_id)
        return _SEALED.pack(SEALED_MAGIC, plan_id, self.window, self.key, len(self)) + self.content


def sealed_batch_bytes(plan: Plan, count: int) -> int:
    """Return how many bytes a request with so many sealed reports has."""
    return _SEALED.size + count * sealed_report_bytes(plan)


def split_sealed(plan: Plan, content: bytes) -> SealedReports:
    """Return the reports in a request; anything else raises `ReportError`."""
    if len(content) < _SEALED.size:
        raise ReportError(f"sealed reports start with {_SEALED.size} bytes, got {len(content)}.")
    magic, plan_id, window, key, count = _SEALED.unpack_from(content)
    if magic != SEALED_MAGIC:
        raise ReportError("these are no sealed reports of version 1.")
    if plan_id.hex() != plan.id:
        raise ReportError("the reports are for another plan.")
    if not 1 <= count <= MOST_REPORTS:
        raise ReportError(f"a request holds 1 to {MOST_REPORTS} reports, got {count}.")
    length, body = sealed_report_bytes(plan), content[_SEALED.size :]
    if len(body) != count * length:
        raise ReportError(
            f"{count} sealed reports of this plan take {count * length} bytes, got {len(body)}."
        )
    return SealedReports(plan.id, window, key, length, body)


@dataclass(frozen=True)
class Chunk:
    """A part of the shuffled messages of one crowd.

    `number` counts from 0 to `chunks` - 1, and `messages` is how many messages all chunks have.
    """

    plan_id: str
    window: int
    key: bytes
    number: int
    chunks: int
    messages: int
    content: bytes

    def to_bytes(self) -> bytes:
        """Return the chunk as it is forwarded."""
        return (
            _CHUNK.pack(
                CHUNK_MAGIC,
                bytes.fromhex(self.plan_id),
                self.window,
                self.key,
                self.number,
                self.chunks,
                self.messages,
            )
            + self.content
        )


def chunk_header_bytes() -> int:
    """Return how many bytes a chunk has before its messages."""
    return _CHUNK.size


def split_chunk(plan: Plan, content: bytes) -> Chunk:
    """Return a chunk of a plan's crowd; anything else raises `ReportError`."""
    if len(content) < _CHUNK.size:
        raise ReportError(f"a chunk starts with {_CHUNK.size} bytes, got {len(content)}.")
    magic, plan_id, window, key, number, chunks, messages = _CHUNK.unpack_from(content)
    if magic != CHUNK_MAGIC:
        raise ReportError("this is no chunk of a crowd of version 1.")
    if plan_id.hex() != plan.id:
        raise ReportError("the chunk is for another plan.")
    chunk = Chunk(plan.id, window, key, number, chunks, messages, content[_CHUNK.size :])
    if chunk.number >= chunk.chunks or len(chunk.content) % message_bytes(plan):
        raise ReportError("the chunk is not what its header says.")
    return chunk
