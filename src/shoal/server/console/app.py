"""The console's routes: every operation of the API, and every page.

`OPERATIONS` and `PAGES` list each once. The routes, their checks and the OpenAPI document are made
from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request

from shoal.server.console import handlers, schemas, views
from shoal.server.console.console import Console
from shoal.server.console.pages import SAFE_PAGE, refused_page
from shoal.server.console.planner import PlanRequest
from shoal.server.console.schemas import LEVEL, NUMBER, PLAN
from shoal.server.core import problems
from shoal.server.core.openapi import SAFE, Endpoint, Operation, guarded, make_app, openapi

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration


async def _openapi(console: Console, request: Request) -> dict[str, Any]:
    summary = "Plans, progress, and releases of complete crowds."
    return openapi(OPERATIONS, "Shoal console", summary)


_PLAN, _CROWD = "/v1/plans/{plan_id}", "/v1/plans/{plan_id}/crowds/{number}"
_GONE = (problems.CROWD_OPEN, problems.CROWD_GONE)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/v1/plans", "viewer", "List plans and their states.", handlers.plans,
        response=schemas.PlanList,
    ),
    Operation(
        "POST", "/v1/plans", "admin", "Add a plan as a draft.", handlers.add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        response=schemas.PlanLine,
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation(
        "GET", _PLAN, "viewer", "One plan.", handlers.plan, (PLAN,), response=schemas.PlanDetail,
    ),
    Operation(
        "POST", f"{_PLAN}/publish", "admin", "Publish a draft, or resume after a pause.",
        handlers.publish_plan, (PLAN, schemas.HONEST, schemas.NEVER_PUBLISHED),
        response=schemas.PlanLine,
        problems=(problems.WRONG_STATE, problems.HONEST_UNSAID, problems.MAYBE_PUBLISHED),
    ),
    Operation(
        "PUT", f"{_PLAN}/origins", "admin",
        "Set the origins of the web pages that may send reports.", handlers.origins, (PLAN,),
        body=schemas.OriginList, response=schemas.OriginList, problems=(problems.BAD_ORIGINS,),
    ),
    Operation(
        "PUT", f"{_PLAN}/public", "admin", "Make the plan's releases public, or no longer.",
        handlers.publicity, (PLAN,), body=schemas.Publicity, response=schemas.Publicity,
        problems=(problems.WRONG_STATE, problems.NOT_FOR_READERS),
    ),
    *(
        Operation(
            "POST", f"{_PLAN}/{word}", "admin", summary, handler, (PLAN,),
            response=schemas.PlanLine, problems=(problems.WRONG_STATE,),
        )
        for word, summary, handler in (
            ("pause", "Pause: accept no reports for a while.", handlers.moves_to("paused")),
            ("close", "Close: accept no more reports, and destroy the open crowd.",
             handlers.moves_to("closed")),
            ("destroy", "Destroy all collected data.", handlers.moves_to("destroyed")),
        )
    ),
    Operation(
        "GET", f"{_PLAN}/certificate", "viewer", "The signed certificate of the plan.",
        handlers.certificate, (PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", f"{_PLAN}/progress", "viewer",
        "How full the open crowd is in per cent, rounded down to 10 %.", handlers.progress, (PLAN,),
        response=schemas.PlanProgress,
    ),
    Operation(
        "GET", f"{_PLAN}/crowds", "viewer", "The plan's crowds.", handlers.crowds, (PLAN,),
        response=schemas.CrowdList,
    ),
    Operation(
        "GET", _CROWD, "analyst", "A released crowd: its tally, and traces of fake reports.",
        handlers.crowd, (PLAN, NUMBER), response=schemas.ReleaseDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/estimates", "analyst", "Estimates of a released crowd, with intervals.",
        handlers.estimates, (PLAN, NUMBER, schemas.FORMAT, schemas.INTERVAL, LEVEL),
        media=tuple(schemas.FORMATS.values()),
        response=schemas.EstimatesDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/report.html", "analyst", "A released crowd as one page.",
        handlers.report, (PLAN, NUMBER), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_PLAN}/report.html", "analyst", "The last released crowd as one page.",
        handlers.latest_report, (PLAN,), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/results", "analyst", "All that the page of a released crowd shows.",
        handlers.results, (PLAN, NUMBER, schemas.INTERVAL, LEVEL), response=schemas.ResultsDocument,
        problems=_GONE,
    ),
    Operation(
        "POST", f"{_CROWD}/decode", "analyst",
        "Which texts a released crowd answered, of a list of candidates.", handlers.decode,
        (PLAN, NUMBER), body=schemas.TextSearch, response=schemas.TextsDocument,
        problems=(*_GONE, problems.NO_TEXT),
    ),
    Operation(
        "GET", f"{_PLAN}/trend", "analyst",
        "How the answers to a question change over released crowds.", Console.trend,
        (PLAN, schemas.QUESTION, schemas.CROWDS, LEVEL), response=schemas.TrendDocument,
        problems=(problems.TOO_FEW_CROWDS, problems.CROWD_GONE, problems.UNKNOWN_QUESTION),
    ),
    Operation(
        "GET", f"{_PLAN}/difference", "analyst", "How two released crowds differ.",
        Console.difference, (PLAN, schemas.FIRST, schemas.SECOND, schemas.OTHER, LEVEL),
        response=schemas.DifferenceDocument,
        problems=(*_GONE, problems.TOO_FEW_CROWDS, problems.NOTHING_IN_COMMON,
                  problems.UNKNOWN_CROWD),
    ),
    Operation(
        "GET", "/v1/tokens", "admin", "List tokens, without their secrets.", handlers.tokens,
        response=schemas.TokenList,
    ),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is shown once.",
        handlers.add_token, status=201, body=schemas.NEW_TOKEN, response=schemas.MadeToken,
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Revoke a token.", Console.revoke_token,
        (schemas.TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation(
        "POST", "/v1/prospect", "viewer", "Compute the promise of a plan; nothing is stored.",
        handlers.prospect, body=PlanRequest, response=schemas.Prospect,
        problems=(problems.BAD_PLAN_REQUEST, problems.MALFORMED_PLAN, problems.TOO_COSTLY,
                  problems.PLANNER_BUSY),
    ),
    Operation(
        "GET", "/v1/actions", "admin", "Changes with who made them, the last first.",
        handlers.actions, (schemas.PAGE,), response=schemas.ActionList,
    ),
    Operation(
        "GET", "/v1/backups", "admin", "List the backups in the data folder.", handlers.backups,
        response=schemas.BackupList,
    ),
    Operation(
        "POST", "/v1/backups", "admin", "Make a backup in the data folder.", handlers.make_backup,
        status=201, response=schemas.MadeBackup, problems=(problems.BACKUP_EXISTS,),
    ),
    Operation(
        "GET", "/v1/clock", "viewer", "Whether the clock is trusted.", Console.clock,
        response=schemas.ClockState,
    ),
    Operation(
        "POST", "/v1/clock/accept", "admin", "Trust the clock after it jumped.",
        Console.accept_clock, response=schemas.ClockState,
    ),
    Operation("GET", "/openapi.json", None, "This document.", _openapi),
    Operation(
        "GET", "/healthz", None, "Whether the process is alive.", Console.healthz,
        response=schemas.Health,
    ),
    Operation(
        "GET", "/readyz", None, "Whether reports can be accepted.", Console.readyz,
        response=schemas.Health,
        problems=(problems.UNAVAILABLE, problems.STORAGE_FULL, problems.CLOCK_HELD),
    ),
    Operation("GET", "/metrics", None, "Prometheus metrics.", Console.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Every operation of the console's API."""

