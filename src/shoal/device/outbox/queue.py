"""The queue of reports in the outbox's folder, changed one step at a time under a lock.

A record's name has the plan's id, the window and a digest of the application's key. The record
holds the bytes to send from the beginning; they are never made again. When the collector has
accepted them they are deleted, report id included: the note that stays says only that the plan was
answered.
"""

from __future__ import annotations

import base64
import hashlib
import math
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from shoal.errors import InputError, PlanError, ReportError
from shoal.protocol.plan import Plan, check_plan_id, read_plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import MAGIC
from shoal.support.checks import check_integer
from shoal.support.disk import Disk
from shoal.support.files import canonical_json, first_line, strict_json

_IDENTITY = "[0-9a-f]{32}"
_FILE = r"([0-9a-f]{64}\.[0-9]{1,10}\.[0-9a-f]{32})\.(waiting|sent|failed|expired)"

_OURS = rf"lock|sending|identity|part|plans|{_FILE}"
"""Names in an outbox's folder. A folder with other names may be shared with other users."""


class ReportQueue:
    """``name.waiting`` is a report to send; ``name.sent``, ``.failed``, ``.expired`` are notes."""

    def __init__(self, path: pathlib.Path, disk: Disk) -> None:
        self.path, self._disk = path.resolve(), disk
        with self._telling():
            disk.make_folder(self.path)
            disk.make_folder(self.path / "plans")
            disk.close_folder(self.path / "plans")
            if disk.is_open_to_others(self.path) and all(
                re.fullmatch(_OURS, path.name) for path in self.path.iterdir()
            ):
                disk.close_folder(self.path)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep every other thread and process from changing the folder; short, no network."""
        with self._telling(), self._disk.lock(self.path / "lock"):
            yield

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Yield whether this is the only one who sends; others may change the folder meanwhile."""
        with self._telling(), self._disk.lock(self.path / "sending", patience=0.0) as mine:
            yield mine

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            reason = problem.strerror or first_line(problem)
            raise InputError(f"the outbox {self.path} cannot be used: {reason}.") from problem

    def kept_plan(self, plan_id: str) -> Plan | None:
        """Return a plan that was kept; its id is computed anew."""
        with self._telling():
            try:
                return read_plan(self._plan_file(plan_id).read_bytes(), plan_id)
            except (FileNotFoundError, PlanError):
                return None

    def keep_plan(self, plan: Plan) -> None:
        """Keep a plan for the next time."""
        self._store(self._plan_file(plan.id), canonical_json(plan.to_json()))

    def promise_note(self, plan_id: str) -> str | None:
        """Return how this device was told that a plan keeps its promise, if it was."""
        with self._telling():
            try:
                return self._promise_file(plan_id).read_text("utf-8", "replace")
            except FileNotFoundError:
                return None

    def keep_promise_note(self, plan_id: str, note: str) -> None:
        """Keep how this device was told that a plan keeps its promise."""
        self._store(self._promise_file(plan_id), note.encode())

    def identity(self) -> str:
        """Return the folder's own random name, drawn and kept the first time."""
        file = self.path / "identity"
        try:
            known = file.read_text("ascii", "replace")
        except FileNotFoundError:
            known = ""
        if not re.fullmatch(_IDENTITY, known):
            known = SystemBits().draw(16).hex()
            self._store(file, known.encode())
        else:
            self._disk.sync_folder(self.path)  # a process killed after drawing it may not have
        return known

    def _store(self, file: pathlib.Path, content: bytes) -> None:
        # One scratch name, so that what a crash leaves of a report is written over by the next.
        self._disk.store(file, content, "part")

    def _plan_file(self, plan_id: str) -> pathlib.Path:
        return self.path / "plans" / f"{check_plan_id(plan_id)}.json"

    def _promise_file(self, plan_id: str) -> pathlib.Path:
        return self.path / "plans" / f"{check_plan_id(plan_id)}.promise"

    def names(self, plan_id: str = "", state: State | None = None) -> list[str]:
        """Return the names of records, of one plan or with a file in one state, in order."""
        matches = (re.fullmatch(_FILE, path.name) for path in self.path.iterdir())
        return sorted(
            {
                match[1]
                for match in matches
                if match and match[1].startswith(plan_id) and state in (None, match[2])
            }
        )

    def confirm(self, name: str) -> Ticket:
        """Return the outcome of a record, which is durable when this returns.

        The process that stored it may have been killed before it synced the folder.
        """
        self._disk.sync_folder(self.path)
        return self.ticket(name)

    def store_waiting(self, name: str, record: Record) -> Ticket:
        """Store a record that is to be sent."""
        self._store(self._file(name, "waiting"), record.to_bytes())
        return record.ticket(name, "waiting")

    def settle(self, name: str, record: Record, state: State, reason: str | None) -> Ticket:
        """Store the note, then delete the report: in between both exist, and the note counts."""
        batch = record.batch if state == "failed" else b""
        encrypted = record.encrypted if state == "failed" else None
        note = replace(record, batch=batch, encrypted=encrypted, due=0.0, reason=reason)
        self._store(self._file(name, state), note.to_bytes())
        self._disk.remove(self._file(name, "waiting"))
        return note.ticket(name, state)

    def revive(self, name: str, due: float) -> Ticket:
        """Let a failed report wait again."""
        if self.ticket(name).state != "failed":
            raise InputError("only a failed report can be tried again.")
        record = Record.from_bytes(self._file(name, "failed").read_bytes())
        if not record.batch:
            raise InputError("the stored report was damaged, and no other may be made.")
        ticket = self.store_waiting(name, replace(record, attempts=0, reason=None, due=due))
        self._disk.remove(self._file(name, "failed"))
        return ticket

    def expire_failed(self, name: str, now: float) -> None:
        """Delete the bytes of a failed report whose time is over, and keep the note."""
        file = self._file(name, "failed")
        try:
            record = Record.from_bytes(file.read_bytes())
        except (FileNotFoundError, ReportError):
            return
        if record.expires is not None and now >= record.expires:
            note = replace(record, batch=b"", encrypted=None)
            self._store(self._file(name, "expired"), note.to_bytes())
            self._disk.remove(file)

    def waiting(self, name: str) -> Record | None:
        """Return a record that is to be sent; finish work that a crash interrupted."""
        file = self._file(name, "waiting")
        if any(self._file(name, state).exists() for state in SETTLED):
            self._disk.remove(file)
            return None
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return Record.from_bytes(content)
        except ReportError as error:
            # Its bytes may have been sent before, so that no others may be.
            plan_id, window, _ = name.split(".")
            damaged = Record(plan_id, int(window), b"", 0.0)
            self.settle(name, damaged, "failed", first_line(error))
            return None

    def ticket(self, name: str) -> Ticket:
        """Return the outcome of a record."""
        for state in (*SETTLED, "waiting"):
            file = self._file(name, state)
            if re.fullmatch(_FILE, file.name) and file.exists():
                try:
                    return Record.from_bytes(file.read_bytes()).ticket(name, state)
                except ReportError as error:
                    plan_id, window, _ = name.split(".")
                    return Ticket(name, plan_id, int(window), state, reason=first_line(error))
        raise InputError(f"there is no ticket {name[:150]!r} in {self.path}.")

    def _file(self, name: str, state: str) -> pathlib.Path:
        return self.path / f"{name}.{state}"


