"""What the API and the pages share: plans, changes, releases and their results.

A release never changes, so results are cached. They are computed from releases and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shoal.analysis.estimates import estimate
from shoal.analysis.screening import Screening, screen
from shoal.analysis.tally import Tally
from shoal.analysis.text import decode
from shoal.analysis.trends import crowd_difference, trend
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.formatting import slug
from shoal.reports.sections import results
from shoal.server.console import schemas
from shoal.server.console.planner import Planner
from shoal.server.console.schemas import Json
from shoal.server.core import problems
from shoal.server.core.http import Refusal, check_origins
from shoal.server.core.observability import LOG
from shoal.server.core.openapi import Endpoint, ServiceHandlers, read_as
from shoal.server.core.tokens import Action, Sessions, Token, token_of
from shoal.server.storage.records import (
    CrowdRecord,
    Declaration,
    PlanRecord,
    Signature,
    State,
    UnverifiedError,
)

if TYPE_CHECKING:
    from shoal.server.console.builder import Draft
    from shoal.server.core.administration import Administration

PAGE_LENGTH = 50
"""Actions on a page."""
RECENT = 12
"""Released crowds of a survey that the first page follows."""
_CACHED = 256
"""Documents of each kind that are cached."""


class CrowdRelease(NamedTuple):
    """The release of a crowd: its tally, and its content as stored and signed."""

    plan: Plan
    number: int
    tally: Tally
    content: bytes
    unreadable: int | None
    signature: Signature


class RecentResults(NamedTuple):
    """The results of the last released crowds, and the traces of fake reports in the last one."""

    numbers: Sequence[int] = ()
    results: Sequence[Json] = ()
    screening: Screening | None = None


class Console(ServiceHandlers):
    """The collector or analyzer of a console; the handlers of the API and the pages use it."""

    def __init__(self, collector: Administration) -> None:
        super().__init__(collector)
        self.collector, self.store = collector, collector.store
        self.in_store, self.compute = collector.in_store, collector.compute
        self.sessions = Sessions(collector.tokens)
        self._planner = Planner()
        self._recent: dict[str, RecentResults] = {}

    # Addresses

    def path_of(self, plan: Plan) -> str:
        """Return the path of a plan's page: its survey's name, with its id if others have it."""
        plans = self.collector.plans.values()
        several = sum(one.plan.survey.name == plan.survey.name for one in plans) > 1
        return f"/surveys/{_long_slug(plan) if several else slug(plan.survey.name)}"

    def plans_at(self, address: str) -> list[PlanRecord]:
        """Return the plans with this name in the paths of their pages; with an id it is one."""
        plans = self.collector.plans.values()
        return [
            one for one in plans if address in (slug(one.plan.survey.name), _long_slug(one.plan))
        ]

    def by_name(self, respond: Endpoint) -> Endpoint:
        """Return an endpoint whose path has the name of a survey in place of a plan's id."""

        async def respond_by_name(request: Request) -> Response:
            # The token is checked for the plan that the name stands for, or else for no plan.
            found = self.plans_at(request.path_params["survey"])
            request.path_params["plan_id"] = found[0].plan.id if len(found) == 1 else "unknown"
            return await respond(request)

        return respond_by_name

    # Plans

    def plans_of(self, request: Request) -> list[PlanRecord]:
        token = token_of(request)
        return [record for record in self.collector.plans.values() if token.covers(record.plan.id)]

    def plan_of(self, request: Request) -> PlanRecord:
        record = self.collector.plans.get(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def add_draft(self, request: Request, document: object) -> PlanRecord:
        try:
            plan = await self.compute(Plan.from_json, document)
        except (InputError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        is_new = self.collector.plans.get(plan.id) is None
        _refuse(await self.collector.add_plan(plan))
        if is_new:
            await self._record(request, "draft added", plan.id)
        record = self.collector.plans.get(plan.id)
        assert record is not None
        return record

    async def _record(self, request: Request, action: str, subject: str = "") -> None:
        await self.in_store(self.collector.actions.add, token_of(request).label, action, subject)

    async def move(
        self, request: Request, wanted: State, declaration: Declaration | None = None
    ) -> None:
        plan_id, by = request.path_params["plan_id"], token_of(request).label
        _refuse(await self.collector.move_plan(plan_id, wanted, declaration, by=by))

    async def set_origins(self, request: Request, origins: Sequence[object]) -> None:
        plan_id, by = self.plan_of(request).plan.id, token_of(request).label
        try:
            checked = check_origins(origins)
        except InputError as error:
            raise Refusal(problems.BAD_ORIGINS) from error
        await self.collector.set_origins(plan_id, checked, by=by)

    async def set_public(self, request: Request, public: bool) -> None:
        plan_id, by = self.plan_of(request).plan.id, token_of(request).label
        _refuse(await self.collector.set_public(plan_id, public, by=by))

    async def prospect(self, request: Request, wanted: object) -> Json:
        """Return the promise of a plan; nothing is stored."""
        return await self._planner.prospect(wanted, token_of(request).id, _hung_up(request))

    async def draft(self, request: Request, draft: Draft | str) -> Json:
        """Return a draft of a survey with its TOML and its mistakes; nothing is stored."""
        return await self._planner.draft(draft, token_of(request).id, _hung_up(request))

    # Releases

    async def release_of(self, request: Request) -> CrowdRelease:
        return await self.release(self.plan_of(request).plan, schemas.NUMBER.read(request))

    async def release(self, plan: Plan, number: int) -> CrowdRelease:
        release = await self.in_store(self.store.signed_release, plan.id, number)
        if release is None:
            crowd = await self._crowd(plan, number)
            is_gone = crowd.state in ("discarded", "destroyed")
            raise Refusal(problems.CROWD_GONE if is_gone else problems.CROWD_OPEN)
        return CrowdRelease(plan, number, _read_tally(plan, release.content), *release)

    async def _crowd(self, plan: Plan, number: int) -> CrowdRecord:
        found = await self.in_store(self.store.crowd, plan.id, number)
        if found is None:
            raise Refusal(problems.UNKNOWN_CROWD)
        return found

    async def screening(self, release: CrowdRelease) -> Screening:
        return await self.compute(_screening, release.plan, release.content)

    async def screenings(self, plan: Plan, numbers: Sequence[int]) -> dict[int, Screening]:
        """Return the traces of fake reports in several released crowds, by number."""
        contents = await self._verified(plan, numbers)
        return await self.compute(
            lambda: {number: _screening(plan, content) for number, content in contents.items()}
        )

    async def _verified(self, plan: Plan, numbers: Sequence[int]) -> dict[int, bytes]:
        """Return the contents of releases by number, without those that cannot be used."""
        # A request for one that does not match its signature is refused.

        def read() -> dict[int, bytes]:
            found = {}
            for number in numbers:
                with suppress(UnverifiedError):
                    found[number] = self.store.release(plan.id, number)
            return {number: content for number, content in found.items() if content is not None}

        return await self.in_store(read)

    async def recent_results(self, plan: Plan) -> RecentResults:
        """Return the results of the last released crowds; they are computed once for each."""
        numbers = await self._last_released(plan, RECENT)
        known = self._recent.get(plan.id)
        if known is None or known.numbers != numbers:
            contents = list((await self._verified(plan, numbers)).values())

            def work() -> RecentResults:
                results = [_results(plan, content, 0.95, "exact") for content in contents]
                screening = _screening(plan, contents[-1]) if contents else None
                return RecentResults(numbers, results, screening)

            known = self._recent[plan.id] = await self.compute(work)
        return known

    async def results_of(self, request: Request) -> tuple[CrowdRelease, Json]:
        level, interval = schemas.LEVEL.read(request), schemas.INTERVAL.read(request)
        release = await self.release_of(request)
        content = release.content
        return release, await self.compute(_results, release.plan, content, level, interval)

    async def trend(self, request: Request) -> Json:
        plan, level = self.plan_of(request).plan, schemas.LEVEL.read(request)
        asked = [one.name for one in plan.survey if one.kind != "text"]
        question = schemas.QUESTION.text(request) or (asked[0] if asked else "")
        if question not in asked:
            raise Refusal(problems.UNKNOWN_QUESTION.about("question"))
        numbers = await self._last_released(plan, schemas.CROWDS.read(request))
        if len(numbers) < 2:
            raise Refusal(problems.TOO_FEW_CROWDS)
        contents = tuple([(await self.release(plan, number)).content for number in numbers])
        return await self.compute(_trend, plan, question, contents, level)

    async def _last_released(self, plan: Plan, length: int) -> list[int]:
        return await self.in_store(self.store.released_numbers, plan.id, length)

    async def difference(self, request: Request) -> Json:
        first, second = schemas.FIRST.read_optional(request), schemas.SECOND.read_optional(request)
        return await self.crowd_difference(
            request, first, second, self.other_plan(request, schemas.OTHER.text(request))
        )

    async def crowd_difference(
        self, request: Request, first: int | None, second: int | None, other: PlanRecord | None
    ) -> Json:
        """Return how a crowd of a request's plan differs from one of it or of another plan."""
        record, level = self.plan_of(request), schemas.LEVEL.read(request)
        other = other or record
        last = await self._last_released(record.plan, 2)
        theirs = last if other is record else await self._last_released(other.plan, 1)
        if not first and last:
            first = last[-1]
        if not second and theirs:
            second = theirs[-2] if other is record and len(theirs) > 1 else theirs[-1]
        if not first or not second:
            raise Refusal(problems.TOO_FEW_CROWDS)
        one, two = await self.release(record.plan, first), await self.release(other.plan, second)
        sides = (one.plan, one.content), (two.plan, two.content)
        try:
            return await self.compute(_difference, *sides, level)
        except InputError as error:
            raise Refusal(problems.NOTHING_IN_COMMON) from error

    def other_plan(self, request: Request, wanted: str | None) -> PlanRecord | None:
        """Return the plan of the second crowd, if another one is wanted."""
        if not wanted:
            return None
        record = self.collector.plans.get(wanted)
        if record is None or not token_of(request).covers(wanted):
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def decode(self, release: CrowdRelease, search: schemas.TextSearch) -> Json:
        """Return which candidates a crowd answered; refuse a question that cannot be decoded."""
        texts = [one.name for one in release.plan.survey if one.kind == "text"]
        if not texts:
            raise Refusal(problems.NO_TEXT)
        if search.question not in (None, *texts) or (search.question is None and len(texts) > 1):
            raise Refusal(problems.UNKNOWN_QUESTION.about("question"))
        options = msgspec.structs.asdict(search)
        candidates = options.pop("candidates")

        def work() -> Json:
            return decode(release.plan, release.tally, candidates, **options).to_json()

        try:
            return await self.compute(work)
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER.about("candidates")) from error

    # Tokens, actions, backups

    async def make_token(self, request: Request, document: object) -> tuple[Token, str]:
        """Make the token that a document describes; return it with its secret."""
        wanted = read_as(schemas.NewToken, document)
        try:
            token = Token.new(**msgspec.structs.asdict(wanted))
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER) from error
        secret = await self.in_store(self.collector.tokens.add, token)
        await self._record_token(request, "token made", token)
        return token, secret

    async def revoke_token(self, request: Request) -> None:
        wanted, tokens = request.path_params["token_id"], self.collector.tokens
        gone = next((token for token in tokens if token.id == wanted), None)
        _refuse(await self.in_store(tokens.remove, wanted))
        assert gone is not None
        await self._record_token(request, "token revoked", gone)

    async def _record_token(self, request: Request, event: str, token: Token) -> None:
        about = {"token": token.id, "role": token.role, "label": token.label}
        LOG.info(event, extra={"facts": about | {"by": token_of(request).label}})
        await self._record(request, f"{event}: {token.role}, {token.label}", token.id)

    async def actions_of(self, request: Request) -> list[Action]:
        skip = schemas.PAGE.read(request) * PAGE_LENGTH
        return await self.in_store(self.collector.actions.last, skip, PAGE_LENGTH)

    async def back_up(self, request: Request) -> str:
        made = await self.collector.make_backup(by=token_of(request).label)
        if not isinstance(made, str):
            raise Refusal(made)
        return made

    async def accept_clock(self, request: Request) -> object:
        """Trust the clock, and store who said so."""
        line = await super().accept_clock(request)
        await self._record(request, "clock accepted")
        return line


