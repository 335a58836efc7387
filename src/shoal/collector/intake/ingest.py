"""`POST /v1/plans/{id}/reports`: the one address that many devices use.

It is written straight to ASGI, because a report is small and most of the cost of taking it would be
the framework's. Of the request's headers four are looked at, and nothing of them is kept. How large
a request may be is known before its body is read: a few reports, unless a relay's token says more.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, NamedTuple

from shoal.agreement.plan import Plan
from shoal.agreement.wire import Batch, parse_batch
from shoal.collector import problems
from shoal.collector.console.tokens import Token
from shoal.collector.intake.group_commit import Committer
from shoal.collector.intake.limits import Allowance, Limits, Sender
from shoal.collector.intake.relay_batches import parts_of, refused
from shoal.collector.problems import CLOSE, Problem, Send
from shoal.collector.settings import Settings
from shoal.errors import ReportError

__all__ = ["BINARY", "Ingest", "bearer", "read_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})/reports")
BINARY = ("application/vnd.shoal.reports", "application/octet-stream")
"""Media types of a batch in the binary form."""
_MEDIA = {media.encode() for media in (*BINARY, "application/json")}
_JSON = b"application/json"

LARGEST_JSON = 64 << 10
"""Bytes of a request in JSON, whoever sends it: that form is for a few reports."""
AT_ONCE = 4 << 10
"""Bytes of a request that is parsed where it came in; a larger one has a thread to itself."""
SMALL_BODY = 64 << 10
"""Bytes that any request may bring; for more there must be room."""
LARGE_BODIES = 8
"""How many requests of the largest size may be under way at a time."""
ROOM_FOR_DEVICES = 64 << 20
"""Bytes that requests without a relay's token may bring together beyond their small bodies."""


class _Answer(NamedTuple):
    """What a request is answered with."""

    problem: Problem | None = None
    document: bytes = b""
    last: bool = False
    """Whether the connection ends with it."""

    async def send(self, send: Send) -> None:
        if self.problem is not None:
            await self.problem.send(send, last=self.last)
            return
        headers = [(b"content-length", b"%d" % len(self.document)), (b"cache-control", b"no-store")]
        headers += [(b"content-type", _JSON)] if self.document else []
        headers += [CLOSE] if self.last else []
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": self.document})


