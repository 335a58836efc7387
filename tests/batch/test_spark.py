"""Spark counts what one process counts, and publishes one version of each report.

The runs are in `spark_runs`, each in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from shoal import Flags, Survey, Tally, plan
from shoal.batch import spark
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
        command = [str(submit), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
        command += [
            "examples/spark_reports.py",
            "plan.json",
            "answers.csv",
            "reports",
            "tally.json",
        ]
        command = [str(ROOT / word) if word.startswith("examples") else word for word in command]
        environment = os.environ | SURROUNDINGS
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=1800
        )
        assert done.returncode == 0, done.stdout + done.stderr[-8000:]
        assert "40 reports counted" in done.stdout
        assert Tally.read(tmp_path / "tally.json", PLAN) == tally_files(
            PLAN, [tmp_path / "reports"]
        )


class TestWithoutSpark:
    """What is refused before Spark is asked for anything."""

    @pytest.mark.parametrize("path", ["s3://bucket/reports", "hdfs://host/reports"])
    def test_a_path_that_only_some_understand(self, path: str):
        with pytest.raises(InputError, match=f"share, .* got '{path}'"):
            spark.tally(None, PLAN, [path])

    def test_a_number_of_tasks_that_is_none(self):
        with pytest.raises(InputError, match="tasks"):
            spark.tally(None, PLAN, [], tasks=0)

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
