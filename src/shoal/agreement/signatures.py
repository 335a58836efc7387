"""Plans and certificates that a collector signed, for devices that pin its key.

A plan's id already says what it must be. A pinned key says who stands behind it: the collector
signs the bytes of its answer with Ed25519 and puts the signature beside them. A certificate is
worth nothing without that: it is the signer's word for what the plan was computed to promise.

A collector that changes its key signs the new one with the old one. A device that pinned an old key
follows these links, however many there were.
"""

from __future__ import annotations

from shoal.errors import InputError, TransportError
from shoal.support.files import strict_json
from shoal.support.keys import link_content
from shoal.support.later import Mapping, base64

__all__ = ["check_public_key", "check_signature", "follow_links"]

SIGNATURE, KEY = "Shoal-Signature", "Shoal-Key"
"""The headers that carry the signature and, for people who look, the key; both in base64url."""

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
MOST_LINKS = 1000
LARGEST_KEYS = 1 << 20


def check_public_key(key: bytes | str) -> bytes:
    """Return a collector's public key, 32 bytes, from its bytes or their base64url.

    >>> check_public_key("A" * 43) == bytes(32)
    True
    """
    raw = key if isinstance(key, bytes) else _decoded(key)
    if raw is None or len(raw) != _KEY_BYTES:
        raise InputError("a collector's public key is 32 bytes, or 43 characters of base64url.")
    return raw


def check_signature(
    public_key: bytes, content: bytes, signature: str | None, what: str = "plan"
) -> None:
    """Raise `TransportError` unless the key's holder signed exactly these bytes."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise InputError(
            "checking a signature needs cryptography: pip install 'shoal-device[signatures]'."
        ) from None
    given = _decoded(signature)
    if given is None or len(given) != _SIGNATURE_BYTES:
        raise TransportError(f"the {what} came without a signature of the pinned key; not used.")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(given, content)
    except (InvalidSignature, ValueError):  # a ValueError: these 32 bytes are no key
        raise TransportError(f"the {what} was not signed with the pinned key; not used.") from None


def follow_links(public_key: bytes, content: bytes) -> bytes:
    """Return the newest key that a pinned one leads to, from the collector's list of its keys.

    Without a link that the pinned key signed, that is the pinned key itself.
    """
    try:
        document = strict_json(content)
    except ValueError:
        document = None
    links = document.get("links") if isinstance(document, Mapping) else None
    if not isinstance(links, list) or len(links) > MOST_LINKS:
        raise TransportError("the collector's list of its keys cannot be read.")
    for link in links:
        if not isinstance(link, Mapping) or _decoded(link.get("key")) != public_key:
            continue
        following = _decoded(link.get("next"))
        if following is None or len(following) != _KEY_BYTES:
            raise TransportError("the collector's list of its keys cannot be read.")
        check_signature(public_key, link_content(following), link.get("signature"))
        public_key = following
    return public_key


def _decoded(text: object) -> bytes | None:
    if not isinstance(text, str) or not text.isascii() or len(text) > 128:
        return None
    bare = text.strip().rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
