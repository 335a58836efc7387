"""The console's API: plans, progress rounded to 10 %, and releases of complete crowds.

`OPERATIONS` lists every operation once. The routes, their checks and the OpenAPI document are made
from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shoal.server.console import schemas
from shoal.server.console.handlers import (
    CROWDS,
    FIRST,
    FORMAT,
    FORMATS,
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
    moves_to,
)
from shoal.server.console.planning import PlanRequest
from shoal.server.console.views import PAGES, Views, refused_page
from shoal.server.core import problems
from shoal.server.core.auth import SAFE, guarded, token_check, with_headers
from shoal.server.core.http import Refusal, problem_of
from shoal.server.core.openapi import Endpoint, Operation, json_response, make_app, openapi
from shoal.server.core.tokens import Sessions
from shoal.server.storage.database import StorageError

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration

__all__ = ["OPERATIONS", "make_console"]

SAFE_PAGE = SAFE | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:;"
    " script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every page: no style or script but those of the console, and no frame around it."""


async def _openapi(handlers: Handlers, request: Request) -> Response:
    summary = "Plans, progress, and releases of complete crowds."
    return json_response(openapi(OPERATIONS, "Shoal console", summary))


_PLAN, _CROWD = "/v1/plans/{plan_id}", "/v1/plans/{plan_id}/crowds/{number}"
_GONE = (problems.CROWD_OPEN, problems.CROWD_GONE)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/v1/plans", "viewer", "List plans and their states.", Handlers.plans,
        response=schemas.PlanList,
    ),
    Operation(
        "POST", "/v1/plans", "admin", "Add a plan as a draft.", Handlers.add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        response=schemas.PlanLine,
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation(
        "GET", _PLAN, "viewer", "One plan.", Handlers.plan, (PLAN,), response=schemas.PlanDetail,
    ),
    Operation(
        "POST", f"{_PLAN}/publish", "admin", "Publish a draft, or resume after a pause.",
        Handlers.publish, (PLAN, HONEST, NEVER_PUBLISHED), response=schemas.PlanLine,
        problems=(problems.WRONG_STATE, problems.HONEST_UNSAID, problems.MAYBE_PUBLISHED),
    ),
    Operation(
        "PUT", f"{_PLAN}/origins", "admin",
        "Set the origins of the web pages that may send reports.", Handlers.origins, (PLAN,),
        body=schemas.OriginList, response=schemas.OriginList, problems=(problems.BAD_ORIGINS,),
    ),
    *(
        Operation(
            "POST", f"{_PLAN}/{word}", "admin", summary, handler, (PLAN,),
            response=schemas.PlanLine, problems=(problems.WRONG_STATE,),
        )
        for word, summary, handler in (
            ("pause", "Pause: accept no reports for a while.", moves_to("paused")),
            ("close", "Close: accept no more reports, and destroy the open crowd.",
             moves_to("closed")),
            ("destroy", "Destroy all collected data.", moves_to("destroyed")),
        )
    ),
    Operation(
        "GET", f"{_PLAN}/certificate", "viewer", "The signed certificate of the plan.",
        Handlers.certificate, (PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", f"{_PLAN}/progress", "viewer",
        "How full the open crowd is in per cent, rounded down to 10 %.", Handlers.progress, (PLAN,),
        response=schemas.PlanProgress,
    ),
    Operation(
        "GET", f"{_PLAN}/crowds", "viewer", "The plan's crowds.", Handlers.crowds, (PLAN,),
        response=schemas.CrowdList,
    ),
    Operation(
        "GET", _CROWD, "analyst", "A released crowd: its tally, and traces of fake reports.",
        Handlers.crowd, (PLAN, NUMBER), response=schemas.ReleaseDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/estimates", "analyst", "Estimates of a released crowd, with intervals.",
        Handlers.estimates, (PLAN, NUMBER, FORMAT, INTERVAL, LEVEL),
        media=tuple(FORMATS.values()),
        response=schemas.EstimatesDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/report.html", "analyst", "A released crowd as one page.",
        Handlers.report, (PLAN, NUMBER), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_PLAN}/report.html", "analyst", "The last released crowd as one page.",
        Handlers.latest_report, (PLAN,), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/results", "analyst", "All that the page of a released crowd shows.",
        Handlers.results, (PLAN, NUMBER, INTERVAL, LEVEL), response=schemas.ResultsDocument,
        problems=_GONE,
    ),
    Operation(
        "POST", f"{_CROWD}/decode", "analyst",
        "Which texts a released crowd answered, of a list of candidates.", Handlers.decode,
        (PLAN, NUMBER), body=schemas.TextSearch, response=schemas.TextsDocument,
        problems=(*_GONE, problems.NO_TEXT),
    ),
    Operation(
        "GET", f"{_PLAN}/trend", "analyst",
        "How the answers to a question change over released crowds.", Handlers.trend,
        (PLAN, QUESTION, CROWDS, LEVEL), response=schemas.TrendDocument,
        problems=(problems.TOO_FEW_CROWDS, problems.CROWD_GONE, problems.UNKNOWN_QUESTION),
    ),
    Operation(
        "GET", f"{_PLAN}/difference", "analyst", "How two released crowds differ.",
        Handlers.difference, (PLAN, FIRST, SECOND, OTHER, LEVEL),
        response=schemas.DifferenceDocument,
        problems=(*_GONE, problems.TOO_FEW_CROWDS, problems.NOTHING_IN_COMMON,
                  problems.UNKNOWN_CROWD),
    ),
    Operation(
        "GET", "/v1/tokens", "admin", "List tokens, without their secrets.", Handlers.tokens,
        response=schemas.TokenList,
    ),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is shown once.",
        Handlers.add_token, status=201, body=schemas.NEW_TOKEN, response=schemas.MadeToken,
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Revoke a token.", Handlers.remove_token,
        (TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation(
        "POST", "/v1/prospect", "viewer", "Compute the promise of a plan; nothing is stored.",
        Handlers.prospect, body=PlanRequest, response=schemas.Prospect,
        problems=(problems.BAD_PLAN_REQUEST, problems.MALFORMED_PLAN, problems.TOO_COSTLY,
                  problems.PLANNER_BUSY),
    ),
    Operation(
        "GET", "/v1/actions", "admin", "Changes with who made them, the last first.",
        Handlers.actions, (PAGE,), response=schemas.ActionList,
    ),
    Operation(
        "GET", "/v1/backups", "admin", "List the backups in the data folder.", Handlers.backups,
        response=schemas.BackupList,
    ),
    Operation(
        "POST", "/v1/backups", "admin", "Make a backup in the data folder.", Handlers.make_backup,
        status=201, response=schemas.MadeBackup, problems=(problems.BACKUP_EXISTS,),
    ),
    Operation(
        "GET", "/v1/clock", "viewer", "Whether the clock is trusted.", Handlers.clock,
        response=schemas.ClockState,
    ),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
        Handlers.accept_clock, response=schemas.ClockState,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation(
        "GET", "/healthz", None, "Whether the process is alive.", Handlers.healthz,
        response=schemas.Health,
    ),
    Operation(
        "GET", "/readyz", None, "Whether reports can be accepted.", Handlers.readyz,
        response=schemas.Health,
        problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD),
    ),
    Operation("GET", "/metrics", None, "Prometheus metrics.", Handlers.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Every operation of the console's API."""


def make_console(collector: Administration) -> Starlette:
    """Return the ASGI app of the console's listener."""
    handlers = Handlers(collector)
    sessions = Sessions(collector.tokens)
    views = Views(collector, handlers, sessions)
    check = token_check(collector.service, sessions)
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
