"""The console's pages: one function prepares the values of each template.

A page shows what the API returns, and a form does what the API does, by the same functions. Every
change is a POST from one of these pages and redirects to a page that shows the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.formatting import (
    crowd_name,
    possible_answers,
    release_note,
    sum_note,
    unreadable_note,
    window_in_words,
)
from shoal.reports.page import observers_table
from shoal.reports.sections import difference_sections, question_sections, trend_section
from shoal.reports.site import slug
from shoal.server.console import pages
from shoal.server.console.console import PAGE_LENGTH, Console
from shoal.server.console.pages import read_form, render
from shoal.server.console.planning import EXAMPLE, MAX_REQUEST_SIZE, form_request
from shoal.server.console.schemas import CROWDS, PAGE, TextSearch
from shoal.server.core import problems
from shoal.server.core.http import Refusal
from shoal.server.core.openapi import LARGEST_DOCUMENT, read_as
from shoal.server.core.tokens import (
    COOKIE,
    ROLES,
    Token,
    check_same_origin,
    cookie,
    cookie_header,
    token_of,
)
from shoal.server.storage.records import CrowdRecord, Declaration, PlanRecord, State
from shoal.support.files import strict_json
from shoal.support.rounding import text_up

SURVEYS_PER_PAGE, CROWDS_PER_PAGE = 20, 20

_LOCAL_PATH = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~-]*")
"""Where a sign-in may redirect to: a page of this console."""

_PLANNER_FIELDS = {"survey": EXAMPLE, "crowd": "10000", "epsilon": "1", "delta": "1e-6",
                   "share": "0.01", "view": "reports", "compare": ""}  # fmt: skip
_STATES = ("published", "paused", "draft", "closed", "destroyed")


class Paging(NamedTuple):
    """A page of a list: its address up to the page's number."""

    path: str
    number: int
    has_more: bool


class CrowdView(NamedTuple):
    """A crowd as pages show it; of an open one no more than its rounded progress."""

    number: int
    window: str
    progress: int
    state: str
    is_released: bool
    traces: str = ""

    @classmethod
    def of(cls, plan: Plan, crowd: CrowdRecord, traces: str = "") -> CrowdView:
        window = "" if plan.window is None else window_in_words(plan, crowd.window)
        state, is_released = pages.crowd_in_words(plan, crowd), crowd.state == "released"
        return cls(crowd.number, window, crowd.progress, state, is_released, traces)


class SurveyView(NamedTuple):
    """A plan, how many crowds of it are in each state, and the open ones."""

    record: PlanRecord
    plan: Plan
    waiting: int
    released: int
    discarded: int
    open_crowds: Sequence[CrowdView]

    @classmethod
    async def of(cls, console: Console, record: PlanRecord) -> SurveyView:
        plan, store = record.plan, console.store
        counts = await console.in_store(store.crowd_counts, plan.id)
        crowds = []
        if counts.get("open"):
            # One for each open window; all of them are among the last few crowds.
            last = await console.in_store(store.some_crowds, plan.id, 0, CROWDS_PER_PAGE)
            crowds = [CrowdView.of(plan, one) for one in reversed(last) if one.state == "open"]
        waiting, released, discarded = (
            counts.get(state, 0) for state in ("open", "released", "discarded")
        )
        return cls(record, plan, waiting, released, discarded, crowds)


# Surveys and crowds


async def home(console: Console, request: Request) -> Response:
    """Show the surveys that a token covers, those that take reports first."""
    token, page = token_of(request), PAGE.read(request)
    records = sorted(
        console.plans_of(request),
        key=lambda one: (_STATES.index(one.state), one.plan.survey.name, one.plan.id),
    )
    shown = records[page * SURVEYS_PER_PAGE : (page + 1) * SURVEYS_PER_PAGE]
    return render(
        "home",
        "Surveys",
        token,
        surveys=[await SurveyView.of(console, record) for record in shown],
        may_add=_may_add(token),
        paging=Paging("/?", page, len(records) > (page + 1) * SURVEYS_PER_PAGE),
    )


async def survey(console: Console, request: Request) -> Response:
    record, token, page = console.plan_of(request), token_of(request), PAGE.read(request)
    plan, may_look = record.plan, token.may("analyst")
    crowds = await console.in_store(
        console.store.some_crowds, plan.id, page * CROWDS_PER_PAGE, CROWDS_PER_PAGE + 1
    )
    shown = crowds[:CROWDS_PER_PAGE]
    released = [one.number for one in shown if may_look and one.state == "released"]
    found = await console.screenings(plan, released)
    return render(
        "survey",
        plan.survey.name,
        token,
        survey=await SurveyView.of(console, record),
        notes=[*plan.warnings, *release_note(plan)],
        crowds=[CrowdView.of(plan, one, pages.traces(found.get(one.number))) for one in shown],
        questions=[(one.heading, possible_answers(one)) for one in plan.survey],
        observers=record.observers and observers_table(record.observers),
        may_look=may_look,
        may_act=token.role == "admin",
        results=f"/results/{slug(plan.survey.name)}/",
        paging=Paging(f"/surveys/{plan.id}?", page, len(crowds) > CROWDS_PER_PAGE),
    )


