"""The relay's listener for devices: the analyzer's documents out, sealed reports in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from shoal.protocol.signatures import KEY, SIGNATURE
from shoal.protocol.wire import ENCRYPTED_TYPE
from shoal.server.core import problems
from shoal.server.core.http import Receive, Refusal, Scope, read_origins, with_cors
from shoal.server.core.openapi import Operation, json_response, make_app, openapi
from shoal.server.core.parameters import Integer, Parameter
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import App
from shoal.server.relay.ingest import SealedIngest
from shoal.server.relay.open_plan import Document

if TYPE_CHECKING:
    from shoal.server.relay.service import Relay

__all__ = ["make_public"]

_PLAN = Parameter("plan_id", "path", "The plan's id.", pattern="^[0-9a-f]{64}$")
_WINDOW = Integer("window", "query", "The window's number; 0 without windows.", 0, 2**32 - 1, 0)
_AN_HOUR = "public, max-age=3600"
"""How long a signed document may be cached; after that the signing key may have changed."""


def make_public(relay: Relay, ingest: SealedIngest) -> App:
    """Return the ASGI app of the listener for devices."""

    def passed_on(name: str, cache: str = _AN_HOUR) -> Response:
        return _answer(relay.notices.document(name), cache)

    async def plan(request: Request) -> Response:
        return passed_on(f"plan {request.path_params['plan_id']}")

    async def certificate(request: Request) -> Response:
        return passed_on(f"certificate {request.path_params['plan_id']}")

    async def keys(request: Request) -> Response:
        return passed_on("keys", "no-store")

    async def crowd_key(request: Request) -> Response:
        plan_id = request.path_params["plan_id"]
        return _answer(relay.notices.crowd_key(plan_id, _WINDOW.read(request)), "no-store")

    async def document(request: Request) -> Response:
        return json_response(
            openapi(operations, "Shoal relay", "Documents out, sealed reports in.")
        )

    operations = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A plan, signed by the analyzer.", plan, (_PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None,
            "What the plan promises, signed by the analyzer.", certificate, (_PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/crowd-key", None,
            "The key that reports of a window are sealed for now, signed by the analyzer.",
            crowd_key, (_PLAN, _WINDOW),
            problems=(problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN, problems.NO_KEY),
        ),
        Operation(
            "POST", "/v1/plans/{plan_id}/encrypted", None,
            "Send sealed reports. Each is forwarded once; a repeated report gets the same answer.",
            None, (_PLAN,), status=202, media=(), binary=(ENCRYPTED_TYPE,),
            problems=(problems.PLAN_CLOSED, problems.KEY_CHANGED, problems.TOO_MANY),
        ),
        Operation("GET", "/v1/keys", None, "The analyzer's signing keys.", keys),
        Operation("GET", "/openapi.json", None, "This document.", document),
    )  # fmt: skip
    others = make_app(
        [operation for operation in operations if operation.handler is not None],
        lambda operation: operation.handler,
        relay.refused,
    )

    async def public(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not await ingest.handle(scope, receive, send):
            await others(scope, receive, send)

    origins = read_origins(relay.settings.origins)
    return with_cors(public, lambda plan_id: origins)


def _answer(document: Document | Problem, cache: str) -> Response:
    """Return a document of the analyzer as it came."""
    if isinstance(document, Problem):
        raise Refusal(document)
    headers = {"Cache-Control": cache}
    if document.signature:
        headers |= {SIGNATURE: document.signature, KEY: document.signer}
    return Response(document.content, headers=headers, media_type="application/json")
