"""The analyzer: makes the keys of crowds, opens the crowds of relays, and releases them.

Relays fetch keys of crowds and send chunks. A relay shows its token before anything of its request
is read, and signs every chunk with its own key, whose public half was registered with the token.
Receipts are signed with the analyzer's key. So each party can prove what the other sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from shoal.errors import InputError, ReportError, TransportError
from shoal.protocol.encryption import CHUNK_TYPE, Chunk, message_bytes, split_chunk
from shoal.protocol.plan import Plan
from shoal.protocol.signatures import check_public_key, check_signature
from shoal.server.analyzer.decryption import DamagedCrowd, Stop, Stopped, decrypt_crowd
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import (
    AnalyzerStore,
    CompleteCrowd,
    OpenedCrowd,
    Receipt,
    damaged_chunks,
)
from shoal.server.console.app import make_console
from shoal.server.core import problems
from shoal.server.core.administration import Administration, publish
from shoal.server.core.http import (
    JSON,
    NO_STORE,
    App,
    BodyBudget,
    Headers,
    Receive,
    Refusal,
    Scope,
    media_type,
    read_body,
    send_response,
)
from shoal.server.core.ingest import ReportPlans
from shoal.server.core.listeners import leave, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.openapi import INVALID, Operation, Parameter
from shoal.server.core.parties import known_agreement
from shoal.server.core.problems import Problem, Send
from shoal.server.core.public import PLAN, make_public, with_results
from shoal.server.core.service import Party, Service
from shoal.server.core.settings import RESULTS, AnalyzerSettings
from shoal.server.core.tokens import Token, bearer_token
from shoal.server.storage.database import StorageError, StorageFull
from shoal.server.storage.records import Declaration
from shoal.server.storage.windows import IncompleteCrowd
from shoal.support.files import canonical_json, strict_json

LARGEST_CHUNK = 8 << 20
"""Bytes of a chunk."""
CHUNKS_AT_ONCE = 8
"""How many chunks of the largest size may be on their way in at a time."""
_SMALL = 1024

_ID, _NUMBER = "([0-9a-f]{64})", "(0|[1-9][0-9]{0,9})"
_KEYS = re.compile(f"/v1/plans/{_ID}/crowd-keys")
_CHUNKS = re.compile(f"/v1/plans/{_ID}/crowds/{_NUMBER}/{_NUMBER}/chunks/{_NUMBER}")
_DISCARD = re.compile(f"/v1/plans/{_ID}/crowds/{_NUMBER}/{_NUMBER}/discard")
_LAST = 2**32 - 1
Window = Annotated[int, Meta(ge=0, le=_LAST)]
CrowdNumber = Annotated[int, Meta(ge=1, le=_LAST)]
T = TypeVar("T")

_PAUSE = 20.0
"""Seconds after which a crowd that could not be opened is tried again."""


class KeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """For which crowd a key is requested, by which relay's data, and with which deadline."""

    window: Window
    crowd: CrowdNumber
    relay: Annotated[str, Meta(pattern="^[0-9a-z-]{8,64}$")]
    deadline_days: Annotated[int, Meta(ge=0, le=10**6)]

    def __post_init__(self) -> None:
        if self.relay.endswith("\n"):  # which $ lets through
            raise ValueError("a relay's name has no line break")

    def fits(self, deadline_days: int) -> bool:
        """Whether the relay has forwarded or discarded every crowd before its key is destroyed."""
        # A relay discards an incomplete crowd after its deadline, and a complete one that was not
        # accepted after the same time again; 0 means no deadline.
        return deadline_days == 0 or 0 < 2 * self.deadline_days <= deadline_days


class DiscardRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A crowd that the relay has discarded."""

    plan: Annotated[str, Meta(pattern=f"^{_ID}$")]
    window: Window
    crowd: CrowdNumber
    state: Literal["discarded"]


_PATH = tuple(
    Parameter[int](name, "path", text, kind)
    for name, text, kind in (
        ("window", "The window, 0 where the plan has none.", Window),
        ("crowd", "The number of the crowd in the window.", CrowdNumber),
        ("chunk", "The number of the chunk.", Window),
    )
)

OPERATIONS = (
    Operation(
        "POST", "/v1/plans/{plan_id}/crowd-keys", "relay",
        "The key for the reports of a crowd, or of the next free crowd if that one has ended;"
        " signed.", None, (PLAN,), body=KeyRequest,
        problems=(problems.CROWD_NOT_DUE, problems.DEADLINES_MISFIT, problems.PLAN_CLOSED,
                  problems.PAUSED),
    ),
    Operation(
        "POST", "/v1/plans/{plan_id}/crowds/{window}/{crowd}/discard", "relay",
        "Discard a crowd that the relay has discarded, with its key; the response is signed.",
        None, (PLAN, *_PATH[:2]), body=DiscardRequest,
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


class RelayEndpoint:
    """Responds to relays."""

    title = "Shoal analyzer"
    summary = "Signed plans and keys out, chunks of complete crowds in."
    operations = OPERATIONS

    def __init__(self, service: Service, plans: ReportPlans, crowds: Analyzer) -> None:
        self._service, self._plans, self._crowds = service, plans, crowds
        self._budget = BodyBudget(CHUNKS_AT_ONCE * LARGEST_CHUNK)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> bool:
        routes = ((_KEYS, self._give_key), (_CHUNKS, self._keep_chunk), (_DISCARD, self._discard))
        found = [
            (respond, matched)
            for path, respond in routes
            if (matched := path.fullmatch(scope["path"])) is not None
        ]
        if not found:
            return False
        respond, matched = found[0]
        answer: bytes | Problem
        try:
            answer = await respond(matched, scope, receive)
        except Refusal as refusal:
            answer = refusal.problem
        except StorageFull:
            answer = problems.STORAGE_FULL
        except StorageError as error:
            LOG.error("a relay's request failed", exc_info=error)
            answer = problems.UNAVAILABLE
        if isinstance(answer, Problem):
            self._service.refused(answer)
            await answer.send(send, last=True)  # the rest of the body is not read
        else:
            signed = self._service.signer.raw_headers(answer)
            await send_response(send, 200, answer, [(b"content-type", JSON), NO_STORE, *signed])
        return True

    def _check_head(
        self, plan_id: str, scope: Scope, method: str, media: bytes
    ) -> tuple[Plan, Token, Headers]:
        """Check all that is known before the body is read."""
        if scope["method"] != method:
            raise Refusal(problems.ONLY_POST if method == "POST" else problems.ONLY_PUT)
        headers = dict(scope["headers"])
        secret = bearer_token(headers)
        token = self._service.tokens.find(secret) if secret else None
        if token is None:
            raise Refusal(problems.NO_TOKEN)
        if token.role != "relay" or not token.covers(plan_id):
            raise Refusal(problems.WRONG_ROLE)
        if media_type(headers) != media:
            raise Refusal(problems.WRONG_TYPE)
        return _no_problem(self._plans.plan_for_reports(plan_id)), token, headers

    async def _give_key(self, path: re.Match[str], scope: Scope, receive: Receive) -> bytes:
        _, _, headers = self._check_head(path[1], scope, "POST", JSON)
        asked = _parsed(_no_problem(await read_body(receive, headers, _SMALL)), KeyRequest)
        return _no_problem(await self._crowds.crowd_key(path[1], asked))

    async def _discard(self, path: re.Match[str], scope: Scope, receive: Receive) -> bytes:
        plan_id, place = path[1], Place(int(path[2]), int(path[3]))
        _, token, headers = self._check_head(plan_id, scope, "POST", JSON)
        body = _no_problem(await read_body(receive, headers, _SMALL))
        _check_signed(token, headers, body)
        if _parsed(body, DiscardRequest) != DiscardRequest(plan_id, *place, "discarded"):
            raise Refusal(problems.BAD_REQUEST)
        state = _no_problem(await self._crowds.discard(plan_id, place))
        about = {"plan": plan_id, "window": place.window, "crowd": place.crowd}
        return canonical_json(about | {"state": state})

    async def _keep_chunk(self, path: re.Match[str], scope: Scope, receive: Receive) -> bytes:
        place = Place(int(path[2]), int(path[3]))
        plan, token, headers = self._check_head(path[1], scope, "PUT", CHUNK_TYPE.encode())
        with self._budget.share() as share:
            body = _no_problem(await read_body(receive, headers, LARGEST_CHUNK, share))
            chunk = await self._service.upload_thread.run(
                _checked_chunk, plan, token, headers, body
            )
            if (chunk.window, chunk.number) != (place.window, int(path[4])):
                raise Refusal(problems.MALFORMED_CHUNK)
            receipt = _no_problem(await self._crowds.keep_chunk(place, chunk, body))
        return canonical_json(receipt.document)


def _no_problem(found: T | Problem) -> T:
    if isinstance(found, Problem):
        raise Refusal(found)
    return found


def _parsed(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.convert(strict_json(body), kind)
    except (ValueError, *INVALID):
        raise Refusal(problems.BAD_REQUEST) from None


def _checked_chunk(plan: Plan, token: Token, headers: Headers, body: bytes) -> Chunk:
    """Return the chunk in a body that the relay signed."""
    _check_signed(token, headers, body)
    try:
        chunk = split_chunk(plan, body)
    except ReportError:
        raise Refusal(problems.MALFORMED_CHUNK) from None
    if len(chunk.content) < message_bytes(plan):
        raise Refusal(problems.MALFORMED_CHUNK)
    return chunk


def _check_signed(token: Token, headers: Headers, body: bytes) -> None:
    """Refuse a body that the relay's key did not sign; during a rotation it signs with both."""
    signature = headers.get(b"shoal-signature", b"").decode("latin-1")
    try:
        check_signature(check_public_key(token.key or ""), body, signature)
    except (InputError, TransportError):
        raise Refusal(problems.UNSIGNED) from None


