"""Services: collector, relay, analyzer and console. No party imports another.

Load names from here without loading a web server until one is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from shoal.errors import missing_extra

if TYPE_CHECKING:
    from shoal.server.analyzer.service import Analyzer, serve_analyzer
    from shoal.server.collector.service import Collector, serve
    from shoal.server.core.settings import AnalyzerSettings, RelaySettings, Settings
    from shoal.server.relay.service import Relay, serve_relay

__all__ = [
    "Analyzer", "AnalyzerSettings", "Collector", "Relay", "RelaySettings", "Settings",
    "serve", "serve_analyzer", "serve_relay",
]  # fmt: skip

_HOME = {
    "Analyzer": "analyzer.service",
    "AnalyzerSettings": "core.settings",
    "Collector": "collector.service",
    "Relay": "relay.service",
    "RelaySettings": "core.settings",
    "Settings": "core.settings",
    "serve": "collector.service",
    "serve_analyzer": "analyzer.service",
    "serve_relay": "relay.service",
}


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server at hand."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{__name__}.{name}") from None
