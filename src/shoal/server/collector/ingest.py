"""`POST /v1/plans/{id}/reports`: reports of devices, and large batches of relays with a token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.report_files import Batch, parse_batch
from shoal.protocol.wire import batch_bytes
from shoal.server.core import problems
from shoal.server.core.http import JSON, NO_STORE, BodyBudget, Receive, send_response
from shoal.server.core.ingest import (
    UNREAD,
    Committer,
    DeviceIngest,
    ReportFormat,
    ReportPlans,
    ReportRequest,
)
from shoal.server.core.openapi import Operation
from shoal.server.core.problems import Problem, Send
from shoal.server.core.public import PLAN
from shoal.server.core.service import Service
from shoal.server.core.settings import Settings

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


def plan_id_of(path: str) -> str | None:
    """Return the plan that reports sent to a path are for, or None if it is no such path."""
    matched = _PATH.fullmatch(path)
    return None if matched is None else matched[1]


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
        if self._rate and not self._allowance(request.token).take(len(upload)):
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
    return [WindowPart(at, _chosen(batch, at)) for at in np.split(order, starts[1:])]


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


def _chosen(batch: Batch, at: NDArray[np.intp]) -> Batch:
    if len(at) == len(batch):
        return batch
    cohorts = None if batch.cohorts is None else batch.cohorts[at]
    return Batch(batch.plan_id, batch.ids[at], batch.windows[at], cohorts, batch.rows[at])
