"""The operations of the console's API."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from shoal.analysis.estimates import estimate
from shoal.analysis.intervals import IntervalKind
from shoal.analysis.tally import Tally
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports import publish
from shoal.reports.tables import csv_text, write_table
from shoal.server.console import schemas
from shoal.server.console.formatting import unreadable_note
from shoal.server.console.planner import Planner
from shoal.server.console.planning import MAX_REQUEST_SIZE, PlanRequestError
from shoal.server.console.releases import CrowdRelease, Releases
from shoal.server.console.schemas import as_document
from shoal.server.core import problems
from shoal.server.core.auth import ServiceHandlers, read_document, token_of
from shoal.server.core.http import Refusal, check_origins
from shoal.server.core.observability import LOG
from shoal.server.core.openapi import (
    Integer,
    Level,
    OneOf,
    Parameter,
    json_response,
    read_as,
    signed_response,
)
from shoal.server.core.tokens import Action, Token
from shoal.server.storage.records import Declaration, PlanRecord, State

if TYPE_CHECKING:
    from shoal.server.core.administration import Administration

__all__ = ["Handlers"]

PLAN = Parameter("plan_id", "path", "The plan's id.")
MAX_CROWDS = 60
"""Crowds of one trend."""
LARGEST_ORIGINS = 64 << 10
"""Bytes of a list of origins."""
PAGE_LENGTH = 50
"""Actions on a page."""

NUMBER = Integer("number", "path", "The crowd's number.", 1, 2**53, problem=problems.UNKNOWN_CROWD)
TOKEN = Parameter("token_id", "path", "The token's id.")
FORMATS = {
    "json": "application/json",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
"""Media types of the formats of estimates."""
FORMAT = OneOf("format", "The format of the response.", tuple(FORMATS))
INTERVAL = OneOf("interval", "The kind of interval.", get_args(IntervalKind))
LEVEL = Level("level", "The confidence level.", 0.95)
HONEST = OneOf(
    "honest",
    "The honest part of a crowd: as the plan states, or all of it.",
    ("plan", "all"),
)
NEVER_PUBLISHED = OneOf(
    "never_published",
    "After a restore: states that the plan was not published before.",
    ("no", "yes"),
)
PAGE = Integer("page", "query", "The number of the page, from 0.", 0, 10**9 - 1, 0)
QUESTION = Parameter("question", "query", "The name of a question; by default the first.")
CROWDS = Integer("crowds", "query", "How many of the last released crowds.", 2, MAX_CROWDS, 12)
FIRST = Integer(
    "first", "query", "The number of a crowd; by default the last released one.", 1, 2**53
)
SECOND = Integer("second", "query", "The number of the other; by default the one before.", 1, 2**53)
OTHER = Parameter("with_plan", "query", "The plan of the second crowd, if it is of another.")


class Handlers(ServiceHandlers):
    """One method for each operation of the API."""

    def __init__(self, collector: Administration) -> None:
        super().__init__(collector)
        self._collector = collector
        self._report_page = lru_cache(16)(report_page)
        self.releases = Releases(collector)
        self._planner = Planner()

    # Plans

    async def plans(self, request: Request) -> Response:
        """List all plans."""
        lines = [schemas.PlanLine(**schemas.plan_fields(one)) for one in self.plans_of(request)]
        return json_response(schemas.PlanList(plans=lines))

    def plans_of(self, request: Request) -> list[PlanRecord]:
        """Return the plans that a request's token is for."""
        token = token_of(request)
        return [record for record in self._collector.plans() if token.covers(record.plan.id)]

    async def plan(self, request: Request) -> Response:
        """Show one plan."""
        record = self.plan_of(request)
        more = {"origins": list(record.origins), "plan": record.document}
        values = schemas.plan_fields(record) | more | {"observers": record.observers}
        return json_response(as_document(schemas.PlanDetail, values))

    async def add_plan(self, request: Request) -> Response:
        """Add a plan as a draft."""
        try:
            document = await read_document(request)
            plan = await self._collector.compute(Plan.from_json, document)
        except (InputError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        return _plan_response(await self.add_draft(request, plan), 201)

    async def add_draft(self, request: Request, plan: Plan) -> PlanRecord:
        """Add a plan as a draft, or refuse to."""
        is_new = self._collector.plan(plan.id) is None
        problem = await self._collector.add_plan(plan)
        if problem is not None:
            raise Refusal(problem)
        if is_new:
            by = token_of(request).label
            await self._collector.in_store(self._collector.actions.add, by, "draft added", plan.id)
        record = self._collector.plan(plan.id)
        assert record is not None
        return record

    async def publish(self, request: Request) -> Response:
        """Publish a draft, or resume after a pause."""
        declaration = Declaration(
            all_honest=HONEST.read(request) == "all",
            never_published=NEVER_PUBLISHED.read(request) == "yes",
        )
        await self.move(request, "published", declaration)
        return _plan_response(self.plan_of(request))

    async def origins(self, request: Request) -> Response:
        """Set the origins of the web pages that may send reports."""
        document = await read_document(request, LARGEST_ORIGINS)
        if not isinstance(document, dict) or set(document) != {"origins"}:
            raise Refusal(problems.BAD_REQUEST)
        if not isinstance(document["origins"], list):
            raise Refusal(problems.BAD_ORIGINS)
        await self.set_origins(request, document["origins"])
        return json_response(schemas.OriginList(origins=list(self.plan_of(request).origins)))

    async def set_origins(self, request: Request, origins: list[object]) -> None:
        """Set the origins of the plan that a request names, or refuse to."""
        plan_id, by = self.plan_of(request).plan.id, token_of(request).label
        try:
            checked = check_origins(origins)
        except InputError as error:
            raise Refusal(problems.BAD_ORIGINS) from error
        await self._collector.set_origins(plan_id, checked, by=by)

    async def move(
        self, request: Request, wanted: State, declaration: Declaration | None = None
    ) -> None:
        """Change the state of the plan that a request names, or refuse to."""
        plan_id = request.path_params["plan_id"]
        by = token_of(request).label
        problem = await self._collector.move_plan(plan_id, wanted, declaration, by=by)
        if problem is not None:
            raise Refusal(problem)

    async def certificate(self, request: Request) -> Response:
        """Show the certificate a plan was published with."""
        record = self.plan_of(request)
        if record.certificate is None:
            raise Refusal(problems.WRONG_STATE)
        return signed_response(record.certificate, self._collector.signer)

    # Crowds

    async def progress(self, request: Request) -> Response:
        """Show how full the open crowd is."""
        record = self.plan_of(request)
        percent = None
        if record.plan.parties is None:  # else only the relay knows
            store = self._collector.store
            percent = await self._collector.in_store(store.progress, record.plan.id)
        return json_response(schemas.PlanProgress(state=record.state, progress=percent))

    async def crowds(self, request: Request) -> Response:
        """List the crowds of a plan."""
        record = self.plan_of(request)
        crowds = await self._collector.in_store(self._collector.store.crowds, record.plan.id)
        lines = [schemas.CrowdLine.of(record.plan, crowd) for crowd in crowds]
        return json_response(schemas.CrowdList(crowds=lines))

    async def crowd(self, request: Request) -> Response:
        """Return a released crowd with its signed tally."""
        release = await self.release_of(request)
        return json_response(
            schemas.ReleaseDocument(
                plan=release.plan.id,
                number=release.number,
                reports=release.tally.reports,
                unreadable=schemas.or_unset(release.unreadable),
                sha256=hashlib.sha256(release.content).hexdigest(),
                **release.signature._asdict(),
                screening=await self._screening(release),
                tally=release.tally.to_json(),
            )
        )

    async def release_of(self, request: Request) -> CrowdRelease:
        """Return the release that a request names."""
        return await self.releases.get(self.plan_of(request).plan, NUMBER.read(request))

    async def _screening(self, release: CrowdRelease) -> schemas.ScreeningDocument:
        found = await self.releases.screening(release)
        return as_document(schemas.ScreeningDocument, found.to_json())

    async def estimates(self, request: Request) -> Response:
        """Return the estimates of a released crowd in one of several formats."""
        level, interval = LEVEL.read(request), INTERVAL.read(request)
        kind = FORMAT.read(request)
        release = await self.release_of(request)

        def work() -> Response:
            estimates = estimate(release.plan, release.tally)
            document = estimates.to_json(level, interval)  # type: ignore[arg-type]
            return _estimates_response(document, kind)

        return await self._collector.compute(work)

    async def results(self, request: Request) -> Response:
        """Return all that the page of a released crowd shows."""
        level, kind = LEVEL.read(request), INTERVAL.read(request)
        release = await self.release_of(request)
        found = await self.releases.results(release, level, kind)  # type: ignore[arg-type]
        return json_response(
            schemas.ResultsDocument(
                plan=release.plan.id,
                number=release.number,
                screening=await self._screening(release),
                unreadable=schemas.or_unset(release.unreadable),
                **{name: msgspec.convert(found[name], kind) for name, kind in _RESULTS.items()},
            )
        )

    async def trend(self, request: Request) -> Response:
        """Show how a question changes over crowds."""
        return json_response(as_document(schemas.TrendDocument, await self.trend_of(request)))

    async def trend_of(self, request: Request) -> dict[str, Any]:
        """Return the trend that a request asks for."""
        plan, level, length = (
            self.plan_of(request).plan, LEVEL.read(request), CROWDS.read(request)
        )  # fmt: skip
        asked = [one.name for one in plan.survey if one.kind != "text"]
        question = QUESTION.text(request) or (asked[0] if asked else "")
        if question not in asked:
            raise Refusal(problems.UNKNOWN_QUESTION.about("question"))
        numbers = await self.releases.numbers(plan, length)
        return await self.releases.trend(plan, question, numbers, level)

    async def difference(self, request: Request) -> Response:
        """Show how two crowds differ."""
        found = await self.difference_of(request)
        return json_response(as_document(schemas.DifferenceDocument, found))

    async def difference_of(self, request: Request) -> dict[str, Any]:
        """Return the difference that a request asks for."""
        record, level = self.plan_of(request), LEVEL.read(request)
        first, second = FIRST.read_optional(request), SECOND.read_optional(request)
        other = self._other_plan(request) or record
        last = await self.releases.numbers(record.plan, 2)
        theirs = last if other is record else await self.releases.numbers(other.plan, 1)
        if not first and last:
            first = last[-1]
        if not second and theirs:
            second = theirs[-2] if other is record and len(theirs) > 1 else theirs[-1]
        if not first or not second:
            raise Refusal(problems.TOO_FEW_CROWDS)
        one = await self.releases.get(record.plan, first)
        two = await self.releases.get(other.plan, second)
        return await self.releases.difference(one, two, level)

    def _other_plan(self, request: Request) -> PlanRecord | None:
        wanted = OTHER.text(request)
        if not wanted:
            return None
        record = self._collector.plan(wanted)
        if record is None or not token_of(request).covers(wanted):
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    async def decode(self, request: Request) -> Response:
        """Find which candidates a released crowd answered."""
        search = read_as(schemas.TextSearch, await read_document(request))
        found = await self.decoded(await self.release_of(request), search)
        return json_response(as_document(schemas.TextsDocument, found))

    async def decoded(self, release: CrowdRelease, search: schemas.TextSearch) -> dict[str, Any]:
        """Return the texts that were found; refuse a question that cannot be decoded."""
        texts = [one.name for one in release.plan.survey if one.kind == "text"]
        if not texts:
            raise Refusal(problems.NO_TEXT)
        if search.question not in (None, *texts) or (search.question is None and len(texts) > 1):
            raise Refusal(problems.UNKNOWN_QUESTION.about("question"))
        try:
            return await self.releases.decode(release, search)
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER.about("candidates")) from error

    async def report(self, request: Request) -> Response:
        """Show a released crowd as a page."""
        return await self._report_of(self.plan_of(request).plan, NUMBER.read(request))

    async def latest_report(self, request: Request) -> Response:
        """Show the last released crowd as a page."""
        plan = self.plan_of(request).plan
        crowds = await self._collector.in_store(self._collector.store.crowds, plan.id)
        released = [crowd.number for crowd in crowds if crowd.state == "released"]
        if not released:
            raise Refusal(problems.CROWD_OPEN)
        return await self._report_of(plan, released[-1])

    async def _report_of(self, plan: Plan, number: int) -> Response:
        crowd = await self.releases.get(plan, number)
        return HTMLResponse(
            await self._collector.compute(
                self._report_page, crowd.plan, crowd.content, crowd.unreadable
            )
        )

    def plan_of(self, request: Request) -> PlanRecord:
        """Return the plan that a request names."""
        record = self._collector.plan(request.path_params["plan_id"])
        if record is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return record

    # Tokens

    async def tokens(self, request: Request) -> Response:
        """List all tokens."""
        tokens = self._collector.tokens
        lines = [
            schemas.TokenLine(**vars(token), last_used=tokens.last_used(token)) for token in tokens
        ]
        return json_response(schemas.TokenList(tokens=lines))

    async def add_token(self, request: Request) -> Response:
        """Make a token."""
        token, secret = await self.make_token(request, await read_document(request))
        return json_response(schemas.MadeToken(**vars(token), token=secret), 201)

    async def make_token(self, request: Request, document: object) -> tuple[Token, str]:
        """Make the token that a document describes; return it with its secret."""
        wanted = read_as(schemas.NewToken, document)
        try:
            token = Token.new(**msgspec.structs.asdict(wanted))
        except InputError as error:
            raise Refusal(problems.BAD_PARAMETER) from error
        secret = await self._collector.in_store(self._collector.tokens.add, token)
        await self._tell("token made", request, token)
        return token, secret

    async def remove_token(self, request: Request) -> Response:
        """Revoke a token."""
        await self.revoke_token(request)
        return Response(status_code=204)

    async def revoke_token(self, request: Request) -> None:
        """Revoke the token that a request names, or refuse to."""
        wanted, tokens = request.path_params["token_id"], self._collector.tokens
        gone = next((token for token in tokens if token.id == wanted), None)
        problem = await self._collector.in_store(tokens.remove, wanted)
        if problem is not None:
            raise Refusal(problem)
        assert gone is not None
        await self._tell("token revoked", request, gone)

    async def _tell(self, event: str, request: Request, token: Token) -> None:
        about, by = {"token": token.id, "role": token.role, "label": token.label}, token_of(request)
        LOG.info(event, extra={"facts": about | {"by": by.label}})
        line = f"{event}: {token.role}, {token.label}"
        await self._collector.in_store(self._collector.actions.add, by.label, line, token.id)

    # Actions and backups

    async def actions(self, request: Request) -> Response:
        """List administrative actions."""
        lines = await self.actions_of(request)
        found = {"actions": [line.to_json() for line in lines]}
        return json_response(as_document(schemas.ActionList, found))

    async def actions_of(self, request: Request) -> list[Action]:
        """Return the actions on the page that a request asks for."""
        skip = PAGE.read(request) * PAGE_LENGTH
        return await self._collector.in_store(self._collector.actions.last, skip, PAGE_LENGTH)

    async def backups(self, request: Request) -> Response:
        """List the backups that were made here."""
        return json_response(schemas.BackupList(backups=self._collector.backups()))

    async def make_backup(self, request: Request) -> Response:
        """Make a backup in the data folder."""
        return json_response(schemas.MadeBackup(name=await self.back_up(request)), 201)

    async def back_up(self, request: Request) -> str:
        """Make a backup, or refuse to, and return its name."""
        made = await self._collector.make_backup(by=token_of(request).label)
        if not isinstance(made, str):
            raise Refusal(made)
        return made

    async def prospect(self, request: Request) -> Response:
        """Compute the promise of a plan; nothing is stored."""
        try:
            found = await self.prospect_of(request, await read_document(request, MAX_REQUEST_SIZE))
        except PlanRequestError as error:
            raise Refusal(problems.BAD_PLAN_REQUEST.about(error.parameter)) from error
        except InputError as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        return json_response(as_document(schemas.Prospect, found))

    async def prospect_of(self, request: Request, wanted: object) -> dict[str, Any]:
        """Return the promise of a plan, or refuse to compute it."""
        hung_up = request.scope.get("state", {}).get("hung_up")
        return await self._planner.prospect(wanted, token_of(request).id, hung_up)

    # The service itself

    async def accept_clock(self, request: Request) -> Response:
        """Trust the clock, and store who said so."""
        response = await super().accept_clock(request)
        by = token_of(request).label
        await self._collector.in_store(self._collector.actions.add, by, "clock accepted")
        return response


