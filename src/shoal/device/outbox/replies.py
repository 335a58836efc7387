"""What came back for a report, and what that means for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.device.outbox.records import State

__all__ = ["Reply", "may_ask_to_wait", "outcome"]


@dataclass(frozen=True)
class Reply:
    """What became of a report: a status as HTTP has it, and for how many seconds to wait."""

    status: int
    retry_after: float | None = None


ACCEPTED, CLOSED, AGAIN = 202, {409, 410}, {408, 412, 425, 429}
"""A request that came too slowly, too early, too often or for a crowd that is complete may be made
again; no other 4xx may."""

KEY_CHANGED = 412
"""The report was sealed for another crowd than the one that is open now."""

REFUSALS = {
    400: "it is not what the plan says",
    404: "it does not know the plan",
    413: "it is too large",
    415: "it does not take this kind of report",
    422: "it is not what the plan says",
}


def outcome(reply: Reply) -> tuple[State, str | None]:
    """Return what becomes of a report, and why.

    >>> outcome(Reply(404))
    ('failed', 'the collector refused it (404: it does not know the plan)')
    """
    status = reply.status
    if status == ACCEPTED:
        return "sent", None
    if status in CLOSED:
        return "expired", f"the collector no longer takes it ({status})"
    if 400 <= status < 500 and status not in AGAIN:
        why = f": {REFUSALS[status]}" if status in REFUSALS else ""
        return "failed", f"the collector refused it ({status}{why})"
    # Nothing else is a collector's answer: a 200 or a redirect may be a hotel's login page.
    return "waiting", f"the collector said {status}"


def may_ask_to_wait(reply: Reply) -> bool:
    """Whether an answer's Retry-After is a collector's."""
    return reply.status >= 500 or reply.status in AGAIN
