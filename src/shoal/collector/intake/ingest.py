"""`POST /v1/plans/{id}/reports`: the one address that many devices use.

It is written directly for ASGI, because a report is small and a framework would cost more than the
report. Four headers of the request are read, and none of them is stored. The size limit of a
request is known before its body is read: a few reports, unless a relay's token allows more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

from shoal.agreement.plan import Plan
from shoal.analysis.report_rows import Batch, parse_batch
from shoal.collector import problems
from shoal.collector.console.tokens import Token
from shoal.collector.http import (
    JSON,
    BodyBudget,
    Headers,
    Receive,
    Scope,
    bearer_token,
    media_type,
    read_body,
)
from shoal.collector.intake.group_commit import Committer
from shoal.collector.intake.limits import Allowance, Limits, Sender
from shoal.collector.intake.relay_batches import refusal_document, split_by_window
from shoal.collector.problems import CLOSE, Problem, Send
from shoal.collector.settings import Settings
from shoal.errors import ReportError

__all__ = ["BINARY", "Ingest", "plan_id_of"]

_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})/reports")
BINARY = ("application/vnd.shoal.reports", "application/octet-stream")
"""Media types of a batch in the binary form."""
_MEDIA = {*(media.encode() for media in BINARY), JSON}
_WITHOUT_BODY = ("GET", "HEAD")
_UNREAD = (problems.TOO_LARGE, problems.TOO_MANY_AT_ONCE, problems.BUSY)
"""Refusals that do not wait for the rest of a body. The connection ends with them, and they say so:
else a client could send its next request into a connection that is about to close."""

LARGEST_JSON = 64 << 10
"""Bytes of a request in JSON, whoever sends it: that form is for a few reports."""
AT_ONCE = 4 << 10
"""Bytes of a request that is parsed on the event loop; a larger one is parsed in a thread."""
LARGE_BODIES = 8
"""How many requests of the largest size may be under way at a time."""
BUDGET_OF_DEVICES = 64 << 20
"""Bytes that requests without a relay's token may have together beyond their small bodies."""

_NO_STORE = (b"cache-control", b"no-store")
_EMPTY = [(b"content-length", b"0"), _NO_STORE]
_ACCEPTED = {"type": "http.response.start", "status": 202, "headers": _EMPTY}
_ACCEPTED_LAST = {"type": "http.response.start", "status": 202, "headers": [*_EMPTY, CLOSE]}
_NO_BODY = {"type": "http.response.body", "body": b""}


def plan_id_of(path: str) -> str | None:
    """Return the plan that reports sent to a path are for, or None if it is no such path."""
    matched = _PATH.fullmatch(path)
    return None if matched is None else matched[1]


class _Request(NamedTuple):
    """A request whose head is in order."""

    plan: Plan
    headers: Headers
    is_json: bool
    token: Token | None
    is_relay: bool


