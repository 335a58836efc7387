"""Where relays ask for keys of crowds and bring chunks: the analyzer's public door.

A relay shows its token before anything of its request is read, and signs every chunk with its own
key, whose public half was registered with the token. Receipts are signed with the analyzer's key.
So each can prove what the other sent.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shoal.agreement.plan import Plan
from shoal.agreement.sealed_wire import CHUNK_TYPE, Chunk, split_chunk
from shoal.agreement.sealing import message_bytes
from shoal.collector import problems
from shoal.collector.analyzer.sealed_plan import Place
from shoal.collector.analyzer.store import Receipt
from shoal.collector.console.openapi import Operation
from shoal.collector.console.parameters import Integer
from shoal.collector.console.tokens import Token
from shoal.collector.http import (
    JSON,
    BodyBudget,
    Headers,
    Receive,
    Scope,
    bearer_token,
    media_type,
    read_body,
)
from shoal.collector.intake.database import StorageError, StorageFull
from shoal.collector.logs import LOG
from shoal.collector.problems import Problem, Send
from shoal.collector.public import PLAN, PublicDoor
from shoal.collector.signing import Signer
from shoal.errors import ReportError
from shoal.support.files import canonical_json, strict_json

__all__ = ["LARGEST_CHUNK", "RelayDoor"]

LARGEST_CHUNK = 8 << 20
"""Bytes of a chunk."""
CHUNKS_AT_ONCE = 8
"""How many chunks of the largest size may be on their way in at a time."""
_SMALL = 1024

_ID, _NUMBER = "([0-9a-f]{64})", "(0|[1-9][0-9]{0,9})"
_KEYS = re.compile(f"/v1/plans/{_ID}/crowd-keys")
_CHUNKS = re.compile(f"/v1/plans/{_ID}/crowds/{_NUMBER}/{_NUMBER}/chunks/{_NUMBER}")
_LAST = 2**32 - 1
_PLACE = {
    "type": "object",
    "required": ["window", "crowd"],
    "additionalProperties": False,
    "properties": {
        "window": {"type": "integer", "minimum": 0, "maximum": _LAST},
        "crowd": {"type": "integer", "minimum": 1, "maximum": _LAST},
    },
}
_PATH = tuple(
    Integer(name, "path", text, lowest, _LAST)
    for name, text, lowest in (
        ("window", "The window, 0 where the plan has none.", 0),
        ("crowd", "The number of the crowd in the window.", 1),
        ("chunk", "The number of the chunk.", 0),
    )
)

OPERATIONS = (
    Operation(
        "POST", "/v1/plans/{plan_id}/crowd-keys", "relay",
        "The key that the reports of a crowd are sealed for, signed.", None, (PLAN,), body=_PLACE,
        problems=(problems.CROWD_NOT_DUE, problems.PLAN_CLOSED, problems.PAUSED),
    ),
    Operation(
        "PUT", "/v1/plans/{plan_id}/crowds/{window}/{crowd}/chunks/{chunk}", "relay",
        "A chunk of a whole crowd's messages; the answer is a signed receipt.", None,
        (PLAN, *_PATH), body={"type": "null"}, binary=(CHUNK_TYPE,),
        problems=(problems.MALFORMED_CHUNK, problems.OTHER_CHUNK, problems.PLAN_CLOSED,
                  problems.UNSIGNED, problems.PAUSED),
    ),
)  # fmt: skip
"""What relays may ask for, beside what everybody may."""


class RelayDoor:
    """Answers relays.

    Parameters
    ----------
    plan_of
        Returns a published plan by its id, or the problem why nothing is accepted for it.
    crowd_key, keep_chunk
        The transactions of the store, each on the store's own thread.
    token_of
        Returns the token that a secret belongs to, if any.
    signer
        Signs keys and receipts.
    refused
        Called with each problem that is answered.
    worker
        Runs what would block other requests.
    whole
        Called when a crowd has its last chunk.
    """

    def __init__(
        self,
        *,
        plan_of: Callable[[str], Plan | Problem],
        crowd_key: Callable[[str, Place], Awaitable[bytes | Problem]],
        keep_chunk: Callable[[Place, Chunk, bytes], Awaitable[Receipt | Problem]],
        token_of: Callable[[str], Token | None],
        signer: Signer,
        refused: Callable[[Problem], None],
        worker: Executor,
        whole: Callable[[], None],
    ) -> None:
        self._plan_of, self._crowd_key, self._keep_chunk = plan_of, crowd_key, keep_chunk
        self._token_of, self._signer, self._refused = token_of, signer, refused
        self._worker, self._whole = worker, whole
        self._budget = BodyBudget(CHUNKS_AT_ONCE * LARGEST_CHUNK)

    @property
    def door(self) -> PublicDoor:
        """It as the public listener's door."""
        summary = "Signed plans and keys out, chunks of whole crowds in."
        return PublicDoor("Shoal analyzer", summary, OPERATIONS, self.handle)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a request if it is for this door; return whether it was."""
        keys, chunks = _KEYS.fullmatch(scope["path"]), _CHUNKS.fullmatch(scope["path"])
        if keys is None and chunks is None:
            return False
        try:
            if keys is not None:
                answer = await self._answer_key(keys[1], scope, receive)
            else:
                assert chunks is not None
                place = Place(int(chunks[2]), int(chunks[3]))
                answer = await self._answer_chunk(chunks[1], place, int(chunks[4]), scope, receive)
        except StorageFull:
            answer = problems.STORAGE_FULL
        except StorageError as error:
            LOG.error("a relay's request failed", exc_info=error)
            answer = problems.UNAVAILABLE
        if isinstance(answer, Problem):
            self._refused(answer)
            await answer.send(send, last=True)  # what is left of the body is not read
        else:
            await self._send_signed(answer, send)
        return True

    def _check_head(
        self, plan_id: str, scope: Scope, method: str, media: bytes
    ) -> tuple[Plan, Token, Headers] | Problem:
        """Check all that is known before the body is read."""
        if scope["method"] != method:
            return problems.ONLY_POST if method == "POST" else problems.ONLY_PUT
        headers = dict(scope["headers"])
        secret = bearer_token(headers)
        token = self._token_of(secret) if secret else None
        if token is None:
            return problems.NO_TOKEN
        if token.role != "relay" or not token.covers(plan_id):
            return problems.WRONG_ROLE
        if media_type(headers) != media:
            return problems.WRONG_TYPE
        plan = self._plan_of(plan_id)
        return plan if isinstance(plan, Problem) else (plan, token, headers)

    async def _answer_key(self, plan_id: str, scope: Scope, receive: Receive) -> bytes | Problem:
        head = self._check_head(plan_id, scope, "POST", JSON)
        if isinstance(head, Problem):
            return head
        body = await read_body(receive, head[2], _SMALL)
        if isinstance(body, Problem):
            return body
        place = _place(body)
        return place if isinstance(place, Problem) else await self._crowd_key(plan_id, place)

    async def _answer_chunk(
        self, plan_id: str, place: Place, number: int, scope: Scope, receive: Receive
    ) -> bytes | Problem:
        head = self._check_head(plan_id, scope, "PUT", CHUNK_TYPE.encode())
        if isinstance(head, Problem):
            return head
        plan, token, headers = head
        with self._budget.share() as share:
            body = await read_body(receive, headers, LARGEST_CHUNK, share)
            if isinstance(body, Problem):
                return body
            signature = headers.get(b"shoal-signature", b"")
            chunk = await self._in_thread(_checked_chunk, plan, token, signature, body)
            if isinstance(chunk, Problem):
                return chunk
            if (chunk.window, chunk.number) != (place.window, number):
                return problems.MALFORMED_CHUNK
            receipt = await self._keep_chunk(place, chunk, body)
        if isinstance(receipt, Problem):
            return receipt
        if receipt.completes:
            self._whole()
        return canonical_json(receipt.document)

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    async def _send_signed(self, document: bytes, send: Send) -> None:
        headers = [
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(document)),
            (b"cache-control", b"no-store"),
            (b"shoal-signature", self._signer.sign(document).encode()),
            (b"shoal-key", self._signer.public_key.encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": document})


def _place(body: bytes) -> Place | Problem:
    """Read which crowd a key is asked for."""
    try:
        document = strict_json(body)
    except ValueError:
        return problems.BAD_REQUEST
    if not isinstance(document, dict) or set(document) != {"window", "crowd"}:
        return problems.BAD_REQUEST
    place = Place(document["window"], document["crowd"])
    if any(type(number) is not int or not 0 <= number <= _LAST for number in place):
        return problems.BAD_REQUEST
    return place if place.crowd else problems.BAD_REQUEST


def _checked_chunk(plan: Plan, token: Token, signature: bytes, body: bytes) -> Chunk | Problem:
    """Return the chunk in a body that the relay signed."""
    if not _is_signed(token.key, signature, body):
        return problems.UNSIGNED
    try:
        chunk = split_chunk(plan, body)
    except ReportError:
        return problems.MALFORMED_CHUNK
    return chunk if len(chunk.content) >= message_bytes(plan) else problems.MALFORMED_CHUNK


def _is_signed(key: str | None, signature: bytes, body: bytes) -> bool:
    if key is None:
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(_decoded(key.encode()))
        public.verify(_decoded(signature), body)
    except (InvalidSignature, ValueError):
        return False
    return True


def _decoded(text: bytes) -> bytes:
    """Read base64url without padding."""
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("this is not base64url.") from error
