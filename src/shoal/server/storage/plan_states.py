"""The states of a plan: forward only, except for a pause.

::

    draft ──▶ published ◀──▶ paused
                  │            │
                  ▼            ▼
                closed ◀───────┘
                  │
    draft ──▶ destroyed

A published plan and its certificate never change. Closing destroys the open crowds. Destroying
removes all collected data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["STATES", "Declaration", "State", "may_become"]

State = Literal["draft", "published", "paused", "closed", "destroyed"]

STATES: dict[State, tuple[State, ...]] = {
    "draft": ("published", "destroyed"),
    "published": ("paused", "closed"),
    "paused": ("published", "closed"),
    "closed": ("destroyed",),
    "destroyed": (),
}
"""Every state, and the states that may follow it."""


@dataclass(frozen=True)
class Declaration:
    """What whoever publishes a plan states about it, because the collector cannot know it.

    `all_honest`: nobody sends false reports; needed where the plan does not say which part of a
    crowd is honest. `never_published`: the plan was not published before; needed after a restore,
    whose backup may be older than the publication.
    """

    all_honest: bool = False
    never_published: bool = False


def may_become(now: State, wanted: State) -> bool:
    """Whether a plan may go from one state to another.

    >>> may_become("paused", "published"), may_become("closed", "published")
    (True, False)
    """
    return wanted in STATES[now]
