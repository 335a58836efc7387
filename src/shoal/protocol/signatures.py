"""Ed25519 signatures of plans, certificates and keys, for devices that pin a key.

The collector signs the bytes of its response and sends the signature in a header. While it rotates
its key, it signs with the old and the new one, so that devices that pin either keep working.
"""

from __future__ import annotations

import base64

from shoal.errors import InputError, TransportError, missing_extra

SIGNATURE, KEY = "Shoal-Signature", "Shoal-Key"
"""The headers with the signatures and, for information only, their keys; all in base64url,
separated by commas."""

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
MAX_SIGNERS = 2
"""Keys that sign at the same time: the newest and, during the overlap, the one before."""


def check_public_key(key: bytes | str) -> bytes:
    """Return a collector's public key, 32 bytes, from its bytes or their base64url."""
    raw = key if isinstance(key, bytes) else _decoded(key)
    if raw is None or len(raw) != _KEY_BYTES:
        raise InputError("a collector's public key is 32 bytes, or 43 characters of base64url.")
    return raw


def check_signature(
    public_key: bytes, content: bytes, signature: str | None, what: str = "plan"
) -> None:
    """Raise `TransportError` unless the key made one of the signatures, over these exact bytes."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise missing_extra(error, "checking a signature") from None
    texts = signature.split(",") if isinstance(signature, str) else []
    decoded = [_decoded(text) for text in texts[:MAX_SIGNERS]]
    given = [raw for raw in decoded if raw is not None and len(raw) == _SIGNATURE_BYTES]
    if not given:
        raise TransportError(f"the {what} came without a signature of the pinned key; not used.")
    for one in given:
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(one, content)
        except (InvalidSignature, ValueError):  # a ValueError: these 32 bytes are not a key
            continue
        return
    raise TransportError(f"the {what} was not signed with the pinned key; not used.")


def _decoded(text: object) -> bytes | None:
    if not isinstance(text, str) or not text.isascii() or len(text) > 128:
        return None
    bare = text.strip().rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None


def key_text(content: bytes) -> str:
    """Return a key, or a signature, in base64url without padding."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def link_content(public_key: bytes) -> bytes:
    """Return what an old key signs of a new one; no document begins like that."""
    return b"shoal next key\0" + public_key
