"""How much one sender may send: a share of a crowd per connection, and a rate.

A sender is a connection, or an application or relay with its token. Nothing is remembered of a
connection that has closed. Whoever sends too much is refused, and nobody else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from shoal.protocol.plan import Plan
from shoal.server.core.settings import Settings

__all__ = ["Allowance", "DoorSettings", "Limits", "Sender", "limits_document"]


class DoorSettings(Protocol):
    """What settings say about how much a sender may send."""

    @property
    def reports_per_request(self) -> int:
        """Most reports in one request."""
        ...

    @property
    def largest_share(self) -> int:
        """Most per cent of a crowd from one connection."""
        ...

    @property
    def reports_per_second(self) -> int:
        """Most reports per second from one sender; 0 for no limit."""
        ...

    @property
    def largest_body(self) -> int:
        """Most bytes of a request."""
        ...


class Limits(NamedTuple):
    """How many reports of a plan may be sent without a relay's token."""

    of_request: int
    of_connection: int

    @classmethod
    def of(cls, plan: Plan, settings: DoorSettings) -> Limits:
        """Return the limits that the settings set for a plan.

        >>> from shoal import Flags, Survey
        >>> from shoal.protocol.flip_probability import FlipProbability
        >>> from shoal.protocol.plan import Promise
        >>> survey = Survey("s", (Flags("f", ("a",)),))
        >>> plan = Plan(survey, FlipProbability(1, 2), Promise("local", "9"), crowd_size=50_000)
        >>> Limits.of(plan, Settings())
        Limits(of_request=100, of_connection=500)
        """
        share = max(plan.reports_needed * settings.largest_share // 100, 1)
        return cls(min(settings.reports_per_request, share), share)


def limits_document(plan: Plan, settings: Settings) -> dict[str, object]:
    """Return the limits that keep one sender from filling a plan's crowd alone."""
    limits = Limits.of(plan, settings)
    shared = {"reports_per_second_at": "each process"} if settings.database else {}
    return {
        "token_needed": settings.ingest == "token",
        "reports_per_request": limits.of_request,
        "reports_per_connection": limits.of_connection,
        "reports_per_second": settings.reports_per_second or None,
        **shared,
        "not_for": "relays with a token",
    }


class Allowance:
    """So many reports a second, with bursts of up to one second's worth; 0 means no limit."""

    __slots__ = ("_at", "_clock", "_left", "_rate")

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = per_second, clock
        self._left, self._at = float(per_second), clock()

    def take(self, count: int) -> bool:
        """Return whether so many reports may be sent now; if so, charge them."""
        if not self._rate:
            return True
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, float(self._rate))
        self._at = now
        # A batch above one second's worth is accepted when nothing is owed, and paid off later.
        if self._left < min(count, self._rate):
            return False
        self._left -= count
        return True


class Sender:
    """One connection: how many reports of each plan it has sent, and how fast."""

    __slots__ = ("_allowance", "_reports")

    def __init__(self) -> None:
        self._reports: dict[str, int] = {}
        self._allowance: Allowance | None = None

    def allowance(self, per_second: int) -> Allowance:
        """Return the connection's own allowance."""
        if self._allowance is None:
            self._allowance = Allowance(per_second)
        return self._allowance

    def room(self, plan_id: str, limits: Limits) -> int:
        """Return how many reports of a plan the connection may still send, at least one.

        The answer to the last of them closes the connection in an orderly way. So a proxy that
        passes the requests of many people over one connection opens another, and a device that
        sends one report is never refused.
        """
        return limits.of_connection - self._reports.get(plan_id, 0)

    def charge(self, plan_id: str, count: int) -> None:
        """Count reports that were accepted for commit."""
        self._reports[plan_id] = self._reports.get(plan_id, 0) + count
