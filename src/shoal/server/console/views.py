"""The console's pages: which there are, who may see them, and what each is made of.

`PAGES` lists them as `OPERATIONS` lists what programs ask for. A page shows what the API answers,
and a form does what the API does, by the same functions. Every change is a POST from
one of these pages, and is answered with the way to a page that shows the result.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.markup import Markup
from shoal.server.console import admin_pages, crowd_pages, planner_pages, survey_pages
from shoal.server.console.forms import read_form
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
from shoal.server.console.layout import frame, icon, script, style, turning
from shoal.server.console.planning import EXAMPLE, LARGEST_WISH, form_wish
from shoal.server.console.searches import read_search
from shoal.server.core import problems
from shoal.server.core.auth import LARGEST_DOCUMENT, check_same_origin, token_of
from shoal.server.core.http import Refusal, cookie
from shoal.server.core.openapi import Operation
from shoal.server.core.problems import Problem
from shoal.server.core.tokens import COOKIE, Sessions, Token, cookie_header
from shoal.server.storage.records import Declaration, PlanRecord, State
from shoal.support.files import strict_json

if TYPE_CHECKING:
    from shoal.server.collector.service import Collector

__all__ = ["PAGES", "Pages", "refused_page"]

SURVEYS, CROWDS_OF_ONE = 20, 20
"""Surveys on a page, and crowds on the page of one."""

_PATH = re.compile(r"/(?!/)[A-Za-z0-9/?=&._%~-]*")
"""Where somebody may be led after signing in: a page of this console."""


class Pages:
    """One method for each page: a request to its HTML."""

    def __init__(self, collector: Collector, handlers: Handlers, sessions: Sessions) -> None:
        self._collector, self._handlers, self._sessions = collector, handlers, sessions

    # Looking

    async def home(self, request: Request) -> Response:
        """Show all surveys that a token is for."""
        token, page = token_of(request), PAGE.read(request)
        records = sorted(self._handlers.plans_of(request), key=_order)
        shown = records[page * SURVEYS : (page + 1) * SURVEYS]
        surveys = [await self._survey(record) for record in shown]
        may_add = token.role == "admin" and token.plans is None
        parts = survey_pages.home_parts(surveys, may_add)
        more = len(records) > (page + 1) * SURVEYS
        return _page("Surveys", [*parts, *turning("/?", page, more)], token)

    async def _survey(self, record: PlanRecord) -> survey_pages.Survey:
        store, plan_id = self._collector.store, record.plan.id
        counts = await self._collector.in_store(store.crowd_counts, plan_id)
        crowds = []
        if counts.get("open"):
            # One for each open window, and none of them older than the last few crowds.
            last = await self._collector.in_store(store.some_crowds, plan_id, 0, CROWDS_OF_ONE)
            crowds = [crowd for crowd in reversed(last) if crowd.state == "open"]
        return survey_pages.Survey(record, counts, crowds)

    async def survey(self, request: Request) -> Response:
        """Show one survey and its crowds."""
        record, token, page = self._handlers.plan_of(request), token_of(request), PAGE.read(request)
        looks, plan = token.may("analyst"), record.plan
        skip = page * CROWDS_OF_ONE
        store = self._collector.store
        crowds = await self._collector.in_store(store.some_crowds, plan.id, skip, CROWDS_OF_ONE + 1)
        shown = crowds[:CROWDS_OF_ONE]
        sealed = [one.number for one in shown if looks and one.state == "sealed"]
        screenings = await self._handlers.sealed.screenings(plan, sealed)
        lines = [survey_pages.CrowdLine(one, screenings.get(one.number)) for one in shown]
        parts = survey_pages.survey_parts(
            await self._survey(record), lines, may_look=looks, may_act=token.role == "admin"
        )
        more = turning(f"/surveys/{plan.id}?", page, len(crowds) > CROWDS_OF_ONE)
        return _page(plan.survey.name, [*parts, *more], token)

    async def crowd(self, request: Request) -> Response:
        """Show a sealed crowd."""
        return await self._crowd(request, {})

    async def _crowd(self, request: Request, texts: dict[str, object]) -> Response:
        plan, number = self._handlers.plan_of(request).plan, NUMBER.read(request)
        level, kind = LEVEL.read(request), INTERVAL.read(request)
        sealed = await self._handlers.sealed.crowd(plan, number)
        record = await self._handlers.sealed.record(plan, number)
        document = await self._handlers.sealed.results(sealed, level, kind)  # type: ignore[arg-type]
        screening = await self._handlers.sealed.screening(sealed)
        parts = crowd_pages.crowd_page_parts(
            plan, record, document | {"texts": document["texts"] | texts}, screening.to_json()
        )
        return _page(f"{plan.survey.name}, crowd {number}", parts, token_of(request))

    async def texts(self, request: Request) -> Response:
        """Show a sealed crowd with the texts that were found among candidates."""
        form = await read_form(request, LARGEST_DOCUMENT)
        try:
            rate = float(form.text("fdr") or "0.05")
        except ValueError:
            raise Refusal(problems.BAD_PARAMETER.about("fdr")) from None
        lines = [line.strip() for line in form.text("candidates").splitlines()]
        wanted = {
            "candidates": [line for line in lines if line],
            "question": form.text("question") or None,
            "fdr": rate,
        }
        plan, number = self._handlers.plan_of(request).plan, NUMBER.read(request)
        sealed = await self._handlers.sealed.crowd(plan, number)
        found = await self._handlers.decoded(sealed, *read_search(wanted))
        return await self._crowd(request, {found["question"]: found})

    async def trend(self, request: Request) -> Response:
        """Show how a question changes over crowds."""
        record = self._handlers.plan_of(request)
        document = await self._handlers.trend_of(request)
        (question,) = document["questions"]
        parts = crowd_pages.trend_page_parts(record, question, document, CROWDS.read(request))
        return _page(f"{record.plan.survey.name}: {question}", parts, token_of(request))

    async def difference(self, request: Request) -> Response:
        """Show how two crowds differ."""
        record, token = self._handlers.plan_of(request), token_of(request)
        document = await self._handlers.difference_of(request)
        wanted = OTHER.text(request)
        other = (self._collector.plan(wanted) if wanted else None) or record
        others = [one for one in self._handlers.plans_of(request) if one.certificate is not None]
        parts = crowd_pages.difference_page_parts(record, other, document, others)
        return _page(f"{record.plan.survey.name}: two crowds", parts, token)

    # Acting

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

    async def pause(self, request: Request) -> Response:
        """Pause a plan."""
        await self._handlers.move(request, "paused")
        return _to_survey(request)

    async def close(self, request: Request) -> Response:
        """Close a plan, if the box was ticked."""
        return await self._confirmed_move(request, "closed")

    async def destroy(self, request: Request) -> Response:
        """Destroy what was collected, if the box was ticked."""
        return await self._confirmed_move(request, "destroyed")

    async def _confirmed_move(self, request: Request, wanted: State) -> Response:
        if not (await read_form(request)).confirmed():
            raise Refusal(problems.BAD_PARAMETER.about("confirm"))
        await self._handlers.move(request, wanted)
        return _to_survey(request)

    async def drafts(self, request: Request) -> Response:
        """Show the form that adds a draft."""
        return _page("Add a draft", admin_pages.draft_parts(), token_of(request))

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

    # Planning

    async def planner(self, request: Request) -> Response:
        """Show the planner's form."""
        fields = {"survey": EXAMPLE, "crowd": "10000", "epsilon": "1", "delta": "1e-6",
                  "share": "0.01", "view": "reports"}  # fmt: skip
        parts = planner_pages.planner_parts(fields)
        return _page("Planner", parts, token_of(request), scripted=True)

    async def plan(self, request: Request) -> Response:
        """Show what a plan would promise; nothing is stored."""
        token, form = token_of(request), await read_form(request, LARGEST_WISH)
        names = ("survey", "crowd", "epsilon", "delta", "share", "view", "compare")
        fields = {name: form.text(name) for name in names}
        try:
            document = await self._handlers.prospect_of(request, form_wish(fields))
        except InputError as error:
            parts = planner_pages.planner_parts(fields, str(error))
            return _page("Planner", parts, token, 422, scripted=True)
        may_add = token.role == "admin" and token.plans is None
        parts = [
            *planner_pages.planner_parts(fields),
            *planner_pages.prospect_parts(document, may_add),
        ]
        return _page("Planner", parts, token, scripted=True)

    # Running it

    async def tokens(self, request: Request) -> Response:
        """List tokens."""
        return self._tokens(request)

    def _tokens(self, request: Request, made: tuple[Token, str] | None = None) -> Response:
        kept = self._collector.tokens
        listed = [(token, kept.last_used(token)) for token in kept]
        parts = admin_pages.token_parts(listed, self._handlers.plans_of(request), made)
        return _page("Tokens", parts, token_of(request))

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
        try:
            token = Token.from_request(wanted)
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER) from error
        secret = await self._handlers.make_token(request, token)
        return self._tokens(request, (token, secret))

    async def revoke_token(self, request: Request) -> Response:
        """Revoke a token."""
        await self._handlers.revoke_token(request)
        return RedirectResponse("/tokens", 303)

    async def actions(self, request: Request) -> Response:
        """List what people did."""
        lines, page = await self._handlers.actions_of(request), PAGE.read(request)
        names = {one.plan.id: one.plan.survey.name for one in self._handlers.plans_of(request)}
        more = turning("/actions?", page, len(lines) == PAGE_LENGTH)
        parts = [*admin_pages.action_parts(lines, names), *more]
        return _page("What was done", parts, token_of(request))

    async def backups(self, request: Request) -> Response:
        """List backups."""
        parts = admin_pages.backup_parts(self._collector.backups())
        return _page("Backups", parts, token_of(request))

    async def make_backup(self, request: Request) -> Response:
        """Make a backup."""
        await self._handlers.back_up(request)
        return RedirectResponse("/backups", 303)

    # Signing in

    async def sign_in(self, request: Request) -> Response:
        """Show the form that takes a token."""
        wanted = request.query_params.get("next", "/")
        return _page("Sign in", admin_pages.sign_in_parts(_local(wanted), failed=False))

    async def begin_session(self, request: Request) -> Response:
        """Sign somebody in who shows a token, with a new cookie."""
        check_same_origin(request)
        form = await read_form(request)
        where = _local(form.text("next") or "/")
        token = self._collector.tokens.find(form.text("token"))
        if token is None or not token.may("viewer"):
            return _page("Sign in", admin_pages.sign_in_parts(where, failed=True), status=401)
        self._sessions.end(_cookie(request))
        response = RedirectResponse(where, 303)
        response.headers["Set-Cookie"] = cookie_header(self._sessions.begin(token))
        return response

    async def end_session(self, request: Request) -> Response:
        """Sign somebody out."""
        check_same_origin(request)
        self._sessions.end(_cookie(request))
        response = RedirectResponse("/sign-in", 303)
        response.headers["Set-Cookie"] = cookie_header("")
        return response

    async def style(self, request: Request) -> Response:
        """Return the style of all pages."""
        return _static(style(), "text/css")

    async def script(self, request: Request) -> Response:
        """Return the script of the planner's sliders."""
        return _static(script(), "text/javascript")

    async def icon(self, request: Request) -> Response:
        """Return the picture beside a page's title."""
        return _static(icon(), "image/svg+xml")


