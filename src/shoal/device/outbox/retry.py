"""Retries of stored reports: schedule, meaning of responses, and the interface of transports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shoal.device.outbox.queue import Record, ReportQueue, Ticket
from shoal.errors import InputError, TransportError
from shoal.protocol.plan import Aggregators, Plan
from shoal.protocol.random_bits import SystemBits
from shoal.support.checks import check_number
from shoal.support.files import first_line

if TYPE_CHECKING:
    from shoal.device.outbox.queue import State


FIRST_BACKOFF, MAX_BACKOFF = 30.0, 6 * 3600.0
"""An attempt is followed by a wait uniform below the first, doubled each time up to the last."""

MAX_WAIT = 24 * 3600.0
"""For how long a collector may tell a device to wait."""

MAX_CROWDS = 3
"""For how many crowds a report is encrypted, or split into shares, at most. A dishonest relay can
include each ciphertext in the release of its crowd, so this is how many releases can contain it."""
_TOO_LATE = f"it was encrypted for {MAX_CROWDS} keys in turn, each too old when it arrived"

KEPT_ASIDE = 30 * 86_400
"""For how many seconds a refused report is kept where the plan has no window."""

ACCEPTED, CLOSED, AGAIN = 202, {409, 410}, {408, 412, 425, 429}
"""A request that came too slowly, too early, too often or for a crowd that is complete may be made
again; no other 4xx may."""

KEY_CHANGED = 412
"""The report was encrypted for a key that is not in use any more, such as that of another crowd."""

REFUSALS = {
    400: "it does not match the plan",
    404: "it does not know the plan",
    413: "it is too large",
    415: "it does not take this kind of report",
    422: "it does not match the plan",
}


class PostResult(NamedTuple):
    """The response to a report: an HTTP status, and the seconds to wait."""

    status: int
    retry_after: float | None = None


class Posting(Protocol):
    """Takes reports away."""

    def post_report(self, plan_id: str, content: bytes) -> PostResult:
        """Post reports in the binary form; status 202 means that they were accepted for good."""
        ...


class Transport(Posting, Protocol):
    """Carries plans and reports: over HTTP, through a relay, or within a test.

    Both calls raise `shoal.errors.TransportError` or `OSError` where the outcome is unknown. A
    transport may also have:

    - `address`: a report that was made for one is sent to no other;
    - `kept_open()`, a context that gives a `Posting` for the reports that are sent in one go;
    - `pinned_key` and `fetch_certificate(plan_id)`, for certificates signed with that key;
    - `fetch_crowd_key(plan_id, window)`, where it leads to a relay: the signed key document of a
      window's open crowd;
    - `fetch_hpke_keys(endpoint)`, where it leads to a leader: the keys of an aggregator.
    """

    def fetch_plan(self, plan_id: str) -> bytes:
        """Return the plan's JSON; the caller checks it."""
        ...


def uniform() -> float:
    """Return a number uniform on [0, 1), from the system's random bits."""
    return (int.from_bytes(SystemBits().draw(8), "little") >> 11) * 2.0**-53


def outcome(status: int) -> tuple[State, str | None]:
    """Return the next state of a report after a response, and the reason."""
    if status == ACCEPTED:
        return "sent", None
    if status in CLOSED:
        return "expired", f"the collector no longer takes it ({status})"
    if 400 <= status < 500 and status not in AGAIN:
        why = f": {REFUSALS[status]}" if status in REFUSALS else ""
        return "failed", f"the collector refused it ({status}{why})"
    # Nothing else is a collector's response: a 200 or a redirect may be a hotel's login page.
    return "waiting", f"the collector said {status}"


