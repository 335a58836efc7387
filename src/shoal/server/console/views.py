"""The console's pages: one function prepares the values of each template.

A page shows what the API returns, by the same functions; `forms` has the pages that change
something. A page has no inline style or script, so that its policy can forbid both. Static files
are named after their content, so that browsers may keep them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shoal.analysis.screening import Screening
from shoal.protocol.plan import Plan
from shoal.protocol.promise import read_certificate
from shoal.reports import sections
from shoal.reports.formatting import (
    THIN,
    crowd_name,
    flip_in_words,
    possible_answers,
    release_note,
    slug,
    sum_note,
    unreadable_note,
    window_in_words,
)
from shoal.reports.page import environment, observers_table, style_sheet
from shoal.server.console.console import Console, RecentResults
from shoal.server.console.schemas import CROWDS, FIRST, MAX_CROWDS, PAGE, SECOND, TextSearch
from shoal.server.core import problems
from shoal.server.core.openapi import SAFE
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import Token, token_of
from shoal.server.storage.records import CrowdRecord, PlanRecord, Reason
from shoal.server.storage.windows import DAY
from shoal.support.rounding import round_down, text_near, text_up

SAFE_PAGE = SAFE | {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:;"
    " script-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every page: no style or script but those of the console, and no frame around it."""
SURVEYS_PER_PAGE, CROWDS_PER_PAGE = 20, 20
FIGURES = 3
"""Questions of a survey whose answers the first page shows."""
CROWDS_LISTED = 100
"""Crowds of a plan that can be chosen from a list; all can be chosen in the address."""
_STATES = ("published", "paused", "draft", "closed", "destroyed")
_MEDIA = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
_REASONS: dict[Reason, str] = {
    "window": "its window ended before it was complete",
    "deadline": "it was not complete before the deadline",
    "closed": "its plan was closed",
    "key": "the key of open crowds was lost",
    "restored": "the data were restored from a backup",
    "unreadable": "too few of its reports could be read",
    "relay": "the relay discarded it",
}


def render(
    template: str, title: str, token: Token | None = None, status: int = 200, **values: Any
) -> Response:
    """Return a page; `token` decides which other pages it links to."""
    page = _templates.get_template(f"console/{template}.html")
    return HTMLResponse(page.render(title=title, token=token, **values), status)


def refused_page(request: Request, problem: Problem) -> Response:
    """Return the page of a problem; redirect people who are not signed in."""
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = quote(f"{request.url.path}{query}", safe="")
        return RedirectResponse(f"/sign-in?next={wanted}", 303)
    token = getattr(request.state, "token", None)
    response = render("refused", "Not done", token, problem.status, problem=problem)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


@cache
def static_file(name: str) -> bytes:
    """Return a static file; the style is that of report pages and the console's own."""
    content = (files("shoal.server.console") / "static" / name).read_bytes()
    return style_sheet().encode() + content if name == "console.css" else content


@cache
def _static_url(name: str) -> str:
    return f"/static/{name}?{hashlib.sha256(static_file(name)).hexdigest()[:16]}"


def promise_in_words(record: PlanRecord) -> str:
    """Return the computed promise of a plan's certificate; a draft has only a requested one."""
    if record.certificate is None:
        return record.plan.promise.in_words
    return read_certificate(record.plan, record.certificate).in_words


def about(percent: int) -> str:
    return f"about {percent}{THIN}%"


def crowd_in_words(plan: Plan, crowd: CrowdRecord) -> str:
    """Return the state of a crowd; of an open one its rounded progress and nothing else."""
    state = crowd.state
    if state == "released":
        note = f". {unreadable_note(crowd.unreadable)}" if crowd.unreadable else ""
        return f"released, {crowd.reports:,} reports{note}"
    why = "" if crowd.reason is None else f": {_REASONS[crowd.reason]}"
    if crowd.unreadable:
        why += f" ({crowd.unreadable:,} messages could not)"
    if plan.parties is not None:  # only the relay knows the progress of a crowd
        return "waiting for the relay" if state == "open" else f"{state}{why}"
    if state == "open":
        return f"open, {about(crowd.progress)}"
    return f"{state}{why}; it was {about(crowd.progress)} complete"


