"""Bytes that only the holder of a key can read, and nobody can change unnoticed.

Version 1: ``SHOALMEM`` (8 bytes), version (1), nonce (12), then AES-256-GCM of the content, with
everything before it as associated data. The content is padded to whole pages, so that the length of
a file tells little. Keys for different purposes are derived from the one that the host application
gives: HMAC-SHA256(key, purpose).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["check_key", "derive", "seal", "unseal"]

_MAGIC = b"SHOALMEM"
_VERSION = 1
_NONCE = 12
_PAGE = 4096


def check_key(key: object) -> bytes:
    """Return a key of 32 bytes."""
    if not isinstance(key, bytes) or len(key) != 32:
        size = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InputError(f"key must be 32 bytes from the host application's key store, got {size}.")
    if len(set(key)) == 1:
        raise InputError("key must be 32 random bytes, got one byte repeated.")
    return key


def derive(key: bytes, purpose: bytes) -> bytes:
    """Return the key for one purpose."""
    return hmac.digest(key, b"shoal-memory-1\0" + purpose, hashlib.sha256)


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt with a fresh nonce."""
    header = _MAGIC + bytes([_VERSION])
    nonce = SystemBits().draw(_NONCE)
    size = len(content).to_bytes(4, "little")
    padded = size + content + bytes(-(len(size) + len(content)) % _PAGE)
    return header + nonce + _cipher(key).encrypt(nonce, padded, header + nonce)


def unseal(key: bytes, sealed: bytes, where: object) -> bytes:
    """Decrypt; a wrong key or a changed byte is an error, never an empty content."""
    start = len(_MAGIC) + 1
    if len(sealed) < start + _NONCE or not sealed.startswith(_MAGIC):
        raise InputError(f"{where} is not a device's memory, or was cut short; it was not touched.")
    if sealed[start - 1] != _VERSION:
        raise InputError(f"{where} has version {sealed[start - 1]}; this Shoal reads {_VERSION}.")
    aside, body = sealed[: start + _NONCE], sealed[start + _NONCE :]
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        padded = cipher.decrypt(aside[start:], body, aside)
    except InvalidTag:
        raise InputError(
            f"{where} does not open: the key is not the one it was written with, or the file was"
            " changed; it was not touched. To start anew, remove it; the device then draws new"
            " permanent flips, which reveals more."
        ) from None
    return padded[4 : 4 + int.from_bytes(padded[:4], "little")]


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise InputError(
            "a device's memory is encrypted, which needs cryptography: pip install"
            " 'shoal-device[memory]'."
        ) from None
    return AESGCM(key)
