"""Prefetches documents of the analyzer and the keys of the next crowds.

Devices do not wait for the analyzer; if it is silent, the relay goes on with the keys it has. If
the analyzer's signing keys changed, everything that it signed is fetched again at once. The open
crowds of both parties are kept in step: the analyzer is told of discarded crowds, and asked whether
the crowds that take reports here are open there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from shoal.errors import TransportError
from shoal.protocol.encryption import CrowdKey
from shoal.server.core import problems
from shoal.server.core.observability import LOG
from shoal.server.core.service import Service, WorkerThread
from shoal.server.relay.analyzer_client import AnalyzerClient, Refused
from shoal.server.relay.open_plan import Document, Wanted
from shoal.server.relay.plan_cache import RelayPlans
from shoal.server.relay.store import RelayStore
from shoal.server.storage.database import StorageError

REFRESH_SECONDS = 3600.0
"""Seconds after which documents are requested again."""
CONFIRM_SECONDS = 300.0
"""Seconds after which the analyzer is asked again whether crowds are open."""
_UNKNOWN = (problems.UNKNOWN_PLAN.name, problems.UNKNOWN_CROWD.name)
"""How the analyzer says that it has no such crowd; a proxy's 404 does not count."""
PAUSE_SECONDS = 20.0
LONGEST_PAUSE = 300.0


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
