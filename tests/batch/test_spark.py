"""Spark counts what one process counts, and publishes one version of each report.

The runs are in `spark_runs`, each in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shoal import Flags, Survey, Tally, plan
from shoal.batch import spark
from shoal.batch.spark import Staging, attempt_path
from shoal.batch.tally_files import tally_files
from shoal.errors import AnswerError, InputError
from tests.batch.spark_runs import SURROUNDINGS
from tests.mutants.mutant import ROOT

PLAN = plan(Survey("s", (Flags("f", ("a", "b")),)), q="0.25")

needs_spark = pytest.mark.skipif(
    find_spec("pyspark") is None or not (shutil.which("java") or os.environ.get("JAVA_HOME")),
    reason="needs pyspark (pip install 'shoal[spark]') and Java 17 or newer",
)


def run(name: str, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.batch.spark_runs", name, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]


@needs_spark
@pytest.mark.system
@pytest.mark.slow
class TestSpark:
    def test_on_one_machine(self, tmp_path: Path):
        """The counts of all forms are local's, and every look at the reports is the same.

        False alarm: reports of parts are equal by chance with probability below 2^-100.
        """
        run("local", tmp_path)

    @pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the executor by /proc")
    def test_on_a_cluster_whose_executors_are_killed(self, tmp_path: Path):
        """Killed when a task is done, before it has answered; with a shuffle, nothing appears.

        False alarm: two versions of 50 reports are equal by chance with probability below 2^-100.
        """
        run("cluster", tmp_path)

    def test_the_example(self, tmp_path: Path):
        PLAN.write(tmp_path / "plan.json")
        (tmp_path / "answers.csv").write_text("f\n" + "a\nb\n" * 20)
        submit = Path(sys.executable).with_name("spark-submit")
        command: list[Any] = [submit, "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        command += [ROOT / "examples/spark_reports.py", "plan.json", "answers.csv", "reports"]
        done = subprocess.run(
            [*command, "tally.json"], cwd=tmp_path, env=os.environ | SURROUNDINGS,
            capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr[-8000:]
        assert "40 reports counted" in done.stdout
        counted = tally_files(PLAN, [tmp_path / "reports"])
        assert Tally.read(tmp_path / "tally.json", PLAN) == counted


class TestWithoutSpark:
    """What is refused before Spark is asked for anything."""

    @pytest.mark.parametrize("path", ["s3://bucket/reports", "hdfs://host/reports"])
    def test_a_path_that_only_some_understand(self, path: str):
        with pytest.raises(InputError, match=f"share, .* got '{path}'"):
            spark.tally(None, PLAN, [path])
        with pytest.raises(InputError, match="tasks"):
            spark.tally(None, PLAN, [path], tasks=0)

    def test_what_is_wrong_with_an_answer_is_told_and_not_raised(self):
        """An error that a task raises is in logs, with the answer; what the disk does is raised."""
        for error in (AnswerError("row 7."), pa.ArrowInvalid("row 7")):
            with spark._result("part 3: ") as answer:
                raise error
            assert answer["problem"] == "part 3: row 7."
        with pytest.raises(InputError), spark._result() as answer:
            raise InputError("cannot write") from OSError("full")
        assert answer == {}

    def test_a_session_that_does_not_tell_how_tasks_went(self):
        with pytest.raises(InputError, match="a session with a SparkContext"):
            spark._context(object())


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
        assert staging.attempts.parent.stat().st_mode & 0o777 == 0o700
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
from typing import Any
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
