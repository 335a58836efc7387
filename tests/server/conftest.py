"""Commits of services in this process do not wait for the disk: no test here cuts the power."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.server.console import token_admin
from shoal.server.core import backup
from shoal.server.core.observability import LOG
from shoal.server.storage import sqlite

from .privacy_help import in_world
from .serving_help import Served, served, small_plan


@pytest.fixture
def service_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What services log, each line once, though a server in this process may have changed that.

    Before the test itself begins: then pytest would listen to the logger of a server, too.
    """
    monkeypatch.setattr(LOG, "propagate", True)
    caplog.set_level(logging.INFO, LOG.name)
    return caplog


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A collector in a process of its own; pages of two origins may use its plan."""
    origins = ("--origins", "https://other.example, https://page.example")
    with served(tmp_path_factory.mktemp("running") / "data", small_plan(), *origins) as one:
        yield one


@pytest.fixture(scope="session")
def once_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of a collector that has run and stopped."""
    folder = tmp_path_factory.mktemp("once") / "data"
    in_world(lambda world: world.publish(small_plan()), folder, time.time)
    return folder


@pytest.fixture
def stopped(once_run: Path, tmp_path: Path) -> Path:
    """A copy of them that a test may spoil."""
    return Path(shutil.copytree(once_run, tmp_path / "data"))


@pytest.fixture(autouse=True, scope="session")
def commits_do_not_wait() -> Iterator[None]:
    opened = sqlite.open_database

    def opening(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = opened(*args, **options)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite, backup, token_admin):
            patch.setattr(module, "open_database", opening)
        yield
