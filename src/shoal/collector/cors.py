"""Web pages of any origin may use the public doors: cross-origin resource sharing (CORS).

What is there is public, and a report carries no secret of the page's visitor: browsers are told
that no credentials are taken. A page may read the signature of a document and how long to wait.
The console has none of this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from shoal.collector.http import Receive, Scope
from shoal.collector.problems import Send

__all__ = ["with_cors"]

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_ORIGIN = (b"access-control-allow-origin", b"*")
_EXPOSED = (b"access-control-expose-headers", b"Shoal-Signature, Shoal-Key, Retry-After")
_PREFLIGHT: list[tuple[bytes, bytes]] = [
    _ORIGIN,
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"Content-Type"),
    (b"access-control-max-age", b"86400"),
    (b"content-length", b"0"),
    (b"cache-control", b"no-store"),
]


def with_cors(app: App) -> App:
    """Return the app with leave for web pages to call it.

    A browser asks before it sends a report (a *preflight*), and gets the same answer for every
    address. Any other OPTIONS request is the app's own matter.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and _asks(scope):
            await send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
            await send({"type": "http.response.body", "body": b""})
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], _ORIGIN, _EXPOSED]}
            await send(message)

        await app(scope, receive, with_headers)

    return answer


def _asks(scope: Scope) -> bool:
    names = {name for name, _ in scope["headers"]}
    return {b"origin", b"access-control-request-method"} <= names
