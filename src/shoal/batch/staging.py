"""A folder of reports that appears whole, once, or not at all, whoever writes it and dies.

Tasks on many machines write attempts: a task that fails, is thought to be lost, or is slow is begun
again, and so the answers of one part may be randomized several times. **Only one attempt of each
part is ever visible**, because two versions of a report would let a reader average the flips away:

* Every attempt writes a file of its own, with a random name, in a hidden folder beside the one that
  is to appear. Only the owner can open the hidden folder.
* One process, which began the work, hears of the attempts. It moves one file of each part to a
  second hidden folder, which no attempt writes to.
* This second folder gets the name that was asked for, in one step of the file system. The step
  fails if the name is taken, so of two works for one name only one is published.
* What is left of the other attempts is deleted. An attempt that still writes finds its folder gone.

Killed before the one step, nothing is visible. Killed after it, all of it is visible. What is left
is deleted by the next work for this name, which is refused if the reports are there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from glob import escape
from pathlib import Path
from typing import Self

from shoal.errors import InputError
from shoal.protocol.random_bits import SystemBits
from shoal.support.disk import Disk

__all__ = ["Staging", "attempt_path"]

_TWO_VERSIONS = (
    "no answer may be reported in two versions: use what is there, or name a new folder for other"
    " answers"
)


class Staging(AbstractContextManager["Staging"]):
    """The hidden folder in which the reports for `folder` come to be.

    When the block ends, all of it that was not published is deleted.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._hidden = self._folder.with_name(f"{_prefix(self._folder)}{_token()}")
        self.attempts = self._hidden / "attempts"
        """Where tasks write; they must not make it if it is gone."""

    def __enter__(self) -> Self:
        try:
            for left in self._folder.parent.glob(f"{escape(_prefix(self._folder))}*"):
                _remove(left)
            self._check_free()
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._hidden.mkdir(mode=0o700)
            self.attempts.mkdir()
        except OSError as error:
            raise InputError(f"cannot write to {self._folder}: {error.strerror}.") from error
        return self

    def _check_free(self) -> None:
        if self._folder.exists() and not (
            self._folder.is_dir() and not any(self._folder.iterdir())
        ):
            raise InputError(f"{self._folder} is there already; {_TWO_VERSIONS}.")

    def publish(self, chosen: Mapping[int, str]) -> None:
        """Let the folder appear, with one attempt of each part, by its number and its file name."""
        reports, disk = self._hidden / "reports", Disk()
        try:
            reports.mkdir()
            for part, name in chosen.items():
                os.rename(self.attempts / name, reports / f"part-{part:05}{Path(name).suffix}")
            disk.sync_folder(reports)
            os.rename(reports, self._folder)
            disk.sync_folder(self._folder.parent)
        except FileNotFoundError as error:
            raise InputError(
                f"another process has begun to write {self._folder} and removed what this one"
                " wrote; nothing of it was published."
            ) from error
        except OSError as error:
            raise InputError(
                f"cannot publish {self._folder}: {error.strerror}; {_TWO_VERSIONS}."
            ) from error

    def __exit__(self, *error: object) -> None:
        _remove(self._hidden)


def attempt_path(attempts: Path, part: int) -> Path:
    """Return a name for one attempt to write a part, which no other attempt has."""
    return attempts / f"part-{part:05}-{_token()}.parquet"


def _prefix(folder: Path) -> str:
    return f".{folder.name}.unpublished-"


def _token() -> str:
    return SystemBits().draw(16).hex()


def _remove(hidden: Path) -> None:
    """Delete a hidden folder, after nobody can publish it or open a new file in it any more.

    What the system does not let go of now, the next work for this name deletes.
    """
    away = hidden.with_name(hidden.name.rpartition("-")[0] + f"-{_token()}")
    try:
        os.rename(hidden, away)
    except FileNotFoundError:
        return
    shutil.rmtree(away, ignore_errors=True)
