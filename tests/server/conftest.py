"""Commits of services in this process do not wait for the disk: no test here cuts the power."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from shoal.server.console import token_admin
from shoal.server.core import backup
from shoal.server.core.observability import LOG
from shoal.server.storage import sqlite


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
