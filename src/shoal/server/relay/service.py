"""The relay as one object that tests can call in process, without a socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from shoal.errors import InputError, PlanError
from shoal.protocol.encryption import EncryptedReports
from shoal.protocol.plan import Plan
from shoal.protocol.signatures import check_public_key
from shoal.server.core import problems
from shoal.server.core.group_commit import Committer
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem
from shoal.server.core.service import App, Running
from shoal.server.core.tokens import Token
from shoal.server.relay.analyzer_client import Analyzer, HttpAnalyzer, Transport
from shoal.server.relay.chunk_files import ChunkRows, ShuffledChunks, crowd_bytes
from shoal.server.relay.forwarding import Forwarder
from shoal.server.relay.frozen_crowds import FrozenCrowd
from shoal.server.relay.ingest import SealedIngest, kilobytes
from shoal.server.relay.key_prefetch import KeyKeeper
from shoal.server.relay.metrics import RelayMetrics
from shoal.server.relay.ops import make_ops
from shoal.server.relay.plan_cache import Notices, following
from shoal.server.relay.public import make_public
from shoal.server.relay.settings import RelaySettings
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import STATES

__all__ = ["Relay"]

P = ParamSpec("P")
R = TypeVar("R")

TOKEN_FILE = "analyzer-token"  # noqa: S105  its name
_FIRST_ANSWER = 5.0
"""Seconds that a start waits for the analyzer's first response."""
_CROWDS_OF_ROOM = 3
"""How many whole crowds of a plan there must be room for: as rows, in buckets, as chunks. Only
buckets are in the folder if the data are in a database."""


