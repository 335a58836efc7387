"""What the outbox keeps of one answer: a record while it waits, a note when it is settled.

A record's name is made of the plan's id, the window and a digest of the application's key. The
bytes that are sent stand in it from the first moment on and are never made again. When they are
accepted they are forgotten, report id included: the note that stays says only that the plan was
answered.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from shoal.device.outbox.plan_checks import check_plan_id
from shoal.errors import ReportError
from shoal.protocol.wire import MAGIC
from shoal.support.checks import check_integer
from shoal.support.files import canonical_json, strict_json

__all__ = ["Record", "State", "Ticket"]

VERSION = 3

State: TypeAlias = "Literal['waiting', 'sent', 'failed', 'expired']"
"""A record waits until it is sent; `failed` keeps its bytes for a time, the others do not."""

SETTLED: tuple[State, ...] = ("sent", "failed", "expired")


@dataclass(frozen=True)
class Ticket:
    """What became of an answer so far. It holds neither the answer nor what is sent of it."""

    name: str
    plan_id: str
    window: int
    state: State
    attempts: int = 0
    due: float | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the ticket as plain JSON values; `due` is in whole seconds of Unix time."""
        return {
            "attempts": self.attempts,
            "due": None if self.due is None else math.ceil(self.due),
            "plan": self.plan_id,
            "reason": self.reason,
            "state": self.state,
            "ticket": self.name,
            "window": self.window,
        }


@dataclass(frozen=True)
class Record:
    """One report in the outbox: the exact bytes, and when they are tried next.

    `batch` is the report. `sealed` is None where it is sent as it is. Where it goes through a
    relay, `sealed` is what is sent: empty at first, and made again only for a crowd's new key.
    `crowds` counts the crowds that it was encrypted for.
    """

    plan_id: str
    window: int
    batch: bytes
    due: float
    expires: int | None = None
    attempts: int = 0
    reason: str | None = None
    address: str | None = None
    sealed: bytes | None = None
    crowds: int = 0

    def tried(self, due: float) -> Record:
        """Return the same bytes after one more attempt."""
        return replace(self, due=due, attempts=self.attempts + 1)

    def ticket(self, name: str, state: State, reason: str | None = None) -> Ticket:
        """Return what may be told of the record."""
        due = self.due if state == "waiting" else None
        reason = reason or self.reason
        return Ticket(name, self.plan_id, self.window, state, self.attempts, due, reason)

    def to_bytes(self) -> bytes:
        """Return the record as it is stored."""
        return canonical_json(
            {
                "address": self.address,
                "attempts": self.attempts,
                "batch": base64.b64encode(self.batch).decode(),
                "crowds": self.crowds,
                "check": hashlib.sha256(self.batch + (self.sealed or b"")).hexdigest(),
                "due": math.ceil(self.due * 1000),
                "expires": self.expires,
                "plan": self.plan_id,
                "reason": self.reason,
                "sealed": None if self.sealed is None else base64.b64encode(self.sealed).decode(),
                "version": VERSION,
                "window": self.window,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """Read what `to_bytes` stored; anything else is a `ReportError`."""
        try:
            fields: Any = strict_json(content)
            if fields.pop("version") != VERSION or len(fields) != 11:
                raise ValueError("it has another version")
            for name in ("attempts", "crowds", "due", "window"):
                check_integer(name, fields[name], lowest=0)
            if fields["expires"] is not None:
                check_integer("expires", fields["expires"], lowest=0)
            plan_id = check_plan_id(fields["plan"])
            batch = base64.b64decode(fields["batch"], validate=True)
            sealed = fields["sealed"]
            if sealed is not None:
                sealed = base64.b64decode(sealed, validate=True)
            whole = hashlib.sha256(batch + (sealed or b"")).hexdigest() == fields["check"]
            if not whole or not batch.startswith((MAGIC + bytes.fromhex(plan_id))[: len(batch)]):
                raise ValueError("these are not the bytes that were stored")
            return cls(
                plan_id=plan_id,
                window=fields["window"],
                batch=batch,
                due=fields["due"] / 1000,
                expires=fields["expires"],
                attempts=fields["attempts"],
                reason=None if fields["reason"] is None else str(fields["reason"]),
                address=None if fields["address"] is None else str(fields["address"]),
                sealed=sealed,
                crowds=fields["crowds"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ReportError("a stored report is damaged.") from problem


def key_digest(answer_key: str) -> str:
    """Return what stands for the application's key in a file's name."""
    return hashlib.sha256(answer_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
