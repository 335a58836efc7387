"""`POST /v1/plans/{id}/reports`: reports of devices, and large batches of relays with a token.

An oblivious request (Oblivious HTTP, RFC 9458) holds an encrypted request for this endpoint and
comes through somebody else's relay, which hides the sender. All responses are equally long. The
relay hides addresses and nothing else, and only if all devices use the same key. It forwards each
report at once, so only the local epsilon holds against this collector. For plans whose promise is
about counts a report is often the answer itself. They are refused here, unless the operator is
trusted as a collector is (`oblivious = trusted`).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.report_files import Batch, parse_batch
from shoal.errors import ReportError
from shoal.protocol.oblivious import (
    KEYS_TYPE,
    REQUEST_TYPE,
    RESPONSE_TYPE,
    BinaryRequest,
    BinaryResponse,
    Exchange,
    GatewayKey,
)
from shoal.protocol.wire import batch_bytes
from shoal.server.core import problems
from shoal.server.core.http import (
    JSON,
    NO_STORE,
    SMALL_BODY,
    BodyBudget,
    Receive,
    Scope,
    media_type,
    read_body,
    send_response,
)
from shoal.server.core.ingest import (
    UNREAD,
    Committer,
    DeviceIngest,
    ReportFormat,
    ReportPlans,
    ReportRequest,
)
from shoal.server.core.openapi import Operation
from shoal.server.core.problems import CLOSE, Problem, Send
from shoal.server.core.public import PLAN
from shoal.server.core.service import Service
from shoal.server.core.settings import Settings
from shoal.server.storage.key_file import OBLIVIOUS_FILE, open_keys

BINARY = ("application/vnd.shoal.reports", "application/octet-stream")
"""Media types of a batch in the binary form."""
LARGE_BODIES = 8
"""How many requests of the largest size may be under way at a time."""


_REPORTS = {
    "type": "object",
    "required": ["plan", "reports"],
    "additionalProperties": False,
    "properties": {
        "plan": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "reports": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "contentEncoding": "base64"},
        },
    },
}
_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})/reports")


class Ingest(DeviceIngest):
    """Accepts reports from devices, and from relays, which may send far more at once."""

    title, summary = "Shoal collector", "Signed plans out, reports in."

    def __init__(
        self, service: Service, settings: Settings, plans: ReportPlans, committer: Committer[Batch]
    ) -> None:
        media = frozenset({*(media.encode() for media in BINARY), JSON})
        form = ReportFormat(_PATH, media, parse_batch, batch_bytes)
        needs_token = settings.ingest == "token"
        super().__init__(
            service, settings, plans, committer, form, service.tokens, needs_token=needs_token
        )
        self._relay_budget = BodyBudget(LARGE_BODIES * settings.max_body_bytes)
        operation = Operation(
            "POST", "/v1/plans/{plan_id}/reports", "app" if self.needs_token else None,
            "Send reports. Each is counted once; a repeated report gets the same response. The"
            " response to a relay lists its refused reports as JSON.",
            None, (PLAN,), status=202, media=(), body=_REPORTS, binary=BINARY,
            problems=(problems.PLAN_CLOSED, problems.TOO_MANY),
        )  # fmt: skip
        self.operations: tuple[Operation, ...] = (operation,)

    async def _answer_relay(self, request: ReportRequest, receive: Receive, send: Send) -> None:
        """Accept the valid reports of a relay's batch and list the refused ones."""
        upload = await self._read(
            request, receive, self._relay_budget, self._settings.max_body_bytes, problems.TOO_LARGE
        )
        document = upload if isinstance(upload, Problem) else await self._relay(request, upload)
        if isinstance(document, Problem):
            await self._refuse(document, send, last=document in UNREAD)
            return
        await send_response(send, 202, document, [NO_STORE, (b"content-type", JSON)])

    async def _relay(self, request: ReportRequest, upload: Batch) -> bytes | Problem:
        assert request.token is not None
        if not self._allowance(request.token).take(len(upload)):
            return problems.TOO_MANY
        parts = await self._in_thread(split_by_window, upload)
        if isinstance(parts, Problem):
            return parts
        answers = await asyncio.gather(*(self._committer.submit(part.reports) for part in parts))
        return await self._in_thread(refusal_document, parts, answers)


MOST_WINDOWS = 1000
"""How many windows the reports of one batch may have; at most three are ever open."""

_OF_A_REPORT = (problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN)
"""Problems that concern single reports of a batch."""


class WindowPart(NamedTuple):
    """The reports of one window, and their places in the batch."""

    places: NDArray[np.intp]
    reports: Batch


def split_by_window(batch: Batch) -> list[WindowPart] | Problem:
    order = np.argsort(batch.windows, kind="stable")
    windows, starts = np.unique(batch.windows[order], return_index=True)
    if len(windows) > MOST_WINDOWS:
        return problems.MALFORMED
    if len(windows) == 1:
        return [WindowPart(order, batch)]
    return [WindowPart(at, batch.take(at)) for at in np.split(order, starts[1:])]


def refusal_document(
    parts: Sequence[WindowPart], answers: Sequence[Problem | None]
) -> bytes | Problem:
    """Return the JSON document that says which reports were refused, or a problem of all."""
    # Some reports may have been counted before a problem of all. The relay sends the whole batch
    # again, and they are not counted twice.
    places: dict[str, list[int]] = {problem.name: [] for problem in _OF_A_REPORT}
    for part, answer in zip(parts, answers, strict=True):
        if answer is not None and answer not in _OF_A_REPORT:
            return answer
        if answer is not None:
            places[answer.name] += part.places.tolist()
    return json.dumps({"refused": {name: sorted(at) for name, at in places.items()}}).encode()


