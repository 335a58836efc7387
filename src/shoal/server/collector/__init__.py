"""The collector: receives reports for published plans and releases complete crowds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from shoal.analysis.report_files import Batch
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.collector.ingest import Ingest, ObliviousGateway
from shoal.server.console.app import make_console
from shoal.server.core.administration import Administration, publish
from shoal.server.core.http import PLAN_PATH, App, Receive, Scope
from shoal.server.core.ingest import Committer, Lookups
from shoal.server.core.listeners import Listeners, bind, leave, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.problems import Send
from shoal.server.core.public import PublicEndpoint, make_public, with_results
from shoal.server.core.service import Party
from shoal.server.core.settings import RESULTS, Settings
from shoal.server.core.tokens import bearer_token
from shoal.server.storage.encryption import CROWD_KEY_FILE
from shoal.server.storage.key_file import OBLIVIOUS_FILE, SIGNING_FILE
from shoal.server.storage.records import Declaration
from shoal.server.storage.store import Store
from shoal.support.disk import Disk


class Collector(Party):
    """Receives reports for published plans and releases complete crowds.

    Use it as an asynchronous context. `public` and `console` are its two ASGI apps,
    `administration` its plans, `store` its data. The data folder is created if needed; one
    collector at a time uses it. `clock` returns seconds since 1970, by default without jumps.
    `housekeeper` says whether this process does the housekeeping on a shared database.
    """

    public: App
    console: App
    store: Store
    administration: Administration

    def __init__(
        self,
        folder: Path | str,
        settings: Settings | None = None,
        *,
        clock: Callable[[], float] | None = None,
        housekeeper: bool = True,
    ) -> None:
        self.settings, self.metrics = settings or Settings(), Metrics()
        super().__init__(folder, self.settings, self.metrics, clock)
        self.service.is_housekeeper = housekeeper
        self._lookups = Lookups(self.service)

    async def __aenter__(self) -> Self:
        service, settings = self.service, self.settings
        self.store = self.open_store(Store)
        self.administration = Administration(service, self.store, settings)
        committer: Committer[Batch] = Committer(
            service.accept, settings.max_queued_reports, len, settings.store_timeout
        )
        ingest = Ingest(service, settings, self.administration, committer)
        endpoint: PublicEndpoint = ingest
        if settings.oblivious != "off":
            trusted = settings.oblivious == "trusted"
            endpoint = ObliviousGateway(service, ingest, self.administration, trusted=trusted)
            service.key_files.append(endpoint.keys)
        self.public = make_public(self.administration, endpoint)
        if service.is_shared:
            self.public = self._look_up_unknown(self.public)
        # The first process writes the results, for the others too.
        own = service.is_housekeeper
        folder = (service.folder if own else service.folder.parent) / RESULTS
        self.public, writing = with_results(
            self.public, self.administration, folder, on=settings.public_results, writes=own
        )
        self.console = make_console(self.administration)
        service.start(committer, self, *writing)
        return self

    def _look_up_unknown(self, public: App) -> App:
        """Return an app that asks the database for plans and tokens that are not known here."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            named = PLAN_PATH.match(scope.get("path", ""))
            secret = bearer_token(dict(scope.get("headers", ()))) if named else ""
            tokens, plans, lookups = self.service.tokens, self.administration, []
            if named is not None and plans.published(named[1]) is None:
                lookups.append(partial(plans.reload, named[1]))
            if secret and not tokens.knows(secret):
                lookups.append(partial(self.service.in_store, tokens.look_up, secret))
            if await self._lookups.succeed(lookups, send):
                await public(scope, receive, send)

        return app

    # Housekeeping

    def sweep(self) -> None:
        self.administration.keep_up()
        if not self.service.is_housekeeper:
            self.store.database.keep_up()
            return
        super().sweep()

    def after_sweep(self) -> None:
        self.administration.changed.set()

    def last_sweep(self) -> None:
        if self.service.is_housekeeper:
            super().last_sweep()


