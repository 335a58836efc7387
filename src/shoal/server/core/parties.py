"""What a party knows of the others, and its requests to them.

Parties agree without a handshake by hand: `shoal parties setup`. A party's data folder holds its
two private keys, its own public file and those of the others. A secret that only two know, such as
the token that one shows the other, is derived from one's private key and the other's public key
(X25519, HKDF), so that no file ever carries it. Requests go over HTTP.
"""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shoal.errors import InputError, PrivacyRefusal, TransportError
from shoal.protocol.plan import ONE_OPERATOR, Plan
from shoal.protocol.signatures import (
    ROLES,
    SIGNATURE,
    PublicParty,
    check_public_key,
    check_role,
    read_party,
)
from shoal.server.core import problems
from shoal.server.core.problems import Problem
from shoal.server.storage.database import storage_errors
from shoal.server.storage.key_file import EXCHANGE_FILE, SIGNING_FILE, Signer, open_keys
from shoal.server.storage.recovery import NOT_STARTED, check_whole
from shoal.support.checks import check_origin, is_loopback, shown
from shoal.support.connections import connected, parse_address
from shoal.support.disk import Disk

MAX_RESPONSE_BYTES = 64 << 20
"""Bytes of a response that are read before giving up: a certificate, or a tally, may be long."""


def public_file(folder: Path, role: str) -> Path:
    return folder / f"{role}-public.json"


@dataclass(frozen=True)
class Agreement:
    """A party's data folder, and the parties as far as this one knows them, by their roles."""

    folder: Path
    own: PublicParty
    others: Mapping[str, PublicParty] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        return [role for role in ROLES[self.own.role] if role not in self.others]

    def file(self, role: str) -> Path:
        return public_file(self.folder, role)

    def exchange_secret(self) -> bytes:
        """Return the private half of the exchange key in the public file."""
        (key,) = open_keys(self.folder, EXCHANGE_FILE).active()
        if key.text != self.own.exchange_key:
            raise InputError(
                f"{self.folder / EXCHANGE_FILE} is not the one of the public file; put it back, or"
                f" make a new file: shoal parties setup --data {self.folder}."
            )
        return key.secret

    def secret(self, purpose: str, role: str) -> bytes:
        """Return 32 bytes that this party and another one derive, and nobody else can."""
        other = self.others[role]
        private = X25519PrivateKey.from_private_bytes(self.exchange_secret())
        public = X25519PublicKey.from_public_bytes(check_public_key(other.exchange_key))
        both = sorted(f"{one.role} {one.exchange_key}" for one in (self.own, other))
        info = "\0".join(["shoal parties", purpose, *both]).encode()
        try:
            shared = private.exchange(public)
        except ValueError as error:  # a point of small order: everybody knows the result
            raise InputError(f"the exchange key of the {role} is not usable.") from error
        return HKDF(SHA256(), 32, salt=None, info=info).derive(shared)

    def token(self, role: str) -> str:
        return f"shoal_party_{self.secret('token', role).hex()}"

    def problem(self, plan: Plan) -> Problem | None:
        """Return why a plan is not one of these two parties."""
        assert plan.parties is not None
        for party in (self.own, *self.others.values()):
            if party.role != "analyst" and plan.parties.origins.get(party.role) != party.url:
                return problems.OTHER_PARTIES
        if self.own.mark is not None and not plan.parties.one_operator:
            return problems.UNMARKED_PLAN
        return None

    def check_key(self, party: PublicParty) -> None:
        """Refuse a file that shares a key with one's own: one operator would be both parties."""
        signing = Signer(self.folder).public_keys
        if party.signing_key in signing or party.exchange_key == self.own.exchange_key:
            raise PrivacyRefusal(
                f"the {party.role}'s file has a key of this {self.own.role}; two operators make"
                " their own keys, each on a machine of their own."
            )
        if party.mark != self.own.mark:
            marked = party.role if self.own.mark is None else self.own.role
            raise PrivacyRefusal(
                f"the {marked} was set up with --both ({ONE_OPERATOR}); set it up again in a new"
                " folder, by an operator of its own."
            )


def read_agreement(folder: Path) -> Agreement | None:
    """Return what a data folder says of the parties, or None if it was not set up."""
    files = {role: public_file(folder, role) for role in ROLES}
    # A folder that cannot be read is reported by whoever opens it.
    there = {role: path for role, path in files.items() if os.access(path, os.F_OK)}
    if not there or not (folder / SIGNING_FILE).exists():
        return None
    found = {role: read_party(path, role)[0] for role, path in there.items()}
    keys = Signer(folder).public_keys
    for role, party in found.items():
        if party.signing_key in keys:
            others = {one: found[one] for one in ROLES[role] if one in found}
            return Agreement(folder, party, others)
    return None


