"""How plans reach the device and reports leave it: two calls, whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shoal.errors import ShoalError

__all__ = ["Reply", "Transport", "TransportError"]


class TransportError(ShoalError):
    """Nothing came back, or nothing that can be trusted; trying again later may help."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a report: a status as HTTP has it, and for how many seconds to wait."""

    status: int
    retry_after: float | None = None


class Transport(Protocol):
    """Carries plans and reports: over HTTP, through a relay, or within a test.

    Both calls raise `TransportError` or `OSError` where nobody can say what happened.
    """

    def fetch_plan(self, plan_id: str) -> bytes:
        """Return the plan's JSON; the caller checks it."""
        ...

    def post_report(self, plan_id: str, content: bytes) -> Reply:
        """Hand over a batch in the binary form; status 202 means that it was accepted for good."""
        ...
