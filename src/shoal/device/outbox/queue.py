"""The queue of reports in the outbox's folder, changed one step at a time under a lock.

A record's name has the plan's id, the window and a digest of the application's key. The record
holds the bytes to send; they are never made again. Once the collector has accepted them they are
deleted, report id included: the note that stays says only that the plan was answered.
"""

from __future__ import annotations

import base64
import hashlib
import math
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from shoal.errors import InputError, PlanError, ReportError
from shoal.protocol.plan import Plan, check_plan_id, read_plan
from shoal.protocol.random_bits import SystemBits
from shoal.protocol.wire import MAGIC
from shoal.support.checks import check_integer
from shoal.support.disk import Disk
from shoal.support.files import canonical_json, first_line, strict_json

_OURS = {"lock", "sending", "identity", "part", "plans"}
"""Names in an outbox's folder, next to records. A folder with other names may be shared."""

VERSION = 4

State: TypeAlias = "Literal['waiting', 'sent', 'failed', 'expired']"
"""A record waits until it is sent; `failed` keeps its bytes for a time, the others do not."""

SETTLED: tuple[State, ...] = ("sent", "failed", "expired")


def _record_of(file_name: str) -> str | None:
    """Return the name of the record in a file, or None if the file is not a record's."""
    *parts, state = file_name.split(".")
    if len(parts) != 3 or state not in (*SETTLED, "waiting"):
        return None
    plan_id, window, digest = parts
    sizes = (len(plan_id), len(digest)) == (64, 32) and 1 <= len(window) <= 10
    is_hex = not (plan_id + digest).strip("0123456789abcdef")
    return ".".join(parts) if sizes and is_hex and not window.strip("0123456789") else None


class Ticket(NamedTuple):
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


class Record(NamedTuple):
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
        return self._replace(due=due, attempts=self.attempts + 1)

    def without_bytes(self) -> Record:
        """Return the note that stays of the record."""
        return self._replace(batch=b"", encrypted=None)

    def ticket(self, name: str, state: State, reason: str | None = None) -> Ticket:
        due, reason = self.due if state == "waiting" else None, reason or self.reason
        return Ticket(name, self.plan_id, self.window, state, self.attempts, due, reason)

    def to_bytes(self) -> bytes:
        """Return the stored form: JSON, with the bytes in base64 and `due` in milliseconds."""
        encrypted = self.encrypted
        changed = {
            "batch": base64.b64encode(self.batch).decode(),
            "encrypted": None if encrypted is None else base64.b64encode(encrypted).decode(),
            "due": math.floor(self.due * 1000),  # what is due now stays due now
            "check": hashlib.sha256(self.batch + (encrypted or b"")).hexdigest(),
            "version": VERSION,
        }
        return canonical_json(self._asdict() | changed)

    @classmethod
    def from_bytes(cls, content: bytes) -> Record:
        """Read the output of `to_bytes`; anything else is a `ReportError`."""
        try:
            fields: Any = strict_json(content)
            if fields.pop("version") != VERSION:
                raise ValueError("it has another version")
            check = fields.pop("check")
            for name in ("attempts", "crowds", "due", "window", "expires"):
                if name != "expires" or fields[name] is not None:
                    check_integer(name, fields[name], lowest=0)
            for name in ("reason", "address"):
                if not isinstance(fields[name], (str, type(None))):
                    raise TypeError(name)
            batch = base64.b64decode(fields["batch"], validate=True)
            encrypted = fields["encrypted"]
            if encrypted is not None:
                encrypted = base64.b64decode(encrypted, validate=True)
            start = MAGIC + bytes.fromhex(check_plan_id(fields["plan_id"]))
            whole = hashlib.sha256(batch + (encrypted or b"")).hexdigest() == check
            if not whole or not batch.startswith(start[: len(batch)]):
                raise ValueError("these are not the bytes that were stored")
            due = fields["due"] / 1000
            return cls(**fields | {"batch": batch, "encrypted": encrypted, "due": due})
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ReportError("a stored report is damaged.") from problem