def moves_to(wanted: State) -> Callable[[Handlers, Request], Awaitable[Response]]:
    """Return the operation that changes the state of a plan."""

    async def move(handlers: Handlers, request: Request) -> Response:
        await handlers.move(request, wanted)
        return _plan_response(handlers.plan_of(request))

    return move


def _plan_response(record: PlanRecord, status: int = 200) -> Response:
    return json_response(schemas.PlanLine(**schemas.plan_fields(record)), status)


_RESULTS = {
    "estimates": schemas.EstimatesDocument,
    "numbers": dict[str, schemas.NumberDocument],
    "crosses": dict[str, Any],
    "texts": dict[str, schemas.TextsDocument],
}


def report_page(plan: Plan, content: bytes, unreadable: int | None = None) -> str:
    """Return the report page of a release; `unreadable` messages are mentioned."""
    remarks = [unreadable_note(plan, unreadable)] if unreadable else []
    return publish(plan, Tally.from_json(json.loads(content), plan), remarks=remarks).to_html()


def _estimates_response(document: dict[str, Any], kind: str) -> Response:
    if kind == "json":
        return json_response(as_document(schemas.EstimatesDocument, document))
    out = io.BytesIO()
    if kind == "csv":
        out.write(csv_text({"estimates": document}).encode())
    else:
        write_table({"estimates": document}, out, kind)
    disposition = {"Content-Disposition": f'attachment; filename="estimates.{kind}"'}
    return Response(out.getvalue(), headers=disposition, media_type=FORMATS[kind])
