"""Problem documents (RFC 9457) for requests that are refused; they never repeat the request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from http import HTTPStatus
from typing import Any

CLOSE = (b"connection", b"close")
"""The header of a connection's last response."""

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Problem:
    """A status, a name that stays the same for programs, and a sentence for people."""

    status: int
    name: str
    title: str
    retry_after: int | None = None
    allow: str | None = None
    parameter: str | None = None

    def about(self, parameter: str) -> Problem:
        """Return the same problem with the name of the parameter that has it."""
        return replace(self, parameter=parameter)

    @cached_property
    def body(self) -> bytes:
        """The problem document; a parameter by the name that we gave it, never by its value."""
        document = {
            "type": f"urn:shoal:problem:{self.name}",
            "title": self.title,
            "status": self.status,
        }
        named = {} if self.parameter is None else {"parameter": self.parameter}
        return json.dumps(document | named).encode()

    @cached_property
    def headers(self) -> list[tuple[bytes, bytes]]:
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
            headers.append((b"www-authenticate", b'Bearer realm="Shoal"'))
        return headers

    @cached_property
    def raw_response(self) -> bytes:
        """The last response of a connection, for when there is no request to respond to."""
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}".encode()]
        lines += [b"%s: %s" % header for header in (*self.headers, CLOSE)]
        return b"\r\n".join([*lines, b"", self.body])

    async def send(self, send: Send, *, last: bool = False) -> None:
        """Send it as a response; with `last`, the connection ends."""
        headers = [*self.headers, CLOSE] if last else self.headers
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


_method = partial(Problem, 405, "method-not-allowed")
_unsafe = partial(Problem, 422, "plan-unsafe")
_other_party = partial(Problem, 422, "other-party")
_busy = partial(Problem, 503, "busy")

