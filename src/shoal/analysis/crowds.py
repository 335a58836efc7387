"""Which crowds a tally holds, and whether one person may be in several of them.

The reports of one crowd come from different people. Those of two crowds may come from the same
people, and then the crowds do not hide each other. So a tally lists its crowds, and adding tallies
keeps the list: parts of one crowd become one crowd again, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from shoal.errors import TallyError
from shoal.support.checks import check_integer, check_text, exact_fields

MAX_CROWDS = 10_000  # in one tally
MAX_WINDOW = 2**32 - 1  # a report carries its window in four bytes

People = Literal["different"]
"""What can be declared about the people of several crowds: that no person is in two of them."""


@dataclass(frozen=True)
class Crowd:
    """One crowd of a tally: how many reports it has, its name and its window.

    Crowds with the same name and window are parts of one crowd. Two with neither may be parts of
    one, or the same people twice. A `released` crowd is complete and has no parts.
    """

    reports: int
    name: str | None = None
    window: int | None = None
    released: bool = False

    def __post_init__(self) -> None:
        check_integer("reports of a crowd", self.reports, lowest=1, error=TallyError)
        if self.name is not None:
            check_text("the name of a crowd", self.name, error=TallyError)
        if self.window is not None:
            check_integer("window", self.window, lowest=0, highest=MAX_WINDOW, error=TallyError)
        if not isinstance(self.released, bool) or (self.released and self.name is None):
            raise TallyError("released must be true or false, and a released crowd has a name.")

    @property
    def unnamed(self) -> bool:
        return self.name is None and self.window is None

    def __str__(self) -> str:
        if self.unnamed:
            return "an unnamed crowd"
        if self.name is None:
            return f"window {self.window}"
        return f"crowd {self.name}" + ("" if self.window is None else f" of window {self.window}")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", "window", "reports", "released")}


def add_crowds(crowds: Iterable[Crowd]) -> tuple[Crowd, ...]:
    """Return the crowds of a sum, in an order that does not depend on how it was added up."""
    known: dict[tuple[str | None, int | None], Crowd] = {}
    unnamed = []
    for crowd in crowds:
        before = known.get((crowd.name, crowd.window))
        if crowd.unnamed:
            unnamed.append(crowd)
        elif before is None:
            known[crowd.name, crowd.window] = crowd
        elif before.released or crowd.released:
            raise TallyError(
                f"{crowd} was released complete and is in both tallies; its people would be"
                " counted twice. Add it once."
            )
        else:
            known[crowd.name, crowd.window] = replace(crowd, reports=before.reports + crowd.reports)
    if len(known) + len(unnamed) > MAX_CROWDS:
        raise TallyError(
            f"a tally holds at most {MAX_CROWDS} crowds; name parts of one crowd alike, with"
            " crowd= or shoal tally --crowd-name."
        )
    return tuple(sorted([*known.values(), *unnamed], key=_place))


def _place(crowd: Crowd) -> tuple[bool, int, bool, str, int]:
    no_window, no_name = crowd.window is None, crowd.name is None
    return no_window, crowd.window or 0, no_name, crowd.name or "", crowd.reports


def parse_crowds(value: object) -> tuple[Crowd, ...]:
    if not isinstance(value, list):
        raise TallyError("crowds must be a list of the tally's crowds.")
    needed = {"name", "window", "reports", "released"}
    crowds = tuple(
        Crowd(**exact_fields("a crowd", entry, needed, error=TallyError)) for entry in value
    )
    if add_crowds(crowds) != crowds:
        raise TallyError("crowds must be listed once each, by window and name, the unnamed last.")
    return crowds


def check_people(value: object) -> People | None:
    if value is None or value == "different":
        return value
    raise TallyError(f'people must be "different" or nothing, got people={str(value)[:80]!r}.')


def repeat_remedy(crowds: Sequence[Crowd]) -> str:
    parts = (
        "If they are parts of one crowd, name it with Tally.named or shoal tally --crowd-name; if"
        if any(crowd.unnamed for crowd in crowds)
        else "If"
    )
    return (
        f"{parts} no person is in two of them, declare that with Tally.of_different_people or"
        " shoal tally --people different."
    )


def in_crowds(estimates: Mapping[str, Any]) -> str:
    crowds = len(estimates["crowds"])
    return f" of {crowds:,} crowds" if crowds > 1 else ""


def note_on(crowds: int, people: People | None) -> str | None:
    if crowds < 2:
        return None
    if people == "different":
        return (
            f"this is a sum of {crowds:,} crowds; that no person is in two of them was declared"
            " with the tally, not checked."
        )
    return (
        f"this is a sum of {crowds:,} crowds whose people may be the same, so counts are of"
        " answers, not of people."
    )