_ONE, _CROWD = "/surveys/{plan_id}", "/surveys/{plan_id}/crowds/{number}"

PAGES: tuple[Operation, ...] = tuple(
    Operation(method, path, role, summary, handler, media=("text/html",))  # type: ignore[arg-type]
    for method, path, role, summary, handler in (
        ("GET", "/", "viewer", "All surveys.", Pages.home),
        ("GET", _ONE, "viewer", "One survey and its crowds.", Pages.survey),
        ("POST", f"{_ONE}/publish", "admin", "Publish or resume.", Pages.publish),
        ("POST", f"{_ONE}/origins", "admin", "Set the origins of web pages.", Pages.origins),
        ("POST", f"{_ONE}/pause", "admin", "Pause.", Pages.pause),
        ("POST", f"{_ONE}/close", "admin", "Close.", Pages.close),
        ("POST", f"{_ONE}/destroy", "admin", "Destroy all collected data.", Pages.destroy),
        ("GET", _CROWD, "analyst", "A sealed crowd.", Pages.crowd),
        ("POST", f"{_CROWD}/texts", "analyst", "Find texts.", Pages.texts),
        ("GET", f"{_ONE}/trend", "analyst", "A question over crowds.", Pages.trend),
        ("GET", f"{_ONE}/difference", "analyst", "Two crowds.", Pages.difference),
        ("GET", "/drafts", "admin", "The form for a draft.", Pages.drafts),
        ("POST", "/drafts", "admin", "Add a draft.", Pages.add_draft),
        ("GET", "/planner", "viewer", "What a plan would promise.", Pages.planner),
        ("POST", "/planner", "viewer", "Compute a plan.", Pages.plan),
        ("GET", "/tokens", "admin", "Tokens.", Pages.tokens),
        ("POST", "/tokens", "admin", "Make a token.", Pages.make_token),
        ("POST", "/tokens/{token_id}/revoke", "admin", "Revoke a token.", Pages.revoke_token),
        ("GET", "/actions", "admin", "What people did.", Pages.actions),
        ("GET", "/backups", "admin", "Backups.", Pages.backups),
        ("POST", "/backups", "admin", "Make a backup.", Pages.make_backup),
        ("GET", "/sign-in", None, "The form that takes a token.", Pages.sign_in),
        ("POST", "/sign-in", None, "Sign in.", Pages.begin_session),
        ("POST", "/sign-out", None, "Sign out.", Pages.end_session),
        ("GET", "/static/console.css", None, "The style of all pages.", Pages.style),
        ("GET", "/static/console.js", None, "Sliders for the planner.", Pages.script),
        ("GET", "/static/icon.svg", None, "The picture beside a page's title.", Pages.icon),
    )
)
"""Every page, and every form on one."""