def expected_in_words(plan: Plan, crowd: CrowdRecord, now: float) -> str:
    """Return when an open crowd will probably be complete; nothing where that is unknown.

    The rough estimate follows from the rounded progress and the day on which the crowd was opened,
    so it reveals no more than they do.
    """
    days = int(now // DAY) - (crowd.opened_day or 0)
    if plan.parties is not None or not crowd.opened_day or days < 1 or not crowd.progress:
        return ""
    left = days * (95 - crowd.progress) / (crowd.progress + 5)  # the middle of its 10 %
    if plan.window is not None and now + left * DAY > (crowd.window + 1) * plan.window:
        return "probably not before its window ends"
    if left < 1:
        return "probably within a day"
    unit, length = ("day", 1) if left < 14 else ("week", 7) if left < 60 else ("month", 30)
    count = round(left / length)
    return f"probably in about {count} {unit}{'s' * (count > 1)}"


def traces(screening: Screening | None) -> str:
    if screening is None:
        return ""
    if not screening.suspicious:
        return "none seen"
    return f"in at least {round_down(100 * screening.smallest_share_of_fakes, 2):g} % of them"


_FILTERS: dict[str, Callable[..., str]] = {
    "about": about,
    "count": lambda number: f"{number:,}",
    "flips": flip_in_words,
    "near": lambda number: text_near(number, 3),
    "up": lambda number: "-" if number is None else text_up(number, 3),
    "promise": promise_in_words,
}

_templates = environment(console="shoal.server.console")
_templates.filters |= _FILTERS
_templates.globals["static_url"] = _static_url


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
        state, is_released = crowd_in_words(plan, crowd), crowd.state == "released"
        return cls(crowd.number, window, crowd.progress, state, is_released, traces, expected)


class Figure(NamedTuple):
    """What people answered to a question in the last released crowd, and how it changed."""

    heading: str
    lead: sections.Lead
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
            CrowdView.of(plan, one, expected=expected_in_words(plan, one, now) if accepting else "")
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
        Figure(one.heading, *sections.lead_over_crowds(one, recent.results, f"{name}-{number}"))
        for number, one in enumerate(asked)
    ]


def _problem(plan: Plan, crowds: Sequence[CrowdRecord], recent: RecentResults) -> str:
    """Return the last problem of a plan in a sentence: fake reports, or a crowd that was lost."""
    if recent.screening is not None and recent.screening.suspicious:
        return f"Crowd {recent.numbers[-1]}: fake reports {traces(recent.screening)}."
    # Where a window had a whole crowd, the rest of its reports is no loss.
    whole = {one.window for one in crowds if one.state == "released" and plan.window is not None}
    for one in crowds:
        if one.state == "discarded" and one.reason != "closed" and one.window not in whole:
            return f"Crowd {one.number}: {crowd_in_words(plan, one)}."
    return ""


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
        crowds=[CrowdView.of(plan, one, traces(found.get(one.number))) for one in shown],
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
        unreadable=release.unreadable and unreadable_note(release.unreadable),
        notes=[*sum_note(estimates), *release_note(plan)],
        sections=sections.question_sections(plan.survey, document),
        texts=[(name, name) for name in texts if name not in document["texts"]],
        fdr=TextSearch(candidates=[]).fdr,
        findings=screening.to_json()["findings"],
    )


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
        trend=sections.trend_section(plan.survey[question], document, names),
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
        difference=sections.difference_sections(record.plan.survey, document, *names),
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


async def static(console: Console, request: Request) -> Response:
    """Return a file that browsers may keep, since its address changes with its content."""
    name = request.url.path.rpartition("/")[2]
    cache = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(static_file(name), headers=cache, media_type=_MEDIA[name])
