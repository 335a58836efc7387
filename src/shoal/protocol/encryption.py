"""Sealing a message so that only the analyzer can open it: HPKE (RFC 9180), base mode.

The suite is X25519, HKDF-SHA256 and AES-128-GCM. A sealed message is the encapsulated key, 32
bytes, followed by the ciphertext. Every message has an encapsulation of its own. The plan, the
version and the window go into HPKE's `info`: a message opens only as what it was sealed for.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from shoal.errors import InputError, ReportError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import RandomBits, draw_below
from shoal.protocol.signatures import key_text
from shoal.protocol.wire import ENCRYPTED_MAGIC, ID_BYTES, MAX_REPORTS, file_row_bytes
from shoal.support.checks import check_integer, exact_fields
from shoal.support.files import canonical_json, strict_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import Suite

__all__ = [
    "DUMMY",
    "KEY_BYTES",
    "OVERHEAD",
    "Chunk",
    "CrowdKey",
    "EncryptedReports",
    "chunk_header_bytes",
    "content_bytes",
    "content_fields",
    "decrypt_message",
    "encrypt_message",
    "encrypted_report_bytes",
    "encryption_info",
    "key_digest",
    "message_bytes",
    "messages_of",
    "pack_fragments",
    "pack_whole",
    "public_key_of",
    "set_positions",
    "split_chunk",
    "split_encrypted",
]

VERSION = 1
KEY_BYTES = 32
OVERHEAD = KEY_BYTES + 16
"""Bytes that sealing adds: the encapsulated key and the tag."""

_INFO = struct.Struct("<18sB32sI")


def encryption_info(plan: Plan, window: int) -> bytes:
    """Return what every message of a plan and window is bound to."""
    return _INFO.pack(b"shoal sealed\0\0\0\0\0\0", VERSION, bytes.fromhex(plan.id), window)


def key_digest(public_key: bytes) -> bytes:
    """Return the name of a key: devices put it outside what they sealed."""
    return hashlib.sha256(public_key).digest()


def message_bytes(plan: Plan) -> int:
    """Return how many bytes a sealed message of a plan has: all have the same length."""
    return content_bytes(plan) + OVERHEAD


def encrypted_report_bytes(plan: Plan) -> int:
    """Return how many bytes one report has on its way to the relay: its id and its messages."""
    return ID_BYTES + messages_of(plan) * message_bytes(plan)


@lru_cache(maxsize=1)
def _suite() -> Suite:
    try:
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ImportError as error:
        raise InputError(
            "encrypting reports needs cryptography 47 or newer: pip install 'shoal[encryption]'."
        ) from error
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def public_key_of(raw: bytes) -> X25519PublicKey:
    """Return a public key from its 32 bytes."""
    _suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    if len(raw) != KEY_BYTES:
        raise InputError(f"an analyzer's key is {KEY_BYTES} bytes, got {len(raw)}.")
    return X25519PublicKey.from_public_bytes(raw)


def encrypt_message(content: bytes, public_key: X25519PublicKey, info: bytes) -> bytes:
    """Seal one message, under an encapsulated key of its own."""
    return _suite().encrypt(content, public_key, info)


def decrypt_message(message: bytes, private_key: X25519PrivateKey, info: bytes) -> bytes:
    """Open one message; anything that was not sealed for this key and `info` is a `ReportError`."""
    from cryptography.exceptions import InvalidTag

    try:
        return _suite().decrypt(message, private_key, info)
    except (InvalidTag, ValueError) as error:  # ValueError: the encapsulated key is no key
        raise ReportError("the message was not sealed for this key, plan and window.") from error


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


CHUNK_MAGIC = b"SHUFFL\x01"
CHUNK_TYPE = "application/vnd.shoal.shuffled"

_SEALED = struct.Struct("<7s32sI32sI")
_CHUNK = struct.Struct("<7s32sI32sIIQ")


@dataclass(frozen=True)
class EncryptedReports:
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
        return (
            _SEALED.pack(ENCRYPTED_MAGIC, plan_id, self.window, self.key, len(self)) + self.content
        )


def encrypted_batch_bytes(plan: Plan, count: int) -> int:
    """Return how many bytes a request with so many sealed reports has."""
    return _SEALED.size + count * encrypted_report_bytes(plan)


def split_encrypted(plan: Plan, content: bytes) -> EncryptedReports:
    """Return the reports in a request; anything else raises `ReportError`."""
    if len(content) < _SEALED.size:
        raise ReportError(f"sealed reports start with {_SEALED.size} bytes, got {len(content)}.")
    magic, plan_id, window, key, count = _SEALED.unpack_from(content)
    if magic != ENCRYPTED_MAGIC:
        raise ReportError("these are no sealed reports of version 1.")
    if plan_id.hex() != plan.id:
        raise ReportError("the reports are for another plan.")
    if not 1 <= count <= MAX_REPORTS:
        raise ReportError(f"a request holds 1 to {MAX_REPORTS} reports, got {count}.")
    length, body = encrypted_report_bytes(plan), content[_SEALED.size :]
    if len(body) != count * length:
        raise ReportError(
            f"{count} sealed reports of this plan take {count * length} bytes, got {len(body)}."
        )
    return EncryptedReports(plan.id, window, key, length, body)


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


KEY_VERSION = 1
SUITE = "X25519, HKDF-SHA256, AES-128-GCM"
MAX_KEY_BYTES = 4096
"""Bytes of a key document that are read before giving up."""


@dataclass(frozen=True)
class CrowdKey:
    """The public key of one crowd: of a plan, a window, and the number of the crowd in it.

    >>> key = CrowdKey("ab" * 32, window=20401, crowd=1, public_key=bytes(32))
    >>> CrowdKey.from_bytes(key.to_bytes()) == key
    True
    """

    plan_id: str
    window: int
    crowd: int
    public_key: bytes

    @cached_property
    def digest(self) -> bytes:
        """The name of the key."""
        return key_digest(self.public_key)

    def to_bytes(self) -> bytes:
        """Return the document that is signed."""
        return canonical_json(
            {
                "crowd": self.crowd,
                "key": key_text(self.public_key),
                "plan": self.plan_id,
                "suite": SUITE,
                "version": KEY_VERSION,
                "window": self.window,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> CrowdKey:
        """Read a document; the signature is checked before. Else it is a `ReportError`."""
        names = {"crowd", "key", "plan", "suite", "version", "window"}
        if len(content) > MAX_KEY_BYTES:
            raise ReportError(f"a key document has at most {MAX_KEY_BYTES} bytes.")
        try:
            parsed = strict_json(content)
        except ValueError as error:
            raise ReportError("a key document is JSON.") from error
        fields = exact_fields("a key document", parsed, names, error=ReportError)
        if (fields["version"], fields["suite"]) != (KEY_VERSION, SUITE):
            raise ReportError(f"this Shoal seals with version {KEY_VERSION}, {SUITE}.")
        key = cls(str(fields["plan"]), fields["window"], fields["crowd"], _key(fields["key"]))
        for name in ("window", "crowd"):
            check_integer(name, fields[name], lowest=0, highest=2**32 - 1, error=ReportError)
        if key.to_bytes() != content:
            raise ReportError("the key document is not in its canonical form.")
        return key


def _key(text: object) -> bytes:
    try:
        raw = base64.b64decode(f"{text}=", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ReportError("a key is base64url.") from error
    if len(raw) != KEY_BYTES:
        raise ReportError(f"a key is {KEY_BYTES} bytes, got {len(raw)}.")
    return raw
