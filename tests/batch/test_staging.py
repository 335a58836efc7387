"""A folder of reports appears whole, once, or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.batch.spark import Staging, attempt_path
from shoal.errors import InputError


def written(staging: Staging, part: int, content: str) -> str:
    path = attempt_path(staging.attempts, part)
    path.write_text(content)
    return path.name


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_one_attempt_of_each_part_appears(tmp_path: Path):
    with Staging(tmp_path / "deep" / "reports") as staging:
        written(staging, 0, "lost")
        chosen = {0: written(staging, 0, "zero"), 1: written(staging, 1, "one")}
        assert not (tmp_path / "deep" / "reports").exists()
        staging.publish(chosen)
    assert contents(tmp_path / "deep" / "reports") == {
        "part-00000.parquet": "zero",
        "part-00001.parquet": "one",
    }
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["reports"]


def test_an_attempt_that_still_writes_is_not_seen(tmp_path: Path):
    with Staging(tmp_path / "reports") as staging:
        late = attempt_path(staging.attempts, 0)
        with late.open("w") as open_file:
            staging.publish({0: written(staging, 0, "zero")})
            open_file.write("a second version")
        with late.with_suffix(".other").open("w") as open_file:
            open_file.write("a third version")
    assert contents(tmp_path / "reports") == {"part-00000.parquet": "zero"}
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]
    with pytest.raises(FileNotFoundError):
        late.open("w")


def test_only_the_owner_sees_what_is_not_published(tmp_path: Path):
    with Staging(tmp_path / "reports") as staging:
        assert staging.attempts.parent.stat().st_mode & 0o777 == 0o700


def test_what_is_there_is_not_replaced(tmp_path: Path):
    for name in ("full", "file"):
        path = tmp_path / name
        (path / "x").mkdir(parents=True) if name == "full" else path.touch()
        with pytest.raises(InputError, match="no answer may be reported in two versions"):
            Staging(path).__enter__()
    (tmp_path / "empty").mkdir()
    with Staging(tmp_path / "empty") as staging:
        staging.publish({0: written(staging, 0, "zero")})
    assert contents(tmp_path / "empty") == {"part-00000.parquet": "zero"}


def test_if_somebody_else_was_faster_nothing_is_published(tmp_path: Path):
    with Staging(tmp_path / "reports") as slow:
        chosen = {0: written(slow, 0, "slow")}
        (tmp_path / "reports").mkdir()
        (tmp_path / "reports" / "part-00000.parquet").write_text("fast")
        with pytest.raises(InputError, match="no answer may be reported in two versions"):
            slow.publish(chosen)
    assert contents(tmp_path / "reports") == {"part-00000.parquet": "fast"}
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]


def test_whoever_begins_later_takes_over(tmp_path: Path):
    with Staging(tmp_path / "reports") as first:
        chosen = {0: written(first, 0, "first")}
        with Staging(tmp_path / "reports") as second:
            with pytest.raises(InputError, match="another process has begun"):
                first.publish(chosen)
            second.publish({0: written(second, 0, "second")})
    assert contents(tmp_path / "reports") == {"part-00000.parquet": "second"}


RUN = """
import os, signal, sys
from pathlib import Path
from shoal.batch.spark import Staging, attempt_path

left, real = int(sys.argv[2]), os.rename

def dying(*names):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*names)

with Staging(Path(sys.argv[1])) as staging:
    os.rename, names = dying, {}
    for part in range(2):
        path = attempt_path(staging.attempts, part)
        path.write_text(sys.argv[2])
        names[part] = path.name
    staging.publish(names)
"""


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path):
    """Two moves, the step that publishes, and the first of the cleaning: all or nothing."""
    folder, whole = tmp_path / "reports [1]", {"part-00000.parquet": "4", "part-00001.parquet": "4"}
    for step in (1, 2, 3, 4):
        done = subprocess.run([sys.executable, "-c", RUN, str(folder), str(step)])
        assert done.returncode == -signal.SIGKILL
        assert folder.exists() == (step == 4)
        assert len([*tmp_path.glob(".reports*")]) == 1  # what was left before is deleted
    assert contents(folder) == whole
    with pytest.raises(InputError, match="two versions"):
        Staging(folder).__enter__()
    assert contents(folder) == whole
    assert [*tmp_path.iterdir()] == [folder]
