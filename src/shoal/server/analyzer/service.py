"""The analyzer: makes the keys of crowds, opens the crowds of relays, and releases them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from shoal.protocol.encryption import Chunk
from shoal.protocol.plan import Plan
from shoal.server.analyzer.decryption import DamagedCrowd, Stop, Stopped, decrypt_crowd
from shoal.server.analyzer.endpoint import KeyRequest, RelayEndpoint
from shoal.server.analyzer.plan import Place
from shoal.server.analyzer.store import (
    AnalyzerStore,
    CompleteCrowd,
    OpenedCrowd,
    Receipt,
    damaged_chunks,
)
from shoal.server.console.app import make_console
from shoal.server.core import problems
from shoal.server.core.administration import Administration, publish
from shoal.server.core.agreement import known_agreement
from shoal.server.core.http import App
from shoal.server.core.listeners import leave, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.problems import Problem
from shoal.server.core.public import make_public, with_results
from shoal.server.core.service import Party
from shoal.server.core.settings import RESULTS, AnalyzerSettings
from shoal.server.core.tokens import Token
from shoal.server.storage.records import Declaration
from shoal.server.storage.windows import IncompleteCrowd

_PAUSE = 20.0
"""Seconds after which a crowd that could not be opened is tried again."""


class AnalyzerMetrics(Metrics):
    """The metrics of every service, and of damaged chunks."""

    def __init__(self) -> None:
        super().__init__()
        self._damaged = self._counter("shoal_chunks_damaged", "Chunks found damaged on the disk.")
        self._healed = self._counter("shoal_chunks_healed", "Damaged chunks that were repaired.")

    def damaged(self, found: int, healed: int) -> None:
        self._damaged.inc(found)
        self._healed.inc(healed)


class Analyzer(Party):
    """Makes the keys of crowds, opens the crowds that relays forward, and releases them.

    Use it as an asynchronous context. `public` and `console` are its two ASGI apps,
    `administration` its plans, `store` its data. One analyzer at a time uses the folder. `clock`
    returns seconds since 1970; by default it does not jump.
    """

    crowd_columns = None  # only the relay knows whether a crowd has all its reports
    public: App
    console: App
    store: AnalyzerStore
    administration: Administration

    def __init__(
        self,
        folder: Path | str,
        settings: AnalyzerSettings | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings, self.metrics = settings or AnalyzerSettings(), AnalyzerMetrics()
        super().__init__(folder, self.settings, self.metrics, clock, role="analyzer")
        self._agreed = self._agreed_token()

    async def __aenter__(self) -> Self:
        self._complete, self._stop_opening = asyncio.Event(), Stop()
        self._complete.set()  # a crowd may have been waiting when the process ended
        self.store = self.open_store(
            AnalyzerStore,
            spare=self.settings.min_free_megabytes << 20,
            opened=self._opened,
            damaged=self._note_damage,
        )
        if self._agreed is not None:
            self.service.tokens.agree(*self._agreed)
        self._opening_thread = self.service.add_thread("opening")
        self.administration = Administration(self.service, self.store, self.settings)
        endpoint = RelayEndpoint(self.service, self.administration, self)
        self.public = make_public(self.administration, endpoint)
        on, folder = self.settings.public_results, self.service.folder / RESULTS
        self.public, writing = with_results(self.public, self.administration, folder, on=on)
        self.console = make_console(self.administration)
        self.service.start(None, self, self._open_crowds(), *writing)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop_opening.ask()
        self._complete.set()
        await super().__aexit__(*error)

    def _agreed_token(self) -> tuple[Token, str, int] | None:
        """Return the token of the relay that was set up, its secret, and when its file was made."""
        agreement = self.service.agreement
        if agreement is None or (agreement.own.role == "analyzer" and agreement.missing):
            return None
        agreement = known_agreement(self.service.folder, "analyzer")
        relay = agreement.others["relay"]
        token = Token.new("relay", f"relay {relay.fingerprint[:9]}", key=relay.signing_key)
        return token, agreement.token("relay"), relay.made

    # What relays ask for

    async def crowd_key(self, plan_id: str, request: KeyRequest) -> bytes | Problem:
        """Return the key of a crowd as a document, or why there is none."""
        if not request.fits(self.settings.deadline_days):
            return problems.DEADLINES_MISFIT
        place = Place(request.window, request.crowd)
        return await self.service.in_store(self.store.crowd_key, plan_id, place, request.relay)

    async def keep_chunk(self, place: Place, chunk: Chunk, content: bytes) -> Receipt | Problem:
        """Store a chunk and return the receipt, or why it is refused."""
        receipt = await self.service.in_store(self.store.keep_chunk, place, chunk, content)
        if isinstance(receipt, Problem) or receipt.crowd is None:
            return receipt
        # The relay deletes the crowd when it is told that it is complete, so every chunk is read
        # from the disk first. Otherwise the relay sends all of them again.
        if await self._find_damage(receipt.crowd):
            return Receipt(receipt.document | {"state": "receiving"})
        self._complete.set()
        return receipt

    async def discard(self, plan_id: str, place: Place) -> str | Problem:
        """Discard a crowd that the relay discarded, and return its state."""
        return await self.service.in_store(self.store.discard, plan_id, place)

    async def _find_damage(self, crowd: CompleteCrowd) -> bool:
        """Look for damaged chunks of a complete crowd, and note them; return whether it waits."""
        found = await self.service.upload_thread.run(damaged_chunks, crowd.chunks)
        if not found:
            return False
        note = self.store.note_damage
        waits = await self.service.in_store(note, crowd.plan.id, crowd.number, found)
        if waits:
            facts = {"plan": crowd.plan.id, "crowd": crowd.number, "chunks": found}
            LOG.error("chunks of a crowd are damaged on the disk", extra={"facts": facts})
        return waits

    # Crowds

    def _note_damage(self, found: int, healed: int) -> None:
        self.metrics.damaged(found, healed)
        if healed:
            LOG.warning("damaged chunks were repaired", extra={"facts": {"chunks": healed}})

    def _opened(self, plan: Plan, number: int, crowd: OpenedCrowd, released: bool) -> None:
        self.metrics.unreadable(crowd.unreadable)
        if released:
            self.metrics.released(crowd.tally.reports)
            LOG.info("crowd released", extra={"facts": {"plan": plan.id, "crowd": number}})
        else:
            self.discarded(plan, IncompleteCrowd(number, 100))
        if crowd.unreadable:
            facts = {"plan": plan.id, "crowd": number, "unopened": crowd.unopened}
            facts |= {"out_of_range": crowd.out_of_range, "repeated": crowd.repeated}
            LOG.warning("%d messages could not be read", crowd.unreadable, extra={"facts": facts})

    async def _open_crowds(self) -> None:
        """Open complete crowds, one after another, until the analyzer stops."""
        while True:
            await self._complete.wait()
            self._complete.clear()
            try:
                while await self._open_next():
                    pass
            except Stopped:
                return
            except Exception as error:
                LOG.error("a crowd was not opened and is tried again", exc_info=error)
                asyncio.get_running_loop().call_later(_PAUSE, self._complete.set)

    async def _open_next(self) -> bool:
        """Open a crowd and release it; return whether there was one."""
        self._stop_opening.check()
        crowd = await self.service.on_store_thread(self.store.next_complete)
        if crowd is None:
            return False
        scratch, processes = self.store.scratch, self.settings.opening_processes
        try:
            opened = await self._opening_thread.run(
                decrypt_crowd, crowd, scratch, processes, self._stop_opening
            )
        except DamagedCrowd:
            if not await self._find_damage(crowd):
                raise  # the chunks are readable now; it is tried again
            return True
        await self.service.on_store_thread(self.store.release_crowd, crowd, opened)
        return True

    # Housekeeping

    def sweep(self) -> None:
        self.administration.keep_up()
        super().sweep()

    def after_sweep(self) -> None:
        """Look for a crowd to open: a damaged chunk may have been repaired."""
        self._complete.set()
        self.administration.changed.set()


def serve_analyzer(
    folder: Path | str,
    settings: AnalyzerSettings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run an analyzer until it is told to stop.

    `plans` are published at the start, with a `declaration` about them, if they are not yet.
    `ready` is called with the two addresses, as URLs by the names `public` and `console`.
    """
    settings = settings or AnalyzerSettings()
    analyzer = Analyzer(folder, settings)

    async def begin() -> None:
        for plan in plans:
            await publish(analyzer.administration, plan, declaration)

    listeners = {"public": settings.public, "console": settings.console}
    run(analyzer, listeners, begin=begin, ready=ready)
    leave(analyzer)
