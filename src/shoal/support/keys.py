"""How a collector's keys are written, and what an old key signs of a new one."""

from __future__ import annotations

import base64

__all__ = ["key_text", "link_content"]


def key_text(content: bytes) -> str:
    """Return a key, or a signature, in base64url without padding.

    >>> key_text(bytes(3))
    'AAAA'
    """
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def link_content(public_key: bytes) -> bytes:
    """Return what an old key signs of a new one; no document begins like that."""
    return b"shoal next key\0" + public_key
