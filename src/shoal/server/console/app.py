"""The console's API: plans, progress rounded to 10 %, and releases of complete crowds.

`OPERATIONS` lists every operation once. The routes, their checks and the OpenAPI document are made
from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.console.handlers import (
    CROWDS,
    FIRST,
    FORMAT,
    HONEST,
    INTERVAL,
    LEVEL,
    NEVER_PUBLISHED,
    NUMBER,
    OTHER,
    PAGE,
    PLAN,
    QUESTION,
    SECOND,
    TOKEN,
    Handlers,
)
from shoal.server.console.planning import WISH
from shoal.server.console.responses import ARROW, PARQUET, json_answer
from shoal.server.console.schemas import ANSWERS
from shoal.server.console.searches import SEARCH
from shoal.server.console.views import PAGES, Views, refused_page
from shoal.server.core import problems
from shoal.server.core.auth import SAFE, guarded, token_check, with_headers
from shoal.server.core.http import ORIGINS, Refusal, problem_of
from shoal.server.core.openapi import Operation, openapi
from shoal.server.core.routes import Endpoint, make_app
from shoal.server.core.tokens import LABEL, MOST_PLANS, ROLES, Sessions
from shoal.server.storage.database import StorageError

if TYPE_CHECKING:
    from shoal.server.collector.service import Collector

__all__ = ["OPERATIONS", "make_console"]

SAFE_PAGE = SAFE | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:;"
    " script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every page: no style or script but those of the console, and no frame around it."""

_ESTIMATES = ("application/json", "text/csv", PARQUET, ARROW)


async def _openapi(handlers: Handlers, request: Request) -> Response:
    summary = "Plans, progress, and releases of complete crowds."
    return json_answer(openapi(OPERATIONS, "Shoal console", summary, ANSWERS))


OPERATIONS: tuple[Operation, ...] = (
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
    Operation(
        "PUT", "/v1/plans/{plan_id}/origins", "admin",
        "Set the origins of the web pages that may send reports.", Handlers.origins, (PLAN,),
        body=ORIGINS, problems=(problems.BAD_ORIGINS,),
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
        "GET", "/v1/plans/{plan_id}/progress", "viewer",
        "How full the open crowd is in per cent, rounded down to 10 %.",
        Handlers.progress, (PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds", "viewer", "The plan's crowds.", Handlers.crowds,
        (PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}", "analyst",
        "A released crowd: its tally, and traces of fake reports.", Handlers.crowd,
        (PLAN, NUMBER), problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/estimates", "analyst",
        "Estimates of a released crowd, with intervals.", Handlers.estimates,
        (PLAN, NUMBER, FORMAT, INTERVAL, LEVEL), media=_ESTIMATES,
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/report.html", "analyst",
        "A released crowd as one page.", Handlers.report, (PLAN, NUMBER), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/report.html", "analyst", "The last released crowd as one page.",
        Handlers.latest_report, (PLAN,), media=("text/html",),
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/crowds/{number}/results", "analyst",
        "All that the page of a released crowd shows.", Handlers.results,
        (PLAN, NUMBER, INTERVAL, LEVEL), problems=(problems.CROWD_OPEN, problems.CROWD_GONE),
    ),
    Operation(
        "POST", "/v1/plans/{plan_id}/crowds/{number}/decode", "analyst",
        "Which texts a released crowd answered, of a list of candidates.", Handlers.decode,
        (PLAN, NUMBER), body=SEARCH,
        problems=(problems.CROWD_OPEN, problems.CROWD_GONE, problems.NO_TEXT),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/trend", "analyst",
        "How the answers to a question change over released crowds.", Handlers.trend,
        (PLAN, QUESTION, CROWDS, LEVEL),
        problems=(problems.TOO_FEW_CROWDS, problems.CROWD_GONE, problems.UNKNOWN_QUESTION),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/difference", "analyst", "How two released crowds differ.",
        Handlers.difference, (PLAN, FIRST, SECOND, OTHER, LEVEL),
        problems=(problems.TOO_FEW_CROWDS, problems.NOTHING_IN_COMMON, problems.CROWD_OPEN,
                  problems.CROWD_GONE, problems.UNKNOWN_CROWD),
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
    Operation(
        "POST", "/v1/prospect", "viewer", "What a plan would promise; nothing is stored.",
        Handlers.prospect, body=WISH,
        problems=(problems.BAD_WISH, problems.MALFORMED_PLAN, problems.TOO_COSTLY,
                  problems.PLANNER_BUSY),
    ),
    Operation(
        "GET", "/v1/actions", "admin", "What people did, the last first.", Handlers.actions,
        (PAGE,),
    ),
    Operation(
        "GET", "/v1/backups", "admin", "List the backups in the data folder.", Handlers.backups,
    ),
    Operation(
        "POST", "/v1/backups", "admin", "Make a backup in the data folder.", Handlers.make_backup,
        status=201, problems=(problems.BACKUP_EXISTS,),
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
    handlers = Handlers(collector)
    sessions = Sessions(collector.tokens)
    views = Views(collector, handlers, sessions)
    check = token_check(collector, sessions)
    pages = {id(one) for one in PAGES}

    def endpoint(operation: Operation) -> Endpoint:
        if id(operation) not in pages:
            return guarded(operation, handlers, check, SAFE)

        async def page(request: Request) -> Response:
            try:
                return await shown(request)
            except (Refusal, StorageError) as error:
                problem = problem_of(error)
                collector.refused(problem)
                return with_headers(refused_page(request, problem), SAFE_PAGE)

        shown = guarded(operation, views, check, SAFE_PAGE)
        return page

    return make_app((*OPERATIONS, *PAGES), endpoint, collector.refused)
