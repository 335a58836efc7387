"""Signatures of stored releases and certificates: made once, checked whenever they are read.

A release is signed in the transaction that writes it, with the bytes that are in memory, and a
certificate when its plan is published. A row that was damaged, or changed by somebody who can write
to the database and does not have the signing key, no longer matches its signature and is not used.
Earlier keys stay valid: the signing key file lists their public keys.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from shoal.errors import InputError, TransportError
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.server.storage.database import Database, StorageError, storage_errors
from shoal.server.storage.signing import Signer
from shoal.support.files import canonical_json

__all__ = ["Signature", "Signatures", "UnverifiedError", "signed_release"]


class UnverifiedError(StorageError):
    """Stored data do not match their signature."""


class Signature(NamedTuple):
    """A signature and the public key that verifies it, both in base64url."""

    signer: str
    signature: str


def signed_release(plan_id: str, number: int, unreadable: int | None, release: bytes) -> bytes:
    """Return the bytes that are signed for a release; no document begins like that.

    Parameters
    ----------
    plan_id, number
        The plan and the number of the crowd.
    unreadable
        How many messages of the crowd an analyzer could not read; None at a collector.
    release
        The tally, as it is stored.
    """
    about = {"plan": plan_id, "number": number, "unreadable": unreadable}
    return b"shoal release\0" + canonical_json(about | {"sha256": _sha256(release)})


def _signed_certificate(plan_id: str, certificate: bytes) -> bytes:
    about = {"plan": plan_id, "sha256": _sha256(certificate)}
    return b"shoal certificate\0" + canonical_json(about)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Signatures:
    """Signs and verifies what a database holds, with the signing key of a folder.

    The key is read when it is first needed.
    """

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder

    @cached_property
    def _signer(self) -> Signer:
        return Signer(self._folder)

    def add_release(
        self, plan_id: str, number: int, unreadable: int | None, release: bytes
    ) -> None:
        """Sign a release, in the transaction that writes it."""
        self._add(plan_id, number, signed_release(plan_id, number, unreadable, release))

    def add_certificate(self, plan_id: str, certificate: bytes) -> None:
        """Sign a certificate, in the transaction that writes it."""
        self._add(plan_id, 0, _signed_certificate(plan_id, certificate))

    def _add(self, plan_id: str, number: int, content: bytes) -> None:
        self._database.execute(
            "INSERT INTO signatures (plan, number, signer, signature) VALUES (?, ?, ?, ?)",
            (plan_id, number, self._signer.public_key, self._signer.sign(content)),
        )

    def check_release(
        self, plan_id: str, number: int, unreadable: int | None, release: bytes
    ) -> Signature:
        """Return the signature of a release; one that does not match is an error."""
        content = signed_release(plan_id, number, unreadable, release)
        what = f"release {number} of plan {plan_id[:12]}"
        return self._check(plan_id, number, content, what)

    def check_certificate(self, plan_id: str, certificate: bytes) -> None:
        """Raise `UnverifiedError` unless a certificate matches its signature."""
        content = _signed_certificate(plan_id, certificate)
        self._check(plan_id, 0, content, f"certificate of plan {plan_id[:12]}")

    def _check(self, plan_id: str, number: int, content: bytes, what: str) -> Signature:
        with storage_errors():
            row = self._database.execute(
                "SELECT signer, signature FROM signatures WHERE plan = ? AND number = ?",
                (plan_id, number),
            ).fetchone()
        try:
            found = Signature(*row)
            if found.signer in self._signer.public_keys:
                check_signature(check_public_key(found.signer), content, found.signature)
                return found
        except (TypeError, InputError, TransportError):
            pass
        raise UnverifiedError(
            f"the stored {what} does not match its signature and is not used. Restore a backup."
        )

    def forget_releases(self, plan_id: str) -> None:
        """Remove the signatures of a plan's releases, with the releases."""
        self._database.execute("DELETE FROM signatures WHERE plan = ? AND number > 0", (plan_id,))
