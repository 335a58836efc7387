"""HTTP below the operations: headers, bodies, problems, CORS.

A body is read up to a size that is known before it comes. Small bodies are always read; larger ones
share a budget of memory, so that many large requests at a time cannot exhaust the machine.
"""

from __future__ import annotations

import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException

from shoal.errors import InputError
from shoal.server.core import problems
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem, Send
from shoal.server.storage.database import StorageError, StorageFull
from shoal.server.storage.records import UnverifiedError
from shoal.support.checks import check_origin

Headers = Mapping[bytes, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
GrowTo = Callable[[int], bool]
"""Reserves memory for a body of a size; returns whether there is enough."""

JSON = b"application/json"
NO_STORE = (b"cache-control", b"no-store")
PLAN_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})(?:/|$)")
"""The start of every path that belongs to a plan."""
SMALL_BODY = 64 << 10
"""Bytes that every request may have; for more there must be memory left in the budget."""


def media_type(headers: Headers) -> bytes | None:
    """Return the media type of a body, without parameters; None if the body is compressed."""
    if b"content-encoding" in headers:
        return None
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


async def send_response(
    send: Send, status: int, content: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    sized = [*headers, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": content})


class BodyBudget:
    """Memory for the large bodies of all requests under way."""

    def __init__(self, size: int) -> None:
        self.left = size

    @contextmanager
    def share(self) -> Iterator[GrowTo]:
        """Yield what reserves memory for one request, until the end of the `with` block."""
        reserved = 0

        def grow_to(size: int) -> bool:
            nonlocal reserved
            more = max(size - SMALL_BODY - reserved, 0)
            if more > self.left:
                return False
            self.left -= more
            reserved += more
            return True

        try:
            yield grow_to
        finally:
            self.left += reserved


async def read_body(
    receive: Receive,
    headers: Headers,
    largest: int,
    grow_to: GrowTo | None = None,
    too_large: Problem = problems.TOO_LARGE,
) -> bytes | Problem:
    """Read a body of at most `largest` bytes, whatever its header declares."""
    declared = headers.get(b"content-length")
    if declared is not None and (not declared.isdigit() or int(declared[:20]) > largest):
        return too_large
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return problems.BAD_REQUEST
        part = message.get("body", b"")
        size += len(part)
        if size > largest:
            return too_large
        if size > SMALL_BODY and grow_to is not None and not grow_to(size):
            return problems.BUSY
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_BY_STATUS = {404: problems.NOT_FOUND, 405: problems.WRONG_METHOD, 413: problems.TOO_LARGE}


class Refusal(Exception):  # noqa: N818  it is a response
    """Ends a request with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.name)
        self.problem = problem


def problem_of(error: Exception) -> Problem:
    match error:
        case Refusal():
            return error.problem
        case UnverifiedError():
            LOG.error("%s", error)
            return problems.UNVERIFIED
        case StorageFull():
            return problems.STORAGE_FULL
        case StorageError():
            return problems.UNAVAILABLE
        case HTTPException():
            return _BY_STATUS.get(error.status_code, problems.BAD_REQUEST)
    LOG.error("a request failed", exc_info=error)
    return problems.INTERNAL


App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_ORIGINS = 100
ANY = "*"
"""Stands for pages of every origin."""

_EXPOSED = (b"access-control-expose-headers", b"Shoal-Signature, Shoal-Key, Retry-After")
_VARY = (b"vary", b"Origin")
_PREFLIGHT: list[tuple[bytes, bytes]] = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"Content-Type"),
    (b"access-control-max-age", b"86400"),
    NO_STORE,
]


def check_origins(origins: Iterable[object]) -> tuple[str, ...]:
    """Return the origins of web pages, each once."""
    every = tuple(
        dict.fromkeys(ANY if one == ANY else check_origin("origins", one) for one in origins)
    )
    if len(every) > MOST_ORIGINS:
        raise InputError(f"a plan has at most {MOST_ORIGINS} origins, got {len(every)}.")
    return every


def read_origins(text: str) -> tuple[str, ...]:
    """Return the origins in a text that separates them by commas or spaces.

    >>> read_origins("https://page.example, http://localhost:8000 https://page.example")
    ('https://page.example', 'http://localhost:8000')
    """
    return check_origins(word for word in re.split(r"[,\s]+", text) if word)


def first(handle: Callable[[Scope, Receive, Send], Awaitable[bool]], others: App) -> App:
    """Return an app that lets an endpoint respond if the path is its own, and others if not."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not await handle(scope, receive, send):
            await others(scope, receive, send)

    return app


def with_cors(app: App, origins_of: Callable[[str | None], Collection[str]]) -> App:
    """Wrap the app so that some web pages may call it.

    `origins_of` returns the origins that may use a plan, by its id; for None those of all plans.
    A browser asks before it sends a report (a *preflight*). Any other OPTIONS request goes to the
    app, and so does one from a page that may not send.
    """

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        named = PLAN_PATH.match(scope.get("path", ""))
        origins = origins_of(named[1] if named else None) if scope["type"] == "http" else ()
        if not origins:
            await app(scope, receive, send)
            return
        sent = dict(scope["headers"])
        shared: list[tuple[bytes, bytes]] = []
        granted = ANY if ANY in origins else sent.get(b"origin", b"").decode("latin-1")
        if granted in origins:
            shared.append((b"access-control-allow-origin", granted.encode()))
        if ANY not in origins:  # a cache must not serve the response to another page
            shared.append(_VARY)
        asks = b"origin" in sent and b"access-control-request-method" in sent
        if scope["method"] == "OPTIONS" and asks and granted in origins:
            await send_response(send, 204, b"", [*shared, *_PREFLIGHT])
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exposed = [_EXPOSED] if granted in origins else []
                message = {**message, "headers": [*message["headers"], *shared, *exposed]}
            await send(message)

        await app(scope, receive, with_headers)

    return respond
