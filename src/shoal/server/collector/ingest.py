"""`POST /v1/plans/{id}/reports`: reports of devices, and large batches of relays with a token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.report_files import Batch, parse_batch
from shoal.protocol.plan import Plan
from shoal.protocol.wire import batch_bytes
from shoal.server.core import problems
from shoal.server.core.group_commit import Committer
from shoal.server.core.http import JSON, BodyBudget, Receive, Scope
from shoal.server.core.ingest import NO_STORE, UNREAD, DeviceIngest, Request
from shoal.server.core.problems import Problem, Send
from shoal.server.core.settings import Settings
from shoal.server.core.tokens import Token

__all__ = ["BINARY", "Ingest", "Part", "plan_id_of", "refusal_document", "split_by_window"]

BINARY = ("application/vnd.shoal.reports", "application/octet-stream")
"""Media types of a batch in the binary form."""
LARGE_BODIES = 8
"""How many requests of the largest size may be under way at a time."""


_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})/reports")


def plan_id_of(path: str) -> str | None:
    """Return the plan that reports sent to a path are for, or None if it is no such path."""
    matched = _PATH.fullmatch(path)
    return None if matched is None else matched[1]


class Ingest(DeviceIngest[Batch]):
    """Accepts reports from devices, and from relays, which may send far more at once."""

    path = _PATH
    media = frozenset({*(media.encode() for media in BINARY), JSON})

    def __init__(
        self,
        settings: Settings,
        plan_of: Callable[[str], Plan | Problem],
        committer: Committer[Batch],
        token_of: Callable[[str], Token | None],
        refused: Callable[[Problem], None],
        worker: Executor,
    ) -> None:
        needs_token = settings.ingest == "token"
        super().__init__(
            settings, plan_of, committer, token_of, refused, worker, needs_token=needs_token
        )
        self._relay_budget = BodyBudget(LARGE_BODIES * settings.largest_body)

    @staticmethod
    def parse(plan: Plan, body: bytes) -> Batch:
        """Return the reports in a body, binary or JSON."""
        return parse_batch(plan, body)

    @staticmethod
    def bytes_of(plan: Plan, count: int) -> int:
        """Return how many bytes so many reports have in the binary form."""
        return batch_bytes(plan, count)

    async def _answer(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        if request.is_relay:
            await self._answer_relay(request, receive, send)
        else:
            await super()._answer(request, scope, receive, send)

    async def _answer_relay(self, request: Request, receive: Receive, send: Send) -> None:
        """Accept what can be accepted of a relay's batch and say which reports were refused."""
        upload = await self._read(
            request, receive, self._relay_budget, self._settings.largest_body, problems.TOO_LARGE
        )
        document = upload if isinstance(upload, Problem) else await self._relay(request, upload)
        if isinstance(document, Problem):
            await self._refuse(document, send, last=document in UNREAD)
            return
        headers = [(b"content-length", b"%d" % len(document)), NO_STORE, (b"content-type", JSON)]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": document})

    async def _relay(self, request: Request, upload: Batch) -> bytes | Problem:
        assert request.token is not None
        if self._rate and not self._allowance(request.token).take(len(upload)):
            return problems.TOO_MANY
        parts = await self._in_thread(split_by_window, upload)
        if isinstance(parts, Problem):
            return parts
        answers = await asyncio.gather(*(self._committer.submit(part.reports) for part in parts))
        document: bytes | Problem = await self._in_thread(refusal_document, parts, answers)
        return document


MOST_WINDOWS = 1000
"""How many windows the reports of one batch may have; at most three are ever open."""

_OF_A_REPORT = (problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN)
"""Problems that concern single reports of a batch."""


class Part(NamedTuple):
    """The reports of one window, and their places in the batch."""

    places: NDArray[np.intp]
    reports: Batch


def split_by_window(batch: Batch) -> list[Part] | Problem:
    """Split a batch into one part for each window."""
    order = np.argsort(batch.windows, kind="stable")
    windows, starts = np.unique(batch.windows[order], return_index=True)
    if len(windows) > MOST_WINDOWS:
        return problems.MALFORMED
    return [Part(at, _chosen(batch, at)) for at in np.split(order, starts[1:])]


def refusal_document(parts: Sequence[Part], answers: Sequence[Problem | None]) -> bytes | Problem:
    """Return the JSON document that says which reports were refused.

    A problem that does not concern single reports is returned instead. Some reports may have been
    counted by then. The relay sends the whole batch again, and they are not counted twice.
    """
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
