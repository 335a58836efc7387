"""`POST /v1/plans/{id}/reports`: the one address that many devices use.

It is written straight to ASGI, because a report is small and most of the cost of taking it would be
the framework's. Of the request's headers four are looked at, and nothing of them is kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from shoal.collector import problems
from shoal.collector.committing import Committer
from shoal.collector.problems import Problem, Send
from shoal.collector.settings import Settings
from shoal.errors import ReportError
from shoal.plans import Plan
from shoal.reports import parse_batch

__all__ = ["BINARY", "Ingest", "bearer", "read_body"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})/reports")
BINARY = ("application/vnd.shoal.reports", "application/octet-stream")
"""Media types of a batch in the binary form."""
_MEDIA = {media.encode() for media in (*BINARY, "application/json")}
_JSON = b"application/json"
_ACCEPTED = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-length", b"0"), (b"cache-control", b"no-store")],
}
_NOTHING = {"type": "http.response.body", "body": b""}

SMALL_BODY = 64 << 10
"""Bytes that any request may bring; for more there must be room."""
LARGE_BODIES = 8
"""How many requests of the largest size may be under way at a time."""


class Ingest:
    """Takes reports; the same answer, after the same work, for new and repeated ones.

    Parameters
    ----------
    plan_of
        Returns a plan by its id, or the problem why nothing is taken for it. What state it is in
        is looked at when the reports are counted.
    committer
        Where uploads go.
    is_app
        Whether a token is an application's.
    refused
        Called with each problem that is answered.
    """

    def __init__(
        self,
        settings: Settings,
        plan_of: Callable[[str], Plan | Problem],
        committer: Committer,
        is_app: Callable[[str], bool],
        refused: Callable[[Problem], None],
    ) -> None:
        self._settings, self._plan_of, self._committer = settings, plan_of, committer
        self._is_app, self._refused = is_app, refused
        self._allowance = _Allowance(settings.reports_per_second)
        self._room = Room(LARGE_BODIES * settings.largest_body)

    @property
    def needs_token(self) -> bool:
        """Whether only applications with a token may send reports."""
        return self._settings.ingest == "token"

    def takes(self, scope: Scope) -> bool:
        """Whether a request is for this address."""
        return _PATH.fullmatch(scope["path"]) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        problem = await self._take(scope, receive)
        if problem is None:
            await send(_ACCEPTED)
            await send(_NOTHING)
        else:
            self._refused(problem)
            await problem.send(send)

    async def _take(self, scope: Scope, receive: Receive) -> Problem | None:
        if scope["method"] != "POST":
            return problems.ONLY_POST
        headers = dict(scope["headers"])
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media not in _MEDIA or b"content-encoding" in headers:
            return problems.WRONG_TYPE
        if self.needs_token and not self._is_app(bearer(headers)):
            return problems.NO_TOKEN
        matched = _PATH.fullmatch(scope["path"])
        assert matched is not None
        plan = self._plan_of(matched[1])
        if isinstance(plan, Problem):
            return plan
        with self._room.share() as has_room:
            length, largest = headers.get(b"content-length"), self._settings.largest_body
            body = await read_body(receive, length, largest, has_room)
            return body if isinstance(body, Problem) else await self._submit(plan, media, body)

    async def _submit(self, plan: Plan, media: bytes, body: bytes) -> Problem | None:
        if (media == _JSON) != (body[:1] == b"{"):
            return problems.MALFORMED
        try:
            upload = parse_batch(plan, body)
        except ReportError:
            return problems.MALFORMED
        if not self._allowance.take(len(upload)):
            return problems.TOO_MANY
        return await self._committer.submit(upload)


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
) -> bytes | Problem:
    """Read a body of at most `largest` bytes, whatever its header declares."""
    if declared is not None and (not declared.isdigit() or int(declared[:20]) > largest):
        return problems.TOO_LARGE
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return problems.BAD_REQUEST
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > largest:
            return problems.TOO_LARGE
        if not has_room(size):
            return problems.BUSY
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


class _Allowance:
    """So many reports a second, and a second's worth at once."""

    def __init__(self, per_second: int) -> None:
        self._rate = per_second
        self._left, self._at = float(per_second), time.monotonic()

    def take(self, count: int) -> bool:
        if not self._rate:
            return True
        now = time.monotonic()
        self._left = min(self._left + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        # A batch larger than a second's worth goes when nothing is owed, and is paid off after.
        if self._left < min(count, self._rate):
            return False
        self._left -= count
        return True
