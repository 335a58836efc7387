"""Work on many files, with all cores: their names, a journal of what is done, worker processes.

    `tally_files`       reports in many files to one Tally
    `randomize_files`   answers in many files to a folder of reports
    `tables`            `tally_table` and `randomize_table`: pandas, polars, Arrow
    `spark`             `tally` and `randomize` on a Spark cluster

None of them is imported here: tallying never imports `device/`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self, TypeVar

from shoal.errors import InputError, ShoalError
from shoal.support.checks import check_integer
from shoal.support.disk import Disk
from shoal.support.files import strict_json


def files_of(paths: Iterable[Path | str], suffixes: Sequence[str]) -> list[Path]:
    """Return the files, those of a folder with these suffixes in the order of their names.

    Hidden ones in a folder, with a leading dot or underscore, are left out. A file that is named
    twice is an error: its reports would be counted twice.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            found.append(path)
            continue
        inside = [
            file
            for file in sorted(path.rglob("*"))
            if file.suffix.lower() in suffixes
            and file.is_file()
            and not any(name[0] in "._" for name in file.relative_to(path).parts)
        ]
        if not inside:
            raise InputError(f"the folder {path} has no files ending in {', '.join(suffixes)}.")
        found += inside
    if len({path.resolve() for path in found}) < len(found):
        raise InputError("a file is named twice and would be counted twice; name it once.")
    return found


def marks_of(paths: Iterable[Path]) -> list[list[str | int]]:
    """Return name, size and time of change of each file: if they differ, so may the content."""
    marks: list[list[str | int]] = []
    for path in paths:
        try:
            state = path.stat()
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from error
        marks.append([str(path.resolve()), state.st_size, state.st_mtime_ns])
    return marks


class Journal(AbstractContextManager["Journal"]):
    """Which pieces of a long work are done, by number, on disk before anybody relies on it.

    The first line of the file at `path` says what the `work` is, as plain JSON values; a journal of
    other work is refused with the `remedy`. Each further line is one piece, with its result. A line
    is on the disk when `record` returns; one that a crash cut off counts as not written. A lock
    beside the file keeps other processes out.
    """

    def __init__(self, path: Path, work: dict[str, Any], remedy: str) -> None:
        self._path, self._work, self._remedy = path, json.loads(json.dumps(work)), remedy
        self._disk, self._held = Disk(), ExitStack()
        self.done: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            lock = _lock_of(self._path)
            if not self._held.enter_context(self._disk.lock(lock, patience=0)):
                raise InputError(f"another process works on {self._path}; wait for it.")
            self._read()
            self._file = self._held.enter_context(self._path.open("ab"))
        except (InputError, OSError) as error:
            self._held.close()
            if isinstance(error, InputError):
                raise
            raise InputError(f"cannot write {self._path}: {error.strerror}.") from error
        return self

    def _read(self) -> None:
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if not whole:
            self._disk.store(self._path, _line(self._work), self._path.name + ".part")
            return
        try:
            lines: list[Any] = [strict_json(line) for line in whole.splitlines()]
            work, self.done = lines[0], dict(lines[1:])
        except (TypeError, ValueError) as error:
            raise InputError(f"{self._path} is damaged; {self._remedy}.") from error
        if work != self._work:
            raise InputError(f"{self._path} is of other work; {self._remedy}.")
        if len(whole) < len(content):  # a crash cut the last line off
            os.truncate(self._path, len(whole))

    def record(self, number: int, result: object) -> None:
        """Write, for good, that a piece is done."""
        self._file.write(_line([number, result]))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[number] = result

    def __exit__(self, *error: object) -> None:
        self._held.close()


def remove_journal(path: Path) -> None:
    """Delete a journal, when what it was for is written elsewhere."""
    Disk().remove(path)
    _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _line(document: object) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"


P = TypeVar("P")
R = TypeVar("R")


def processes_of(asked: int | None) -> int:
    """Return how many processes to use: as asked, or one for each usable core."""
    if asked is not None:
        return check_integer("processes", asked, lowest=1, highest=1024)
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def work_on(
    pieces: Iterable[tuple[int, P]], work: Callable[[P], R], processes: int
) -> Iterator[tuple[int, R]]:
    """Yield the number and the result of each piece, in the order in which they are done.

    With one process the work is done in this one. `work` and the pieces are sent to others, so
    `work` is a function of a module, or a partial of one. Each process has a pipe of its own to
    this one. If this one is killed, the pipes close, and the others end after the piece in hand.
    """
    if processes == 1:
        yield from ((number, work(piece)) for number, piece in pieces)
        return
    waiting = iter(pieces)
    context = multiprocessing.get_context("spawn")  # a fork would copy threads of Arrow
    workers: dict[Connection, Any] = {}
    try:
        for _, first in zip(range(processes), waiting, strict=False):
            ours, theirs = context.Pipe()
            worker = context.Process(target=_worker, args=(work, theirs), daemon=True)
            worker.start()
            theirs.close()
            workers[ours] = worker
            ours.send(first)
        busy = set(workers)
        while busy:
            for pipe in wait(list(busy)):
                assert isinstance(pipe, Connection)
                number, result = _received(pipe)
                following = next(waiting, None)
                if following is None:
                    busy.discard(pipe)
                else:
                    pipe.send(following)
                yield number, result
    finally:
        for pipe, worker in workers.items():
            pipe.close()
            worker.terminate()
            worker.join()


def _received(pipe: Connection) -> tuple[int, Any]:
    try:
        number, result = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise ShoalError(
            "a process that did part of the work has ended, perhaps for lack of memory; run the"
            " same again, with fewer --processes."
        ) from error
    if isinstance(result, ShoalError):
        raise result
    return number, result


def _worker(work: Callable[[Any], Any], pipe: Connection) -> None:
    with suppress(EOFError, ConnectionError):  # the other end has closed: nobody wants more
        while True:
            number, piece = pipe.recv()
            try:
                result = work(piece)
            except ShoalError as error:
                result = error
            pipe.send((number, result))
