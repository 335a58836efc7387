"""The console's forms: every change is a POST from a page, by the functions of the API.

It redirects to a page that shows the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from shoal.errors import InputError
from shoal.protocol.survey import KINDS
from shoal.reports.page import observers_table
from shoal.server.console.builder import (
    FIELDS,
    Draft,
    changed,
    fields_of,
    new_question,
    read_draft,
    row_heads,
    sides,
)
from shoal.server.console.console import PAGE_LENGTH, Console
from shoal.server.console.planner import EXAMPLE, MAX_REQUEST_SIZE, MAX_SURVEY_LENGTH, form_request
from shoal.server.console.schemas import PAGE, TextSearch
from shoal.server.console.views import Paging, release, render
from shoal.server.core import problems
from shoal.server.core.http import Refusal, media_type, read_body
from shoal.server.core.openapi import LARGEST_DOCUMENT, read_as
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import (
    COOKIE,
    ROLES,
    Token,
    check_same_origin,
    cookie,
    cookie_header,
    token_of,
)
from shoal.server.storage.records import Declaration, PlanRecord, State
from shoal.support.files import strict_json
from shoal.support.rounding import text_up

MAX_FIELDS = 4000
"""Fields of a survey's form: a planned survey has at most 512 options, each with a label."""

_LOCAL_PATH = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~-]*")
"""Where a sign-in may redirect to: a page of this console."""

_PLANNER_FIELDS = {
    "survey": EXAMPLE, "crowd": "10000", "epsilon": "1", "delta": "1e-7", "share": "0.01",
    "view": "reports", "window": "", "honest": "", "deployment": "collector", "relay": "",
    "analyzer": "", "accept_weak_promise": "", "compare": "",
}  # fmt: skip
_SMALL = 64 << 10


class Form(dict[str, str]):
    """The fields of a form, stripped; a missing one is an empty text."""

    def __missing__(self, name: str) -> str:
        return ""


async def read_fields(
    request: Request, max_size: int = _SMALL, max_fields: int = 200
) -> list[tuple[str, str]]:
    """Read the fields of a form of at most `max_size` bytes, in their order, stripped."""
    headers = dict(request.scope["headers"])
    if media_type(headers) != b"application/x-www-form-urlencoded":
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers, max_size)
    if isinstance(body, Problem):
        raise Refusal(body)
    try:
        text = body.decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
    except ValueError as error:  # not ASCII, not UTF-8, or too many fields
        raise Refusal(problems.BAD_REQUEST) from error
    return [(name, value.strip()) for name, value in fields]


async def read_form(request: Request, max_size: int = _SMALL) -> Form:
    """Read a form; of several fields with one name the first counts."""
    return Form(reversed(await read_fields(request, max_size)))


async def texts(console: Console, request: Request) -> Response:
    """Show a released crowd with the texts that were found among candidates."""
    form = await read_form(request, LARGEST_DOCUMENT)
    lines = [line.strip() for line in form["candidates"].splitlines()]
    wanted: dict[str, object] = {
        "candidates": [line for line in lines if line],
        "question": form["question"] or None,
    }
    if form["fdr"]:
        try:
            wanted["fdr"] = float(form["fdr"])
        except ValueError:
            raise Refusal(problems.BAD_PARAMETER.about("fdr")) from None
    search = read_as(TextSearch, wanted)
    found = await console.decode(await console.release_of(request), search)
    return await release(console, request, {found["question"]: found})


# Changes to plans


async def publish(console: Console, request: Request) -> Response:
    form = await read_form(request)
    declaration = Declaration(
        all_honest=form["honest"] == "all", never_published=form["never_published"] == "yes"
    )
    await console.move(request, "published", declaration)
    return _to_survey(console, request)


