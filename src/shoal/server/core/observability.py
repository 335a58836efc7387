"""Metrics and logs, which show nothing about open crowds.

A counter of reports, read every second, would show when each report arrived. So reports are counted
when their crowd is released or discarded, in the latter case rounded down to a tenth of the crowd.
For the same reason the duration of commits is the longest of a period, the queue is rounded to
10 % and the size of the data to megabytes. Refusals are counted as they happen, since refused
reports are not counted. Logs are JSON lines about the service and never about a report; times are
rounded to the minute, since a line may mark the report that completed a crowd.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from shoal import __version__

disable_created_metrics()  # type: ignore[no-untyped-call]  # the time of a first refusal is private


class Metrics:
    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.refusals = self._counter(
            "shoal_refusals", "Requests and connections refused, by problem.", ["problem"]
        )
        self._released = self._counter("shoal_crowds_released", "Crowds released.")
        self._reports = self._counter("shoal_reports_released", "Reports in released crowds.")
        self._discarded = self._counter("shoal_crowds_discarded", "Crowds discarded.")
        self._lost = self._counter(
            "shoal_reports_discarded", "Reports in discarded crowds, down to a tenth of each crowd."
        )
        self.unreadable = self._counter(
            "shoal_messages_unreadable", "Messages of released crowds that could not be read."
        )
        self.clock_steps = self._counter("shoal_clock_steps", "How often the clock jumped.")
        self._held = self._gauge("shoal_clock_held", "Whether the clock is distrusted.")
        self._queue = self._gauge("shoal_queue_fill", "How full the queue for the disk is, 0 to 1.")
        self._commit = self._gauge(
            "shoal_commit_seconds",
            "The longest commit of the last half minute, up to a power of 2.",
        )
        self._size = self._gauge("shoal_data_bytes", "Size of the data, up to a megabyte.")
        self._plans = self._gauge("shoal_plans", "Plans by state.", ["state"])
        self._gauge("shoal_info", "The version.", ["version"]).labels(__version__).set(1)
        self._longest = 0.0

    def _counter(self, name: str, help: str, labels: list[str] | None = None) -> Counter:
        return Counter(name, help, labels or [], registry=self._registry)

    def _gauge(self, name: str, help: str, labels: list[str] | None = None) -> Gauge:
        return Gauge(name, help, labels or [], registry=self._registry)

    def released(self, reports: int) -> None:
        self._released.inc()
        self._reports.inc(reports)

    def discarded(self, reports: int) -> None:
        """Count a discarded crowd, and its reports down to a tenth of the crowd."""
        self._discarded.inc()
        self._lost.inc(reports)

    def committed(self, seconds: float) -> None:
        self._longest = max(self._longest, seconds)

    def turn(self) -> None:
        """Show the longest commit since the last turn (there always is one), and begin anew."""
        self._commit.set(2.0 ** math.ceil(math.log2(max(self._longest, 2.0**-12))))
        self._longest = 0.0

    def text(
        self, *, plans: Mapping[str, int], queue: float, data_bytes: int, clock_is_held: bool
    ) -> bytes:
        """Return all metrics in Prometheus' text format; `plans` counts plans by state."""
        for state, count in plans.items():
            self._plans.labels(state).set(count)
        self._queue.set(int(10 * queue) / 10)
        self._size.set(-(-data_bytes // 10**6) * 10**6)
        self._held.set(int(clock_is_held))
        return generate_latest(self._registry)


LOG = logging.getLogger("shoal.server")


class _Lines(logging.Formatter):
    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        minute = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self._clock() // 60 * 60))
        # The event loop's messages show the objects at hand, which may hold request data.
        event = record.getMessage() if record.name != "asyncio" else "the event loop complains"
        line = {"time": minute, "level": record.levelname.lower(), "event": event}
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0] is not None:
            # Where it failed, but no message: it might hold request data.
            line["error"] = record.exc_info[0].__name__
            line["at"] = _place(record)
        return json.dumps(line, ensure_ascii=False)


def _place(record: logging.LogRecord) -> str:
    assert record.exc_info
    trace = record.exc_info[2]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


def log_to(
    level: str, stream: TextIO | None = None, clock: Callable[[], float] = time.time
) -> logging.Handler:
    """Send the service's log, and the errors of the event loop, to a stream."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines(clock))
    for name in ("shoal.server", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level.upper() if name == "shoal.server" else "ERROR")
        logger.propagate = False
    return handler
