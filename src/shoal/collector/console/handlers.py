"""What each operation of the console does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.agreement.plan import Plan
from shoal.analysis.estimating import estimate
from shoal.analysis.intervals import IntervalKind
from shoal.analysis.screening import Screening, screen
from shoal.analysis.tallying import Tally
from shoal.collector import problems
from shoal.collector.console import pages
from shoal.collector.console.errors import Refusal
from shoal.collector.console.parameters import Choice, Integer, Parameter, Probability
from shoal.collector.console.requests import read_document, token_of
from shoal.collector.console.responses import (
    FORMS,
    crowd_line,
    json_answer,
    plan_line,
    report_page,
    signed_answer,
)
from shoal.collector.console.service_handlers import ServiceHandlers
from shoal.collector.console.tokens import Token
from shoal.collector.intake.records import PlanRecord
from shoal.collector.logs import LOG
from shoal.collector.plan_states import Declaration, State
from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.collector.service import Collector

__all__ = ["Handlers"]

T = TypeVar("T")

PLAN = Parameter("plan_id", "path", "The plan's id.")
NUMBER = Integer("number", "path", "The crowd's number.", 1, 2**53, problem=problems.UNKNOWN_CROWD)
TOKEN = Parameter("token_id", "path", "The token's id.")
FORMAT = Choice("format", "The format of the answer.", tuple(FORMS))
INTERVAL = Choice("interval", "The kind of interval.", get_args(IntervalKind))
LEVEL = Probability("level", "The confidence level.", 0.95)
HONEST = Choice(
    "honest",
    "The honest part of a crowd: what the plan says, or everybody.",
    ("plan", "all"),
)
NEVER_PUBLISHED = Choice(
    "never_published",
    "After a restore: states that the plan was not published before.",
    ("no", "yes"),
)
PAGE = Integer("page", "query", "The number of the page, from 0.", 0, 10**9 - 1, 0)
ONE_PLAN = Parameter("plan", "query", "Show only the crowds of this plan.")


class _SealedCrowd(NamedTuple):
    """A sealed crowd, with its release as it is stored."""

    plan: Plan
    number: int
    tally: Tally
    release: bytes
    unreadable: int | None = None


class Handlers(ServiceHandlers):
    """One method for each operation: a request to its answer."""

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._collector = collector
        self._report_page = lru_cache(16)(report_page)
        self._screenings: dict[tuple[str, int], Screening] = {}

    # Plans

    async def plans(self, request: Request) -> Response:
        """List all plans."""
        return json_answer({"plans": [plan_line(record) for record in self._plans(request)]})

    def _plans(self, request: Request) -> list[PlanRecord]:
        """Return the plans that a request's token is for."""
        token = token_of(request)
        return [record for record in self._collector.plans() if token.covers(record.plan.id)]

    async def plan(self, request: Request) -> Response:
        """Show one plan."""
        record = self._plan(request)
        more = {"observers": record.observers, "plan": record.document}
        return json_answer(plan_line(record) | more)

    async def add_plan(self, request: Request) -> Response:
        """Add a plan as a draft."""
        try:
            document = await read_document(request)
            plan = await self._collector.compute(Plan.from_json, document)
        except (InputError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        problem = await self._collector.add_plan(plan)
        if problem is not None:
            raise Refusal(problem)
        record = self._collector.plan(plan.id)
        assert record is not None
        return json_answer(plan_line(record), 201)

    async def publish(self, request: Request) -> Response:
        """Publish a draft, or resume after a pause."""
        declaration = Declaration(
            all_honest=HONEST.read(request) == "all",
            never_published=NEVER_PUBLISHED.read(request) == "yes",
        )
        return await self._move(request, "published", declaration)

    async def pause(self, request: Request) -> Response:
        """Pause: accept no reports for a while."""
        return await self._move(request, "paused")

    async def close(self, request: Request) -> Response:
        """Close a plan."""
        return await self._move(request, "closed")

    async def destroy(self, request: Request) -> Response:
        """Destroy all collected data."""
        return await self._move(request, "destroyed")

    async def _move(
        self, request: Request, wanted: State, declaration: Declaration | None = None
    ) -> Response:
        plan_id = request.path_params["plan_id"]
        by = token_of(request).label
        problem = await self._collector.move_plan(plan_id, wanted, declaration, by=by)
        if problem is not None:
            raise Refusal(problem)
        return json_answer(plan_line(self._plan(request)))

    async def certificate(self, request: Request) -> Response:
        """Show the certificate a plan was published with."""
        record = self._plan(request)
        if record.certificate is None:
            raise Refusal(problems.WRONG_STATE)
        return signed_answer(record.certificate, self._collector.signer)

    # Crowds

    async def progress(self, request: Request) -> Response:
        """Show how full the open crowd is."""
        record = self._plan(request)
        if record.plan.parties is not None:  # only the relay knows
            return json_answer({"state": record.state, "tenths": None})
        tenths = await self._collector.in_store(self._collector.store.progress, record.plan.id)
        return json_answer({"state": record.state, "tenths": tenths})

    async def crowds(self, request: Request) -> Response:
        """List the crowds of a plan."""
        record = self._plan(request)
        crowds = await self._collector.in_store(self._collector.store.crowds, record.plan.id)
        return json_answer({"crowds": [crowd_line(crowd) for crowd in crowds]})

    async def crowd(self, request: Request) -> Response:
        """Show a sealed crowd."""
        crowd = await self._sealed_crowd(self._plan(request).plan, NUMBER.read(request))
        screening = await self._screening(crowd.plan, crowd.tally, crowd.number)
        return json_answer(
            {
                "plan": crowd.plan.id,
                "number": crowd.number,
                "state": "sealed",
                "reports": crowd.tally.reports,
                **({} if crowd.unreadable is None else {"unreadable": crowd.unreadable}),
                "sha256": hashlib.sha256(crowd.release).hexdigest(),
                "signature": self._collector.signer.sign(crowd.release),
                "screening": screening.to_json(),
                "tally": crowd.tally.to_json(),
            }
        )

    async def estimates(self, request: Request) -> Response:
        """Show what a sealed crowd answered."""
        level, interval = LEVEL.read(request), INTERVAL.read(request)
        form = FORMS[FORMAT.read(request)]
        crowd = await self._sealed_crowd(self._plan(request).plan, NUMBER.read(request))

        def answer() -> Response:
            estimates = estimate(crowd.plan, crowd.tally)
            return form(estimates.to_json(level, interval))  # type: ignore[arg-type]

        return await self._collector.compute(answer)

    async def report(self, request: Request) -> Response:
        """Show a sealed crowd as a page."""
        return await self._report_of(self._plan(request).plan, NUMBER.read(request))

    async def latest_report(self, request: Request) -> Response:
        """Show the last sealed crowd as a page."""
        plan = self._plan(request).plan
        crowds = await self._collector.in_store(self._collector.store.crowds, plan.id)
        sealed = [crowd.number for crowd in crowds if crowd.state == "sealed"]
        if not sealed:
            raise Refusal(problems.CROWD_OPEN)
        return await self._report_of(plan, sealed[-1])

    async def _report_of(self, plan: Plan, number: int) -> Response:
        crowd = await self._sealed_crowd(plan, number)
        return HTMLResponse(
            await self._collector.compute(
                self._report_page, crowd.plan, crowd.release, crowd.unreadable
            )
        )

    def _plan(self, request: Request) -> PlanRecord:
        record = self._collector.plan(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def _sealed_crowd(self, plan: Plan, number: int) -> _SealedCrowd:
        """Return a crowd, if it is sealed."""
        store = self._collector.store
        crowds = await self._collector.in_store(store.crowds, plan.id)
        found = {crowd.number: crowd for crowd in crowds}.get(number)
        if found is None:
            raise Refusal(problems.UNKNOWN_CROWD)
        if found.state == "open":
            raise Refusal(problems.CROWD_OPEN)
        release = await self._collector.in_store(store.release, plan.id, number)
        if release is None:
            raise Refusal(problems.CROWD_GONE)
        tally = Tally.from_json(json.loads(release), plan)
        return _SealedCrowd(plan, number, tally, release, found.unreadable)

    async def _screening(self, plan: Plan, tally: Tally, number: int) -> Screening:
        """Return the screening of a sealed crowd, which is computed once."""
        place = (plan.id, number)
        if place not in self._screenings:
            self._screenings[place] = await self._collector.compute(screen, plan, tally)
        return self._screenings[place]

    # Tokens

    async def tokens(self, request: Request) -> Response:
        """List all tokens."""
        return json_answer({"tokens": [token.to_json() for token in self._collector.tokens]})

    async def add_token(self, request: Request) -> Response:
        """Make a token."""
        try:
            token = Token.from_request(await read_document(request))
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER) from error
        secret = await self._collector.in_store(self._collector.tokens.add, token)
        self._tell("token made", request, token)
        return json_answer(token.to_json() | {"token": secret}, 201)

    async def remove_token(self, request: Request) -> Response:
        """Revoke a token."""
        wanted, tokens = request.path_params["token_id"], self._collector.tokens
        gone = next((token for token in tokens if token.id == wanted), None)
        problem = await self._collector.in_store(tokens.remove, wanted)
        if problem is not None:
            raise Refusal(problem)
        assert gone is not None
        self._tell("token revoked", request, gone)
        return Response(status_code=204)

    def _tell(self, event: str, request: Request, token: Token) -> None:
        about = {"token": token.id, "role": token.role, "label": token.label}
        LOG.info(event, extra={"facts": about | {"by": token_of(request).label}})

    # The service itself

    async def home(self, request: Request) -> Response:
        """Show the page for people; what is in a sealed crowd, to those who may look at it."""
        looks = token_of(request).may("analyst")
        page, plan_id = PAGE.read(request), ONE_PLAN.text(request)
        if plan_id is None:
            plans, has_more = _page(self._plans(request), page, pages.PLANS)
            sections = [
                (await self._section(record, looks, 0, pages.CROWDS_OF_EACH)) for record in plans
            ]
            where = "/?"
        else:
            record = self._collector.plan(plan_id)
            if record is None or not token_of(request).covers(plan_id):
                raise Refusal(problems.UNKNOWN_PLAN)
            section = await self._section(record, looks, page, pages.CROWDS_OF_ONE)
            sections, has_more = [section._replace(more=False)], section.more
            where = f"/?plan={plan_id}&"
        newer = f"{where}page={page - 1}" if page else None
        older = f"{where}page={page + 1}" if has_more else None
        return HTMLResponse(pages.home(sections, newer=newer, older=older))

    async def _section(
        self, record: PlanRecord, looks: bool, page: int, length: int
    ) -> pages.Section:
        """Return a page of a plan's crowds, those that are sealed with their screening."""
        plan_id, store, lines = record.plan.id, self._collector.store, []
        crowds = await self._collector.in_store(store.crowds, plan_id)
        shown, more = _page(crowds[::-1], page, length)
        for crowd in shown:
            screening = self._screenings.get((plan_id, crowd.number))
            if looks and screening is None and crowd.state == "sealed":
                sealed = await self._collector.in_store(store.tally, plan_id, crowd.number)
                if sealed is not None:  # it may have been destroyed meanwhile
                    screening = await self._screening(*sealed, crowd.number)
            visible = looks and crowd.state == "sealed"
            lines.append(pages.CrowdLine(crowd, screening if visible else None))
        return pages.Section(record, lines, more)


def _page(rows: Sequence[T], page: int, length: int) -> tuple[Sequence[T], bool]:
    """Return the rows of a page, and whether there are more after them."""
    return rows[page * length : (page + 1) * length], len(rows) > (page + 1) * length
