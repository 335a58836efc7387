"""A PostgreSQL server of the tests' own, and stores in it."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from shoal.lab.demo import free_port
from shoal.protocol.plan import Plan
from shoal.server.storage.key_file import Signer
from tests.server.store_help import Clock

_FOLDERS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
LONGEST = 300.0


def _missing() -> str:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    if not (_FOLDERS or shutil.which("initdb")):
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        return "a PostgreSQL server does not run as root, and there is no setpriv"
    return ""


MISSING = _missing()
needs_postgres = pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")


class Server:
    """A PostgreSQL cluster in a folder, as an unprivileged user, reached by a socket in it."""

    def __init__(self, *settings: str, on_disk: bool = False) -> None:
        place = None if on_disk else _quick_place()
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-pg-", dir=place))
        self._bin = str(_FOLDERS[0]) if _FOLDERS else os.path.dirname(shutil.which("initdb") or "")
        self._settings = settings
        self._names = itertools.count(1)
        self.port = free_port()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run(
            "initdb", "-D", str(self.data), "-U", "shoal", "-A", "trust", "--no-sync", "-E", "UTF8"
        )
        self.start()

    @property
    def data(self) -> Path:
        """The cluster's files: tables and write-ahead log."""
        return self.folder / "data"

    def _run(self, name: str, *options: str) -> None:
        done = subprocess.run(
            [*_as_postgres(), f"{self._bin}/{name}", *options],
            capture_output=True, text=True, timeout=LONGEST, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr} {done.stdout}"

    def start(self, *more: str) -> None:
        """Start the server, with more settings, and wait for it."""
        settings = (
            f"-k {self.folder} -c port={self.port} -c listen_addresses=127.0.0.1",
            "-c max_connections=50 -c shared_buffers=16MB -c autovacuum=off",
            *self._settings,
            *more,
        )
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", log, "-o", " ".join(settings), "start"
        )

    def stop(self, how: str = "fast") -> None:
        """Stop the server; "immediate" is as a crash."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def begin_time_line(self) -> None:
        """Start again on a time line of its own, as a standby does that takes over."""
        self.stop()
        (self.data / "recovery.signal").touch()
        self.start("-c restore_command=false")
        wait_for(lambda: self.execute("SELECT pg_is_in_recovery()") == [(False,)])

    def remove(self) -> None:
        """Stop the server and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, port: int | None = None) -> str:
        """Return the URL of a database."""
        return f"postgresql://shoal@127.0.0.1:{port or self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database, and return its URL."""
        name = f"test_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, database: str = "postgres") -> list[Any]:
        """Run a statement as somebody who may do anything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def lose_connections(self, url: str) -> None:
        """Cut all connections to a database, as a network may."""
        name = url.rpartition("/")[2]
        self.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        )

    def content(self) -> bytes:
        """Return all bytes of tables and write-ahead log, as they are on the disk."""
        self.execute("CHECKPOINT")
        parts = []
        for folder in ("base", "pg_wal"):
            for path in sorted((self.data / folder).rglob("*")):
                if path.is_file():
                    parts.append(path.read_bytes())
        return b"".join(parts)


def _quick_place() -> str | None:
    """Return a folder in memory, if there is one: no test here cuts the power."""
    place = Path("/dev/shm")
    if place.is_dir() and os.access(place, os.W_OK) and shutil.disk_usage(place).free > 1 << 30:
        return str(place)
    return None


def _as_postgres() -> list[str]:
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


@cache
def the_server() -> Server:
    """Return the server that the tests of this process share."""
    server = Server()
    atexit.register(server.remove)
    return server


def store_in(url: str, folder: Path, *plans: Plan, **options: Any) -> Any:
    """Open a store of a collector with a folder, in which plans are published."""
    from shoal.server.storage.store import Store

    folder.mkdir(exist_ok=True)
    store = Store(folder, url=url, clock=options.pop("clock", Clock()), **options)
    for plan in plans:
        if store.add_plan(plan):
            assert store.move(plan.id, "published", b"{}")
    return store


def second_folder(first: Path, name: str = "second") -> Path:
    """Make the folder of another collector: with the keys of the first, as an operator does."""
    folder = first.with_name(name)
    folder.mkdir(exist_ok=True)
    Signer(first)  # it is made at the first start
    for secret in ("crowd-key", "signing-key"):
        if (first / secret).exists():
            shutil.copy(first / secret, folder)
    return folder


def wait_for(condition: Any) -> None:
    """Wait until something holds."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
