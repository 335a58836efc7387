"""The public file of a party: its role, address and keys, signed by the party itself.

Each party makes the file on its own machine and hands it to the other one, by whatever way. The
signature shows a change on that way; the fingerprint, compared by telephone, shows whose file it
is. Everything in the file is public. What only the two may know they derive from it, each with a
private key that never leaves its machine (`shoal.server.core.agreement`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shoal.errors import InputError, TransportError
from shoal.protocol.plan import ONE_OPERATOR
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.support.checks import check_origin, check_text, exact_fields, shown
from shoal.support.files import canonical_json, read_json, write_text

ROLES = {
    "relay": ("analyzer",),
    "analyzer": ("relay",),
    "leader": ("helper", "analyst"),
    "helper": ("leader", "analyst"),
    "analyst": ("leader", "helper"),
}
"""Each role, and those of the others in its deployment."""

MAX_AGE = timedelta(days=30)
"""How old a file may be when it is exchanged: an old one may have been replaced since."""
_CLOCK_SLACK = timedelta(hours=1)
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_SIGNED = "signature"


@dataclass(frozen=True)
class PublicParty:
    """A party as the other one knows it: keys in base64url, `made` as a UTC time.

    >>> keys = {"signing_key": "A" * 43, "exchange_key": "B" * 42 + "A"}
    >>> named = {"name": "Example Foundation", "url": "https://relay.example"}
    >>> PublicParty("relay", **named, **keys, made="2026-11-18T10:00:00Z").fingerprint
    '20cc 5aa1 a0ea 5db5 a0f6 5ea7 a0bd 4e2d'
    """

    role: str
    name: str
    url: str
    signing_key: str
    exchange_key: str
    made: str
    mark: str | None = None

    def __post_init__(self) -> None:
        check_role(self.role)
        check_text("name", self.name)
        check_origin("url", self.url)
        for key in (self.signing_key, self.exchange_key):
            check_public_key(key)
        if self.mark not in (None, ONE_OPERATOR):
            raise InputError(f"mark must be null or {ONE_OPERATOR!r}, got {shown(self.mark)}.")
        _time(self.made)

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

    def check_fresh(self, now: datetime) -> None:
        """Refuse a file that is too old to be exchanged, or that was made in the future."""
        made = _time(self.made)
        if not made - _CLOCK_SLACK <= now <= made + MAX_AGE:
            reason = "the clock of one of you is wrong"
            if now > made:
                reason = "its operator makes a new one by running shoal parties setup again"
            raise InputError(
                f"the {self.role}'s file was made at {self.made}, and it is exchanged within"
                f" {MAX_AGE.days} days; {reason}."
            )

    def write(self, path: Path, sign: Callable[[bytes], str]) -> None:
        """Write the file; `sign` returns the signatures of all present keys."""
        document = vars(self) | {"fingerprint": self.fingerprint, _SIGNED: sign(self.content())}
        write_text(path, canonical_json(document).decode() + "\n")


def read_party(path: Path, role: str | None = None) -> tuple[PublicParty, str]:
    """Return the party whose file this is, and its signatures, which were checked.

    With a `role`, it must be that of the party.
    """
    document = read_json(path, "party's public file", InputError)
    names = {one.name for one in fields(PublicParty)}
    given = exact_fields(f"{path}", document, names | {"fingerprint", _SIGNED})
    fingerprint, signature = given.pop("fingerprint"), given.pop(_SIGNED)
    try:
        party = PublicParty(**given)
    except InputError as error:
        raise InputError(f"{path} is not a party's public file: {error}") from error
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


def time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime(_TIME)


def _time(text: object) -> datetime:
    try:
        moment = datetime.strptime(str(text), _TIME).replace(tzinfo=UTC)
    except ValueError:
        moment = None
    if moment is None or time_text(moment) != text:
        raise InputError(f"made must be a time such as 2026-11-18T10:00:00Z, got {shown(text)}.")
    return moment
