"""Sealing a message so that only the analyzer can open it: HPKE (RFC 9180), base mode.

The suite is X25519, HKDF-SHA256 and AES-128-GCM. A sealed message is the encapsulated key, 32
bytes, followed by the ciphertext. Every message has an encapsulation of its own. The plan, the
version and the window go into HPKE's `info`: a message opens only as what it was sealed for.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from shoal.errors import InputError, ReportError
from shoal.protocol.fragments import content_bytes, messages_of
from shoal.protocol.plan import Plan
from shoal.protocol.wire import ID_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import Suite

__all__ = [
    "KEY_BYTES",
    "OVERHEAD",
    "key_digest",
    "message_bytes",
    "open_message",
    "public_key_of",
    "seal_message",
    "sealed_report_bytes",
    "sealing_info",
]

VERSION = 1
KEY_BYTES = 32
OVERHEAD = KEY_BYTES + 16
"""Bytes that sealing adds: the encapsulated key and the tag."""

_INFO = struct.Struct("<18sB32sI")


def sealing_info(plan: Plan, window: int) -> bytes:
    """Return what every message of a plan and window is bound to."""
    return _INFO.pack(b"shoal sealed\0\0\0\0\0\0", VERSION, bytes.fromhex(plan.id), window)


def key_digest(public_key: bytes) -> bytes:
    """Return the name of a key: devices put it outside what they sealed."""
    return hashlib.sha256(public_key).digest()


def message_bytes(plan: Plan) -> int:
    """Return how many bytes a sealed message of a plan has: all have the same length."""
    return content_bytes(plan) + OVERHEAD


def sealed_report_bytes(plan: Plan) -> int:
    """Return how many bytes one report has on its way to the relay: its id and its messages."""
    return ID_BYTES + messages_of(plan) * message_bytes(plan)


@lru_cache(maxsize=1)
def _suite() -> Suite:
    try:
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ImportError as error:
        raise InputError(
            "sealing reports needs cryptography 47 or newer: pip install 'cryptography>=47'."
        ) from error
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def public_key_of(raw: bytes) -> X25519PublicKey:
    """Return a public key from its 32 bytes."""
    _suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    if len(raw) != KEY_BYTES:
        raise InputError(f"an analyzer's key is {KEY_BYTES} bytes, got {len(raw)}.")
    return X25519PublicKey.from_public_bytes(raw)


def seal_message(content: bytes, public_key: X25519PublicKey, info: bytes) -> bytes:
    """Seal one message, under an encapsulated key of its own."""
    return _suite().encrypt(content, public_key, info)


def open_message(message: bytes, private_key: X25519PrivateKey, info: bytes) -> bytes:
    """Open one message; anything that was not sealed for this key and `info` is a `ReportError`."""
    from cryptography.exceptions import InvalidTag

    try:
        return _suite().decrypt(message, private_key, info)
    except (InvalidTag, ValueError) as error:  # ValueError: the encapsulated key is no key
        raise ReportError("the message was not sealed for this key, plan and window.") from error
