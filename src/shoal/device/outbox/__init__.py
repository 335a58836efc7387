"""The outbox: a folder where answers wait to be sent, each as the one report made of it.

The invariant across crashes: an answer that was accepted from the application is sent, in one
version only. So the report is made once, charged before it is randomized, and stored before
anything is sent. The same bytes are sent until the collector accepts them, and the note of that is
stored before the report is deleted. A collector that counts each report id once counts the answer
once.

A `Transport` carries plans to the device and reports away from it: `HttpTransport` over HTTPS, and
`ObliviousTransport` in `shoal.device.outbox.oblivious` through a relay that hides the sender's
address. A device runs `check_plan` and `check_promise` or `check_certificate` before it answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shoal.device.encode import encode
from shoal.device.outbox.http import HttpTransport
from shoal.device.outbox.plan_policy import PlanPolicy, check_certificate, check_plan, check_promise
from shoal.device.outbox.queue import ReportQueue, Ticket, key_digest
from shoal.device.outbox.retry import Attempts, PostResult, Transport, uniform
from shoal.device.randomize import fit_to_weight, flip, pack_reports
from shoal.errors import AnswerError, PrivacyRefusal, ShoalError, TransportError
from shoal.protocol.plan import MIN_WINDOW, Plan, check_plan_id, read_plan
from shoal.protocol.wire import current_window
from shoal.support.checks import check_text
from shoal.support.disk import Disk

if TYPE_CHECKING:
    from shoal.device.encode import OriginalVector, SyntheticVector
    from shoal.device.ledger import Ledger
    from shoal.device.memory import DeviceMemory

__all__ = [
    "HttpTransport",
    "Outbox",
    "PostResult",
    "Ticket",
    "Transport",
    "TransportError",
    "check_certificate",
    "check_plan",
    "check_promise",
    "read_plan",
]

_AGAIN = (
    ". To answer in each window, give the outbox a ledger, which counts what that costs (--ledger"
    " FILE, or ledger=), or send a plan with memory (shoal plan over-time, and --memory FILE)"
)


class Outbox:
    """Answers plans and delivers each answer exactly once.

    Threads and processes may share a folder. One folder belongs to one person and one collector.

    Parameters
    ----------
    folder
        Where reports wait; made if it is not there.
    transport
        The transport of plans and reports.
    memory
        The device's `DeviceMemory`, for plans with memory.
    ledger
        The device's `Ledger`: charged before a report is made.
    limit
        The largest local epsilon of a plan that is answered, or None for any. Several reports of a
        plan without memory add up, in addition to any limit of a ledger.
    recompute
        Whether to compute a plan's promise before the first answer to it; this loads SciPy. By
        default wherever SciPy is installed. Without it a plan whose promise needs a crowd is
        answered within a `limit`, or where the transport fetches a certificate that a pinned key
        signed, and else refused.
    spread
        A report is first sent after a random wait below this many seconds, so that the time of its
        arrival reveals little about the time of the answer.
    min_window
        Plans with shorter windows, in seconds, are refused.
    one_operator
        Also answer plans whose relay and analyzer are on one host: an operator of both sees whose
        report it reads.
    clock, sleep, jitter, disk
        The time, waiting, random numbers in [0, 1) for the waits (never for the flips) and the file
        system; tests pass their own.
    """

    def __init__(
        self,
        folder: pathlib.Path | str,
        transport: Transport,
        *,
        memory: DeviceMemory | None = None,
        ledger: Ledger | None = None,
        limit: object = None,
        recompute: bool | None = None,
        spread: float = 3600.0,
        min_window: int = MIN_WINDOW,
        one_operator: bool = False,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = uniform,
        disk: Disk | None = None,
    ) -> None:
        self._transport, self._clock, self._sleep = transport, clock, sleep
        self._memory, self._ledger = memory, ledger
        self._queue = ReportQueue(pathlib.Path(folder), Disk() if disk is None else disk)
        self._attempts = Attempts(self._queue, transport, spread, clock, jitter)
        self._policy = PlanPolicy(
            self._queue,
            transport,
            has_memory=memory is not None,
            limit=limit,
            recompute=recompute,
            min_window=min_window,
            one_operator=one_operator,
        )

    def plan(self, plan_id: str) -> Plan:
        """Return a plan by its id, from the collector the first time, checked every time."""
        check_plan_id(plan_id)
        if (plan := self._queue.kept_plan(plan_id)) is not None:
            return self._policy.check(plan)
        plan = self._policy.check(read_plan(self._transport.fetch_plan(plan_id), plan_id))
        with self._queue.changing():
            self._queue.keep_plan(plan)
        return plan

    def answer(
        self, plan: Plan, answers: Mapping[str, object], *, answer_key: str | None = None
    ) -> Ticket:
        """Make the report of an answer and store it; when this returns, it will be sent.

        Parameters
        ----------
        plan
            The plan to answer.
        answers
            One person's answer to each question, as `shoal.randomize` takes it.
        answer_key
            The application's own name for this answer. The same key never makes a second report: an
            application that does not know whether an answer was stored answers again with the same
            key and gets the ticket of the first one. Without a key a plan has one answer, or, with
            a ledger or a memory for repeated answers, one in each window.
        """
        self._policy.check(plan)
        if not isinstance(answers, Mapping):
            raise AnswerError("the outbox takes one person's answer: a mapping from questions.")
        now = self._clock()
        window = current_window(plan, now)
        repeats = self._ledger is not None or plan.memory is not None
        if answer_key is None:
            key = f"#{window if repeats else ''}"
        else:  # never the same as a key that the outbox makes itself
            key = f"={check_text('answer_key', answer_key, longest=1000)}"
        with self._queue.changing():
            names = self._queue.names(plan.id)
            digest = key_digest(key)
            if taken := next((name for name in names if name.endswith(f".{digest}")), None):
                ticket = self._queue.confirm(taken)
                self._settle(plan, digest)
                return ticket
            # Questions about the past have an end; all others, with a ledger or memory, none.
            ever = None if repeats else plan.max_reports_per_person
            if plan.survey.reports_per_device is not None:
                ever = plan.reports_per_device
            earlier = [name for name in names if name.split(".")[1] == str(window)]
            most = plan.max_reports_per_person
            if ever is not None and len(names) >= ever:
                earlier, most = names, ever
            if len(earlier) >= most:
                way = "" if repeats or plan.window is None else _AGAIN
                raise PrivacyRefusal(
                    f"the plan allows {most} report{'s' * (most > 1)} per person, and this device"
                    f" has already made {'it' if most == 1 else len(earlier)}; no report was"
                    f" made{way}."
                )
            # A ledger may have no limit, or a higher one; this one is the device's all the same.
            self._policy.check(plan, len(names) + 1)
            if plan.parties is not None:
                self._queue.keep_plan(plan)  # its report is encrypted when it is sent
            batch = self._make(plan, answers, window, digest)
            record = self._attempts.first_record(plan, window, batch, now)
            ticket = self._queue.store_waiting(f"{plan.id}.{window}.{digest}", record)
            self._settle(plan, digest)
            return ticket

    def send_due(self, *, hurry: bool = False) -> list[Ticket]:
        """Try every report whose time has come, once, and return the outcome of each.

        With `hurry`, reports that wait for their first attempt do not wait any longer. If another
        process is sending from this folder, it is left to it.
        """
        return self._attempts.send_due(hurry)

    def finish(self, patience: float) -> list[Ticket]:
        """Send and wait, up to `patience` seconds, until no report waits; return all tickets."""
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
        with self._queue.changing():
            waiting = [self._queue.waiting(one.name) for one in tickets if one.state == "waiting"]
        return [one.due for one in waiting if one and one.address in (None, self._attempts.address)]

    def tickets(self) -> list[Ticket]:
        """Return the outcome of every answer."""
        with self._queue.changing():
            return [self._queue.ticket(name) for name in self._queue.names()]

    def retry(self, ticket: Ticket) -> Ticket:
        """Let a failed report wait again, with the same bytes, once its cause is removed."""
        with self._queue.changing():
            return self._queue.revive(ticket.name, self._clock())

    def _make(self, plan: Plan, answers: Mapping[str, object], window: int, digest: str) -> bytes:
        """Return the batch that is sent of an answer; `digest` stands for the answer's key."""
        rounding = self._memory.rounding if self._memory is not None and plan.memory else None
        synthetic = self._randomize(plan, encode(plan, answers, rounding=rounding), digest)
        fitted = fit_to_weight(synthetic, plan.max_weight)
        return pack_reports(plan, fitted, window=window).to_bytes()

    def _randomize(self, plan: Plan, original: OriginalVector, digest: str) -> SyntheticVector:
        """Charge, then randomize; after a crash in between, the charge stands and is not repeated.

        What was drawn and not stored never left, so that one charge covers both attempts.
        """
        token = None if self._ledger is None else self._token(plan, digest)
        if self._memory is not None and plan.memory is not None:
            return self._memory.report(plan, original, ledger=self._ledger, token=token)
        if self._ledger is not None:
            self._ledger.charge(plan, token=token)
        return flip(plan, original)

    def _token(self, plan: Plan, digest: str) -> str:
        """Return the ledger's name for one answer of this folder; another folder has another."""
        own = f"{self._queue.identity()}.{plan.id}.{digest}"
        return hashlib.sha256(own.encode()).hexdigest()

    def _settle(self, plan: Plan, digest: str) -> None:
        """Let the ledger forget the token of an answer whose report is stored."""
        # The report is stored; a token that stays behind stands for it alone and does no harm.
        if self._ledger is not None:
            with contextlib.suppress(ShoalError):
                self._ledger.settle(self._token(plan, digest))