MALFORMED = Problem(400, "malformed-reports", "The body is not a batch of reports for this plan.")
WINDOW_NOT_OPEN = Problem(
    425,
    "window-not-open",
    "A report belongs to a window that has not started yet; try again later.",
    600,
)
BAD_REQUEST = Problem(400, "bad-request", "The request cannot be parsed.")
OBLIVIOUS_KEY = Problem(
    400, "ohttp-key", "The request was encrypted for another key; fetch the key again."
)
HUNG_UP = Problem(400, "bad-request", "The connection was closed, so the plan was not computed.")
UNOPENED = Problem(400, "ohttp-unopened", "The encrypted request cannot be decrypted.")
BAD_PARAMETER = Problem(400, "bad-parameter", "Invalid parameter value.")
NO_TOKEN = Problem(401, "token-needed", "This needs a token.")
WRONG_ROLE = Problem(403, "not-allowed", "The token does not allow this.")
COUNTS_NOT_OBLIVIOUS = Problem(
    403,
    "counts-refused",
    "Reports of a plan for counts are not accepted through an oblivious relay here: each would be"
    " seen whole.",
)
CROSS_SITE = Problem(
    403, "cross-site", "The request does not come from the console's own pages; nothing was done."
)
UNKNOWN_PLAN = Problem(404, "unknown-plan", "There is no such plan.")
UNKNOWN_CROWD = Problem(404, "unknown-crowd", "The plan has no such crowd.")
UNKNOWN_QUESTION = Problem(404, "unknown-question", "The survey has no such question of this kind.")
UNKNOWN_TOKEN = Problem(404, "unknown-token", "There is no such token.")
NOT_FOUND = Problem(404, "not-found", "There is nothing at this address.")
WRONG_METHOD = _method("This address does not support this method.")
ONLY_GET = _method("Only GET is supported here.", allow="GET, HEAD")
ONLY_POST = _method("Only POST is supported here.", allow="POST")
ONLY_PUT = _method("Only PUT is supported here.", allow="PUT")
ONLY_GET_AND_POST = _method("Only GET and POST are supported here.", allow="GET, POST")
CROWD_OPEN = Problem(409, "crowd-open", "The crowd is not complete yet, so nothing is shown.")
WRONG_STATE = Problem(409, "wrong-state", "The plan's state does not allow this.")
MAYBE_PUBLISHED = Problem(
    409,
    "maybe-published",
    "The data were restored from a backup, so this plan may have been published before. Rename the"
    " survey, or publish it with never_published=yes.",
)
CLOCK_HELD = Problem(503, "clock-held", "The clock jumped and is not trusted; see /v1/clock.", 60)
LAST_ADMIN = Problem(409, "last-admin", "The last admin token cannot be revoked.")
PLAN_CLOSED = Problem(410, "plan-closed", "The plan accepts no more reports.")
WINDOW_EXPIRED = Problem(410, "window-expired", "A report belongs to a window that is over.")
CROWD_GONE = Problem(410, "crowd-gone", "The crowd was discarded or destroyed.")
KEY_CHANGED = Problem(
    412,
    "key-changed",
    "The reports are not encrypted for the open crowd; fetch its key, encrypt them again, and send"
    " them.",
)
TOO_SLOW = Problem(408, "too-slow", "The request was too slow, or its response was not read.")
TOO_LARGE = Problem(413, "too-large", "The request is too large.")
TOO_MANY_AT_ONCE = Problem(
    413, "too-many-reports", "The request has too many reports; only relays may send large batches."
)
WRONG_TYPE = Problem(
    415, "unsupported-media-type", "The media type or encoding of the body is not supported."
)
MALFORMED_PLAN = Problem(
    422, "malformed-plan", "The document is not a valid plan; check it with shoal audit."
)
BAD_ORIGINS = Problem(
    422,
    "bad-origins",
    "An origin is https://host or https://host:port in lower case, or * for every page; at most 100"
    " of them.",
)
BAD_PLAN_REQUEST = Problem(
    422, "bad-plan-request", "This field is invalid; /openapi.json describes it."
)
TOO_COSTLY = Problem(
    422,
    "too-costly",
    "This plan takes too long, or too much memory, to compute here; use shoal plan.",
)
PROMISE_BROKEN = _unsafe("The plan does not keep its promise; see shoal audit and shoal plan.")
PROMISE_UNPROVEN = _unsafe(
    "The plan's promise is not proven, and this collector accepts proven promises only."
)
NOT_FOR_READERS = Problem(
    422,
    "not-for-readers",
    "The plan's promise is no guarantee for readers, so its releases are not made public.",
)
CROWD_TOO_SMALL = _unsafe(
    "The plan has no crowd size, or one below the minimum here, the setting min_crowd."
)
PROTECTS_LESS = _unsafe(
    "It protects less than an open plan of the same survey; see shoal plan diff."
)
BACKUP_EXISTS = Problem(
    409, "backup-exists", "A backup was made in this second already; try again in the next."
)
TOO_FEW_CROWDS = Problem(
    409, "too-few-crowds", "A trend needs two released crowds of the plan; wait for the next one."
)
NOTHING_IN_COMMON = Problem(
    409, "nothing-in-common", "The two surveys have no option in common, so nothing is compared."
)
NO_TEXT = Problem(
    409, "no-text", "The plan's survey asks for no text, so there are no texts to find."
)
HONEST_UNSAID = Problem(
    422,
    "honest-fraction-unsaid",
    "The plan states no honest fraction: set one with shoal plan --honest PART, or publish it with"
    " honest=all.",
)
NEEDS_ANALYZER = _other_party(
    "The plan names a relay and an analyzer, so no collector takes it; use shoal analyzer."
)
NEEDS_AGGREGATORS = _other_party(
    "The plan names a leader and a helper; use shoal leader, shoal helper and shoal collect."
)
NEEDS_COLLECTOR = _other_party(
    "The plan names no relay and analyzer, so no analyzer takes it; use shoal serve."
)
OTHER_PARTIES = _other_party(
    "The plan names another relay or analyzer than those that were set up; plan with their public"
    " files."
)
UNMARKED_PLAN = Problem(
    422,
    "one-operator",
    "One operator set up relay and analyzer, and the plan does not say so; plan with their public"
    " files.",
)
MALFORMED_CHUNK = Problem(
    400, "malformed-chunk", "The body is not this chunk of a crowd of the plan."
)
UNSIGNED = Problem(
    403,
    "not-signed",
    "The chunk is not signed with the key that was registered with the relay's token.",
)
OTHER_CHUNK = Problem(
    409,
    "other-chunk",
    "The chunk does not fit the earlier chunks, or other bytes arrived for it; nothing changed.",
)
CROWD_NOT_DUE = Problem(
    409, "crowd-not-due", "It is too early for a key of this window, or of so late a crowd."
)
DEADLINES_MISFIT = Problem(
    409,
    "deadlines-misfit",
    "The relay may keep a crowd for twice its deadline_days, longer than the analyzer keeps the key"
    " of the crowd: set the relay's deadline_days to at most half of the analyzer's.",
)
HEAD_TOO_LARGE = Problem(431, "head-too-large", "The URL and the headers are too long.")
TOO_MANY = Problem(
    429, "too-many-requests", "Too many reports from this sender; try again later.", 10
)
PLANNER_BUSY = Problem(
    429, "planner-busy", "A plan is being computed with this token; wait until it is done.", 5
)
UNVERIFIED = Problem(
    500,
    "unverified",
    "The stored data do not match their signature, so they are not shown; see shoal collector"
    " doctor.",
)
INTERNAL = Problem(503, "internal", "The collector failed; nothing was counted.", 30)
BUSY = _busy("Too many reports are waiting; try again soon.", 2)
CROWDED = _busy("Too many connections are open; try again soon.", 2)
NOT_KNOWN_YET = _busy("The plan or the token is not known here yet; try again soon.", 2)
PAUSED = Problem(503, "paused", "The plan is paused; try again later.", 3600)
UNAVAILABLE = Problem(503, "storage-unavailable", "The data cannot be written now.", 30)
NO_KEY = Problem(
    503, "no-key", "The analyzer's key for the next crowd has not arrived yet; try again soon.", 10
)
ANALYZER_SILENT = Problem(
    503, "analyzer-silent", "The analyzer has not responded to the relay yet; try again later.", 60
)
FORWARD_STALLED = Problem(
    503,
    "forward-stalled",
    "A complete crowd has been waiting for the analyzer for longer than forward_alarm.",
    60,
)
STOPPING = Problem(503, "stopping", "The collector is stopping; try again soon.", 10)
STORAGE_FULL = Problem(507, "storage-full", "No disk space is left.", 300)

PROBLEMS = tuple(value for value in globals().values() if isinstance(value, Problem))
"""Every problem there is."""
