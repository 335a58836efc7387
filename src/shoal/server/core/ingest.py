"""The endpoint that devices post reports to, and the queue that commits them to the disk.

The endpoint is written directly for ASGI, because a report is small and a framework would cost more
than the report. Four headers of the request are read, and none of them is stored. The size limit of
a request is known before its body is read: a few reports of one plan.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from shoal.errors import ReportError
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.http import (
    JSON,
    NO_STORE,
    BodyBudget,
    Headers,
    Receive,
    Scope,
    media_type,
    read_body,
)
from shoal.server.core.problems import CLOSE, Problem, Send
from shoal.server.core.service import Service
from shoal.server.core.settings import SenderLimits, Settings
from shoal.server.core.tokens import Token, Tokens, bearer_token
from shoal.server.storage.database import StorageError, StorageFull

_WITHOUT_BODY = ("GET", "HEAD")
UNREAD = (problems.TOO_LARGE, problems.TOO_MANY_AT_ONCE, problems.BUSY)
"""Refusals that do not wait for the rest of a body. The connection ends with them, and they say so:
else a client could send its next request into a connection that is about to close."""

LARGEST_JSON = 64 << 10
"""Bytes of a request in JSON, from any sender: that form is for a few reports."""
AT_ONCE = 4 << 10
"""Bytes of a request that is parsed on the event loop; a larger one is parsed in a thread."""
BUDGET_OF_DEVICES = 64 << 20
"""Bytes that requests without a relay's token may have together beyond their small bodies."""

_EMPTY = [(b"content-length", b"0"), NO_STORE]
_ACCEPTED = {"type": "http.response.start", "status": 202, "headers": _EMPTY}
_ACCEPTED_LAST = {"type": "http.response.start", "status": 202, "headers": [*_EMPTY, CLOSE]}
_NO_BODY = {"type": "http.response.body", "body": b""}

U = TypeVar("U")


class ReportFormat(NamedTuple):
    """How reports arrive: the path, whose group is the plan's id, media types, and parsing."""

    path: re.Pattern[str]
    media: frozenset[bytes]
    parse: Callable[[Plan, bytes], Any]
    """Returns the reports in a body; anything else is a `ReportError`."""
    bytes_of: Callable[[Plan, int], int]
    """The size in bytes of a number of reports of a plan."""


class ReportRequest(NamedTuple):
    """A request whose head is in order."""

    plan: Plan
    headers: Headers
    is_json: bool
    token: Token | None
    is_relay: bool


class ReportPlans(Protocol):
    """The plans of a party."""

    def plan_for_reports(self, plan_id: str) -> Plan | Problem:
        """Return a plan, or why no reports are accepted; a commit checks the plan's state."""
        ...


