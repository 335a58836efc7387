"""The operations of the console's API.

A handler returns a response, or a document: `guarded` checks it against the operation's type.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Awaitable, Callable
from functools import lru_cache

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports import publish
from shoal.reports.formatting import unreadable_note
from shoal.reports.publication import csv_text, write_table
from shoal.server.console import schemas
from shoal.server.console.console import Console, CrowdRelease
from shoal.server.console.planner import MAX_REQUEST_SIZE, PlanRequestError
from shoal.server.console.schemas import Json
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import json_response, read_as, read_document, signed_response
from shoal.server.storage.records import Declaration, State

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
    remarks = [unreadable_note(plan, unreadable)] if unreadable else []
    return publish(plan, Tally.from_json(json.loads(content), plan), remarks=remarks).to_html()


async def tokens(console: Console, request: Request) -> Json:
    found = console.collector.tokens
    return {"tokens": [vars(one) | {"last_used": found.last_used(one)} for one in found]}


async def add_token(console: Console, request: Request) -> Json:
    token, secret = await console.make_token(request, await read_document(request))
    return vars(token) | {"token": secret}


async def actions(console: Console, request: Request) -> Json:
    return {"actions": [one._asdict() for one in await console.actions_of(request)]}


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
