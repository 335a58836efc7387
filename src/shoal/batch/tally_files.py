"""Reports in many files to one Tally, on all cores, in constant memory.

Large files are cut into pieces of some million reports. Pieces are counted apart and added; the sum
is what one process would have counted, to the last report. With a journal, pieces that were counted
before a crash are not counted again. The journal holds the counts of parts of the crowd, so it is
as confidential as the reports; `shoal tally` deletes it when the tally is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from shoal.analysis.crowds import Crowd, add_crowds
from shoal.analysis.report_files import FilePart, parts_of, read_part, read_reports
from shoal.analysis.tally import Tally, Tallying
from shoal.batch import Journal, files_of, marks_of, processes_of, work_on
from shoal.protocol.plan import Plan

REPORT_SUFFIXES = (".parquet", ".arrow", ".rows")
_PIECE_ROWS = 1 << 22
_ALONE_ROWS = 1 << 26  # fewer are counted in the time that other processes take to start

_SAME_CROWD = "the same crowd"


class Counted(NamedTuple):
    """What is counted beside single bits, and whose reports they are."""

    vectors: bool | None
    joint: tuple[tuple[int, ...], ...]
    crowd: str | None
    window: int | None

    def tallying(self, plan: Plan) -> Tallying:
        return Tallying(
            plan, vectors=self.vectors, joint=self.joint, crowd=self.crowd, window=self.window
        )


class Piece(NamedTuple):
    path: Path
    part: FilePart


def tally_files(
    plan: Plan,
    paths: Iterable[Path | str],
    *,
    processes: int | None = None,
    journal: Path | str | None = None,
    vectors: bool | None = None,
    joint: Iterable[Sequence[int]] = (),
    crowd: str | None = None,
    window: int | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Tally:
    """Count the reports in files and folders as one crowd.

    Parameters
    ----------
    plan, paths
        The plan, and files of reports: Parquet, Arrow, raw rows, batches, or folders of them.
    processes
        How many processes count; by default one for each core. Few reports are counted in this one.
    journal
        A file that records what was counted, so that the same call goes on after a crash. Delete
        it when the tally is stored.
    vectors, joint, crowd, window
        As in `shoal.tally`.
    progress
        Called with how many reports were counted and how many there are in all but batches.
    """
    counted = Counted(vectors, tuple(tuple(bits) for bits in joint), crowd, window)
    counted.tallying(plan)  # says what is wrong with them, before the work
    files = files_of(paths, REPORT_SUFFIXES)
    marks = marks_of(files)
    pieces, batches = cut_files(plan, files)
    total = sum(piece.part.rows for piece in pieces)
    with ExitStack() as stack:
        done: dict[int, Any] = {}
        notes: Journal | None = None
        if journal is not None and len(pieces) > 1:  # one piece is not worth it
            work: dict[str, Any] = {"shoal": "tally", "plan": plan.id, "counted": counted}
            work |= {"files": marks, "pieces": len(pieces)}
            remedy = "remove it to count from the beginning"
            notes = stack.enter_context(Journal(Path(journal), work, remedy))
            done |= notes.done
        seen = sum(pieces[number].part.rows for number in done)
        progress(seen, total)
        missing = [(number, piece) for number, piece in enumerate(pieces) if number not in done]
        alone = len(missing) < 2 or total - seen < _ALONE_ROWS
        count = partial(_count, plan, counted)
        for number, part in work_on(missing, count, 1 if alone else processes_of(processes)):
            done[number] = part
            if notes is not None:
                notes.record(number, part)
            seen += pieces[number].part.rows
            progress(seen, total)
    return sum_of(plan, counted, [done[number] for number in sorted(done)], batches)


def cut_files(plan: Plan, files: Iterable[Path]) -> tuple[list[Piece], list[Path]]:
    """Return the pieces of files that can be counted apart, and the batches, which cannot."""
    pieces: list[Piece] = []
    batches: list[Path] = []
    for path in files:
        cut = parts_of(plan, path, _PIECE_ROWS)
        pieces += [Piece(path, part) for part in cut or ()]
        batches += [path] if cut is None else []
    return pieces, batches


def _count(plan: Plan, counted: Counted, piece: Piece) -> dict[str, Any]:
    return count_pieces(plan, counted, [piece])


def count_pieces(plan: Plan, counted: Counted, pieces: Iterable[Piece]) -> dict[str, Any]:
    """Count the reports in pieces of files, as plain JSON values."""
    tallying = counted.tallying(plan)
    for piece in pieces:
        for chunk in read_part(plan, *piece):
            tallying.add_vectors(chunk)
    return tallying.result().to_json()


def sum_of(
    plan: Plan, counted: Counted, parts: Iterable[dict[str, Any]], batches: Iterable[Path]
) -> Tally:
    """Add what was counted in pieces, and the reports in batches, to one crowd."""
    tallying = counted.tallying(plan)
    ids: set[bytes] = set()  # of reports in batches: the same one may be in two files
    for path in batches:
        for vectors_of_window in read_reports(plan, path, ids):
            tallying.add_vectors(vectors_of_window)
    return _as_one_crowd([*(Tally.from_json(part, plan) for part in parts), tallying.result()])


def _as_one_crowd(parts: Sequence[Tally]) -> Tally:
    """Add tallies whose unnamed crowds are parts of one; tallies of strangers are not added so."""

    def renamed(tally: Tally, before: str | None, after: str | None) -> Tally:
        crowds = (
            Crowd(one.reports, after, one.window) if one.name == before else one
            for one in tally.crowds
        )
        return replace(tally, crowds=add_crowds(crowds))

    return renamed(
        reduce(add, [renamed(one, None, _SAME_CROWD) for one in parts]), _SAME_CROWD, None
    )