PATH = "/v1/oblivious"

RESPONSE_BYTES = 1024
"""How long every response is before it is encrypted. A relay's token gets a list of refused
reports. If it does not fit, it is left out: such tokens are for relays that send many reports."""

_INNER_HEADERS = (b"content-type", b"content-encoding", b"authorization")
_RESPONSE_HEADERS = (b"content-type", b"retry-after")


_OBLIVIOUS = (
    Operation(
        "GET", PATH, None, "The keys of Oblivious HTTP (RFC 9458), signed.", None,
        media=(KEYS_TYPE,),
    ),
    Operation(
        "POST", PATH, None, "An encrypted request with reports; the response is encrypted.", None,
        media=(RESPONSE_TYPE,), binary=(REQUEST_TYPE,),
        problems=(problems.OBLIVIOUS_KEY, problems.UNOPENED, problems.TOO_LARGE),
    ),
)  # fmt: skip


class ObliviousGateway:
    """The endpoint for reports, plain and through Oblivious HTTP."""

    def __init__(
        self, service: Service, ingest: Ingest, plans: ReportPlans, *, trusted: bool
    ) -> None:
        self.keys = open_keys(service.folder, OBLIVIOUS_FILE, service.clock)
        self._service, self._ingest, self._plans, self._trusted = service, ingest, plans, trusted
        self._in_thread = service.upload_thread.run
        self.title, self.summary = ingest.title, ingest.summary
        self.operations = (*ingest.operations, *_OBLIVIOUS)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        if scope["path"] != PATH:
            return await self._ingest.handle(scope, receive, send)
        if scope["method"] in ("GET", "HEAD"):
            await self._send_keys(send)
        elif scope["method"] != "POST":
            await self._refuse(problems.ONLY_GET_AND_POST, send, last=True)
        else:
            await self._respond(scope, receive, send)
        return True

    def _openers(self) -> list[GatewayKey]:
        """Return the openers of requests: active keys, the newest first, then pending ones."""
        return [_opener(key.secret) for key in (*self.keys.active(), *self.keys.pending())]

    async def _send_keys(self, send: Send) -> None:
        content = b"".join(opener.configuration.to_list() for opener in self._openers())
        headers = [
            (b"content-type", KEYS_TYPE.encode()),
            (b"cache-control", b"public, max-age=3600"),
            *self._service.signer.raw_headers(content),
        ]
        await send_response(send, 200, content, headers)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if media_type(headers) != REQUEST_TYPE.encode():
            await self._refuse(problems.WRONG_TYPE, send, last=True)
            return
        encrypted = await read_body(receive, headers, SMALL_BODY)
        if isinstance(encrypted, Problem):
            await self._refuse(encrypted, send, last=True)
            return
        opener = next((one for one in self._openers() if one.knows(encrypted)), None)
        if opener is None:
            await self._refuse(problems.OBLIVIOUS_KEY, send)
            return
        try:
            opened, exchange = await self._in_thread(opener.decrypt, encrypted)
        except ReportError:
            await self._refuse(problems.UNOPENED, send)
            return
        answer = _InnerResponse()
        await self._inside(opened, scope, answer)
        await self._send_encrypted(exchange, answer, send)

    async def _inside(self, opened: bytes, scope: Scope, answer: _InnerResponse) -> None:
        """Hand a request to the endpoint of reports, and collect its response."""
        try:
            request = BinaryRequest.from_bytes(opened)
        except ReportError:
            await self._refuse(problems.BAD_REQUEST, answer.send)
            return
        matched = _PATH.fullmatch(request.path)
        if matched is None:
            await self._refuse(problems.NOT_FOUND, answer.send)
            return
        plan = self._plans.plan_for_reports(matched[1])
        if not isinstance(plan, Problem) and plan.view == "counts" and not self._trusted:
            await self._refuse(problems.COUNTS_NOT_OBLIVIOUS, answer.send)
            return
        kept = {name: value for name, value in request.headers.items() if name in _INNER_HEADERS}
        headers = [*kept.items(), (b"content-length", b"%d" % len(request.body))]
        inner = {**scope, "path": request.path, "method": request.method, "headers": headers}
        await self._ingest.handle(inner, _body(request.body), answer.send)

    async def _send_encrypted(self, exchange: Exchange, answer: _InnerResponse, send: Send) -> None:
        kept = {name: value for name, value in answer.headers if name in _RESPONSE_HEADERS}
        inner = BinaryResponse(answer.status, kept, answer.body).to_bytes(RESPONSE_BYTES)
        if len(inner) > RESPONSE_BYTES:
            inner = BinaryResponse(answer.status).to_bytes(RESPONSE_BYTES)
        content = await self._in_thread(exchange.encrypt, inner)
        last = [CLOSE] if CLOSE in answer.headers else []
        headers = [(b"content-type", RESPONSE_TYPE.encode()), NO_STORE, *last]
        await send_response(send, 200, content, headers)

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        self._service.refused(problem)
        await problem.send(send, last=last)


class _InnerResponse:
    """Keeps the response of the inner request instead of sending it."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, list[tuple[bytes, bytes]](), b""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message["body"]


def _body(content: bytes) -> Receive:
    """Return an ASGI `receive` for a body that is already in memory."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


_opener = lru_cache(maxsize=8)(GatewayKey)