_ONE, _PAGE = "/surveys/{survey}", "/surveys/{survey}/crowds/{number}"

PAGES: tuple[Operation, ...] = tuple(
    Operation(method, path, role, summary, handler, media=("text/html",))  # type: ignore[arg-type]
    for method, path, role, summary, handler in (
        ("GET", "/", "viewer", "All surveys, and what people answered.", views.home),
        ("GET", _ONE, "viewer", "One survey and its crowds.", views.survey),
        ("POST", f"{_ONE}/publish", "admin", "Publish or resume.", views.publish),
        ("POST", f"{_ONE}/origins", "admin", "Set the origins of web pages.", views.origins),
        ("POST", f"{_ONE}/public", "admin", "Make releases public.", views.publicity),
        ("POST", f"{_ONE}/pause", "admin", "Pause.", views.moves_to("paused", confirm=False)),
        ("POST", f"{_ONE}/close", "admin", "Close.", views.moves_to("closed", confirm=True)),
        ("POST", f"{_ONE}/destroy", "admin", "Destroy all collected data.",
         views.moves_to("destroyed", confirm=True)),
        ("GET", _PAGE, "analyst", "A released crowd.", views.release),
        ("POST", f"{_PAGE}/texts", "analyst", "Find texts.", views.texts),
        ("GET", f"{_ONE}/trend", "analyst", "A question over crowds.", views.trend),
        ("GET", f"{_ONE}/difference", "analyst", "Two crowds.", views.difference),
        ("POST", "/drafts", "admin", "Add a draft.", views.add_draft),
        ("GET", "/builder", "viewer", "Write a survey, as a form or as TOML.", views.builder),
        ("POST", "/builder", "viewer", "Check or change a survey.", views.build),
        ("GET", "/planner", "viewer", "Compute the promise of a plan.", views.planner),
        ("POST", "/planner", "viewer", "Compute a plan.", views.plan),
        ("GET", "/tokens", "admin", "Tokens.", views.tokens),
        ("POST", "/tokens", "admin", "Make a token.", views.make_token),
        ("POST", "/tokens/{token_id}/revoke", "admin", "Revoke a token.", views.revoke_token),
        ("GET", "/actions", "admin", "Changes, with who made them.", views.actions),
        ("GET", "/backups", "admin", "Backups.", views.backups),
        ("POST", "/backups", "admin", "Make a backup.", views.make_backup),
        ("GET", "/sign-in", None, "The form that takes a token.", views.sign_in),
        ("POST", "/sign-in", None, "Sign in.", views.begin_session),
        ("POST", "/sign-out", None, "Sign out.", views.end_session),
        ("GET", "/static/console.css", None, "The style of all pages.", views.static),
        ("GET", "/static/console.js", None, "Sliders, and rows of forms.", views.static),
        ("GET", "/static/icon.svg", None, "The icon of all pages.", views.static),
    )
)  # fmt: skip
"""Every page, and every form on one."""


def make_console(collector: Administration) -> Starlette:
    """Return the ASGI app of the console's listener."""
    console, service = Console(collector), collector.service
    pages = {id(one) for one in PAGES}

    def endpoint(operation: Operation) -> Endpoint:
        is_page = id(operation) in pages
        respond = guarded(
            operation, console, service,
            headers=SAFE_PAGE if is_page else SAFE,
            sessions=console.sessions,
            refused_page=refused_page if is_page else None,
        )  # fmt: skip
        return console.by_name(respond) if "{survey}" in operation.path else respond

    return make_app((*OPERATIONS, *PAGES), endpoint, collector.refused)
