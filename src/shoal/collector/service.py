"""The collector as one object that tests can call in process, without a socket."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from shoal.agreement.plan import Plan
from shoal.analysis.report_rows import Batch
from shoal.collector import problems, publication
from shoal.collector.backup import back_up
from shoal.collector.clock import GuardedClock
from shoal.collector.consistency import check_signer, check_whole
from shoal.collector.console.actions import Actions
from shoal.collector.console.app import make_console
from shoal.collector.console.metrics import Metrics
from shoal.collector.console.tokens import TOKEN_FILE, Token, Tokens, new_secret
from shoal.collector.http import Receive, Scope
from shoal.collector.intake.database import (
    LONGEST_LOG,
    NAME,
    StorageError,
    data_lock,
    log_size,
    storage_errors,
    transaction,
)
from shoal.collector.intake.group_commit import Committer
from shoal.collector.intake.ingest import Ingest
from shoal.collector.intake.open_plan import IncompleteCrowd
from shoal.collector.intake.records import PlanRecord
from shoal.collector.intake.store import Store
from shoal.collector.logs import LOG
from shoal.collector.plan_states import STATES, Declaration, State
from shoal.collector.problems import Problem, Send
from shoal.collector.public import make_public
from shoal.collector.settings import Settings
from shoal.collector.signing import private_file
from shoal.errors import InputError, PrivacyRefusal

__all__ = ["Collector"]

_SWEEP_SECONDS = 20.0
BACKUPS = "backups"
"""The folder of backups that were made from the console."""

P = ParamSpec("P")
R = TypeVar("R")
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Collector:
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
        self.folder, self.settings = Path(folder), settings or Settings()
        self._clock = GuardedClock() if clock is None else clock
        self._clock_was_held = False
        self.metrics = Metrics()
        self._plans: dict[str, PlanRecord] = {}
        self._spare = True
        self._moving = asyncio.Lock()
        self._sweep_now = asyncio.Event()
        self.public: App
        self.console: App

    async def __aenter__(self) -> Collector:
        self._held = ExitStack()
        try:
            self._start()
        except BaseException:
            self._held.close()
            raise
        self._committer = Committer(self._accept, self.settings.most_waiting)
        ingest = Ingest(
            self.settings,
            self._plan_for_reports,
            self._committer,
            self.tokens.find,
            self.refused,
            self._door_thread,
        )
        self.public = make_public(self._published, ingest, self.signer, self.refused)
        self.console = make_console(self)
        self._tasks = [
            asyncio.create_task(self._committer.run()),
            asyncio.create_task(self._sweep()),
        ]
        return self

    def _start(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {self.folder}: {error.strerror}.") from error
        self._held.enter_context(data_lock(self.folder))
        check_whole(self.folder)
        self._held.enter_context(data_lock(self.folder, NAME))
        self.store = Store(
            self.folder,
            deadline_days=self.settings.deadline_days,
            clock=self._clock,
            sealed=self._sealed,
            given_up=self._given_up,
        )
        self._held.callback(self.store.close)
        with transaction(self.store.database):
            self.signer = check_signer(self.store.database, self.folder)
        if self.store.begun_anew is not None:
            LOG.warning(
                "crowd-key is missing: open crowds are given up, plans without a window are closed",
                extra={"facts": {"closed": self.store.begun_anew.closed}},
            )
        self.tokens = Tokens(self.store.database, self._clock)
        self.actions = Actions(self.store.database, self._clock)
        self._make_admin()
        self._plans = {record.plan.id: record for record in self.store.plans()}
        self._check_space()
        # One thread for SQLite, one for long computations, and one for large uploads, since anybody
        # can send those.
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._other_thread = ThreadPoolExecutor(1, "compute")
        self._door_thread = ThreadPoolExecutor(1, "door")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        committing, sweeping = self._tasks
        self._committer.stop()
        await committing
        sweeping.cancel()
        with suppress(asyncio.CancelledError):
            await sweeping
        with suppress(StorageError):  # the next start seals what is whole
            await self.in_store(self.store.sweep)
        for thread in (self._store_thread, self._other_thread, self._door_thread):
            await asyncio.to_thread(thread.shutdown)
        self._held.close()

    async def in_store(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work on the store's thread, after what is running there now."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._store_thread, lambda: work(*args, **kwargs))

    async def compute(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a long computation on a thread of its own, so that reports do not wait."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._other_thread, lambda: work(*args, **kwargs))

    # Plans

    async def add_plan(self, plan: Plan) -> Problem | None:
        """Add a plan as a draft, or return why not; a known plan stays as it is."""
        if plan.id in self._plans:
            return None
        problem = await self._objection(plan)
        if problem is None:
            await self.in_store(self.store.add_plan, plan)
            await self._reload(plan.id)
        return problem

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
        assert record is not None
        self._plans[plan_id] = record

    def plan(self, plan_id: str) -> PlanRecord | None:
        """Return a plan by its id."""
        return self._plans.get(plan_id)

    def plans(self) -> list[PlanRecord]:
        """Return all plans, in the order of their ids."""
        return [self._plans[plan_id] for plan_id in sorted(self._plans)]

    def _published(self, plan_id: str) -> PlanRecord | None:
        record = self._plans.get(plan_id)
        return None if record is None or record.certificate is None else record

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
            answers, is_behind = await self.in_store(self._accept_in_store, uploads)
        except Exception as error:
            LOG.error("reports were not accepted", exc_info=error)
            raise
        if is_behind:
            self._sweep_now.set()
        return answers

    def _accept_in_store(self, uploads: Sequence[Batch]) -> tuple[list[Problem | None], bool]:
        began = time.monotonic()
        answers = self.store.accept(uploads)
        self.metrics.committed(time.monotonic() - began)
        return answers, self.store.is_behind

    def refused(self, problem: Problem) -> None:
        """Count a problem that was answered."""
        self.metrics.refused(problem)

    def _sealed(self, plan_id: str, number: int) -> None:
        self.metrics.sealed(self._plans[plan_id].plan.reports_needed)
        LOG.info("crowd sealed", extra={"facts": {"plan": plan_id, "crowd": number}})

    def _given_up(self, plan_id: str, ended: IncompleteCrowd) -> None:
        needed = self._plans[plan_id].plan.reports_needed
        self.metrics.given_up(needed * ended.tenths // 10)
        about = {"plan": plan_id, "crowd": ended.number, "tenths": ended.tenths}
        LOG.warning("crowd given up", extra={"facts": about})

    # Housekeeping

    async def _sweep(self) -> None:
        while True:
            try:
                self._check_space()
                self._check_clock()
                self._log_failures()
                await self.in_store(self._sweep_store)
            except Exception as error:
                LOG.error("housekeeping failed", exc_info=error)
                await asyncio.sleep(_SWEEP_SECONDS)
            self._sweep_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sweep_now.wait(), _SWEEP_SECONDS)

    def _sweep_store(self) -> None:
        began = time.monotonic()
        self.store.sweep()
        self.metrics.committed(time.monotonic() - began)
        self.metrics.turn()

    def _log_failures(self) -> None:
        """Log how often a sign-in failed, in one line: anybody can cause many."""
        failures, self.tokens.failures = self.tokens.failures, 0
        if failures:
            LOG.warning("sign-ins failed", extra={"facts": {"times": failures}})

    # The clock

    @property
    def clock_is_held(self) -> bool:
        """Whether the clock jumped and is not trusted."""
        return isinstance(self._clock, GuardedClock) and self._clock.is_held

    def _check_clock(self) -> None:
        is_held = self.clock_is_held
        if is_held and not self._clock_was_held:
            self.metrics.clock_stepped()
            LOG.error("the clock jumped and is not trusted", extra={"facts": self.clock_line()})
        elif self._clock_was_held and not is_held:
            LOG.warning("the clock is trusted again", extra={"facts": self.clock_line()})
        self._clock_was_held = is_held

    def clock_line(self) -> dict[str, object]:
        """Return the trusted time and the time that the clock shows, to the minute."""
        shown = self._clock.wall() if isinstance(self._clock, GuardedClock) else self._clock()
        times = {"believed": self._clock(), "shown": shown}
        lines = {
            name: time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(seconds))
            for name, seconds in times.items()
        }
        return {"held": self.clock_is_held, **lines}

    def accept_clock(self, *, by: str) -> None:
        """Trust the clock as it is."""
        if isinstance(self._clock, GuardedClock):
            self._clock.accept()
        LOG.warning("the clock was accepted", extra={"facts": self.clock_line() | {"by": by}})
        self._check_clock()
        self._sweep_now.set()

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
            made = await self.compute(back_up, self.folder, target, clock=self._clock)
        except InputError:  # its name is the second in which it was made
            return problems.BACKUP_EXISTS
        LOG.info("backup made", extra={"facts": {"by": by}})
        await self.in_store(self.actions.add, by, "backup made", made.name)
        return made.name

    # Whether it works

    def _check_space(self) -> None:
        free = shutil.disk_usage(self.folder).free
        log = log_size(self.folder)
        if log > LONGEST_LOG:
            LOG.error("the write-ahead log cannot be emptied: another process is reading the data")
        self._spare = free >= self.settings.spare_megabytes << 20 and log <= LONGEST_LOG

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now; it writes to the disk to find out."""
        try:
            await self.in_store(self.store.check)
        except StorageError:
            return problems.UNAVAILABLE
        if self._tasks[0].done():
            return problems.UNAVAILABLE
        if not self._spare:
            return problems.STORAGE_FULL
        return problems.CLOCK_HELD if self.clock_is_held else None

    async def ready(self) -> bool:
        """Whether reports can be accepted now."""
        return await self.obstacle() is None

    def metrics_text(self) -> bytes:
        """Return the metrics of this moment."""
        states = Counter(record.state for record in self.plans())
        database = self.folder / NAME
        return self.metrics.text(
            plans={state: states[state] for state in STATES},
            queue=self._committer.fill,
            data_bytes=database.stat().st_size + log_size(self.folder),
            clock_is_held=self.clock_is_held,
        )

    def _make_admin(self) -> None:
        """Make the first admin token, in a file that only the owner can read."""
        if any(token.can_always_administer for token in self.tokens):
            return
        path = self.folder / TOKEN_FILE
        if not path.exists():  # else the process died between the file and the database
            private_file(path, new_secret("admin") + "\n")
        self.tokens.add(Token.new("admin", "first"), path.read_text().strip())
