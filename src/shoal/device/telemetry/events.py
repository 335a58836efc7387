"""What happened in a tool, line by line, in one file for each window.

A line is written at once and in one piece, so that a killed process loses nothing and several can
write at a time. A line that is there already is not written again: events only ever become flags,
first answers and largest numbers. Only counts repeat.

The files hold true answers. They stay on this machine, in a folder that only its owner reads, and
are deleted when the window's report is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from shoal.device.telemetry.home import read_file

__all__ = ["LARGEST", "PREFIX", "append_event", "event_line", "event_windows", "file_name"]

LARGEST = 1 << 20
"""Bytes of one window's events; what comes after that is dropped."""

PREFIX = "events."
"""How the names of the files begin; the window's number follows."""


def event_line(kind: str, values: Mapping[str, object]) -> bytes:
    r"""Return one event as a line: a Python literal, which needs no library to write.

    >>> event_line("record", {"command": "build", "flags": {"b", "a"}})
    b"('record', {'command': 'build', 'flags': ['a', 'b']})\n"
    """
    plain = {str(name): _plain(value) for name, value in values.items()}
    return ascii((kind, plain)).encode() + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted(str(one) for one in value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return str(value)


def file_name(window: int) -> str:
    """Return the name of the file with a window's events."""
    return f"{PREFIX}{window}"


def append_event(folder: str, window: int, line: bytes) -> None:
    """Write an event into its window's file, unless it is there already."""
    path = os.path.join(folder, file_name(window))
    known = read_file(path) or b""
    if len(known) + len(line) > LARGEST:
        return
    if not line.startswith(b"('count'") and (known.startswith(line) or b"\n" + line in known):
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def event_windows(folder: str) -> Iterator[int]:
    """Yield the windows that have events."""
    for name in os.listdir(folder):
        number = name.removeprefix(PREFIX)
        if name != number and number.isdigit():
            yield int(number)
