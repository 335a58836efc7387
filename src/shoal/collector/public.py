"""The public listener: signed plans out, reports in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.collector import problems
from shoal.collector.answers import answers_of_problems, problem_response
from shoal.collector.ingest import Ingest, Receive, Scope
from shoal.collector.problems import Send
from shoal.collector.signing import Signer
from shoal.collector.store import KeptPlan

__all__ = ["make_public"]

_FOREVER = "public, max-age=31536000, immutable"


def make_public(
    find: Callable[[str], KeptPlan | None],
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
        return Response(json.dumps({"ed25519": [signer.public_key]}), media_type="application/json")

    def _signed(content: bytes) -> Response:
        headers = {
            "Cache-Control": _FOREVER,
            "Shoal-Signature": signer.sign(content),
            "Shoal-Key": signer.public_key,
        }
        return Response(content, headers=headers, media_type="application/json")

    others = Starlette(
        routes=[
            Route("/v1/plans/{plan_id}", plan),
            Route("/v1/plans/{plan_id}/certificate", certificate),
            Route("/v1/keys", keys),
        ],
        exception_handlers=answers_of_problems(),
    )

    async def public(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and ingest.takes(scope):
            await ingest(scope, receive, send)
        else:
            await others(scope, receive, send)

    return public
