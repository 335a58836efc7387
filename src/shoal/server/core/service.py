"""What a collector and a relay do while they run: threads, the clock, the disk, housekeeping."""

from __future__ import annotations

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, ParamSpec, Protocol, Self, TypeVar

from shoal.server.core import problems
from shoal.server.core.clock import GuardedClock
from shoal.server.core.http import Receive, Scope
from shoal.server.core.observability import LOG, Metrics
from shoal.server.core.problems import Problem, Send
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
from shoal.server.storage.recovery import check_role, check_signer, check_whole
from shoal.server.storage.sqlite import LONGEST_LOG, log_size

__all__ = ["App", "Running"]

SWEEP_SECONDS = 20.0

READY_SECONDS = 1.5
"""How long `/readyz` waits for the data."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="AnyStore")
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AnyStore(Protocol):
    """The store of a service."""

    database: Database

    def close(self) -> None:
        """Close the data."""


class RunningSettings(Protocol):
    """The settings of every service with a store."""

    @property
    def spare_megabytes(self) -> int:
        """Disk space below which no reports are accepted."""
        ...

    @property
    def store_timeout(self) -> int:
        """Seconds that a request waits for the data."""
        ...

    @property
    def shutdown_timeout(self) -> int:
        """Seconds until a service that is told to stop has ended."""
        ...


class Running(ABC):
    """A service with a store, two listeners' apps, a clock and housekeeping.

    Parameters
    ----------
    folder
        The data folder, made if need be; one service at a time uses it.
    settings
        How it runs.
    clock
        Seconds since 1970; by default one that does not jump.
    """

    role: ClassVar[str] = "collector"
    """Whose data the folder holds."""

    tokens: Tokens
    signer: Signer

    def __init__(
        self, folder: Path | str, settings: RunningSettings, clock: Callable[[], float] | None
    ) -> None:
        self.folder = Path(folder)
        self._spare_bytes = settings.spare_megabytes << 20
        self._store_timeout = settings.store_timeout
        self._shutdown_timeout = settings.shutdown_timeout
        self._end_by: float | None = None
        self._store_failed, self._last_answer = False, 0.0
        self._was_late = False
        """Whether work may have happened after its request was refused as too late."""
        self.is_stuck = False
        """Whether a thread did not end in time, so that the process must exit without it."""
        self._clock = GuardedClock() if clock is None else clock
        self._clock_was_held = False
        self.metrics = Metrics()
        self._free = 0
        self._spare = True
        self._sweep_now = asyncio.Event()
        self._held = ExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[ThreadPoolExecutor] = []
        self._key_files: list[KeyFile] = []

    @property
    def _is_shared(self) -> bool:
        """Whether the data are in a database that others use too, and not in the folder."""
        return False

    @property
    @abstractmethod
    def _any_store(self) -> AnyStore:
        """The store."""

    def _hold(self, held: ExitStack, make_store: Callable[[], S]) -> S:
        """Take the folder for this process, and open what is in it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make {self.folder}: {error.strerror}.") from error
        held.enter_context(data_lock(self.folder))
        if not self._is_shared:
            check_whole(self.folder)
            held.enter_context(data_lock(self.folder, NAME))
        store = make_store()
        held.callback(store.close)
        database = store.database
        with transaction(database.connection):
            check_role(database.connection, self.folder, self.role)
            self.signer = check_signer(database.connection, self.folder, self._clock)
        self._key_files = [self.signer.keys]
        if database.begun_anew is not None:
            LOG.warning(
                "crowd-key is missing: open crowds are given up, plans without a window are closed",
                extra={"facts": {"closed": database.begun_anew.closed}},
            )
        self.tokens = Tokens(database.connection, self._clock)
        self._make_admin()
        self._check_space()
        return store

    def _start_threads(self) -> None:
        # One thread for SQLite, one for long computations, and one for large uploads, since anybody
        # can send those.
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._other_thread = ThreadPoolExecutor(1, "compute")
        self._door_thread = ThreadPoolExecutor(1, "door")
        self._threads = [self._store_thread, self._other_thread, self._door_thread]

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def stop_soon(self) -> None:
        """Start the countdown to the end of the process."""
        if self._end_by is None:
            self._end_by = asyncio.get_running_loop().time() + self._shutdown_timeout

    @property
    def _time_left(self) -> float:
        """Seconds that are left to stop."""
        self.stop_soon()
        assert self._end_by is not None
        return max(self._end_by - asyncio.get_running_loop().time(), 0.0)

    async def _stop(
        self, committing: asyncio.Task[None], others: Sequence[asyncio.Task[None]]
    ) -> None:
        """End all tasks, sweep once more, and end the threads, in the time that is left.

        Work on data that do not respond is interrupted first, and the next start does the rest.
        """
        await asyncio.wait([committing], timeout=self._time_left / 2)
        # Before Python 3.12, `wait_for` loses a cancellation that comes together with what it waits
        # for; so a task is cancelled until it has ended.
        tasks = [committing, *others]
        while tasks := [task for task in tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0.2)
        if not self._store_failed:
            with suppress(StorageError):  # the next start does the rest
                await self._within(self._time_left / 2, self._last_sweep)
        self._any_store.database.connection.interrupt()
        for thread in self._threads:
            await self._end_thread(thread)
        if not self.is_stuck:
            self._held.close()

    async def _end_thread(self, thread: ThreadPoolExecutor) -> None:
        """End a thread after its current work, if that ends in time."""
        idle = asyncio.get_running_loop().run_in_executor(thread, lambda: None)
        await asyncio.wait([idle], timeout=max(self._time_left, 0.1))
        thread.shutdown(wait=idle.done(), cancel_futures=True)
        self.is_stuck |= not idle.done()

    @abstractmethod
    def _last_sweep(self) -> None:
        """Sweep before the end."""

    async def in_store(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work of a request on the store's thread, after what is running there now.

        If it does not end within `store_timeout` seconds, `StorageTimeout` is raised. Work that has
        not begun by then never does; work that has begun goes on, and nobody waits for it.
        """
        return await self._within(self._store_timeout, lambda: work(*args, **kwargs))

    async def _within(self, seconds: float, work: Callable[[], R]) -> R:
        running = self._submit(work)
        try:
            await asyncio.wait([running], timeout=seconds)
            if running.done():
                return running.result()
            self._was_late = True
            raise StorageTimeout(f"the data did not answer within {seconds:g} seconds.")
        finally:
            running.cancel()

    async def on_store_thread(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run work that may take long on the store's thread; `in_store` is for requests."""
        return await self._submit(lambda: work(*args, **kwargs))

    def _submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Put work at the end of what waits for the store's thread."""

        def watched() -> R:
            try:
                result = work()
            except StorageError:
                self._store_failed = True
                raise
            self._store_failed, self._last_answer = False, time.monotonic()
            return result

        return asyncio.get_running_loop().run_in_executor(self._store_thread, watched)

    async def compute(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a long computation on a thread of its own, so that reports do not wait."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._other_thread, lambda: work(*args, **kwargs))

    # Housekeeping

    async def _sweep(self) -> None:
        while True:
            try:
                self._check_space()
                self._check_clock()
                self._log_failures()
                self._forget_expired_keys()
                await self._sweep_once()
            except Exception as error:
                LOG.error("housekeeping failed", exc_info=error)
                await asyncio.sleep(SWEEP_SECONDS)
            self._sweep_now.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sweep_now.wait(), SWEEP_SECONDS)

    @abstractmethod
    async def _sweep_once(self) -> None:
        """Bring the store in order."""

    def _forget_expired_keys(self) -> None:
        """Destroy the secrets of expired keys; a failure does not stop the sweep."""
        for keys in self._key_files:
            try:
                keys.forget_expired()
            except StorageError as error:
                LOG.error("an expired key is still in its file", exc_info=error)

    def _timed(self, work: Callable[[], R]) -> R:
        """Do something on the store's thread whose time is shown as that of a commit."""
        began = time.monotonic()
        result = work()
        self.metrics.committed(time.monotonic() - began)
        return result

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

    # Whether it works

    def refused(self, problem: Problem) -> None:
        """Count a problem that was answered."""
        self.metrics.refused(problem)

    def _check_space(self) -> None:
        self._free = shutil.disk_usage(self.folder).free
        log = log_size(self.folder)
        if log > LONGEST_LOG:
            LOG.error("the write-ahead log cannot be emptied: another process is reading the data")
        self._spare = self._free >= self._spare_bytes and log <= LONGEST_LOG

    async def obstacle(self) -> Problem | None:
        """Return why reports cannot be accepted now; it writes to the disk to find out.

        It waits for `READY_SECONDS`. If much other work waits too, it is enough that the data
        answer that.
        """
        began = time.monotonic()
        try:
            await self._within(READY_SECONDS, self._any_store.database.check)
        except StorageTimeout:
            if self._store_failed or self._last_answer < began:
                return problems.UNAVAILABLE
        except StorageError:
            return problems.UNAVAILABLE
        if self._tasks[0].done():
            return problems.UNAVAILABLE
        if not self._spare:
            return problems.STORAGE_FULL
        return problems.CLOCK_HELD if self.clock_is_held else None

    @abstractmethod
    def metrics_text(self) -> bytes:
        """Return the metrics of this moment."""

    async def ready(self) -> bool:
        """Whether reports can be accepted now."""
        return await self.obstacle() is None

    def _make_admin(self) -> None:
        """Make the first admin token, in a file that only the owner can read."""
        if any(token.can_always_administer for token in self.tokens):
            return
        path = self.folder / TOKEN_FILE
        if not path.exists():  # else the process died between the file and the database
            private_file(path, new_secret("admin") + "\n")
        self.tokens.add(Token.new("admin", "first"), path.read_text().strip())
