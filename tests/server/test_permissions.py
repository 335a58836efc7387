"""Whatever the user's umask, nobody else reads what a collector writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.server.serving_help import served, small_plan


@pytest.mark.slow
def test_every_file_is_the_owners_alone(tmp_path: Path):
    before = os.umask(0o000)
    try:
        with served(tmp_path / "data", small_plan()) as running:
            modes = {
                path.name: stat.S_IMODE(path.stat().st_mode) for path in running.folder.iterdir()
            }
            folder = stat.S_IMODE(running.folder.stat().st_mode)
    finally:
        os.umask(before)
    assert folder == 0o700
    assert {"shoal.db", "shoal.db-wal", "shoal.db-shm", "signing-key", "admin-token"} <= set(modes)
    assert set(modes.values()) == {0o600}, modes
