"""Files that survive a crash: each primitive by itself, so that a test can fail between any two."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """What the outbox asks of a file system.

    `store` and `remove` have happened for good when they return; interrupted, they have happened
    or they have not.
    """

    def store(self, path: Path, content: bytes) -> None:
        """Write a file whole or not at all, durably. One writer at a time, by the folder's lock."""
        scratch = path.with_name("part")
        self.write(scratch, content)
        self.sync_file(scratch)
        self.replace(scratch, path)
        self.sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Delete a file durably; one that is gone already is fine."""
        self.unlink(path)
        self.sync_folder(path.parent)

    def make_folder(self, folder: Path) -> None:
        """Make a folder that only its owner reads, durably.

        One that is there already may have been made by a process that was killed before it could
        sync, so it is synced in any case.
        """
        if not folder.parent.is_dir():
            self.make_folder(folder.parent)
        if not folder.is_dir():
            self.mkdir(folder)
        with suppress(PermissionError):  # a folder above that is not ours and stood there before
            self.sync_folder(folder.parent)

    def mkdir(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, path: Path, content: bytes) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "wb") as file:
            file.write(content)

    def sync_file(self, path: Path) -> None:
        handle = os.open(path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        if sys.platform == "win32":
            return  # a folder cannot be opened there; the rename itself is journaled
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def lock(self, path: Path, *, wait: bool = True) -> Iterator[bool]:
        """Hold a lock among threads and processes; yields False if it was not to be had.

        The system lets go of it when the process dies, however it dies.
        """
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield _lock(handle, wait)
        finally:
            os.close(handle)


if sys.platform == "win32":
    import msvcrt
    import time

    def _lock(handle: int, wait: bool) -> bool:
        while True:
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.05)
else:
    import fcntl

    def _lock(handle: int, wait: bool) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True
