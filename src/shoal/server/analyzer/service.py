"""The analyzer as one object: a collector whose reports come sealed, in whole crowds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, ClassVar, cast

from shoal.errors import InputError
from shoal.protocol.encryption import Chunk
from shoal.protocol.plan import Plan
from shoal.server.analyzer.chunk_files import damaged_chunks
from shoal.server.analyzer.counting import OpenedCrowd
from shoal.server.analyzer.decryption import DamagedCrowd, Stop, Stopped, open_crowd
from shoal.server.analyzer.endpoint import Asking, RelayDoor
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import AnalyzerStore, Receipt, WholeCrowd
from shoal.server.collector.public import PublicDoor
from shoal.server.collector.service import Collector
from shoal.server.core import problems
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.problems import Problem
from shoal.server.storage.store import Store
from shoal.server.storage.windows import IncompleteCrowd

__all__ = ["Analyzer"]

_PAUSE = 20.0
"""Seconds after which a crowd that could not be opened is tried again."""


class AnalyzerMetrics(Metrics):
    """The metrics of a collector, and of damaged chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._damaged = self._counter("shoal_chunks_damaged", "Chunks found damaged on the disk.")
        self._healed = self._counter("shoal_chunks_healed", "Damaged chunks that are whole again.")

    def damaged(self, found: int, healed: int) -> None:
        """Count chunks that were found damaged, and those that are whole again."""
        self._damaged.inc(found)
        self._healed.inc(healed)


class Analyzer(Collector):
    """Makes the keys of crowds, opens crowds that a relay forwards, and releases them whole.

    Use it as a `Collector`. It has no door for reports.
    """

    role: ClassVar[str] = "analyzer"
    metrics: AnalyzerMetrics

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.metrics = AnalyzerMetrics()

    async def __aenter__(self) -> Analyzer:
        if self.settings.database or self.settings.workers > 1:
            raise InputError("an analyzer has its data in its folder: leave database and workers.")
        self._whole, self._stop_opening = asyncio.Event(), Stop()
        self._whole.set()  # a crowd may have been waiting when the process ended
        await super().__aenter__()
        self._opening_thread = ThreadPoolExecutor(1, "opening")
        self._threads.insert(0, self._opening_thread)
        self._tasks.append(asyncio.create_task(self._open_crowds()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_opening.ask()
        self._whole.set()
        await asyncio.wait(self._tasks[-1:], timeout=self._time_left / 2)
        await super().__aexit__(kind, error, trace)

    # What differs from a collector

    def _make_store(self) -> Store:
        return AnalyzerStore(
            self.folder,
            spare=self.settings.spare_megabytes << 20,
            opened=self._opened,
            damaged=self._damaged,
            deadline_days=self.settings.deadline_days,
            clock=self._clock,
            released=self._released,
            discarded=self._discarded,
        )

    @property
    def _sealed_store(self) -> AnalyzerStore:
        return cast(AnalyzerStore, self.store)

    def _door(self) -> PublicDoor:
        return RelayDoor(
            plan_of=self._plan_for_reports,
            crowd_key=self._crowd_key,
            keep_chunk=self._keep_chunk,
            token_of=self.tokens.find,
            signer=self.signer,
            refused=self.refused,
            worker=self._door_thread,
            discard=self._discard,
        ).door

    async def _crowd_key(self, plan_id: str, place: Place, asking: Asking) -> bytes | Problem:
        if not asking.fits(self.settings.deadline_days):
            return problems.DEADLINES_MISFIT
        return await self.in_store(self._sealed_store.crowd_key, plan_id, place, asking.relay)

    async def _keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        store = self._sealed_store
        receipt = await self.in_store(store.keep_chunk, place, chunk, content)
        if isinstance(receipt, Problem) or receipt.crowd is None:
            return receipt
        # The relay deletes the crowd when it is told that it is complete, so every chunk is read
        # from the disk first. Otherwise the relay sends all of them again.
        if await self._find_damage(receipt.crowd):
            return Receipt(receipt.document | {"state": "receiving"})
        self._whole.set()
        return receipt

    async def _find_damage(self, crowd: WholeCrowd) -> bool:
        """Look for damaged chunks of a complete crowd, and note them; return whether it waits."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._door_thread, damaged_chunks, crowd.chunks)
        if not found:
            return False
        waits = await self.in_store(
            self._sealed_store.note_damage, crowd.plan.id, crowd.number, found
        )
        if waits:
            facts = {"plan": crowd.plan.id, "crowd": crowd.number, "chunks": found}
            LOG.error("chunks of a crowd are damaged on the disk", extra={"facts": facts})
        return waits

    async def _discard(self, plan_id: str, place: Place) -> str | Problem:
        return await self.in_store(self._sealed_store.discard, plan_id, place)

    def _misplaced(self, plan: Plan) -> Problem | None:
        return problems.NEEDS_COLLECTOR if plan.parties is None else None

    # Opening

    def _damaged(self, found: int, healed: int) -> None:
        self.metrics.damaged(found, healed)
        if healed:
            LOG.warning("damaged chunks are whole again", extra={"facts": {"chunks": healed}})

    async def _sweep_once(self) -> None:
        await super()._sweep_once()
        self._whole.set()  # a damaged chunk may be whole again

    def _opened(self, plan_id: str, number: int, crowd: OpenedCrowd, released: bool) -> None:
        self.metrics.unreadable(crowd.unreadable)
        if released:
            self.metrics.sealed(crowd.tally.reports)
            LOG.info("crowd sealed", extra={"facts": {"plan": plan_id, "crowd": number}})
        else:
            self._discarded(plan_id, IncompleteCrowd(number, 10))
        if crowd.unreadable or crowd.excess:
            facts = {"plan": plan_id, "crowd": number, "unopened": crowd.unopened}
            facts |= {"out_of_range": crowd.out_of_range, "repeated": crowd.repeated}
            LOG.warning(
                "%d messages could not be read",
                crowd.unreadable,
                extra={"facts": facts | {"excess": crowd.excess}},
            )

    async def _open_crowds(self) -> None:
        """Open whole crowds, one after another, until the analyzer stops."""
        while True:
            await self._whole.wait()
            self._whole.clear()
            try:
                while await self._open_next():
                    pass
            except Stopped:
                return
            except Exception as error:
                LOG.error("a crowd was not opened and is tried again", exc_info=error)
                asyncio.get_running_loop().call_later(_PAUSE, self._whole.set)

    async def _open_next(self) -> bool:
        """Open a crowd and seal it; return whether there was one."""
        self._stop_opening.check()
        crowd = await self.on_store_thread(self._sealed_store.next_whole)
        if crowd is None:
            return False
        try:
            opened = await self._open(crowd)
        except DamagedCrowd:
            if not await self._find_damage(crowd):
                raise  # they are whole now; it is tried again
            return True
        await self.on_store_thread(self._sealed_store.seal, crowd, opened)
        return True

    async def _open(self, crowd: WholeCrowd) -> OpenedCrowd:
        scratch, processes = self._sealed_store.scratch, self.settings.opening_processes
        return await asyncio.get_running_loop().run_in_executor(
            self._opening_thread, open_crowd, crowd, scratch, processes, self._stop_opening
        )
