"""What one sender may bring: a part of a crowd for each connection, a rate for whoever spends it.

A sender is a connection, or an application or relay with its token. Nothing of it is kept when it
has gone, and nobody pays for somebody else: who sends too much is refused alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from shoal.agreement.plan import Plan
from shoal.agreement.wire import batch_bytes
from shoal.collector.settings import Settings

__all__ = ["Allowance", "Limits", "Sender", "limits_document"]


class Limits(NamedTuple):
    """How many reports of a plan may come without a relay's token."""

    of_request: int
    of_connection: int

    @classmethod
    def of(cls, plan: Plan, settings: Settings) -> Limits:
        """Return the limits that the settings mean for a plan.

        >>> from shoal import Flags, FlipProbability, Promise, Survey
        >>> survey = Survey("s", (Flags("f", ("a",)),))
        >>> plan = Plan(survey, FlipProbability(1, 2), Promise("local", "9"), crowd_size=50_000)
        >>> Limits.of(plan, Settings())
        Limits(of_request=100, of_connection=500)
        """
        share = max(plan.reports_needed * settings.largest_share // 100, 1)
        return cls(min(settings.reports_per_request, share), share)

    def largest_body(self, plan: Plan) -> int:
        """Return the bytes of the largest request in the binary form."""
        return batch_bytes(plan, self.of_request)


def limits_document(plan: Plan, settings: Settings) -> dict[str, object]:
    """Return what the collector enforces against whoever would fill a plan's crowd alone."""
    limits = Limits.of(plan, settings)
    return {
        "token_needed": settings.ingest == "token",
        "reports_per_request": limits.of_request,
        "reports_per_connection": limits.of_connection,
        "reports_per_second": settings.reports_per_second or None,
        "not_for": "relays with a token",
    }


class Allowance:
    """So many reports a second, and a second's worth at once; 0 for as many as come."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = per_second, clock
        self._left, self._at = float(per_second), clock()

    def take(self, count: int) -> bool:
        """Whether so many reports may come now; if so, they are charged."""
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        # A batch larger than a second's worth goes when nothing is owed, and is paid off after.
        if self._left < min(count, self._rate):
            return False
        self._left -= count
        return True


class Sender:
    """One connection: what it has brought to the crowds of each plan, and how fast."""

    def __init__(self) -> None:
        self._brought: Counter[str] = Counter()
        self._allowance: Allowance | None = None

    def allowance(self, per_second: int) -> Allowance:
        """Return the connection's own allowance."""
        if self._allowance is None:
            self._allowance = Allowance(per_second)
        return self._allowance

    def room(self, plan: Plan, limits: Limits) -> int:
        """Return how many reports of a plan the connection may still bring, at least one.

        With the last of them it ends, in order. So a proxy that passes the requests of many people
        on one connection opens another, and a device that sends one report is never refused.
        """
        return limits.of_connection - self._brought[plan.id]

    def brings(self, plan: Plan, count: int) -> None:
        """Count reports that were let in."""
        self._brought[plan.id] += count