class Ingest:
    """Takes reports; the same answer, after the same work, for new and repeated ones.

    Parameters
    ----------
    plan_of
        Returns a plan by its id, or the problem why nothing is taken for it. What state it is in
        is looked at when the reports are counted.
    committer
        Where uploads go.
    token_of
        Returns whose secret a token is, if it is anybody's.
    refused
        Called with each problem that is answered.
    worker
        Runs what would keep other requests waiting.
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
        self._allowances: dict[str, Allowance] = {}
        self._limits: dict[str, tuple[Limits, int]] = {}
        self._device_room = Room(ROOM_FOR_DEVICES)
        self._relay_room = Room(LARGE_BODIES * settings.largest_body)

    @property
    def needs_token(self) -> bool:
        """Whether only applications with a token may send reports."""
        return self._settings.ingest == "token"

    def takes(self, scope: Scope) -> bool:
        """Whether a request is for this address."""
        return _PATH.fullmatch(scope["path"]) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        answer = await self._take(scope, receive)
        if answer.problem is not None:
            self._refused(answer.problem)
        await answer.send(send)

    async def _take(self, scope: Scope, receive: Receive) -> _Answer:
        if scope["method"] != "POST":
            return _Answer(problems.ONLY_POST)
        headers = dict(scope["headers"])
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media not in _MEDIA or b"content-encoding" in headers:
            return _Answer(problems.WRONG_TYPE)
        token = self._token(headers)
        matched = _PATH.fullmatch(scope["path"])
        assert matched is not None
        if token is not None and not token.covers(matched[1]):
            token = None
        if self.needs_token and token is None:
            return _Answer(problems.NO_TOKEN)
        plan = self._plan_of(matched[1])
        if isinstance(plan, Problem):
            return _Answer(plan)
        limits, largest = self._limits_of(plan)
        relay = token is not None and token.may("relay")
        largest = self._settings.largest_body if relay else largest
        too_large = problems.TOO_LARGE if relay else problems.TOO_MANY_AT_ONCE
        if media == _JSON:
            largest, too_large = LARGEST_JSON, problems.TOO_LARGE
        with (self._relay_room if relay else self._device_room).share() as has_room:
            length = headers.get(b"content-length")
            body = await read_body(receive, length, largest, has_room, too_large)
            if isinstance(body, Problem):
                return _Answer(body)
            upload = await self._parsed(plan, media, body)
        if isinstance(upload, Problem):
            return _Answer(upload)
        if relay:
            assert token is not None
            return await self._from_relay(token, upload)
        if len(upload) > limits.of_request:
            return _Answer(problems.TOO_MANY_AT_ONCE)
        sender: Sender = scope.get("state", {}).get("sender") or Sender()
        return await self._from_device(sender, token, plan, upload, limits)

    def _limits_of(self, plan: Plan) -> tuple[Limits, int]:
        """Return what may come without a relay's token: reports, and bytes of a request."""
        if plan.id not in self._limits:
            limits = Limits.of(plan, self._settings)
            bytes_of_request = min(limits.largest_body(plan), self._settings.largest_body)
            self._limits[plan.id] = limits, bytes_of_request
        return self._limits[plan.id]

    def _token(self, headers: dict[bytes, bytes]) -> Token | None:
        """Return the token of a request, if it is one to send reports with."""
        secret = bearer(headers)
        token = self._token_of(secret) if secret else None
        return token if token is not None and token.may("app") else None

    async def _parsed(self, plan: Plan, media: bytes, body: bytes) -> Batch | Problem:
        if (media == _JSON) != (body[:1] == b"{"):
            return problems.MALFORMED
        try:
            if len(body) <= AT_ONCE:
                return parse_batch(plan, body)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._worker, parse_batch, plan, body)
        except ReportError:
            return problems.MALFORMED

    async def _from_device(
        self, sender: Sender, token: Token | None, plan: Plan, upload: Batch, limits: Limits
    ) -> _Answer:
        rate = self._settings.reports_per_second
        allowance = sender.allowance(rate) if token is None else self._allowance(token)
        room = sender.room(plan, limits) - len(upload)
        if room < 0 or not allowance.take(len(upload)):
            # What this connection owes is not for whoever a proxy puts on it next.
            return _Answer(problems.TOO_MANY, last=room < 0 or token is None)
        sender.brings(plan, len(upload))
        return _Answer(await self._committer.submit(upload), last=room == 0)

    async def _from_relay(self, token: Token, upload: Batch) -> _Answer:
        """Take what can be taken of a relay's batch and say which of its reports were not."""
        if not self._allowance(token).take(len(upload)):
            return _Answer(problems.TOO_MANY)
        loop = asyncio.get_running_loop()
        parts = await loop.run_in_executor(self._worker, parts_of, upload)
        if isinstance(parts, Problem):
            return _Answer(parts)
        answers = await asyncio.gather(*(self._committer.submit(part.reports) for part in parts))
        document = await loop.run_in_executor(self._worker, refused, parts, answers)
        return _Answer(document) if isinstance(document, Problem) else _Answer(document=document)

    def _allowance(self, token: Token) -> Allowance:
        return self._allowances.setdefault(token.id, Allowance(self._settings.reports_per_second))


def bearer(headers: dict[bytes, bytes]) -> str:
    """Return the bearer token of a request, or nothing."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


class Room:
    """Memory for the large bodies of all requests that are under way."""

    def __init__(self, size: int) -> None:
        self._left = size

    @contextmanager
    def share(self) -> Iterator[Callable[[int], bool]]:
        """Give a function that tells whether a body may grow to a size."""
        taken = 0

        def has_room(size: int) -> bool:
            nonlocal taken
            more = max(size - SMALL_BODY - taken, 0)
            if more > self._left:
                return False
            self._left -= more
            taken += more
            return True

        try:
            yield has_room
        finally:
            self._left += taken


async def read_body(
    receive: Receive,
    declared: bytes | None,
    largest: int,
    has_room: Callable[[int], bool] = lambda size: True,
    too_large: Problem = problems.TOO_LARGE,
) -> bytes | Problem:
    """Read a body of at most `largest` bytes, whatever its header declares."""
    if declared is not None and (not declared.isdigit() or int(declared[:20]) > largest):
        return too_large
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return problems.BAD_REQUEST
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > largest:
            return too_large
        if not has_room(size):
            return problems.BUSY
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)