def moves_to(wanted: State, *, confirm: bool) -> Callable[[Console, Request], Awaitable[Response]]:
    """Return the form that changes the state of a plan, perhaps only if its box was ticked."""

    async def move(console: Console, request: Request) -> Response:
        if confirm and (await read_form(request))["confirm"] != "yes":
            raise Refusal(problems.BAD_PARAMETER.about("confirm"))
        await console.move(request, wanted)
        return _to_survey(console, request)

    return move


async def origins(console: Console, request: Request) -> Response:
    form = await read_form(request)
    await console.set_origins(request, [one for one in re.split(r"[,\s]+", form["origins"]) if one])
    return _to_survey(console, request)


async def publicity(console: Console, request: Request) -> Response:
    form = await read_form(request)
    wanted = form["public"] == "yes"
    if wanted and form["confirm"] != "yes":
        raise Refusal(problems.BAD_PARAMETER.about("confirm"))
    await console.set_public(request, wanted)
    return _to_survey(console, request)


async def add_draft(console: Console, request: Request) -> Response:
    form = await read_form(request, LARGEST_DOCUMENT)
    try:
        document = strict_json(form["plan"].encode())
    except ValueError as error:
        raise Refusal(problems.MALFORMED_PLAN) from error
    record = await console.add_draft(request, document)
    return RedirectResponse(console.path_of(record.plan), 303)


# Surveys and plans to be


async def builder(console: Console, request: Request) -> Response:
    return _builder_page(request, {"values": {}, "questions": [new_question()]})


def _builder_page(
    request: Request,
    draft: Draft | None,
    toml: str = "",
    mistakes: Mapping[str, str] | None = None,
    *,
    mistake: str = "",
) -> Response:
    """Return the form and the TOML of a draft; without one, `mistake` says why it is unreadable."""
    wrong = bool(mistake or mistakes)
    return render(
        "builder",
        "Survey",
        token_of(request),
        422 if wrong else 200,
        draft=draft,
        toml=toml,
        mistakes=Form(mistakes or {}),
        mistake=mistake,
        kinds=[(kind, kind) for kind in (*KINDS, "cross")],
        fields_of=fields_of,
        row_heads=row_heads,
        survey_fields={name: FIELDS[name] for name in ("name", "title", "text")},
        sides=["", *(sides(draft) if draft else ())],
    )


async def build(console: Console, request: Request) -> Response:
    """Change a draft by a button, check it, read it from TOML, or take it to the planner."""
    fields = await read_fields(request, MAX_REQUEST_SIZE, MAX_FIELDS)
    form = Form(reversed(fields))
    todo, toml, draft = form["do"] or "check", form["survey"], read_draft(fields)
    if todo.startswith("toml"):
        try:
            if len(toml) > MAX_SURVEY_LENGTH:
                raise InputError(f"a survey has at most {MAX_SURVEY_LENGTH:,} characters here.")
            found = await console.draft(request, toml)
        except InputError as error:
            return _builder_page(request, None, toml, mistake=str(error))
    elif todo not in ("check", "plan"):
        return _builder_page(request, changed(draft, todo), toml)
    else:
        found = await console.draft(request, draft)
    if found["toml"] is not None and todo.endswith("plan"):
        return _planner_page(request, _PLANNER_FIELDS | {"survey": found["toml"]})
    return _builder_page(request, found["draft"], found["toml"] or toml, found["mistakes"])


async def planner(console: Console, request: Request) -> Response:
    return _planner_page(request, _PLANNER_FIELDS)


def _planner_page(request: Request, fields: Mapping[str, str], **values: Any) -> Response:
    token = token_of(request)
    status = 422 if values.get("mistakes") else 200
    shown = {"prospect": None, "may_add": _may_add(token)} | values
    shown["mistakes"] = Form(values.get("mistakes", {}))
    return render("planner", "Planner", token, status, fields=fields, **shown)


