"""Ed25519 signatures of plans, certificates and keys, and the public file of a party.

The collector signs the bytes of its response and sends the signature in a header, for devices that
pin a key. While it rotates its key, it signs with the old and the new one, so that devices that pin
either keep working.

The public file of a party has its role, address and keys, signed by the party itself. Each party
makes the file on its own machine and hands it to the other one, by whatever way. The signature
shows a change on that way; the fingerprint, compared by telephone, shows whose file it is.
Everything in the file is public. What only the two may know they derive from it, each with a
private key that never leaves its machine (`shoal.server.core.parties`).
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from shoal.errors import InputError, TransportError, missing_extra
from shoal.protocol.plan import ONE_OPERATOR
from shoal.support.checks import check_integer, check_origin, check_text, exact_fields, shown
from shoal.support.files import canonical_json, explain_wrong_file, read_json, write_text

SIGNATURE, KEY = "Shoal-Signature", "Shoal-Key"
"""The headers with the signatures and, for information only, their keys; all in base64url,
separated by commas."""

_KEY_BYTES, _SIGNATURE_BYTES = 32, 64
MAX_SIGNERS = 2
"""Keys that sign at the same time: the newest and, during the overlap, the one before."""

ROLES = {
    "relay": ("analyzer",),
    "analyzer": ("relay",),
    "leader": ("helper", "analyst"),
    "helper": ("leader", "analyst"),
    "analyst": ("leader", "helper"),
}
"""Each role, and those of the others in its deployment."""

MAX_AGE_DAYS = 30
"""How old a file may be when it is exchanged: an old one may have been replaced since."""
_CLOCK_SLACK = 3600
_SIGNED = "signature"


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
    """Return a key, a signature or an id in base64url without padding."""
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def link_content(public_key: bytes) -> bytes:
    """Return what an old key signs of a new one; no document begins like that."""
    return b"shoal next key\0" + public_key


@dataclass(frozen=True)
class PublicParty:
    """A party as the other one knows it: keys in base64url, `made` in seconds since 1970.

    >>> keys = {"signing_key": "A" * 43, "exchange_key": "B" * 42 + "A"}
    >>> named = {"name": "Example Foundation", "url": "https://relay.example"}
    >>> PublicParty("relay", **named, **keys, made=1_800_000_000).fingerprint
    'ac26 3a68 fae9 2c75 c160 395b 0dd2 9be3'
    """

    role: str
    name: str
    url: str
    signing_key: str
    exchange_key: str
    made: int
    mark: str | None = None

    def __post_init__(self) -> None:
        check_role(self.role)
        check_text("name", self.name)
        check_origin("url", self.url)
        for key in (self.signing_key, self.exchange_key):
            check_public_key(key)
        if self.mark not in (None, ONE_OPERATOR):
            raise InputError(f"mark must be null or {ONE_OPERATOR!r}, got {shown(self.mark)}.")
        check_integer("made", self.made, lowest=0, highest=2**40)

    @property
    def fingerprint(self) -> str:
        """128 bits of the hash of role and signing key, which signed the rest; in groups."""
        identity = (
            b"shoal party\0" + self.role.encode() + b"\0" + check_public_key(self.signing_key)
        )
        return " ".join(re.findall("....", hashlib.sha256(identity).hexdigest()[:32]))

    def content(self) -> bytes:
        """Return what is signed; no other document begins like that."""
        return b"shoal public party\0" + canonical_json(vars(self))

    def is_signed_by(self, key: str, signature: str) -> bool:
        try:
            check_signature(check_public_key(key), self.content(), signature)
        except TransportError:
            return False
        return True

    def check_fresh(self, now: float) -> None:
        """Refuse a file that is too old to be exchanged, or that was made in the future."""
        if not -_CLOCK_SLACK <= now - self.made <= MAX_AGE_DAYS * 86_400:
            reason = "the clock of one of you is wrong"
            if now > self.made:
                reason = "its operator makes a new one by running shoal parties setup again"
            made = time.strftime("%Y-%m-%d", time.gmtime(self.made))
            raise InputError(
                f"the {self.role}'s file was made on {made}, and it is exchanged within"
                f" {MAX_AGE_DAYS} days; {reason}."
            )

    def write(self, path: Path, sign: Callable[[bytes], str]) -> None:
        """Write the file; `sign` returns the signatures of all present keys."""
        document = vars(self) | {"fingerprint": self.fingerprint, _SIGNED: sign(self.content())}
        write_text(path, canonical_json(document).decode() + "\n")


def read_party(path: Path, role: str | None = None) -> tuple[PublicParty, str]:
    """Return the party whose file this is, and its signatures, which were checked.

    With a `role`, it must be that of the party.
    """
    document = read_json(path, "public file", InputError)
    names = {one.name for one in fields(PublicParty)}
    try:
        given = exact_fields("it", document, names | {"fingerprint", _SIGNED})
        fingerprint, signature = given.pop("fingerprint"), given.pop(_SIGNED)
        party = PublicParty(**given)
    except InputError as error:
        other = explain_wrong_file(path, "public file")
        raise InputError(other or f"{path} is not a party's public file: {error}") from error
    if not party.is_signed_by(party.signing_key, signature) or party.fingerprint != fingerprint:
        raise InputError(
            f"{path} was changed after the {party.role} signed it; get it again, another way."
        )
    if role is not None and party.role != role:
        raise InputError(f"{path} is the file of a {party.role}; give that of the {role}.")
    return party, signature


def check_role(role: object) -> None:
    if not isinstance(role, str) or role not in ROLES:
        raise InputError(f"role must be one of {', '.join(ROLES)}, got {shown(role)}.")
