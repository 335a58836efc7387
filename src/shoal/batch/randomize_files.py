"""Answers in many files to a folder of reports, on all cores, in constant memory.

Each file of answers becomes one file of reports, ``part-00000.parquet`` and so on. **No answer is
published in two versions**, whatever is killed and however often the work is begun again, because
two versions would let a reader average the flips away:

* A file of reports is written under a hidden name, and synced.
* The journal records this name, and is synced.
* Only then the file gets its visible name.

When the work goes on after a kill, answers that are not in the journal were never published: their
hidden files are deleted, and they are randomized. Answers in the journal are never randomized
again: a hidden file gets its name; one that is gone was published and taken away. So the journal
stays in the folder. It refuses answers that changed after their reports were published.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from shoal.batch import Journal, files_of, marks_of, processes_of, work_on
from shoal.device.arrays.encode import check_format
from shoal.device.arrays.files import ANSWER_SUFFIXES, VectorWriter, read_answers
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.random_bits import SystemBits
from shoal.support.disk import Disk
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

JOURNAL = ".shoal-journal"
_HIDDEN = ".unpublished-"
_ALONE_BYTES = 1 << 25  # fewer are randomized before a second process has started


class RandomizedFiles(NamedTuple):
    """What is in the folder: how many files, how many reports, and how many files are new."""

    folder: Path
    files: int
    reports: int
    new_files: int


class _Piece(NamedTuple):
    answers: Path
    hidden: Path


def randomize_files(
    plan: Plan,
    paths: Iterable[Path | str],
    folder: Path | str,
    *,
    form: str = "parquet",
    table_format: TableFormat = DEFAULT_FORMAT,
    whole_reports: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> RandomizedFiles:
    """Randomize the answers in files and folders, each answer once.

    Parameters
    ----------
    plan
        The plan. Whether it keeps its promise is computed by the command, not here.
    paths
        Files of answers: CSV, NDJSON, Arrow, Parquet; a folder stands for those in it.
    folder
        Where the reports go: a new folder, or the one of a run that was interrupted.
    form
        ``"parquet"``, ``"arrow"`` or ``"rows"``.
    table_format
        How the answers are written, and how invalid ones are treated.
    whole_reports
        Write the reports of a plan with view counts, though each may be nearly the truth.
    processes
        How many processes work; by default one for each core.
    progress
        Called with how many bytes of answers are done and how many there are.
    """
    if form not in ("parquet", "arrow", "rows"):
        raise InputError(f"reports are written as parquet, arrow or rows, got {form!r}.")
    folder = Path(folder)
    VectorWriter(folder / f"none.{form}", plan, whole_reports=whole_reports)  # may refuse the plan
    files = files_of(paths, ANSWER_SUFFIXES)
    marks = marks_of(files)
    _make(folder, files)
    check_format(plan.survey, table_format)
    work = {"shoal": "randomize", "plan": plan.id, "form": form, "answers": [m[0] for m in marks]}
    remedy = (
        "no answer may be reported in two versions: go on with the same answers, or throw these"
        " reports away and write to a new folder"
    )
    names = [f"part-{number:05}.{form}" for number in range(len(files))]
    with Journal(folder / JOURNAL, work, remedy) as journal:
        for number, (hidden, _, mark) in journal.done.items():
            if mark != marks[number]:
                raise InputError(
                    f"{files[number]} has changed since its reports were published; {remedy}."
                )
            _publish(folder, hidden, names[number])
        for path in folder.glob(f"{_HIDDEN}*"):  # never published; the journal has all else
            path.unlink(missing_ok=True)
        token = SystemBits().draw(8).hex()  # a process of an earlier run may still be writing
        missing = [
            (number, _Piece(path, folder / f"{_HIDDEN}{number:05}-{token}.{form}"))
            for number, path in enumerate(files)
            if number not in journal.done
        ]
        sizes = [int(size) for _, size, _ in marks]
        total, left = sum(sizes), sum(sizes[number] for number, _ in missing)
        progress(total - left, total)
        alone = len(missing) < 2 or left < _ALONE_BYTES
        write = partial(_write, plan, table_format, whole_reports)
        for number, reports in work_on(missing, write, 1 if alone else processes_of(processes)):
            hidden = f"{_HIDDEN}{number:05}-{token}.{form}"
            journal.record(number, [hidden, reports, marks[number]])
            _publish(folder, hidden, names[number])
            left -= sizes[number]
            progress(total - left, total)
        reports = sum(count for _, count, _ in journal.done.values())
    return RandomizedFiles(folder, len(files), reports, len(missing))


def _make(folder: Path, files: list[Path]) -> None:
    inside = folder.resolve()
    if any(inside in path.resolve().parents for path in files):
        raise InputError(f"the answers are in {folder} themselves; name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        strangers = any(folder.iterdir()) and not (folder / JOURNAL).exists()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}.") from error
    if strangers and {path.name for path in folder.iterdir()} != {JOURNAL + ".lock"}:
        raise InputError(f"{folder} has other files in it; name a new folder.")


def _write(plan: Plan, table_format: TableFormat, whole_reports: bool, piece: _Piece) -> int:
    with VectorWriter(piece.hidden, plan, whole_reports=whole_reports) as writer:
        for original in read_answers(plan.survey, piece.answers, table_format):
            writer.write(flip(plan, original))
    Disk().sync_file(piece.hidden)
    return writer.written


def _publish(folder: Path, hidden: str, name: str) -> None:
    """Give a file its name; one that has it, or was taken away since, is left alone."""
    try:
        os.replace(folder / hidden, folder / name)
    except FileNotFoundError:
        return
    Disk().sync_folder(folder)
