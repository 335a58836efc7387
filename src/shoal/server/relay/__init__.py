"""The relay: accepts encrypted reports, waits for a crowd, shuffles it, and forwards it complete.

The relay knows who sends and cannot read; the analyzer reads and does not know who sent. A complete
crowd is *frozen* in a transaction: from then on nothing changes who is in it. `forwarding` shuffles
its messages, stores them as chunks, and sends them until the analyzer has signed for all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.server.core.settings import RelaySettings
    from shoal.server.relay.service import Relay, serve_relay

__all__ = ["Relay", "RelaySettings", "serve_relay"]

_HOME = {"Relay": "relay.service", "RelaySettings": "core.settings", "serve_relay": "relay.service"}


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"shoal.server.{_HOME[name]}"), name)
