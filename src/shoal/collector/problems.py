"""What can be wrong with a request: RFC 9457 problem documents that never repeat the request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

__all__ = ["PROBLEMS", "Problem"]

CLOSE = (b"connection", b"close")
"""The header of a connection's last answer."""

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Problem:
    """A status, a name that stays the same for programs, and a sentence for people."""

    status: int
    name: str
    title: str
    retry_after: int | None = None
    allow: str | None = None

    @cached_property
    def body(self) -> bytes:
        """The problem document."""
        return json.dumps(
            {"type": f"urn:shoal:problem:{self.name}", "title": self.title, "status": self.status}
        ).encode()

    @cached_property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers it is answered with."""
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(self.body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.allow is not None:
            headers.append((b"allow", self.allow.encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b'Basic realm="Shoal", charset="UTF-8"'))
        return headers

    @cached_property
    def last_words(self) -> bytes:
        """The whole answer, after which the connection ends, for where there is no request yet."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()]
        lines += [b"%s: %s" % header for header in (*self.headers, CLOSE)]
        return b"\r\n".join([*lines, b"", self.body])

    async def send(self, send: Send, *, last: bool = False) -> None:
        """Answer a request with it, the connection's last one if so asked."""
        headers = [*self.headers, CLOSE] if last else self.headers
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


MALFORMED = Problem(400, "malformed-reports", "This is not a batch of reports of this plan.")
WINDOW_NOT_OPEN = Problem(
    425, "window-not-open", "A report is of a window that has not begun here; try again later.",
    retry_after=600,
)  # fmt: skip
BAD_REQUEST = Problem(400, "bad-request", "The request cannot be read.")
BAD_PARAMETER = Problem(400, "bad-parameter", "A parameter of the request has no such value.")
NO_TOKEN = Problem(401, "token-needed", "This needs a token.")
WRONG_ROLE = Problem(403, "not-allowed", "The token does not allow this.")
UNKNOWN_PLAN = Problem(404, "unknown-plan", "There is no such plan here.")
UNKNOWN_CROWD = Problem(404, "unknown-crowd", "The plan has no such crowd.")
UNKNOWN_TOKEN = Problem(404, "unknown-token", "There is no such token.")
NOT_FOUND = Problem(404, "not-found", "There is nothing at this address.")
WRONG_METHOD = Problem(405, "method-not-allowed", "This address does not take this method.")
ONLY_POST = Problem(
    405, "method-not-allowed", "Reports are sent here, and nothing is read.", allow="POST"
)
CROWD_OPEN = Problem(409, "crowd-open", "The crowd is not complete; until it is, nothing is shown.")
WRONG_STATE = Problem(409, "wrong-state", "The plan's state does not allow this.")
MAYBE_PUBLISHED = Problem(
    409,
    "maybe-published",
    "The data were restored, so this plan may have been published before; give the survey another"
    " name, or state that it never was.",
)
CLOCK_HELD = Problem(
    503, "clock-held", "The clock has jumped and is not believed; see /v1/clock.", retry_after=60
)
LAST_ADMIN = Problem(409, "last-admin", "The last admin token cannot be taken away.")
PLAN_CLOSED = Problem(410, "plan-closed", "The plan takes no more reports.")
WINDOW_EXPIRED = Problem(410, "window-expired", "A report is of a window that has passed.")
CROWD_GONE = Problem(410, "crowd-gone", "The crowd was given up or destroyed.")
TOO_SLOW = Problem(408, "too-slow", "The request did not come, or its answer was not read.")
TOO_LARGE = Problem(413, "too-large", "The request is larger than this collector takes.")
TOO_MANY_AT_ONCE = Problem(
    413, "too-many-reports", "A request without a relay's token may not bring so many reports."
)
WRONG_TYPE = Problem(415, "unsupported-media-type", "The body's type or encoding is not taken.")
MALFORMED_PLAN = Problem(422, "malformed-plan", "This is not a plan; check it with shoal audit.")
PROMISE_BROKEN = Problem(
    422, "plan-unsafe", "The plan does not keep its promise; see shoal audit and shoal plan."
)
PROMISE_UNPROVEN = Problem(
    422, "plan-unsafe", "The plan's promise is no guarantee; this collector wants a proven one."
)
CROWD_TOO_SMALL = Problem(
    422, "plan-unsafe", "The plan has no crowd, or a smaller one than this collector takes."
)
PROTECTS_LESS = Problem(
    422, "plan-unsafe", "It protects less than a plan of this survey that is open: shoal plan diff."
)
HONEST_UNSAID = Problem(
    422,
    "honest-fraction-unsaid",
    "The plan does not say which part of a crowd is honest: shoal plan --honest PART, or publish it"
    " with honest=all.",
)
HEAD_TOO_LARGE = Problem(
    431, "head-too-large", "The address and the headers are longer than this collector takes."
)
TOO_MANY = Problem(429, "too-many-requests", "Too many reports come from here; try later.", 10)
INTERNAL = Problem(503, "internal", "The collector failed; nothing was taken.", 30)
BUSY = Problem(503, "busy", "Too many reports are waiting; try again soon.", 2)
CROWDED = Problem(503, "busy", "Too many connections are open; try again soon.", 2)
PAUSED = Problem(503, "paused", "The plan is paused; try again later.", 3600)
UNAVAILABLE = Problem(503, "storage-unavailable", "The data cannot be written now.", 30)
STOPPING = Problem(503, "stopping", "The collector is stopping; try again soon.", 10)
STORAGE_FULL = Problem(507, "storage-full", "There is no space left.", 300)

PROBLEMS = tuple(value for value in globals().values() if isinstance(value, Problem))
"""Every problem there is."""
