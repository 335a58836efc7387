"""The endpoint that devices post reports to: a few of one plan in a request.

The collector's `Ingest` and the relay's `EncryptedIngest` build on it. It is written directly for
ASGI, because a report is small and a framework would cost more than the report. Four headers of the
request are read, and none of them is stored. The size limit of a request is known before its body
is read: a few reports.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from shoal.errors import ReportError
from shoal.protocol.plan import Plan
from shoal.server.core import problems
from shoal.server.core.group_commit import Committer
from shoal.server.core.http import (
    JSON,
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

__all__ = [
    "Allowance",
    "DeviceIngest",
    "ReportLimits",
    "ReportPlans",
    "ReportRequest",
    "Sender",
    "limits_document",
]

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

NO_STORE = (b"cache-control", b"no-store")
_EMPTY = [(b"content-length", b"0"), NO_STORE]
_ACCEPTED = {"type": "http.response.start", "status": 202, "headers": _EMPTY}
_ACCEPTED_LAST = {"type": "http.response.start", "status": 202, "headers": [*_EMPTY, CLOSE]}
_NO_BODY = {"type": "http.response.body", "body": b""}


class _Reports(Protocol):
    def __len__(self) -> int: ...


U = TypeVar("U", bound=_Reports)


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
        """Return a plan by its id, or the problem why no reports are accepted for it."""
        ...


class DeviceIngest(ABC, Generic[U]):
    """Accepts reports; new and repeated ones get the same response after the same work.

    Parameters
    ----------
    service
        Counts refusals, and has a thread for large requests.
    limits
        How much one sender may send.
    plans
        The plans whose reports are accepted. Their state is checked when the reports are counted.
    committer
        Writes uploads to the disk.
    tokens
        Tokens of applications and relays; None if tokens give no rights here.
    needs_token
        Whether only applications and relays with a token may send reports.
    """

    path: ClassVar[re.Pattern[str]]
    """The path; its group is the plan's id."""
    media: ClassVar[frozenset[bytes]]
    """Media types of a body."""

    def __init__(
        self,
        service: Service,
        limits: SenderLimits,
        plans: ReportPlans,
        committer: Committer[U],
        tokens: Tokens | None = None,
        *,
        needs_token: bool = False,
    ) -> None:
        self._service, self._settings, self._plans = service, limits, plans
        self._committer, self._tokens, self.needs_token = committer, tokens, needs_token
        self._in_thread = service.upload_thread.run
        self._rate = limits.reports_per_second
        self._allowances: dict[str, Allowance] = {}
        self._limits: dict[str, tuple[ReportLimits, int]] = {}
        self._device_budget = BodyBudget(BUDGET_OF_DEVICES)

    @staticmethod
    @abstractmethod
    def parse(plan: Plan, body: bytes) -> U:
        """Return the reports in a body; anything else is a `ReportError`."""

    @staticmethod
    @abstractmethod
    def bytes_of(plan: Plan, count: int) -> int:
        """Return the size in bytes of a number of reports of a plan."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is this endpoint's; return whether it was."""
        matched = self.path.fullmatch(scope["path"])
        if matched is None:
            return False
        request = self._check_head(matched[1], scope)
        if isinstance(request, Problem):
            await self._refuse(request, send, last=scope["method"] not in _WITHOUT_BODY)
        else:
            await self._answer(request, scope, receive, send)
        return True

    async def _answer(
        self, request: ReportRequest, scope: Scope, receive: Receive, send: Send
    ) -> None:
        connection = scope.get("state", {}).get("connection", {})
        sender = connection.get("sender")
        if sender is None:
            sender = connection["sender"] = Sender()
        await self._answer_device(request, sender, receive, send)

    def _check_head(self, plan_id: str, scope: Scope) -> ReportRequest | Problem:
        if scope["method"] != "POST":
            return problems.ONLY_POST
        headers = dict(scope["headers"])
        media = media_type(headers)
        if media not in self.media:
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
        """Return the token of a request if it allows to send reports of the plan."""
        secret = bearer_token(headers)
        token = self._tokens.find(secret) if secret and self._tokens is not None else None
        if token is None or not token.may("app") or not token.covers(plan_id):
            return None
        return token

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
        room = sender.room(plan.id, limits) - count
        if room < 0 or (self._rate and not self._allowance(request.token, sender).take(count)):
            # The debt of this connection must not fall on the next person whom a proxy puts on it.
            last = room < 0 or request.token is None
            await self._refuse(problems.TOO_MANY, send, last=last)
            return
        sender.charge(plan.id, count)
        problem = await self._committer.submit(upload)
        if problem is not None:
            await self._refuse(problem, send, last=room == 0)
            return
        await send(_ACCEPTED if room else _ACCEPTED_LAST)
        await send(_NO_BODY)

    async def _read(
        self,
        request: ReportRequest,
        receive: Receive,
        budget: BodyBudget,
        largest: int,
        too_large: Problem,
    ) -> U | Problem:
        """Read and parse the body of a request."""
        plan, headers, is_json, *_ = request
        if is_json:
            largest, too_large = LARGEST_JSON, problems.TOO_LARGE
        with budget.share() as share:
            body = await read_body(receive, headers, largest, share, too_large)
            if isinstance(body, Problem):
                return body
            if is_json != (body[:1] == b"{"):
                return problems.MALFORMED
            try:
                if len(body) <= AT_ONCE:
                    return self.parse(plan, body)
                return await self._in_thread(self.parse, plan, body)
            except ReportError:
                return problems.MALFORMED

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        self._service.refused(problem)
        await problem.send(send, last=last)

    def _limits_of(self, plan: Plan) -> tuple[ReportLimits, int]:
        """Return the limits without a relay's token: in reports, and in bytes of a request."""
        limits = ReportLimits.of(plan, self._settings)
        bytes_of_request = min(
            self.bytes_of(plan, limits.of_request), self._settings.max_body_bytes
        )
        self._limits[plan.id] = limits, bytes_of_request
        return limits, bytes_of_request

    def _allowance(self, token: Token | None, sender: Sender | None = None) -> Allowance:
        """Return the allowance of a token, or of a connection that has none."""
        if token is None:
            assert sender is not None
            return sender.allowance(self._rate)
        if token.id not in self._allowances:
            self._allowances[token.id] = Allowance(self._rate)
        return self._allowances[token.id]


