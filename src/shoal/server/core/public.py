"""The public listener of a collector or an analyzer: signed plans, keys, and one endpoint."""

from __future__ import annotations

import json
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core import problems
from shoal.server.core.administration import Administration
from shoal.server.core.http import App, Receive, Refusal, Scope, first, with_cors
from shoal.server.core.openapi import (
    Operation,
    Parameter,
    json_response,
    make_app,
    openapi,
    signed_response,
)
from shoal.server.core.problems import Send
from shoal.server.storage.records import PlanRecord

PLAN = Parameter("plan_id", "path", "The plan's id.", pattern="^[0-9a-f]{64}$")
_AN_HOUR = "public, max-age=3600"
"""How long a signed document may be cached; after that the signing key may have changed."""


class PublicEndpoint(Protocol):
    """The endpoint for reports or chunks; written directly for ASGI, without a handler."""

    title: str
    summary: str

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations, for the OpenAPI document."""
        ...

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is the endpoint's; return whether it was."""
        ...


def make_public(administration: Administration, endpoint: PublicEndpoint) -> App:
    """Return the ASGI app of the public listener of a collector or an analyzer."""
    signer = administration.signer

    def published(request: Request) -> PlanRecord:
        record = administration.published(request.path_params["plan_id"])
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
        return json_response(openapi(operations, endpoint.title, endpoint.summary))

    operations = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A published plan, signed.", plan, (PLAN,)
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None, "The signed certificate of the plan.",
            certificate, (PLAN,),
        ),
        *endpoint.operations,
        Operation("GET", "/v1/keys", None, "The keys that sign, and the expired ones.", keys),
        Operation("GET", "/openapi.json", None, "This document.", document),
    )  # fmt: skip
    others = make_app(
        [operation for operation in operations if operation.handler is not None],
        lambda operation: operation.handler,
        administration.refused,
    )

    return with_cors(first(endpoint.handle, others), administration.origins)
