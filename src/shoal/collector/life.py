"""What may become of a plan: forward only, but for a pause.

::

    draft ──▶ published ◀──▶ paused
                  │            │
                  ▼            ▼
                closed ◀───────┘
                  │
    draft ──▶ destroyed

Published, the plan and its certificate never change. Closing destroys the crowds that are open, and
destroying removes what was collected.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["STATES", "State", "may_become"]

State = Literal["draft", "published", "paused", "closed", "destroyed"]

STATES: dict[State, tuple[State, ...]] = {
    "draft": ("published", "destroyed"),
    "published": ("paused", "closed"),
    "paused": ("published", "closed"),
    "closed": ("destroyed",),
    "destroyed": (),
}
"""Every state, and the states that may follow it."""


def may_become(now: State, wanted: State) -> bool:
    """Whether a plan may go from one state to another.

    >>> may_become("paused", "published"), may_become("closed", "published")
    (True, False)
    """
    return wanted in STATES[now]