class DeviceIngest:
    """Accepts reports; new and repeated ones get the same response after the same work.

    Without `tokens`, tokens give no rights. With `needs_token`, only applications and relays with a
    token may send reports.
    """

    def __init__(
        self,
        service: Service,
        limits: SenderLimits,
        plans: ReportPlans,
        committer: Committer[Any],
        form: ReportFormat,
        tokens: Tokens | None = None,
        *,
        needs_token: bool = False,
    ) -> None:
        self._service, self._settings, self._plans = service, limits, plans
        self._committer, self._form = committer, form
        self._tokens, self.needs_token = tokens, needs_token
        self._in_thread = service.upload_thread.run
        self._rate = limits.reports_per_second
        self._allowances: dict[str, Allowance] = {}
        self._limits: dict[str, tuple[ReportLimits, int]] = {}
        self._device_budget = BodyBudget(BUDGET_OF_DEVICES)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is this endpoint's; return whether it was."""
        matched = self._form.path.fullmatch(scope["path"])
        if matched is None:
            return False
        request = self._check_head(matched[1], scope)
        if isinstance(request, Problem):
            await self._refuse(request, send, last=scope["method"] not in _WITHOUT_BODY)
        elif request.is_relay:
            await self._answer_relay(request, receive, send)
        else:
            connection = scope.get("state", {}).get("connection", {})
            sender = connection.get("sender")
            if sender is None:
                sender = connection["sender"] = Sender(self._rate)
            await self._answer_device(request, sender, receive, send)
        return True

    def _check_head(self, plan_id: str, scope: Scope) -> ReportRequest | Problem:
        if scope["method"] != "POST":
            return problems.ONLY_POST
        headers = dict(scope["headers"])
        media = media_type(headers)
        if media not in self._form.media:
            return problems.WRONG_TYPE
        token = self._token(headers, plan_id) if b"authorization" in headers else None
        if token is None and self.needs_token:
            return problems.NO_TOKEN
        plan = self._plans.plan_for_reports(plan_id)
        if isinstance(plan, Problem):
            return plan
        is_relay = token is not None and token.may("relay")
        return ReportRequest(plan, headers, media == JSON, token, is_relay)

    def _token(self, headers: Headers, plan_id: str) -> Token | None:
        secret = bearer_token(headers)
        token = self._tokens.find(secret) if secret and self._tokens is not None else None
        if token is None or not token.may("app") or not token.covers(plan_id):
            return None
        return token

    async def _answer_relay(self, request: ReportRequest, receive: Receive, send: Send) -> None:
        raise NotImplementedError  # only a collector has tokens of relays

    async def _answer_device(
        self, request: ReportRequest, sender: Sender, receive: Receive, send: Send
    ) -> None:
        plan = request.plan
        limits, largest = self._limits.get(plan.id) or self._limits_of(plan)
        upload = await self._read(
            request, receive, self._device_budget, largest, problems.TOO_MANY_AT_ONCE
        )
        if isinstance(upload, Problem):
            await self._refuse(upload, send, last=upload in UNREAD)
            return
        count = len(upload)
        if count > limits.of_request:
            await self._refuse(problems.TOO_MANY_AT_ONCE, send)
            return
        # The response to the last report of its share closes the connection in an orderly way. So a
        # proxy that passes the requests of many people over one connection opens another, and a
        # device that sends one report is never refused.
        room = limits.of_connection - sender.sent[plan.id] - count
        token = request.token
        allowance = sender.allowance if token is None else self._allowance(token)
        if room < 0 or not allowance.take(count):
            # The debt of this connection must not fall on the next person whom a proxy puts on it.
            last = room < 0 or token is None
            await self._refuse(problems.TOO_MANY, send, last=last)
            return
        sender.sent[plan.id] += count
        problem = await self._committer.submit(upload)
        if problem is not None:
            await self._refuse(problem, send, last=room == 0)
            return
        await self._accepted(upload, send, last=not room)

    async def _accepted(self, upload: Any, send: Send, *, last: bool) -> None:
        await send(_ACCEPTED_LAST if last else _ACCEPTED)
        await send(_NO_BODY)

    async def _read(
        self,
        request: ReportRequest,
        receive: Receive,
        budget: BodyBudget,
        largest: int,
        too_large: Problem,
    ) -> Any:
        plan, headers, is_json, *_ = request
        if is_json:
            largest, too_large = LARGEST_JSON, problems.TOO_LARGE
        with budget.share() as share:
            body = await read_body(receive, headers, largest, share, too_large)
            if isinstance(body, Problem):
                return body
            # Where there is no JSON, a report may begin like that: with its random id.
            if b"application/json" in self._form.media and is_json != (body[:1] == b"{"):
                return problems.MALFORMED
            try:
                if len(body) <= AT_ONCE:
                    return self._form.parse(plan, body)
                return await self._in_thread(self._form.parse, plan, body)
            except ReportError:
                return problems.MALFORMED

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        self._service.refused(problem)
        await problem.send(send, last=last)

    def _limits_of(self, plan: Plan) -> tuple[ReportLimits, int]:
        """Return the limits without a relay's token: in reports, and in bytes of a request."""
        limits = ReportLimits.of(plan, self._settings)
        size = self._form.bytes_of(plan, limits.of_request)
        self._limits[plan.id] = limits, min(size, self._settings.max_body_bytes)
        return self._limits[plan.id]

    def _allowance(self, token: Token) -> Allowance:
        if token.id not in self._allowances:
            self._allowances[token.id] = Allowance(self._rate)
        return self._allowances[token.id]


