"""The relay's listener for operators: health, metrics, and how crowds get on, in tenths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core import problems
from shoal.server.core.auth import ServiceHandlers, guarded_app, token_of
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import Operation, json_response, openapi
from shoal.server.core.parameters import Parameter

if TYPE_CHECKING:
    from shoal.server.relay.service import Relay

__all__ = ["OPERATIONS", "make_ops"]

_PLAN = Parameter("plan_id", "path", "The plan's id.")


class OpsHandlers(ServiceHandlers):
    """One method for each operation: a request to its answer."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(relay)
        self._relay = relay

    async def plans(self, request: Request) -> Response:
        """List plans and their states."""
        token = token_of(request)
        lines = [
            {"id": record.plan.id, "survey": record.plan.survey.name, "state": record.state}
            for record in self._relay.notices.plans()
            if token.covers(record.plan.id)
        ]
        return json_response({"plans": lines})

    async def crowds(self, request: Request) -> Response:
        """List the crowds of a plan."""
        plan_id = request.path_params["plan_id"]
        if self._relay.notices.plan(plan_id) is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        crowds = await self._relay.in_store(self._relay.store.crowds, plan_id)
        return json_response(
            {
                "crowds": [
                    {
                        "window": crowd.window,
                        "crowd": crowd.place,
                        "state": crowd.state,
                        "tenths": crowd.tenths,
                    }
                    for crowd in crowds
                ]
            }
        )

    async def close(self, request: Request) -> Response:
        """Close a plan."""
        plan_id = request.path_params["plan_id"]
        if self._relay.notices.plan(plan_id) is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        if not await self._relay.close_plan(plan_id, by=token_of(request).label):
            raise Refusal(problems.WRONG_STATE)
        return json_response({"id": plan_id, "state": "closed"})

    async def metrics(self, request: Request) -> Response:
        """Show the metrics."""
        await self._relay.count_waiting()
        return await super().metrics(request)

    async def key(self, request: Request) -> Response:
        """Show the relay's own signing key, which the analyzer must know."""
        return json_response({"ed25519": self._relay.signer.public_key})


async def _openapi(handlers: OpsHandlers, request: Request) -> Response:
    summary = "Health, metrics, and crowds in tenths."
    return json_response(openapi(OPERATIONS, "Shoal relay, operations", summary))


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/v1/plans", "viewer", "List plans and their states.", OpsHandlers.plans),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds", "viewer", "A plan's crowds, open ones in tenths.",
        OpsHandlers.crowds, (_PLAN,), problems=(problems.UNKNOWN_PLAN,),
    ),
    Operation(
        "POST", "/v1/plans/{plan_id}/close", "admin",
        "Close: take no more reports, and destroy crowds that are not whole.",
        OpsHandlers.close, (_PLAN,), problems=(problems.UNKNOWN_PLAN, problems.WRONG_STATE),
    ),
    Operation("GET", "/v1/relay-key", "viewer", "The relay's own signing key.", OpsHandlers.key),
    Operation("GET", "/v1/clock", "viewer", "Whether the clock is trusted.", OpsHandlers.clock),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
        OpsHandlers.accept_clock,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation("GET", "/healthz", None, "Whether the process answers.", OpsHandlers.healthz),
    Operation("GET", "/readyz", None, "Whether reports can be accepted.", OpsHandlers.readyz,
              problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD,
                        problems.ANALYZER_SILENT, problems.NO_KEY, problems.FORWARD_STALLED,
                        problems.DEADLINES_MISFIT)),
    Operation("GET", "/metrics", None, "Prometheus metrics.", OpsHandlers.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Everything the listener for operators answers to."""


def make_ops(relay: Relay) -> Starlette:
    """Return the ASGI app of the listener for operators."""
    return guarded_app(OPERATIONS, OpsHandlers(relay), relay)
