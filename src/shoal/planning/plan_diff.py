"""What an edit of a plan means: nothing, other words, another plan, or less protection.

=========== =====================================================================================
same        the same id
label       only words that people read differ: the survey's name, names of questions, labels of
            options, or how a number is written. Every bit keeps its place, and q, crowd and
            promise are the same, so both plans' tallies mean the same. The ids differ all the
            same, and reports of one are not taken for the other.
new plan    it asks or protects differently: new consent, and its reports never add to the old ones
forbidden   under the same survey's name it protects less those who may answer both; it must get
            another name, and be published after the old plan is closed
=========== =====================================================================================

A program sees words, not meanings. A word that moves from one bit to another is taken for a swap,
hence for a new plan; whether a new word says the same as the old one is for people to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from shoal.agreement.flip_probability import FlipProbability
from shoal.agreement.plan import SHORTEST_WINDOW, Plan, PromiseKind, View
from shoal.agreement.survey import Number, Survey, Text

__all__ = ["DiffKind", "PlanDiff", "plan_diff"]

DiffKind = Literal["same", "label", "new plan", "forbidden"]

STRENGTH: dict[PromiseKind, int] = {"three-sigma": 0, "sufficient": 1, "proven": 2, "local": 3}
"""Which promise is stronger: a rule of thumb, an attack, a theorem, one that needs nobody."""

_VIEWS: dict[View, str] = {
    "reports": "whoever sees all reports without their senders",
    "counts": "whoever sees counts only",
}
"""Against whom a promise holds: whoever sees less learns less."""

_SHOWN = 8


@dataclass(frozen=True)
class PlanDiff:
    """What the step from one plan to another means, and why, in sentences."""

    kind: DiffKind
    reasons: tuple[str, ...]
    old_id: str
    new_id: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "old": self.old_id,
            "new": self.new_id,
            "reasons": list(self.reasons),
        }


def plan_diff(old: Plan, new: Plan) -> PlanDiff:
    """Say what replacing the plan `old` by `new` means for those who answer.

    Examples
    --------
    >>> from shoal import Flags, plan
    >>> before = plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), q="0.25")
    >>> after = plan(Survey("browser", (Flags("features", ("sync", "proxy")),)), q="0.25")
    >>> diff = plan_diff(before, after)
    >>> diff.kind, diff.reasons
    ('label', ("'vpn' of question 'features' is now called 'proxy'.",))
    >>> plan_diff(before, plan(before.survey, q="0.125")).kind
    'forbidden'
    """

    def diff(kind: DiffKind, *reasons: str) -> PlanDiff:
        return PlanDiff(kind, reasons, old.id, new.id)

    if old.id == new.id:
        return diff("same", "The two plans are the same.")
    questions = list(_asked(old.survey, new.survey))
    protections = list(_protected(old, new, same_bits=not questions))
    weaker = [reason for less, reason in protections if less]
    others = [reason for less, reason in protections if not less]
    words = _shortened(list(_words(old.survey, new.survey)))
    if weaker and old.survey.name == new.survey.name:
        way_out = (
            f"Give it another name than {old.survey.name!r}, and publish it after the old plan"
            " is closed."
        )
        return diff("forbidden", *weaker, way_out)
    if weaker:
        close = f"It protects less, so publish it only after {old.survey.name!r} is closed."
        weaker.append(close)
    if questions or weaker or others:
        return diff("new plan", *_shortened(questions), *weaker, *others)
    return diff("label", *words)


def _asked(old: Survey, new: Survey) -> Iterator[str]:
    """Yield why bits do not mean the same by position."""
    if len(old.questions) != len(new.questions):
        yield f"It asks {len(new.questions)} questions instead of {len(old.questions)}."
        return
    for before, after in zip(old.questions, new.questions, strict=True):
        if (before.kind, before.bits) != (after.kind, after.bits):
            yield (
                f"Question {before.name!r} was {before.kind} of {before.bits} bits, and"
                f" {after.name!r} in its place is {after.kind} of {after.bits}."
            )
        elif _rules(before) != _rules(after):
            yield f"Question {after.name!r} has other rules for its answers than {before.name!r}."
    yield from _swapped("question", [q.name for q in old], [q.name for q in new])
    if old.bits == new.bits:
        yield from _swapped("label", *([label for _, label in s.labels] for s in (old, new)))
    if old.digest != new.digest and any(isinstance(question, Text) for question in old):
        yield "The hashes of a text depend on every word of the survey, so its bits are others."


def _rules(question: Any) -> dict[str, Any]:
    """Return what a question says about its answers besides names: at_most, edges, hashes."""
    words = {"name", "options"}
    return {key: value for key, value in question.to_json().items() if key not in words}


def _swapped(what: str, old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the words that have moved from one place to another."""
    before, after = _places(old), _places(new)
    for word in sorted(before.keys() & after.keys()):
        left, come = before[word] - after[word], after[word] - before[word]
        if left and come:
            yield f"The {what} {word!r} has moved to the place of {old[min(come)]!r}."


