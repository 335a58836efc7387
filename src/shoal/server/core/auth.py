"""Operations that ask for a token, on a listener that nobody but operators reaches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core.health import ServiceHandlers
from shoal.server.core.openapi import Operation
from shoal.server.core.requests import check_token
from shoal.server.core.routes import Endpoint, make_app
from shoal.server.core.sessions import Sessions
from shoal.server.core.tokens import Role
from shoal.server.storage.database import StorageError

if TYPE_CHECKING:
    from shoal.server.core.service import Running

__all__ = ["SAFE", "guarded", "guarded_app", "token_check", "with_headers"]

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


def token_check(service: Running, sessions: Sessions | None = None) -> Check:
    """Return what finds the token of a request, and stores once a day that it was used."""

    async def check(request: Request, role: Role) -> None:
        token = check_token(service.tokens, request, role, sessions)
        request.state.token = token
        if service.tokens.is_unused_today(token):
            with suppress(StorageError):  # a full disk must not keep anybody from looking
                await service.in_store(service.tokens.mark_used, token)

    return check


def guarded(
    operation: Operation, handlers: object, check: Check, headers: Mapping[str, str]
) -> Endpoint:
    """Return what answers an operation whose handler is a method of `handlers`."""

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
    operations: Iterable[Operation], handlers: ServiceHandlers, service: Running
) -> Starlette:
    """Return the app of operations for programs, which show a token with every request."""
    check = token_check(service)
    return make_app(
        operations, lambda operation: guarded(operation, handlers, check, SAFE), service.refused
    )