def serve(
    folder: Path | str,
    settings: Settings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    origins: Sequence[str] | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a collector until it is told to stop; `folder` has its data.

    `plans` are published at the start, if they are not yet, with a `declaration` about them;
    `origins` are those of the web pages that may send reports for them, None leaves them as set.
    `ready` is called with the two addresses, as URLs by the names `public` and `console`.
    """
    settings = settings or Settings()
    check_workers(settings)
    collector = Collector(folder, settings)
    with (
        bind("public", settings.public) as bound,
        Workers(Path(folder), settings, bound) as workers,
    ):

        async def begin() -> None:
            for plan in plans:
                await publish(collector.administration, plan, declaration)
                if origins is not None:
                    await collector.administration.set_origins(plan.id, origins)
            workers.start()

        listeners: Listeners = {"public": bound, "console": settings.console}
        run(collector, listeners, begin=begin, ready=ready, stopping=workers.stop)
    leave(collector)


_PAUSE = 1.0
"""Seconds before a process that died is started again."""


def check_workers(settings: Settings) -> None:
    """Refuse several processes without a database: a folder is for one."""
    if settings.workers > 1 and not settings.database:
        raise InputError(
            f"{settings.workers} workers need a database that they share: set database, or leave"
            " workers at 1."
        )


class Workers:
    """Further processes that take reports at one address, over a shared database; a context.

    Each is a collector of its own with respect to the database, so each report counts once,
    whichever process it comes to. The first process has the console and does the housekeeping. The
    others take reports only; they end with it, and are started again if they die. Their folders go
    with them: a key that is never replaced would decrypt later states of the database.
    """

    def __init__(self, folder: Path, settings: Settings, bound: socket.socket) -> None:
        self._folder, self._settings, self._bound = folder, settings, bound
        self._processes: dict[int, BaseProcess] = {}
        self._stopping = threading.Event()
        # Held open by this process alone: when it ends, however it ends, the others see it.
        self._ended, self._alive = multiprocessing.Pipe(duplex=False)
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start the processes; the first one runs by now and has made the keys."""
        for folder in self._folder.glob("worker-*"):  # of processes that were killed
            shutil.rmtree(folder)
        for number in range(2, self._settings.workers + 1):
            self._start(number)
        if self._processes:
            self._watching.start()

    def _start(self, number: int) -> None:
        folder = self._folder_of(number)
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (CROWD_KEY_FILE, SIGNING_FILE, OBLIVIOUS_FILE):
            if (self._folder / name).exists():
                shutil.copy2(self._folder / name, folder / name)
        process = multiprocessing.get_context("spawn").Process(
            target=_work, args=(folder, self._settings, self._bound, self._ended)
        )
        process.start()
        self._processes[number] = process

    def _folder_of(self, number: int) -> Path:
        return self._folder / f"worker-{number}"

    def _watch(self) -> None:
        while not self._stopping.is_set():
            wait([one.sentinel for one in self._processes.values()], timeout=_PAUSE)
            for number, process in list(self._processes.items()):
                if not process.is_alive() and not self._stopping.wait(_PAUSE):
                    LOG.error("a worker ended and is started again", extra={"facts": {
                        "worker": number, "exit": process.exitcode}})  # fmt: skip
                    self._start(number)

    def __enter__(self) -> Workers:
        return self

    def stop(self) -> None:
        self._stopping.set()
        for process in list(self._processes.values()):
            process.terminate()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._watching.is_alive():
            self._watching.join()
        self.stop()
        for number, process in self._processes.items():
            process.join(self._settings.shutdown_timeout)
            process.kill()  # if it has not ended
            process.join()
            shutil.rmtree(self._folder_of(number))
        if self._processes:
            Disk().sync_folder(self._folder)
        for end in (self._ended, self._alive):
            end.close()


def _work(folder: Path, settings: Settings, bound: socket.socket, ended: Connection) -> None:
    """Take reports until told to stop, or until the first process is gone."""
    worker = Collector(folder, settings, housekeeper=False)

    async def begin() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(ended.fileno(), os.kill, os.getpid(), signal.SIGTERM)

    run(worker, {"public": bound}, begin=begin)
    leave(worker)
