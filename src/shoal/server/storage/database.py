"""A service's data: connections, transactions, plans in memory, errors.

`sqlite` and `postgres` implement `Database`. A store runs each of its transactions as one call,
``database.run("accept reports", work)``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from shoal.errors import InputError, ShoalError

if TYPE_CHECKING:
    from shoal.server.core.clock import GuardedClock
    from shoal.server.storage.encryption import Keyring
    from shoal.server.storage.postgres_connection import PostgresConnection
    from shoal.server.storage.recovery import Restoration

NAME = "shoal.db"
SqlConnection: TypeAlias = "sqlite3.Connection | PostgresConnection"
"""Statements are written so that both understand them; ``?`` stands for a value."""

R = TypeVar("R")
P = TypeVar("P")


class StorageError(ShoalError):
    """The data could not be read or written now; nothing has changed."""


class StorageFull(StorageError):  # noqa: N818  an error of storage, as the name of its base says
    """There is no space left for the request; nothing has changed."""


class StorageTimeout(StorageError):  # noqa: N818  as above
    """The data did not respond in time; it is unknown whether the work was done."""


class DataInUse(InputError):  # noqa: N818  it names the state
    """Another process holds the data."""


class OpenPlans(Generic[P]):
    """Plans in memory, as the database has them.

    A transaction that fails drops the plans it touched: they may be ahead of the database. In a
    shared database, a plan's version tells whether another process has written since.
    """

    def __init__(self, database: Database, read: Callable[[str], P | None]) -> None:
        self.database, self._read = database, read
        self._plans: dict[str, P] = {}
        self._versions: dict[str, int] = {}
        self.touched: set[str] = set()
        database.plans = self

    def get(self, plan_id: str) -> P | None:
        """Return a plan inside `run` or `read`; in a shared database others wait for it."""
        row = self.database.lock_plan(plan_id)
        self.touched.add(plan_id)
        known: Any = self._plans.get(plan_id)
        if row is not None:
            version, state, oldest_window = row
            if known is not None and self._versions.get(plan_id) != version:
                known.catch_up(state, oldest_window)
            self._versions[plan_id] = version
        if known is None:
            known = self._read(plan_id)
            if known is not None:
                self._plans[plan_id] = known
        return known  # type: ignore[no-any-return]

    def known(self) -> dict[str, P]:
        return self._plans

    def forget(self, *plan_ids: str) -> None:
        for plan_id in plan_ids:
            self._plans.pop(plan_id, None)

    def forget_all(self) -> None:
        self._plans.clear()

    def new_versions(self, draw: Callable[[], int]) -> dict[str, int]:
        """Draw a new version for each plan that the transaction may have changed."""
        drawn = {one: draw() for one in sorted(self.touched) if one in self._versions}
        self._versions.update(drawn)
        return drawn


class Database(ABC):
    """The data of one service, used by one thread: a connection, its keys, its plans in memory."""

    is_shared: ClassVar[bool] = False
    """Whether other processes use the data at the same time."""

    folder: Path
    connection: SqlConnection
    keys: Keyring
    plans: OpenPlans[Any]
    begun_anew: Restoration | None = None
    """What a start without the key of open crowds ended."""
    _running = ""
    """The transaction under way: there is one at a time, and none inside of another."""

    def run(
        self,
        name: str,
        work: Callable[[], R],
        *,
        exclusive: bool = True,
        new_key: bool = False,
        scrub: bool = False,
    ) -> R:
        """Run work in one transaction; its effects are durable when this returns.

        If `work` raises, nothing has changed. `name` is for error messages. Other processes
        wait if the transaction is `exclusive`, otherwise only for the plans that it uses. With
        `new_key` an older copy of the data cannot be read any more. With `scrub` deleted data are
        removed from the write-ahead log too, as soon as it has no readers.
        """
        with self._attempt(name), transaction(self.connection):
            self._begin(exclusive)
            result = work()
            if new_key:
                self.keys.rotate()
            self._write_versions()
        if new_key or self.is_shared:
            self._settle(scrub=scrub)
        return result

    def read(self, name: str, work: Callable[[], R]) -> R:
        """Run work that reads one state of the data."""
        with self._attempt(name), storage_errors():  # a folder has no other writer
            return work()

    @abstractmethod
    def _settle(self, *, scrub: bool) -> None:
        """Destroy older root keys after a commit, and deleted data in the log with `scrub`."""

    @property
    @abstractmethod
    def data_bytes(self) -> int: ...

    # The rest is for data that several processes share; a folder has one.

    def _begin(self, exclusive: bool) -> None:
        return

    def _write_versions(self) -> None:
        return

    def lock_plan(self, plan_id: str) -> tuple[int, Any, int] | None:
        """Make other processes wait for a plan; return its version, state and oldest window."""
        return None

    def claim(self, name: str, *, in_transaction: bool = False) -> bool:
        """Claim work for this process, until `unclaim`, a commit, or the end of the connection."""
        return True

    def unclaim(self, name: str) -> None:
        return

    def keep_up(self) -> None:
        """Adopt the key that another process drew, and destroy the older one."""
        return

    def confirms(self, clock: GuardedClock) -> bool:
        """Whether the database's machine shows about the same time."""
        return True

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self.connection.execute(statement, values)

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written now."""
        with transaction(self.connection):
            self.connection.execute("UPDATE facts SET value = random() WHERE name = 'probe'")

    def settle(self) -> None:
        """Destroy root keys that the data do not need any more."""
        with storage_errors():
            self.keys.settle()

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Drop the plans that a failed transaction touched, and say which transaction it was."""
        if self._running:
            raise RuntimeError(f"{name!r} begins inside of {self._running!r}.")
        self._running = name
        self.plans.touched.clear()
        try:
            yield
        except BaseException as error:
            self.plans.forget(*self.plans.touched)
            error.add_note(f"The transaction was: {name}.")
            raise
        finally:
            self._running = ""


def own_files(
    folder: Path, name: re.Pattern[str], foreign: set[str]
) -> Iterator[tuple[Path, re.Match[str]]]:
    """Yield the files of a folder that have such a name; others are left alone, and logged once."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if (matched := name.fullmatch(path.name)) is not None:
            yield path, matched
        elif path.name not in foreign:
            foreign.add(path.name)
            log = logging.getLogger("shoal.server")
            log.warning("a foreign file is left alone", extra={"facts": {"path": str(path)}})


def read_fact(connection: SqlConnection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_fact(connection: SqlConnection, name: str, value: float | str) -> None:
    connection.execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, str(value)),
    )


@contextmanager
def transaction(connection: SqlConnection) -> Iterator[None]:
    """Run a transaction: everything inside happens, durably, or nothing does."""
    if not isinstance(connection, sqlite3.Connection):
        with connection.transaction():
            yield
        return
    with storage_errors():
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite rolls back by itself when the disk is full
                connection.execute("ROLLBACK")
            raise


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn SQLite's errors into `StorageFull` or `StorageError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StorageFull("no space is left for the collector's data.") from error
        raise StorageError(f"the collector's data cannot be used: {error}.") from error


@contextmanager
def data_lock(folder: Path, name: str = "lock") -> Iterator[None]:
    """Hold the data for one process; the lock goes with the process, however it ends."""
    # The lock file can be deleted by mistake, the database cannot. So a collector holds both;
    # SQLite locks ranges of its file, which is another kind of lock and does not get in the way.
    try:
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot write in {folder}: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise DataInUse(f"another collector is using {folder}.") from None
    try:
        yield
    finally:
        os.close(handle)
