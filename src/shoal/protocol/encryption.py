"""Encrypted reports: HPKE messages, their content, wire formats, and the key of a crowd.

HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and AES-128-GCM. A message is the encapsulated
key, 32 bytes, followed by the ciphertext; each message has an encapsulation of its own. HPKE's
`info` holds version, plan and window, so a message decrypts only for what it was encrypted for.

*Content.* Each report is one message. The identifier lets the analyzer drop a message that a relay
forwarded twice.

======== ===== ==================================================================
message  16    identifier of the message, random
.        2     cohort, little endian, if the plan has cohorts
.        n     the packed bits
======== ===== ==================================================================

*From a device to the relay:* reports of one plan, window and key, as in ``docs/clients.md``.

*From the relay to the analyzer:* the shuffled messages of a whole crowd, in chunks.

======== ===== ================================================================
header   7     magic ``SHUFFL`` and the version, 1
.        32    plan id
.        4     window number, little endian
.        32    SHA-256 of the public key
.        4     number of this chunk, from 0
.        4     number of chunks
messages       of n bytes each
======== ===== ================================================================

Neither has a field for who, where or when. All devices of a crowd use one key, because a device
with a key of its own could be recognized by it. So the relay accepts reports for one key only.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError, ReportError, missing_extra
from shoal.protocol.plan import Plan
from shoal.protocol.signatures import check_public_key, key_text
from shoal.protocol.wire import ENCRYPTED_MAGIC, ID_BYTES, MAX_REPORTS, file_row_bytes
from shoal.support.checks import check_integer, exact_fields
from shoal.support.files import canonical_json, strict_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import Suite
    from pyhpke import CipherSuite

VERSION = 1
SUITE = "X25519, HKDF-SHA256, AES-128-GCM"
KEM, KDF, AEAD = 0x20, 1, 1
"""The identifiers of the same."""

KEY_BYTES = 32
OVERHEAD = KEY_BYTES + 16
"""Bytes that encryption adds: the encapsulated key and the tag."""

CHUNK_MAGIC = b"SHUFFL\x01"
CHUNK_TYPE = "application/vnd.shoal.shuffled"
MAX_KEY_DOCUMENT = 4096

_INFO = struct.Struct("<18sB32sI")
_REPORTS = struct.Struct("<7s32sI32sI")
_CHUNK = struct.Struct("<7s32sI32sII")


@lru_cache(maxsize=1)
def _suite() -> Suite:
    try:
        from cryptography.hazmat.primitives import hpke
    except ImportError as error:
        raise missing_extra(error, "encrypting reports") from None
    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)


@lru_cache(maxsize=2)
def exporting_suite(purpose: str) -> CipherSuite:
    """Return the same suite of `pyhpke`, which has associated data and exported secrets."""
    try:
        from pyhpke import AEADId, CipherSuite, KDFId, KEMId
    except ImportError as error:
        raise missing_extra(error, purpose) from None
    return CipherSuite.new(KEMId(KEM), KDFId(KDF), AEADId(AEAD))


def public_key_of(raw: bytes) -> X25519PublicKey:
    _suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    if len(raw) != KEY_BYTES:
        raise InputError(f"an analyzer's key is {KEY_BYTES} bytes, got {len(raw)}.")
    return X25519PublicKey.from_public_bytes(raw)


def encryption_info(plan: Plan, window: int) -> bytes:
    """Return HPKE's `info` for all messages of a plan and window."""
    return _INFO.pack(b"shoal encrypted\0\0\0", VERSION, bytes.fromhex(plan.id), window)


def encrypt_message(content: bytes, public_key: X25519PublicKey, info: bytes) -> bytes:
    """Encrypt one message under an encapsulated key of its own."""
    return _suite().encrypt(content, public_key, info)


def decrypt_message(message: bytes, private_key: X25519PrivateKey, info: bytes) -> bytes:
    """Decrypt one message; `ReportError` unless it was encrypted for this key and `info`."""
    from cryptography.exceptions import InvalidTag

    try:
        return _suite().decrypt(message, private_key, info)
    except (InvalidTag, ValueError) as error:  # ValueError: the encapsulated key is invalid
        raise ReportError("the message was not encrypted for this key, plan and window.") from error


def key_digest(public_key: bytes) -> bytes:
    return hashlib.sha256(public_key).digest()


def content_bytes(plan: Plan) -> int:
    """Return the length of a message's content, which is the same for all messages of a plan."""
    return ID_BYTES + file_row_bytes(plan.bits, plan.cohorts is not None)


def message_bytes(plan: Plan) -> int:
    """Return the length of an encrypted message, which is the same for all messages of a plan."""
    return content_bytes(plan) + OVERHEAD