class Attempts:
    """The attempts to send the reports of one queue through one transport."""

    def __init__(
        self,
        queue: ReportQueue,
        transport: Transport,
        spread: float,
        clock: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        self._queue, self._transport, self._clock, self._jitter = queue, transport, clock, jitter
        self._spread = check_number("spread", spread)
        if not 0 <= self._spread <= MAX_WAIT:
            raise InputError(f"spread must be in [0, {MAX_WAIT:.0f}], got spread={spread}.")

    @property
    def address(self) -> str | None:
        return getattr(self._transport, "address", None)

    def first_record(self, plan: Plan, window: int, batch: bytes, now: float) -> Record:
        """Return the record of a new report, with the time of its first attempt."""
        spread, expires = self._spread, None
        if plan.window is not None:
            # The collector knows the ids of this window and the one before, and takes no others.
            expires = (window + 2) * plan.window
            spread = min(spread, plan.window / 2)
        due = now + spread * self._jitter()
        encrypted = None if plan.parties is None else b""
        return Record(
            plan.id, window, batch, due, expires, address=self.address, encrypted=encrypted
        )

    def send_due(self, hurry: bool) -> list[Ticket]:
        """Try every report that is due, unless another process is sending from this folder."""
        with self._queue.sending() as mine:
            if not mine:
                return []
            for name in self._queue.names(state="failed"):
                with self._queue.changing():
                    self._queue.expire_failed(name, self._clock())
            kept_open = getattr(self._transport, "kept_open", None)
            posting = contextlib.nullcontext(self._transport) if kept_open is None else kept_open()
            with posting as transport:
                names = self._queue.names(state="waiting")
                tried = [self.attempt(name, hurry, transport) for name in names]
            return [ticket for ticket in tried if ticket is not None]

    def attempt(self, name: str, hurry: bool, transport: Posting) -> Ticket | None:
        with self._queue.changing():
            record = self._queue.waiting(name)
            if record is None:
                return None
            now = self._clock()
            if record.expires is not None and now >= record.expires:
                return self._queue.settle(name, record, "expired", "its window has passed")
            if record.address not in (None, self.address):
                return None
            if record.due - now > 2 * MAX_WAIT:  # the clock was set back
                record = record._replace(due=now + self._spread * self._jitter())
                self._queue.store_waiting(name, record)
            if record.due > now and not (hurry and record.attempts == 0):
                return None
            # Stored before the attempt, so that a crash during it does not hurry the next one.
            backoff = min(FIRST_BACKOFF * 2.0 ** min(record.attempts, 60), MAX_BACKOFF)
            record = record.tried(now + backoff * self._jitter())
            self._queue.store_waiting(name, record)
        try:
            record, reply = self._post(name, record, transport)
        except (OSError, TransportError) as error:
            return record.ticket(name, "waiting", first_line(error))
        with self._queue.changing():
            if reply.status == KEY_CHANGED and record.crowds >= MAX_CROWDS:
                return self._queue.settle(name, record, "expired", _TOO_LATE)
            return self._after(name, record, reply)

    def _post(self, name: str, record: Record, transport: Posting) -> tuple[Record, PostResult]:
        """Post a report, encrypted if need be; return it as it was sent, with the response."""
        if record.encrypted is None:
            return record, transport.post_report(record.plan_id, record.batch)
        reply = None
        if record.encrypted:
            reply = transport.post_report(record.plan_id, record.encrypted)
        if reply is None or (reply.status == KEY_CHANGED and record.crowds < MAX_CROWDS):
            # The same report for the key of the crowd that is open now, stored before it is sent.
            encrypted = self._prepare(record)
            record = record._replace(encrypted=encrypted, crowds=record.crowds + 1)
            with self._queue.changing():
                self._queue.store_waiting(name, record)
            reply = transport.post_report(record.plan_id, encrypted)
        return record, reply

    def _prepare(self, record: Record) -> bytes:
        """Return a report as it is sent: encrypted for an analyzer, or shared by aggregators."""
        plan = self._queue.kept_plan(record.plan_id)
        shared = plan is not None and isinstance(plan.parties, Aggregators)
        fetch = getattr(self._transport, "fetch_hpke_keys" if shared else "fetch_crowd_key", None)
        if plan is None or fetch is None:
            raise TransportError("the plan of this report, or the way to its parties, is missing.")
        if shared:
            from shoal.device.sharing import share_record  # most plans have one collector

            return share_record(plan, fetch, record)
        from shoal.device.encryption import encrypt_record

        return encrypt_record(plan, fetch, record)

    def _after(self, name: str, record: Record, reply: PostResult) -> Ticket:
        state, reason = outcome(reply.status)
        now = self._clock()
        if state == "expired" and record.expires is not None and now < record.expires:
            # By this clock the window has not passed. If the collector's is wrong, it may be set
            # right in time; if the plan was closed, the report goes when its window has passed.
            state = "waiting"
        if state == "failed":
            record = record._replace(expires=record.expires or int(now) + KEPT_ASIDE)
        if state != "waiting":
            return self._queue.settle(name, record, state, reason)
        may_ask_to_wait = reply.status >= 500 or reply.status in AGAIN
        if reply.retry_after is not None and may_ask_to_wait:
            wait = min(max(reply.retry_after, 0.0), MAX_WAIT)
            record = record._replace(due=record.due + wait)
            self._queue.store_waiting(name, record)
        return record.ticket(name, "waiting", reason)
