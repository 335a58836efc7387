"""Brings frozen crowds to the analyzer: each whole, shuffled once, and always the same bytes.

A crowd is never cut anew: a second crowd of almost the same people would single out those who are
in one of them only. A refusal is tried again, more and more seldom. A crowd is discarded as a whole
if the analyzer refuses it for good many times in a row, or if it is past its deadline.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from shoal.errors import TransportError
from shoal.server.core import problems
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.service import Service, WorkerThread
from shoal.server.relay.analyzer_client import AnalyzerClient, Refused
from shoal.server.relay.documents import KeyPrefetcher
from shoal.server.relay.frozen_crowds import FrozenCrowd
from shoal.server.relay.shuffled_chunks import ShuffledChunks
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds until a crowd is tried again: twice as many each time, up to five minutes."""
ELSEWHERE_PAUSE = 5.0
"""Seconds until a crowd is looked at again that another relay has under way."""
FINAL_REFUSALS = 10
"""How often in a row the analyzer must refuse a crowd for good before it is discarded."""
_FOR_GOOD = {
    (problem.status, problem.name)
    for problem in (
        problems.WINDOW_EXPIRED,
        problems.PLAN_CLOSED,
        problems.CROWD_GONE,
        problems.OTHER_CHUNK,
    )
}


class RelayMetrics(Metrics):
    """Status of a relay; it reveals nothing about an open crowd."""

    def __init__(self) -> None:
        super().__init__()
        self.forwarded = self._counter("shoal_crowds_forwarded", "Crowds that have arrived.")
        self.failures = self._counter(
            "shoal_forward_failures", "How often a crowd was not taken and is sent again."
        )
        self.refused_crowds = self._counter(
            "shoal_crowds_refused", "Complete crowds discarded: the analyzer refused them for good."
        )
        self.waiting = self._gauge(
            "shoal_crowds_waiting", "Complete crowds that have not arrived yet."
        )
        self.without_key = self._gauge(
            "shoal_plans_without_key", "Open plans without a key for the current window."
        )


@dataclass
class _Attempts:
    """How the forwarding of a crowd gets on: times of the loop, and how often it failed."""

    progress: float = field(default_factory=time.monotonic)
    due: float = 0.0
    failures: int = 0
    refusals: int = 0
    """How often in a row the analyzer refused it for good."""


