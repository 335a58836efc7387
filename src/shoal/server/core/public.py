"""The public listener of a party: signed documents, and one endpoint for reports or chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Annotated, Protocol

from msgspec import Meta
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
from shoal.server.core.problems import Problem, Send
from shoal.server.storage.records import PlanRecord

PLAN = Parameter[str](
    "plan_id", "path", "The plan's id.", Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
)
AN_HOUR = "public, max-age=3600"
"""How long a signed document may be cached; after that the signing key may have changed."""


class PublicEndpoint(Protocol):
    """The endpoint for reports or chunks; its operations are served by `handle`."""

    title: str
    summary: str

    @property
    def operations(self) -> tuple[Operation, ...]: ...

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Respond to a request if its path is the endpoint's; return whether it was."""
        ...


def public_app(
    endpoint: PublicEndpoint,
    documents: tuple[Operation, ...],
    refused: Callable[[Problem], None],
    origins: Callable[[str | None], Collection[str]],
) -> App:
    """Return the ASGI app of an endpoint and of documents; for `origins` see `with_cors`."""

    async def document(request: Request) -> Response:
        return json_response(openapi(every, endpoint.title, endpoint.summary))

    served = (*documents, Operation("GET", "/openapi.json", None, "This document.", document))
    every = (*endpoint.operations, *served)
    others = make_app(served, lambda operation: operation.handler, refused)
    return with_cors(first(endpoint.handle, others), origins)


def make_public(administration: Administration, endpoint: PublicEndpoint) -> App:
    """Return the public app of a collector or an analyzer, which signs its documents."""
    signer = administration.signer

    def published(request: Request) -> PlanRecord:
        record = administration.published(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def plan(request: Request) -> Response:
        document = published(request).document
        return signed_response(json.dumps(document, ensure_ascii=False).encode(), signer, AN_HOUR)

    async def certificate(request: Request) -> Response:
        content = published(request).certificate
        assert content is not None
        return signed_response(content, signer, AN_HOUR)

    async def keys(request: Request) -> Response:
        links = [link._asdict() for link in signer.links]
        signing = signer.signing_keys
        expired = [key for key in signer.public_keys if key not in signing]
        return json_response({"ed25519": signing, "expired": expired, "links": links})

    documents = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A published plan, signed.", plan, (PLAN,)
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None, "The signed certificate of the plan.",
            certificate, (PLAN,),
        ),
        Operation("GET", "/v1/keys", None, "The keys that sign, and the expired ones.", keys),
    )  # fmt: skip
    return public_app(endpoint, documents, administration.refused, administration.origins)
