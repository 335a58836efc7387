"""A connection to PostgreSQL that understands the store's statements, with a deadline.

Any network error ends the connection, and the next transaction opens a new one. If it breaks during
a commit, the outcome is unknown. That does no harm: the state in memory is discarded, senders
retry, and reports already counted are recognized. A host that vanishes sends no error, so the
thread that waits shuts its socket down at the deadline. Bytes on their way may still arrive; such a
late commit holds its locks until it ends, and the next transaction waits for them.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from time import monotonic
from typing import Any

from shoal.errors import InputError, missing_extra
from shoal.server.storage.database import StorageError, StorageFull, StorageTimeout

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise missing_extra(error, "PostgreSQL") from None

logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # errors are raised

LONGEST_SILENCE = 30
"""Seconds after which the server ends a transaction whose client says nothing, for example because
its host is gone: others wait for its locks."""

COMMAND_TIMEOUT = 60.0
"""Seconds that the server may take for one response, for commands such as a backup."""

_SET = (
    "SELECT set_config(name, wanted, false)"
    " FROM unnest(?::text[], ?::text[]) AS wish (name, wanted) JOIN pg_settings USING (name)"
    " WHERE source <> 'client'"
)
"""The server's own limits; a URL with `options` may choose others."""

_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
"""A commit is on the disk when it returns, and on the standbys that the server was told to wait
for."""

_UNSAFE = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')"


class _TimedConnection(psycopg.Connection[Any]):
    """A connection whose every wait ends after `timeout` seconds, or when `stopping` is set."""

    timeout = COMMAND_TIMEOUT
    stopping = threading.Event()
    is_late = False
    """Whether the server took too long; then the connection is lost."""

    def wait(self, gen: Any, *options: Any, **more: Any) -> Any:
        """Wait for the server; psycopg does all its waiting here."""
        return super().wait(self._until(gen, monotonic() + self.timeout), *options, **more)

    def _until(self, gen: Any, end: float) -> Generator[Any, Any, Any]:
        """Delegate to a generator of psycopg, resumed at least ten times a second."""
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not self.is_late and (monotonic() > end or self.stopping.is_set()):
                    self.is_late = True
                    _shut(self.pgconn.socket)
                wanted = gen.send(ready)
        except StopIteration as ended:
            return ended.value


def _shut(descriptor: int) -> None:
    """Close a connection at once, without sending pending bytes."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        shared.shutdown(socket.SHUT_RDWR)


class PostgresConnection:
    """A connection by its URL, opened when it is needed.

    With several hosts in the URL, the first that responds is used. If the server does not respond
    within `timeout` seconds, the connection is closed.
    """

    def __init__(self, url: str, timeout: float = COMMAND_TIMEOUT) -> None:
        self._url, self._timeout = url, timeout
        self._connection: _TimedConnection | None = None
        self._stopping = threading.Event()
        self._in_transaction = False
        self._warned = False
        self.opened = 0
        """How many connections there were; another one may lead to another server."""
        unsafe = self.execute(f"{_UNSAFE} AND setting = 'off' ORDER BY name").fetchall()
        if unsafe:
            self.close()
            raise InputError(
                f"the PostgreSQL server runs with {unsafe[0][0]} = off, so reports that were"
                " accepted may be lost; turn it on."
            )

    def interrupt(self) -> None:
        """Make the thread that waits for the server fail, and all later work too."""
        self._stopping.set()

    def _connected(self) -> _TimedConnection:
        connection = self._connection
        if connection is None or connection.closed or connection.is_late:
            if self._in_transaction:
                raise StorageError("the connection to PostgreSQL was lost.")
            self.close()
            if self._stopping.is_set():
                raise StorageError("the service is stopping.")
            self._connection = connection = _TimedConnection.connect(
                self._url, autocommit=True, application_name="shoal", **self._network()
            )
            connection.timeout, connection.stopping = self._timeout, self._stopping
            self.opened += 1
            connection.add_notice_handler(self._note)
            try:
                wishes = self._limits()
                connection.execute(
                    _translated(_SET), (list(wishes), [str(value) for value in wishes.values()])
                )
                connection.execute(_DURABLE)
            except BaseException:
                self.close()  # it is not used without them
                raise
        return connection

    def _network(self) -> dict[str, Any]:
        """Return how this side notices that the other is gone; the URL takes precedence."""
        given = conninfo_to_dict(self._url)
        hosts = str(given.get("host") or given.get("hostaddr") or "").count(",") + 1
        wanted = {
            "connect_timeout": max(2, int(self._timeout / (hosts + 1))),  # for each host
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 4,
            "tcp_user_timeout": int(self._timeout * 1000),
        }
        return {name: value for name, value in wanted.items() if name not in given}

    def _limits(self) -> dict[str, int]:
        """Return how the server notices that this side is gone: others wait for our locks."""
        # A working server responds with an error before our own timeout.
        return {
            "lock_timeout": int(self._timeout * 800),
            "statement_timeout": int(self._timeout * 900),
            "idle_in_transaction_session_timeout": LONGEST_SILENCE * 1000,
            "tcp_keepalives_idle": 10,
            "tcp_keepalives_interval": 5,
            "tcp_keepalives_count": 4,
            "tcp_user_timeout": LONGEST_SILENCE * 1000,
        }

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        with self._storage_errors():
            return self._connected().execute(_translated(statement), values or None)

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        with self._storage_errors():
            self._connected().cursor().executemany(_translated(statement), values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a transaction: everything inside happens, durably, or nothing does."""
        # Only what is read is waited for: the rest goes to the server in one stretch, with the
        # commit at its end. What fails there is raised later, at the latest by the commit.
        with self._storage_errors():
            connection = self._connected()
            self._in_transaction, self._warned = True, False
            try:
                with connection.pipeline():
                    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
                    yield
                    commit = connection.execute("COMMIT")
                if commit.statusmessage != "COMMIT":  # the server says ROLLBACK, and no error
                    raise StorageError("PostgreSQL did not commit.")
                if self._warned:  # it was told not to wait for its standbys any longer
                    raise StorageError("PostgreSQL does not know whether standbys have a commit.")
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._in_transaction = False

    def _note(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        self._warned |= diagnostic.severity_nonlocalized == "WARNING"

    def _roll_back(self) -> None:
        """Leave nothing of the transaction; a connection on which that fails is closed."""
        try:
            self._connected().execute("ROLLBACK")
        except (psycopg.Error, StorageError):
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Turn the server's errors into three: no space, no answer, not now; without the URL."""
        try:
            yield
        except psycopg.errors.DiskFull as error:
            raise StorageFull("no space is left for the collector's data.") from error
        except psycopg.ProgrammingError as error:
            if error.sqlstate is None:  # the URL itself, with the password in it
                raise InputError("database is a URL, postgresql://USER@HOST/NAME.") from None
            raise StorageError(f"PostgreSQL refused: {_line(error)}.") from error
        except psycopg.Error as error:
            if self._connection is not None and self._connection.is_late:
                raise StorageTimeout(
                    f"PostgreSQL did not answer within {self._timeout:g} seconds."
                ) from error
            raise StorageError(f"PostgreSQL cannot be used: {_line(error)}.") from error


@cache
def _translated(statement: str) -> Any:
    """Return a statement as the server wants it: "window" is a word of its own there."""
    return re.sub(r"(?<!['\w])window(?!['\w])", '"window"', statement).replace("?", "%s")


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()).removesuffix(".")