VERSION = 3

State: TypeAlias = "Literal['waiting', 'sent', 'failed', 'expired']"
"""A record waits until it is sent; `failed` keeps its bytes for a time, the others do not."""

SETTLED: tuple[State, ...] = ("sent", "failed", "expired")


@dataclass(frozen=True)
class Ticket:
    """The state of one answer. It holds neither the answer nor the report."""

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

    `batch` is the report. `encrypted` is None if the batch itself is sent. For a relay, `encrypted`
    is sent instead: empty at first, and made again only for the key of a new crowd.
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
    encrypted: bytes | None = None
    crowds: int = 0

    def tried(self, due: float) -> Record:
        """Return the same bytes after one more attempt."""
        return replace(self, due=due, attempts=self.attempts + 1)

    def ticket(self, name: str, state: State, reason: str | None = None) -> Ticket:
        """Return the public state of the record."""
        due = self.due if state == "waiting" else None
        reason = reason or self.reason
        return Ticket(name, self.plan_id, self.window, state, self.attempts, due, reason)

    def to_bytes(self) -> bytes:
        """Return the stored form of the record."""
        return canonical_json(
            {
                "address": self.address,
                "attempts": self.attempts,
                "batch": base64.b64encode(self.batch).decode(),
                "crowds": self.crowds,
                "check": hashlib.sha256(self.batch + (self.encrypted or b"")).hexdigest(),
                "due": math.ceil(self.due * 1000),
                "expires": self.expires,
                "plan": self.plan_id,
                "reason": self.reason,
                "encrypted": None
                if self.encrypted is None
                else base64.b64encode(self.encrypted).decode(),
                "version": VERSION,
                "window": self.window,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """Read the output of `to_bytes`; anything else is a `ReportError`."""
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
            encrypted = fields["encrypted"]
            if encrypted is not None:
                encrypted = base64.b64decode(encrypted, validate=True)
            whole = hashlib.sha256(batch + (encrypted or b"")).hexdigest() == fields["check"]
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
                encrypted=encrypted,
                crowds=fields["crowds"],
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ReportError("a stored report is damaged.") from problem


def key_digest(answer_key: str) -> str:
    """Return the part of a file's name that stands for the application's key."""
    return hashlib.sha256(answer_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
