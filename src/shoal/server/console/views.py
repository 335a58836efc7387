"""The console's pages: one function prepares the values of each template.

A page shows what the API returns, and a form does what the API does, by the same functions. Every
change is a POST from one of these pages and redirects to a page that shows the result.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import KINDS
from shoal.reports.formatting import (
    crowd_name,
    possible_answers,
    release_note,
    sum_note,
    unreadable_note,
    window_in_words,
)
from shoal.reports.page import observers_table
from shoal.reports.sections import (
    Lead,
    difference_sections,
    lead_over_crowds,
    question_sections,
    trend_section,
)
from shoal.reports.site import slug
from shoal.server.console import pages
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
from shoal.server.console.console import PAGE_LENGTH, Console, RecentResults
from shoal.server.console.pages import Form, read_fields, read_form, render
from shoal.server.console.planner import (
    EXAMPLE,
    MAX_REQUEST_SIZE,
    MAX_SURVEY_LENGTH,
    form_request,
)
from shoal.server.console.schemas import CROWDS, FIRST, MAX_CROWDS, PAGE, SECOND, TextSearch
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
FIGURES = 3
"""Questions of a survey whose answers the first page shows."""
CROWDS_LISTED = 100
"""Crowds of a plan that can be chosen from a list; all can be chosen in the address."""
MAX_FIELDS = 4000
"""Fields of a survey's form: a planned survey has at most 512 options, each with a label."""

_LOCAL_PATH = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~-]*")
"""Where a sign-in may redirect to: a page of this console."""

_PLANNER_FIELDS = {
    "survey": EXAMPLE, "crowd": "10000", "epsilon": "1", "delta": "1e-7", "share": "0.01",
    "view": "reports", "window": "", "honest": "", "deployment": "collector", "relay": "",
    "analyzer": "", "accept_weak_promise": "", "compare": "",
}  # fmt: skip
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
    expected: str = ""

    @classmethod
    def of(cls, plan: Plan, crowd: CrowdRecord, traces: str = "", expected: str = "") -> CrowdView:
        window = "" if plan.window is None else window_in_words(plan, crowd.window)
        state, is_released = pages.crowd_in_words(plan, crowd), crowd.state == "released"
        return cls(crowd.number, window, crowd.progress, state, is_released, traces, expected)


class Figure(NamedTuple):
    """What people answered to a question in the last released crowd, and how it changed."""

    heading: str
    lead: Lead
    sparkline: Markup | None


