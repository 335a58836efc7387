"""Plans, crowds and releases in the database, signed when written and verified when read.

Rows that do not match their signature are not used. Earlier keys stay valid: the signing key file
lists their public keys. A plan's state goes forward only, except for a pause.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from shoal.errors import InputError, TransportError
from shoal.protocol.plan import Plan
from shoal.protocol.signatures import check_signature
from shoal.server.storage.database import SqlConnection, StorageError, read_fact, storage_errors
from shoal.server.storage.key_file import Signer

ORIGINS = "origins"
"""The name under which the data have the origins of web pages."""
PUBLIC_PLANS = "public_plans"
"""The name under which the data have the plans whose releases are public."""

Reason = Literal["window", "deadline", "closed", "key", "restored", "unreadable", "relay"]
"""Why a crowd was discarded: its window or the deadline was over, its plan was closed, the key of
open crowds was lost, the data are from a backup, too few of its reports could be read, or its relay
discarded it."""


@dataclass(frozen=True)
class PlanRecord:
    """A plan as the collector keeps it: its state, and from its publication on its certificate.

    `origins` are those of the web pages that may send reports for it. `is_public` says whether its
    releases are for everybody.
    """

    plan: Plan
    state: State
    certificate: bytes | None
    origins: tuple[str, ...] = ()
    is_public: bool = False

    @property
    def document(self) -> dict[str, Any]:
        return {"id": self.plan.id} | self.plan.to_json()

    @property
    def observers(self) -> list[dict[str, Any]] | None:
        """Observers and guarantees of the certificate; None before there is one."""
        if self.certificate is None:
            return None
        observers: list[dict[str, Any]] = json.loads(self.certificate)["certificate"]["observers"]
        return observers


@dataclass(frozen=True)
class CrowdRecord:
    """One crowd of a plan.

    `window` is the one whose reports it takes, 0 where the plan has none. `reports` is known of a
    released crowd only; of a discarded one, `progress` says how full it was in per cent, and
    `reason` why. `unreadable` is how many of its messages an analyzer could not read; None where
    reports are not encrypted for one. `opened_day` is the day since 1970 on which an open crowd was
    opened, or on which its window begins.
    """

    number: int
    window: int
    state: str
    reports: int | None
    progress: int
    reason: Reason | None = None
    unreadable: int | None = None
    opened_day: int | None = None


class ReleaseLine(NamedTuple):
    """A released crowd in a list, with the day (since 1970) on which it was released."""

    number: int
    window: int
    reports: int
    unreadable: int | None
    day: int


class SignedRelease(NamedTuple):
    """The stored tally of a released crowd, with its verified signature."""

    content: bytes
    unreadable: int | None
    signature: Signature


class Records:
    """Reads plans, crowds and releases, and signs them with the signing key of a folder.

    Those that do not match their signature are errors. The key is read when it is first needed.
    """

    def __init__(self, connection: SqlConnection, folder: Path) -> None:
        self._connection, self._folder = connection, folder

    @cached_property
    def _signer(self) -> Signer:
        return Signer(self._folder)

    @cached_property
    def _public_keys(self) -> dict[str, bytes]:
        """The keys that may have signed, by their text; they change only while no service runs."""
        return {key.text: key.public for key in self._signer.keys.all}

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with storage_errors():
            return self._connection.execute(query, values).fetchall()

    def plan(self, plan_id: str) -> PlanRecord | None:
        rows = self._rows(f"{_PLANS} WHERE id = ?", plan_id)
        return self._plan_records(rows)[0] if rows else None

    def plans(self) -> list[PlanRecord]:
        return self._plan_records(self._rows(f"{_PLANS} ORDER BY id"))

    def _plan_records(self, rows: list[tuple[Any, ...]]) -> list[PlanRecord]:
        with storage_errors():
            origins, public = read_origins(self._connection), read_public(self._connection)
        return [
            PlanRecord(
                read_plan(plan_id, document),
                state,
                self._checked(plan_id, certificate),
                origins.get(plan_id, ()),
                plan_id in public,
            )
            for plan_id, document, state, certificate in rows
        ]

    def _checked(self, plan_id: str, certificate: bytes | None) -> bytes | None:
        if certificate is None:
            return None
        certificate = bytes(certificate)
        content = _signed_certificate(plan_id, certificate)
        self._check(plan_id, 0, content, f"certificate of plan {plan_id[:12]}")
        return certificate

    def plans_with_crowds(self) -> list[str]:
        rows = self._rows("SELECT id FROM plans WHERE state IN ('published', 'paused')")
        return [plan_id for (plan_id,) in rows]

    def crowds(self, plan_id: str, skip: int = 0, length: int = 2**62) -> list[CrowdRecord]:
        """Return a plan's crowds, the last one first; those that are open without progress."""
        query = f"{_CROWDS} ORDER BY number DESC LIMIT ? OFFSET ?"
        return [_crowd_record(row) for row in self._rows(query, plan_id, length, skip)]

    def crowd(self, plan_id: str, number: int) -> list[CrowdRecord]:
        rows = self._rows(f"{_CROWDS} AND number = ?", plan_id, number)
        return [_crowd_record(row) for row in rows]

    def crowd_counts(self, plan_id: str) -> dict[str, int]:
        query = "SELECT state, count(*) FROM crowds WHERE plan = ? GROUP BY state"
        return dict(self._rows(query, plan_id))

    def released_numbers(self, plan_id: str, length: int) -> list[int]:
        query = (
            "SELECT number FROM crowds WHERE plan = ? AND state = 'released'"
            " ORDER BY number DESC LIMIT ?"
        )
        return [number for (number,) in self._rows(query, plan_id, length)][::-1]

    def release_lines(self, plan_id: str) -> list[ReleaseLine]:
        """Return the released crowds of a plan, the first one first."""
        query = (
            "SELECT number, window, reports, unreadable, opened_day, state FROM crowds"
            " WHERE plan = ? ORDER BY number DESC"
        )
        lines, opened = [], dict[int, int]()
        for number, window, reports, unreadable, day, state in self._rows(query, plan_id):
            if state == "released":
                # The next crowd of a window is opened in the transaction that releases one.
                line = ReleaseLine(number, window, reports, unreadable, opened.get(window, day))
                lines.append(line)
            opened[window] = day
        return lines[::-1]

    def release(self, plan_id: str, number: int) -> SignedRelease | None:
        """Return a release, the same bytes every time; None if there is none."""
        query = (
            "SELECT release, unreadable FROM crowds"
            " WHERE plan = ? AND number = ? AND state = 'released'"
        )
        rows = self._rows(query, plan_id, number)
        if not rows:
            return None
        content, unreadable = bytes(rows[0][0] or b""), rows[0][1]
        signed = signed_release(plan_id, number, unreadable, content)
        what = f"release {number} of plan {plan_id[:12]}"
        return SignedRelease(content, unreadable, self._check(plan_id, number, signed, what))

    def unverified(self) -> list[str]:
        """Return a sentence for each plan, certificate and release that is not used."""
        query = "SELECT plan, number FROM crowds WHERE state = 'released' ORDER BY plan, number"
        reads: list[Callable[[], object]] = [
            *(partial(self.plan, *row) for row in self._rows("SELECT id FROM plans ORDER BY id")),
            *(partial(self.release, *row) for row in self._rows(query)),
        ]
        sentences = []
        for read in reads:
            try:
                read()
            except UnverifiedError as error:
                sentences.append(str(error))
        return sentences

    # Signatures

    def add_release(
        self, plan_id: str, number: int, unreadable: int | None, release: bytes
    ) -> None:
        """Sign a release, in the transaction that writes it."""
        self._sign(plan_id, number, signed_release(plan_id, number, unreadable, release))

    def add_certificate(self, plan_id: str, certificate: bytes) -> None:
        """Store and sign a certificate."""
        self._connection.execute(
            "UPDATE plans SET certificate = ? WHERE id = ?", (certificate, plan_id)
        )
        self._sign(plan_id, 0, _signed_certificate(plan_id, certificate))

    def _sign(self, plan_id: str, number: int, content: bytes) -> None:
        self._connection.execute(
            "INSERT INTO signatures (plan, number, signer, signature) VALUES (?, ?, ?, ?)",
            (plan_id, number, self._signer.public_key, self._signer.sign(content)),
        )

    def _check(self, plan_id: str, number: int, content: bytes, what: str) -> Signature:
        with storage_errors():
            row = self._connection.execute(
                "SELECT signer, signature FROM signatures WHERE plan = ? AND number = ?",
                (plan_id, number),
            ).fetchone()
        try:
            found = Signature(*row)
            check_signature(self._public_keys[found.signer], content, found.signature)
            return found
        except (TypeError, KeyError, TransportError):
            pass
        raise UnverifiedError(
            f"the stored {what} does not match its signature and is not used. Restore a backup."
        )