class Forwarder:
    """Shuffles complete crowds and sends them, one after the other."""

    def __init__(
        self,
        service: Service,
        store: RelayStore,
        files: ShuffledChunks,
        client: AnalyzerClient,
        thread: WorkerThread,
        metrics: RelayMetrics,
        prefetcher: KeyPrefetcher,
    ) -> None:
        self._in_store, self._store, self._files = service.on_store_thread, store, files
        self._analyzer, self._in_thread = client, thread.run
        self._service, self._metrics, self._prefetcher = service, metrics, prefetcher
        self._wake = asyncio.Event()
        self._waiting: dict[int, _Attempts] = {}
        self._stopping = threading.Event()

    def wake(self) -> None:
        self._wake.set()

    @property
    def stalled_for(self) -> float:
        """For how many seconds a crowd has waited without progress; 0 if none waits."""
        now = time.monotonic()
        return max((now - one.progress for one in self._waiting.values()), default=0.0)

    def stop(self) -> None:
        """End a shuffle that is under way: it begins anew at the next start."""
        self._stopping.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            pause = LONGEST_PAUSE
            try:
                pause = await self.forward()
            except Exception as error:
                LOG.error("crowds were not forwarded", exc_info=error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    async def forward(self) -> float:
        """Try the crowds that are due; return the seconds until the next attempt."""
        loop = asyncio.get_running_loop()
        for crowd in await self._find_waiting():
            if self._waiting[crowd.number].due <= loop.time():
                await self._try(crowd)
        await self._tidy()
        left = await self._find_waiting()
        due = [self._waiting[crowd.number].due - loop.time() for crowd in left]
        return max(min(due, default=LONGEST_PAUSE), 0.05)

    async def _find_waiting(self) -> list[FrozenCrowd]:
        """Return the crowds that wait, and note since when; those that ended are forgotten."""
        waiting = await self._in_store(self._store.frozen.on_their_way)
        known = self._waiting
        self._waiting = {one.number: known.get(one.number) or _Attempts() for one in waiting}
        return waiting

    async def _try(self, crowd: FrozenCrowd) -> None:
        claimed: FrozenCrowd | None = None
        try:
            claimed = await self._in_store(self._store.frozen.claim, crowd)
            has_arrived = claimed is not None and await self._send(claimed)
            if has_arrived and await self._in_store(
                lambda: self._store.frozen.end(crowd, forwarded=True)
            ):
                self._metrics.forwarded.inc()
                LOG.info("crowd forwarded", extra={"facts": crowd.about})
                self._prefetcher.wake()
        except (TransportError, StorageError) as error:
            await self._put_off(crowd, error)
            return
        finally:
            if claimed is not None:
                await self._let_go(crowd)
        if not has_arrived:
            self._waiting[crowd.number].due = asyncio.get_running_loop().time() + ELSEWHERE_PAUSE

    async def _let_go(self, crowd: FrozenCrowd) -> None:
        with suppress(StorageError):  # a claim goes with its connection
            await self._in_store(self._store.frozen.let_go, crowd)

    async def _put_off(self, crowd: FrozenCrowd, error: Exception) -> None:
        """Log why a crowd was not taken, and try again later, or discard it as a whole."""
        if self._stopping.is_set():
            return
        self._metrics.failures.inc()
        for_good = isinstance(error, Refused) and (error.status, error.name) in _FOR_GOOD
        attempts = self._waiting[crowd.number]
        attempts.refusals = attempts.refusals + 1 if for_good else 0
        why = str(error) if isinstance(error, TransportError) else "the data cannot be used."
        facts = {"facts": crowd.about | {"why": why}}
        if attempts.refusals >= FINAL_REFUSALS:
            LOG.error("the analyzer refused a crowd for good", extra=facts)
            if await self._in_store(self._store.frozen.end, crowd, forwarded=False):
                self._metrics.refused_crowds.inc()
            return
        LOG.warning("a crowd was not forwarded", extra=facts)
        pause = min(FIRST_PAUSE * 2.0 ** min(attempts.failures, 30), LONGEST_PAUSE)
        attempts.failures += 1
        attempts.due = asyncio.get_running_loop().time() + pause

    async def _send(self, crowd: FrozenCrowd) -> bool:
        """Send the chunks that are not signed for; False if the crowd was shuffled elsewhere."""
        key = await self._in_store(self._store.frozen.crowd_key, crowd)
        chunks = crowd.chunks
        if chunks is None:
            chunks = await self._shuffle(crowd, key)
        if chunks is None:
            return False
        # A commit that arrives everywhere: then the one that chose these chunks has, too, though
        # the relay that made it may have died before it heard of that.
        await self._in_store(self._store.database.check)
        signed_for = await self._in_store(self._store.frozen.receipts, crowd)
        # If all are signed for, the last one tells again whether the crowd is complete.
        missing = sorted(set(range(chunks)) - signed_for) or [chunks - 1]
        state: object = None
        for number in missing:
            content = await self._in_thread(self._files.read, crowd, key, number)
            state = await self._in_thread(self._analyzer.send_chunk, crowd, number, content)
            await self._in_store(self._store.frozen.keep_receipt, crowd, number)
            self._waiting[crowd.number].progress = time.monotonic()
        if state == "complete":
            return True
        # It signed for all of them and does not have them all: it lost some, and gets all again.
        await self._in_store(self._store.frozen.forget_receipts, crowd)
        raise TransportError("the analyzer lost chunks that it signed for.")

    async def _shuffle(self, crowd: FrozenCrowd, key: bytes) -> int | None:
        record = await self._in_store(self._store.plan, crowd.plan_id)
        assert record is not None

        def reports(after: int, most: int) -> tuple[list[bytes], int | None]:
            if self._stopping.is_set():
                raise StorageError("the relay is stopping.")
            return self._service.wait_for_store(self._store.frozen.reports, crowd, after, most)

        chunks = await self._in_thread(self._files.write, record.plan, crowd, key, reports)
        return chunks if await self._in_store(self._store.frozen.shuffled, crowd, chunks) else None

    async def _tidy(self) -> None:
        """Remove unneeded rows and files, a little at a time."""
        while await self._in_store(self._store.frozen.tidy):
            await asyncio.sleep(0)
        crowds = await self._in_store(self._store.frozen.on_their_way)
        needed = {crowd.number for crowd in crowds if crowd.chunks is not None}
        await self._in_thread(lambda: self._files.keep_only(numbers=needed))
