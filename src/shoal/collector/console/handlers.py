"""What each operation of the console does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.agreement.plan import Plan
from shoal.analysis.estimating import estimate
from shoal.analysis.intervals import IntervalKind
from shoal.analysis.screening import Screening, screen
from shoal.analysis.tallying import Tally
from shoal.collector import problems
from shoal.collector.console import pages
from shoal.collector.console import requests as reading
from shoal.collector.console.errors import Refusal
from shoal.collector.console.metrics import Metrics
from shoal.collector.console.responses import (
    FORMS,
    crowd_line,
    json_answer,
    plan_line,
    report_page,
    token_line,
)
from shoal.collector.console.tokens import Token
from shoal.collector.intake.store import PlanRecord
from shoal.collector.logs import LOG
from shoal.collector.plan_states import Declaration, State
from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.collector.service import Collector

__all__ = ["HONEST", "Handlers"]

T = TypeVar("T")

HONEST = ("plan", "all")
"""Which part of a crowd is honest: what the plan says, or all of it."""


class Handlers:
    """One method for each operation: a request to its answer."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._report_page = lru_cache(16)(report_page)
        self._screenings: dict[tuple[str, int], Screening] = {}

    # Plans

    async def plans(self, request: Request) -> Response:
        """List all plans."""
        return json_answer({"plans": [plan_line(kept) for kept in self._plans(request)]})

    def _plans(self, request: Request) -> list[PlanRecord]:
        """Return the plans that a request's token is for."""
        token = reading.who(request)
        return [kept for kept in self._collector.plans() if token.covers(kept.plan.id)]

    async def plan(self, request: Request) -> Response:
        """Show one plan."""
        kept = self._kept(request)
        return json_answer(plan_line(kept) | {"plan": {"id": kept.plan.id} | kept.plan.to_json()})

    async def add_plan(self, request: Request) -> Response:
        """Keep a plan as a draft."""
        try:
            document = await reading.document(request)
            plan = await self._collector.compute(Plan.from_json, document)
        except (InputError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        problem = await self._collector.add_plan(plan)
        if problem is not None:
            raise Refusal(problem)
        kept = self._collector.plan(plan.id)
        assert kept is not None
        return json_answer(plan_line(kept), 201)

    async def publish(self, request: Request) -> Response:
        """Publish a draft, or go on after a pause."""
        declared = Declaration(
            all_honest=reading.among(request, "honest", HONEST) == "all",
            never_published=reading.among(request, "never_published", ("no", "yes")) == "yes",
        )
        return await self._moved(request, "published", declared)

    async def pause(self, request: Request) -> Response:
        """Take no reports for a while."""
        return await self._moved(request, "paused")

    async def close(self, request: Request) -> Response:
        """Take no more reports."""
        return await self._moved(request, "closed")

    async def destroy(self, request: Request) -> Response:
        """Destroy what was collected."""
        return await self._moved(request, "destroyed")

    async def _moved(
        self, request: Request, wanted: State, declared: Declaration | None = None
    ) -> Response:
        plan_id = request.path_params["plan_id"]
        by = reading.who(request).label
        problem = await self._collector.move_plan(plan_id, wanted, declared, by=by)
        if problem is not None:
            raise Refusal(problem)
        return json_answer(plan_line(self._kept(request)))

    async def certificate(self, request: Request) -> Response:
        """Show the certificate a plan was published with."""
        kept = self._kept(request)
        if kept.certificate is None:
            raise Refusal(problems.WRONG_STATE)
        signature = self._collector.signer.sign(kept.certificate)
        headers = {"Shoal-Signature": signature, "Shoal-Key": self._collector.signer.public_key}
        return Response(kept.certificate, headers=headers, media_type="application/json")

    # Crowds

    async def progress(self, request: Request) -> Response:
        """Tell how full the open crowd is."""
        kept = self._kept(request)
        tenths = await self._collector.in_store(self._collector.store.progress, kept.plan.id)
        return json_answer({"state": kept.state, "tenths": tenths})

    async def crowds(self, request: Request) -> Response:
        """List the crowds of a plan."""
        kept = self._kept(request)
        crowds = await self._collector.in_store(self._collector.store.crowds, kept.plan.id)
        return json_answer({"crowds": [crowd_line(crowd) for crowd in crowds]})

    async def crowd(self, request: Request) -> Response:
        """Show a sealed crowd."""
        plan, tally, release = await self._sealed(request)
        screening = await self._screening(plan, tally, request.path_params["number"])
        digest = hashlib.sha256(release).hexdigest()
        return json_answer(
            {
                "plan": plan.id,
                "number": request.path_params["number"],
                "state": "sealed",
                "reports": tally.reports,
                "sha256": digest,
                "signature": self._collector.signer.sign(release),
                "screening": screening.to_json(),
                "tally": tally.to_json(),
            }
        )

    async def estimates(self, request: Request) -> Response:
        """Show what a sealed crowd answered."""
        level = reading.level(request)
        interval = reading.among(request, "interval", get_args(IntervalKind))
        form = reading.among(request, "format", tuple(FORMS))
        plan, tally, _ = await self._sealed(request)

        def made() -> Response:
            document = estimate(plan, tally).to_json(level, interval)  # type: ignore[arg-type]
            return FORMS[form](document)

        return await self._collector.compute(made)

    async def report(self, request: Request) -> Response:
        """Show a sealed crowd as a page."""
        _, _, release = await self._sealed(request)
        kept = self._kept(request)
        page = await self._collector.compute(self._report_page, kept.plan, release)
        return HTMLResponse(page)

    async def latest_report(self, request: Request) -> Response:
        """Show the last sealed crowd as a page."""
        kept = self._kept(request)
        crowds = await self._collector.in_store(self._collector.store.crowds, kept.plan.id)
        sealed = [crowd.number for crowd in crowds if crowd.state == "sealed"]
        if not sealed:
            raise Refusal(problems.CROWD_OPEN)
        request.path_params["number"] = sealed[-1]
        return await self.report(request)

    def _kept(self, request: Request) -> PlanRecord:
        kept = self._collector.plan(request.path_params["plan_id"])
        if kept is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return kept

    async def _sealed(self, request: Request) -> tuple[Plan, Tally, bytes]:
        """Return the plan, tally and release of the crowd that is asked for, if it is sealed."""
        kept, number = self._kept(request), request.path_params["number"]
        store = self._collector.store
        crowds = await self._collector.in_store(store.crowds, kept.plan.id)
        found = {crowd.number: crowd.state for crowd in crowds}.get(number)
        if found is None:
            raise Refusal(problems.UNKNOWN_CROWD)
        if found == "open":
            raise Refusal(problems.CROWD_OPEN)
        release = await self._collector.in_store(store.release, kept.plan.id, number)
        if release is None:
            raise Refusal(problems.CROWD_GONE)
        return kept.plan, Tally.from_release(json.loads(release), kept.plan), release

    async def _screening(self, plan: Plan, tally: Tally, number: int) -> Screening:
        """Return what traces of fakes a sealed crowd shows; it is looked for once."""
        place = (plan.id, number)
        if place not in self._screenings:
            self._screenings[place] = await self._collector.compute(screen, plan, tally)
        return self._screenings[place]

    # Tokens

    async def tokens(self, request: Request) -> Response:
        """List all tokens."""
        return json_answer({"tokens": [token_line(token) for token in self._collector.tokens]})

    async def add_token(self, request: Request) -> Response:
        """Make a token."""
        document = await reading.document(request)
        token = _token_of(document)
        secret = await self._collector.in_store(self._collector.tokens.add, token)
        self._tell("token made", request, token)
        return json_answer(token_line(token) | {"token": secret}, 201)

    async def remove_token(self, request: Request) -> Response:
        """Take a token away."""
        wanted, tokens = request.path_params["token_id"], self._collector.tokens
        gone = next((token for token in tokens if token.id == wanted), None)
        problem = await self._collector.in_store(tokens.remove, wanted)
        if problem is not None:
            raise Refusal(problem)
        assert gone is not None
        self._tell("token removed", request, gone)
        return Response(status_code=204)

    def _tell(self, event: str, request: Request, token: Token) -> None:
        about = {"token": token.id, "role": token.role, "label": token.label}
        LOG.info(event, extra={"facts": about | {"by": reading.who(request).label}})

    # The service itself

    async def home(self, request: Request) -> Response:
        """Show the page for people; what is in a sealed crowd, to those who may look at it."""
        looks = reading.who(request).may("analyst")
        page, plan_id = reading.page(request), request.query_params.get("plan")
        if plan_id is None:
            plans, has_more = _page(self._plans(request), page, pages.PLANS)
            sections = [
                (await self._section(kept, looks, 0, pages.CROWDS_OF_EACH)) for kept in plans
            ]
            where = "/?"
        else:
            kept = self._collector.plan(plan_id)
            if kept is None or not reading.who(request).covers(plan_id):
                raise Refusal(problems.UNKNOWN_PLAN)
            section = await self._section(kept, looks, page, pages.CROWDS_OF_ONE)
            sections, has_more = [section._replace(more=False)], section.more
            where = f"/?plan={plan_id}&"
        newer = f"{where}page={page - 1}" if page else None
        older = f"{where}page={page + 1}" if has_more else None
        return HTMLResponse(pages.home(sections, newer=newer, older=older))

    async def _section(
        self, kept: PlanRecord, looks: bool, page: int, length: int
    ) -> pages.Section:
        """Return a page of a plan's crowds, those that are sealed with their screening."""
        plan_id, store, lines = kept.plan.id, self._collector.store, []
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
        return pages.Section(kept, lines, more)

    async def healthz(self, request: Request) -> Response:
        """Tell that the process answers."""
        return json_answer({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        """Tell whether reports can be taken."""
        problem = await self._collector.obstacle()
        if problem is not None:
            raise Refusal(problem)
        return json_answer({"status": "ready"})

    async def clock(self, request: Request) -> Response:
        """Tell whether the clock is believed."""
        return json_answer(self._collector.clock_line())

    async def accept_clock(self, request: Request) -> Response:
        """Believe the clock."""
        self._collector.accept_clock(by=reading.who(request).label)
        return json_answer(self._collector.clock_line())

    async def metrics(self, request: Request) -> Response:
        """Show the metrics."""
        return Response(self._collector.metrics_text(), media_type=Metrics.media_type)


def _token_of(document: object) -> Token:
    """Read the token that is asked for."""
    if not isinstance(document, Mapping) or not {"role", "label"} <= set(document):
        raise Refusal(problems.BAD_PARAMETER)
    wanted = dict(document)
    role, label, day = wanted.pop("role"), wanted.pop("label"), wanted.pop("expires", None)
    plans = wanted.pop("plans", None)
    well_typed = isinstance(label, str) and isinstance(day, str | None)
    if plans is not None:
        well_typed &= isinstance(plans, list) and all(isinstance(one, str) for one in plans)
    if wanted or not well_typed:
        raise Refusal(problems.BAD_PARAMETER)
    try:
        expires = None if day is None else date.fromisoformat(day)
        return Token.new(role, label, expires=expires, plans=plans)
    except (InputError, ValueError) as error:
        raise Refusal(problems.BAD_PARAMETER) from error


def _page(rows: Sequence[T], page: int, length: int) -> tuple[Sequence[T], bool]:
    """Return the rows of a page, and whether there are more after them."""
    return rows[page * length : (page + 1) * length], len(rows) > (page + 1) * length
