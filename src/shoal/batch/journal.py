"""A journal: which pieces of a long work are done, on disk before anybody relies on it.

The first line says what the work is. Each further line is one piece, with what came of it. A line
is on the disk when `record` returns; one that a crash cut off counts as not written. The work can
be gone on with by whoever names the same work, one process at a time.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shoal.errors import InputError
from shoal.support.disk import Disk
from shoal.support.files import strict_json

__all__ = ["Journal", "remove_journal"]


class Journal(AbstractContextManager["Journal"]):
    """The pieces that are done, by number.

    Parameters
    ----------
    path
        The file; it is made if it is not there. A lock is beside it.
    work
        What the work is, as plain JSON values. A journal of other work is refused.
    way_out
        What to do then, for the message.
    """

    def __init__(self, path: Path, work: dict[str, Any], way_out: str) -> None:
        self._path, self._work, self._way_out = path, json.loads(json.dumps(work)), way_out
        self._disk, self._held = Disk(), ExitStack()
        self.done: dict[int, Any] = {}

    def __enter__(self) -> Self:
        try:
            lock = _lock_of(self._path)
            if not self._held.enter_context(self._disk.lock(lock, patience=0)):
                raise InputError(f"another process works on {self._path}; wait for it.")
            self._read()
            self._file = self._held.enter_context(self._path.open("ab"))
        except OSError as error:
            self._held.close()
            raise InputError(f"cannot write {self._path}: {error.strerror}.") from error
        except InputError:
            self._held.close()
            raise
        return self

    def _read(self) -> None:
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.splitlines()
        try:
            documents = [strict_json(line) for line in lines]
        except ValueError as error:
            raise InputError(f"{self._path} is damaged; {self._way_out}.") from error
        if not documents:
            self._disk.store(self._path, _line(self._work), self._path.name + ".part")
            return
        if documents[0] != self._work:
            raise InputError(f"{self._path} is of other work; {self._way_out}.")
        for document in documents[1:]:
            if not isinstance(document, list) or len(document) != 2:
                raise InputError(f"{self._path} is damaged; {self._way_out}.")
            self.done[document[0]] = document[1]
        if len(whole) < len(content):  # a crash cut the last line off
            os.truncate(self._path, len(whole))

    def record(self, number: int, result: object) -> None:
        """Write, for good, that a piece is done."""
        self._file.write(_line([number, result]))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[number] = result

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()


def remove_journal(path: Path) -> None:
    """Delete a journal, when what it was for is written elsewhere."""
    Disk().remove(path)
    _lock_of(path).unlink(missing_ok=True)


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _line(document: object) -> bytes:
    return json.dumps(document, allow_nan=False).encode() + b"\n"
