"""Where a running collector listens: a file in its data folder, for commands on the same machine.

The file is written when the collector is ready and removed when it stops. After a crash it is
left behind, so whoever reads it must expect that nothing answers.
"""

from __future__ import annotations

import json
from pathlib import Path

from shoal.errors import InputError
from shoal.server.core.settings import address
from shoal.support.disk import Disk
from shoal.support.files import read_json

__all__ = ["ADDRESSES_FILE", "own_url", "read_addresses", "remove_addresses", "write_addresses"]

ADDRESSES_FILE = "addresses.json"


def write_addresses(folder: Path, urls: dict[str, str]) -> None:
    """Write the URLs of a collector's listeners, by the names `public` and `console`."""
    Disk().store(folder / ADDRESSES_FILE, json.dumps(urls).encode(), f"{ADDRESSES_FILE}.part")


def remove_addresses(folder: Path) -> None:
    """Remove the file."""
    (folder / ADDRESSES_FILE).unlink(missing_ok=True)


def read_addresses(folder: Path) -> dict[str, str]:
    """Return the URLs that were written last; nothing if there are none that can be read."""
    try:
        document = read_json(folder / ADDRESSES_FILE, "list of addresses", InputError)
    except InputError:
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: url for name, url in document.items() if isinstance(url, str)}


def own_url(where: str) -> str:
    """Return the URL at which this machine reaches an address that a collector listens at.

    >>> own_url("0.0.0.0:8400"), own_url("[::]:8400")
    ('http://127.0.0.1:8400', 'http://[::1]:8400')
    """
    host, port = address(where)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  asked, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
