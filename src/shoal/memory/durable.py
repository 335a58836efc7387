"""Small files that survive a crash and that several processes share.

A file is replaced whole: what is written goes to the disk under another name, then takes the file's
place, then the folder goes to the disk. A reader sees the old content or the new one. Who reads in
order to write holds an exclusive lock on a file beside it; the system lets go of the lock when its
holder dies.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal._files import LARGEST_FILE
from shoal.errors import InputError, ShoalError

__all__ = ["exclusive", "read_whole", "write_whole"]

_PAUSE = 0.005
_PRIVATE = 0o600


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(handle: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def exclusive(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of a file, against other processes and other threads.

    The lock file stays: to remove it would let two holders in.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, _PRIVATE)
    except OSError as problem:
        raise InputError(f"cannot open {lock}: {problem.strerror or 'unwritable'}.") from problem
    try:
        until = time.monotonic() + timeout
        while not _try_lock(handle):
            if time.monotonic() >= until:
                raise ShoalError(
                    f"{path} was in use by another process for {timeout:g} seconds; try again."
                )
            time.sleep(_PAUSE)
        try:
            yield
        finally:
            _unlock(handle)
    finally:
        os.close(handle)


def read_whole(path: Path, what: str) -> bytes | None:
    """Return a file's content, or None if there is no such file."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"cannot read {what} {path}: {problem.strerror}.") from problem
    if len(content) > LARGEST_FILE:
        raise InputError(f"{path} is larger than {LARGEST_FILE >> 20} MiB; that is no {what}.")
    return content


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file, durably: when this returns, a crash does not undo it.

    The caller holds the file's lock.
    """
    scratch = path.with_name(path.name + ".part")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
        _sync_folder(path.parent)
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or 'unwritable'}.") from problem


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":  # pragma: no cover
        return  # there a folder cannot be opened; the file system's journal orders the renaming
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
