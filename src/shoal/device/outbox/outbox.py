"""The outbox: a folder where answers wait to be sent, each as the one report made of it.

What must hold whatever crashes: an answer that was taken is sent, in one version only. So the
report is made once and stored before anything travels; it is sent as it stands there until it is
accepted, and the note that it was is stored before it is deleted. A collector that counts a report
id once then counts the answer once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import shoal
from shoal.agreement.plan import SHORTEST_WINDOW, Plan
from shoal.agreement.random_bits import SystemBits
from shoal.agreement.vectors import Original, Synthetic
from shoal.agreement.wire import current_window, pack_reports
from shoal.device.encoding import encode
from shoal.device.outbox.folder import Folder
from shoal.device.outbox.plan_checks import (
    check_certificate,
    check_plan,
    check_plan_id,
    check_promise,
    read_plan,
)
from shoal.device.outbox.records import Record, Ticket, key_digest, may_ask_to_wait, outcome
from shoal.device.outbox.transport import CertifyingTransport, Posting, Reply, Transport
from shoal.device.randomizing import randomize
from shoal.errors import AnswerError, InputError, PrivacyRefusal, ShoalError, TransportError
from shoal.support.checks import check_number, check_text
from shoal.support.disk import Disk
from shoal.support.files import first_line

__all__ = ["Outbox"]

FIRST_BACKOFF, LONGEST_BACKOFF = 30.0, 6 * 3600.0
"""An attempt is followed by a wait uniform below the first, doubled each time up to the last."""

LONGEST_WAIT = 24 * 3600.0
"""For how long a collector may tell a device to wait."""

KEPT_ASIDE = 30 * 86_400
"""For how many seconds a refused report is kept where the plan has no window."""


_AGAIN = (
    ". To answer in each window, give the outbox a ledger, which counts what that costs (--ledger"
    " FILE, or ledger=), or send a plan with memory (shoal plan over-time, and --memory FILE)"
)


class Remembering(Protocol):
    """Permanent flips, as `shoal.device.memory.DeviceMemory` keeps them."""

    def report(
        self, plan: Plan, original: Original, *, ledger: Any = None, token: str | None = None
    ) -> Synthetic:
        """Return the vector to send; with a ledger, charge it first."""
        ...


class Charging(Protocol):
    """The device's own account of what it reveals, as `shoal.device.ledger.Ledger` keeps it."""

    def charge(
        self, plan: Plan, answer_digest: str | None = None, *, token: str | None = None
    ) -> object:
        """Charge one report, durably and once for a token, or raise `PrivacyRefusal`."""
        ...

    def settle(self, token: str) -> None:
        """Let a token go: its report is stored."""
        ...


def uniform() -> float:
    """Return a number uniform on [0, 1), from the system's random bits."""
    word = np.empty(1, np.uint64)
    SystemBits().fill(word)
    return int(word[0] >> np.uint64(11)) * 2.0**-53