def known_agreement(folder: Path, role: str) -> Agreement:
    """Return the agreement of a folder whose party knows all others."""
    agreement, command = read_agreement(folder), f"shoal parties setup --data {folder}"
    if agreement is None or agreement.own.role != role:
        raise InputError(
            f"{folder} is not the folder of a set-up {role}: {command} --role {role} --url URL."
        )
    for other in agreement.missing:
        raise InputError(f"the {role} does not know its {other}: {command} --other FILE.")
    return agreement


def set_up(
    folder: Path,
    *,
    role: str | None = None,
    url: str | None = None,
    name: str | None = None,
    mark: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Agreement:
    """Make a party's keys and its public file; where nothing is given, what was stays."""
    before = read_agreement(folder)
    was = None if before is None else before.own
    if was is not None:
        role, url, name, mark = role or was.role, url or was.url, name or was.name, mark or was.mark
        if (role, mark) != (was.role, was.mark):
            raise InputError(f"{folder} was set up as another {was.role}; use a new folder.")
    if role is None or url is None:
        raise InputError(f"{folder} is new: give the party's role and url.")
    check_role(role)  # before anything is made
    check_origin("url", url)
    with storage_errors():
        Disk().make_folder(folder)
        if not (folder / SIGNING_FILE).exists():
            check_whole(folder)  # else keys of data that were lost would be taken for new ones
            Disk().store(folder / NOT_STARTED, b"", f"{NOT_STARTED}.part")
    signer, exchange = Signer(folder), open_keys(folder, EXCHANGE_FILE)
    keys = (signer.public_key, exchange.active()[0].text)
    own = PublicParty(role, name or role, url, *keys, int(clock()), mark)
    own.write(public_file(folder, role), lambda content: signer.headers(content)[SIGNATURE])
    return Agreement(folder, own, {} if before is None else before.others)


def accept_other(
    agreement: Agreement,
    source: Path,
    confirm: Callable[[PublicParty], bool],
    *,
    replaces: bool = False,
    clock: Callable[[], float] = time.time,
) -> Agreement:
    """Check another party's public file and keep it.

    `confirm` says whether a file of a new key has the fingerprint that its operator reads out. A
    file that the known key signed needs no confirmation: its operator changed the key, or the
    address. Any other key is refused unless it `replaces` the known one.
    """
    other, signature = read_party(source)
    if other.role not in ROLES[agreement.own.role]:
        wanted = " or ".join(ROLES[agreement.own.role])
        raise InputError(f"{source} is the file of a {other.role}; give that of the {wanted}.")
    other.check_fresh(clock())
    agreement.check_key(other)
    known = agreement.others.get(other.role)
    if known is not None and other.is_signed_by(known.signing_key, signature):
        if other.made < known.made:
            raise InputError(f"{source} is older than the {other.role}'s file that is known.")
    else:
        if known is not None and not replaces:
            raise PrivacyRefusal(
                f"{source} has another key than the {other.role} that is known"
                f" ({known.fingerprint}); if that one has ended, give --replace."
            )
        if not confirm(other):
            raise PrivacyRefusal(
                f"the fingerprint of {source} is {other.fingerprint}: it is not the file that the"
                f" {other.role}'s operator made."
            )
    agreed = replace(agreement, others={**agreement.others, other.role: other})
    agreed.secret("token", other.role)  # an unusable key is refused before it is kept
    other.write(agreement.file(other.role), lambda content: signature)
    return agreed


class PeerReply(NamedTuple):
    """What the other party answered; the names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Peer(Protocol):
    """Brings requests to another party."""

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        """Return the answer to a request; without one there is a `TransportError`."""
        ...

    def stop(self) -> None:
        """Cancel requests in progress: this party stops."""
        ...


class HttpPeer:
    """Reaches another party over HTTP, each request on a connection of its own."""

    def __init__(self, url: str, timeout: float) -> None:
        self._origin, path = parse_address(url)
        if self._origin.scheme == "http" and not is_loopback(self._origin.host):
            raise InputError(
                f"{shown(url)} is without TLS: use https; plain http is for this machine only."
            )
        self._path, self._timeout = path.rstrip("/"), timeout
        is_encrypted = self._origin.scheme == "https"
        self._context = ssl.create_default_context() if is_encrypted else None
        self._open: set[socket] = set()
        self._stopped = False

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> PeerReply:
        if self._stopped:
            raise TransportError("this party is stopping.")
        with connected(self._origin, self._timeout, self._context) as connection:
            wire = connection.sock
            self._open.add(wire)
            try:
                headers = {"Connection": "close", **headers}
                connection.request(method, self._path + path, body, headers)
                with connection.getresponse() as response:
                    content = response.read(MAX_RESPONSE_BYTES + 1)
                    # A body that was cut off looks like one that ended.
                    if response.length or len(content) > MAX_RESPONSE_BYTES:
                        raise TransportError("the answer is too long, or cut off.")
                    found = {name.lower(): text for name, text in response.getheaders()}
                    return PeerReply(response.status, found, content)
            finally:
                self._open.discard(wire)

    def stop(self) -> None:
        self._stopped = True
        for wire in list(self._open):
            with suppress(OSError):
                socket.shutdown(wire, SHUT_RDWR)
