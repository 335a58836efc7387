"""Crashes on order: a clock, a disk and steps that fail where a test says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from shoal.support.disk import Disk


class Clock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Crash(BaseException):
    """The process dies here."""


class Faults:
    """Counts steps and crashes at one of them."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at, self.labels = crash_at, list[str]()

    def step(self, label: str) -> None:
        self.labels.append(label)
        if len(self.labels) - 1 == self.crash_at:
            raise Crash(label)


class FaultyDisk(Disk):
    """Crashes before, within and after every primitive, and knows what a power cut would undo.

    What is written is volatile until `sync_file`; renaming, deleting and making folders until
    `sync_folder`. Nothing is really synced, so that the tests are quick.
    """

    def __init__(self, faults: Faults, before: FaultyDisk | None = None) -> None:
        self.faults = faults
        self.unsynced: set[Path] = before.unsynced if before else set()
        self.undo: list[tuple[Path, Callable[[], object]]] = before.undo if before else []

    def power_cut(self) -> None:
        for path in self.unsynced:
            if path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        for _, undo in reversed(self.undo):
            undo()
        self.unsynced, self.undo = set(), []

    def _around(self, label: str, work: Callable[[], None]) -> None:
        self.faults.step(f"before {label}")
        work()
        self.faults.step(f"after {label}")

    def _restore(self, path: Path) -> None:
        """Make a power cut bring back what stands at a path now."""
        old = path.read_bytes() if path.exists() else None
        back = (lambda: path.write_bytes(old)) if old is not None else path.unlink
        self.undo.append((path.parent, back))

    def mkdir(self, folder: Path) -> None:
        def work() -> None:
            self.undo.append((folder.parent, lambda: shutil.rmtree(folder, ignore_errors=True)))
            Disk.mkdir(self, folder)

        self._around("mkdir", work)

    def write(self, path: Path, content: bytes) -> None:
        self.faults.step("before write")
        self.unsynced.add(path)
        super().write(path, content[: len(content) // 2])
        self.faults.step("within write")
        super().write(path, content)
        self.faults.step("after write")

    def sync_file(self, path: Path) -> None:
        self._around("sync_file", lambda: self.unsynced.discard(path))

    def replace(self, source: Path, target: Path) -> None:
        def work() -> None:
            self._restore(target)
            Disk.replace(self, source, target)
            if source in self.unsynced:
                self.unsynced = self.unsynced - {source} | {target}

        self._around("replace", work)

    def unlink(self, path: Path) -> None:
        def work() -> None:
            if path.exists():
                self._restore(path)
            Disk.unlink(self, path)

        self._around("unlink", work)

    def sync_folder(self, folder: Path) -> None:
        def work() -> None:
            self.undo = [entry for entry in self.undo if entry[0] != folder]

        self._around("sync_folder", work)


class QuickDisk(Disk):
    """A disk that needs no syncing, where nothing crashes."""

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass
