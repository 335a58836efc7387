"""The collector as one object that tests can call in process, without a socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from shoal.analysis.report_files import Batch
from shoal.errors import InputError, PrivacyRefusal
from shoal.protocol.plan import Plan
from shoal.server.collector import plan_review as publication
from shoal.server.collector.gateway import Gateway
from shoal.server.collector.ingest import Ingest
from shoal.server.collector.public import PublicDoor, make_public, reports_door
from shoal.server.console.app import make_console
from shoal.server.core import problems
from shoal.server.core.backup import back_up
from shoal.server.core.group_commit import Committer
from shoal.server.core.http import PLAN_PATH, Receive, Scope, bearer_token, with_cors
from shoal.server.core.ingest import Allowance
from shoal.server.core.observability import LOG
from shoal.server.core.problems import Problem, Send
from shoal.server.core.service import App, Running
from shoal.server.core.settings import Settings
from shoal.server.core.tokens import Actions
from shoal.server.storage.database import StorageError, storage_errors
from shoal.server.storage.records import STATES, Declaration, PlanRecord, State
from shoal.server.storage.store import Store
from shoal.server.storage.windows import IncompleteCrowd

__all__ = ["Collector"]

LOOKUPS = 100
"""Names in a second that the database is asked for because this collector does not know them."""

BACKUPS = "backups"
"""The folder of backups that were made from the console."""


class Collector(Running):
    """Receives reports for published plans and releases whole crowds.

    Use it as an asynchronous context; `public` and `console` are its two ASGI apps.

    Parameters
    ----------
    folder
        The data folder, made if need be; one collector at a time uses it.
    settings
        How it runs.
    clock
        Seconds since 1970; by default one that does not jump.
    """

    def __init__(
        self,
        folder: Path | str,
        settings: Settings | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        super().__init__(folder, self.settings, clock)
        self._plans: dict[str, PlanRecord] = {}
        self._moving = asyncio.Lock()
        self._lookups = Allowance(LOOKUPS)
        self.public: App
        self.console: App

    async def __aenter__(self) -> Self:
        self._held = ExitStack()
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        self._committer = Committer(
            self._accept, self.settings.most_waiting, len, self.settings.store_timeout
        )
        self.public = with_cors(
            make_public(self._published, self._door(), self.signer, self.refused), self._origins
        )
        if self._is_shared:
            self.public = self._asking_first(self.public)
        self.console = make_console(self)
        self._tasks = [
            asyncio.create_task(self._committer.run()),
            asyncio.create_task(self._sweep()),
        ]
        return self

    def _door(self) -> PublicDoor:
        """Return what takes reports at the public listener."""
        ingest = Ingest(
            self.settings,
            self._plan_for_reports,
            self._committer,
            self.tokens.find,
            self.refused,
            self._door_thread,
        )
        return reports_door(ingest, self._gateway(ingest))

    def _gateway(self, ingest: Ingest) -> Gateway | None:
        """Return what takes reports through an oblivious relay, if that is set."""
        if self.settings.oblivious == "off":
            return None
        gateway = Gateway(
            self.folder,
            ingest,
            self._plan_for_reports,
            self.signer,
            self.refused,
            self._door_thread,
            self._clock,
            trusted=self.settings.oblivious == "trusted",
        )
        self._key_files.append(gateway.keys)
        return gateway

    def _start(self) -> None:
        self.store = self._hold(self._held, self._make_store)
        self.actions = Actions(self.store.database.connection, self._clock)
        self._plans = {record.plan.id: record for record in self.store.plans()}
        self._start_threads()

    @property
    def _is_shared(self) -> bool:
        return bool(self.settings.database)

    def _make_store(self) -> Store:
        return Store(
            self.folder,
            url=self.settings.database,
            timeout=self.settings.store_timeout,
            deadline_days=self.settings.deadline_days,
            clock=self._clock,
            released=self._released,
            discarded=self._discarded,
        )

    @property
    def _any_store(self) -> Store:
        return self.store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        committing, *others = self._tasks
        self._committer.stop()
        await self._stop(committing, others)

    # Plans

    def _asking_first(self, public: App) -> App:
        """Return an app that asks the database for plans and tokens that it does not know.

        Others publish and make tokens too, and a device that is told that there is no such plan
        gives its report up. Anybody can make up names, so only so many are asked for in a second;
        beyond that, whoever uses one that is not known here is told to try again.
        """

        async def asking(scope: Scope, receive: Receive, send: Send) -> None:
            named = PLAN_PATH.match(scope.get("path", ""))
            secret = bearer_token(dict(scope.get("headers", ()))) if named else None
            is_new_plan = named is not None and self._published(named[1]) is None
            is_new_token = bool(secret) and not self.tokens.knows(secret or "")
            asked = is_new_plan + is_new_token
            can_be_told = not asked or self._lookups.take(asked)
            if can_be_told:
                try:
                    if named is not None and is_new_plan:
                        await self._reload(named[1])
                    if secret and is_new_token:
                        await self.in_store(self.tokens.look_up, secret)
                except StorageError:
                    can_be_told = False  # there may be such a plan, or such a token
            if not can_be_told:
                self.refused(problems.NOT_KNOWN_YET)
                await problems.NOT_KNOWN_YET.send(send, last=True)
                return
            await public(scope, receive, send)

        return asking

    async def add_plan(self, plan: Plan) -> Problem | None:
        """Add a plan as a draft, or return why not; a known plan stays as it is."""
        if self._is_shared:
            await self.in_store(self._reload_all)
        if plan.id in self._plans:
            return None
        problem = self._misplaced(plan) or await self._objection(plan)
        if problem is None:
            await self.in_store(self.store.add_plan, plan)
            await self._reload(plan.id)
        return problem

    def _misplaced(self, plan: Plan) -> Problem | None:
        """Return why another kind of service must take a plan."""
        return None if plan.parties is None else problems.NEEDS_ANALYZER

    async def _objection(self, plan: Plan) -> Problem | None:
        accepting = [
            record.plan for record in self.plans() if record.state in ("published", "paused")
        ]
        return await self.compute(publication.objection, plan, self.settings, accepting)

    async def move_plan(
        self,
        plan_id: str,
        wanted: State,
        declaration: Declaration | None = None,
        *,
        by: str = "the command line",
    ) -> Problem | None:
        """Change the state of a plan, or return why not; `by` is the label of whoever asks."""
        async with self._moving:
            if self._is_shared:
                await self.in_store(self._reload_all)
            problem = await self._move_plan(plan_id, wanted, declaration or Declaration())
        if problem is None:
            LOG.info("plan %s", wanted, extra={"facts": {"plan": plan_id, "by": by}})
            await self.in_store(self.actions.add, by, f"plan {wanted}", plan_id)
        return problem

    async def _move_plan(
        self, plan_id: str, wanted: State, declaration: Declaration
    ) -> Problem | None:
        record = self._plans.get(plan_id)
        if record is None:
            return problems.UNKNOWN_PLAN
        certificate = None
        if record.state == "draft" and wanted == "published":
            if record.plan.honest_fraction is None and not declaration.all_honest:
                return problems.HONEST_UNSAID
            # Others may have been published since it was added as a draft.
            problem = await self._objection(record.plan)
            if problem is not None:
                return problem
            certificate = await self.compute(publication.certificate, record.plan, self.settings)
        try:
            moved = await self.in_store(
                self.store.move,
                plan_id,
                wanted,
                certificate,
                never_published=declaration.never_published,
            )
        except PrivacyRefusal:
            return problems.MAYBE_PUBLISHED
        finally:
            await self._reload(plan_id)  # its state may have changed before the failure
        return None if moved else problems.WRONG_STATE

    async def _reload(self, plan_id: str) -> None:
        record = await self.in_store(self.store.plan, plan_id)
        if record is not None:
            self._plans[plan_id] = record

    def _reload_all(self) -> None:
        """Read what other collectors may have changed: plans and tokens."""
        self._plans = {record.plan.id: record for record in self.store.plans()}
        self.tokens.reload()

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._plans.get(plan_id)

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return [self._plans[plan_id] for plan_id in sorted(self._plans)]

    def _published(self, plan_id: str) -> PlanRecord | None:
        record = self._plans.get(plan_id)
        return None if record is None or record.certificate is None else record

    def _origins(self, plan_id: str | None) -> frozenset[str]:
        """Return the origins of the pages that may use a published plan, or any of them."""
        record = None if plan_id is None else self._published(plan_id)
        if plan_id is not None:
            return frozenset() if record is None else frozenset(record.origins)
        every = (one.origins for one in self._plans.values() if one.certificate is not None)
        return frozenset().union(*every)

    async def set_origins(
        self, plan_id: str, origins: Sequence[str], *, by: str = "the command line"
    ) -> None:
        """Set the origins of the web pages that may send reports for a plan."""
        record = self._plans.get(plan_id)
        if record is not None and record.origins == tuple(origins):
            return
        await self.in_store(self.store.set_origins, plan_id, origins)
        await self._reload(plan_id)
        LOG.info("origins set", extra={"facts": {"plan": plan_id, "by": by}})
        await self.in_store(self.actions.add, by, "origins set", plan_id)

    # Reports

    def _plan_for_reports(self, plan_id: str) -> Plan | Problem:
        record = self._published(plan_id)
        if record is None:  # a draft too: other answers would reveal that it exists
            return problems.UNKNOWN_PLAN
        if not self._spare:
            return problems.STORAGE_FULL
        return record.plan  # its state is checked in the transaction

    async def _accept(self, uploads: Sequence[Batch]) -> list[Problem | None]:
        try:
            answers, is_behind = await self.on_store_thread(self._accept_in_store, uploads)
        except Exception as error:
            LOG.error("reports were not accepted", exc_info=error)
            raise
        if is_behind:
            self._sweep_now.set()
        return answers

    def _accept_in_store(self, uploads: Sequence[Batch]) -> tuple[list[Problem | None], bool]:
        answers = self._timed(lambda: self.store.accept(uploads))
        return answers, self.store.is_behind

    async def _sweep_once(self) -> None:
        await self.on_store_thread(self._sweep_store)

    def _sweep_store(self) -> None:
        if self._is_shared or self._was_late:
            self._reload_all()
            self._was_late = False
        self._timed(self.store.sweep)
        self.metrics.turn()

    def _last_sweep(self) -> None:
        self.store.sweep()

    def _released(self, plan_id: str, number: int) -> None:
        self.metrics.sealed(self._reports_needed(plan_id))
        LOG.info("crowd sealed", extra={"facts": {"plan": plan_id, "crowd": number}})

    def _discarded(self, plan_id: str, ended: IncompleteCrowd) -> None:
        self.metrics.given_up(self._reports_needed(plan_id) * ended.tenths // 10)
        about = {"plan": plan_id, "crowd": ended.number, "tenths": ended.tenths}
        LOG.warning("crowd given up", extra={"facts": about})

    def _reports_needed(self, plan_id: str) -> int:
        record = self._plans.get(plan_id) or self.store.plan(plan_id)  # another published it
        assert record is not None
        return record.plan.reports_needed

    # Backups

    def backups(self) -> list[str]:
        """Return the names of the backups that were made in the data folder, rising."""
        return sorted(path.name for path in (self.folder / BACKUPS).glob("*.backup"))

    async def make_backup(self, *, by: str) -> str | Problem:
        """Make a backup in the data folder, and return its name, or why not."""
        target = self.folder / BACKUPS
        with storage_errors():
            target.mkdir(mode=0o700, exist_ok=True)
        try:
            made = await self.compute(
                back_up, self.folder, target, url=self.settings.database, clock=self._clock
            )
        except InputError:  # its name is the second in which it was made
            return problems.BACKUP_EXISTS
        LOG.info("backup made", extra={"facts": {"by": by}})
        await self.in_store(self.actions.add, by, "backup made", made.name)
        return made.name

    # Whether it works

    def metrics_text(self) -> bytes:
        """Return the metrics of this moment."""
        states = Counter(record.state for record in self.plans())
        return self.metrics.text(
            plans={state: states[state] for state in STATES},
            queue=self._committer.fill,
            data_bytes=self.store.database.data_bytes,
            clock_is_held=self.clock_is_held,
        )
