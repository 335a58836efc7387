"""What both listeners read of a request: its media type, its secret, its body.

A body is read up to a size that is known before it comes. Small bodies are always read; larger ones
share a budget of memory, so that many large requests at a time cannot exhaust the machine.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from shoal.server.core import problems
from shoal.server.core.problems import Problem

__all__ = [
    "JSON",
    "PLAN_PATH",
    "BodyBudget",
    "Receive",
    "Scope",
    "bearer_token",
    "cookie",
    "media_type",
    "read_body",
]

Headers = Mapping[bytes, bytes]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

JSON = b"application/json"
PLAN_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})(?:/|$)")
"""The start of every path that belongs to a plan."""
SMALL_BODY = 64 << 10
"""Bytes that every request may have; for more there must be memory left in the budget."""


def media_type(headers: Headers) -> bytes | None:
    """Return the media type of a body, without parameters; None if the body is compressed."""
    if b"content-encoding" in headers:
        return None
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


def bearer_token(headers: Headers) -> str:
    """Return the bearer token of a request, or an empty text."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    return secret.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def cookie(headers: Headers, name: str) -> str:
    """Return a cookie of a request, or an empty text; of several with one name none is taken."""
    wanted = name.encode() + b"="
    parts = (part.strip() for part in headers.get(b"cookie", b"").split(b";"))
    found = [part.removeprefix(wanted) for part in parts if part.startswith(wanted)]
    return found[0].decode("latin-1") if len(found) == 1 else ""


class BodyBudget:
    """Memory for the large bodies of all requests under way."""

    def __init__(self, size: int) -> None:
        self.left = size

    def share(self) -> BodyShare:
        """Return the share of one request, which ends with its `with` block."""
        return BodyShare(self)


class BodyShare:
    """The memory that one request has reserved."""

    __slots__ = ("_budget", "_reserved")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget, self._reserved = budget, 0

    def __enter__(self) -> BodyShare:
        return self

    def __exit__(self, *error: object) -> None:
        self._budget.left += self._reserved

    def grow_to(self, size: int) -> bool:
        """Reserve memory for a body of a size; return whether there is enough."""
        more = max(size - SMALL_BODY - self._reserved, 0)
        if more > self._budget.left:
            return False
        self._budget.left -= more
        self._reserved += more
        return True


async def read_body(
    receive: Receive,
    headers: Headers,
    largest: int,
    share: BodyShare | None = None,
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
        if size > SMALL_BODY and share is not None and not share.grow_to(size):
            return problems.BUSY
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)
