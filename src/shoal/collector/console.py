"""The console's API: plans, progress in tenths, sealed crowds; nothing about an open one.

Every operation stands once in `OPERATIONS`, from which the routes, their checks and the OpenAPI
document are made.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from shoal._files import unique_keys
from shoal.collector import pages, problems
from shoal.collector.answers import Refusal, answers_of_problems
from shoal.collector.ingest import bearer, read_body
from shoal.collector.life import State
from shoal.collector.operations import Operation, Parameter, openapi
from shoal.collector.store import Epoch, KeptPlan
from shoal.collector.tokens import ROLES, Role, Token
from shoal.errors import InputError
from shoal.estimating import estimate
from shoal.intervals import IntervalKind
from shoal.plans import Plan
from shoal.publishing import publish
from shoal.publishing.tables import arrow_table, csv_text
from shoal.screening import screen
from shoal.tallying import Tally

if TYPE_CHECKING:
    from shoal.collector.service import Collector

__all__ = ["make_console"]

LARGEST_DOCUMENT = 4 << 20
"""Bytes that a plan, or another document sent to the console, may have."""

SAFE = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " frame-ancestors 'none'; form-action 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[["Console", Request], Awaitable[Response]]


class Console:
    """The handlers of the console's operations."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._report_page = lru_cache(16)(_report_page)

    # Plans

    async def plans(self, request: Request) -> Response:
        return _json({"plans": [_plan_line(kept) for kept in self._collector.plans()]})

    async def plan(self, request: Request) -> Response:
        kept = self._kept(request)
        return _json(_plan_line(kept) | {"plan": {"id": kept.plan.id} | kept.plan.to_json()})

    async def add_plan(self, request: Request) -> Response:
        try:
            plan = Plan.from_json(await _document(request))
        except (InputError, RecursionError) as error:
            raise Refusal(problems.MALFORMED_PLAN) from error
        problem = await self._collector.add_plan(plan)
        if problem is not None:
            raise Refusal(problem)
        kept = self._collector.plan(plan.id)
        assert kept is not None
        return _json(_plan_line(kept), 201)

    def mover(wanted: State) -> Handler:  # type: ignore[misc]  # noqa: N805  makes handlers
        async def move(self: Console, request: Request) -> Response:
            problem = await self._collector.move_plan(request.path_params["plan_id"], wanted)
            if problem is not None:
                raise Refusal(problem)
            return _json(_plan_line(self._kept(request)))

        return move

    publish = mover("published")
    pause = mover("paused")
    close = mover("closed")
    destroy = mover("destroyed")

    async def certificate(self, request: Request) -> Response:
        kept = self._kept(request)
        if kept.certificate is None:
            raise Refusal(problems.WRONG_STATE)
        signature = self._collector.signer.sign(kept.certificate)
        headers = {"Shoal-Signature": signature, "Shoal-Key": self._collector.signer.public_key}
        return Response(kept.certificate, headers=headers, media_type="application/json")

    # Crowds

    async def progress(self, request: Request) -> Response:
        kept = self._kept(request)
        tenths = await self._collector.in_store(self._collector.store.progress, kept.plan.id)
        return _json({"state": kept.state, "tenths": tenths})

    async def epochs(self, request: Request) -> Response:
        kept = self._kept(request)
        epochs = await self._collector.in_store(self._collector.store.epochs, kept.plan.id)
        return _json({"epochs": [_epoch_line(epoch) for epoch in epochs]})

    async def epoch(self, request: Request) -> Response:
        plan, tally, release = await self._sealed(request)
        screening = await self._collector.compute(screen, plan, tally)
        digest = hashlib.sha256(release).hexdigest()
        return _json(
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
        level, interval = _level(request), _among(request, "interval", get_args(IntervalKind))
        form = _among(request, "format", tuple(_FORMS))
        plan, tally, _ = await self._sealed(request)

        def made() -> Response:
            document = estimate(plan, tally).to_json(level, interval)  # type: ignore[arg-type]
            return _FORMS[form](document)

        return await self._collector.compute(made)

    async def report(self, request: Request) -> Response:
        _, _, release = await self._sealed(request)
        kept = self._kept(request)
        page = await self._collector.compute(self._report_page, kept.plan, release)
        return HTMLResponse(page)

    async def latest_report(self, request: Request) -> Response:
        kept = self._kept(request)
        epochs = await self._collector.in_store(self._collector.store.epochs, kept.plan.id)
        sealed = [epoch.number for epoch in epochs if epoch.state == "sealed"]
        if not sealed:
            raise Refusal(problems.EPOCH_OPEN)
        request.path_params["number"] = sealed[-1]
        return await self.report(request)

    def _kept(self, request: Request) -> KeptPlan:
        kept = self._collector.plan(request.path_params["plan_id"])
        if kept is None:
            raise Refusal(problems.UNKNOWN_PLAN)
        return kept

    async def _sealed(self, request: Request) -> tuple[Plan, Tally, bytes]:
        """Return the plan, tally and release of the epoch that is asked for, if it is sealed."""
        kept, number = self._kept(request), request.path_params["number"]
        store = self._collector.store
        epochs = await self._collector.in_store(store.epochs, kept.plan.id)
        found = {epoch.number: epoch.state for epoch in epochs}.get(number)
        if found is None:
            raise Refusal(problems.UNKNOWN_EPOCH)
        if found == "open":
            raise Refusal(problems.EPOCH_OPEN)
        release = await self._collector.in_store(store.release, kept.plan.id, number)
        if release is None:
            raise Refusal(problems.EPOCH_GONE)
        return kept.plan, Tally.from_json(json.loads(release), kept.plan), release

    # Tokens

    async def tokens(self, request: Request) -> Response:
        return _json({"tokens": [_token_line(token) for token in self._collector.tokens]})

    async def add_token(self, request: Request) -> Response:
        document = await _document(request)
        if not isinstance(document, Mapping) or set(document) != {"role", "label"}:
            raise Refusal(problems.BAD_PARAMETER)
        role, label = document["role"], document["label"]
        if role not in ROLES or not isinstance(label, str) or not _plain(label):
            raise Refusal(problems.BAD_PARAMETER)
        token, secret = await self._collector.in_store(self._collector.tokens.make, role, label)
        return _json(_token_line(token) | {"token": secret}, 201)

    async def remove_token(self, request: Request) -> Response:
        wanted = request.path_params["token_id"]
        admins = [token.id for token in self._collector.tokens if token.role == "admin"]
        if admins == [wanted]:
            raise Refusal(problems.LAST_ADMIN)
        if not await self._collector.in_store(self._collector.tokens.remove, wanted):
            raise Refusal(problems.UNKNOWN_TOKEN)
        return Response(status_code=204)

    # The service itself

    async def home(self, request: Request) -> Response:
        plans = self._collector.plans()
        epochs = {
            kept.plan.id: await self._collector.in_store(self._collector.store.epochs, kept.plan.id)
            for kept in plans
        }
        return HTMLResponse(pages.home(plans, epochs))

    async def openapi(self, request: Request) -> Response:
        summary = "Plans, progress in tenths, and sealed crowds."
        return _json(openapi(OPERATIONS, "Shoal console", summary))

    async def healthz(self, request: Request) -> Response:
        return _json({"status": "alive"})

    async def readyz(self, request: Request) -> Response:
        if not await self._collector.ready():
            raise Refusal(problems.UNAVAILABLE)
        return _json({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        states = Counter(kept.state for kept in self._collector.plans())
        text = self._collector.metrics.text({state: states[state] for state in get_args(State)})
        return Response(text, media_type=self._collector.metrics.media_type)


_PLAN = Parameter("plan_id", "path", {"type": "string"}, "The plan's id.")
_NUMBER = Parameter(
    "number", "path", {"type": "integer", "minimum": 1, "maximum": 2**53}, "The epoch's number."
)
_TOKEN = Parameter("token_id", "path", {"type": "string"}, "The token's id.")
_FORMAT = Parameter(
    "format",
    "query",
    {"type": "string", "enum": ["json", "csv", "parquet", "arrow"], "default": "json"},
    "The form of the answer.",
)
_INTERVAL = Parameter(
    "interval",
    "query",
    {"type": "string", "enum": list(get_args(IntervalKind)), "default": "exact"},
    "The kind of interval.",
)
_LEVEL = Parameter(
    "level",
    "query",
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.95},
    "The confidence level.",
)
_ESTIMATES = ("application/json", "text/csv", "application/vnd.apache.parquet",
              "application/vnd.apache.arrow.file")  # fmt: skip

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/", "viewer", "A page for people.", Console.home, media=("text/html",)),
    Operation("GET", "/v1/plans", "viewer", "All plans and their states.", Console.plans),
    Operation(
        "POST", "/v1/plans", "admin", "Keep a plan as a draft.", Console.add_plan, status=201,
        body={"type": "object", "description": "A plan with its id, as shoal plan writes it."},
        problems=(problems.MALFORMED_PLAN, problems.PROMISE_BROKEN, problems.TOO_LARGE),
    ),
    Operation("GET", "/v1/plans/{plan_id}", "viewer", "One plan.", Console.plan, (_PLAN,)),
    *(
        Operation(
            "POST", f"/v1/plans/{{plan_id}}/{word}", "admin", summary, handler, (_PLAN,),
            problems=(problems.WRONG_STATE,),
        )
        for word, summary, handler in (
            ("publish", "Publish a draft, or go on after a pause.", Console.publish),
            ("pause", "Take no reports for a while.", Console.pause),
            ("close", "Take no more reports; the open crowd is destroyed.", Console.close),
            ("destroy", "Destroy everything that was collected.", Console.destroy),
        )
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/certificate", "viewer", "What the plan promises, signed.",
        Console.certificate, (_PLAN,), problems=(problems.WRONG_STATE,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/progress", "viewer", "How full the open crowd is, in tenths.",
        Console.progress, (_PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/epochs", "viewer", "The plan's crowds.", Console.epochs,
        (_PLAN,),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/epochs/{number}", "analyst",
        "A sealed crowd: its tally, and traces of fake reports.", Console.epoch,
        (_PLAN, _NUMBER), problems=(problems.EPOCH_OPEN, problems.EPOCH_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/epochs/{number}/estimates", "analyst",
        "What a sealed crowd answered, with intervals.", Console.estimates,
        (_PLAN, _NUMBER, _FORMAT, _INTERVAL, _LEVEL), media=_ESTIMATES,
        problems=(problems.EPOCH_OPEN, problems.EPOCH_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/epochs/{number}/report.html", "analyst",
        "A sealed crowd as one page.", Console.report, (_PLAN, _NUMBER), media=("text/html",),
        problems=(problems.EPOCH_OPEN, problems.EPOCH_GONE),
    ),
    Operation(
        "GET", "/v1/plans/{plan_id}/report.html", "analyst", "The last sealed crowd as one page.",
        Console.latest_report, (_PLAN,), media=("text/html",),
        problems=(problems.EPOCH_OPEN, problems.EPOCH_GONE),
    ),
    Operation("GET", "/v1/tokens", "admin", "All tokens, without their secrets.", Console.tokens),
    Operation(
        "POST", "/v1/tokens", "admin", "Make a token; its secret is told once.",
        Console.add_token, status=201,
        body={
            "type": "object",
            "required": ["role", "label"],
            "additionalProperties": False,
            "properties": {
                "role": {"type": "string", "enum": list(ROLES)},
                "label": {"type": "string", "minLength": 1, "maxLength": 80,
                          "pattern": "^[A-Za-z0-9 ._-]+$"},
            },
        },
        problems=(problems.TOO_LARGE,),
    ),
    Operation(
        "DELETE", "/v1/tokens/{token_id}", "admin", "Take a token away.", Console.remove_token,
        (_TOKEN,), status=204, media=(), problems=(problems.LAST_ADMIN,),
    ),
    Operation("GET", "/openapi.json", None, "This document.", Console.openapi),
    Operation("GET", "/healthz", None, "Whether the process answers.", Console.healthz),
    Operation("GET", "/readyz", None, "Whether reports can be taken.", Console.readyz,
              problems=(problems.UNAVAILABLE,)),
    Operation("GET", "/metrics", None, "Prometheus metrics.", Console.metrics,
              media=("text/plain",)),
)  # fmt: skip
"""Everything the console's listener answers to."""


def make_console(collector: Collector) -> Starlette:
    """Return the ASGI app of the console's listener."""
    console = Console(collector)

    def endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if operation.role is not None:
                _check_token(collector, request, operation.role)
            if "number" in request.path_params:
                request.path_params["number"] = _number(request.path_params["number"])
            response: Response = await operation.handler(console, request)
            for name, value in SAFE.items():
                response.headers.setdefault(name, value)
            return response

        return answer

    endpoints: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for operation in OPERATIONS:
        endpoints.setdefault(operation.path, {})[operation.method] = endpoint(operation)

    def route(path: str, by_method: dict[str, Callable[[Request], Awaitable[Response]]]) -> Route:
        async def answer(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            return await by_method[method](request)

        return Route(path, answer, methods=list(by_method))

    routes = [route(path, by_method) for path, by_method in endpoints.items()]
    return Starlette(routes=routes, exception_handlers=answers_of_problems(collector.refused))


def _check_token(collector: Collector, request: Request, role: Role) -> None:
    headers = dict(request.scope["headers"])
    secret = bearer(headers)
    # A browser asks for a name and a password; the token is the password. It sends it along with
    # every request by itself, so that is not enough for anything but looking.
    if not secret and request.method == "GET":
        secret = _password(headers)
    token = collector.tokens.find(secret) if secret else None
    if token is None:
        raise Refusal(problems.NO_TOKEN)
    if not token.may(role):
        raise Refusal(problems.WRONG_ROLE)


def _password(headers: dict[bytes, bytes]) -> str:
    scheme, _, content = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"basic":
        return ""
    try:
        return base64.b64decode(content, validate=True).partition(b":")[2].decode("utf-8")
    except (binascii.Error, ValueError):
        return ""


async def _document(request: Request) -> object:
    """Read a JSON document, strictly."""
    headers = dict(request.scope["headers"])
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json" or b"content-encoding" in headers:
        raise Refusal(problems.WRONG_TYPE)
    body = await read_body(request.receive, headers.get(b"content-length"), LARGEST_DOCUMENT)
    if isinstance(body, problems.Problem):
        raise Refusal(body)

    def refuse(constant: str) -> object:
        raise ValueError("not a number")

    try:
        return json.loads(body, parse_constant=refuse, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise Refusal(problems.BAD_REQUEST) from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal(problems.UNKNOWN_EPOCH)
    return int(text)


def _level(request: Request) -> float:
    try:
        level = float(request.query_params.get("level", "0.95"))
    except ValueError:
        raise Refusal(problems.BAD_PARAMETER) from None
    if not 0 < level < 1:
        raise Refusal(problems.BAD_PARAMETER)
    return level


def _among(request: Request, name: str, values: tuple[str, ...]) -> str:
    value = request.query_params.get(name, values[0])
    if value not in values:
        raise Refusal(problems.BAD_PARAMETER)
    return value


def _plain(label: str) -> bool:
    letters = label.replace(" ", "").replace(".", "").replace("_", "").replace("-", "")
    return 1 <= len(label) <= 80 and label.isascii() and (letters.isalnum() or not letters)


def _json(document: object, status: int = 200) -> Response:
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text.encode(), status, media_type="application/json")


def _plan_line(kept: KeptPlan) -> dict[str, Any]:
    return {
        "id": kept.plan.id,
        "survey": kept.plan.survey.name,
        "state": kept.state,
        "reports_needed": kept.plan.reports_needed,
        "promise": kept.plan.promise.to_json(),
    }


def _epoch_line(epoch: Epoch) -> dict[str, Any]:
    line: dict[str, Any] = {"number": epoch.number, "state": epoch.state, "tenths": epoch.tenths}
    return line if epoch.reports is None else line | {"reports": epoch.reports}


def _token_line(token: Token) -> dict[str, Any]:
    return {"id": token.id, "role": token.role, "label": token.label}


def _report_page(plan: Plan, release: bytes) -> str:
    return publish(plan, Tally.from_json(json.loads(release), plan)).to_html()


def _file(content: bytes, media: str, name: str) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=disposition, media_type=media)


def _csv(document: dict[str, Any]) -> Response:
    return _file(csv_text({"estimates": document}).encode(), "text/csv", "estimates.csv")


def _parquet(document: dict[str, Any]) -> Response:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(arrow_table({"estimates": document}), out)
    return _file(out.getvalue(), _ESTIMATES[2], "estimates.parquet")


def _arrow(document: dict[str, Any]) -> Response:
    import pyarrow.feather as feather

    out = io.BytesIO()
    feather.write_feather(arrow_table({"estimates": document}), out, compression="uncompressed")
    return _file(out.getvalue(), _ESTIMATES[3], "estimates.arrow")


_FORMS: dict[str, Callable[[dict[str, Any]], Response]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
