"""Services: collector, relay and analyzer, leader and helper, analyst. No party imports another.

Load names from here without loading a web server until one is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shoal.errors import missing_extra

if TYPE_CHECKING:
    from shoal.server.analyst import Analyst, serve_analyst
    from shoal.server.analyzer.service import Analyzer, serve_analyzer
    from shoal.server.collector import Collector, serve
    from shoal.server.core.settings import (
        AnalystSettings,
        AnalyzerSettings,
        HelperSettings,
        LeaderSettings,
        RelaySettings,
        Settings,
    )
    from shoal.server.helper import Helper, serve_helper
    from shoal.server.leader import Leader, serve_leader
    from shoal.server.relay.service import Relay, serve_relay

__all__ = [
    "Analyst", "AnalystSettings", "Analyzer", "AnalyzerSettings", "Collector", "Helper",
    "HelperSettings", "Leader", "LeaderSettings", "Relay", "RelaySettings", "Settings", "serve",
    "serve_analyst", "serve_analyzer", "serve_helper", "serve_leader", "serve_relay",
]  # fmt: skip


def _home(name: str) -> str:
    """Return the module of a name: settings have one of their own, so has each party."""
    if name.endswith("Settings"):
        return "core.settings"
    party = name.removeprefix("serve_").lower() if name != "serve" else "collector"
    # Other processes load parts of these two, which need no web server.
    return f"{party}.service" if party in ("analyzer", "relay") else party


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server at hand."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_home(name)}"), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{__name__}.{name}") from None
