"""Crowds are decrypted in this process, unless a test asks for processes: each takes a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.server.analyzer import decryption
from shoal.server.analyzer.worker import Keys, decrypt_chunk


@pytest.fixture(autouse=True)
def decrypted_in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "own_processes" in request.fixturenames or request.node.get_closest_marker("slow"):
        return

    @contextmanager
    def worker(keys: Keys, stop: object) -> Iterator[Callable[[Any], dict[str, Any]]]:
        yield lambda job: decrypt_chunk(keys, job[0], Path(job[1]), job[2], Path(job[3]))

    monkeypatch.setattr(decryption, "_worker", worker)


@pytest.fixture
def own_processes() -> None:
    """Let processes decrypt crowds, as in a service."""