def _places(words: list[str]) -> dict[str, set[int]]:
    places: dict[str, set[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, set()).add(place)
    return places


def _words(old: Survey, new: Survey) -> Iterator[str]:
    """Yield which words differ, between surveys whose bits correspond."""
    if old.name != new.name:
        yield f"The survey {old.name!r} is now called {new.name!r}."
    for before, after in zip(old.questions, new.questions, strict=False):
        if before.name != after.name:
            yield f"Question {before.name!r} is now called {after.name!r}."
        if isinstance(before, (Number, Text)):
            continue
        for was, now in zip(before.labels, after.labels, strict=False):
            if was != now:
                yield f"{was!r} of question {before.name!r} is now called {now!r}."


def _protected(old: Plan, new: Plan, *, same_bits: bool) -> Iterator[tuple[bool, str]]:
    """Yield what protects differently, and whether it protects less."""
    yield from _promised(old, new)
    yield from _crowd(old, new)
    more = new.max_reports_per_person - old.max_reports_per_person
    if more:
        yield (
            more > 0,
            f"A person may send {new.max_reports_per_person} reports to a release instead of"
            f" {old.max_reports_per_person}.",
        )
    if same_bits and old.q != new.q:
        yield _flips("Devices flip each bit", old.q, new.q)
    yield from _remembered(old, new, same_bits=same_bits)
    if old.window != new.window:
        before = "none" if old.window is None else f"{old.window} seconds"
        after = "none" if new.window is None else f"{new.window} seconds"
        shorter = new.window is not None and new.window < (old.window or 10**12)
        effect = ", so that a report shows more exactly when it was sent" if shorter else ""
        # Devices refuse windows that are shorter still: they tell when a report was made.
        less = shorter and new.window is not None and new.window < SHORTEST_WINDOW
        yield less, f"The window is {after} instead of {before}{effect}."
    yield from _parties(old, new)
    groups = [[{p.survey.bit(*bit) for bit in group} for group in p.joint] for p in (old, new)]
    if same_bits and groups[0] != groups[1]:
        yield False, "Other joint answers are counted."


def _parties(old: Plan, new: Plan) -> Iterator[tuple[bool, str]]:
    if old.parties is None or new.parties is None:
        if old.parties is not None:
            yield (
                True,
                "One collector sees who sends what, which a relay and an analyzer shared before.",
            )
        elif new.parties is not None:
            yield False, "A relay and an analyzer share what one collector saw before."
        return
    if (old.parties.relay, old.parties.analyzer) != (new.parties.relay, new.parties.analyzer):
        yield False, "Other parties relay and analyze the reports."
    was, now = old.parties.messages, new.parties.messages
    if was != now and old.view == new.view:
        yield False, f"A report is sent as {now} messages instead of {was}."


def _promised(old: Plan, new: Plan) -> Iterator[tuple[bool, str]]:
    before, after = old.promise, new.promise
    if old.view != new.view:
        less = new.view == "counts" and after.kind != "local"
        yield less, f"The promise is about {_VIEWS[new.view]} instead of {_VIEWS[old.view]}."
    if before.kind != after.kind:
        less = STRENGTH[after.kind] < STRENGTH[before.kind]
        yield less, f"The promise is {after.kind} instead of {before.kind}."
    for name in ("epsilon", "delta", "eta"):
        was, now = getattr(before, name), getattr(after, name)
        if was is None or now is None or Decimal(was) == Decimal(now):
            continue
        yield Decimal(now) > Decimal(was), f"The promised {name} is {now} instead of {was}."


def _crowd(old: Plan, new: Plan) -> Iterator[tuple[bool, str]]:
    if old.crowd_size != new.crowd_size:
        # A promise that comes to need no crowd may do without one.
        free = new.promise.kind == "local" != old.promise.kind
        less = (new.crowd_size or 0) < (old.crowd_size or 0) and not free
        sizes = [f"{plan.crowd_size or 'none'}" for plan in (new, old)]
        yield less, f"The crowd is {sizes[0]} instead of {sizes[1]}."
    was, now = (Fraction(plan.honest_fraction or "1") for plan in (old, new))
    if was != now:
        yield (
            now > was,
            f"A part {float(now):g} of the reports is taken for honest instead of {float(was):g}.",
        )
    if old.cohorts != new.cohorts:
        split = (new.cohorts or 1) > (old.cohorts or 1)
        groups = [f"{plan.cohorts or 'no'}" for plan in (new, old)]
        yield split, f"The reports are split into {groups[0]} cohorts instead of {groups[1]}."


def _remembered(old: Plan, new: Plan, *, same_bits: bool) -> Iterator[tuple[bool, str]]:
    if old.memory is not None and new.memory is None:
        yield True, "Devices no longer remember their flips, so that repeated reports average out."
    elif old.memory is None and new.memory is not None:
        yield False, "Devices remember their flips."
    elif old.memory is not None and new.memory is not None and same_bits:
        layers = (("Permanent flips come", "q1"), ("Fresh flips come", "q2"))
        for words, layer in layers:
            was, now = getattr(old.memory, layer), getattr(new.memory, layer)
            if was != now:
                yield _flips(words, was, now)


def _flips(words: str, was: FlipProbability, now: FlipProbability) -> tuple[bool, str]:
    return now.fraction < was.fraction, f"{words} with probability {now} instead of {was}."


def _shortened(reasons: list[str]) -> list[str]:
    rest = len(reasons) - _SHOWN
    return reasons if rest <= 0 else [*reasons[:_SHOWN], f"And {rest} more."]
