"""The collector: receives reports for published plans and releases complete crowds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from shoal.analysis.report_files import Batch
from shoal.protocol.plan import Plan
from shoal.server.collector.gateway import ObliviousGateway
from shoal.server.collector.ingest import Ingest
from shoal.server.console.app import make_console
from shoal.server.core import problems
from shoal.server.core.administration import Administration, publish
from shoal.server.core.group_commit import Committer
from shoal.server.core.http import PLAN_PATH, App, Receive, Scope, bearer_token
from shoal.server.core.ingest import Allowance
from shoal.server.core.listeners import Listener, bind, leave, run
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.problems import Problem, Send
from shoal.server.core.public import PublicEndpoint, make_public
from shoal.server.core.service import Service
from shoal.server.core.settings import Settings
from shoal.server.storage.database import StorageError
from shoal.server.storage.records import Declaration
from shoal.server.storage.store import Store
from shoal.server.storage.windows import IncompleteCrowd

__all__ = ["Collector", "serve"]

LOOKUPS = 100
"""Names in a second that the database is asked for because this collector does not know them."""


class Collector:
    """Receives reports for published plans and releases complete crowds.

    Use it as an asynchronous context. `public` and `console` are its two ASGI apps,
    `administration` its plans, `store` its data.

    Parameters
    ----------
    folder
        The data folder, created if needed; one collector at a time uses it.
    settings
        The settings.
    clock
        Seconds since 1970; by default one that does not jump.
    housekeeper
        Whether this process does the housekeeping on a shared database.
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
        self.settings = settings or Settings()
        self.metrics = Metrics()
        self.service = Service(
            folder,
            self.settings,
            role="collector",
            metrics=self.metrics,
            clock=clock,
            is_shared=bool(self.settings.database),
        )
        self._housekeeper = housekeeper
        self._lookups = Allowance(LOOKUPS)

    async def __aenter__(self) -> Self:
        service, settings = self.service, self.settings
        self.store = service.open(self._make_store)
        self.administration = Administration(service, self.store, settings)
        committer: Committer[Batch] = Committer(
            self._accept, settings.max_queued_reports, len, settings.store_timeout
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
        self.console = make_console(self.administration)
        service.start(committer, self)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.service.stop()

    def _make_store(self) -> Store:
        return Store(
            self.service.folder,
            url=self.settings.database,
            timeout=self.settings.store_timeout,
            deadline_days=self.settings.deadline_days,
            clock=self.service.clock,
            released=self._released,
            discarded=self._discarded,
        )

    def _look_up_unknown(self, public: App) -> App:
        """Return an app that asks the database for plans and tokens that are not known here.

        Others publish plans and make tokens too, and a device discards its report if it is told
        that there is no such plan. Anybody can make up names, so the number of lookups in a second
        is limited; beyond that, a client with an unknown name is told to try again.
        """

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            named = PLAN_PATH.match(scope.get("path", ""))
            secret = bearer_token(dict(scope.get("headers", ()))) if named else ""
            tokens, plans = self.service.tokens, self.administration
            is_new_plan = named is not None and plans.published(named[1]) is None
            is_new_token = bool(secret) and not tokens.knows(secret)
            unknown = is_new_plan + is_new_token
            found = not unknown or self._lookups.take(unknown)
            if found:
                try:
                    if named is not None and is_new_plan:
                        await plans.reload(named[1])
                    if is_new_token:
                        await self.service.in_store(tokens.look_up, secret)
                except StorageError:
                    found = False  # there may be such a plan, or such a token
            if not found:
                self.service.refused(problems.NOT_KNOWN_YET)
                await problems.NOT_KNOWN_YET.send(send, last=True)
                return
            await public(scope, receive, send)

        return app

    # Reports and crowds

    async def _accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        try:
            answers, is_behind = await self.service.on_store_thread(self._accept_in_store, uploads)
        except Exception as error:
            LOG.error("reports were not accepted", exc_info=error)
            raise
        if is_behind:
            self.service.sweep_soon()
        return answers

    def _accept_in_store(self, uploads: Sequence[Batch]) -> tuple[list[Problem | None], bool]:
        answers = self.service.timed(lambda: self.store.accept(uploads))
        return answers, self.store.is_behind

    def _released(self, plan_id: str, number: int) -> None:
        self.metrics.released(self.administration.reports_needed(plan_id))
        LOG.info("crowd released", extra={"facts": {"plan": plan_id, "crowd": number}})

    def _discarded(self, plan_id: str, ended: IncompleteCrowd) -> None:
        self.metrics.discarded(self.administration.reports_needed(plan_id) * ended.tenths // 10)
        about = {"plan": plan_id, "crowd": ended.number, "progress": 10 * ended.tenths}
        LOG.warning("crowd discarded", extra={"facts": about})

    # Housekeeping

    def sweep(self) -> None:
        """Bring the data in order, on the store's thread."""
        if self.service.is_shared or self.service.was_late:
            self.administration.reload_all()
            self.service.was_late = False
        if not self._housekeeper:
            self.store.database.keep_up()
            return
        self.service.timed(self.store.sweep)
        self.metrics.turn()

    def after_sweep(self) -> None:
        """Nothing else waits for a sweep."""

    def last_sweep(self) -> None:
        """Bring the data in order before the end, on the store's thread."""
        if self._housekeeper:
            self.store.sweep()


def serve(
    folder: Path | str,
    settings: Settings | None = None,
    *,
    plans: Sequence[Plan] = (),
    declaration: Declaration | None = None,
    origins: Sequence[str] | None = None,
    ready: Callable[[dict[str, str]], None] = lambda urls: None,
) -> None:
    """Run a collector until it is told to stop.

    Parameters
    ----------
    folder, settings
        Where its data are, and its settings.
    plans
        Plans to publish at the start, if they are not yet.
    declaration
        What is stated about these plans when they are published.
    origins
        Origins of the web pages that may send reports for these plans; None leaves them as set.
    ready
        Called with the two addresses, as URLs by the names `public` and `console`.
    """
    from shoal.server.collector.workers import Workers, check_workers  # it imports this module

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

        listeners = [
            Listener("public", settings.public, lambda: collector.public, bound),
            Listener("console", settings.console, lambda: collector.console),
        ]
        run(collector, listeners, begin=begin, ready=ready, stopping=workers.stop)
    leave(collector)
