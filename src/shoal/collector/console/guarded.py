"""Operations that ask for a token, on a listener that nobody but operators reaches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.collector.console.openapi import Operation
from shoal.collector.console.requests import check_token
from shoal.collector.console.routes import Endpoint, make_app
from shoal.collector.console.service_handlers import ServiceHandlers

if TYPE_CHECKING:
    from shoal.collector.running import Running

__all__ = ["SAFE", "guarded_app"]

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer."""


def guarded_app(
    operations: Iterable[Operation], handlers: ServiceHandlers, service: Running
) -> Starlette:
    """Return the app of operations whose handlers are methods of `handlers`."""

    def endpoint(operation: Operation) -> Endpoint:
        async def answer(request: Request) -> Response:
            if operation.role is not None:
                request.state.token = check_token(service.tokens, request, operation.role)
            response: Response = await operation.handler(handlers, request)
            for name, value in SAFE.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    return make_app(operations, endpoint, service.refused)
