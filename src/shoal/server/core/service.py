"""What a collector, a relay and an analyzer share: folder, threads, clock, disk, housekeeping."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar

from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock
from shoal.server.core.notifications import Notifier, make_channels
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.parties import read_agreement
from shoal.server.core.problems import Problem
from shoal.server.core.settings import ServiceSettings
from shoal.server.core.tokens import TOKEN_FILE, Token, Tokens, new_secret
from shoal.server.storage.database import (
    NAME,
    Database,
    StorageError,
    StorageTimeout,
    data_lock,
    transaction,
)
from shoal.server.storage.key_file import KeyFile, Signer, private_file
from shoal.server.storage.records import STATES
from shoal.server.storage.recovery import NOT_STARTED, check_role, check_signer, check_whole
from shoal.server.storage.sqlite import LONGEST_LOG, log_size
from shoal.support.disk import Disk

if TYPE_CHECKING:
    from shoal.protocol.plan import Plan
    from shoal.server.core.ingest import Committer
    from shoal.server.storage.windows import IncompleteCrowd

SWEEP_SECONDS = 20.0

READY_SECONDS = 1.5
"""How long `/readyz` waits for the data."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Party:
    """A collector, a relay or an analyzer: an asynchronous context.

    Its `service` does what all parties need, its `store` has the data. Its apps are attributes.
    """

    store: Any
    crowd_columns: ClassVar[tuple[str, str] | None] = ("number", "opened_day")
    """Columns of the table crowds that notifications name a crowd by; None if none expires here."""
    has_pages: ClassVar[bool] = True
    """Whether its console has pages."""

    def __init__(
        self,
        folder: Path | str,
        settings: ServiceSettings,
        metrics: Metrics,
        clock: Callable[[], float] | None,
        role: str = "collector",
    ) -> None:
        self.service = Service(folder, settings, role=role, metrics=metrics, clock=clock)

    def open_store(self, kind: Callable[..., S], **more: Any) -> S:
        """Open the party's data, and start the service's threads."""
        service, settings = self.service, self.service.settings
        return service.open(
            lambda: kind(
                service.folder,
                url=getattr(settings, "database", ""),
                timeout=settings.store_timeout,
                deadline_days=settings.deadline_days,
                clock=service.clock,
                released=self.released,
                discarded=self.discarded,
                **more,
            )
        )

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *error: object) -> None:
        await self.service.stop()

    def sweep(self) -> None:
        """Bring the data in order, on the store's thread."""
        self.service.timed(self.store.sweep)
        self.service.metrics.turn()

    def last_sweep(self) -> None:
        """Bring the data in order before the end, on the store's thread."""
        self.store.sweep()

    def released(self, plan: Plan, number: int) -> None:
        """Count and log a crowd that was released; called by the store."""
        self.service.metrics.released(plan.reports_needed)
        LOG.info("crowd released", extra={"facts": {"plan": plan.id, "crowd": number}})

    def discarded(self, plan: Plan, ended: IncompleteCrowd) -> None:
        """Count and log a crowd that was discarded; called by the store."""
        self.service.metrics.discarded(plan.reports_needed * ended.progress // 100)
        about = {"plan": plan.id, "crowd": ended.number, "progress": ended.progress}
        LOG.warning("crowd discarded", extra={"facts": about})

    async def obstacle(self) -> Problem | None:
        """Return why the party cannot do its work now, or None."""
        return await self.service.obstacle()

    async def read_metrics(self) -> None:
        """Read metrics from the data, before they are shown."""

    def after_sweep(self) -> None:
        """Wake the party's other tasks, on the event loop."""

    def after_commit(self) -> None:
        """Look at the data after reports were committed, on the store's thread."""


class WorkerThread:
    """A thread for work that would block the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    def submit(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return self._executor.submit(work, *args, **kwargs)

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.wrap_future(self.submit(work, *args, **kwargs))

    async def end(self, timeout: float) -> bool:
        """End the thread after its current work; return whether that ended in time."""
        idle = asyncio.wrap_future(self.submit(lambda: None))
        await asyncio.wait([idle], timeout=timeout)
        self._executor.shutdown(wait=idle.done(), cancel_futures=True)
        return idle.done()


class Service:
    """The part of a running party that does not depend on what it collects.

    One service at a time uses the folder, which is created if needed. `role` says whose data it
    holds.
    """

    tokens: Tokens
    signer: Signer
    store_thread: WorkerThread
    upload_thread: WorkerThread
    notifier: Notifier

    def __init__(
        self,
        folder: Path | str,
        settings: ServiceSettings,
        *,
        role: str,
        metrics: Metrics,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.folder, self.settings, self.metrics = Path(folder), settings, metrics
        self.agreement = read_agreement(self.folder)
        """The two parties, if this is the folder of one."""
        self.clock = GuardedClock() if clock is None else clock
        self.is_shared, self._role = bool(getattr(settings, "database", "")), role
        """Whether the data are in a database that others use too."""
        self._end_by: float | None = None
        self._store_failed, self._last_answer = False, 0.0
        self.was_late = False
        """Whether work may have happened after its request was refused as too late."""
        self.is_stuck = False
        """Whether a thread did not end in time, so that the process must exit without it."""
        self._clock_was_held = False
        self.free_bytes = 0
        self.has_space = True
        """Whether there is enough free space on the disk to accept reports."""
        self._sweep_now = asyncio.Event()
        self._held = ExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[WorkerThread] = []
        self.key_files: list[KeyFile] = []
        """Files with keys that expire."""
        self.has_expired_secret = False
        """Whether the secret of an expired key is still in its file."""
        self.is_housekeeper = True
        """Whether this process does the housekeeping, which includes notifications."""

    # Start and end

    def open(self, make_store: Callable[[], S]) -> S:
        """Take the folder for this process, open the data in it, and start the threads."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(f"cannot make {self.folder}: {error.strerror}.") from error
            held.enter_context(data_lock(self.folder))
            if not self.is_shared:
                check_whole(self.folder)
                held.enter_context(data_lock(self.folder, NAME))
            store: Any = make_store()
            held.callback(store.close)
            database: Database = store.database
            Disk().remove(self.folder / NOT_STARTED)
            with transaction(database.connection):
                check_role(database.connection, self.folder, self._role)
                self.signer = check_signer(database.connection, self.folder, self.clock)
            self.key_files = [self.signer.keys]
            if database.begun_anew is not None:
                LOG.warning(
                    "crowd-key is missing: open crowds are discarded, plans without a window are"
                    " closed",
                    extra={"facts": {"closed": database.begun_anew.closed}},
                )
            self.tokens = Tokens(database.connection, self.clock)
            self._make_admin()
            self.check_space()
            if self.is_housekeeper:
                self._channels = make_channels(self.settings, self.folder)
            self._held = held.pop_all()
        self._store, self._database = store, database
        # One thread for the database, one for long computations, and one for large uploads, since
        # anyone can send those.
        self.store_thread = self.add_thread("store")
        self._compute_thread = self.add_thread("compute")
        self.upload_thread = self.add_thread("upload")
        return store  # type: ignore[no-any-return]

    def add_thread(self, name: str) -> WorkerThread:
        """Start another thread; it ends before those that were started earlier."""
        thread = WorkerThread(name)
        self._threads.insert(0, thread)
        return thread

    def start(
        self, queue: Committer[Any] | None, party: Party, *others: Coroutine[Any, Any, None]
    ) -> None:
        """Run the queue of reports, the housekeeping and other tasks until `stop`."""
        self._queue, self._party = queue, party
        committing = [] if queue is None else [queue.run()]
        if self.is_housekeeper:
            self.notifier = Notifier(party, self._channels)
            others = (*others, self.notifier.run())
        tasks = (*committing, self._sweep(), *others)
        self._tasks = [asyncio.create_task(task) for task in tasks]

    def stop_soon(self) -> None:
        """Start the countdown to the end of the process."""
        if self._end_by is None:
            self._end_by = asyncio.get_running_loop().time() + self.settings.shutdown_timeout

    @property
    def _time_left(self) -> float:
        self.stop_soon()
        assert self._end_by is not None
        return max(self._end_by - asyncio.get_running_loop().time(), 0.0)

    async def stop(self) -> None:
        """End all tasks, sweep once more, and end the threads, in the time that is left."""
        tasks = self._tasks
        if self._queue is not None:
            self._queue.stop()
            await asyncio.wait(tasks[:1], timeout=self._time_left / 2)
        # Before Python 3.12, `wait_for` loses a cancellation that comes together with its result.
        # So each task is cancelled until it has ended.
        while tasks := [task for task in tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.2)
        if not self._store_failed:
            with suppress(StorageError):  # the next start does the rest
                await self._within(self._time_left / 2, self._sweep_at_the_end)
        self._database.connection.interrupt()
        for thread in self._threads:
            self.is_stuck |= not await thread.end(max(self._time_left, 0.1))
        if not self.is_stuck:
            self._held.close()

    def _sweep_at_the_end(self) -> None:
        self._party.last_sweep()
        self.tokens.store_uses()

    # Work on threads

    async def in_store(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work of a request on the store's thread; `StorageTimeout` if it takes too long."""
        # Work that has not begun by then never does; work that has begun continues in the
        # background.
        return await self._within(self.settings.store_timeout, lambda: work(*args, **kwargs))

    async def _within(self, seconds: float, work: Callable[[], R]) -> R:
        running = self._submit(work)
        result = asyncio.wrap_future(running)
        try:
            await asyncio.wait([result], timeout=seconds)
            if result.done():
                return result.result()
            self.was_late = True
            raise StorageTimeout(f"the data did not respond within {seconds:g} seconds.")
        finally:
            # At once: `result` would pass it on only in the loop's next turn, and the work might
            # begin before.
            running.cancel()
            result.cancel()

    async def on_store_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work that may take long on the store's thread; `in_store` is for requests."""
        return await asyncio.wrap_future(self._submit(lambda: work(*args, **kwargs)))

    def _submit(self, work: Callable[[], R]) -> Future[R]:
        return self.store_thread.submit(self._watched, work)

    def _watched(self, work: Callable[[], R]) -> R:
        try:
            result = work()
        except StorageError:
            self._store_failed = True
            raise
        self._store_failed, self._last_answer = False, time.monotonic()
        return result

    def wait_for_store(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work on the store's thread, and wait for it on another thread."""
        return self.store_thread.submit(self._watched, lambda: work(*args, **kwargs)).result()

    async def compute(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a long computation on a thread of its own, so that reports do not wait."""
        return await self._compute_thread.run(work, *args, **kwargs)

    async def accept(self, uploads: Sequence[Any]) -> list[Problem | None]:
        """Commit uploads in one transaction; return the problem of each, or None."""
        try:
            answers, is_behind = await self.on_store_thread(self._accept, uploads)
        except Exception as error:
            LOG.error("reports were not accepted", exc_info=error)
            raise
        if is_behind:
            self.sweep_soon()
        return answers

    def _accept(self, uploads: Sequence[Any]) -> tuple[list[Problem | None], bool]:
        answers: list[Problem | None] = self.timed(lambda: self._store.accept(uploads))
        self._party.after_commit()
        return answers, self._store.is_behind

    def timed(self, work: Callable[[], R]) -> R:
        """Do work on the store's thread whose duration is shown as that of a commit."""
        began = time.monotonic()
        result = work()
        self.metrics.committed(time.monotonic() - began)
        return result

    # Housekeeping

    def sweep_soon(self) -> None:
        self._sweep_now.set()

    async def _sweep(self) -> None:
        while True:
            try:
                self.check_space()
                self._check_clock()
                self._log_failures()
                self._forget_expired_keys()
                await self.on_store_thread(self._party.sweep)
                await self.on_store_thread(self.tokens.store_uses)
                self._party.after_sweep()
            except Exception as error:
                LOG.error("housekeeping failed", exc_info=error)
                await asyncio.sleep(SWEEP_SECONDS)
            self._sweep_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sweep_now.wait(), SWEEP_SECONDS)

    def _forget_expired_keys(self) -> None:
        """Destroy the secrets of expired keys; a failure does not stop the sweep."""
        self.has_expired_secret = False
        for keys in self.key_files:
            try:
                keys.forget_expired()
            except StorageError as error:
                self.has_expired_secret = True
                LOG.error("an expired key is still in its file", exc_info=error)

    def _log_failures(self) -> None:
        """Log the number of failed sign-ins in one line, since anyone can cause many."""
        failures, self.tokens.failures = self.tokens.failures, 0
        if failures:
            LOG.warning("sign-ins failed", extra={"facts": {"times": failures}})

    # The clock

    @property
    def clock_is_held(self) -> bool:
        """Whether the clock jumped and is not trusted."""
        return isinstance(self.clock, GuardedClock) and self.clock.is_held

    def _check_clock(self) -> None:
        is_held = self.clock_is_held
        if is_held and not self._clock_was_held:
            self.metrics.clock_steps.inc()
            LOG.error("the clock jumped and is not trusted", extra={"facts": self.clock_line()})
        elif self._clock_was_held and not is_held:
            LOG.warning("the clock is trusted again", extra={"facts": self.clock_line()})
        self._clock_was_held = is_held

    def clock_line(self) -> dict[str, object]:
        """Return the trusted time and the time that the clock shows, to the minute."""
        shown = self.clock.wall() if isinstance(self.clock, GuardedClock) else self.clock()
        times = {"trusted": self.clock(), "shown": shown}
        lines = {
            name: time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(seconds))
            for name, seconds in times.items()
        }
        return {"held": self.clock_is_held, **lines}

    def accept_clock(self, *, by: str) -> None:
        """Trust the time that the clock shows."""
        if isinstance(self.clock, GuardedClock):
            self.clock.accept()
        LOG.warning("the clock was accepted", extra={"facts": self.clock_line() | {"by": by}})
        self._check_clock()
        self.sweep_soon()

    # Health

    def refused(self, problem: Problem) -> None:
        self.metrics.refusals.labels(problem.name).inc()

    def check_space(self) -> None:
        """Look how much space is left on the disk."""
        self.free_bytes = shutil.disk_usage(self.folder).free
        log = log_size(self.folder)
        if log > LONGEST_LOG:
            LOG.error("the write-ahead log cannot be emptied: another process is reading the data")
        spare = self.settings.min_free_megabytes << 20
        self.has_space = self.free_bytes >= spare and log <= LONGEST_LOG

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now; it writes to the disk to find out."""
        # If much other work waits too, it is enough that the data respond to that.
        began = time.monotonic()
        try:
            await self._within(READY_SECONDS, self._database.check)
        except StorageTimeout:
            if self._store_failed or self._last_answer < began:
                return problems.UNAVAILABLE
        except StorageError:
            return problems.UNAVAILABLE
        if any(task.done() for task in self._tasks):
            return problems.UNAVAILABLE
        if not self.has_space:
            return problems.STORAGE_FULL
        return problems.CLOCK_HELD if self.clock_is_held else None

    def metrics_text(self, states: Iterable[str], more_bytes: int = 0) -> bytes:
        """Return the metrics; `states` of all plans, `more_bytes` of data in other files."""
        counted = list(states)
        return self.metrics.text(
            plans={state: counted.count(state) for state in STATES},
            queue=0.0 if self._queue is None else self._queue.fill,
            data_bytes=self._database.data_bytes + more_bytes,
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
