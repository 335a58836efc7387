"""The analyzer as one object: a collector whose reports come sealed, in whole crowds."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ClassVar, cast

from shoal.agreement.plan import Plan
from shoal.agreement.sealed_wire import Chunk
from shoal.collector import problems
from shoal.collector.analyzer.counting import OpenedCrowd
from shoal.collector.analyzer.door import RelayDoor
from shoal.collector.analyzer.opening import DamagedCrowd, Stop, Stopped, open_crowd
from shoal.collector.analyzer.sealed_plan import Place
from shoal.collector.analyzer.store import AnalyzerStore, Receipt, WholeCrowd
from shoal.collector.intake.store import Store
from shoal.collector.logs import LOG
from shoal.collector.problems import Problem
from shoal.collector.public import PublicDoor
from shoal.collector.service import Collector
from shoal.errors import InputError

__all__ = ["Analyzer"]

_PAUSE = 20.0
"""Seconds after which a crowd that could not be opened is tried again."""


class Analyzer(Collector):
    """Makes the keys of crowds, opens crowds that a relay forwards, and releases them whole.

    Use it as a `Collector`. It has no door for reports.
    """

    role: ClassVar[str] = "analyzer"

    async def __aenter__(self) -> Analyzer:
        if self.settings.database or self.settings.workers > 1:
            raise InputError("an analyzer has its data in its folder: leave database and workers.")
        self._whole, self._stop_opening = asyncio.Event(), Stop()
        self._whole.set()  # a crowd may have been waiting when the process ended
        self._damaged: set[tuple[str, int]] = set()
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
            deadline_days=self.settings.deadline_days,
            clock=self._clock,
            sealed=self._sealed,
            given_up=self._given_up,
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
            whole=self._whole.set,
        ).door

    async def _crowd_key(self, plan_id: str, place: Place) -> bytes | Problem:
        return await self.in_store(self._sealed_store.crowd_key, plan_id, place)

    async def _keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        return await self.in_store(self._sealed_store.keep_chunk, place, chunk, content)

    def _misplaced(self, plan: Plan) -> Problem | None:
        return problems.NEEDS_COLLECTOR if plan.parties is None else None

    # Opening

    def _opened(self, plan_id: str, number: int, crowd: OpenedCrowd) -> None:
        self.metrics.unreadable(crowd.unreadable)
        if crowd.unreadable:
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
        crowd = await self.on_store_thread(self._sealed_store.next_whole, self._damaged)
        if crowd is None:
            return False
        try:
            opened = await self._open(crowd)
        except DamagedCrowd:
            self._damaged.add((crowd.plan.id, crowd.number))
            facts = {"plan": crowd.plan.id, "crowd": crowd.number}
            LOG.error("the chunks of a crowd are damaged; put them back", extra={"facts": facts})
            return True
        await self.on_store_thread(self._sealed_store.seal, crowd, opened)
        return True

    async def _open(self, crowd: WholeCrowd) -> OpenedCrowd:
        scratch, processes = self._sealed_store.scratch, self.settings.opening_processes
        return await asyncio.get_running_loop().run_in_executor(
            self._opening_thread, open_crowd, crowd, scratch, processes, self._stop_opening
        )