class Ingest:
    """Accepts reports; new and repeated ones get the same answer after the same work.

    Parameters
    ----------
    plan_of
        Returns a plan by its id, or the problem why no reports are accepted for it. The state of
        the plan is checked when the reports are counted.
    committer
        Writes uploads to the disk.
    token_of
        Returns the token that a secret belongs to, if any.
    refused
        Called with each problem that is answered.
    worker
        Runs what would block other requests.
    """

    def __init__(
        self,
        settings: Settings,
        plan_of: Callable[[str], Plan | Problem],
        committer: Committer,
        token_of: Callable[[str], Token | None],
        refused: Callable[[Problem], None],
        worker: Executor,
    ) -> None:
        self._settings, self._plan_of, self._committer = settings, plan_of, committer
        self._token_of, self._refused, self._worker = token_of, refused, worker
        self._rate = settings.reports_per_second
        self._allowances: dict[str, Allowance] = {}
        self._limits: dict[str, tuple[Limits, int]] = {}
        self._device_budget = BodyBudget(BUDGET_OF_DEVICES)
        self._relay_budget = BodyBudget(LARGE_BODIES * settings.largest_body)
        self.needs_token = settings.ingest == "token"
        """Whether only applications and relays with a token may send reports."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request if it is for this address; return whether it was."""
        plan_id = plan_id_of(scope["path"])
        if plan_id is None:
            return False
        request = self._check_head(plan_id, scope)
        if isinstance(request, Problem):
            await self._refuse(request, send, last=scope["method"] not in _WITHOUT_BODY)
        elif request.is_relay:
            await self._answer_relay(request, receive, send)
        else:
            sender = scope.get("state", {}).get("sender") or Sender()
            await self._answer_device(request, sender, receive, send)
        return True

    def _check_head(self, plan_id: str, scope: Scope) -> _Request | Problem:
        if scope["method"] != "POST":
            return problems.ONLY_POST
        headers = dict(scope["headers"])
        media = media_type(headers)
        if media not in _MEDIA:
            return problems.WRONG_TYPE
        token = self._token(headers, plan_id) if b"authorization" in headers else None
        if token is None and self.needs_token:
            return problems.NO_TOKEN
        plan = self._plan_of(plan_id)
        if isinstance(plan, Problem):
            return plan
        is_relay = token is not None and token.may("relay")
        return _Request(plan, headers, media == JSON, token, is_relay)

    def _token(self, headers: Headers, plan_id: str) -> Token | None:
        """Return the token of a request if it allows to send reports of the plan."""
        secret = bearer_token(headers)
        token = self._token_of(secret) if secret else None
        if token is None or not token.may("app") or not token.covers(plan_id):
            return None
        return token

    async def _answer_device(
        self, request: _Request, sender: Sender, receive: Receive, send: Send
    ) -> None:
        plan = request.plan
        limits, largest = self._limits.get(plan.id) or self._limits_of(plan)
        upload = await self._read(
            request, receive, self._device_budget, largest, problems.TOO_MANY_AT_ONCE
        )
        if isinstance(upload, Problem):
            await self._refuse(upload, send, last=upload in _UNREAD)
            return
        count = len(upload)
        if count > limits.of_request:
            await self._refuse(problems.TOO_MANY_AT_ONCE, send)
            return
        room = sender.room(plan.id, limits) - count
        if room < 0 or (self._rate and not self._allowance(request.token, sender).take(count)):
            # The debt of this connection must not fall on whoever a proxy puts on it next.
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

    async def _answer_relay(self, request: _Request, receive: Receive, send: Send) -> None:
        """Accept what can be accepted of a relay's batch and say which reports were refused."""
        upload = await self._read(
            request, receive, self._relay_budget, self._settings.largest_body, problems.TOO_LARGE
        )
        document = upload if isinstance(upload, Problem) else await self._relay(request, upload)
        if isinstance(document, Problem):
            await self._refuse(document, send, last=document in _UNREAD)
            return
        headers = [(b"content-length", b"%d" % len(document)), _NO_STORE, (b"content-type", JSON)]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": document})

    async def _relay(self, request: _Request, upload: Batch) -> bytes | Problem:
        assert request.token is not None
        if self._rate and not self._allowance(request.token).take(len(upload)):
            return problems.TOO_MANY
        parts = await self._in_thread(split_by_window, upload)
        if isinstance(parts, Problem):
            return parts
        answers = await asyncio.gather(*(self._committer.submit(part.reports) for part in parts))
        document: bytes | Problem = await self._in_thread(refusal_document, parts, answers)
        return document

    async def _read(
        self,
        request: _Request,
        receive: Receive,
        budget: BodyBudget,
        largest: int,
        too_large: Problem,
    ) -> Batch | Problem:
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
                    return parse_batch(plan, body)
                parsed: Batch = await self._in_thread(parse_batch, plan, body)
                return parsed
            except ReportError:
                return problems.MALFORMED

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        self._refused(problem)
        await problem.send(send, last=last)

    def _limits_of(self, plan: Plan) -> tuple[Limits, int]:
        """Return the limits without a relay's token: in reports, and in bytes of a request."""
        limits = Limits.of(plan, self._settings)
        bytes_of_request = min(limits.largest_body(plan), self._settings.largest_body)
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
