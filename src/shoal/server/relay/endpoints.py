"""The relay's two listeners.

Devices fetch the analyzer's documents and send encrypted reports. Operators see health, metrics and
the progress of crowds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.protocol.encryption import EncryptedReports, encrypted_batch_bytes, split_encrypted
from shoal.protocol.signatures import KEY, SIGNATURE
from shoal.protocol.wire import ENCRYPTED_TYPE
from shoal.server.core import problems
from shoal.server.core.http import App, Refusal, read_origins
from shoal.server.core.ingest import DeviceIngest, ReportFormat
from shoal.server.core.openapi import Operation, Parameter, ServiceHandlers, guarded_app, openapi
from shoal.server.core.problems import Problem
from shoal.server.core.public import AN_HOUR, PLAN, public_app
from shoal.server.core.tokens import token_of
from shoal.server.relay.open_plan import Document

if TYPE_CHECKING:
    from shoal.server.relay.service import Relay

_WINDOW = Parameter[int](
    "window", "query", "The window's number; 0 without windows.",
    Annotated[int, Meta(ge=0, lt=2**32)], 0,
)  # fmt: skip
FORMAT = ReportFormat(
    re.compile(r"/v1/plans/([0-9a-f]{64})/encrypted"),
    frozenset({ENCRYPTED_TYPE.encode()}),
    split_encrypted,
    encrypted_batch_bytes,
)


def kilobytes(upload: EncryptedReports) -> int:
    """Return how much memory an upload takes while it waits, in kilobytes."""
    return 1 + (len(upload.content) >> 10)


class EncryptedIngest(DeviceIngest):
    """Accepts encrypted reports from devices."""

    title, summary = "Shoal relay", "Documents out, encrypted reports in."
    operations = (
        Operation(
            "POST", "/v1/plans/{plan_id}/encrypted", None,
            "Send encrypted reports. Each is forwarded once; a repeated report gets the same"
            " response.",
            None, (PLAN,), status=202, media=(), binary=(ENCRYPTED_TYPE,),
            problems=(problems.PLAN_CLOSED, problems.KEY_CHANGED, problems.TOO_MANY),
        ),
    )  # fmt: skip


def make_public(relay: Relay, ingest: EncryptedIngest) -> App:
    def passed_on(name: str, cache: str = AN_HOUR) -> Response:
        return _as_received(relay.cache.document(name), cache)

    async def plan(request: Request) -> Response:
        return passed_on(f"plan {request.path_params['plan_id']}")

    async def certificate(request: Request) -> Response:
        return passed_on(f"certificate {request.path_params['plan_id']}")

    async def keys(request: Request) -> Response:
        return passed_on("keys", "no-store")

    async def crowd_key(request: Request) -> Response:
        plan_id = request.path_params["plan_id"]
        return _as_received(relay.cache.crowd_key(plan_id, _WINDOW.read(request)), "no-store")

    documents = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A plan, signed by the analyzer.", plan, (PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None,
            "The certificate of the plan, signed by the analyzer.", certificate, (PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/crowd-key", None,
            "The key that reports of a window are encrypted for now, signed by the analyzer.",
            crowd_key, (PLAN, _WINDOW),
            problems=(problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN, problems.NO_KEY),
        ),
        Operation("GET", "/v1/keys", None, "The analyzer's signing keys.", keys),
    )  # fmt: skip
    origins = read_origins(relay.settings.origins)
    return public_app(ingest, documents, relay.service.refused, lambda plan_id: origins)


def _as_received(document: Document | Problem, cache: str) -> Response:
    """Return a document of the analyzer as it was received."""
    if isinstance(document, Problem):
        raise Refusal(document)
    headers = {"Cache-Control": cache}
    if document.signature:
        headers |= {SIGNATURE: document.signature, KEY: document.signer}
    return Response(document.content, headers=headers, media_type="application/json")


class RelayHandlers(ServiceHandlers):
    """Handlers of the operations; one method for each."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self._relay = relay

    async def plans(self, request: Request) -> object:
        token = token_of(request)
        lines = [
            {"id": record.plan.id, "survey": record.plan.survey.name, "state": record.state}
            for record in self._relay.cache.plans.values()
            if token.covers(record.plan.id)
        ]
        return {"plans": lines}

    def _plan_id(self, request: Request) -> str:
        plan_id: str = request.path_params["plan_id"]
        if self._relay.cache.plans.get(plan_id) is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return plan_id

    async def crowds(self, request: Request) -> object:
        plan_id = self._plan_id(request)
        crowds = await self._relay.service.in_store(self._relay.store.crowds, plan_id)
        return {"crowds": [crowd._asdict() for crowd in crowds]}

    async def close(self, request: Request) -> object:
        plan_id = self._plan_id(request)
        if not await self._relay.cache.close_plan(plan_id, by=token_of(request).label):
            raise Refusal(problems.WRONG_STATE)
        return {"id": plan_id, "state": "closed"}

    async def metrics(self, request: Request) -> Response:
        await self._relay.count_waiting()
        return await super().metrics(request)


async def _openapi(handlers: RelayHandlers, request: Request) -> object:
    summary = "Health, metrics, and the progress of crowds."
    return openapi(OPERATIONS, "Shoal relay, console", summary)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/v1/plans", "viewer", "List plans and their states.", RelayHandlers.plans),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds", "viewer", "A plan's crowds; progress in per cent.",
        RelayHandlers.crowds, (PLAN,), problems=(problems.UNKNOWN_PLAN,),
    ),
    Operation(
        "POST", "/v1/plans/{plan_id}/close", "admin",
        "Close: take no more reports, and discard incomplete crowds.",
        RelayHandlers.close, (PLAN,), problems=(problems.UNKNOWN_PLAN, problems.WRONG_STATE),
    ),
    Operation("GET", "/v1/clock", "viewer", "Whether the clock is trusted.", RelayHandlers.clock),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
        RelayHandlers.accept_clock,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation("GET", "/healthz", None, "Whether the process answers.", RelayHandlers.healthz),
    Operation("GET", "/readyz", None, "Whether reports can be accepted.", RelayHandlers.readyz,
              problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD,
                        problems.ANALYZER_SILENT, problems.NO_KEY, problems.FORWARD_STALLED,
                        problems.DEADLINES_MISFIT)),
    Operation("GET", "/metrics", None, "Prometheus metrics.", RelayHandlers.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Everything the listener for operators answers to."""


def make_console(relay: Relay) -> Starlette:
    return guarded_app(OPERATIONS, RelayHandlers(relay), relay.service)
