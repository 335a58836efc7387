"""The collector: receives reports, hides them in crowds, and shows a whole crowd or nothing.

The way of a report: `intake.ingest` reads it, `intake.group_commit` collects what arrives at the
same time, `intake.store` counts it into the open crowd in one durable transaction. A complete crowd
is sealed in a later transaction, so that no answer waits for it. An open crowd cannot be read.

=============  ============================================================================
`Collector`    the whole service as one object, with two ASGI apps: `public` and `console`
`Analyzer`     a collector for sealed reports, which come through a relay (`analyzer`)
`Settings`     all settings, in one table
`serve`        runs both apps on their addresses until a signal stops it
=============  ============================================================================

* `intake`: `connections`, `device_ingest` and `ingest`, `limits` (how much one sender may send),
  `relay_batches`, `group_commit`, `keyed_store` and `store`; of each plan `windows`, `open_plan`,
  `open_crowd` and `duplicates`; on the disk `database`, `records` and `encryption` (the keys of
  open crowds)
* `console`: for programs `app` (the table of operations), `routes`, `handlers`, `parameters`,
  `requests`, `responses`, `answers`, `errors`, `searches` and `openapi`; for people `web` (the
  pages), `layout`, `forms`, `survey_pages`, `crowd_pages`, `planner_pages`, `admin_pages` and
  `windows`; for both `sealed_crowds`, `planning`, `sessions`, `actions`, `metrics`, `tokens` and
  `token_admin`
* `public`: the listener for devices, `cors`: leave for web pages to use it; `http`: what both
  listeners read of a request; `problems`: error documents (RFC 9457)
* plans: `plan_states`, `publication` (whether a plan is accepted, and its certificate), `signing`
* data over time: `clock`, `consistency` (files that belong together), `backup`, `addresses`
* `running` (what every service does while it runs), `service`, `server`, `logs`; `doctor` checks a
  deployment; `relay` is a service of its own, made of the same parts
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.collector.analyzer.service import Analyzer
    from shoal.collector.server import serve
    from shoal.collector.service import Collector
    from shoal.collector.settings import Settings

__all__ = ["Analyzer", "Collector", "Settings", "serve"]

_HOME = {
    "Analyzer": "analyzer.service",
    "Collector": "service",
    "Settings": "settings",
    "serve": "server",
}


def __getattr__(name: str) -> object:
    """Load a part when it is used: settings are read without a web server at hand."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
