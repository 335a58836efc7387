"""Spark beside one process: what a report costs to count and to randomize."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.files import write_reports
from bench.measuring import Options, Table
from bench.tallying import flags_plan
from shoal.batch.randomize_files import randomize_files
from shoal.batch.tally_files import tally_files

_FILES = 8
_TEXT = (
    "Counting {reports:,} reports of 40 bits in {files} Parquet files, and randomizing {answers:,}"
    " answers of 40 flags in {files} Parquet files, on this machine: by Shoal's own processes, and"
    " by the tasks of Spark. The session is started before, which takes some seconds more, and one"
    " run does not count."
)


def measure(options: Options) -> Table:
    """Measure both verbs on local[cores], beside what Shoal does without Spark."""
    reports, answers = options.size(40_000_000), options.size(2_000_000)
    cores = os.cpu_count() or 1
    plan = flags_plan(40)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "reports").mkdir()
        one = write_reports(folder / "one.parquet", reports // _FILES)
        for number in range(_FILES):
            os.link(one, folder / "reports" / f"{number}.parquet")
        _write_answers(folder / "answers", answers)
        makers: list[tuple[str, int, Callable[[], int]]] = [
            ("**Shoal `tally_files`**", reports,
             lambda: tally_files(plan, [folder / "reports"]).reports),
            ("**Shoal `randomize_files`**", answers,
             lambda: randomize_files(plan, [folder / "answers"], _fresh(folder)).reports),
        ]  # fmt: skip
        try:
            spark, engine = _session(cores), _engine()
        except ImportError as error:
            print(f"  without Spark: {error}")
        else:
            makers[1:1] = [
                (f"Spark `tally`, local[{cores}]", reports,
                 lambda: int(engine.tally(spark, plan, [folder / "reports"]).reports)),
            ]  # fmt: skip
            read = spark.read.parquet(str(folder / "answers"))
            makers += [
                (f"Spark `randomize`, local[{cores}]", answers,
                 lambda: int(engine.randomize(read, plan, _fresh(folder)).count())),
            ]  # fmt: skip
        best = dict.fromkeys((name for name, _, _ in makers), float("inf"))
        for number in range(options.rounds + 1):
            for label, count, run in makers:
                start = time.perf_counter()
                assert run() == count
                if number:
                    best[label] = min(best[label], time.perf_counter() - start)
            print(f"\r  round {number} of {options.rounds}", end="", flush=True)
        print()
    rows, ours = [], 0.0
    for label, count, _ in makers:
        each = 1e9 * best[label] / count
        ours = each if label.startswith("**") else ours
        rows.append((label, 1e3 / each, each, each / ours))
    columns = ("candidate", "M reports/s", "ns a report", "times local")
    text = _TEXT.format(reports=reports, answers=answers, files=_FILES)
    return Table("Spark beside local", columns, rows, text)


def _write_answers(folder: Path, answers: int) -> None:
    folder.mkdir()
    options = flags_plan(40).survey.questions[0].options  # type: ignore[attr-defined]
    column = [[options[0], options[7]], [], [options[39]], [options[20]]]
    table = pa.table({"answer": pa.array(column * (answers // _FILES // 4), pa.list_(pa.string()))})
    for number in range(_FILES):
        pq.write_table(table, folder / f"{number}.parquet")


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder / "made", ignore_errors=True)
    return folder / "made"


def _engine() -> Any:
    from shoal.batch import spark

    return spark


def _session(cores: int) -> Any:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
