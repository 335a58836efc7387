"""The chunks of crowds that are not open yet, as files: a crowd can have gigabytes.

They hold encrypted messages only. Without the crowd's private key, which is in the database and is
wrapped under the file `crowd-key`, they are noise. So it does no harm if a disk keeps a block of a
file that was deleted.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from shoal.server.core.observability import LOG
from shoal.server.storage.database import StorageFull, storage_errors
from shoal.support.disk import Disk

__all__ = ["CHUNK_FOLDER", "ArrivedChunks", "ChunkFile", "damaged_chunks"]

CHUNK_FOLDER = "chunks"
SCRATCH_FOLDER = "opening"
"""What is written while a crowd is opened, under a key that is in memory only."""

_CROWD_NAME = re.compile("[0-9a-f]{64}-[0-9]+")


class ChunkFile(NamedTuple):
    """A chunk on the disk: its number, its path, and its SHA-256 when it arrived."""

    number: int
    path: Path
    digest: str

    @property
    def is_damaged(self) -> bool:
        """Whether the file is missing or has changed since it arrived."""
        try:
            content = self.path.read_bytes()
        except OSError:  # a chunk that cannot be read is as bad as a lost one
            return True
        return hashlib.sha256(content).hexdigest() != self.digest


def damaged_chunks(files: Iterable[ChunkFile]) -> list[int]:
    """Return the numbers of the damaged chunks; reads all chunks."""
    return [file.number for file in files if file.is_damaged]


class ArrivedChunks:
    """The chunks in a data folder, each crowd in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._disk = folder / CHUNK_FOLDER, Disk()
        self._foreign: set[str] = set()
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

    def sweep(self, wanted: Iterable[tuple[str, int]]) -> None:
        """Remove the chunks of all crowds except some: crowds that have ended, or never began.

        Names that are not a crowd's are left alone, and logged once.
        """
        kept = {self._crowd(*crowd) for crowd in wanted}
        with storage_errors():
            if not self._folder.exists():
                return
            for path in list(self._folder.iterdir()):
                if _CROWD_NAME.fullmatch(path.name) is None:
                    if path.name not in self._foreign:
                        self._foreign.add(path.name)
                        LOG.warning(
                            "a foreign file is left alone", extra={"facts": {"path": str(path)}}
                        )
                elif path not in kept:
                    shutil.rmtree(path)

    def clear_scratch(self) -> None:
        """Remove what an interrupted opening left, as far as none of its processes still writes."""
        shutil.rmtree(self.scratch, ignore_errors=True)