_PLANS = "SELECT id, document, state, certificate FROM plans"
_CROWDS = (
    "SELECT number, window, state, reports, progress, reason, unreadable, opened_day FROM crowds"
    " WHERE plan = ?"
)


def _crowd_record(row: tuple[Any, ...]) -> CrowdRecord:
    number, window, state, reports, progress, reason, unreadable, opened_day = row
    told = reports if state == "released" else None
    garbage = None if state == "destroyed" else unreadable
    opened = opened_day if state == "open" else None
    return CrowdRecord(number, window, state, told, progress or 0, reason, garbage, opened)


def read_origins(connection: SqlConnection) -> dict[str, tuple[str, ...]]:
    """Return the origins of the web pages that may send reports, by plan."""
    every = json.loads(read_fact(connection, ORIGINS) or "{}")
    return {plan_id: tuple(origins) for plan_id, origins in every.items()}


def read_public(connection: SqlConnection) -> frozenset[str]:
    """Return the ids of the plans whose releases are public."""
    return frozenset(json.loads(read_fact(connection, PUBLIC_PLANS) or "[]"))


def read_plan(plan_id: str, document: bytes) -> Plan:
    """Return a stored plan; one that does not have its id is an error."""
    try:
        plan = Plan.from_json(json.loads(document))
    except (ValueError, RecursionError, InputError):
        plan = None
    if plan is None or plan.id != plan_id:
        raise UnverifiedError(
            f"the stored plan {plan_id[:12]} is damaged and is not used. Restore a backup."
        )
    return plan


