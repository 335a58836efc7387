"""From a table of operations to an ASGI app that answers them and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.server.core.http import exception_handlers
from shoal.server.core.openapi import Operation
from shoal.server.core.problems import Problem

__all__ = ["Endpoint", "make_app"]

Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(
    operations: Iterable[Operation],
    endpoint: Callable[[Operation], Endpoint],
    refused: Callable[[Problem], None],
) -> Starlette:
    """Return the app of some operations; `endpoint` returns the function that answers one.

    `refused` is called with each problem that is answered. An address with an extra slash at its
    end is not found: a redirect would repeat the request's host.
    """
    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = endpoint(operation)
    routes = [_route(path, by_method) for path, by_method in by_path.items()]
    app = Starlette(routes=routes, exception_handlers=exception_handlers(refused))
    app.router.redirect_slashes = False
    return app


def _route(path: str, by_method: dict[str, Endpoint]) -> Route:
    """Return one route for all methods of a path, so that a wrong method is answered with 405."""

    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await by_method[method](request)

    return Route(path, answer, methods=list(by_method))
