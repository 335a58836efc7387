"""The files of the client for web pages: in a checkout `clients/js`, installed beside this file."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import InputError

__all__ = ["client_files"]

_INSTALLED = Path(__file__).parent / "client"
_CHECKOUT = Path(__file__).parents[4] / "clients" / "js"


def client_files() -> dict[str, bytes]:
    """Return what a page loads, by the path that the client's files know each other by."""
    for folder in (_INSTALLED, _CHECKOUT):
        entry = folder / "shoal.js"
        if entry.is_file():
            parts = sorted((folder / "src").glob("*.js"))
            return {
                path.relative_to(folder).as_posix(): path.read_bytes() for path in (entry, *parts)
            }
    raise InputError("the client for web pages is not installed here; install shoal again.")