class AnalyzerMetrics(Metrics):
    """The metrics of every service, and of damaged chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._damaged = self._counter("shoal_chunks_damaged", "Chunks found damaged on the disk.")
        self._healed = self._counter("shoal_chunks_healed", "Damaged chunks that were repaired.")

    def damaged(self, found: int, healed: int) -> None:
        self._damaged.inc(found)
        self._healed.inc(healed)


class Analyzer(Party):
    """Makes the keys of crowds, opens the crowds that relays forward, and releases them.

    Use it as an asynchronous context. `public` and `console` are its two ASGI apps,
    `administration` its plans, `store` its data. One analyzer at a time uses the folder. `clock`
    returns seconds since 1970; by default it does not jump.
    """

    crowd_columns = None  # only the relay knows whether a crowd has all its reports
    public: App
    console: App
    store: AnalyzerStore
    administration: Administration

    def __init__(
        self,
        folder: Path | str,
        settings: AnalyzerSettings | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings, self.metrics = settings or AnalyzerSettings(), AnalyzerMetrics()
        super().__init__(folder, self.settings, self.metrics, clock, role="analyzer")
        self._agreed = self._agreed_token()

    async def __aenter__(self) -> Self:
        self._complete, self._stop_opening = asyncio.Event(), Stop()
        self._complete.set()  # a crowd may have been waiting when the process ended
        self.store = self.open_store(
            AnalyzerStore,
            spare=self.settings.min_free_megabytes << 20,
            opened=self._opened,
            damaged=self._note_damage,
        )
        if self._agreed is not None:
            self.service.tokens.agree(*self._agreed)
        self._opening_thread = self.service.add_thread("opening")
        self.administration = Administration(self.service, self.store, self.settings)
        endpoint = RelayEndpoint(self.service, self.administration, self)
        self.public = make_public(self.administration, endpoint)
        on, folder = self.settings.public_results, self.service.folder / RESULTS
        self.public, writing = with_results(self.public, self.administration, folder, on=on)
        self.console = make_console(self.administration)
        self.service.start(None, self, self._open_crowds(), *writing)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop_opening.ask()
        self._complete.set()
        await super().__aexit__(*error)

    def _agreed_token(self) -> tuple[Token, str, int] | None:
        """Return the token of the relay that was set up, its secret, and when its file was made."""
        agreement = self.service.agreement
        if agreement is None or (agreement.own.role == "analyzer" and agreement.missing):
            return None
        agreement = known_agreement(self.service.folder, "analyzer")
        relay = agreement.others["relay"]
        token = Token.new("relay", f"relay {relay.fingerprint[:9]}", key=relay.signing_key)
        return token, agreement.token("relay"), relay.made

    # What relays ask for

    async def crowd_key(self, plan_id: str, request: KeyRequest) -> bytes | Problem:
        """Return the key of a crowd as a document, or why there is none."""
        if not request.fits(self.settings.deadline_days):
            return problems.DEADLINES_MISFIT
        place = Place(request.window, request.crowd)
        return await self.service.in_store(self.store.crowd_key, plan_id, place, request.relay)

    async def keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        """Store a chunk and return the receipt, or why it is refused."""
        receipt = await self.service.in_store(self.store.keep_chunk, place, chunk, content)
        if isinstance(receipt, Problem) or receipt.crowd is None:
            return receipt
        # The relay deletes the crowd when it is told that it is complete, so every chunk is read
        # from the disk first. Otherwise the relay sends all of them again.
        if await self._find_damage(receipt.crowd):
            return Receipt(receipt.document | {"state": "receiving"})
        self._complete.set()
        return receipt

    async def discard(self, plan_id: str, place: Place) -> str | Problem:
        """Discard a crowd that the relay discarded, and return its state."""
        return await self.service.in_store(self.store.discard, plan_id, place)

    async def _find_damage(self, crowd: CompleteCrowd) -> bool:
        """Look for damaged chunks of a complete crowd, and note them; return whether it waits."""
        found = await self.service.upload_thread.run(damaged_chunks, crowd.chunks)
        if not found:
            return False
        note = self.store.note_damage
        waits = await self.service.in_store(note, crowd.plan.id, crowd.number, found)
        if waits:
            facts = {"plan": crowd.plan.id, "crowd": crowd.number, "chunks": found}
            LOG.error("chunks of a crowd are damaged on the disk", extra={"facts": facts})
        return waits

    # Crowds

    def _note_damage(self, found: int, healed: int) -> None:
        self.metrics.damaged(found, healed)
        if healed:
            LOG.warning("damaged chunks were repaired", extra={"facts": {"chunks": healed}})

    def _opened(self, plan: Plan, number: int, crowd: OpenedCrowd, released: bool) -> None:
        self.metrics.unreadable.inc(crowd.unreadable)
        if released:
            self.metrics.released(crowd.tally.reports)
            LOG.info("crowd released", extra={"facts": {"plan": plan.id, "crowd": number}})
        else:
            self.discarded(plan, IncompleteCrowd(number, 100))
        if crowd.unreadable:
            facts = {"plan": plan.id, "crowd": number, "unopened": crowd.unopened}
            facts |= {"out_of_range": crowd.out_of_range, "repeated": crowd.repeated}
            LOG.warning("%d messages could not be read", crowd.unreadable, extra={"facts": facts})

    async def _open_crowds(self) -> None:
        """Open complete crowds, one after another, until the analyzer stops."""
        while True:
            await self._complete.wait()
            self._complete.clear()
            try:
                while await self._open_next():
                    pass
            except Stopped:
                return
            except Exception as error:
                LOG.error("a crowd was not opened and is tried again", exc_info=error)
                asyncio.get_running_loop().call_later(_PAUSE, self._complete.set)

    async def _open_next(self) -> bool:
        """Open a crowd and release it; return whether there was one."""
        self._stop_opening.check()
        crowd = await self.service.on_store_thread(self.store.next_complete)
        if crowd is None:
            return False
        scratch, processes = self.store.scratch, self.settings.opening_processes
        try:
            opened = await self._opening_thread.run(
                decrypt_crowd, crowd, scratch, processes, self._stop_opening
            )
        except DamagedCrowd:
            if not await self._find_damage(crowd):
                raise  # the chunks are readable now; it is tried again
            return True
        await self.service.on_store_thread(self.store.release_crowd, crowd, opened)
        return True

    # Housekeeping

    def sweep(self) -> None:
        self.administration.keep_up()
        super().sweep()

    def after_sweep(self) -> None:
        """Look for a crowd to open: a damaged chunk may have been repaired."""
        self._complete.set()
        self.administration.changed.set()


def serve_analyzer(
    folder: Path | str,
    settings: AnalyzerSettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run an analyzer until it is told to stop.

    `plans` are published at the start, with a `declaration` about them, if they are not yet.
    `ready` is called with the two addresses, as URLs by the names `public` and `console`.
    """
    settings = settings or AnalyzerSettings()
    analyzer = Analyzer(folder, settings)

    async def begin() -> None:
        for plan in plans:
            await publish(analyzer.administration, plan, declaration)

    listeners = {"public": settings.public, "console": settings.console}
    run(analyzer, listeners, begin=begin, ready=ready)
    leave(analyzer)