class Outbox:
    """Answers plans and sees to it that each answer arrives once.

    Threads and processes may share a folder. One folder belongs to one person and one collector.

    Parameters
    ----------
    folder
        Where reports wait; made if it is not there.
    transport
        What carries plans and reports.
    memory
        The device's `DeviceMemory`, for plans with memory.
    ledger
        The device's `Ledger`: charged before a report is made.
    limit
        The largest local epsilon of a plan that is answered, or None for any. Several reports of a
        plan without memory add up, whatever limit a ledger has besides.
    recompute
        Whether to compute a plan's promise before the first answer to it; this loads SciPy. By
        default wherever SciPy is installed. Without it a plan whose promise needs a crowd is
        answered within a `limit`, or where the transport brings a certificate that a pinned key
        signed, and else refused.
    spread
        A report is first sent after a random wait below so many seconds, so that the moment it
        arrives says little about the moment it was made.
    shortest_window
        Plans with shorter windows, in seconds, are refused.
    clock, sleep, jitter, disk
        The time, waiting, random numbers in [0, 1) for the waits (never for the flips) and the file
        system; tests bring their own.
    """

    def __init__(
        self,
        folder: Path | str,
        transport: Transport,
        *,
        memory: Remembering | None = None,
        ledger: Charging | None = None,
        limit: object = None,
        recompute: bool | None = None,
        spread: float = 3600.0,
        shortest_window: int = SHORTEST_WINDOW,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = uniform,
        disk: Disk | None = None,
    ) -> None:
        self._transport, self._memory, self._ledger = transport, memory, ledger
        self._limit, self._shortest_window = limit, shortest_window
        computes = importlib.util.find_spec("scipy") is not None
        if recompute and not computes:
            raise InputError("computing a promise needs SciPy: pip install scipy.")
        self._recompute = computes if recompute is None else recompute
        self._spread = check_number("spread", spread)
        if not 0 <= self._spread <= LONGEST_WAIT:
            raise InputError(f"spread must be in [0, {LONGEST_WAIT:.0f}], got spread={spread}.")
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._confirmed: set[str] = set()
        self._folder = Folder(Path(folder), Disk() if disk is None else disk)

    def plan(self, plan_id: str) -> Plan:
        """Return a plan by its id, from the collector the first time, checked every time."""
        check_plan_id(plan_id)
        if (kept := self._folder.kept_plan(plan_id)) is not None:
            return self._checked(kept)
        plan = self._checked(read_plan(self._transport.fetch_plan(plan_id), plan_id))
        with self._folder.changing():
            self._folder.keep_plan(plan)
        return plan

    def answer(
        self, plan: Plan, answers: Mapping[str, object], *, answer_key: str | None = None
    ) -> Ticket:
        """Make the report of an answer and store it; when this returns, it will be sent.

        Parameters
        ----------
        plan
            What is answered.
        answers
            One person's answer to each question, as `shoal.encode` takes it.
        answer_key
            The application's own name for this answer. The same key never makes a second report:
            whoever does not know whether an answer was taken answers again with the same key and
            gets the ticket of the first one. Without a key a plan has one answer, or, where a
            memory or a ledger sees to repeated answers, one in each window.
        """
        self._checked(plan)
        if not isinstance(answers, Mapping):
            raise AnswerError("the outbox takes one person's answer: a mapping from questions.")
        now = self._clock()
        window = current_window(plan, now)
        repeats = self._ledger is not None or plan.memory is not None
        key = f"#{window if repeats else ''}" if answer_key is None else _own_key(answer_key)
        with self._folder.changing():
            names = self._folder.names(plan.id)
            digest = key_digest(key)
            if taken := next((name for name in names if name.endswith(f".{digest}")), None):
                ticket = self._folder.confirm(taken)
                self._settle(plan, digest)
                return ticket
            made = [name for name in names if not repeats or name.split(".")[1] == str(window)]
            most = plan.max_reports_per_person
            if len(made) >= most:
                way = "" if repeats or plan.window is None else _AGAIN
                raise PrivacyRefusal(
                    f"the plan takes {most} report{'s' * (most > 1)} of one person, and"
                    f" this device has made {len(made)}; nothing was made{way}."
                )
            # A ledger may have no limit, or a higher one; this one is the device's all the same.
            self._checked(plan, len(names) + 1)
            synthetic = self._synthetic(plan, encode(plan, answers), digest)
            batch = pack_reports(plan, synthetic, window=window).to_bytes()
            record = self._first(plan, window, batch, now)
            ticket = self._folder.wait(f"{plan.id}.{window}.{digest}", record)
            self._settle(plan, digest)
            return ticket

    def send_due(self, *, hurry: bool = False) -> list[Ticket]:
        """Try every report whose time has come, once, and return what became of each.

        With `hurry`, reports that wait for their first attempt do not wait any longer. If another
        process is sending from this folder, it is left to it.
        """
        with self._folder.sending() as mine:
            if mine:
                self._expire_failed()
            names = self._folder.names(state="waiting") if mine else []
            with self._sending() as transport:
                tried = [self._attempt(name, hurry, transport) for name in names]
            return [ticket for ticket in tried if ticket is not None]

    @contextmanager
    def _sending(self) -> Iterator[Posting]:
        """Yield what posts the reports of one go, kept open in between where it can be."""
        kept_open = getattr(self._transport, "kept_open", None)
        with nullcontext(self._transport) if kept_open is None else kept_open() as sending:
            yield sending

    def finish(self, patience: float) -> list[Ticket]:
        """Send and wait, for up to `patience` seconds, until no report waits; return all tickets.

        >>> import tempfile
        >>> from shoal.device.outbox import HttpTransport
        >>> Outbox(tempfile.mkdtemp(), HttpTransport("http://localhost:9")).finish(60)
        []
        """
        end = self._clock() + patience
        while True:
            self.send_due()
            tickets = self.tickets()
            due = self._due(tickets)
            pause = max(min(due, default=0.0) - self._clock(), 0.05)
            if not due or self._clock() + pause > end:
                return tickets
            self._sleep(pause)

    def _due(self, tickets: list[Ticket]) -> list[float]:
        """Return when each report is tried that this outbox may send."""
        with self._folder.changing():
            waiting = [self._folder.waiting(one.name) for one in tickets if one.state == "waiting"]
        return [one.due for one in waiting if one and one.address in (None, self._address)]

    def tickets(self) -> list[Ticket]:
        """Return what became of every answer."""
        with self._folder.changing():
            return [self._folder.ticket(name) for name in self._folder.names()]

    def retry(self, ticket: Ticket) -> Ticket:
        """Let a failed report wait again, with the same bytes, once its cause is removed."""
        with self._folder.changing():
            return self._folder.revive(ticket.name, self._clock())

    def _checked(self, plan: Plan, reports: int = 1) -> Plan:
        check_plan(plan, limit=self._limit, reports=reports, shortest_window=self._shortest_window)
        if plan.memory is not None and self._memory is None:
            raise PrivacyRefusal(
                "the plan needs permanent flips, and this outbox has no memory; give it one:"
                " --memory FILE, or memory=."
            )
        if plan.id not in self._confirmed:
            self._confirm(plan)
            self._confirmed.add(plan.id)
        return plan

    def _confirm(self, plan: Plan) -> None:
        """Refuse a plan unless something tells that it keeps its promise; this is done once.

        A local promise is checked wherever a plan is read, and a limit of the device's own holds
        without any crowd.
        """
        if plan.promise.kind == "local" or (self._limit is not None and not self._recompute):
            return
        carrier = self._transport
        key = carrier.pinned_key if isinstance(carrier, CertifyingTransport) else None
        if key is None and not self._recompute:
            raise PrivacyRefusal(
                "nothing tells this device that the plan keeps its promise; compute it"
                " (--recompute, or recompute=True, with SciPy), set a limit (--limit, or"
                " limit=), or pin the collector's key, whose certificate says so (--key, or"
                " public_key=)."
            )
        source = "computed" if self._recompute else f"certified by {key}"
        note = f"{source}, shoal {shoal.__version__}"
        if self._folder.promise_note(plan.id) == note:
            return
        if self._recompute:
            check_promise(plan)
        else:
            assert isinstance(carrier, CertifyingTransport)
            check_certificate(plan, carrier.fetch_certificate(plan.id))
        with self._folder.changing():
            self._folder.keep_promise_note(plan.id, note)

    def _synthetic(self, plan: Plan, original: Original, digest: str) -> Synthetic:
        """Charge, then randomize; after a crash in between, the charge stands and is not repeated.

        What was drawn and not stored never left, so that one charge covers both attempts.
        """
        if self._ledger is None:
            if self._memory is not None and plan.memory is not None:
                return self._memory.report(plan, original)
            return randomize(original, plan)
        token = self._token(plan, digest)
        if self._memory is not None and plan.memory is not None:
            return self._memory.report(plan, original, ledger=self._ledger, token=token)
        self._ledger.charge(plan, token=token)
        return randomize(original, plan)

    def _token(self, plan: Plan, digest: str) -> str:
        """Return the ledger's name for one answer of this folder; another folder has another."""
        own = f"{self._folder.identity()}.{plan.id}.{digest}"
        return hashlib.sha256(own.encode()).hexdigest()

    def _settle(self, plan: Plan, digest: str) -> None:
        # The report is stored; a token that stays behind stands for it alone and does no harm.
        if self._ledger is not None:
            with suppress(ShoalError):
                self._ledger.settle(self._token(plan, digest))

    def _first(self, plan: Plan, window: int, batch: bytes, now: float) -> Record:
        spread, expires = self._spread, None
        if plan.window is not None:
            # The collector knows the ids of this window and the one before, and takes no others.
            expires = (window + 2) * plan.window
            spread = min(spread, plan.window / 2)
        due = now + spread * self._jitter()
        return Record(plan.id, window, batch, due, expires, address=self._address)

    @property
    def _address(self) -> str | None:
        return getattr(self._transport, "address", None)

    def _expire_failed(self) -> None:
        for name in self._folder.names(state="failed"):
            with self._folder.changing():
                self._folder.expire_failed(name, self._clock())

    def _attempt(self, name: str, hurry: bool, transport: Posting) -> Ticket | None:
        with self._folder.changing():
            record = self._folder.waiting(name)
            if record is None:
                return None
            now = self._clock()
            if record.expires is not None and now >= record.expires:
                return self._folder.settle(name, record, "expired", "its window has passed")
            if record.address not in (None, self._address):
                return None
            if record.due - now > 2 * LONGEST_WAIT:  # the clock was set back
                record = replace(record, due=now + self._spread * self._jitter())
                self._folder.wait(name, record)
            if record.due > now and not (hurry and record.attempts == 0):
                return None
            # Stored before the attempt, so that whoever crashes in it does not hurry the next one.
            backoff = min(FIRST_BACKOFF * 2.0 ** min(record.attempts, 60), LONGEST_BACKOFF)
            record = record.tried(now + backoff * self._jitter())
            self._folder.wait(name, record)
        try:
            reply = transport.post_report(record.plan_id, record.batch)
        except (OSError, TransportError) as error:
            return record.ticket(name, "waiting", first_line(error))
        with self._folder.changing():
            return self._after(name, record, reply)

    def _after(self, name: str, record: Record, reply: Reply) -> Ticket:
        state, reason = outcome(reply)
        now = self._clock()
        if state == "expired" and record.expires is not None and now < record.expires:
            # By this clock the window has not passed. If the collector's is wrong, it may be set
            # right in time; if the plan was closed, the report goes when its window has passed.
            state = "waiting"
        if state == "failed":
            until = record.expires or int(now) + KEPT_ASIDE
            record = replace(record, expires=until)
        if state != "waiting":
            return self._folder.settle(name, record, state, reason)
        if reply.retry_after is not None and may_ask_to_wait(reply):
            wait = min(max(reply.retry_after, 0.0), LONGEST_WAIT)
            record = replace(record, due=record.due + wait)
            self._folder.wait(name, record)
        return record.ticket(name, "waiting", reason)


def _own_key(answer_key: str) -> str:
    key = check_text("answer_key", answer_key, longest=1000)
    return f"={key}"  # never the same as a key that the outbox makes itself
