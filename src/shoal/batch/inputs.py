"""Files as people name them: one by one, or a folder for all that is in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from shoal.errors import InputError

__all__ = ["files_of", "marks_of"]


def files_of(paths: Iterable[Path | str], suffixes: Sequence[str]) -> list[Path]:
    """Return the files, those of a folder with these suffixes in the order of their names.

    What a folder hides, with a leading dot or underscore, is not meant. A file that is named twice
    is an error: its reports would be counted twice.
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