class SurveyView(NamedTuple):
    """A plan: what people answered, how far the open crowds are, and the last problem."""

    record: PlanRecord
    plan: Plan
    path: str
    counts: Mapping[str, int]
    open_crowds: Sequence[CrowdView]
    last: CrowdView | None
    figures: Sequence[Figure]
    problem: str

    @classmethod
    async def of(
        cls, console: Console, request: Request, record: PlanRecord, name: str = "survey"
    ) -> SurveyView:
        """Look at a plan as far as a token may; `name` begins the ids of pictures."""
        plan, store, now = record.plan, console.store, console.collector.service.clock()
        counts = await console.in_store(store.crowd_counts, plan.id)
        # Open crowds are one for each open window: all of them are among the last few crowds.
        crowds = await console.in_store(store.some_crowds, plan.id, 0, CROWDS_PER_PAGE)
        current = 0 if plan.window is None else int(now // plan.window)
        accepting = record.state == "published"
        opened = [
            CrowdView.of(
                plan, one, expected=pages.expected_in_words(plan, one, now) if accepting else ""
            )
            for one in crowds
            # An empty crowd of another window says nothing.
            if one.state == "open" and (one.progress or one.window == current)
        ]
        recent = RecentResults()
        if token_of(request).may("analyst") and counts.get("released"):
            recent = await console.recent_results(plan)
        return cls(
            record,
            plan,
            console.path_of(plan),
            Counter(counts),
            opened,
            next((CrowdView.of(plan, one) for one in crowds if one.state == "released"), None),
            _figures(plan, recent, name),
            _problem(plan, crowds, recent),
        )


def _figures(plan: Plan, recent: RecentResults, name: str) -> list[Figure]:
    """Return the leads of the first questions; texts and crosses have none."""
    asked = [one for one in plan.survey.asked if one.kind != "text"][:FIGURES]
    if not recent.results:
        return []
    return [
        Figure(one.heading, *lead_over_crowds(one, recent.results, f"{name}-{number}"))
        for number, one in enumerate(asked)
    ]


def _problem(plan: Plan, crowds: Sequence[CrowdRecord], recent: RecentResults) -> str:
    """Return the last problem of a plan in a sentence: fake reports, or a crowd that was lost."""
    if recent.screening is not None and recent.screening.suspicious:
        return f"Crowd {recent.numbers[-1]}: fake reports {pages.traces(recent.screening)}."
    # Where a window had a whole crowd, the rest of its reports is no loss.
    whole = {one.window for one in crowds if one.state == "released" and plan.window is not None}
    for one in crowds:
        if one.state == "discarded" and one.reason != "closed" and one.window not in whole:
            return f"Crowd {one.number}: {pages.crowd_in_words(plan, one)}."
    return ""


# Surveys and crowds


async def home(console: Console, request: Request) -> Response:
    """Show the surveys that a token covers, those that take reports first."""
    return await _overview(console, request, "Surveys", "/", console.plans_of(request))


async def _overview(
    console: Console, request: Request, title: str, path: str, plans: Sequence[PlanRecord]
) -> Response:
    token, page = token_of(request), PAGE.read(request)
    records = sorted(
        plans, key=lambda one: (_STATES.index(one.state), one.plan.survey.name, one.plan.id)
    )
    shown = records[page * SURVEYS_PER_PAGE : (page + 1) * SURVEYS_PER_PAGE]
    return render(
        "home",
        title,
        token,
        surveys=[
            await SurveyView.of(console, request, record, f"survey-{number}")
            for number, record in enumerate(shown)
        ],
        obstacle=_obstacle(console),
        paging=Paging(f"{path}?", page, len(records) > (page + 1) * SURVEYS_PER_PAGE),
    )


def _obstacle(console: Console) -> problems.Problem | None:
    """Return why reports are refused; a look at a page does not write to the disk to find out."""
    service = console.collector.service
    if not service.has_space:
        return problems.STORAGE_FULL
    return problems.CLOCK_HELD if service.clock_is_held else None


async def survey(console: Console, request: Request) -> Response:
    """Show a plan and its crowds, or the plans of a survey that has several."""
    address, token = request.path_params["survey"], token_of(request)
    several = [one for one in console.plans_at(address) if token.covers(one.plan.id)]
    if len(several) > 1:
        title = several[0].plan.survey.name
        return await _overview(console, request, title, f"/surveys/{address}", several)
    record, page = console.plan_of(request), PAGE.read(request)
    plan, may_look = record.plan, token.may("analyst")
    crowds = await console.in_store(
        console.store.some_crowds, plan.id, page * CROWDS_PER_PAGE, CROWDS_PER_PAGE + 1
    )
    shown = crowds[:CROWDS_PER_PAGE]
    released = [one.number for one in shown if may_look and one.state == "released"]
    found = await console.screenings(plan, released)
    view = await SurveyView.of(console, request, record)
    return render(
        "survey",
        plan.survey.heading,
        token,
        survey=view,
        notes=[*plan.warnings, *release_note(plan)],
        crowds=[CrowdView.of(plan, one, pages.traces(found.get(one.number))) for one in shown],
        questions=[(one.heading, possible_answers(one)) for one in plan.survey],
        observers=record.observers and observers_table(record.observers),
        may_look=may_look,
        may_act=token.role == "admin",
        results=f"/results/{slug(plan.survey.name)}/",
        paging=Paging(f"{view.path}?", page, len(crowds) > CROWDS_PER_PAGE),
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
        f"{plan.survey.heading}, crowd {number}",
        token_of(request),
        plan=plan,
        path=console.path_of(plan),
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
    lengths = sorted({2, 3, 6, 12, 24, MAX_CROWDS, CROWDS.read(request)})
    return render(
        "trend",
        f"{plan.survey.heading}: {plan.survey[question].heading}",
        token_of(request),
        plan=plan,
        path=console.path_of(plan),
        questions=[(one.name, one.heading) for one in plan.survey if one.kind != "text"],
        lengths=[(one, f"the last {one}") for one in lengths],
        length=CROWDS.read(request),
        trend=trend_section(plan.survey[question], document, names),
    )


async def difference(console: Console, request: Request) -> Response:
    """Show how two crowds differ; before the number of another plan's crowd is the plan's id."""
    record = console.plan_of(request)
    plan_id, _, number = request.query_params.get("second", "").rpartition(".")
    other = console.other_plan(request, plan_id) or record
    first, second = FIRST.read_optional(request), SECOND.convert(number) if number else None
    document = await console.crowd_difference(request, first, second, other)
    crowds = [document[side]["crowds"][0] for side in ("first", "second")]
    plans = record.plan, other.plan
    names = [crowd_name(plan, crowd) for plan, crowd in zip(plans, crowds, strict=True)]
    if other is not record:
        names = [f"{one.survey.name}, {name}" for one, name in zip(plans, names, strict=True)]
    chosen = [int(one["name"]) for one in crowds]
    comparable = [one.plan for one in console.plans_of(request) if one.certificate is not None]
    return render(
        "difference",
        f"{record.plan.survey.heading}: two crowds",
        token_of(request),
        plan=record.plan,
        path=console.path_of(record.plan),
        first=str(chosen[0]),
        firsts=await _crowd_choices(console, record.plan, chosen[0]),
        second=f"{other.plan.id}.{chosen[1]}",
        seconds=[
            (f"{one.survey.heading} ({one.id[:8]})",
             await _crowd_choices(console, one, chosen[1] * (one == other.plan), f"{one.id}."))
            for one in sorted(comparable, key=lambda one: one != record.plan)
        ],
        difference=difference_sections(record.plan.survey, document, *names),
    )  # fmt: skip


async def _crowd_choices(
    console: Console, plan: Plan, chosen: int, prefix: str = ""
) -> list[tuple[str, str]]:
    """Return the last released crowds of a plan, and the chosen one, as values of a list."""
    crowds = await console.in_store(console.store.some_crowds, plan.id, 0, CROWDS_LISTED)
    found = {
        one.number: crowd_name(plan, {"name": one.number, "window": one.window})
        for one in crowds
        if one.state == "released"
    }
    every = ({chosen: f"crowd {chosen}"} if chosen else {}) | found
    return [(f"{prefix}{number}", every[number]) for number in sorted(every, reverse=True)]


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


def _to_survey(console: Console, request: Request) -> Response:
    return RedirectResponse(console.path_of(console.plan_of(request).plan), 303)


def _local(path: str) -> str:
    """Return an address of this console, or its first page for anything else."""
    return path if _LOCAL_PATH.fullmatch(path) else "/"
