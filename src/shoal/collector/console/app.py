"""The console's API: plans, progress in tenths, sealed crowds; nothing about an open one.

Every operation stands once in `OPERATIONS`, from which the routes, their checks and the OpenAPI
document are made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, get_args

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.analysis.intervals import IntervalKind
from shoal.collector import problems
from shoal.collector.console import requests as reading
from shoal.collector.console.errors import make_app
from shoal.collector.console.handlers import HONEST, Handlers
from shoal.collector.console.openapi import Operation, Parameter, openapi
from shoal.collector.console.responses import ARROW, FORMS, PARQUET, json_answer
from shoal.collector.console.tokens import LABEL, MOST_PLANS, ROLES

if TYPE_CHECKING:
    from shoal.collector.service import Collector

__all__ = ["OPERATIONS", "make_console"]

Endpoint = Callable[[Request], Awaitable[Response]]

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer."""

_PLAN = Parameter("plan_id", "path", {"type": "string"}, "The plan's id.")
_NUMBER = Parameter(
    "number", "path", {"type": "integer", "minimum": 1, "maximum": 2**53}, "The crowd's number."
)
_TOKEN = Parameter("token_id", "path", {"type": "string"}, "The token's id.")
_FORMAT = Parameter(
    "format",
    "query",
    {"type": "string", "enum": list(FORMS), "default": "json"},
    "The form of the answer.",
)
_INTERVAL = Parameter(
    "interval",
    "query",
    {"type": "string", "enum": list(get_args(IntervalKind)), "default": "exact"},
    "The kind of interval.",
)
_LEVEL = Parameter(
    "level",
    "query",
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.95},
    "The confidence level.",
)
_HONEST = Parameter(
    "honest",
    "query",
    {"type": "string", "enum": list(HONEST), "default": HONEST[0]},
    "Which part of a crowd is honest: what the plan says, or all of it.",
)
_PAGE = Parameter(
    "page",
    "query",
    {"type": "integer", "minimum": 0, "maximum": 10**9 - 1, "default": 0},
    "Which page, from 0.",
)
_OF_PLAN = Parameter("plan", "query", {"type": "string"}, "Show one plan's crowds only.")
_STATED = Parameter(
    "never_published",
    "query",
    {"type": "string", "enum": ["no", "yes"], "default": "no"},
    "After a restore: states that the plan was not published before.",
)
_ESTIMATES = ("application/json", "text/csv", PARQUET, ARROW)


async def _openapi(handlers: Handlers, request: Request) -> Response:
    summary = "Plans, progress in tenths, and sealed crowds."
    return json_answer(openapi(OPERATIONS, "Shoal console", summary))


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/", "viewer", "A page for people.", Handlers.home, (_PAGE, _OF_PLAN),
        media=("text/html",), problems=(problems.UNKNOWN_PLAN,),
    ),
    Operation("GET", "/v1/plans", "viewer", "All plans and their states.", Handlers.plans),
    Operation(
        "POST", "/v1/plans", "admin", "Keep a plan as a draft.", Handlers.add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation("GET", "/v1/plans/{plan_id}", "viewer", "One plan.", Handlers.plan, (_PLAN,)),
    Operation(
        "POST", "/v1/plans/{plan_id}/publish", "admin", "Publish a draft, or go on after a pause.",
        Handlers.publish, (_PLAN, _HONEST, _STATED),
        problems=(problems.WRONG_STATE, problems.HONEST_UNSAID, problems.MAYBE_PUBLISHED),
    ),
    *(
        Operation(
            "POST", f"/v1/plans/{{plan_id}}/{word}", "admin", summary, handler, (_PLAN,),
            problems=(problems.WRONG_STATE,),
        )
        for word, summary, handler in (
            ("pause", "Take no reports for a while.", Handlers.pause),
            ("close", "Take no more reports; the open crowd is destroyed.", Handlers.close),
            ("destroy", "Destroy everything that was collected.", Handlers.destroy),
        )
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/certificate", "viewer", "What the plan promises, signed.",
        Handlers.certificate, (_PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/progress", "viewer", "How full the open crowd is, in tenths.",
        Handlers.progress, (_PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds", "viewer", "The plan's crowds.", Handlers.crowds,
        (_PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}", "analyst",
        "A sealed crowd: its tally, and traces of fake reports.", Handlers.crowd,
        (_PLAN, _NUMBER), problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/estimates", "analyst",
        "What a sealed crowd answered, with intervals.", Handlers.estimates,
        (_PLAN, _NUMBER, _FORMAT, _INTERVAL, _LEVEL), media=_ESTIMATES,
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/report.html", "analyst",
        "A sealed crowd as one page.", Handlers.report, (_PLAN, _NUMBER), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/report.html", "analyst", "The last sealed crowd as one page.",
        Handlers.latest_report, (_PLAN,), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation("GET", "/v1/tokens", "admin", "All tokens, without their secrets.", Handlers.tokens),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is told once.",
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
            },
        },
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Take a token away.", Handlers.remove_token,
        (_TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation("GET", "/v1/clock", "viewer", "Whether the clock is believed.", Handlers.clock),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Believe the clock after it has jumped.",
        Handlers.accept_clock,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation("GET", "/healthz", None, "Whether the process answers.", Handlers.healthz),
    Operation("GET", "/readyz", None, "Whether reports can be taken.", Handlers.readyz,
              problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD)),
    Operation("GET", "/metrics", None, "Prometheus metrics.", Handlers.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Everything the console's listener answers to."""


def make_console(collector: Collector) -> Starlette:
    """Return the ASGI app of the console's listener."""
    handlers = Handlers(collector)

    def endpoint(operation: Operation) -> Endpoint:
        async def answer(request: Request) -> Response:
            if operation.role is not None:
                request.state.token = reading.check_token(collector.tokens, request, operation.role)
            if "number" in request.path_params:
                request.path_params["number"] = reading.number(request.path_params["number"])
            response: Response = await operation.handler(handlers, request)
            for name, value in SAFE.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    by_path: dict[str, dict[str, Endpoint]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = endpoint(operation)
    routes = [_route(path, by_method) for path, by_method in by_path.items()]
    return make_app(routes, collector.refused)


def _route(path: str, by_method: dict[str, Endpoint]) -> Route:
    """Return one route for all methods of a path, so that others are told which there are."""

    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await by_method[method](request)

    return Route(path, answer, methods=list(by_method))
