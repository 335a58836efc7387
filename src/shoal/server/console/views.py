"""The console's pages: who may see them, and the values their templates show.

`PAGES` lists them as `OPERATIONS` lists the API. A page shows what the API returns, and a form does
what the API does, by the same functions. Every change is a POST from one of these pages and
redirects to a page that shows the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.formatting import possible_answers, sum_note
from shoal.reports.page import observers_table
from shoal.reports.protection import release_note
from shoal.reports.sections import difference_sections, question_sections, trend_section
from shoal.server.console.formatting import (
    crowd_in_words,
    name_of_crowd,
    progress,
    traces,
    unreadable_note,
    window_in_words,
)
from shoal.server.console.handlers import (
    CROWDS,
    INTERVAL,
    LEVEL,
    NUMBER,
    OTHER,
    PAGE,
    PAGE_LENGTH,
    Handlers,
)
from shoal.server.console.pages import read_form, render, static_response
from shoal.server.console.planning import EXAMPLE, MAX_REQUEST_SIZE, form_request
from shoal.server.console.schemas import TextSearch
from shoal.server.core import problems
from shoal.server.core.auth import LARGEST_DOCUMENT, check_same_origin, token_of
from shoal.server.core.http import Refusal, cookie
from shoal.server.core.openapi import Operation, read_as
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import COOKIE, ROLES, Sessions, Token, cookie_header
from shoal.server.storage.records import CrowdRecord, Declaration, PlanRecord, State
from shoal.support.files import strict_json
from shoal.support.rounding import text_up

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration

__all__ = ["PAGES", "Views", "refused_page"]

SURVEYS_PER_PAGE, CROWDS_PER_PAGE = 20, 20

_LOCAL_PATH = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~-]*")
"""Where a sign-in may redirect to: a page of this console."""

_PLANNER_FIELDS = ("survey", "crowd", "epsilon", "delta", "share", "view", "compare")


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
        """Return the view of a crowd."""
        window = "" if plan.window is None else window_in_words(plan, crowd.window)
        state, is_released = crowd_in_words(plan, crowd), crowd.state == "released"
        return cls(crowd.number, window, progress(crowd), state, is_released, traces)


class SurveyView(NamedTuple):
    """A plan, how many crowds of it are in each state, and the open ones."""

    record: PlanRecord
    plan: Plan
    waiting: int
    released: int
    discarded: int
    open_crowds: Sequence[CrowdView]


class Views:
    """One method for each page."""

    def __init__(self, collector: Administration, handlers: Handlers, sessions: Sessions) -> None:
        self._collector, self._handlers, self._sessions = collector, handlers, sessions

    # Surveys and crowds

    async def home(self, request: Request) -> Response:
        """Show the surveys that a token covers, those that take reports first."""
        token, page = token_of(request), PAGE.read(request)
        records = sorted(self._handlers.plans_of(request), key=_order)
        shown = records[page * SURVEYS_PER_PAGE : (page + 1) * SURVEYS_PER_PAGE]
        return render(
            "home",
            "Surveys",
            token,
            surveys=[await self._survey(record) for record in shown],
            may_add=_may_add(token),
            paging=Paging("/?", page, len(records) > (page + 1) * SURVEYS_PER_PAGE),
        )

    async def _survey(self, record: PlanRecord) -> SurveyView:
        store, plan = self._collector.store, record.plan
        counts = await self._collector.in_store(store.crowd_counts, plan.id)
        crowds = []
        if counts.get("open"):
            # One for each open window; all of them are among the last few crowds.
            last = await self._collector.in_store(store.some_crowds, plan.id, 0, CROWDS_PER_PAGE)
            crowds = [CrowdView.of(plan, one) for one in reversed(last) if one.state == "open"]
        waiting, released, discarded = (
            counts.get(state, 0) for state in ("open", "released", "discarded")
        )
        return SurveyView(record, plan, waiting, released, discarded, crowds)

    async def survey(self, request: Request) -> Response:
        """Show one survey and its crowds."""
        record, token, page = self._handlers.plan_of(request), token_of(request), PAGE.read(request)
        plan, may_look = record.plan, token.may("analyst")
        crowds = await self._collector.in_store(
            self._collector.store.some_crowds, plan.id, page * CROWDS_PER_PAGE, CROWDS_PER_PAGE + 1
        )
        shown = crowds[:CROWDS_PER_PAGE]
        released = [one.number for one in shown if may_look and one.state == "released"]
        screenings = await self._handlers.releases.screenings(plan, released)
        return render(
            "survey",
            plan.survey.name,
            token,
            survey=await self._survey(record),
            notes=release_note(plan),
            crowds=[CrowdView.of(plan, one, traces(screenings.get(one.number))) for one in shown],
            questions=[(one.name, possible_answers(one)) for one in plan.survey],
            observers=record.observers and observers_table(record.observers),
            may_look=may_look,
            may_act=token.role == "admin",
            paging=Paging(f"/surveys/{plan.id}?", page, len(crowds) > CROWDS_PER_PAGE),
        )

    async def release(self, request: Request) -> Response:
        """Show a released crowd."""
        return await self._release(request, {})

    async def _release(self, request: Request, found: dict[str, Any]) -> Response:
        plan, number = self._handlers.plan_of(request).plan, NUMBER.read(request)
        level, kind = LEVEL.read(request), INTERVAL.read(request)
        releases = self._handlers.releases
        release = await releases.get(plan, number)
        crowd = await releases.record(plan, number)
        document = await releases.results(release, level, kind)  # type: ignore[arg-type]
        screening = await releases.screening(release)
        document = document | {"texts": document["texts"] | found}
        texts = [one.name for one in plan.survey if one.kind == "text"]
        return render(
            "release",
            f"{plan.survey.name}, crowd {number}",
            token_of(request),
            plan=plan,
            crowd=crowd,
            window=window_in_words(plan, crowd.window),
            estimates=document["estimates"],
            unreadable=crowd.unreadable and unreadable_note(plan, crowd.unreadable),
            notes=[*sum_note(document["estimates"]), *release_note(plan)],
            sections=question_sections(plan, document),
            texts=[(name, name) for name in texts if name not in document["texts"]],
            fdr=TextSearch(candidates=[]).fdr,
            findings=screening.to_json()["findings"],
        )

    async def texts(self, request: Request) -> Response:
        """Show a released crowd with the texts that were found among candidates."""
        form = await read_form(request, LARGEST_DOCUMENT)
        lines = [line.strip() for line in form.text("candidates").splitlines()]
        wanted: dict[str, object] = {
            "candidates": [line for line in lines if line],
            "question": form.text("question") or None,
        }
        if form.text("fdr"):
            try:
                wanted["fdr"] = float(form.text("fdr"))
            except ValueError:
                raise Refusal(problems.BAD_PARAMETER.about("fdr")) from None
        release = await self._handlers.release_of(request)
        found = await self._handlers.decoded(release, read_as(TextSearch, wanted))
        return await self._release(request, {found["question"]: found})

    async def trend(self, request: Request) -> Response:
        """Show how a question changes over crowds."""
        plan = self._handlers.plan_of(request).plan
        document = await self._handlers.trend_of(request)
        (question,) = document["questions"]
        names = [name_of_crowd(plan, one["crowds"][0]) for one in document["crowds"]]
        return render(
            "trend",
            f"{plan.survey.name}: {question}",
            token_of(request),
            plan=plan,
            questions=[(one.name, one.name) for one in plan.survey if one.kind != "text"],
            length=CROWDS.read(request),
            trend=trend_section(question, document, names),
        )

    async def difference(self, request: Request) -> Response:
        """Show how two crowds differ."""
        record = self._handlers.plan_of(request)
        document = await self._handlers.difference_of(request)
        wanted = OTHER.text(request)
        other = (self._collector.plan(wanted) if wanted else None) or record
        first, second = (document[side]["crowds"][0] for side in ("first", "second"))
        names = [name_of_crowd(record.plan, first), name_of_crowd(other.plan, second)]
        if other is not record:
            pairs = zip(names, (record.plan, other.plan), strict=True)
            names = [f"{one.survey.name}, {name}" for name, one in pairs]
        plans = [one for one in self._handlers.plans_of(request) if one.certificate is not None]
        return render(
            "difference",
            f"{record.plan.survey.name}: two crowds",
            token_of(request),
            plan=record.plan,
            other=other.plan,
            first=first["name"],
            second=second["name"],
            plans=_plan_choices(plans),
            difference=difference_sections(document, *names),
        )

    # Changes to plans

    async def publish(self, request: Request) -> Response:
        """Publish a draft, or resume after a pause."""
        form = await read_form(request)
        declaration = Declaration(
            all_honest=form.text("honest") == "all",
            never_published=form.text("never_published") == "yes",
        )
        await self._handlers.move(request, "published", declaration)
        return _to_survey(request)

    async def origins(self, request: Request) -> Response:
        """Set the origins of the web pages that may send reports."""
        form = await read_form(request)
        origins: list[object] = list(re.split(r"[,\s]+", form.text("origins")))
        await self._handlers.set_origins(request, [one for one in origins if one])
        return _to_survey(request)

    async def drafts(self, request: Request) -> Response:
        """Show the form that adds a draft."""
        return render("drafts", "Add a draft", token_of(request))

    async def add_draft(self, request: Request) -> Response:
        """Add a draft."""
        form = await read_form(request, LARGEST_DOCUMENT)
        try:
            document = strict_json(form.text("plan").encode())
            plan = await self._collector.compute(Plan.from_json, document)
        except (InputError, ValueError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        record = await self._handlers.add_draft(request, plan)
        return RedirectResponse(f"/surveys/{record.plan.id}", 303)

    # Planner

    async def planner(self, request: Request) -> Response:
        """Show the planner's form."""
        fields = {"survey": EXAMPLE, "crowd": "10000", "epsilon": "1", "delta": "1e-6",
                  "share": "0.01", "view": "reports"}  # fmt: skip
        return render("planner", "Planner", token_of(request), fields=fields, mistake="",
                      prospect=None)  # fmt: skip

    async def plan(self, request: Request) -> Response:
        """Show the promise of a plan; nothing is stored."""
        token, form = token_of(request), await read_form(request, MAX_REQUEST_SIZE)
        fields = {name: form.text(name) for name in _PLANNER_FIELDS}
        show = partial(render, "planner", "Planner", token, fields=fields)
        try:
            document = await self._handlers.prospect_of(request, form_request(fields))
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

    async def tokens(self, request: Request) -> Response:
        """List tokens."""
        return self._tokens(request)

    def _tokens(self, request: Request, made: tuple[Token, str] | None = None) -> Response:
        kept, plans = self._collector.tokens, self._handlers.plans_of(request)
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

    async def make_token(self, request: Request) -> Response:
        """Make a token, and show its secret once."""
        form = await read_form(request)
        plan = form.text("plan")
        wanted = {
            "role": form.text("role"),
            "label": form.text("label"),
            "expires": form.text("expires") or None,
            "plans": [plan] if plan else None,
            "key": form.text("key") or None,
        }
        return self._tokens(request, await self._handlers.make_token(request, wanted))

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a token."""
        await self._handlers.revoke_token(request)
        return RedirectResponse("/tokens", 303)

    async def actions(self, request: Request) -> Response:
        """List actions."""
        lines, page = await self._handlers.actions_of(request), PAGE.read(request)
        return render(
            "actions",
            "Actions",
            token_of(request),
            actions=lines,
            names=_plan_names(self._handlers.plans_of(request)),
            paging=Paging("/actions?", page, len(lines) == PAGE_LENGTH),
        )

    async def backups(self, request: Request) -> Response:
        """List backups."""
        return render("backups", "Backups", token_of(request), backups=self._collector.backups())

    async def make_backup(self, request: Request) -> Response:
        """Make a backup."""
        await self._handlers.back_up(request)
        return RedirectResponse("/backups", 303)

    # Sessions

    async def sign_in(self, request: Request) -> Response:
        """Show the form that takes a token."""
        wanted = _local(request.query_params.get("next", "/"))
        return render("sign_in", "Sign in", next=wanted, failed=False)

    async def begin_session(self, request: Request) -> Response:
        """Exchange a token for a new cookie."""
        check_same_origin(request)
        form = await read_form(request)
        wanted = _local(form.text("next") or "/")
        token = self._collector.tokens.find(form.text("token"))
        if token is None or not token.may("viewer"):
            return render("sign_in", "Sign in", status=401, next=wanted, failed=True)
        self._sessions.end(_cookie(request))
        response = RedirectResponse(wanted, 303)
        response.headers["Set-Cookie"] = cookie_header(self._sessions.begin(token))
        return response

    async def end_session(self, request: Request) -> Response:
        """Sign out."""
        check_same_origin(request)
        self._sessions.end(_cookie(request))
        response = RedirectResponse("/sign-in", 303)
        response.headers["Set-Cookie"] = cookie_header("")
        return response

    async def static(self, request: Request) -> Response:
        """Return a static file."""
        return static_response(request.url.path.rpartition("/")[2])


def _moves_to(wanted: State, *, confirm: bool) -> Callable[[Views, Request], Awaitable[Response]]:
    """Return the form that changes the state of a plan, perhaps only if its box was ticked."""

    async def move(views: Views, request: Request) -> Response:
        if confirm and (await read_form(request)).text("confirm") != "yes":
            raise Refusal(problems.BAD_PARAMETER.about("confirm"))
        await views._handlers.move(request, wanted)
        return _to_survey(request)

    return move


_ONE, _CROWD = "/surveys/{plan_id}", "/surveys/{plan_id}/crowds/{number}"

PAGES: tuple[Operation, ...] = tuple(
    Operation(method, path, role, summary, handler, media=("text/html",))  # type: ignore[arg-type]
    for method, path, role, summary, handler in (
        ("GET", "/", "viewer", "All surveys.", Views.home),
        ("GET", _ONE, "viewer", "One survey and its crowds.", Views.survey),
        ("POST", f"{_ONE}/publish", "admin", "Publish or resume.", Views.publish),
        ("POST", f"{_ONE}/origins", "admin", "Set the origins of web pages.", Views.origins),
        ("POST", f"{_ONE}/pause", "admin", "Pause.", _moves_to("paused", confirm=False)),
        ("POST", f"{_ONE}/close", "admin", "Close.", _moves_to("closed", confirm=True)),
        (
            "POST",
            f"{_ONE}/destroy",
            "admin",
            "Destroy all collected data.",
            _moves_to("destroyed", confirm=True),
        ),
        ("GET", _CROWD, "analyst", "A released crowd.", Views.release),
        ("POST", f"{_CROWD}/texts", "analyst", "Find texts.", Views.texts),
        ("GET", f"{_ONE}/trend", "analyst", "A question over crowds.", Views.trend),
        ("GET", f"{_ONE}/difference", "analyst", "Two crowds.", Views.difference),
        ("GET", "/drafts", "admin", "The form for a draft.", Views.drafts),
        ("POST", "/drafts", "admin", "Add a draft.", Views.add_draft),
        ("GET", "/planner", "viewer", "Compute the promise of a plan.", Views.planner),
        ("POST", "/planner", "viewer", "Compute a plan.", Views.plan),
        ("GET", "/tokens", "admin", "Tokens.", Views.tokens),
        ("POST", "/tokens", "admin", "Make a token.", Views.make_token),
        ("POST", "/tokens/{token_id}/revoke", "admin", "Revoke a token.", Views.revoke_token),
        ("GET", "/actions", "admin", "Changes, with who made them.", Views.actions),
        ("GET", "/backups", "admin", "Backups.", Views.backups),
        ("POST", "/backups", "admin", "Make a backup.", Views.make_backup),
        ("GET", "/sign-in", None, "The form that takes a token.", Views.sign_in),
        ("POST", "/sign-in", None, "Sign in.", Views.begin_session),
        ("POST", "/sign-out", None, "Sign out.", Views.end_session),
        ("GET", "/static/console.css", None, "The style of all pages.", Views.static),
        ("GET", "/static/console.js", None, "Sliders for the planner.", Views.static),
        ("GET", "/static/icon.svg", None, "The icon of all pages.", Views.static),
    )
)
"""Every page, and every form on one."""


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


def _order(record: PlanRecord) -> tuple[int, str, str]:
    states = ("published", "paused", "draft", "closed", "destroyed")
    return states.index(record.state), record.plan.survey.name, record.plan.id


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


def _cookie(request: Request) -> str:
    return cookie(dict(request.scope["headers"]), COOKIE)
