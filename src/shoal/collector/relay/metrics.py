"""The relay's metrics: those of a collector, and how whole crowds get on."""

from __future__ import annotations

from shoal.collector.console.metrics import Metrics

__all__ = ["RelayMetrics"]


class RelayMetrics(Metrics):
    """What a relay tells about itself; nothing of it is about an open crowd."""

    def __init__(self) -> None:
        super().__init__()
        self._forwarded = self._counter("shoal_crowds_forwarded", "Crowds that have arrived.")
        self._failures = self._counter(
            "shoal_forward_failures", "How often a crowd was not taken and is sent again."
        )
        self._waiting = self._gauge(
            "shoal_crowds_waiting", "Whole crowds that have not arrived yet."
        )

    def forwarded(self) -> None:
        """Count a crowd that has arrived."""
        self._forwarded.inc()

    def not_forwarded(self) -> None:
        """Count a crowd that was not taken this time."""
        self._failures.inc()

    def waiting(self, crowds: int) -> None:
        """Show how many whole crowds have not arrived."""
        self._waiting.set(crowds)
