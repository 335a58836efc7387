"""Prometheus metrics that are silent about open crowds.

A counter of reports, read every second, would tell when each came; so reports are counted when
their crowd is sealed. Refusals are counted as they happen, since nothing was taken.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from shoal import __version__
from shoal.collector.problems import Problem

__all__ = ["Metrics"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # the time of a first refusal is nobody's business


class Metrics:
    """What a collector tells about itself."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._refusals = Counter(
            "shoal_refusals", "Requests answered with a problem.", ["problem"],
            registry=self._registry,
        )  # fmt: skip
        self._crowds = Counter("shoal_crowds_sealed", "Crowds sealed.", registry=self._registry)
        self._reports = Counter(
            "shoal_reports_sealed", "Reports in sealed crowds.", registry=self._registry
        )
        self._plans = Gauge("shoal_plans", "Plans by state.", ["state"], registry=self._registry)
        about = Gauge("shoal_info", "The version.", ["version"], registry=self._registry)
        about.labels(__version__).set(1)

    def refused(self, problem: Problem) -> None:
        """Count a refusal."""
        self._refusals.labels(problem.name).inc()

    def sealed(self, reports: int) -> None:
        """Count a sealed crowd and its reports."""
        self._crowds.inc()
        self._reports.inc(reports)

    def text(self, plans: dict[str, int]) -> bytes:
        """Return all metrics in Prometheus' text format; `plans` counts plans by state."""
        for state, count in plans.items():
            self._plans.labels(state).set(count)
        return generate_latest(self._registry)
