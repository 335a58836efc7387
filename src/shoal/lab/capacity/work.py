"""What one kind of work costs on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

__all__ = ["Meter", "Work", "folder_bytes", "processor_seconds"]


@dataclass(frozen=True)
class Work:
    """So many units of work, what they took, and how many bytes each leaves on the disk."""

    name: str
    unit: str
    count: int
    seconds: float
    core_seconds: float
    disk_bytes_each: float = 0.0

    @property
    def rate(self) -> float:
        """Units a second, as the clock on the wall shows."""
        return self.count / self.seconds

    @property
    def core_seconds_each(self) -> float:
        """Processor time of one unit."""
        return self.core_seconds / self.count

    def to_json(self) -> dict[str, Any]:
        """Return what was measured and what follows for one unit."""
        return {
            "work": self.name,
            "unit": self.unit,
            "count": self.count,
            "seconds": self.seconds,
            "core_seconds": self.core_seconds,
            "per_second": self.rate,
            "core_seconds_each": self.core_seconds_each,
            "disk_bytes_each": self.disk_bytes_each,
        }


class Meter:
    """Adds up the time that passes, and the processor time of this process and its children.

    >>> meter = Meter()
    >>> with meter:
    ...     total = sum(range(1000))
    >>> meter.work("adding", "number", 1000).count
    1000
    """

    def __init__(self, processor: Callable[[], float] | None = None) -> None:
        self._processor = _own_seconds if processor is None else processor
        self.seconds = self.core_seconds = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter(), self._processor()
        return self

    def __exit__(self, *error: object) -> None:
        start, processor = self._start
        self.seconds += time.perf_counter() - start
        self.core_seconds += self._processor() - processor

    def work(self, name: str, unit: str, count: int, disk_bytes_each: float = 0.0) -> Work:
        """Return what was measured, for so many units."""
        return Work(name, unit, count, self.seconds, self.core_seconds, disk_bytes_each)


def _own_seconds() -> float:
    return sum(os.times()[:4])


def processor_seconds(process: int) -> float:
    """Return the processor time of another process; the time that passes where none can be read.

    A service is one process that uses at most one core for long: this errs to the safe side.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.perf_counter()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def folder_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder take on the disk."""
    found = [path.stat() for path in folder.rglob("*") if path.is_file()]
    # Blocks where the system counts them: a file may be longer than what it takes.
    return sum(getattr(state, "st_blocks", -(-state.st_size // 512)) * 512 for state in found)
