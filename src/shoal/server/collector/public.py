"""The public listener: signed plans out, reports in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from shoal.protocol.oblivious import KEYS_TYPE, REQUEST_TYPE, RESPONSE_TYPE
from shoal.server.collector.gateway import PATH, Gateway
from shoal.server.collector.ingest import BINARY, Ingest
from shoal.server.core import problems
from shoal.server.core.http import Receive, Refusal, Scope
from shoal.server.core.openapi import Operation, json_response, make_app, openapi, signed_response
from shoal.server.core.parameters import Parameter
from shoal.server.core.problems import Problem, Send
from shoal.server.storage.key_file import Signer
from shoal.server.storage.records import PlanRecord

__all__ = ["PublicDoor", "make_public", "reports_door"]

PLAN = Parameter("plan_id", "path", "The plan's id.", pattern="^[0-9a-f]{64}$")
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
_OBLIVIOUS = (
    Operation(
        "GET", PATH, None, "The keys of Oblivious HTTP (RFC 9458), signed.", None,
        media=(KEYS_TYPE,),
    ),
    Operation(
        "POST", PATH, None, "A request for reports, sealed; its answer is sealed too.", None,
        media=(RESPONSE_TYPE,), binary=(REQUEST_TYPE,),
        problems=(problems.OBLIVIOUS_KEY, problems.UNOPENED, problems.TOO_LARGE),
    ),
)  # fmt: skip
_AN_HOUR = "public, max-age=3600"
"""How long a signed document may be cached; after that the signing key may have changed."""


class PublicDoor(NamedTuple):
    """What takes in what is sent: `handle` answers a request if it is for the door.

    It is written directly for ASGI, so its operations have no handler.
    """

    title: str
    summary: str
    operations: tuple[Operation, ...]
    handle: Callable[[Scope, Receive, Send], Awaitable[bool]]


def reports_door(ingest: Ingest, gateway: Gateway | None = None) -> PublicDoor:
    """Return the door for reports of devices, with Oblivious HTTP if there is a gateway."""
    operation = Operation(
        "POST", "/v1/plans/{plan_id}/reports", "app" if ingest.needs_token else None,
        "Send reports. Each is counted once; a repeated report gets the same answer. The answer"
        " to a relay lists its refused reports as JSON.",
        None, (PLAN,), status=202, media=(), body=_REPORTS, binary=BINARY,
        problems=(problems.PLAN_CLOSED, problems.TOO_MANY),
    )  # fmt: skip
    summary = "Signed plans out, reports in."
    if gateway is None:
        return PublicDoor("Shoal collector", summary, (operation,), ingest.handle)

    async def handle(scope: Scope, receive: Receive, send: Send) -> bool:
        return await ingest.handle(scope, receive, send) or await gateway.handle(
            scope, receive, send
        )

    return PublicDoor("Shoal collector", summary, (operation, *_OBLIVIOUS), handle)


def make_public(
    find: Callable[[str], PlanRecord | None],
    door: PublicDoor,
    signer: Signer,
    refused: Callable[[Problem], None],
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return the ASGI app of the public listener."""

    def published(request: Request) -> PlanRecord:
        record = find(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def plan(request: Request) -> Response:
        document = published(request).document
        return signed_response(json.dumps(document, ensure_ascii=False).encode(), signer, _AN_HOUR)

    async def certificate(request: Request) -> Response:
        content = published(request).certificate
        assert content is not None
        return signed_response(content, signer, _AN_HOUR)

    async def keys(request: Request) -> Response:
        links = [link._asdict() for link in signer.links]
        signing = signer.signing_keys
        expired = [key for key in signer.public_keys if key not in signing]
        return json_response({"ed25519": signing, "expired": expired, "links": links})

    async def document(request: Request) -> Response:
        return json_response(openapi(operations, door.title, door.summary))

    operations = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A published plan, signed.", plan, (PLAN,)
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None, "What the plan promises, signed.",
            certificate, (PLAN,),
        ),
        *door.operations,
        Operation("GET", "/v1/keys", None, "The keys that sign, and the expired ones.", keys),
        Operation("GET", "/openapi.json", None, "This document.", document),
    )  # fmt: skip
    others = make_app(
        [operation for operation in operations if operation.handler is not None],
        lambda operation: operation.handler,
        refused,
    )

    async def public(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not await door.handle(scope, receive, send):
            await others(scope, receive, send)

    return public
