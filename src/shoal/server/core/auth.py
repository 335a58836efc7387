"""Operations that ask for a token, on a listener that only operators can reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core import problems
from shoal.server.core.http import JSON, Refusal, bearer_token, cookie, media_type, read_body
from shoal.server.core.observability import Metrics
from shoal.server.core.openapi import Endpoint, Operation, json_response, make_app
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import COOKIE, Role, Sessions, Token, Tokens
from shoal.server.storage.database import StorageError
from shoal.support.files import strict_json

if TYPE_CHECKING:
    from shoal.server.core.service import Service

__all__ = [
    "SAFE",
    "ServiceHandlers",
    "check_same_origin",
    "check_token",
    "guarded",
    "guarded_app",
    "read_document",
    "token_check",
    "token_of",
    "with_headers",
]

Check = Callable[[Request, Role], Awaitable[None]]
"""Refuses a request whose token does not include a role."""

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer."""


def token_check(service: Service, sessions: Sessions | None = None) -> Check:
    """Return a function that finds the token of a request and records its use once a day."""

    async def check(request: Request, role: Role) -> None:
        token = check_token(service.tokens, request, role, sessions)
        request.state.token = token
        if service.tokens.is_unused_today(token):
            with suppress(StorageError):  # a full disk must not block reads
                await service.in_store(service.tokens.mark_used, token)

    return check


def guarded(
    operation: Operation, handlers: object, check: Check, headers: Mapping[str, str]
) -> Endpoint:
    """Return the endpoint of an operation whose handler is a method of `handlers`."""

    async def answer(request: Request) -> Response:
        if operation.role is not None:
            await check(request, operation.role)
        response: Response = await operation.handler(handlers, request)
        return with_headers(response, headers)

    return answer


def with_headers(response: Response, headers: Mapping[str, str]) -> Response:
    """Add headers that a response does not have yet."""
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    return response


def guarded_app(
    operations: Iterable[Operation], handlers: ServiceHandlers, service: Service
) -> Starlette:
    """Return the app of operations for programs, which show a token with every request."""
    check = token_check(service)
    return make_app(
        operations, lambda operation: guarded(operation, handlers, check, SAFE), service.refused
    )


LARGEST_DOCUMENT = 4 << 20
"""Bytes that a plan, or another document sent to the console, may have."""


def check_token(
    tokens: Tokens, request: Request, role: Role, sessions: Sessions | None = None
) -> Token:
    """Return the token of a request; refuse one that does not allow the operation.

    A token that is limited to some plans does not allow operations that concern all plans.
    """
    token = _find_token(tokens, request, sessions)
    if token is None:
        raise Refusal(problems.NO_TOKEN)
    plan_id = request.path_params.get("plan_id")
    out_of_scope = (
        not token.covers(plan_id) if plan_id else token.plans is not None and role == "admin"
    )
    if not token.may(role) or out_of_scope:
        raise Refusal(problems.WRONG_ROLE)
    return token


def token_of(request: Request) -> Token:
    """Return the token that `check_token` found."""
    token = request.state.token
    assert isinstance(token, Token)
    return token


def _find_token(tokens: Tokens, request: Request, sessions: Sessions | None) -> Token | None:
    headers = dict(request.scope["headers"])
    secret = bearer_token(headers)
    if secret:
        return tokens.find(secret)
    token = None if sessions is None else sessions.find(cookie(headers, COOKIE))
    # A browser sends the cookie by itself, whichever page makes it ask.
    if token is not None and request.method not in ("GET", "HEAD"):
        check_same_origin(request)
    return token


def check_same_origin(request: Request) -> None:
    """Refuse requests that a page of another origin, another port included, made a browser send.

    Every browser that accepts the cookie sends this header, and no page can change it.
    """
    if request.headers.get("sec-fetch-site") != "same-origin":
        raise Refusal(problems.CROSS_SITE)


async def read_document(request: Request, largest: int = LARGEST_DOCUMENT) -> object:
    """Read a JSON document of at most `largest` bytes, strictly."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != JSON:
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, largest)
    if isinstance(body, problems.Problem):
        raise Refusal(body)
    try:
        return await asyncio.to_thread(strict_json, body)
    except ValueError as error:
        raise Refusal(problems.BAD_REQUEST) from error


class Operated(Protocol):
    """What operators see of a party."""

    service: Service

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now."""
        ...

    def metrics_text(self) -> bytes:
        """Return the metrics of this moment."""
        ...


class ServiceHandlers:
    """One method for each operation: a request to its answer."""

    def __init__(self, party: Operated) -> None:
        self._party = party

    async def healthz(self, request: Request) -> Response:
        """Show that the process answers."""
        return json_response({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Show whether reports can be accepted."""
        problem = await self._party.obstacle()
        if problem is not None:
            raise Refusal(problem)
        return json_response({"status": "ready"})

    async def clock(self, request: Request) -> Response:
        """Show whether the clock is trusted."""
        return json_response(self._party.service.clock_line())

    async def accept_clock(self, request: Request) -> Response:
        """Trust the clock."""
        self._party.service.accept_clock(by=token_of(request).label)
        return json_response(self._party.service.clock_line())

    async def metrics(self, request: Request) -> Response:
        """Show the metrics."""
        return Response(self._party.metrics_text(), media_type=Metrics.media_type)
