r"""What is inside the sealed messages of one report, and how long they are.

Where the analyzer may see whole reports, a report is one message. Where it may see single bits
only, a report is cut into *fragments*: one message for each bit that is set, with its position,
and dummies up to a number of messages that the plan fixes, so that nobody learns from how many
there are. Bits that are not set are known from the size of the crowd.

======== ===== ==================================================================
whole    16    identifier of the message, random
.        2     cohort, little endian, if the plan has cohorts
.        n     the packed bits
fragment 16    identifier of the message, random
.        4     position of a set bit, little endian; `DUMMY` if there is none
======== ===== ==================================================================

Nothing in a message is shared by two messages of a report. The identifier is there so that the
analyzer sees a message that a relay forwarded twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from shoal.errors import ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, draw_below
from shoal.protocol.wire import ID_BYTES, file_row_bytes

__all__ = [
    "DUMMY",
    "content_bytes",
    "content_fields",
    "messages_of",
    "pack_fragments",
    "pack_whole",
    "set_positions",
]

DUMMY = 2**32 - 1
"""The position in a message that stands for no bit."""

_FRAGMENT = struct.Struct(f"<{ID_BYTES}sI")


def messages_of(plan: Plan) -> int:
    """Return as how many messages a report is sent."""
    return 1 if plan.parties is None else plan.parties.messages


def content_bytes(plan: Plan) -> int:
    """Return how many bytes a message has inside: the same for all messages of a plan."""
    if plan.view == "counts":
        return _FRAGMENT.size
    return ID_BYTES + file_row_bytes(plan.bits, plan.cohorts is not None)


def content_fields(plan: Plan) -> list[tuple[str, str] | tuple[str, str, tuple[int]]]:
    """Return the fields of a message, for whoever reads many at once.

    The identifier is two numbers, which can be sorted.
    """
    identifier: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [
        ("id_low", "<u8"),
        ("id_high", "<u8"),
    ]
    if plan.view == "counts":
        return [*identifier, ("position", "<u4")]
    row = file_row_bytes(plan.bits, plan.cohorts is not None)
    return [*identifier, ("row", "u1", (row,))]


def pack_whole(identifier: bytes, row: bytes) -> bytes:
    """Return the content of a message that holds a whole report, from its cohort on."""
    return identifier + row


def set_positions(value: int) -> list[int]:
    """Return the positions of the set bits of a vector.

    >>> set_positions(0b1010)
    [1, 3]
    """
    return [place for place in range(value.bit_length()) if value >> place & 1]


def pack_fragments(
    positions: Sequence[int], messages: int, random_bits: RandomBits
) -> Iterator[bytes]:
    """Yield the contents of a report's messages, in random order, each with an identifier."""
    if len(positions) > messages:
        raise ReportError(f"{len(positions)} set bits do not fit into {messages} messages.")
    every = [*positions, *([DUMMY] * (messages - len(positions)))]
    identifiers = bytearray(ID_BYTES * messages)
    random_bits.fill(identifiers)
    for place in range(messages):
        other = place + draw_below(messages - place, random_bits)
        every[place], every[other] = every[other], every[place]
        own = identifiers[ID_BYTES * place : ID_BYTES * (place + 1)]
        yield _FRAGMENT.pack(own, every[place])
