"""Small files that survive a crash and that several processes share.

A file is replaced atomically: the new content is synced under another name, then renamed, then the
folder is synced. A reader sees the old content or the new one. Who reads in order to write holds a
lock, which the system releases when its holder dies.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.errors import InputError, ShoalError
from shoal.support.files import read_file

_PAUSE = 0.005
_PRIVATE = 0o600
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""In a folder that others write to, a link under our name would send what we write elsewhere."""


class Disk:
    """What the device asks of a file system; a test can fail between any two of its primitives.

    `store` and `remove` have happened for good when they return; interrupted, they have happened
    or they have not.
    """

    def store(self, path: pathlib.Path, content: bytes, scratch: str) -> None:
        """Write a file whole or not at all, durably, under the name `scratch` first.

        The caller holds the lock that belongs to the scratch file.
        """
        part = path.with_name(scratch)
        self.write(part, content)
        self.sync_file(part)
        self.replace(part, path)
        self.sync_folder(path.parent)

    def remove(self, path: pathlib.Path) -> None:
        """Delete a file durably; one that is gone already is fine."""
        self.unlink(path)
        self.sync_folder(path.parent)

    def make_folder(self, folder: pathlib.Path) -> None:
        """Make a folder that only its owner reads, durably.

        One that is there already may have been made by a process that was killed before it could
        sync, so it is synced in any case.
        """
        if not folder.parent.is_dir():
            self.make_folder(folder.parent)
        if not folder.is_dir():
            self.mkdir(folder)
        # A folder above may not be ours, and stood there before.
        with contextlib.suppress(PermissionError):
            self.sync_folder(folder.parent)

    def close_folder(self, folder: pathlib.Path) -> None:
        """Remove other users' access to a folder of this user."""
        if self.is_open_to_others(folder):
            folder.chmod(0o700)

    def is_open_to_others(self, folder: pathlib.Path) -> bool:
        """Whether a folder belongs to this user, and other users may open it."""
        found = folder.stat()
        mine = hasattr(os, "geteuid") and found.st_uid == os.geteuid()
        return mine and bool(found.st_mode & 0o077)

    def mkdir(self, folder: pathlib.Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, path: pathlib.Path, content: bytes) -> None:
        """Write a file from its beginning; it is not on the disk before `sync_file`."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK, _PRIVATE)
        with open(handle, "wb") as file:
            file.write(content)

    def sync_file(self, path: pathlib.Path) -> None:
        """Wait until a file's content is on the disk."""
        handle = os.open(path, os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def replace(self, source: pathlib.Path, target: pathlib.Path) -> None:
        os.replace(source, target)

    def unlink(self, path: pathlib.Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: pathlib.Path) -> None:
        """Wait until a folder's names are on the disk."""
        if sys.platform == "win32":
            return  # a folder cannot be opened there; the rename itself is journaled
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextmanager
    def lock(self, path: pathlib.Path, *, patience: float = float("inf")) -> Iterator[bool]:
        """Hold a lock among threads and processes; yields False if it was not to be had in time.

        The lock file stays: to remove it would let two holders in.
        """
        handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, _PRIVATE)
        try:
            until = time.monotonic() + patience
            while not (held := _try_lock(handle)) and time.monotonic() < until:
                time.sleep(_PAUSE)
            try:
                yield held
            finally:
                if held:  # closing is not enough where a fork has the handle too
                    _unlock(handle)
        finally:
            os.close(handle)


class SharedFile:
    """One file that several processes change, one after another."""

    def __init__(
        self, path: pathlib.Path | str, what: str, timeout: float, disk: Disk | None
    ) -> None:
        # The same file and lock after a change of directory, or through a link.
        self.path = pathlib.Path(path).resolve()
        self._what, self._timeout = what, timeout
        self._disk = Disk() if disk is None else disk

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep every other thread and process from changing the file."""
        lock = self.path.with_name(self.path.name + ".lock")
        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(self._disk.lock(lock, patience=self._timeout))
            except OSError as problem:
                reason = problem.strerror or "unwritable"
                raise InputError(f"cannot open {lock}: {reason}.") from problem
            if not held:
                raise ShoalError(
                    f"{self.path} was in use by another process for {self._timeout:g} seconds;"
                    " try again."
                )
            yield

    def read(self) -> bytes | None:
        """Return the content, or None if there is no such file."""
        try:
            return read_file(self.path, self._what)
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def write(self, content: bytes) -> None:
        """Replace the content, durably; the caller is `changing` it."""
        try:
            self._disk.store(self.path, content, self.path.name + ".part")
        except OSError as problem:
            reason = problem.strerror or "unwritable"
            raise InputError(f"cannot write {self.path}: {reason}.") from problem


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

    def _try_lock(handle: int) -> bool:
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)
