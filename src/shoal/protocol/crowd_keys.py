"""The key that the reports of one crowd are sealed for, in a document that the analyzer signs.

The plan's id does not depend on keys. All devices of a crowd use one key: a device with a key of
its own could be told apart by it. So the relay accepts reports for the key that it was given
itself, and no other; a device names the key that it used by its digest.

The document is canonical JSON, and its signature travels beside it (`Shoal-Signature`).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property

from shoal.errors import ReportError
from shoal.protocol.encryption import KEY_BYTES, key_digest
from shoal.support.checks import check_integer
from shoal.support.documents import exact_fields
from shoal.support.files import canonical_json, strict_json
from shoal.support.keys import key_text

__all__ = ["CrowdKey"]

VERSION = 1
SUITE = "X25519, HKDF-SHA256, AES-128-GCM"
LARGEST = 4096
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
                "version": VERSION,
                "window": self.window,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> CrowdKey:
        """Read a document; the signature is checked before. Else it is a `ReportError`."""
        names = {"crowd", "key", "plan", "suite", "version", "window"}
        if len(content) > LARGEST:
            raise ReportError(f"a key document has at most {LARGEST} bytes.")
        try:
            parsed = strict_json(content)
        except ValueError as error:
            raise ReportError("a key document is JSON.") from error
        fields = exact_fields("a key document", parsed, names, error=ReportError)
        if (fields["version"], fields["suite"]) != (VERSION, SUITE):
            raise ReportError(f"this Shoal seals with version {VERSION}, {SUITE}.")
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