class ReportQueue:
    """``name.waiting`` is a report to send; ``name.sent``, ``.failed``, ``.expired`` are notes."""

    def __init__(self, path: pathlib.Path, disk: Disk) -> None:
        self.path, self._disk = path.resolve(), disk
        with self._errors():
            disk.make_folder(self.path)
            disk.make_folder(self.path / "plans")
            disk.close_folder(self.path / "plans")
            if disk.is_open_to_others(self.path) and all(
                path.name in _OURS or _record_of(path.name) for path in self.path.iterdir()
            ):
                disk.close_folder(self.path)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lock out all other threads and processes that change the folder; short, no network."""
        with self._errors(), self._disk.lock(self.path / "lock"):
            yield

    @contextmanager
    def sending(self) -> Iterator[bool]:
        """Yield whether this is the only sender; others may change the folder meanwhile."""
        with self._errors(), self._disk.lock(self.path / "sending", patience=0.0) as mine:
            yield mine

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            reason = problem.strerror or first_line(problem)
            raise InputError(f"the outbox {self.path} cannot be used: {reason}.") from problem

    def kept_plan(self, plan_id: str) -> Plan | None:
        """Return a plan that was kept; its id is computed anew."""
        content = self._read(self._plan_file(plan_id, "json"))
        try:
            return None if content is None else read_plan(content, plan_id)
        except PlanError:
            return None

    def keep_plan(self, plan: Plan) -> None:
        self._store(self._plan_file(plan.id, "json"), canonical_json(plan.to_json()))

    def promise_note(self, plan_id: str) -> str | None:
        """Return how this device was told that a plan keeps its promise, if it was."""
        content = self._read(self._plan_file(plan_id, "promise"))
        return None if content is None else content.decode("utf-8", "replace")

    def keep_promise_note(self, plan_id: str, note: str) -> None:
        self._store(self._plan_file(plan_id, "promise"), note.encode())

    def identity(self) -> str:
        """Return the folder's own random name, drawn and kept the first time."""
        file = self.path / "identity"
        known = (self._read(file) or b"").decode("ascii", "replace")
        if re.fullmatch("[0-9a-f]{32}", known):
            self._disk.sync_folder(self.path)  # a process killed after drawing it may not have
            return known
        drawn = SystemBits().draw(16).hex()
        self._store(file, drawn.encode())
        return drawn

    def _read(self, file: pathlib.Path) -> bytes | None:
        with self._errors():
            try:
                return file.read_bytes()
            except FileNotFoundError:
                return None

    def _store(self, file: pathlib.Path, content: bytes) -> None:
        # One scratch name, so that the next write replaces what a crash leaves of a report.
        self._disk.store(file, content, "part")

    def _plan_file(self, plan_id: str, suffix: str) -> pathlib.Path:
        return self.path / "plans" / f"{check_plan_id(plan_id)}.{suffix}"

    def _file(self, name: str, state: str) -> pathlib.Path:
        return self.path / f"{name}.{state}"

    def names(self, plan_id: str = "", state: str = "") -> list[str]:
        """Return the names of records, of one plan or with a file in one state, in order."""
        files = (path.name for path in self.path.iterdir())
        wanted = (file for file in files if file.startswith(plan_id) and file.endswith(state))
        return sorted({name for file in wanted if (name := _record_of(file))})

    def confirm(self, name: str) -> Ticket:
        """Return the outcome of a record, which is durable when this returns.

        The process that stored it may have been killed before it synced the folder.
        """
        self._disk.sync_folder(self.path)
        return self.ticket(name)

    def store_waiting(self, name: str, record: Record) -> Ticket:
        self._store(self._file(name, "waiting"), record.to_bytes())
        return record.ticket(name, "waiting")

    def settle(self, name: str, record: Record, state: State, reason: str | None) -> Ticket:
        """Store the note, then delete the report: in between both exist, and the note counts."""
        kept = record if state == "failed" else record.without_bytes()
        note = kept._replace(due=0.0, reason=reason)
        self._store(self._file(name, state), note.to_bytes())
        self._disk.remove(self._file(name, "waiting"))
        return note.ticket(name, state)

    def revive(self, name: str, due: float) -> Ticket:
        if self.ticket(name).state != "failed":
            raise InputError("only a failed report can be tried again.")
        record = Record.from_bytes(self._file(name, "failed").read_bytes())
        if not record.batch:
            raise InputError("the stored report was damaged, and no other may be made.")
        ticket = self.store_waiting(name, record._replace(attempts=0, reason=None, due=due))
        self._disk.remove(self._file(name, "failed"))
        return ticket

    def expire_failed(self, name: str, now: float) -> None:
        """Delete the bytes of a failed report that has expired, and keep the note."""
        file = self._file(name, "failed")
        try:
            record = Record.from_bytes(file.read_bytes())
        except (FileNotFoundError, ReportError):
            return
        if record.expires is not None and now >= record.expires:
            self._store(self._file(name, "expired"), record.without_bytes().to_bytes())
            self._disk.remove(file)

    def waiting(self, name: str) -> Record | None:
        """Return a record that is to be sent; finish work that a crash interrupted."""
        file = self._file(name, "waiting")
        if any(self._file(name, state).exists() for state in SETTLED):
            self._disk.remove(file)
            return None
        content = self._read(file)
        try:
            return None if content is None else Record.from_bytes(content)
        except ReportError as error:
            # Its bytes may have been sent before, so that no others may be.
            plan_id, window, _ = name.split(".")
            damaged = Record(plan_id, int(window), b"", 0.0)
            self.settle(name, damaged, "failed", first_line(error))
            return None

    def ticket(self, name: str) -> Ticket:
        for state in (*SETTLED, "waiting"):
            file = self._file(name, state)
            if _record_of(file.name) and file.exists():
                try:
                    return Record.from_bytes(file.read_bytes()).ticket(name, state)
                except ReportError as error:
                    plan_id, window, _ = name.split(".")
                    return Ticket(name, plan_id, int(window), state, reason=first_line(error))
        raise InputError(f"there is no ticket {name[:150]!r} in {self.path}.")


def key_digest(answer_key: str) -> str:
    """Return the part of a file's name that stands for the application's key."""
    return hashlib.sha256(answer_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
