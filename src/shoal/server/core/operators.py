"""The API that operators of a party without pages have: plans, progress, closing, clock, health."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import Operated, Operation, ServiceHandlers, guarded_app, openapi
from shoal.server.core.problems import Problem
from shoal.server.core.public import PLAN
from shoal.server.core.tokens import token_of
from shoal.server.storage.records import PlanRecord


class OperatedParty(Operated, Protocol):
    @property
    def title(self) -> str: ...

    @property
    def plans(self) -> Mapping[str, PlanRecord]: ...

    async def crowds(self, plan_id: str) -> list[Any]: ...

    async def close_plan(self, plan_id: str, *, by: str) -> bool: ...

    async def read_metrics(self) -> None: ...


class OperatorHandlers(ServiceHandlers):
    """Handlers of the operations; `crowds` is the party's word for crowds."""

    def __init__(self, party: OperatedParty, crowds: str, ready: tuple[Problem, ...]) -> None:
        super().__init__(party)
        self._operated, self._crowds = party, crowds
        self.operations = _operations(crowds, ready)

    async def plans(self, request: Request) -> object:
        token = token_of(request)
        lines = [
            {"id": record.plan.id, "survey": record.plan.survey.name, "state": record.state}
            for record in self._operated.plans.values()
            if token.covers(record.plan.id)
        ]
        return {"plans": lines}

    def _plan_id(self, request: Request) -> str:
        plan_id: str = request.path_params["plan_id"]
        if plan_id not in self._operated.plans:
            raise Refusal(problems.UNKNOWN_PLAN)
        return plan_id

    async def crowds(self, request: Request) -> object:
        return {self._crowds: await self._operated.crowds(self._plan_id(request))}

    async def close(self, request: Request) -> object:
        plan_id = self._plan_id(request)
        if not await self._operated.close_plan(plan_id, by=token_of(request).label):
            raise Refusal(problems.WRONG_STATE)
        return {"id": plan_id, "state": "closed"}

    async def metrics(self, request: Request) -> Response:
        await self._operated.read_metrics()
        return await super().metrics(request)

    async def openapi(self, request: Request) -> object:
        summary = f"Health, metrics, and the progress of {self._crowds}."
        return openapi(self.operations, self._operated.title, summary)


def _operations(crowds: str, ready: tuple[Problem, ...]) -> tuple[Operation, ...]:
    handlers, plan = OperatorHandlers, "/v1/plans/{plan_id}"
    return (
        Operation("GET", "/v1/plans", "viewer", "List plans and their states.", handlers.plans),
        Operation(
            "GET", f"{plan}/{crowds}", "viewer",
            f"A plan's {crowds}; of an open one only its progress in per cent.",
            handlers.crowds, (PLAN,), problems=(problems.UNKNOWN_PLAN,),
        ),
        Operation(
            "POST", f"{plan}/close", "admin",
            f"Close: take no more reports, and discard incomplete {crowds}.",
            handlers.close, (PLAN,), problems=(problems.UNKNOWN_PLAN, problems.WRONG_STATE),
        ),
        Operation("GET", "/v1/clock", "viewer", "Whether the clock is trusted.", handlers.clock),
        Operation(
            "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
            handlers.accept_clock,
        ),
        Operation("GET", "/openapi.json", None, "This document.", handlers.openapi),
        Operation("GET", "/healthz", None, "Whether the process answers.", handlers.healthz),
        Operation(
            "GET", "/readyz", None, "Whether reports can be accepted.", handlers.readyz,
            problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD, *ready),
        ),
        Operation("GET", "/metrics", None, "Prometheus metrics.", handlers.metrics,
                  media=("text/plain",)),
    )  # fmt: skip


def operator_app(party: OperatedParty, crowds: str, ready: tuple[Problem, ...] = ()) -> Starlette:
    """Return the app of a party's operators; `ready` are its own reasons for not being ready."""
    handlers = OperatorHandlers(party, crowds, ready)
    return guarded_app(handlers.operations, handlers, party.service)
