"""The relay: accepts encrypted reports and forwards complete crowds, shuffled.

It has two listeners. Devices fetch the analyzer's documents and send encrypted reports. Operators
see health, metrics and the progress of crowds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import InputError, PlanError, PrivacyRefusal
from shoal.protocol.encryption import EncryptedReports, encrypted_batch_bytes, split_encrypted
from shoal.protocol.plan import Aggregators, Plan
from shoal.protocol.signatures import KEY, SIGNATURE, check_public_key
from shoal.protocol.wire import ENCRYPTED_TYPE
from shoal.server.core import problems
from shoal.server.core.http import App, Refusal, read_origins
from shoal.server.core.ingest import Committer, DeviceIngest, ReportFormat
from shoal.server.core.listeners import leave, operator_app, run
from shoal.server.core.observability import LOG
from shoal.server.core.openapi import Operation, Parameter
from shoal.server.core.parties import HttpPeer, Peer, known_agreement
from shoal.server.core.problems import Problem
from shoal.server.core.public import AN_HOUR, PLAN, public_app
from shoal.server.core.service import Party
from shoal.server.core.settings import RelaySettings
from shoal.server.relay.analyzer_client import AnalyzerClient
from shoal.server.relay.documents import KeyPrefetcher, RelayPlans, refresh_on_miss
from shoal.server.relay.forwarding import Forwarder, RelayMetrics
from shoal.server.relay.open_plan import Document
from shoal.server.relay.shuffled_chunks import ShuffledChunks, crowd_bytes
from shoal.server.relay.store import RelayCrowd, RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import PlanRecord

_WINDOW = Parameter[int](
    "window", "query", "The window's number; 0 without windows.",
    Annotated[int, Meta(ge=0, lt=2**32)], 0,
)  # fmt: skip
FORMAT = ReportFormat(
    re.compile(r"/v1/plans/([0-9a-f]{64})/encrypted"),
    frozenset({ENCRYPTED_TYPE.encode()}),
    split_encrypted,
    encrypted_batch_bytes,
)

_FIRST_ANSWER = 5.0
"""Seconds that a start waits for the analyzer's first response."""
_CROWDS_OF_ROOM = 3
"""How many complete crowds of a plan there must be room for: as rows, in buckets, as chunks. Only
buckets are in the folder if the data are in a database."""


def kilobytes(upload: EncryptedReports) -> int:
    """Return how much memory an upload takes while it waits, in kilobytes."""
    return 1 + (len(upload.content) >> 10)


class EncryptedIngest(DeviceIngest):
    """Accepts encrypted reports from devices."""

    title, summary = "Shoal relay", "Documents out, encrypted reports in."
    operations = (
        Operation(
            "POST", "/v1/plans/{plan_id}/encrypted", None,
            "Send encrypted reports. Each is forwarded once; a repeated report gets the same"
            " response.",
            None, (PLAN,), status=202, media=(), binary=(ENCRYPTED_TYPE,),
            problems=(problems.PLAN_CLOSED, problems.KEY_CHANGED, problems.TOO_MANY),
        ),
    )  # fmt: skip


