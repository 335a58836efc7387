"""The relay: takes sealed reports, waits for a crowd, shuffles it, and forwards it whole.

The relay knows who sends and cannot read; the analyzer reads and does not know who sent. The way
of a sealed report: `sealed_ingest` reads it, the collector's `group_commit` gathers what arrives at
the same time, `store` puts it into the open crowd of its window in one durable transaction. A whole
crowd is *frozen* in a later transaction: from then on nothing changes who is in it. Then its
messages are shuffled, kept as chunks, and sent to the analyzer until it has signed that it has all
of them.

==============  =============================================================================
`Relay`         the whole service as one object, with two ASGI apps: `public` and `ops`
`RelaySettings` all settings, in one table
`serve_relay`   runs both apps on their addresses until a signal stops it
==============  =============================================================================

* on the disk: `schema`, `store`; of each plan `open_plan`, of each open crowd `sealed_crowd`; of
  each frozen crowd `frozen_crowds`, `shuffling` and `chunk_files`; in a database that several
  relays share: `shoal.server.storage.postgres`
* towards the analyzer: `analyzer` (asks it, and checks what it signed), `crowd_keys` (keeps keys
  of crowds at hand), `forwarding`
* listeners: `sealed_ingest` and `public` for devices, with other relays on the same database
  `following`; `ops` for operators
* `service`, `server`, `settings`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.server.relay.server import serve_relay
    from shoal.server.relay.service import Relay
    from shoal.server.relay.settings import RelaySettings

__all__ = ["Relay", "RelaySettings", "serve_relay"]

_HOME = {"Relay": "service", "RelaySettings": "settings", "serve_relay": "server"}


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server at hand."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