def _long_slug(plan: Plan) -> str:
    return f"{slug(plan.survey.name)}~{plan.id[:12]}"


def _hung_up(request: Request) -> asyncio.Event | None:
    """Return what is set when the client has closed the connection."""
    event: asyncio.Event | None = request.scope.get("state", {}).get("hung_up")
    return event


def _refuse(problem: problems.Problem | None) -> None:
    if problem is not None:
        raise Refusal(problem)


@lru_cache(_CACHED)
def _read_tally(plan: Plan, release: bytes) -> Tally:
    return Tally.from_json(json.loads(release), plan)


@lru_cache(4096)
def _screening(plan: Plan, release: bytes) -> Screening:
    return screen(plan, _read_tally(plan, release))


@lru_cache(_CACHED)
def _results(plan: Plan, release: bytes, level: float, interval: Any) -> Json:
    estimates = estimate(plan, _read_tally(plan, release))
    return {"estimates": estimates.to_json(level, interval), **results(estimates, level)}


@lru_cache(_CACHED)
def _trend(plan: Plan, question: str, releases: tuple[bytes, ...], level: float) -> Json:
    tallies = [_read_tally(plan, release) for release in releases]
    return trend(plan, tallies, level).to_json([question])


@lru_cache(_CACHED)
def _difference(first: tuple[Plan, bytes], second: tuple[Plan, bytes], level: float) -> Json:
    one, two = ((plan, _read_tally(plan, release)) for plan, release in (first, second))
    return crowd_difference(one, two, level).to_json()
