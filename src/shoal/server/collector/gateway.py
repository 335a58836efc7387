"""Oblivious HTTP at the public door: reports that somebody else's relay forwards, without senders.

A request holds a whole request for the door of reports, sealed. It is opened, handed to the same
door with the same limits, and its answer goes back sealed. All answers are equally long. Only
reports are taken here: plans and keys are no secrets.

The relay hides addresses and nothing else, and only if all devices use the same key. It forwards
each report at once, so that against this collector only the local epsilon holds. For plans whose
promise is about counts that is often the answer itself, so they are refused here, unless the
operator says to be trusted as a collector is (`oblivious = trusted`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from concurrent.futures import Executor
from functools import lru_cache
from pathlib import Path
from typing import Any

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
from shoal.protocol.plan import Plan
from shoal.server.collector.ingest import Ingest, plan_id_of
from shoal.server.core import problems
from shoal.server.core.http import SMALL_BODY, Receive, Scope, media_type, read_body
from shoal.server.core.problems import CLOSE, Problem, Send
from shoal.server.storage.key_file import OBLIVIOUS_FILE as SIGNING_FILE
from shoal.server.storage.key_file import Signer, open_keys

__all__ = ["PATH", "SIGNING_FILE", "Gateway"]

PATH = "/v1/oblivious"

ANSWER_BYTES = 1024
"""How long every answer is before it is sealed. A relay's token gets a list of refused reports. It
may not fit and is then left out: such tokens are for relays that send many reports at once."""

_INNER_HEADERS = (b"content-type", b"content-encoding", b"authorization")
_ANSWER_HEADERS = (b"content-type", b"retry-after")


class Gateway:
    """Answers sealed requests with the door that takes all others.

    Parameters
    ----------
    folder
        Where the keys are kept; the first is made at the first start. A backup has no copy of them,
        and devices fetch a new one.
    clock
        Seconds since 1970, to tell which keys are active.
    trusted
        Whether plans for counts are taken too.
    """

    def __init__(
        self,
        folder: Path,
        ingest: Ingest,
        plan_of: Callable[[str], Plan | Problem],
        signer: Signer,
        refused: Callable[[Problem], None],
        worker: Executor,
        clock: Callable[[], float],
        *,
        trusted: bool,
    ) -> None:
        self.keys = open_keys(folder, SIGNING_FILE, clock)
        self._ingest, self._plan_of, self._signer = ingest, plan_of, signer
        self._refused, self._worker, self._trusted = refused, worker, trusted

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request if it is for this address; return whether it was."""
        if scope["path"] != PATH:
            return False
        if scope["method"] in ("GET", "HEAD"):
            await self._send_keys(send)
        elif scope["method"] != "POST":
            await self._refuse(problems.ONLY_GET_AND_POST, send, last=True)
        else:
            await self._answer(scope, receive, send)
        return True

    def _openers(self) -> list[GatewayKey]:
        """Return the openers of requests: active keys, the newest first, then pending ones."""
        return [_opener(key.secret) for key in (*self.keys.active(), *self.keys.pending())]

    async def _send_keys(self, send: Send) -> None:
        content = b"".join(opener.configuration.to_list() for opener in self._openers())
        headers = [
            (b"content-type", KEYS_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"public, max-age=3600"),
            *self._signer.raw_headers(content),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if media_type(headers) != REQUEST_TYPE.encode():
            await self._refuse(problems.WRONG_TYPE, send, last=True)
            return
        sealed = await read_body(receive, headers, SMALL_BODY)
        if isinstance(sealed, Problem):
            await self._refuse(sealed, send, last=True)
            return
        opener = next((one for one in self._openers() if one.knows(sealed)), None)
        if opener is None:
            await self._refuse(problems.OBLIVIOUS_KEY, send)
            return
        try:
            opened, exchange = await self._in_thread(opener.open, sealed)
        except ReportError:
            await self._refuse(problems.UNOPENED, send)
            return
        answer = _Answer()
        await self._inside(opened, scope, answer)
        await self._send_sealed(exchange, answer, send)

    async def _inside(self, opened: bytes, scope: Scope, answer: _Answer) -> None:
        """Hand a request to the door of reports, and collect its answer."""
        try:
            request = BinaryRequest.from_bytes(opened)
        except ReportError:
            await self._refuse(problems.BAD_REQUEST, answer.send)
            return
        plan_id = plan_id_of(request.path)
        if plan_id is None:
            await self._refuse(problems.NOT_FOUND, answer.send)
            return
        plan = self._plan_of(plan_id)
        if not isinstance(plan, Problem) and plan.view == "counts" and not self._trusted:
            await self._refuse(problems.COUNTS_NOT_OBLIVIOUS, answer.send)
            return
        kept = {name: value for name, value in request.headers.items() if name in _INNER_HEADERS}
        headers = [*kept.items(), (b"content-length", b"%d" % len(request.body))]
        inner = {**scope, "path": request.path, "method": request.method, "headers": headers}
        await self._ingest.handle(inner, _body(request.body), answer.send)

    async def _send_sealed(self, exchange: Exchange, answer: _Answer, send: Send) -> None:
        kept = {name: value for name, value in answer.headers if name in _ANSWER_HEADERS}
        inner = BinaryResponse(answer.status, kept, answer.body).to_bytes(ANSWER_BYTES)
        if len(inner) > ANSWER_BYTES:
            inner = BinaryResponse(answer.status).to_bytes(ANSWER_BYTES)
        content = await self._in_thread(exchange.seal, inner)
        headers = [
            (b"content-type", RESPONSE_TYPE.encode()),
            (b"content-length", b"%d" % len(content)),
            (b"cache-control", b"no-store"),
            *([CLOSE] if CLOSE in answer.headers else []),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    async def _refuse(self, problem: Problem, send: Send, *, last: bool = False) -> None:
        self._refused(problem)
        await problem.send(send, last=last)


class _Answer:
    """What the door answered, kept instead of sent."""

    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, list[tuple[bytes, bytes]](), b""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message["body"]


def _body(content: bytes) -> Receive:
    """Return what hands over a body that is there already."""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


@lru_cache(maxsize=8)
def _opener(secret: bytes) -> GatewayKey:
    return GatewayKey(secret)
