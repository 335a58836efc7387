"""The public listener: signed plans out, reports in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.collector import problems
from shoal.collector.console.errors import make_app, problem_response
from shoal.collector.console.openapi import Operation, Parameter, openapi
from shoal.collector.intake.ingest import BINARY, Ingest, Receive, Scope
from shoal.collector.intake.store import PlanRecord
from shoal.collector.problems import Send
from shoal.collector.signing import Signer

__all__ = ["make_public"]

_PLAN = Parameter(
    "plan_id", "path", {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "The plan's id."
)
_REPORTS = {
    "type": "object",
    "required": ["plan", "reports"],
    "additionalProperties": False,
    "properties": {
        "plan": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "reports": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "contentEncoding": "base64"},
        },
    },
}
_AN_HOUR = "public, max-age=3600"
"""A signed document may be kept for so long; then its signature may be another key's."""


def make_public(
    find: Callable[[str], PlanRecord | None],
    ingest: Ingest,
    signer: Signer,
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return the ASGI app of the public listener."""

    async def plan(request: Request) -> Response:
        kept = find(request.path_params["plan_id"])
        if kept is None:
            return problem_response(problems.UNKNOWN_PLAN)
        document = {"id": kept.plan.id} | kept.plan.to_json()
        return _signed(json.dumps(document, ensure_ascii=False).encode())

    async def certificate(request: Request) -> Response:
        kept = find(request.path_params["plan_id"])
        if kept is None or kept.certificate is None:
            return problem_response(problems.UNKNOWN_PLAN)
        return _signed(kept.certificate)

    async def keys(request: Request) -> Response:
        links = [link._asdict() for link in signer.links]
        document = {"ed25519": signer.public_keys, "links": links}
        return Response(json.dumps(document), media_type="application/json")

    def _signed(content: bytes) -> Response:
        headers = {
            "Cache-Control": _AN_HOUR,
            "Shoal-Signature": signer.sign(content),
            "Shoal-Key": signer.public_key,
        }
        return Response(content, headers=headers, media_type="application/json")

    async def document(request: Request) -> Response:
        content = openapi(operations, "Shoal collector", "Signed plans out, reports in.")
        return Response(json.dumps(content), media_type="application/json")

    operations = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A published plan, signed.", plan, (_PLAN,)
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None, "What the plan promises, signed.",
            certificate, (_PLAN,),
        ),
        Operation(
            "POST", "/v1/plans/{plan_id}/reports", "app" if ingest.needs_token else None,
            "Take reports, each once; the answer is the same for those that have come before. A"
            " relay is told as JSON which of its reports were late.",
            None, (_PLAN,), status=202, media=(), body=_REPORTS, binary=BINARY,
            problems=(problems.PLAN_CLOSED, problems.TOO_MANY),
        ),
        Operation("GET", "/v1/keys", None, "The signing key, and those before it.", keys),
        Operation("GET", "/openapi.json", None, "This document.", document),
    )  # fmt: skip
    others = make_app(
        [
            Route(operation.path, operation.handler)
            for operation in operations
            if operation.handler is not None
        ]
    )

    async def public(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ingest.takes(scope):
            await ingest(scope, receive, send)
        else:
            await others(scope, receive, send)

    return public
