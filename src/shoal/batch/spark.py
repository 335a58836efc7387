"""The same verbs on a Spark cluster, for people who have one: `tally` and `randomize`.

Shoal and the extra ``spark`` must be installed where the driver runs and where the tasks run, and
the files must have the same paths there, as on a network file system.

**Tally.** Tasks count parts of files. A task that is begun again counts the same parts again, and
Spark takes one result of each, so the sum is what one process would have counted.

**Randomize.** A DataFrame that is used twice is computed twice, which would give two versions of
each report. So `randomize` computes the reports once, writes them to files, and returns a DataFrame
that reads these files. Only one attempt of each task becomes visible. If Spark had to recompute
rows before the last shuffle, it may have dealt them out in another order, and a person may be in
two tasks or in none. Then nothing is published.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from shoal import errors
from shoal.analysis.report_files import read_reports
from shoal.analysis.tally import Tally
from shoal.batch import files_of
from shoal.batch.tally_files import REPORT_SUFFIXES, Counted, Piece, count_pieces, cut_files, sum_of
from shoal.errors import AnswerError, InputError, PrivacyRefusal, ShoalError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.support.checks import check_integer
from shoal.support.disk import Disk
from shoal.support.files import first_line
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


_TASKS = 200  # as many as Spark makes of a shuffle
_PATIENCE = 60.0  # seconds until Spark has told how a finished job went

_GROUP = "spark.jobGroup.id"
_COUNTED = "tally string, problem string, kind string"
_WRITTEN = "part long, name string, reports long, problem string, kind string"


def tally(
    spark: SparkSession,
    plan: Plan,
    files: Iterable[Path | str],
    *,
    vectors: bool | None = None,
    joint: Iterable[Sequence[int]] = (),
    crowd: str | None = None,
    window: int | None = None,
    tasks: int | None = None,
) -> Tally:
    """Count the reports in files and folders as one crowd, on a Spark cluster.

    Parameters
    ----------
    spark, plan
        The session, and the plan of the reports.
    files
        Files of reports, as `tally_files` takes them, under paths that the driver and all tasks
        can read.
    vectors, joint, crowd, window
        As in `shoal.tally`.
    tasks
        How many tasks share the work; by default 200, or three for each core if that is more.
    """
    counted = Counted(vectors, tuple(tuple(bits) for bits in joint), crowd, window)
    counted.tallying(plan)  # says what is wrong with them, before the work
    if tasks is not None:
        check_integer("tasks", tasks, lowest=1, highest=10**6)
    found = files_of(map(_shared_path, files), REPORT_SUFFIXES)
    pieces, batches = cut_files(plan, [path.absolute() for path in found])
    parts: list[dict[str, Any]] = []
    if pieces:
        most = max(_TASKS, 3 * _context(spark).defaultParallelism) if tasks is None else tasks
        numbers = spark.range(0, len(pieces), 1, min(most, len(pieces)))
        results = _results(numbers, partial(_count, plan, counted, pieces), _COUNTED)
        parts = [json.loads(result["tally"]) for result in results]
    return sum_of(plan, counted, parts, batches)


def _count(
    plan: Plan, counted: Counted, pieces: Sequence[Piece], batches: Iterator[Any]
) -> Iterator[Any]:
    mine = (pieces[number] for batch in batches for number in batch.column(0).to_pylist())
    with _result() as result:
        result["tally"] = json.dumps(count_pieces(plan, counted, mine))
    yield _batch(result, _COUNTED)


def randomize(
    df: DataFrame,
    plan: Plan,
    folder: Path | str,
    *,
    table_format: TableFormat = DEFAULT_FORMAT,
    whole_reports: bool = False,
) -> DataFrame:
    """Randomize a DataFrame of answers, one row per person, once; return its reports.

    Parameters
    ----------
    df
        The answers: a column for each question; others are not read. Each part of it is computed by
        a task.
    plan
        The plan. Whether it keeps its promise is not computed here: see `Plan.certificate`.
    folder
        Where the reports are written, a path that the driver and all tasks can write to. It appears
        when all reports are in it. If it exists already, nothing is done: see
        `published_reports`.
    table_format
        How the cells are written, and how invalid ones are treated.
    whole_reports
        Write the reports of a plan with view counts, though each may be nearly the truth.
    """
    from shoal.device.arrays.encode import check_asked, check_format, table_columns
    from shoal.device.arrays.files import VectorWriter

    folder, spark = _shared_path(folder), df.sparkSession
    VectorWriter(folder / "none.parquet", plan, whole_reports=whole_reports)  # may refuse the plan
    check_format(plan.survey, table_format)
    check_asked(plan.survey, df.columns)
    columns = [f"`{name.replace('`', '``')}`" for name in table_columns(plan.survey)]
    with Staging(folder) as staging:
        write = partial(_write, plan, table_format, whole_reports, str(staging.attempts))
        compute = partial(_results, df.select(*columns), write, _WRITTEN)
        results = _computed_once(_context(spark), compute)
        if not sum(result["reports"] for result in results):
            raise AnswerError("there are no answers in the DataFrame; it needs a row per person.")
        staging.publish({result["part"]: result["name"] for result in results})
    reports = published_reports(spark, plan, folder)
    assert reports is not None
    return reports


def _write(
    plan: Plan,
    table_format: TableFormat,
    whole_reports: bool,
    attempts: str,
    batches: Iterator[Any],
) -> Iterator[Any]:
    from pyspark import TaskContext

    from shoal.batch.tables import randomize_batches
    from shoal.device.arrays.files import VectorWriter
    from shoal.support.disk import Disk

    context = TaskContext.get()
    assert context is not None
    part = context.partitionId()
    path = attempt_path(Path(attempts), part)
    with _result(f"part {part} of the DataFrame: ") as result:
        with VectorWriter(path, plan, whole_reports=whole_reports) as writer:
            for reports in randomize_batches(plan, batches, table_format):
                writer.write(reports)
        Disk().sync_file(path)
        result |= {"part": part, "name": path.name, "reports": writer.written}
    yield _batch(result, _WRITTEN)


def published_reports(spark: SparkSession, plan: Plan, folder: Path | str) -> DataFrame | None:
    """Return the reports that `randomize` published in a folder; None if there are none.

    The DataFrame has one column, `report`. Computed again, it holds the same bytes again.
    """
    folder = _shared_path(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        return None
    next(read_reports(plan, files_of([folder], (".parquet",))[0]), None)  # may be of another plan
    return spark.read.parquet(str(folder.absolute()))


def _shared_path(path: Path | str) -> Path:
    if "://" in str(path):
        raise InputError(
            f"files have paths that the driver and all tasks share, as on a network file system,"
            f" got {str(path)!r}."
        )
    return Path(path)


def _context(spark: SparkSession) -> SparkContext:
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:
        raise InputError(
            "Spark Connect does not report task outcomes; use a session with a SparkContext."
        )
    return context


def _results(df: DataFrame, work: Callable[[Iterator[Any]], Iterator[Any]], names: str) -> Any:
    """Let tasks work on the rows of a DataFrame, each row once; return what each answered."""
    with warnings.catch_warnings():
        # It warns of versions of pandas, of which nothing is used here.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        results = df.mapInArrow(work, names).collect()
    for result in results:
        if result["problem"] is not None:
            raise getattr(errors, result["kind"])(result["problem"])
    return results


@contextmanager
def _result(where: str = "") -> Iterator[dict[str, Any]]:
    """Yield the result of a task, to be filled in; an error fills in the problem.

    Only the driver is told of an invalid answer: a task's error would be in logs that others read.
    If a file cannot be read or written, the task fails, and Spark tries it elsewhere.
    """
    result: dict[str, Any] = {}
    try:
        yield result
    except ShoalError as error:
        if isinstance(error.__cause__, OSError):
            raise
        result |= {"problem": f"{where}{error}", "kind": type(error).__name__}
    except pa.ArrowException as error:
        result |= {"problem": f"{where}{first_line(error)}.", "kind": "InputError"}


def _batch(result: dict[str, Any], names: str) -> Any:
    kinds = {"string": pa.string(), "long": pa.int64()}
    fields = [name.split() for name in names.split(", ")]
    return pa.RecordBatch.from_pylist(
        [result], pa.schema([(name, kinds[kind]) for name, kind in fields])
    )


def _computed_once(context: SparkContext, compute: Callable[[], Any]) -> Any:
    """Return what is computed, unless Spark had to compute a stage of it again."""
    group, before = SystemBits().draw(16).hex(), context.getLocalProperty(_GROUP)
    context.setLocalProperty(_GROUP, group)
    try:
        results = compute()
    finally:
        context.setLocalProperty(_GROUP, before)
    if results and _repeated_stages(context, group):
        raise PrivacyRefusal(
            "Spark lost results and recomputed them, perhaps in another order, so"
            " that an answer may be reported twice; nothing was published; write the answers to"
            " files first, and randomize those files."
        )
    return results


def _repeated_stages(context: SparkContext, group: str) -> bool:
    """Whether a stage of these jobs was computed again; if that cannot be known, it was."""
    tracker, until = context.statusTracker(), time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        # Its news come in their order: behind the end of a job there is none of its stages.
        if jobs and all(job is not None and job.status == "SUCCEEDED" for job in jobs):
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            return any(stage is None or stage.currentAttemptId > 0 for stage in stages)
        time.sleep(0.05)
    return True


_TWO_VERSIONS = (
    "no answer may be reported in two versions: use the existing reports, or name a new folder"
    " for other answers"
)


class Staging(AbstractContextManager["Staging"]):
    """The hidden folder for the reports of one run; deleted when the block ends.

    A task may be attempted several times, each with its own flips. **Only one attempt of each part
    is ever visible**, because two versions of a report would let a reader average the flips away:

    * Every attempt writes a file with a random name in a hidden folder that only the owner opens.
    * The driver moves one file of each part to a second hidden folder, which no attempt writes to.
    * This folder is renamed to the requested name, in one step that fails if the name is taken.
    * The other attempts are deleted. An attempt that still writes finds its folder gone.

    A kill before the rename leaves nothing visible, a kill after it everything. The next run for
    this name deletes the rest.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._hidden = self._folder.with_name(f"{_prefix(self._folder)}{_token()}")
        self.attempts = self._hidden / "attempts"  # tasks must not make it if it is gone

    def __enter__(self) -> Self:
        try:
            for left in self._folder.parent.glob(f"{escape(_prefix(self._folder))}*"):
                _remove(left)
            self._check_free()
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._hidden.mkdir(mode=0o700)
            self.attempts.mkdir()
        except OSError as error:
            raise InputError(f"cannot write to {self._folder}: {error.strerror}.") from error
        return self

    def _check_free(self) -> None:
        if self._folder.exists() and not (
            self._folder.is_dir() and not any(self._folder.iterdir())
        ):
            raise InputError(f"{self._folder} exists already; {_TWO_VERSIONS}.")

    def publish(self, chosen: Mapping[int, str]) -> None:
        """Let the folder appear, with one attempt of each part, by its number and its file name."""
        reports, disk = self._hidden / "reports", Disk()
        try:
            reports.mkdir()
            for part, name in chosen.items():
                os.rename(self.attempts / name, reports / f"part-{part:05}{Path(name).suffix}")
            disk.sync_folder(reports)
            os.rename(reports, self._folder)
            disk.sync_folder(self._folder.parent)
        except FileNotFoundError as error:
            raise InputError(
                f"another process has begun to write {self._folder} and removed the files of this"
                " one; none of them were published."
            ) from error
        except OSError as error:
            raise InputError(
                f"cannot publish {self._folder}: {error.strerror}; {_TWO_VERSIONS}."
            ) from error

    def __exit__(self, *error: object) -> None:
        _remove(self._hidden)


def attempt_path(attempts: Path, part: int) -> Path:
    """Return a name for one attempt to write a part, which no other attempt has."""
    return attempts / f"part-{part:05}-{_token()}.parquet"


def _prefix(folder: Path) -> str:
    return f".{folder.name}.unpublished-"


def _token() -> str:
    return SystemBits().draw(16).hex()


def _remove(hidden: Path) -> None:
    """Rename a hidden folder, so that nobody can publish it or write to it, and delete it."""
    away = hidden.with_name(hidden.name.rpartition("-")[0] + f"-{_token()}")
    try:
        os.rename(hidden, away)
    except FileNotFoundError:
        return
    shutil.rmtree(away, ignore_errors=True)
