"""Keeps what only the analyzer can give at hand: its documents, and keys of the next crowds.

Devices do not wait for the analyzer: what they ask for is here before they ask. If the analyzer is
silent, the relay goes on with the keys that it has, and asks again after a while.

The analyzer is asked for its signing keys every time. If they changed, everything that it signed is
fetched again at once: devices with the old key and devices with the new one find their signature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from shoal.collector.intake.database import StorageError
from shoal.collector.logs import LOG
from shoal.collector.relay.analyzer import Analyzer
from shoal.collector.relay.open_plan import Document, Wanted
from shoal.collector.relay.store import RelayStore
from shoal.errors import TransportError

__all__ = ["KeyKeeper"]

R = TypeVar("R")
Run = Callable[..., Awaitable[Any]]
"""Runs a function with arguments on some thread."""

REFRESH_SECONDS = 3600.0
"""After how long documents are asked for again."""
PAUSE_SECONDS = 20.0
LONGEST_PAUSE = 300.0


class KeyKeeper:
    """Fetches documents and keys, and puts them into the store.

    Parameters
    ----------
    store, in_store
        Where they go, and what runs a function on its thread.
    analyzer, in_thread
        Who gives them, and what runs a function that waits for it.
    changed
        Called when there is something new.
    """

    def __init__(
        self,
        store: RelayStore,
        in_store: Run,
        analyzer: Analyzer,
        in_thread: Run,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._store, self._in_store = store, in_store
        self._analyzer, self._in_thread, self._changed = analyzer, in_thread, changed
        self._wake = asyncio.Event()
        self._fetched: dict[str, tuple[float, str]] = {}
        self._keys: bytes | None = None
        self._failures = 0

    def wake(self) -> None:
        """Look at once whether a key is wanted."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch what is missing, again and again."""
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
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            if self._failures:  # whatever wakes us, an analyzer that is silent is not pressed
                await asyncio.sleep(min(self._failures, 10))

    async def fetch(self) -> None:
        """Fetch what is missing or was signed with other keys, once."""
        signers = await self._fetch_signers()
        failure = await self._fetch_documents(signers)
        failed: set[tuple[str, int]] = set()
        for wanted in await self._in_store(self._store.wanted):
            where = (wanted.plan_id, wanted.window)
            if where in failed:  # crowds are opened in their order; the analyzer numbers them so
                continue
            try:
                await self._fetch_key(wanted)
            except TransportError as error:  # another plan, or another window, may have one
                failure = failure or error
                failed.add(where)
        for stale in await self._in_store(self._store.signed_otherwise, signers):
            try:
                await self._fetch_signature(stale)
            except TransportError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _fetch_signers(self) -> str:
        """Return the analyzer's keys that sign now, as its documents name them."""
        keys: Document = await self._in_thread(self._analyzer.keys)
        if keys.content != self._keys:
            await self._in_store(self._store.keep_document, "keys", keys)
            self._keys = keys.content
            await self._changed()
        return keys.signer

    async def _fetch_signature(self, stale: Wanted) -> None:
        """Fetch the document of an open crowd again, with the signatures of today."""
        signed = await self._in_thread(self._analyzer.crowd_key, stale)
        if not await self._in_store(self._store.sign_again, stale, signed):
            raise TransportError("the analyzer's key of an open crowd is another one now.")
        await self._changed()

    async def _fetch_key(self, wanted: Wanted) -> None:
        signed = await self._in_thread(self._analyzer.crowd_key, wanted)
        if await self._in_store(self._store.open_crowd, wanted, signed):
            await self._changed()

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
            await self._changed()
        return failure
