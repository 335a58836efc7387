"""What a relay shows: plans, documents of the analyzer, keys of open crowds, as last read.

It is read again after every change here and at every sweep. Where other relays share the database,
`refresh_on_miss` also reads it on requests for documents that may have changed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from shoal.server.core import problems
from shoal.server.core.http import App, Receive, Scope
from shoal.server.core.ingest import Lookups
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import Service
from shoal.server.relay.open_plan import Document
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import PlanRecord
from shoal.server.storage.windows import OpenWindows


class RelayPlans:
    """What devices and operators are shown, in memory."""

    def __init__(self, service: Service, store: RelayStore) -> None:
        self._service, self._store = service, store
        self.plans: dict[str, PlanRecord] = {}
        self._oldest: dict[str, int] = {}
        self._documents: dict[str, Document] = {}
        self.open_keys: dict[tuple[str, int], Document] = {}
        self._one_reading = asyncio.Lock()
        self._next_reading: asyncio.Future[None] | None = None

    def knows(self, plan_id: str) -> bool:
        """Whether a plan was published, here or elsewhere."""
        record = self.plans.get(plan_id)
        return record is not None and record.state != "draft"

    def document(self, name: str) -> Document | Problem:
        """Return a document of the analyzer by its name, or why there is none."""
        if name in self._documents:
            return self._documents[name]
        known = name == "keys" or name.rpartition(" ")[2] in self.plans
        return problems.ANALYZER_SILENT if known else problems.UNKNOWN_PLAN

    def crowd_key(self, plan_id: str, window: int) -> Document | Problem:
        """Return the key that reports of a window are encrypted for now, or why there is none."""
        if not self.knows(plan_id):
            return problems.UNKNOWN_PLAN
        record = self.plans[plan_id]
        if record.state != "published":
            return problems.PLAN_CLOSED
        time = OpenWindows.of(record.plan, self._service.clock())
        if window < max(time.first_window, self._oldest.get(plan_id, 0)):
            return problems.WINDOW_EXPIRED
        if window > time.last_window:
            return problems.WINDOW_NOT_OPEN
        return self.open_keys.get((plan_id, window), problems.NO_KEY)

    async def close_plan(self, plan_id: str, *, by: str) -> bool:
        """Accept no more reports of a plan; return whether it accepted any before."""
        closed = await self._service.in_store(self._store.close_plan, plan_id)
        if closed:
            LOG.info("plan closed", extra={"facts": {"plan": plan_id, "by": by}})
            await self.look_again()
        return closed

    # Reading

    def read(self) -> None:
        """Read everything, on the store's thread; nothing if the data are refused."""
        keys = self._store.open_keys()  # other reads are not checked against the key
        plans = {record.plan.id: record for record in self._store.plans()}
        oldest, documents = self._store.oldest_windows(), self._store.documents()
        self.plans, self._oldest = plans, oldest
        self._documents, self.open_keys = documents, keys

    def note_keys(self) -> None:
        """Take over which crowds reports go to now, on the store's thread, from memory."""
        self.open_keys = self._store.known_keys(self.open_keys)

    async def look_again(self) -> None:
        """Read everything; callers that come during a read share the next one."""
        if self._next_reading is None:
            self._next_reading = asyncio.ensure_future(self._read_next())
        await asyncio.shield(self._next_reading)

    async def _read_next(self) -> None:
        async with self._one_reading:
            self._next_reading = None
            await self._service.in_store(self.read)

    async def look_up(self, plan_id: str) -> None:
        """Ask the data for a plan that another relay may have published."""
        record = await self._service.in_store(self._store.plan, plan_id)
        if record is not None and record.state != "draft":
            await self.look_again()


STALE_SECONDS = 1.0

_PLAN_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})(/crowd-key)?(?:/|$)")


def refresh_on_miss(
    public: App, cache: RelayPlans, service: Service, clock: Callable[[], float] = time.monotonic
) -> App:
    """Return an app that reads the cache again before it responds, where it may be out of date."""
    # Another relay on the same database may have published a plan: see `Lookups`. It may have
    # filled the crowd whose key is shown here. So the keys are read again when somebody asks for
    # one, at most once a second; a report for an old key is refused with 412, and its sender asks
    # again.
    lookups, looked = Lookups(service, clock), [clock()]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        named = _PLAN_PATH.match(scope.get("path", ""))
        plans = [named[1]] if named is not None and not cache.knows(named[1]) else []
        unknown = [partial(cache.look_up, plan_id) for plan_id in plans]
        if not await lookups.succeed(unknown, send):
            return
        is_key = named is not None and named[2] and not unknown
        if is_key and clock() - looked[0] > STALE_SECONDS:
            looked[0] = clock()
            with suppress(StorageError):
                await cache.look_again()
        await public(scope, receive, send)

    return answer
