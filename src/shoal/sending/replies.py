"""What a collector's answer to a report means for the report."""

from __future__ import annotations

from shoal.sending.records import State
from shoal.sending.transport import Reply

__all__ = ["may_ask_to_wait", "outcome"]

ACCEPTED, CLOSED, AGAIN = 202, {409, 410}, {408, 425, 429}
"""A request that came too slowly, too early or too often may be made again; no other 4xx may."""

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