def make_public(relay: Relay, ingest: EncryptedIngest) -> App:
    def passed_on(name: str, cache: str = AN_HOUR) -> Response:
        return _as_received(relay.cache.document(name), cache)

    async def plan(request: Request) -> Response:
        return passed_on(f"plan {request.path_params['plan_id']}")

    async def certificate(request: Request) -> Response:
        return passed_on(f"certificate {request.path_params['plan_id']}")

    async def keys(request: Request) -> Response:
        return passed_on("keys", "no-store")

    async def crowd_key(request: Request) -> Response:
        plan_id = request.path_params["plan_id"]
        return _as_received(relay.cache.crowd_key(plan_id, _WINDOW.read(request)), "no-store")

    documents = (
        Operation(
            "GET", "/v1/plans/{plan_id}", None, "A plan, signed by the analyzer.", plan, (PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/certificate", None,
            "The certificate of the plan, signed by the analyzer.", certificate, (PLAN,),
            problems=(problems.ANALYZER_SILENT,),
        ),
        Operation(
            "GET", "/v1/plans/{plan_id}/crowd-key", None,
            "The key that reports of a window are encrypted for now, signed by the analyzer.",
            crowd_key, (PLAN, _WINDOW),
            problems=(problems.WINDOW_EXPIRED, problems.WINDOW_NOT_OPEN, problems.NO_KEY),
        ),
        Operation("GET", "/v1/keys", None, "The analyzer's signing keys.", keys),
    )  # fmt: skip
    origins = read_origins(relay.settings.origins)
    return public_app(ingest, documents, relay.service.refused, lambda plan_id: origins)


def _as_received(document: Document | Problem, cache: str) -> Response:
    """Return a document of the analyzer as it was received."""
    if isinstance(document, Problem):
        raise Refusal(document)
    headers = {"Cache-Control": cache}
    if document.signature:
        headers |= {SIGNATURE: document.signature, KEY: document.signer}
    return Response(document.content, headers=headers, media_type="application/json")


_NOT_READY = (
    problems.ANALYZER_SILENT,
    problems.NO_KEY,
    problems.FORWARD_STALLED,
    problems.DEADLINES_MISFIT,
)


class Relay(Party):
    """Accepts encrypted reports for plans with two parties and forwards complete crowds, shuffled.

    Use it as an asynchronous context; `public` and `console` are its two ASGI apps. One relay at
    a time uses the folder. `analyzer` is the analyzer's URL, or a transport of requests to it.
    `analyzer_key` is its Ed25519 key, 32 bytes or their base64url, from which the relay follows the
    changes that the analyzer signs. `token` is the relay's token there. `clock` returns seconds
    since 1970; by default it does not jump.
    """

    crowd_columns, has_pages, title = ("place", "day"), False, "Shoal relay, console"
    public: App
    console: App
    store: RelayStore
    cache: RelayPlans

    def __init__(
        self,
        folder: Path | str,
        analyzer: str | Peer,
        settings: RelaySettings | None = None,
        *,
        analyzer_key: bytes | str,
        token: str = "",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings, self.metrics = settings or RelaySettings(), RelayMetrics()
        super().__init__(folder, self.settings, self.metrics, clock)
        if isinstance(analyzer, str):
            analyzer = HttpPeer(analyzer, self.settings.forward_timeout)
        self._transport: Peer = analyzer
        self._given_key, self._token = check_public_key(analyzer_key), token

    async def __aenter__(self) -> Self:
        service, settings = self.service, self.settings
        self.store = store = self.open_store(RelayStore)
        pinned = store.agree_on_key(self._given_key)
        self.cache = RelayPlans(service, store)
        # Where chunks are: in the folder, or in the database that others read too.
        frozen = store.frozen if service.is_shared else None
        self._files = ShuffledChunks(service.folder, frozen, service.wait_for_store)
        # Those that ask the store for something end before it.
        keys_thread, forward_thread = service.add_thread("keys"), service.add_thread("forward")
        self.client = AnalyzerClient(
            self._transport, self._token, service.signer, pinned, self._pin
        )
        self.prefetcher = KeyPrefetcher(
            service, store, self.cache, self.client, keys_thread, settings.deadline_days
        )
        self.forwarder = Forwarder(
            service, store, self._files, self.client, forward_thread, self.metrics, self.prefetcher
        )
        committer = Committer(
            service.accept, settings.max_queued_megabytes << 10, kilobytes, settings.store_timeout
        )
        ingest = EncryptedIngest(service, settings, self, committer, FORMAT)
        self.public = make_public(self, ingest)
        self.console = operator_app(self, "crowds", _NOT_READY)
        if service.is_shared:
            self.public = refresh_on_miss(self.public, self.cache, service)
        await service.in_store(self.cache.read)
        service.start(committer, self, self.prefetcher.run(), self.forwarder.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.forwarder.stop()
        self.client.stop()
        await super().__aexit__(*error)

    def _pin(self, key: bytes) -> None:
        self.service.wait_for_store(self.store.pin_key, key)

    # Plans

    async def publish(self, plan: Plan, *, never_published: bool = False) -> None:
        """Accept reports of a plan from now on; a known plan is left unchanged."""
        self._check_plan(plan)
        await self.service.in_store(self.store.publish, plan, never_published=never_published)
        await self.cache.look_again()
        self.prefetcher.wake()

    @property
    def plans(self) -> dict[str, PlanRecord]:
        return self.cache.plans

    async def crowds(self, plan_id: str) -> list[RelayCrowd]:
        return await self.service.in_store(self.store.crowds, plan_id)

    async def close_plan(self, plan_id: str, *, by: str) -> bool:
        return await self.cache.close_plan(plan_id, by=by)

    def _check_plan(self, plan: Plan) -> None:
        name = f"plan {plan.id[:12]}"
        if isinstance(plan.parties, Aggregators):
            raise PlanError(f"{name} names a leader and a helper, and no relay; use shoal leader.")
        if plan.parties is None:
            raise PlanError(
                f"{name} has no relay and no analyzer; collect its reports with shoal serve."
            )
        agreement = self.service.agreement
        if agreement is not None and (problem := agreement.problem(plan)) is not None:
            raise PrivacyRefusal(f"{name} is not taken: {problem.title}")
        if too_small := self.settings.crowd_too_small(plan.crowd_size):
            raise PlanError(f"{name} is refused: {too_small}")
        size = FORMAT.bytes_of(plan, 1)
        if size > self.settings.max_body_bytes:
            raise InputError(
                f"an encrypted report of {name} has {size:,} bytes, more than the largest request"
                f" of {self.settings.max_body_bytes:,}; raise max_body_bytes."
            )

    async def check_deadlines(self) -> None:
        """Raise an error if the analyzer says that its deadline does not fit this relay's."""
        # If the analyzer does not respond, the relay starts and asks again, and /readyz reports it.
        with suppress(TimeoutError):
            await asyncio.wait_for(self.prefetcher.asked.wait(), _FIRST_ANSWER)
        if self.prefetcher.misfits:
            raise InputError(
                f"this relay has deadline_days = {self.settings.deadline_days}."
                f" {problems.DEADLINES_MISFIT.title}"
            )

    # Reports

    def plan_for_reports(self, plan_id: str) -> Plan | Problem:
        """Return a plan whose reports can be stored; the transaction checks the plan's state."""
        record = self.plans.get(plan_id)
        if record is None:
            return problems.UNKNOWN_PLAN
        return record.plan if self._has_room(record.plan) else problems.STORAGE_FULL

    def _has_room(self, plan: Plan) -> bool:
        crowds = 1 if self.service.is_shared else _CROWDS_OF_ROOM
        room = (self.settings.min_free_megabytes << 20) + crowds * crowd_bytes(plan)
        return self.service.has_space and self.service.free_bytes >= room

    def after_commit(self) -> None:
        self.cache.note_keys()

    def released(self, plan: Plan, number: int) -> None:
        self.metrics.released(plan.reports_needed)
        LOG.info("crowd complete", extra={"facts": {"plan": plan.id}})

    # Housekeeping

    def sweep(self) -> None:
        super().sweep()
        if self.service.is_shared:
            self.service.tokens.reload()
        self.cache.read()

    def after_sweep(self) -> None:
        self.prefetcher.wake()
        self.forwarder.wake()

    # Health

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now; it writes to the disk to find out."""
        problem = await self.service.obstacle()
        if problem is not None:
            return problem
        accepting = [one.plan for one in self.plans.values() if one.state == "published"]
        if not all(map(self._has_room, accepting)):
            return problems.STORAGE_FULL
        documents = (self.cache.document(f"plan {plan.id}") for plan in accepting)
        if any(isinstance(document, Problem) for document in documents):
            return problems.ANALYZER_SILENT
        if self.prefetcher.misfits:
            return problems.DEADLINES_MISFIT
        if self._plans_without_key():
            return problems.NO_KEY
        stalled = self.forwarder.stalled_for > self.settings.forward_alarm
        return problems.FORWARD_STALLED if stalled else None

    def _plans_without_key(self) -> int:
        return sum(
            self.cache.crowd_key(record.plan.id, self._window(record.plan)) == problems.NO_KEY
            for record in self.plans.values()
            if record.state == "published"
        )

    def _window(self, plan: Plan) -> int:
        return 0 if plan.window is None else int(self.service.clock() // plan.window)

    async def read_metrics(self) -> None:
        """Read the metrics of crowds and keys from the data."""
        with suppress(StorageError):  # /readyz reports it
            waiting = await self.service.in_store(self.store.frozen.on_their_way)
            self.metrics.waiting.set(len(waiting))
            self.metrics.without_key.set(self._plans_without_key())

    def metrics_text(self) -> bytes:
        states = (record.state for record in self.plans.values())
        return self.service.metrics_text(states, self._files.size)


def serve_relay(
    folder: Path | str,
    settings: RelaySettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    never_published: bool = False,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a relay until it is told to stop; its folder was set up with `shoal parties setup`.

    It takes reports of `plans`; after a restore, `never_published` states that they were not
    published before. `ready` is called with the two addresses, as URLs by the names `public` and
    `console`.
    """
    agreement = known_agreement(Path(folder), "relay")
    analyzer = agreement.others["analyzer"]
    token = agreement.token("analyzer")
    relay = Relay(folder, analyzer.url, settings, analyzer_key=analyzer.signing_key, token=token)

    async def begin() -> None:
        for plan in plans:
            await relay.publish(plan, never_published=never_published)
        await relay.check_deadlines()

    listeners = {"public": relay.settings.public, "console": relay.settings.console}
    run(relay, listeners, begin=begin, ready=ready)
    leave(relay)