class Relay(Running):
    """Takes sealed reports for plans with two parties and forwards whole crowds, shuffled.

    Use it as an asynchronous context; `public` and `ops` are its two ASGI apps.

    Parameters
    ----------
    folder
        The data folder, made if need be; one relay at a time uses it.
    analyzer
        The analyzer's URL, or what brings requests to it.
    settings
        How it runs.
    analyzer_key
        The analyzer's Ed25519 key, 32 bytes or their base64url; by default the one that was pinned
        before, or else the one at the first contact.
    token_file
        A file with the relay's token at the analyzer; by default `analyzer-token` in the folder. It
        is read for every request, so that it can be replaced.
    clock
        Seconds since 1970; by default one that does not jump.
    """

    metrics: RelayMetrics

    def __init__(
        self,
        folder: Path | str,
        analyzer: str | Transport,
        settings: RelaySettings | None = None,
        *,
        analyzer_key: bytes | str | None = None,
        token_file: Path | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings or RelaySettings()
        super().__init__(folder, self.settings, clock)
        self.metrics = RelayMetrics()
        self._transport = analyzer
        if isinstance(analyzer, str):
            self._transport = HttpAnalyzer(analyzer, self.settings.forward_patience)
        self._given_key = None if analyzer_key is None else check_public_key(analyzer_key)
        self._token_file = token_file or self.folder / TOKEN_FILE
        self.public: App
        self.ops: App

    async def __aenter__(self) -> Self:
        self._held = ExitStack()
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        self._committer = Committer(
            self._accept, self.settings.most_waiting << 10, kilobytes, self.settings.store_timeout
        )
        no_token: Callable[[str], Token | None] = lambda secret: None  # noqa: E731
        ingest = SealedIngest(
            self.settings,
            self._plan_for_reports,
            self._committer,
            no_token,
            self.refused,
            self._door_thread,
        )
        self.public, self.ops = make_public(self, ingest), make_ops(self)
        if self._is_shared:
            self.public = following(self.public, self.notices, self.refused)
        await self.in_store(self.notices.read)
        self._tasks = [
            asyncio.create_task(work)
            for work in (
                self._committer.run(),
                self._sweep(),
                self._keeper.run(),
                self._forwarder.run(),
            )
        ]
        return self

    def _start(self) -> None:
        self.store = self._hold(self._held, self._make_store)
        pinned = self.store.pinned_key() if self._given_key is None else self._given_key
        if self._is_shared and pinned is not None:
            self.store.pin_key(pinned, True)  # other relays need not be told the key
        self._start_threads()
        self.notices = Notices(self.store, self.in_store, self._clock)
        self._keys_thread = ThreadPoolExecutor(1, "keys")
        self._forward_thread = ThreadPoolExecutor(1, "forward")
        # Those that ask the store for something end before it.
        self._threads = [self._keys_thread, self._forward_thread, *self._threads]
        assert not isinstance(self._transport, str)
        self._analyzer = Analyzer(self._transport, self._token, self.signer, pinned, self._pin)
        self._files = self._make_files()
        self._keeper = KeyKeeper(
            self.store, self.on_store_thread, self._analyzer, partial(self._in, self._keys_thread),
            self.notices.look_again, self._closed_by_analyzer, self.settings.deadline_days,
        )  # fmt: skip
        self._forwarder = Forwarder(
            self.store, self.on_store_thread, self._files, self._analyzer,
            partial(self._in, self._forward_thread), self._forwarded, self.metrics.not_forwarded,
            self.metrics.crowd_refused,
        )  # fmt: skip

    @property
    def _is_shared(self) -> bool:
        return bool(self.settings.database)

    def _make_store(self) -> RelayStore:
        return RelayStore(
            self.folder,
            url=self.settings.database,
            timeout=self.settings.store_timeout,
            deadline_days=self.settings.deadline_days,
            clock=self._clock,
            frozen=self._frozen,
            discarded=self._discarded,
        )

    def _make_files(self) -> ShuffledChunks:
        """Return where chunks are: in the folder, or in the database that others read too."""
        rows = ChunkRows(self.store.frozen, self._ask_store) if self._is_shared else None
        return ShuffledChunks(self.folder, rows)

    @property
    def _any_store(self) -> RelayStore:
        return self.store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        committing, *others = self._tasks
        self._committer.stop()
        self._forwarder.stop()
        self._analyzer.stop()
        await self._stop(committing, others)

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(thread, work, *args)

    def _token(self) -> str:
        try:
            return self._token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""  # the analyzer says that it needs one, and the log says so

    def _pin(self, key: bytes, is_first: bool) -> bytes:
        return self._ask_store(self.store.pin_key, key, is_first)

    def _ask_store(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work on the store's thread, and wait for it on another thread of ours."""
        return self._store_thread.submit(work, *args, **kwargs).result()

    # Plans

    async def publish(self, plan: Plan, *, never_published: bool = False) -> None:
        """Take reports of a plan from now on; a plan that is known stays as it is."""
        self._check_plan(plan)
        await self.in_store(self.store.publish, plan, never_published=never_published)
        await self.notices.look_again()
        self._keeper.wake()

    def _check_plan(self, plan: Plan) -> None:
        name = f"plan {plan.id[:12]}"
        if plan.parties is None:
            raise PlanError(
                f"{name} has no relay and no analyzer; collect its reports with shoal serve."
            )
        if plan.reports_needed < self.settings.smallest_crowd:
            raise PlanError(
                f"{name} has a crowd of {plan.reports_needed}, below this relay's smallest of"
                f" {self.settings.smallest_crowd}; see smallest_crowd."
            )
        size = SealedIngest.bytes_of(plan, 1)
        if size > self.settings.largest_body:
            raise InputError(
                f"a sealed report of {name} has {size:,} bytes, more than the largest request of"
                f" {self.settings.largest_body:,}; raise largest_body."
            )

    async def close_plan(self, plan_id: str, *, by: str) -> bool:
        """Take no more reports of a plan; return whether it took any before."""
        closed = await self.in_store(self.store.close_plan, plan_id)
        if closed:
            LOG.info("plan closed", extra={"facts": {"plan": plan_id, "by": by}})
            await self.notices.look_again()
        return closed

    async def _closed_by_analyzer(self, plan_id: str) -> None:
        await self.close_plan(plan_id, by="the analyzer")

    async def check_deadlines(self) -> None:
        """Refuse to go on if the analyzer says that its deadline does not fit this relay's.

        If the analyzer does not respond, the relay starts and asks again, and /readyz reports it.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(self._keeper.asked.wait(), _FIRST_ANSWER)
        if self._keeper.misfits:
            raise InputError(
                f"this relay has deadline_days = {self.settings.deadline_days}."
                f" {problems.DEADLINES_MISFIT.title}"
            )

    # Reports

    def _plan_for_reports(self, plan_id: str) -> Plan | Problem:
        record = self.notices.plan(plan_id)
        if record is None:
            return problems.UNKNOWN_PLAN
        # The plan's state is checked in the transaction.
        return record.plan if self._has_room(record.plan) else problems.STORAGE_FULL

    def _has_room(self, plan: Plan) -> bool:
        crowds = 1 if self._is_shared else _CROWDS_OF_ROOM
        room = self._spare_bytes + crowds * crowd_bytes(plan)
        return self._spare and self._free >= room

    async def _accept(self, uploads: Sequence[EncryptedReports]) -> list[Problem | None]:
        try:
            answers, is_behind = await self.on_store_thread(self._accept_in_store, uploads)
        except Exception as error:
            LOG.error("reports were not accepted", exc_info=error)
            raise
        if is_behind:
            self._sweep_now.set()
        return answers

    def _accept_in_store(
        self, uploads: Sequence[EncryptedReports]
    ) -> tuple[list[Problem | None], bool]:
        answers = self._timed(lambda: self.store.accept(uploads))
        self.notices.note_keys()
        return answers, self.store.is_behind

    # Crowds

    def _frozen(self, plan_id: str) -> None:
        self.metrics.sealed(self._reports_needed(plan_id))
        LOG.info("crowd frozen", extra={"facts": {"plan": plan_id}})

    def _discarded(self, plan_id: str, tenths: int) -> None:
        self.metrics.given_up(self._reports_needed(plan_id) * tenths // 10)
        LOG.warning("crowd given up", extra={"facts": {"plan": plan_id, "tenths": tenths}})

    def _reports_needed(self, plan_id: str) -> int:
        record = self.notices.plan(plan_id) or self.store.plan(plan_id)  # another published it
        assert record is not None
        return record.plan.reports_needed

    def _forwarded(self, crowd: FrozenCrowd) -> None:
        self.metrics.forwarded()
        about = {"plan": crowd.plan_id, "window": crowd.window, "crowd": crowd.place}
        LOG.info("crowd forwarded", extra={"facts": about})
        self._keeper.wake()

    # Housekeeping

    async def _sweep_once(self) -> None:
        await self.on_store_thread(self._sweep_store)
        self._keeper.wake()
        self._forwarder.wake()

    def _sweep_store(self) -> None:
        self._timed(self.store.sweep)
        if self._is_shared:
            self.tokens.reload()
        self.metrics.turn()
        self.notices.read()

    def _last_sweep(self) -> None:
        self.store.sweep()

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now; it writes to the disk to find out."""
        problem = await super().obstacle()
        if problem is None and any(task.done() for task in self._tasks):
            return problems.UNAVAILABLE
        taking = [record.plan for record in self.notices.plans() if record.state == "published"]
        if problem is None and not all(map(self._has_room, taking)):
            return problems.STORAGE_FULL
        if problem is None and any(
            isinstance(self.notices.document(f"plan {plan.id}"), Problem) for plan in taking
        ):
            return problems.ANALYZER_SILENT
        return problem or self._analyzer_problem()

    def _analyzer_problem(self) -> Problem | None:
        """Return why reports cannot reach the analyzer."""
        if self._keeper.misfits:
            return problems.DEADLINES_MISFIT
        if self._plans_without_key():
            return problems.NO_KEY
        stalled = self._forwarder.stalled_for > self.settings.forward_alarm
        return problems.FORWARD_STALLED if stalled else None

    def _plans_without_key(self) -> int:
        """Return how many open plans have no key for the current window."""
        return sum(
            self.notices.crowd_key(record.plan.id, self._window(record.plan)) == problems.NO_KEY
            for record in self.notices.plans()
            if record.state == "published"
        )

    def _window(self, plan: Plan) -> int:
        return 0 if plan.window is None else int(self._clock() // plan.window)

    async def count_waiting(self) -> None:
        """Read the metrics of crowds and keys from the data."""
        with suppress(StorageError):  # /readyz reports it
            waiting = await self.in_store(self.store.frozen.waiting)
            self.metrics.state(waiting=waiting, without_key=self._plans_without_key())

    def metrics_text(self) -> bytes:
        """Return the current metrics; those of crowds as last counted."""
        states = Counter(record.state for record in self.notices.plans())
        size = self.store.database.data_bytes + self._files.size
        return self.metrics.text(
            plans={state: states[state] for state in STATES},
            queue=self._committer.fill,
            data_bytes=size,
            clock_is_held=self.clock_is_held,
        )