async def release(
    console: Console, request: Request, found: Mapping[str, Any] | None = None
) -> Response:
    """Show a released crowd; `found` are texts by the names of their questions."""
    release, document = await console.results_of(request)
    plan, number = release.plan, release.number
    screening = await console.screening(release)
    document = document | {"texts": document["texts"] | (found or {})}
    estimates = document["estimates"]
    texts = [one.name for one in plan.survey if one.kind == "text"]
    return render(
        "release",
        f"{plan.survey.name}, crowd {number}",
        token_of(request),
        plan=plan,
        number=number,
        reports=release.tally.reports,
        window=window_in_words(plan, estimates["crowds"][0]["window"]),
        estimates=estimates,
        unreadable=release.unreadable and unreadable_note(plan, release.unreadable),
        notes=[*sum_note(estimates), *release_note(plan)],
        sections=question_sections(plan.survey, document),
        texts=[(name, name) for name in texts if name not in document["texts"]],
        fdr=TextSearch(candidates=[]).fdr,
        findings=screening.to_json()["findings"],
    )


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


async def trend(console: Console, request: Request) -> Response:
    plan = console.plan_of(request).plan
    document = await console.trend(request)
    (question,) = document["questions"]
    names = [crowd_name(plan, one["crowds"][0]) for one in document["crowds"]]
    return render(
        "trend",
        f"{plan.survey.heading}: {plan.survey[question].heading}",
        token_of(request),
        plan=plan,
        questions=[(one.name, one.heading) for one in plan.survey if one.kind != "text"],
        length=CROWDS.read(request),
        trend=trend_section(plan.survey[question], document, names),
    )


async def difference(console: Console, request: Request) -> Response:
    record = console.plan_of(request)
    document = await console.difference(request)
    other = console.other_plan(request) or record
    first, second = (document[side]["crowds"][0] for side in ("first", "second"))
    names = [crowd_name(record.plan, first), crowd_name(other.plan, second)]
    if other is not record:
        pairs = zip(names, (record.plan, other.plan), strict=True)
        names = [f"{one.survey.name}, {name}" for name, one in pairs]
    published = [one for one in console.plans_of(request) if one.certificate is not None]
    return render(
        "difference",
        f"{record.plan.survey.name}: two crowds",
        token_of(request),
        plan=record.plan,
        other=other.plan,
        first=first["name"],
        second=second["name"],
        plans=_plan_choices(published),
        difference=difference_sections(record.plan.survey, document, *names),
    )


# Changes to plans


async def publish(console: Console, request: Request) -> Response:
    form = await read_form(request)
    declaration = Declaration(
        all_honest=form["honest"] == "all", never_published=form["never_published"] == "yes"
    )
    await console.move(request, "published", declaration)
    return _to_survey(request)


def moves_to(wanted: State, *, confirm: bool) -> Callable[[Console, Request], Awaitable[Response]]:
    """Return the form that changes the state of a plan, perhaps only if its box was ticked."""

    async def move(console: Console, request: Request) -> Response:
        if confirm and (await read_form(request))["confirm"] != "yes":
            raise Refusal(problems.BAD_PARAMETER.about("confirm"))
        await console.move(request, wanted)
        return _to_survey(request)

    return move


async def origins(console: Console, request: Request) -> Response:
    form = await read_form(request)
    await console.set_origins(request, [one for one in re.split(r"[,\s]+", form["origins"]) if one])
    return _to_survey(request)


async def publicity(console: Console, request: Request) -> Response:
    form = await read_form(request)
    wanted = form["public"] == "yes"
    if wanted and form["confirm"] != "yes":
        raise Refusal(problems.BAD_PARAMETER.about("confirm"))
    await console.set_public(request, wanted)
    return _to_survey(request)


async def drafts(console: Console, request: Request) -> Response:
    return render("drafts", "Add a draft", token_of(request))


async def add_draft(console: Console, request: Request) -> Response:
    form = await read_form(request, LARGEST_DOCUMENT)
    try:
        document = strict_json(form["plan"].encode())
    except ValueError as error:
        raise Refusal(problems.MALFORMED_PLAN) from error
    record = await console.add_draft(request, document)
    return RedirectResponse(f"/surveys/{record.plan.id}", 303)


# Planner


async def planner(console: Console, request: Request) -> Response:
    return render("planner", "Planner", token_of(request), fields=_PLANNER_FIELDS, mistake="",
                  prospect=None)  # fmt: skip


async def plan(console: Console, request: Request) -> Response:
    token, form = token_of(request), await read_form(request, MAX_REQUEST_SIZE)
    fields = {name: form[name] for name in _PLANNER_FIELDS}
    show = partial(render, "planner", "Planner", token, fields=fields)
    try:
        document = await console.prospect(request, form_request(fields))
    except InputError as error:
        return show(422, mistake=str(error), prospect=None)
    return show(
        mistake="",
        prospect=document,
        local_epsilon=text_up(document["local_epsilon"]),
        observers=observers_table(document["observers"]),
        plan_json=json.dumps(document["plan"], ensure_ascii=False),
        may_add=_may_add(token),
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
    """Set or remove the cookie, and redirect."""
    return RedirectResponse(path, 303, {"Set-Cookie": cookie_header(secret)})


async def static(console: Console, request: Request) -> Response:
    return pages.static_response(request.url.path.rpartition("/")[2])


def _may_add(token: Token) -> bool:
    return token.role == "admin" and token.plans is None


def _plan_names(records: Sequence[PlanRecord]) -> dict[str, str]:
    return {one.plan.id: one.plan.survey.name for one in records}


def _plan_choices(records: Sequence[PlanRecord]) -> list[tuple[str, str]]:
    return [(one, f"{name} ({one[:8]})") for one, name in _plan_names(records).items()]


def _to_survey(request: Request) -> Response:
    return RedirectResponse(f"/surveys/{request.path_params['plan_id']}", 303)


def _local(path: str) -> str:
    """Return an address of this console, or its first page for anything else."""
    return path if _LOCAL_PATH.fullmatch(path) else "/"
