"""What is tried on Spark, in a process of its own: ``python -m tests.batch.spark_runs``.

Spark leaves a Java machine behind in the process that starts it, until that one ends. So the tests
run these functions in another process, which ends with the first assertion that does not hold.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal import Choice, Flags, PrivacyRefusal, Survey, plan
from shoal.batch import spark as engine
from shoal.batch import tally_files as counting
from shoal.batch.tables import tally_table
from shoal.batch.tally_files import tally_files
from shoal.device.arrays.files import VectorWriter
from shoal.device.arrays.randomize import Original
from shoal.device.randomize import flip
from shoal.errors import AnswerError, InputError, ReportError
from shoal.protocol.wire import Synthetic

SURVEY = Survey("s", (Flags("f", tuple("abcdef")), Choice("c", ("x", "y"))))
PLAN = plan(SURVEY, q="0.25")
PARTS, ROWS = 4, 50

SURROUNDINGS = {
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_LOCAL_IP": "127.0.0.1",
    # What lives for a minute is not worth compiling well.
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def session(master: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ |= SURROUNDINGS
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.shuffle.io.retryWait": "100ms",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answers(spark: Any) -> Any:
    """Everybody in a part answers the same: what differs between their reports is flips."""
    rows = spark.range(0, PARTS * ROWS, 1, PARTS)
    part = f"cast(id / {ROWS} as int)"
    return rows.selectExpr(f"element_at(array('a', 'b;c', '', 'f'), {part} + 1) f", "'x' c", "id")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def on_one_machine(folder: Path) -> None:
    spark = session("local[2,4]")
    same_counts_as_local(spark, folder)
    every_look_shows_the_same(spark, folder)
    refused(spark, folder)
    a_worker_dies_while_it_writes(spark, folder)
    spark.stop()


def on_a_cluster(folder: Path) -> None:
    spark = session("local-cluster[2,1,1024]")
    counts_with_an_executor_killed(spark, folder)
    reports_with_an_executor_killed(spark, folder)
    nothing_if_a_shuffle_is_lost(spark, folder)
    spark.stop()


def same_counts_as_local(spark: Any, folder: Path) -> None:
    """All forms of files, cut into pieces; whatever can be counted beside the bits."""
    inside = folder / "forms"
    inside.mkdir()
    original = Original(np.full((700, 1), 0b1000101, np.uint8), PLAN.bits)
    for number, form in enumerate(["parquet", "arrow", "rows", "parquet"]):
        with VectorWriter(inside / f"{number}.{form}", PLAN) as writer:
            for _ in range(3):
                writer.write(flip(PLAN, original))
    pieces, counting._PIECE_ROWS = counting._PIECE_ROWS, 600
    more: dict[str, Any] = {"vectors": False, "joint": [[0, 3]], "crowd": "monday", "window": 7}
    for counted in ({}, more):
        for tasks in (None, 2):
            ours = engine.tally(spark, PLAN, [inside], tasks=tasks, **counted)
            assert ours.reports == 4 * 3 * 700
            assert ours == tally_files(PLAN, [inside], **counted)
    counting._PIECE_ROWS = pieces


def every_look_shows_the_same(spark: Any, folder: Path) -> None:
    assert engine.published_reports(spark, PLAN, folder / "reports") is None
    reports = engine.randomize(answers(spark), PLAN, folder / "reports")
    assert reports.columns == ["report"]
    looks = [Counter(bytes(row.report) for row in reports.collect()) for _ in range(2)]
    again = engine.published_reports(spark, PLAN, folder / "reports")
    assert again is not None
    looks.append(Counter(bytes(row.report) for row in again.collect()))
    assert looks[0] == looks[1] == looks[2]
    assert looks[0].total() == PARTS * ROWS
    assert {*contents(folder / "reports")} == {f"part-{part:05}.parquet" for part in range(PARTS)}
    counted = engine.tally(spark, PLAN, [folder / "reports"])
    assert counted == tally_files(PLAN, [folder / "reports"])
    assert counted == tally_table(
        PLAN, reports.toArrow().cast(pa.schema([("report", pa.binary())]))
    )
    assert len(set(contents(folder / "reports").values())) == PARTS


def refused(spark: Any, folder: Path) -> None:
    before = contents(folder / "reports")
    with pytest.raises(InputError, match="no answer may be reported in two versions"):
        engine.randomize(answers(spark), PLAN, folder / "reports")
    assert contents(folder / "reports") == before
    wrong = answers(spark).selectExpr("if(id = 57, 'nonsense', f) f", "c")
    with pytest.raises(AnswerError, match=r"part 1 of the DataFrame: row 8, .* not one of"):
        engine.randomize(wrong, PLAN, folder / "wrong")
    with pytest.raises(AnswerError, match="no column 'c'"):
        engine.randomize(answers(spark).select("f"), PLAN, folder / "wrong")
    empty = spark.createDataFrame([], "f string, c string")
    for nobody in (answers(spark).where("id < 0"), empty):
        with pytest.raises(AnswerError, match="there are no answers"):
            engine.randomize(nobody, PLAN, folder / "wrong")
    seen = plan(SURVEY, crowd_size=1000, epsilon="3", delta="1e-6", view="counts")
    with pytest.raises(PrivacyRefusal, match="whole_reports"):
        engine.randomize(answers(spark), seen, folder / "wrong")
    with pytest.raises(ReportError, match="not of"):
        engine.published_reports(spark, seen, folder / "reports")
    with pytest.raises(ReportError, match="not of"):
        engine.tally(spark, seen, [folder / "reports"])
    with VectorWriter(folder / "cut.rows", PLAN) as writer:
        writer.write(Synthetic(np.zeros((9, 1), np.uint8), PLAN.bits))
    os.truncate(folder / "cut.rows", 60)
    with pytest.raises(ReportError, match="cut off"):
        engine.tally(spark, PLAN, [folder / "cut.rows"])
    assert not [path for path in folder.iterdir() if "wrong" in path.name]


def a_worker_dies_while_it_writes(spark: Any, folder: Path) -> None:
    """The process in which a task runs is killed when some of its reports are written."""
    died = str(folder / "died")

    def dying(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if 0 in batch.column("id").to_pylist() and not os.path.exists(died):
                Path(died).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(half)

    again = answers(spark).mapInArrow(dying, "f string, c string, id long")
    engine.randomize(again, PLAN, folder / "after the worker")
    assert Path(died).exists()
    assert tally_files(PLAN, [folder / "after the worker"]).reports == PARTS * ROWS
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def with_kill(folder: Path, name: str, real: Callable[..., Iterator[Any]]) -> Any:
    """Return a task that, the first time it is done with its work, kills the Java machine.

    What it would have answered is lost with it. A copy of the file that it wrote stays in `folder`.
    """
    mark = str(folder / name)

    def killing(*arguments: Any) -> Iterator[Any]:
        import os
        import shutil
        import signal
        from pathlib import Path

        found = list(real(*arguments))
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield from found
            return
        if "name" in found[0].schema.names:
            row = found[0].to_pylist()[0]
            shutil.copy(Path(arguments[3]) / row["name"], f"{mark}-{row['part']:05}.parquet")
        process = os.getppid()
        while Path(f"/proc/{process}/comm").read_text().strip() != "java":
            status = Path(f"/proc/{process}/status").read_text()
            process = int(status.split("PPid:")[1].split()[0])
        os.kill(process, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return killing


def counts_with_an_executor_killed(spark: Any, folder: Path) -> None:
    inside = folder / "many"
    inside.mkdir()
    original = Original(np.full((500, 1), 0b1000101, np.uint8), PLAN.bits)
    for number in range(6):
        with VectorWriter(inside / f"{number}.parquet", PLAN) as writer:
            writer.write(flip(PLAN, original))
    real, engine._count = engine._count, with_kill(folder, "counting", engine._count)
    counted = engine.tally(spark, PLAN, [inside])
    engine._count = real
    assert (folder / "counting").exists()
    assert counted == tally_files(PLAN, [inside])
    assert counted.reports == 6 * 500


def reports_with_an_executor_killed(spark: Any, folder: Path) -> None:
    """An attempt that wrote all its reports is lost: the next one draws its own bits."""
    real, engine._write = engine._write, with_kill(folder, "writing", engine._write)
    engine.randomize(answers(spark), PLAN, folder / "reports")
    engine._write = real
    (lost,) = folder.glob("writing-*.parquet")
    published = folder / "reports" / lost.name.removeprefix("writing").replace("-", "part-")
    versions = [pq.read_table(path)["report"].to_pylist() for path in (lost, published)]
    assert len(versions[0]) == len(versions[1]) == ROWS
    assert versions[0] != versions[1]
    assert {*contents(folder / "reports")} == {f"part-{part:05}.parquet" for part in range(PARTS)}
    assert tally_files(PLAN, [folder / "reports"]).reports == PARTS * ROWS
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def nothing_if_a_shuffle_is_lost(spark: Any, folder: Path) -> None:
    """The rows of a task come from a shuffle, and half of it dies with an executor."""
    dealt = answers(spark).repartition(PARTS)
    engine.randomize(dealt, PLAN, folder / "whole shuffle")
    real, engine._write = engine._write, with_kill(folder, "dealing", engine._write)
    with pytest.raises(PrivacyRefusal, match="perhaps in another order"):
        engine.randomize(dealt, PLAN, folder / "lost shuffle")
    engine._write = real
    assert (folder / "dealing").exists()
    assert not (folder / "lost shuffle").exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


if __name__ == "__main__":
    began = time.monotonic()
    {"local": on_one_machine, "cluster": on_a_cluster}[sys.argv[1]](Path(sys.argv[2]))
    print(f"done in {time.monotonic() - began:.0f} s")