class ReportLimits(NamedTuple):
    """How many reports of a plan may be sent without a relay's token."""

    of_request: int
    of_connection: int

    @classmethod
    def of(cls, plan: Plan, settings: SenderLimits) -> ReportLimits:
        """Return the limits that the settings set for a plan."""
        share = max(plan.reports_needed * settings.max_share_percent // 100, 1)
        return cls(min(settings.reports_per_request, share), share)


def limits_document(plan: Plan, settings: Settings) -> dict[str, object]:
    """Return the limits that keep one sender from filling a plan's crowd alone."""
    limits = ReportLimits.of(plan, settings)
    shared = {"reports_per_second_at": "each process"} if settings.database else {}
    return {
        "token_needed": settings.ingest == "token",
        "reports_per_request": limits.of_request,
        "reports_per_connection": limits.of_connection,
        "reports_per_second": settings.reports_per_second or None,
        **shared,
        "not_for": "relays with a token",
    }


class Allowance:
    """So many reports a second, with bursts of up to one second's worth; 0 means no limit."""

    __slots__ = ("_at", "_clock", "_left", "_rate")

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = per_second, clock
        self._left, self._at = float(per_second), clock()

    def take(self, count: int) -> bool:
        """Return whether a number of reports may be sent now; if so, charge them."""
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        # A batch above one second's worth is accepted when nothing is owed, and paid off later.
        if self._left < min(count, self._rate):
            return False
        self._left -= count
        return True


class Sender:
    """One connection: how many reports of each plan it has sent, and how fast it may send."""

    __slots__ = ("allowance", "sent")

    def __init__(self, per_second: int) -> None:
        self.sent: Counter[str] = Counter()
        self.allowance = Allowance(per_second)


MAX_PER_COMMIT = 10_000
"""Reports in one commit; a larger upload goes by itself."""

SHORTEST_TICK, LONGEST_TICK = 2**-8, 2**-4
"""Seconds between two moments at which a lone commit is answered: 4 to 62 milliseconds."""

_LONE = 4
"""Uploads of a commit that is answered at a tick; larger ones take longer by themselves."""


_WATCH = 0.5
"""Seconds between two checks for uploads that have waited too long."""


class Waiting(NamedTuple, Generic[U]):
    """An upload, its answer to come, and when it is answered at the latest."""

    upload: U
    answer: asyncio.Future[Problem | None]
    due: float


Accept = Callable[[Sequence[U]], Awaitable[list[Problem | None]]]


class Committer(Generic[U]):
    """Group commit: uploads that arrive during one transaction go into the next.

    A write to the disk takes as long for one report as for a thousand. So uploads wait while a
    commit is under way and then go together; they are answered when they are on the disk. If more
    than `max_queued_reports` wait, counted by `size`, new ones are refused at once. Small uploads
    do not queue behind large ones: a single report gets through however many full batches others
    send.

    Every commit does the same work, except when reports fall into two crowds. By measuring response
    times one could count the reports of others. So a commit behind which no other upload waits is
    answered at a tick, whatever it had to do.

    Every upload gets a response within `timeout` seconds: one that still waits is removed from the
    queue; for one that is being committed, it is unknown whether it counts. Its sender retries with
    the same bytes, and duplicates are recognized.
    """

    def __init__(
        self, accept: Accept[U], max_queued_reports: int, size: Callable[[U], int], timeout: float
    ) -> None:
        self._accept, self._max_queued, self._size = accept, max_queued_reports, size
        self._timeout = timeout
        self._uploads: list[Waiting[U]] = []
        self._group: list[Waiting[U]] = []
        self._waiting = 0
        self._smallest_first = False
        self._wake = asyncio.Event()
        self._stopping = False
        self._times: deque[float] = deque(maxlen=63)

    @property
    def fill(self) -> float:
        return self._waiting / self._max_queued

    async def submit(self, upload: U) -> Problem | None:
        """Return when the upload is on the disk, or with the problem why it is not."""
        if self._stopping:
            return problems.STOPPING
        count = self._size(upload)
        if self._waiting + count > self._max_queued and self._is_full_for(count):
            return problems.BUSY
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Problem | None] = loop.create_future()
        self._uploads.append(Waiting(upload, answer, loop.time() + self._timeout))
        self._waiting += count
        self._wake.set()
        return await answer

    async def run(self) -> None:
        """Commit group after group until stopped and empty."""
        try:
            while not self._stopping or self._uploads:
                await self._wake.wait()
                self._wake.clear()
                while self._uploads:
                    await self._commit(self._next_group())
        finally:  # if it is cancelled, no upload is left waiting
            self._expire(math.inf)

    def stop(self) -> None:
        """Accept no more uploads; queued ones are still committed."""
        self._stopping = True
        self._wake.set()

    def _is_full_for(self, size: int) -> bool:
        """Whether too many reports wait; those of larger uploads do not keep a small one out."""
        sizes = [self._size(one.upload) for one in self._uploads]
        waiting = sum(one for one in sizes if one <= size)
        return waiting > 0 and waiting + size > self._max_queued

    def _next_group(self) -> list[Waiting[U]]:
        """Return the uploads of the next commit: the smallest and the oldest in turn."""
        queue = self._uploads
        self._smallest_first = not self._smallest_first
        if self._waiting <= MAX_PER_COMMIT:
            self._uploads, self._waiting = [], 0
            return queue
        if self._smallest_first:
            queue = sorted(queue, key=lambda waiting: self._size(waiting.upload))
        group, size = [queue[0]], self._size(queue[0].upload)
        for one in queue[1:]:
            more = self._size(one.upload)
            if size + more > MAX_PER_COMMIT:
                break
            group.append(one)
            size += more
        chosen = set(map(id, group))
        self._uploads = [one for one in self._uploads if id(one) not in chosen]
        self._waiting -= size
        return group

    async def _commit(self, group: list[Waiting[U]]) -> None:
        answers: Sequence[Problem | None]
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._group = group
        self._watching = loop.call_later(_WATCH, self._watch)
        try:
            answers = await self._accept([one.upload for one in group])
        except StorageFull:
            answers = [problems.STORAGE_FULL] * len(group)
        except StorageError:
            answers = [problems.UNAVAILABLE] * len(group)
        except Exception:
            answers = [problems.INTERNAL] * len(group)
        finally:
            self._watching.cancel()
        self._group = []
        if self._uploads or len(group) > _LONE:
            _answer(group, answers)
            return
        took = loop.time() - began
        tick = self._tick(took)
        loop.call_at(began + math.ceil(took / tick) * tick, _answer, group, answers)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._expire(loop.time())
        self._watching = loop.call_later(_WATCH, self._watch)

    def _expire(self, now: float) -> None:
        """Answer uploads that are due; those that have not begun are never committed."""
        late = [one for one in self._group if one.due <= now]
        if self._uploads and self._uploads[0].due <= now:  # the oldest is first
            late += [one for one in self._uploads if one.due <= now]
            self._uploads = [one for one in self._uploads if one.due > now]
            self._waiting = sum(self._size(one.upload) for one in self._uploads)
        _answer(late, [problems.UNAVAILABLE] * len(late))

    def _tick(self, took: float) -> float:
        """Return the time between answers: twice what a commit usually takes, or a little more."""
        self._times.append(took)
        usual = sorted(self._times)[len(self._times) // 2]
        tick = SHORTEST_TICK
        while tick < min(2 * usual, LONGEST_TICK):
            tick *= 2
        return tick


def _answer(group: Sequence[Waiting[U]], answers: Sequence[Problem | None]) -> None:
    for one, answer in zip(group, answers, strict=True):
        if not one.answer.done():  # the sender may have gone, or the time was over
            one.answer.set_result(answer)


LOOKUPS = 100
"""Names in a second that a shared database is asked for because this process does not know them."""


class Lookups:
    """Asks a shared database for plans and tokens that are not known here.

    Others publish plans and make tokens too, and a device discards its report if it is told
    that there is no such plan. Anybody can make up names, so the number of lookups in a second
    is limited; beyond that, a client with an unknown name is told to try again.
    """

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service, self.allowance = service, Allowance(LOOKUPS, clock)

    async def succeed(self, lookups: Sequence[Callable[[], Awaitable[object]]], send: Send) -> bool:
        """Make lookups; if that is not possible now, respond so and return False."""
        found = not lookups or self.allowance.take(len(lookups))
        try:
            for look_up in lookups if found else ():
                await look_up()
        except StorageError:
            found = False  # there may be such a plan, or such a token
        if not found:
            self._service.refused(problems.NOT_KNOWN_YET)
            await problems.NOT_KNOWN_YET.send(send, last=True)
        return found
