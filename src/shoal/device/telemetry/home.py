"""The folder of a tool's telemetry: the person's own, and nobody else's.

There is no other place to fall back to. Where the folder cannot be written, telemetry is off.
"""

from __future__ import annotations

import os
import sys
from binascii import crc32
from collections.abc import Mapping

__all__ = [
    "agreement_folder",
    "make_private",
    "read_file",
    "state_folder",
    "store_file",
    "why_not_here",
]


def state_folder(tool: str, environ: Mapping[str, str]) -> str | None:
    """Return where a tool keeps its telemetry, or None where this user has no home.

    >>> state_folder("mytool", {"XDG_STATE_HOME": "/home/ada/state"})
    '/home/ada/state/mytool/telemetry'
    """
    if sys.platform == "win32":
        base = environ.get("LOCALAPPDATA", "")
    else:
        base = environ.get("XDG_STATE_HOME", "")
        home = environ.get("HOME", "")
        if not os.path.isabs(base) and os.path.isabs(home):  # a relative path means nothing here
            within = "Library/Application Support" if sys.platform == "darwin" else ".local/state"
            base = os.path.join(home, within)
    return os.path.join(base, tool, "telemetry") if os.path.isabs(base) else None


def why_not_here(folder: str | None) -> str | None:
    """Return why this user should not touch a folder, or None."""
    if folder is None:
        return "this user has no home folder"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Files of root in a person's home would keep the person from writing there.
        above = os.path.abspath(folder)
        while not os.path.exists(above):
            above = os.path.dirname(above)
        if os.stat(above).st_uid != 0:
            return "root is at work in somebody else's home folder"
    return None


def agreement_folder(home: str, agreement: bytes) -> str:
    """Return the folder of what a person says yes to: one plan, one address, one limit."""
    return os.path.join(home, f"{crc32(agreement):08x}")


def make_private(folder: str) -> None:
    """Make a folder that is missing, with those above it, for its owner alone.

    `os.makedirs` gives its mode to the last folder only.
    """
    if folder and not os.path.isdir(folder):
        make_private(os.path.dirname(folder))
        try:  # noqa: SIM105  contextlib takes longer to load than all of this
            os.mkdir(folder, 0o700)
        except FileExistsError:  # another process was faster
            pass


def read_file(*parts: str) -> bytes | None:
    """Return a small file's content, or None if there is none."""
    try:
        handle = os.open(os.path.join(*parts), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        content = b""
        while piece := os.read(handle, 1 << 20):
            content += piece
        return content
    finally:
        os.close(handle)


def store_file(folder: str, name: str, content: bytes) -> None:
    """Write a small file whole or not at all; a power cut may undo it, a crash does not."""
    make_private(folder)
    scratch = os.path.join(folder, f".{name}.{os.getpid()}")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)
    os.replace(scratch, os.path.join(folder, name))
