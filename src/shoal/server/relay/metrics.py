"""The relay's metrics: those of a collector, and how whole crowds get on."""

from __future__ import annotations

from shoal.server.core.observability import Metrics

__all__ = ["RelayMetrics"]


class RelayMetrics(Metrics):
    """What a relay tells about itself; nothing of it is about an open crowd."""

    def __init__(self) -> None:
        super().__init__()
        self._forwarded = self._counter("shoal_crowds_forwarded", "Crowds that have arrived.")
        self._failures = self._counter(
            "shoal_forward_failures", "How often a crowd was not taken and is sent again."
        )
        self._refused_crowds = self._counter(
            "shoal_crowds_refused", "Complete crowds discarded: the analyzer refused them for good."
        )
        self._waiting = self._gauge(
            "shoal_crowds_waiting", "Complete crowds that have not arrived yet."
        )
        self._without_key = self._gauge(
            "shoal_plans_without_key", "Open plans without a key for the current window."
        )

    def forwarded(self) -> None:
        """Count a crowd that has arrived."""
        self._forwarded.inc()

    def not_forwarded(self) -> None:
        """Count a crowd that was not taken this time."""
        self._failures.inc()

    def crowd_refused(self) -> None:
        """Count a crowd that the analyzer refused for good."""
        self._refused_crowds.inc()

    def state(self, *, waiting: int, without_key: int) -> None:
        """Show how many complete crowds have not arrived, and how many plans have no key."""
        self._waiting.set(waiting)
        self._without_key.set(without_key)
