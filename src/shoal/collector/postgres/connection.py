"""A connection to PostgreSQL that understands the statements of the store.

It ends with any error of the network, and the next transaction begins a new one. Whether a commit
happened on which the connection broke is not known. That is no harm: what is in memory is thrown
away, senders are told to try again, and what was counted is recognized.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from shoal.collector.intake.database import PATIENCE, StorageError, StorageFull
from shoal.errors import InputError

try:
    import psycopg
except ModuleNotFoundError as error:
    raise InputError(f"PostgreSQL needs {error.name}: pip install 'shoal[postgres]'.") from None

__all__ = ["PostgresDatabase"]

logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # what goes wrong is raised

LONGEST_SILENCE = 30
"""Seconds after which the server ends a transaction whose client says nothing, for example because
its host is gone: others wait for its locks."""

_SETTINGS = (
    f"SET lock_timeout = '{PATIENCE}s'",
    f"SET idle_in_transaction_session_timeout = '{LONGEST_SILENCE}s'",
    # The locks of a connection whose client's host is gone end soon, too.
    "SET tcp_keepalives_idle = 10",
    "SET tcp_keepalives_interval = 5",
    "SET tcp_keepalives_count = 4",
    f"SET tcp_user_timeout = '{LONGEST_SILENCE}s'",
    # A commit is on the disk when it returns, and on the standbys that the server was told to wait
    # for.
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local')",
)
_UNSAFE = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes')"


class PostgresDatabase:
    """A connection by its URL, opened when it is needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
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

    def _connected(self) -> psycopg.Connection[Any]:
        connection = self._connection
        if connection is None or connection.closed:
            if self._in_transaction:
                raise StorageError("the connection to PostgreSQL was lost.")
            self._connection = connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=PATIENCE, application_name="shoal"
            )
            self.opened += 1
            connection.add_notice_handler(self._note)
            try:
                for statement in _SETTINGS:
                    connection.execute(statement)
            except BaseException:
                self.close()  # it is not used without them
                raise
        return connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """Run a statement."""
        with _storage_errors():
            return self._connected().execute(_translated(statement), values or None)

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of several sequences of values."""
        with _storage_errors():
            self._connected().cursor().executemany(_translated(statement), values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do everything inside, durably, or nothing of it.

        Only what is read is waited for: the rest goes to the server in one stretch, with the commit
        at its end. What fails there is raised later, at the latest by the commit.
        """
        with _storage_errors():
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
        """Leave nothing of the transaction; a connection on which that fails is given up."""
        try:
            self._connected().execute("ROLLBACK")
        except (psycopg.Error, StorageError):
            self.close()

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()


@cache
def _translated(statement: str) -> Any:
    """Return a statement as the server wants it: "window" is a word of its own there."""
    return re.sub(r"(?<!['\w])window(?!['\w])", '"window"', statement).replace("?", "%s")


@contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn the server's errors into two: no space, or not now. None of them shows the URL."""
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise StorageFull("no space is left for the collector's data.") from error
    except psycopg.ProgrammingError as error:
        if error.sqlstate is None:  # the URL itself, with the password in it
            raise InputError("database is a URL, postgresql://USER@HOST/NAME.") from None
        raise StorageError(f"PostgreSQL refused: {_line(error)}.") from error
    except psycopg.Error as error:
        raise StorageError(f"PostgreSQL cannot be used: {_line(error)}.") from error


def _line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()).removesuffix(".")
