"""The chunks of crowds that are not open yet, as files: a crowd can have gigabytes.

They hold sealed messages only. Without the crowd's private key, which is in the database and is
wrapped under the file `crowd-key`, they are noise. So it does no harm if a disk keeps a block of a
file that was deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from shoal.collector.intake.database import StorageError, StorageFull, storage_errors
from shoal.support.disk import Disk

__all__ = ["CHUNK_FOLDER", "ChunkFiles"]

CHUNK_FOLDER = "chunks"
SCRATCH_FOLDER = "opening"
"""What is written while a crowd is opened, under a key that is in memory only."""


class ChunkFiles:
    """The chunks in a data folder, each crowd in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._disk = folder / CHUNK_FOLDER, Disk()
        self.scratch = folder / SCRATCH_FOLDER

    def path(self, plan_id: str, number: int, chunk: int) -> Path:
        """Return where a chunk is."""
        return self._crowd(plan_id, number) / str(chunk)

    def _crowd(self, plan_id: str, number: int) -> Path:
        return self._folder / f"{plan_id}-{number}"

    def write(self, plan_id: str, number: int, chunk: int, content: bytes) -> None:
        """Write a chunk durably, whole or not at all."""
        path = self.path(plan_id, number, chunk)
        with storage_errors():
            self._disk.make_folder(path.parent)
            self._disk.store(path, content, "part")

    def check_space(self, wanted: int, spare: int) -> None:
        """Refuse to begin what would leave less than `spare` bytes of the disk."""
        with storage_errors():
            free = shutil.disk_usage(self._folder.parent).free
        if free - wanted < spare:
            raise StorageFull("no space is left for a crowd's chunks.")

    def read(self, plan_id: str, number: int, chunk: int) -> bytes:
        """Return a chunk."""
        try:
            return self.path(plan_id, number, chunk).read_bytes()
        except OSError as error:
            raise StorageError(f"a chunk cannot be read: {error.strerror}.") from error

    def sweep(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Remove the chunks of all crowds but some: crowds that have ended, or never began."""
        kept = {self._crowd(*crowd) for crowd in wanted}
        with storage_errors():
            if self._folder.exists():
                for crowd in [path for path in self._folder.iterdir() if path not in kept]:
                    shutil.rmtree(crowd)

    def clear_scratch(self) -> None:
        """Remove what an interrupted opening left, as far as none of its processes still writes."""
        shutil.rmtree(self.scratch, ignore_errors=True)
