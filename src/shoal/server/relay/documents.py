"""The analyzer's documents and the keys of its crowds: fetched ahead, and shown from memory.

Devices do not wait for the analyzer; if it is silent, the relay goes on with the keys it has. If
the analyzer's signing keys changed, everything that it signed is fetched again at once. The open
crowds of both parties are kept in step: the analyzer is told of discarded crowds, and asked whether
the crowds that take reports here are open there too.

What is shown is read again after every change here and at every sweep. Where other relays share the
database, `refresh_on_miss` also reads it on requests for documents that may have changed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from shoal.errors import TransportError
from shoal.protocol.encryption import CrowdKey
from shoal.server.core import problems
from shoal.server.core.http import App, Receive, Scope
from shoal.server.core.ingest import Lookups
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import Service, WorkerThread
from shoal.server.relay.analyzer_client import AnalyzerClient, Refused
from shoal.server.relay.open_plan import Document, Wanted
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import PlanRecord
from shoal.server.storage.windows import OpenWindows

REFRESH_SECONDS = 3600.0
"""Seconds after which documents are requested again."""
CONFIRM_SECONDS = 300.0
"""Seconds after which the analyzer is asked again whether crowds are open."""
_UNKNOWN = (problems.UNKNOWN_PLAN.name, problems.UNKNOWN_CROWD.name)
"""How the analyzer says that it has no such crowd; a proxy's 404 does not count."""
PAUSE_SECONDS = 20.0
LONGEST_PAUSE = 300.0


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


class KeyPrefetcher:
    """Fetches documents and keys, and puts them into the store."""

    def __init__(
        self,
        service: Service,
        store: RelayStore,
        cache: RelayPlans,
        client: AnalyzerClient,
        thread: WorkerThread,
        deadline_days: int,
    ) -> None:
        self._in_store, self._store, self._cache = service.on_store_thread, store, cache
        self._analyzer, self._in_thread = client, thread.run
        self._deadline_days = deadline_days
        self._wake = asyncio.Event()
        self._fetched: dict[str, tuple[float, str]] = {}
        self._keys: bytes | None = None
        self._confirmed = -CONFIRM_SECONDS
        self._failures = 0
        self.misfits = False
        """Whether the analyzer said that its deadline does not fit the relay's."""
        self.asked = asyncio.Event()
        """Set when the analyzer was asked for the first time, with or without success."""

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            pause = PAUSE_SECONDS
            try:
                await self.fetch()
                self._failures = 0
            except (TransportError, StorageError) as error:
                self._failures += 1
                pause = min(2.0 ** min(self._failures, 9), LONGEST_PAUSE)
                facts = {"why": str(error)} if isinstance(error, TransportError) else {}
                LOG.warning("the analyzer gave no keys", extra={"facts": facts})
            except Exception as error:
                LOG.error("keys were not fetched", exc_info=error)
            self.asked.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            if self._failures:  # whatever wakes us, an analyzer that is silent is not pressed
                await asyncio.sleep(min(self._failures, 10))

    async def fetch(self) -> None:
        """Fetch documents that are missing or were signed with other keys, once."""
        signers = await self._fetch_signers()
        failure = await self._fetch_documents(signers)
        failure = await self._tell_discarded() or failure
        failure = await self._confirm() or failure
        done: set[tuple[str, int]] = set()
        while (wanted := await self._next_wanted(done)) is not None:
            where = (wanted.plan_id, wanted.window)
            try:
                if not await self._fetch_key(wanted):
                    done.add(where)  # another relay was faster
            except TransportError as error:  # another plan, or another window, may have one
                failure = failure or error
                done.add(where)  # crowds are opened in their order; the analyzer numbers them so
        for stale in await self._in_store(self._store.signed_otherwise, signers):
            try:
                await self._fetch_signature(stale)
            except TransportError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _fetch_signers(self) -> str:
        """Return the analyzer's keys that sign now, as its documents name them."""
        keys = await self._in_thread(self._analyzer.keys)
        if keys.content != self._keys:
            await self._in_store(self._store.keep_document, "keys", keys)
            self._keys = keys.content
            await self._cache.look_again()
        return keys.signer

    async def _fetch_signature(self, stale: Wanted) -> None:
        """Fetch the document of an open crowd again, with the current signatures."""
        signed = await self._ask_key(stale)
        if not await self._in_store(self._store.sign_again, stale, signed):
            raise TransportError("the analyzer's key of an open crowd is another one now.")
        await self._cache.look_again()

    async def _next_wanted(self, but: set[tuple[str, int]]) -> Wanted | None:
        wanted = await self._in_store(self._store.wanted)
        return next((one for one in wanted if (one.plan_id, one.window) not in but), None)

    async def _ask_key(self, wanted: Wanted) -> Document:
        name = await self._in_store(self._store.data_name)
        try:
            signed = await self._in_thread(
                self._analyzer.crowd_key, wanted, name, self._deadline_days
            )
        except Refused as error:
            if error.name == problems.PLAN_CLOSED.name:
                await self._cache.close_plan(wanted.plan_id, by="the analyzer")
            if error.name == problems.DEADLINES_MISFIT.name:
                self.misfits = True
                facts = {"deadline_days": self._deadline_days}
                LOG.error(problems.DEADLINES_MISFIT.title, extra={"facts": facts})
            raise
        self.misfits = False
        return signed

    async def _fetch_key(self, wanted: Wanted) -> bool:
        opened = await self._in_store(self._store.open_crowd, wanted, await self._ask_key(wanted))
        if opened:
            await self._cache.look_again()
        return opened

    async def _confirm(self) -> TransportError | None:
        """Ask whether the crowds that take reports are open, and discard those that are not."""
        now = asyncio.get_running_loop().time()
        if now - self._confirmed < CONFIRM_SECONDS:
            return None
        failure = None
        for crowd in await self._in_store(self._store.taking):
            try:
                signed = await self._ask_key(crowd)
            except Refused as error:  # of this plan; the others are asked for all the same
                failure = error
                continue
            except TransportError as error:
                return error
            if CrowdKey.from_bytes(signed.content).crowd == crowd.place:
                continue
            if await self._in_store(self._store.discard, crowd):
                about = {"plan": crowd.plan_id, "window": crowd.window, "crowd": crowd.place}
                LOG.error("a crowd has ended at the analyzer", extra={"facts": about})
                await self._cache.look_again()
        self._confirmed = now
        return failure

    async def _tell_discarded(self) -> TransportError | None:
        """Tell the analyzer which crowds were discarded, until it has answered."""
        failure, refused = None, set[str]()
        for crowd in await self._in_store(self._store.frozen.untold):
            if crowd.plan_id in refused:
                continue
            try:
                await self._in_thread(self._analyzer.discard, crowd)
            except Refused as error:
                if error.name not in _UNKNOWN:
                    failure = error
                    refused.add(crowd.plan_id)
                    continue
            except TransportError as error:
                return error
            await self._in_store(self._store.frozen.told, crowd)
        return failure

    async def _fetch_documents(self, signers: str) -> TransportError | None:
        failure = None
        plans = [record.plan.id for record in await self._in_store(self._store.plans)]
        wanted: list[tuple[str, Callable[[], Document]]] = []
        for plan_id in plans:
            wanted += [
                (f"plan {plan_id}", partial(self._analyzer.plan, plan_id)),
                (f"certificate {plan_id}", partial(self._analyzer.certificate, plan_id)),
            ]
        now = asyncio.get_running_loop().time()
        for name, fetch in wanted:
            fetched, by = self._fetched.get(name, (0.0, ""))
            if by == signers and now - fetched < REFRESH_SECONDS:
                continue
            try:
                document = await self._in_thread(fetch)
            except TransportError as error:
                failure = error
                continue
            await self._in_store(self._store.keep_document, name, document)
            self._fetched[name] = now, signers
            await self._cache.look_again()
        return failure