class ReportLimits(NamedTuple):
    """How many reports of a plan may be sent without a relay's token."""

    of_request: int
    of_connection: int

    @classmethod
    def of(cls, plan: Plan, settings: SenderLimits) -> ReportLimits:
        """Return the limits that the settings set for a plan.

        >>> from shoal import Flags, Survey
        >>> from shoal.protocol.flip_probability import FlipProbability
        >>> from shoal.protocol.plan import Promise
        >>> survey = Survey("s", (Flags("f", ("a",)),))
        >>> plan = Plan(survey, FlipProbability(1, 2), Promise("local", "9"), crowd_size=50_000)
        >>> ReportLimits.of(plan, Settings())
        ReportLimits(of_request=100, of_connection=500)
        """
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
    """One connection: how many reports of each plan it has sent, and how fast."""

    __slots__ = ("_allowance", "_reports")

    def __init__(self) -> None:
        self._reports: dict[str, int] = {}
        self._allowance: Allowance | None = None

    def allowance(self, per_second: int) -> Allowance:
        """Return the connection's own allowance."""
        if self._allowance is None:
            self._allowance = Allowance(per_second)
        return self._allowance

    def room(self, plan_id: str, limits: ReportLimits) -> int:
        """Return how many reports of a plan the connection may still send, at least one.

        The answer to the last of them closes the connection in an orderly way. So a proxy that
        passes the requests of many people over one connection opens another, and a device that
        sends one report is never refused.
        """
        return limits.of_connection - self._reports.get(plan_id, 0)

    def charge(self, plan_id: str, count: int) -> None:
        """Count reports that were accepted for commit."""
        self._reports[plan_id] = self._reports.get(plan_id, 0) + count