State = Literal["draft", "published", "paused", "closed", "destroyed"]

STATES: dict[State, tuple[State, ...]] = {
    "draft": ("published", "destroyed"),
    "published": ("paused", "closed"),
    "paused": ("published", "closed"),
    "closed": ("destroyed",),
    "destroyed": (),
}
"""Every state, and the states that may follow it."""


@dataclass(frozen=True)
class Declaration:
    """Declarations of the publisher about a plan, which the collector cannot verify.

    `all_honest`: no false reports are sent; needed where the plan does not say which part of a
    crowd is honest. `never_published`: the plan was not published before; needed after a restore,
    whose backup may be older than the publication.
    """

    all_honest: bool = False
    never_published: bool = False


def may_become(now: State, wanted: State) -> bool:
    """Whether a plan may go from one state to another.

    >>> may_become("paused", "published"), may_become("closed", "published")
    (True, False)
    """
    return wanted in STATES[now]


class UnverifiedError(StorageError):
    """Stored data do not match their signature."""


class Signature(NamedTuple):
    """A signature and the public key that verifies it, both in base64url."""

    signer: str
    signature: str


def signed_release(plan_id: str, number: int, unreadable: int | None, release: bytes) -> bytes:
    """Return the bytes that are signed for a release; no document begins like that."""
    about = {"plan": plan_id, "number": number, "unreadable": unreadable}
    return b"shoal release\0" + _signed(about, release)


def _signed_certificate(plan_id: str, certificate: bytes) -> bytes:
    return b"shoal certificate\0" + _signed({"plan": plan_id}, certificate)


def _signed(about: dict[str, object], content: bytes) -> bytes:
    """Return words about a content, and its SHA-256, as canonical JSON: all of it is ASCII."""
    document = about | {"sha256": hashlib.sha256(content).hexdigest()}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
