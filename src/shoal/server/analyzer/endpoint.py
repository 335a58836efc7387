"""The analyzer's endpoint for relays: they fetch keys of crowds and send chunks.

A relay shows its token before anything of its request is read, and signs every chunk with its own
key, whose public half was registered with the token. Receipts are signed with the analyzer's key.
So each party can prove what the other sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import InputError, ReportError, TransportError
from shoal.protocol.encryption import CHUNK_TYPE, Chunk, message_bytes, split_chunk
from shoal.protocol.plan import Plan
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.server.analyzer.plan import Place
from shoal.server.core import problems
from shoal.server.core.http import (
    JSON,
    BodyBudget,
    Headers,
    Receive,
    Scope,
    bearer_token,
    media_type,
    read_body,
)
from shoal.server.core.ingest import ReportPlans
from shoal.server.core.observability import LOG
from shoal.server.core.openapi import Integer, Operation
from shoal.server.core.problems import Problem, Send
from shoal.server.core.public import PLAN
from shoal.server.core.service import Service
from shoal.server.core.tokens import Token
from shoal.server.storage.database import StorageError, StorageFull
from shoal.support.files import canonical_json, strict_json

if TYPE_CHECKING:
    from shoal.server.analyzer.service import Analyzer

LARGEST_CHUNK = 8 << 20
"""Bytes of a chunk."""
CHUNKS_AT_ONCE = 8
"""How many chunks of the largest size may be on their way in at a time."""
_SMALL = 1024

_RELAY = re.compile("[0-9a-z-]{8,64}")
_LONGEST_DEADLINE = 10**6
_ID, _NUMBER = "([0-9a-f]{64})", "(0|[1-9][0-9]{0,9})"
_KEYS = re.compile(f"/v1/plans/{_ID}/crowd-keys")
_CHUNKS = re.compile(f"/v1/plans/{_ID}/crowds/{_NUMBER}/{_NUMBER}/chunks/{_NUMBER}")
_DISCARD = re.compile(f"/v1/plans/{_ID}/crowds/{_NUMBER}/{_NUMBER}/discard")
_LAST = 2**32 - 1
_PLACE: dict[str, Any] = {
    "type": "object",
    "required": ["window", "crowd", "relay", "deadline_days"],
    "additionalProperties": False,
    "properties": {
        "window": {"type": "integer", "minimum": 0, "maximum": _LAST},
        "crowd": {"type": "integer", "minimum": 1, "maximum": _LAST},
        "relay": {"type": "string", "pattern": f"^{_RELAY.pattern}$"},
        "deadline_days": {"type": "integer", "minimum": 0, "maximum": _LONGEST_DEADLINE},
    },
}
_DISCARDED = {
    "type": "object",
    "required": ["plan", "window", "crowd", "state"],
    "additionalProperties": False,
    "properties": {
        "plan": {"type": "string", "pattern": f"^{_ID}$"},
        "window": _PLACE["properties"]["window"],
        "crowd": _PLACE["properties"]["crowd"],
        "state": {"type": "string", "enum": ["discarded"]},
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
        "The key for the reports of a crowd, or of the next free crowd if that one has ended;"
        " signed.", None, (PLAN,), body=_PLACE,
        problems=(problems.CROWD_NOT_DUE, problems.DEADLINES_MISFIT, problems.PLAN_CLOSED,
                  problems.PAUSED),
    ),
    Operation(
        "POST", "/v1/plans/{plan_id}/crowds/{window}/{crowd}/discard", "relay",
        "Discard a crowd that the relay has discarded, with its key; the response is signed.",
        None, (PLAN, *_PATH[:2]), body=_DISCARDED,
        problems=(problems.UNKNOWN_CROWD, problems.UNSIGNED),
    ),
    Operation(
        "PUT", "/v1/plans/{plan_id}/crowds/{window}/{crowd}/chunks/{chunk}", "relay",
        "A chunk of a complete crowd; the response is a signed receipt.", None,
        (PLAN, *_PATH), binary=(CHUNK_TYPE,),
        problems=(problems.MALFORMED_CHUNK, problems.OTHER_CHUNK, problems.PLAN_CLOSED,
                  problems.UNSIGNED, problems.PAUSED),
    ),
)  # fmt: skip
"""Operations for relays, in addition to the public ones."""


class KeyRequest(NamedTuple):
    """Who asks for a key: the name of the relay's data, and its deadline for crowds in days."""

    relay: str
    deadline_days: int

    def fits(self, deadline_days: int) -> bool:
        """Whether the relay has forwarded or discarded every crowd before its key is destroyed.

        A relay discards a crowd that is not complete after its deadline, and one that is complete
        but not accepted after the same time again; 0 means no deadline.
        """
        return deadline_days == 0 or 0 < 2 * self.deadline_days <= deadline_days