def encrypted_report_bytes(plan: Plan) -> int:
    """Return the length of one report on its way to the relay: its id and its message."""
    return ID_BYTES + message_bytes(plan)


def encrypted_batch_bytes(plan: Plan, count: int) -> int:
    return _REPORTS.size + count * encrypted_report_bytes(plan)


@dataclass(frozen=True)
class EncryptedReports:
    """Reports of one plan, window and key, `length` bytes each, concatenated."""

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
        plan_id = bytes.fromhex(self.plan_id)
        header = _REPORTS.pack(ENCRYPTED_MAGIC, plan_id, self.window, self.key, len(self))
        return header + self.content


def split_encrypted(plan: Plan, content: bytes) -> EncryptedReports:
    """Parse the body of a request; anything else raises `ReportError`."""
    window, key, count = _header(_REPORTS, ENCRYPTED_MAGIC, plan, content)
    if not 1 <= count <= MAX_REPORTS:
        raise ReportError(f"a request holds 1 to {MAX_REPORTS} reports, got {count}.")
    length, body = encrypted_report_bytes(plan), content[_REPORTS.size :]
    if len(body) != count * length:
        raise ReportError(
            f"{count} encrypted reports of this plan take {count * length} bytes, got {len(body)}."
        )
    return EncryptedReports(plan.id, window, key, length, body)


def _header(layout: struct.Struct, magic: bytes, plan: Plan, content: bytes) -> tuple[Any, ...]:
    """Return the fields of a header behind magic and plan."""
    if len(content) < layout.size or not content.startswith(magic):
        raise ReportError(f"this is no message {magic[:6].decode()} of version {magic[6]}.")
    _, plan_id, *fields = layout.unpack_from(content)
    if plan_id.hex() != plan.id:
        raise ReportError("the message is for another plan.")
    return tuple(fields)


@dataclass(frozen=True)
class Chunk:
    """Part `number` of `chunks` of the shuffled messages of one crowd."""

    plan_id: str
    window: int
    key: bytes
    number: int
    chunks: int
    content: bytes

    def to_bytes(self) -> bytes:
        plan_id, place = bytes.fromhex(self.plan_id), (self.number, self.chunks)
        return _CHUNK.pack(CHUNK_MAGIC, plan_id, self.window, self.key, *place) + self.content


def chunk_header_bytes() -> int:
    return _CHUNK.size


def split_chunk(plan: Plan, content: bytes) -> Chunk:
    """Parse a chunk of a plan's crowd; anything else raises `ReportError`."""
    window, key, number, chunks = _header(_CHUNK, CHUNK_MAGIC, plan, content)
    chunk = Chunk(plan.id, window, key, number, chunks, content[_CHUNK.size :])
    if chunk.number >= chunk.chunks or len(chunk.content) % message_bytes(plan):
        raise ReportError("the chunk does not match its header.")
    return chunk


@dataclass(frozen=True)
class CrowdKey:
    """The public key of one crowd of a plan and window, in a document that the analyzer signs.

    The document is canonical JSON; its signature travels in the header ``Shoal-Signature``.
    """

    plan_id: str
    window: int
    crowd: int
    public_key: bytes

    @cached_property
    def digest(self) -> bytes:
        return key_digest(self.public_key)

    def to_bytes(self) -> bytes:
        """Return the document that is signed."""
        numbers = {"crowd": self.crowd, "window": self.window, "version": VERSION}
        texts = {"key": key_text(self.public_key), "plan": self.plan_id, "suite": SUITE}
        return canonical_json(numbers | texts)

    @classmethod
    def from_bytes(cls, content: bytes) -> CrowdKey:
        """Read a document whose signature was checked before; otherwise raise `ReportError`."""
        names = {"crowd", "key", "plan", "suite", "version", "window"}
        if len(content) > MAX_KEY_DOCUMENT:
            raise ReportError(f"a key document has at most {MAX_KEY_DOCUMENT} bytes.")
        try:
            parsed = strict_json(content)
        except ValueError as error:
            raise ReportError("a key document is JSON.") from error
        fields = exact_fields("a key document", parsed, names, error=ReportError)
        if (fields["version"], fields["suite"]) != (VERSION, SUITE):
            raise ReportError(f"this Shoal encrypts with version {VERSION}, {SUITE}.")
        try:
            public_key = check_public_key(fields["key"])
        except InputError as error:
            raise ReportError(f"a key is {KEY_BYTES} bytes in base64url.") from error
        for name in ("window", "crowd"):
            check_integer(name, fields[name], lowest=0, highest=2**32 - 1, error=ReportError)
        key = cls(str(fields["plan"]), fields["window"], fields["crowd"], public_key)
        if key.to_bytes() != content:
            raise ReportError("the key document is not in its canonical form.")
        return key