async def plan(console: Console, request: Request) -> Response:
    form = await read_form(request, MAX_REQUEST_SIZE)
    fields = {name: form[name] for name in _PLANNER_FIELDS}
    try:
        document = await console.prospect(request, form_request(fields))
    except InputError as error:
        return _planner_page(
            request, fields, mistakes={getattr(error, "parameter", ""): str(error)}
        )
    return _planner_page(
        request,
        fields,
        prospect=document,
        local_epsilon=text_up(document["local_epsilon"]),
        observers=observers_table(document["observers"]),
        plan_json=json.dumps(document["plan"], ensure_ascii=False),
    )


# Administration


async def tokens(
    console: Console, request: Request, made: tuple[Token, str] | None = None
) -> Response:
    kept, plans = console.collector.tokens, console.plans_of(request)
    return render(
        "tokens",
        "Tokens",
        token_of(request),
        made=made,
        tokens=[(token, kept.last_used(token)) for token in kept],
        names=_plan_names(plans),
        roles=[(role, role) for role in ROLES],
        plans=[("", "all plans"), *_plan_choices(plans)],
    )


async def make_token(console: Console, request: Request) -> Response:
    form = await read_form(request)
    wanted = {
        "role": form["role"],
        "label": form["label"],
        "expires": form["expires"] or None,
        "plans": [form["plan"]] if form["plan"] else None,
        "key": form["key"] or None,
    }
    return await tokens(console, request, await console.make_token(request, wanted))


async def revoke_token(console: Console, request: Request) -> Response:
    await console.revoke_token(request)
    return RedirectResponse("/tokens", 303)


async def actions(console: Console, request: Request) -> Response:
    lines, page = await console.actions_of(request), PAGE.read(request)
    return render(
        "actions",
        "Actions",
        token_of(request),
        actions=lines,
        names=_plan_names(console.plans_of(request)),
        paging=Paging("/actions?", page, len(lines) == PAGE_LENGTH),
    )


async def backups(console: Console, request: Request) -> Response:
    return render("backups", "Backups", token_of(request), backups=console.collector.backups())


async def make_backup(console: Console, request: Request) -> Response:
    await console.back_up(request)
    return RedirectResponse("/backups", 303)


# Sessions


async def sign_in(console: Console, request: Request) -> Response:
    wanted = _local(request.query_params.get("next", "/"))
    return render("sign_in", "Sign in", next=wanted, failed=False)


async def begin_session(console: Console, request: Request) -> Response:
    """Exchange a token for a new cookie."""
    check_same_origin(request)
    form = await read_form(request)
    wanted = _local(form["next"] or "/")
    token = console.collector.tokens.find(form["token"])
    if token is None or not token.may("viewer"):
        return render("sign_in", "Sign in", status=401, next=wanted, failed=True)
    # The old session ends first, so that its place is free.
    console.sessions.end(cookie(dict(request.scope["headers"]), COOKIE))
    return _redirect(wanted, console.sessions.begin(token))


async def end_session(console: Console, request: Request) -> Response:
    check_same_origin(request)
    console.sessions.end(cookie(dict(request.scope["headers"]), COOKIE))
    return _redirect("/sign-in", "")


def _redirect(path: str, secret: str) -> Response:
    return RedirectResponse(path, 303, {"Set-Cookie": cookie_header(secret)})


def _may_add(token: Token) -> bool:
    return token.role == "admin" and token.plans is None


def _plan_names(records: Sequence[PlanRecord]) -> dict[str, str]:
    return {one.plan.id: one.plan.survey.name for one in records}


def _plan_choices(records: Sequence[PlanRecord]) -> list[tuple[str, str]]:
    return [(one, f"{name} ({one[:8]})") for one, name in _plan_names(records).items()]


def _to_survey(console: Console, request: Request) -> Response:
    return RedirectResponse(console.path_of(console.plan_of(request).plan), 303)


def _local(path: str) -> str:
    """Return an address of this console, or its first page for anything else."""
    return path if _LOCAL_PATH.fullmatch(path) else "/"