def refused_page(request: Request, problem: Problem) -> Response:
    """Return the page of a problem; whoever is not signed in is led to where they can."""
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        query = f"?{request.url.query}" if request.url.query else ""
        wanted = quote(f"{request.url.path}{query}", safe="")
        return RedirectResponse(f"/sign-in?next={wanted}", 303)
    token = getattr(request.state, "token", None)
    response = _page("Not done", admin_pages.refusal_parts(problem), token, problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def _page(
    title: str,
    parts: list[Markup],
    token: Token | None = None,
    status: int = 200,
    *,
    scripted: bool = False,
) -> Response:
    return HTMLResponse(frame(title, parts, token, scripted=scripted), status)


def _static(content: bytes, media: str) -> Response:
    """Return a file that may be kept for ever, since its address changes with its content."""
    cache = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=cache, media_type=media)


def _order(record: PlanRecord) -> tuple[int, str, str]:
    """Return where a survey stands in the list: those that take reports first."""
    states = ("published", "paused", "draft", "closed", "destroyed")
    return states.index(record.state), record.plan.survey.name, record.plan.id


def _to_survey(request: Request) -> Response:
    return RedirectResponse(f"/surveys/{request.path_params['plan_id']}", 303)


def _local(path: str) -> str:
    """Return an address of this console, or its first page for anything else."""
    return path if _PATH.fullmatch(path) else "/"


def _cookie(request: Request) -> str:
    return cookie(dict(request.scope["headers"]), COOKIE)
