"""The console's routes: every operation of the API, and every page.

`OPERATIONS` and `PAGES` list each once. The routes, their checks and the OpenAPI document are made
from them. The function of an operation returns a response, or a document: `guarded` checks it
against the operation's type.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports import publish
from shoal.reports.formatting import unreadable_note
from shoal.reports.publication import csv_text, write_table
from shoal.server.console import forms, schemas, views
from shoal.server.console.console import Console, CrowdRelease
from shoal.server.console.planner import MAX_REQUEST_SIZE, PlanRequest, PlanRequestError
from shoal.server.console.schemas import LEVEL, NUMBER, Json
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import (
    SAFE,
    Endpoint,
    Operation,
    guarded,
    json_response,
    make_app,
    openapi,
    read_as,
    read_document,
    signed_response,
)
from shoal.server.core.public import PLAN
from shoal.server.storage.records import Declaration, State

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration


LARGEST_ORIGINS = 64 << 10
"""Bytes of a list of origins."""


async def plans(console: Console, request: Request) -> Json:
    return {"plans": [schemas.plan_fields(one) for one in console.plans_of(request)]}


async def plan(console: Console, request: Request) -> Json:
    record = console.plan_of(request)
    more = {"origins": record.origins, "plan": record.document, "observers": record.observers}
    return schemas.plan_fields(record) | more


async def add_plan(console: Console, request: Request) -> Json:
    record = await console.add_draft(request, await read_document(request))
    return schemas.plan_fields(record)


async def publish_plan(console: Console, request: Request) -> Json:
    declaration = Declaration(
        all_honest=schemas.HONEST.read(request) == "all",
        never_published=schemas.NEVER_PUBLISHED.read(request) == "yes",
    )
    await console.move(request, "published", declaration)
    return schemas.plan_fields(console.plan_of(request))


def moves_to(wanted: State) -> Callable[[Console, Request], Awaitable[Json]]:
    """Return the operation that changes the state of a plan."""

    async def move(console: Console, request: Request) -> Json:
        await console.move(request, wanted)
        return schemas.plan_fields(console.plan_of(request))

    return move


async def origins(console: Console, request: Request) -> Json:
    document = await read_document(request, LARGEST_ORIGINS)
    if not isinstance(document, dict) or set(document) != {"origins"}:
        raise Refusal(problems.BAD_REQUEST)
    if not isinstance(document["origins"], list):
        raise Refusal(problems.BAD_ORIGINS)
    await console.set_origins(request, document["origins"])
    return {"origins": console.plan_of(request).origins}


async def publicity(console: Console, request: Request) -> Json:
    wanted = read_as(schemas.Publicity, await read_document(request))
    await console.set_public(request, wanted.public)
    return {"public": console.plan_of(request).is_public}


async def certificate(console: Console, request: Request) -> Response:
    record = console.plan_of(request)
    if record.certificate is None:
        raise Refusal(problems.WRONG_STATE)
    return signed_response(record.certificate, console.collector.signer)


async def progress(console: Console, request: Request) -> Json:
    record = console.plan_of(request)
    percent = None
    if record.plan.parties is None:  # else only the relay knows
        percent = await console.in_store(console.store.progress, record.plan.id)
    return {"state": record.state, "progress": percent}


async def crowds(console: Console, request: Request) -> Json:
    plan = console.plan_of(request).plan
    found = await console.in_store(console.store.crowds, plan.id)
    return {"crowds": [schemas.crowd_fields(plan, crowd) for crowd in found]}


async def crowd(console: Console, request: Request) -> Json:
    release = await console.release_of(request)
    return await _release_fields(console, release) | {
        "state": "released",
        "reports": release.tally.reports,
        "sha256": hashlib.sha256(release.content).hexdigest(),
        **release.signature._asdict(),
        "tally": release.tally.to_json(),
    }


async def _release_fields(console: Console, release: CrowdRelease) -> Json:
    """Return the fields that the documents of a release have in common."""
    screening = await console.screening(release)
    unreadable = {} if release.unreadable is None else {"unreadable": release.unreadable}
    document = {"plan": release.plan.id, "number": release.number, **unreadable}
    return document | {"screening": screening.to_json()}


async def estimates(console: Console, request: Request) -> Response:
    level, interval = schemas.LEVEL.read(request), schemas.INTERVAL.read(request)
    kind = schemas.FORMAT.read(request)
    release = await console.release_of(request)

    def work() -> Response:
        found = estimate(release.plan, release.tally)
        document = found.to_json(level, interval)
        if kind != "json":
            return _table(document, kind)
        return json_response(msgspec.convert(document, schemas.EstimatesDocument))

    return await console.compute(work)


def _table(estimates: Json, kind: str) -> Response:
    out = io.BytesIO()
    if kind == "csv":
        out.write(csv_text({"estimates": estimates}).encode())
    else:
        write_table({"estimates": estimates}, out, kind)
    disposition = {"Content-Disposition": f'attachment; filename="estimates.{kind}"'}
    return Response(out.getvalue(), headers=disposition, media_type=schemas.FORMATS[kind])


async def results(console: Console, request: Request) -> Json:
    release, document = await console.results_of(request)
    return document | await _release_fields(console, release)


async def decode(console: Console, request: Request) -> Json:
    search = read_as(schemas.TextSearch, await read_document(request))
    return await console.decode(await console.release_of(request), search)


async def report(console: Console, request: Request) -> Response:
    return await _report(console, await console.release_of(request))


async def latest_report(console: Console, request: Request) -> Response:
    plan = console.plan_of(request).plan
    released = await console.in_store(console.store.released_numbers, plan.id, 1)
    if not released:
        raise Refusal(problems.CROWD_OPEN)
    return await _report(console, await console.release(plan, released[-1]))


async def _report(console: Console, release: CrowdRelease) -> Response:
    page = await console.compute(report_page, release.plan, release.content, release.unreadable)
    return HTMLResponse(page)


@lru_cache(16)
def report_page(plan: Plan, content: bytes, unreadable: int | None = None) -> str:
    """Return the report page of a release; `unreadable` messages are mentioned."""
    remarks = [unreadable_note(unreadable)] if unreadable else []
    return publish(plan, Tally.from_json(json.loads(content), plan), remarks=remarks).to_html()


async def tokens(console: Console, request: Request) -> Json:
    found = console.collector.tokens
    last = found.last_used
    return {"tokens": [schemas.TokenLine(**vars(one), last_used=last(one)) for one in found]}


async def add_token(console: Console, request: Request) -> Json:
    token, secret = await console.make_token(request, await read_document(request))
    return vars(token) | {"token": secret}


async def actions(console: Console, request: Request) -> Json:
    return {"actions": await console.actions_of(request)}


async def backups(console: Console, request: Request) -> Json:
    return {"backups": console.collector.backups()}


async def make_backup(console: Console, request: Request) -> Json:
    return {"name": await console.back_up(request)}


async def prospect(console: Console, request: Request) -> Json:
    try:
        return await console.prospect(request, await read_document(request, MAX_REQUEST_SIZE))
    except PlanRequestError as error:
        raise Refusal(problems.BAD_PLAN_REQUEST.about(error.parameter)) from error
    except InputError as error:
        raise Refusal(problems.MALFORMED_PLAN) from error


async def _openapi(console: Console, request: Request) -> dict[str, Any]:
    summary = "Plans, progress, and releases of complete crowds."
    return openapi(OPERATIONS, "Shoal console", summary)


_PLAN, _CROWD = "/v1/plans/{plan_id}", "/v1/plans/{plan_id}/crowds/{number}"
_GONE = (problems.CROWD_OPEN, problems.CROWD_GONE)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", "/v1/plans", "viewer", "List plans and their states.", plans,
        response=schemas.PlanList,
    ),
    Operation(
        "POST", "/v1/plans", "admin", "Add a plan as a draft.", add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        response=schemas.PlanLine,
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation(
        "GET", _PLAN, "viewer", "One plan.", plan, (PLAN,), response=schemas.PlanDetail,
    ),
    Operation(
        "POST", f"{_PLAN}/publish", "admin", "Publish a draft, or resume after a pause.",
        publish_plan, (PLAN, schemas.HONEST, schemas.NEVER_PUBLISHED),
        response=schemas.PlanLine,
        problems=(problems.WRONG_STATE, problems.HONEST_UNSAID, problems.MAYBE_PUBLISHED),
    ),
    Operation(
        "PUT", f"{_PLAN}/origins", "admin",
        "Set the origins of the web pages that may send reports.", origins, (PLAN,),
        body=schemas.OriginList, response=schemas.OriginList, problems=(problems.BAD_ORIGINS,),
    ),
    Operation(
        "PUT", f"{_PLAN}/public", "admin", "Make the plan's releases public, or no longer.",
        publicity, (PLAN,), body=schemas.Publicity, response=schemas.Publicity,
        problems=(problems.WRONG_STATE, problems.NOT_FOR_READERS),
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
        certificate, (PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", f"{_PLAN}/progress", "viewer",
        "How full the open crowd is in per cent, rounded down to 10 %.", progress, (PLAN,),
        response=schemas.PlanProgress,
    ),
    Operation(
        "GET", f"{_PLAN}/crowds", "viewer", "The plan's crowds.", crowds, (PLAN,),
        response=schemas.CrowdList,
    ),
    Operation(
        "GET", _CROWD, "analyst", "A released crowd: its tally, and traces of fake reports.",
        crowd, (PLAN, NUMBER), response=schemas.ReleaseDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/estimates", "analyst", "Estimates of a released crowd, with intervals.",
        estimates, (PLAN, NUMBER, schemas.FORMAT, schemas.INTERVAL, LEVEL),
        media=tuple(schemas.FORMATS.values()),
        response=schemas.EstimatesDocument, problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/report.html", "analyst", "A released crowd as one page.",
        report, (PLAN, NUMBER), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_PLAN}/report.html", "analyst", "The last released crowd as one page.",
        latest_report, (PLAN,), media=("text/html",), problems=_GONE,
    ),
    Operation(
        "GET", f"{_CROWD}/results", "analyst", "All that the page of a released crowd shows.",
        results, (PLAN, NUMBER, schemas.INTERVAL, LEVEL), response=schemas.ResultsDocument,
        problems=_GONE,
    ),
    Operation(
        "POST", f"{_CROWD}/decode", "analyst",
        "Which texts a released crowd answered, of a list of candidates.", decode,
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
        "GET", "/v1/tokens", "admin", "List tokens, without their secrets.", tokens,
        response=schemas.TokenList,
    ),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is shown once.",
        add_token, status=201, body=schemas.NEW_TOKEN, response=schemas.MadeToken,
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Revoke a token.", Console.revoke_token,
        (schemas.TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation(
        "POST", "/v1/prospect", "viewer", "Compute the promise of a plan; nothing is stored.",
        prospect, body=PlanRequest, response=schemas.Prospect,
        problems=(problems.BAD_PLAN_REQUEST, problems.MALFORMED_PLAN, problems.TOO_COSTLY,
                  problems.PLANNER_BUSY),
    ),
    Operation(
        "GET", "/v1/actions", "admin", "Changes with who made them, the last first.",
        actions, (schemas.PAGE,), response=schemas.ActionList,
    ),
    Operation(
        "GET", "/v1/backups", "admin", "List the backups in the data folder.", backups,
        response=schemas.BackupList,
    ),
    Operation(
        "POST", "/v1/backups", "admin", "Make a backup in the data folder.", make_backup,
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
        ("POST", f"{_ONE}/publish", "admin", "Publish or resume.", forms.publish),
        ("POST", f"{_ONE}/origins", "admin", "Set the origins of web pages.", forms.origins),
        ("POST", f"{_ONE}/public", "admin", "Make releases public.", forms.publicity),
        ("POST", f"{_ONE}/pause", "admin", "Pause.", forms.moves_to("paused", confirm=False)),
        ("POST", f"{_ONE}/close", "admin", "Close.", forms.moves_to("closed", confirm=True)),
        ("POST", f"{_ONE}/destroy", "admin", "Destroy all collected data.",
         forms.moves_to("destroyed", confirm=True)),
        ("GET", _PAGE, "analyst", "A released crowd.", views.release),
        ("POST", f"{_PAGE}/texts", "analyst", "Find texts.", forms.texts),
        ("GET", f"{_ONE}/trend", "analyst", "A question over crowds.", views.trend),
        ("GET", f"{_ONE}/difference", "analyst", "Two crowds.", views.difference),
        ("POST", "/drafts", "admin", "Add a draft.", forms.add_draft),
        ("GET", "/builder", "viewer", "Write a survey, as a form or as TOML.", forms.builder),
        ("POST", "/builder", "viewer", "Check or change a survey.", forms.build),
        ("GET", "/planner", "viewer", "Compute the promise of a plan.", forms.planner),
        ("POST", "/planner", "viewer", "Compute a plan.", forms.plan),
        ("GET", "/tokens", "admin", "Tokens.", forms.tokens),
        ("POST", "/tokens", "admin", "Make a token.", forms.make_token),
        ("POST", "/tokens/{token_id}/revoke", "admin", "Revoke a token.", forms.revoke_token),
        ("GET", "/actions", "admin", "Changes, with who made them.", forms.actions),
        ("GET", "/backups", "admin", "Backups.", forms.backups),
        ("POST", "/backups", "admin", "Make a backup.", forms.make_backup),
        ("GET", "/sign-in", None, "The form that takes a token.", forms.sign_in),
        ("POST", "/sign-in", None, "Sign in.", forms.begin_session),
        ("POST", "/sign-out", None, "Sign out.", forms.end_session),
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
            headers=views.SAFE_PAGE if is_page else SAFE,
            sessions=console.sessions,
            refused_page=views.refused_page if is_page else None,
        )  # fmt: skip
        return console.by_name(respond) if "{survey}" in operation.path else respond

    return make_app((*OPERATIONS, *PAGES), endpoint, collector.refused)