class RelayEndpoint:
    """Responds to relays."""

    title = "Shoal analyzer"
    summary = "Signed plans and keys out, chunks of complete crowds in."
    operations = OPERATIONS

    def __init__(self, service: Service, plans: ReportPlans, crowds: Analyzer) -> None:
        self._service, self._plans, self._crowds = service, plans, crowds
        self._budget = BodyBudget(CHUNKS_AT_ONCE * LARGEST_CHUNK)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        path = scope["path"]
        keys, chunks, discard = (one.fullmatch(path) for one in (_KEYS, _CHUNKS, _DISCARD))
        if keys is None and chunks is None and discard is None:
            return False
        try:
            if keys is not None:
                answer = await self._answer_key(keys[1], scope, receive)
            elif chunks is not None:
                place = Place(int(chunks[2]), int(chunks[3]))
                answer = await self._answer_chunk(chunks[1], place, int(chunks[4]), scope, receive)
            else:
                assert discard is not None
                place = Place(int(discard[2]), int(discard[3]))
                answer = await self._answer_discard(discard[1], place, scope, receive)
        except StorageFull:
            answer = problems.STORAGE_FULL
        except StorageError as error:
            LOG.error("a relay's request failed", exc_info=error)
            answer = problems.UNAVAILABLE
        if isinstance(answer, Problem):
            self._service.refused(answer)
            await answer.send(send, last=True)  # the rest of the body is not read
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
        token = self._service.tokens.find(secret) if secret else None
        if token is None:
            return problems.NO_TOKEN
        if token.role != "relay" or not token.covers(plan_id):
            return problems.WRONG_ROLE
        if media_type(headers) != media:
            return problems.WRONG_TYPE
        plan = self._plans.plan_for_reports(plan_id)
        return plan if isinstance(plan, Problem) else (plan, token, headers)

    async def _answer_key(self, plan_id: str, scope: Scope, receive: Receive) -> bytes | Problem:
        head = self._check_head(plan_id, scope, "POST", JSON)
        if isinstance(head, Problem):
            return head
        body = await read_body(receive, head[2], _SMALL)
        if isinstance(body, Problem):
            return body
        asked = _asked(body)
        return (
            asked if isinstance(asked, Problem) else await self._crowds.crowd_key(plan_id, *asked)
        )

    async def _answer_discard(
        self, plan_id: str, place: Place, scope: Scope, receive: Receive
    ) -> bytes | Problem:
        head = self._check_head(plan_id, scope, "POST", JSON)
        if isinstance(head, Problem):
            return head
        _, token, headers = head
        body = await read_body(receive, headers, _SMALL)
        if isinstance(body, Problem):
            return body
        if not _is_signed(token.key, headers.get(b"shoal-signature", b""), body):
            return problems.UNSIGNED
        about = {"plan": plan_id, "window": place.window, "crowd": place.crowd}
        if _parsed(body) != about | {"state": "discarded"}:
            return problems.BAD_REQUEST
        state = await self._crowds.discard(plan_id, place)
        return state if isinstance(state, Problem) else canonical_json(about | {"state": state})

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
            chunk = await self._service.upload_thread.run(
                _checked_chunk, plan, token, signature, body
            )
            if isinstance(chunk, Problem):
                return chunk
            if (chunk.window, chunk.number) != (place.window, number):
                return problems.MALFORMED_CHUNK
            receipt = await self._crowds.keep_chunk(place, chunk, body)
        if isinstance(receipt, Problem):
            return receipt
        return canonical_json(receipt.document)

    async def _send_signed(self, document: bytes, send: Send) -> None:
        headers = [
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(document)),
            (b"cache-control", b"no-store"),
            *self._service.signer.raw_headers(document),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": document})


def _parsed(body: bytes) -> object:
    try:
        return strict_json(body)
    except ValueError:
        return None


def _asked(body: bytes) -> tuple[Place, KeyRequest] | Problem:
    """Read for which crowd a key is requested, and by which relay."""
    document = _parsed(body)
    if not isinstance(document, dict) or set(document) != set(_PLACE["required"]):
        return problems.BAD_REQUEST
    window, crowd, relay, days = (document[name] for name in _PLACE["required"])
    if any(type(number) is not int or number < 0 for number in (window, crowd, days)):
        return problems.BAD_REQUEST
    if max(window, crowd) > _LAST or crowd == 0 or days > _LONGEST_DEADLINE:
        return problems.BAD_REQUEST
    if not isinstance(relay, str) or _RELAY.fullmatch(relay) is None:
        return problems.BAD_REQUEST
    return Place(window, crowd), KeyRequest(relay, days)


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
    """Whether the relay's key signed a chunk; a relay that rotates its key signs with both."""
    try:
        check_signature(check_public_key(key or ""), body, signature.decode("latin-1"))
    except (InputError, TransportError):
        return False
    return True
