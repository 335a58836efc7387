"""The collector: receives reports, hides them in crowds, and shows a crowd or nothing.

The way of a report: `ingest` reads it, `committing` gathers what arrives together, `store` folds it
into the open crowd in one durable transaction. A crowd that is complete is sealed in a later one,
off the way of any answer. There is no way to read a crowd that is open.

=============  ============================================================================
`Collector`    the whole service as one object, with two ASGI apps: `public` and `console`
`Settings`     what can be set, in one table
`serve`        both apps on their addresses until a signal comes
=============  ============================================================================

Inside, by what they do:

* reports: `listening` (connections), `ingest` with `senders` (what each may bring) and `relayed`,
  `committing`, `store` with `open_plan`, `crowd`, `seen` and `keys` (the keys of open crowds)
* data over time: `database`, `clock`, `continuity` (files that belong together), `upgrading`,
  `backup`
* plans: `life` (what may become of one), `certifying`, `signing`
* people: `console` (the table of operations), `handlers`, `reading`, `writing`, `pages`, `tokens`
* documents: `operations` (OpenAPI), `problems` (RFC 9457), `answers`, `public`
* the rest: `service`, `serving`, `logs`, `metrics`; `doctor` checks a
  deployment, with `premises` (the folder), `reaching` (what answers), `proxies` and
  `proxy_languages` (what a reverse proxy would give away) and `findings`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.collector.server import serve
    from shoal.collector.service import Collector
    from shoal.collector.settings import Settings

__all__ = ["Collector", "Settings", "serve"]

_HOME = {"Collector": "service", "Settings": "settings", "serve": "server"}


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server at hand."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
