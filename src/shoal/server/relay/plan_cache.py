"""What a relay shows: plans, documents of the analyzer, keys of open crowds, as last read.

Answers come from memory. It is read again after every change here, at every sweep, and where other
relays share the database whenever somebody asks for what may have changed (see `following`).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from shoal.server.core import problems
from shoal.server.core.http import Receive, Scope
from shoal.server.core.ingest import Allowance
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import App
from shoal.server.relay.open_plan import Document
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import PlanRecord
from shoal.server.storage.windows import OpenWindows

__all__ = ["Notices", "following"]


class Notices:
    """What devices and operators are shown.

    Parameters
    ----------
    store, in_store
        Where it is read from, and what runs a function of that.
    clock
        Seconds since 1970, to tell windows.
    """

    def __init__(
        self,
        store: RelayStore,
        in_store: Callable[..., Awaitable[Any]],
        clock: Callable[[], float],
    ) -> None:
        self._store, self._in_store, self._clock = store, in_store, clock
        self._plans: dict[str, PlanRecord] = {}
        self._oldest: dict[str, int] = {}
        self._documents: dict[str, Document] = {}
        self.open_keys: dict[tuple[str, int], Document] = {}
        self._one_reading = asyncio.Lock()
        self._next_reading: asyncio.Future[None] | None = None

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._plans.get(plan_id)

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return [self._plans[plan_id] for plan_id in sorted(self._plans)]

    def knows(self, plan_id: str) -> bool:
        """Whether a plan was published, here or elsewhere."""
        record = self._plans.get(plan_id)
        return record is not None and record.state != "draft"

    def document(self, name: str) -> Document | Problem:
        """Return a document of the analyzer by its name, or why there is none."""
        if name in self._documents:
            return self._documents[name]
        known = name == "keys" or name.rpartition(" ")[2] in self._plans
        return problems.ANALYZER_SILENT if known else problems.UNKNOWN_PLAN

    def crowd_key(self, plan_id: str, window: int) -> Document | Problem:
        """Return the key that reports of a window are sealed for now, or why there is none."""
        if not self.knows(plan_id):
            return problems.UNKNOWN_PLAN
        record = self._plans[plan_id]
        if record.state != "published":
            return problems.PLAN_CLOSED
        time = OpenWindows.of(record.plan, self._clock())
        if window < max(time.first_window, self._oldest.get(plan_id, 0)):
            return problems.WINDOW_EXPIRED
        if window > time.last_window:
            return problems.WINDOW_NOT_OPEN
        return self.open_keys.get((plan_id, window), problems.NO_KEY)

    # Reading

    def read(self) -> None:
        """Read all of it, on the store's thread; of data that are refused, nothing."""
        keys = self._store.open_keys()  # what else is read is not checked against the key
        plans = {record.plan.id: record for record in self._store.plans()}
        oldest, documents = self._store.oldest_windows(), self._store.documents()
        self._plans, self._oldest = plans, oldest
        self._documents, self.open_keys = documents, keys

    def note_keys(self) -> None:
        """Take over which crowds reports go to now, on the store's thread, without a look."""
        self.open_keys = self._store.known_keys(self.open_keys)

    async def look_again(self) -> None:
        """Read all of it; whoever asks while another reads shares the next reading."""
        if self._next_reading is None:
            self._next_reading = asyncio.ensure_future(self._read_next())
        await asyncio.shield(self._next_reading)

    async def _read_next(self) -> None:
        async with self._one_reading:
            self._next_reading = None
            await self._in_store(self.read)

    async def look_up(self, plan_id: str) -> None:
        """Ask the data for a plan that another relay may have published."""
        record: PlanRecord | None = await self._in_store(self._store.plan, plan_id)
        if record is not None and record.state != "draft":
            await self.look_again()


LOOKUPS = 100
"""Plans in a second that the database is asked for because this relay does not know them."""
STALE_SECONDS = 1.0

_PLAN_PATH = re.compile(r"/v1/plans/([0-9a-f]{64})(/crowd-key)?(?:/|$)")


def following(
    public: App,
    notices: Notices,
    refused: Callable[[Problem], None],
    clock: Callable[[], float] = time.monotonic,
) -> App:
    """Return the app of devices' listener that looks at the database where it must.

    Parameters
    ----------
    public
        The app that answers.
    notices
        What devices are told, and what reads it again.
    refused
        Called with each problem that is answered.
    clock
        Seconds, to tell how old keys are.
    """
    lookups, looked = Allowance(LOOKUPS, clock), [clock()]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        named = _PLAN_PATH.match(scope.get("path", ""))
        is_new = named is not None and not notices.knows(named[1])
        if named is not None and is_new:
            can_be_told = lookups.take(1)  # anybody can make up names
            if can_be_told:
                try:
                    await notices.look_up(named[1])
                except StorageError:
                    can_be_told = False  # it may have been published
            if not can_be_told:
                refused(problems.NOT_KNOWN_YET)
                await problems.NOT_KNOWN_YET.send(send, last=True)
                return
        elif named is not None and named[2] and clock() - looked[0] > STALE_SECONDS:
            looked[0] = clock()
            with suppress(StorageError):
                await notices.look_again()
        await public(scope, receive, send)

    return answer
