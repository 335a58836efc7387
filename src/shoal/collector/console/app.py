"""The console's API: plans, progress in tenths and sealed crowds; nothing about an open crowd.

`OPERATIONS` lists every operation once. The routes, their checks and the OpenAPI document are made
from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.collector import problems
from shoal.collector.console.guarded import guarded_app
from shoal.collector.console.handlers import (
    FORMAT,
    HONEST,
    INTERVAL,
    LEVEL,
    NEVER_PUBLISHED,
    NUMBER,
    ONE_PLAN,
    PAGE,
    PLAN,
    TOKEN,
    Handlers,
)
from shoal.collector.console.openapi import Operation, openapi
from shoal.collector.console.responses import ARROW, PARQUET, json_answer
from shoal.collector.console.tokens import LABEL, MOST_PLANS, ROLES

if TYPE_CHECKING:
    from shoal.collector.service import Collector

__all__ = ["OPERATIONS", "make_console"]

_ESTIMATES = ("application/json", "text/csv", PARQUET, ARROW)


async def _openapi(handlers: Handlers, request: Request) -> Response:
    summary = "Plans, progress in tenths, and sealed crowds."
    return json_answer(openapi(OPERATIONS, "Shoal console", summary))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/", "viewer", "The console's page.", Handlers.home, (PAGE, ONE_PLAN),
        media=("text/html",), problems=(problems.UNKNOWN_PLAN,),
    ),
    Operation("GET", "/v1/plans", "viewer", "List plans and their states.", Handlers.plans),
    Operation(
        "POST", "/v1/plans", "admin", "Add a plan as a draft.", Handlers.add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation("GET", "/v1/plans/{plan_id}", "viewer", "One plan.", Handlers.plan, (PLAN,)),
    Operation(
        "POST", "/v1/plans/{plan_id}/publish", "admin", "Publish a draft, or resume after a pause.",
        Handlers.publish, (PLAN, HONEST, NEVER_PUBLISHED),
        problems=(problems.WRONG_STATE, problems.HONEST_UNSAID, problems.MAYBE_PUBLISHED),
    ),
    *(
        Operation(
            "POST", f"/v1/plans/{{plan_id}}/{word}", "admin", summary, handler, (PLAN,),
            problems=(problems.WRONG_STATE,),
        )
        for word, summary, handler in (
            ("pause", "Pause: accept no reports for a while.", Handlers.pause),
            ("close", "Close: accept no more reports, and destroy the open crowd.", Handlers.close),
            ("destroy", "Destroy all collected data.", Handlers.destroy),
        )
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/certificate", "viewer", "What the plan promises, signed.",
        Handlers.certificate, (PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/progress", "viewer", "How full the open crowd is, in tenths.",
        Handlers.progress, (PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds", "viewer", "The plan's crowds.", Handlers.crowds,
        (PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}", "analyst",
        "A sealed crowd: its tally, and traces of fake reports.", Handlers.crowd,
        (PLAN, NUMBER), problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/estimates", "analyst",
        "Estimates of a sealed crowd, with intervals.", Handlers.estimates,
        (PLAN, NUMBER, FORMAT, INTERVAL, LEVEL), media=_ESTIMATES,
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/report.html", "analyst",
        "A sealed crowd as one page.", Handlers.report, (PLAN, NUMBER), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/report.html", "analyst", "The last sealed crowd as one page.",
        Handlers.latest_report, (PLAN,), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation("GET", "/v1/tokens", "admin", "List tokens, without their secrets.", Handlers.tokens),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is shown once.",
        Handlers.add_token, status=201,
        body={
            "type": "object",
            "required": ["role", "label"],
            "additionalProperties": False,
            "properties": {
                "role": {"type": "string", "enum": list(ROLES)},
                "label": {"type": "string", "minLength": 1, "maxLength": 80,
                          "pattern": f"^{LABEL.pattern}$"},
                "expires": {"type": ["string", "null"], "format": "date"},
                "plans": {"type": ["array", "null"], "minItems": 1, "maxItems": MOST_PLANS,
                          "items": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
                "key": {"type": ["string", "null"], "pattern": "^[A-Za-z0-9_-]{43}$"},
            },
            "if": {"required": ["key"], "properties": {"key": {"type": "string"}}},
            "then": {"properties": {"role": {"const": "relay"}}},
        },
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Revoke a token.", Handlers.remove_token,
        (TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation("GET", "/v1/clock", "viewer", "Whether the clock is trusted.", Handlers.clock),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
        Handlers.accept_clock,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation("GET", "/healthz", None, "Whether the process answers.", Handlers.healthz),
    Operation("GET", "/readyz", None, "Whether reports can be accepted.", Handlers.readyz,
              problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD)),
    Operation("GET", "/metrics", None, "Prometheus metrics.", Handlers.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Everything the console's listener answers to."""


def make_console(collector: Collector) -> Starlette:
    """Return the ASGI app of the console's listener."""
    return guarded_app(OPERATIONS, Handlers(collector), collector)
