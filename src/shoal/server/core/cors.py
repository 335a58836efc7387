"""Cross-origin resource sharing (CORS): which web pages may use the public listener.

Each plan lists the origins of the pages that may send reports for it, by default none. Paths
that belong to no plan, such as the signing keys, are open to the pages of all published plans. A
report carries no secret of the page's visitor: credentials are not allowed. A page may read the
signature of a document and `Retry-After`. The console allows no cross-origin requests.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

from shoal.errors import InputError
from shoal.server.core.http import PLAN_PATH, Receive, Scope
from shoal.server.core.problems import Send
from shoal.support.checks import check_origin

__all__ = ["ORIGINS", "check_origins", "read_origins", "with_cors"]

App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_ORIGINS = 100
ANY = "*"
"""Stands for pages of every origin."""

ORIGINS: dict[str, Any] = {
    "type": "object",
    "required": ["origins"],
    "additionalProperties": False,
    "properties": {
        "origins": {"type": "array", "maxItems": MOST_ORIGINS, "items": {"type": "string"}}
    },
}
"""The schema of the document that sets the origins of a plan."""

_EXPOSED = (b"access-control-expose-headers", b"Shoal-Signature, Shoal-Key, Retry-After")
_VARY = (b"vary", b"Origin")
_PREFLIGHT: list[tuple[bytes, bytes]] = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"Content-Type"),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
    (b"cache-control", b"no-store"),
]


def check_origins(origins: Iterable[object]) -> tuple[str, ...]:
    """Return the origins of web pages, each once.

    >>> check_origins(["https://page.example", "http://localhost:8000", "https://page.example"])
    ('https://page.example', 'http://localhost:8000')
    >>> check_origins(["*"])
    ('*',)
    """
    every = tuple(
        dict.fromkeys(ANY if one == ANY else check_origin("origins", one) for one in origins)
    )
    if len(every) > MOST_ORIGINS:
        raise InputError(f"a plan has at most {MOST_ORIGINS} origins, got {len(every)}.")
    return every


def read_origins(text: str) -> tuple[str, ...]:
    """Return the origins in a text that separates them by commas or spaces.

    >>> read_origins("https://page.example, https://other.example")
    ('https://page.example', 'https://other.example')
    """
    return check_origins(word for word in re.split(r"[,\s]+", text) if word)


def with_cors(app: App, origins_of: Callable[[str | None], Collection[str]]) -> App:
    """Wrap the app so that some web pages may call it.

    A browser asks before it sends a report (a *preflight*). Any other OPTIONS request goes to
    the app, and so does one from a page that may not send.

    Parameters
    ----------
    app
        What answers.
    origins_of
        Returns the origins that may use a plan, by its id; of all plans, for None.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
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
            headers = [*shared, *_PREFLIGHT]
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                exposed = [_EXPOSED] if granted in origins else []
                message = {**message, "headers": [*message["headers"], *shared, *exposed]}
            await send(message)

        await app(scope, receive, with_headers)

    return answer
