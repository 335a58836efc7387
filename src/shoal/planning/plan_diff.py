"""What an edit of a plan means: nothing, other words, another plan, or less protection.

=========== =====================================================================================
same        the same id
label       only words that people read differ. Every bit keeps its place, and q, crowd and promise
            are the same, so both tallies mean the same; but reports of one plan are not taken for
            the other.
new plan    it asks or protects differently: new consent, and its reports never add to the old ones
forbidden   under the same survey's name it protects less those who may answer both; it must get
            another name, or be declared, and be published after the old plan is closed
=========== =====================================================================================

Less protection is judged twice: by the fields that stand for protection, and, where the
survey has the same name, by the guarantees of both plans and their observers, since a plan that
asks more, or more often, may keep every field and still reveal more.

A program sees words, not meanings. A word that moves from one bit to another is taken for a swap,
hence a new plan; people must judge whether a new word says the same as the old one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from shoal.errors import PrivacyRefusal
from shoal.planning.certificate import certify
from shoal.planning.guarantees import Covered, Guarantee, guarantees, loosened, releases_a_year
from shoal.planning.threats import Observer, observers
from shoal.protocol.flip_probability import FlipProbability, local_epsilon
from shoal.protocol.plan import (
    MIN_WINDOW,
    ONE_OPERATOR,
    Aggregators,
    Parties,
    Plan,
    PromiseKind,
    ShareNoise,
    View,
)
from shoal.protocol.survey import Number, Survey, Text
from shoal.protocol.wording import Wording, encoding_rules, permanent_key
from shoal.support.results import Displayed, Section
from shoal.support.rounding import float_up, text_up

DiffKind = Literal["same", "label", "new plan", "forbidden"]

STRENGTH: dict[PromiseKind, int] = {"three-sigma": 0, "sufficient": 1, "proven": 2, "local": 3}
"""A rule of thumb, an attack, a theorem, and one that needs no trust."""

_VIEWS: dict[View, str] = {
    "reports": "an observer of all reports without their senders",
    "counts": "an observer of counts only",
}

_SHOWN = 8

_SAID_BY: dict[Covered, tuple[Covered, ...]] = {
    "one report": (),
    "one release": ("one report",),
    "a year of releases": ("one release", "a year of reports"),
    "a year of reports": ("one report",),
    "a year of reports, with times": ("a year of reports",),
    "all reports of one answer": ("one report",),
}
"""Guarantees that say the same where their numbers are the same."""


@dataclass(frozen=True)
class Change:
    """A guarantee of both plans whose numbers differ, and whether the new plan's is weaker."""

    covers: Covered
    old: Guarantee
    new: Guarantee
    weaker: bool
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an epsilon without a bound is null."""
        plans = {
            name: {
                "kind": one.kind,
                "epsilon": float_up(one.epsilon) if one.epsilon.is_finite() else None,
                "delta": None if one.delta is None else float(one.delta),
            }
            for name, one in (("old", self.old), ("new", self.new))
        }
        return {"covers": self.covers, **plans, "weaker": self.weaker}


@dataclass(frozen=True, repr=False)
class PlanDiff(Displayed):
    """The meaning of the step from one plan to another, with reasons in sentences.

    `changes` are the guarantees that differ, computed if both surveys have the same name. With
    `redraws` devices draw new permanent flips.
    """

    kind: DiffKind
    reasons: tuple[str, ...]
    old_id: str
    new_id: str
    changes: tuple[Change, ...] = ()
    redraws: bool = False

    def _headline(self) -> str:
        return f"{self.kind}: from plan {self.old_id[:12]} to plan {self.new_id[:12]}"

    def _sections(self) -> list[Section]:
        return [Section(("guarantee", "change"), [(one.covers, one.words) for one in self.changes])]

    def _remarks(self) -> tuple[str, ...]:
        return self.reasons

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "old": self.old_id,
            "new": self.new_id,
            "reasons": list(self.reasons),
            "changes": [change.to_json() for change in self.changes],
            "redraws": self.redraws,
        }


def plan_diff(old: Plan, new: Plan, *, accept_weak_promise: bool = False) -> PlanDiff:
    """Return what replacing the plan `old` by `new` means for those who answer.

    With `accept_weak_promise` less protection under the same name is a new plan, not forbidden.

    >>> from shoal import Flags, plan
    >>> before = plan(Survey("browser", (Flags("features", ("sync", "vpn")),)), q="0.25")
    >>> after = plan(Survey("browser", (Flags("features", ("sync", "proxy")),)), q="0.25")
    >>> diff = plan_diff(before, after)
    >>> diff.kind, diff.reasons
    ('label', ("'vpn' of question 'features' is now called 'proxy'.",))
    >>> less = plan(Survey("browser", (Flags("features", ("sync", "vpn", "tabs")),)), q="0.25")
    >>> plan_diff(before, less).kind, plan_diff(before, less, accept_weak_promise=True).kind
    ('forbidden', 'new plan')
    """
    if old.id == new.id:
        return PlanDiff("same", ("The two plans are the same.",), old.id, new.id)
    rules = list(_ruled(old.survey, new.survey))
    questions = [*rules, *_reordered(old.survey, new.survey)]
    # Bits that changed places are as many under the same rules: they need no fewer flips.
    fields = list(_protected(old, new, same_bits=not rules))
    weaker = [reason for less, reason in fields if less]
    others = [reason for less, reason in fields if not less]
    redraw = _redraw(old, new)
    words = _shortened(list(_words(old.survey, new.survey)))
    same_name = old.survey.name == new.survey.name
    if not (questions or fields or redraw):
        return PlanDiff("label", tuple(words), old.id, new.id)
    changes: tuple[Change, ...] = ()
    if same_name:
        judged = not _dominates(old, new, same_bits=not rules, less=bool(weaker))
        changes = tuple(_changes(old, new, judged=judged))
        observed = list(_observed(old, new))
        weaker += [reason for less, reason in observed if less and judged]
        weaker += [change.words for change in changes if change.weaker]
        others += [reason for less, reason in observed if not (less and judged)]
        others += [change.words for change in changes if not change.weaker]
    reasons = [*weaker, *_shortened(questions), *others, *redraw]
    if not weaker:
        kind: DiffKind = "new plan"
    elif same_name and not accept_weak_promise:
        kind = "forbidden"
        reasons.append(
            f"Give it another name than {old.survey.name!r}, or declare it with"
            " --accept-weak-promise, and publish it after the old plan is closed."
        )
    else:
        kind = "new plan"
        reasons.append(
            f"It protects less{', as declared' if same_name else ''}, so publish it only after"
            f" {old.survey.name!r} is closed."
        )
    return PlanDiff(kind, tuple(reasons), old.id, new.id, changes, bool(redraw))


def _redraw(old: Plan, new: Plan) -> list[str]:
    if old.memory is None or new.memory is None:
        return []
    moved = any(Wording.of(old.survey).moved(Wording.of(new.survey)))
    if permanent_key(old) == permanent_key(new) and not moved:
        return []
    again = text_up(float_up(local_epsilon(new.survey.differing_bits, new.memory.q1)))
    return [
        "Devices draw new permanent flips, which spends the lifetime epsilon of an answer again:"
        f" up to {again} more (local), and the device's ledger counts it."
    ]


def _ruled(old: Survey, new: Survey) -> Iterator[str]:
    if len(old.questions) != len(new.questions):
        yield f"It asks {len(new.questions)} questions instead of {len(old.questions)}."
        return
    for before, after in zip(old.questions, new.questions, strict=True):
        if (before.kind, before.bits) != (after.kind, after.bits):
            yield (
                f"Question {before.name!r} was {before.kind} of {before.bits} bits, and"
                f" {after.name!r} in its place is {after.kind} of {after.bits}."
            )
        elif encoding_rules(old, before) != encoding_rules(new, after):
            yield f"Question {after.name!r} has other rules for its answers than {before.name!r}."


def _reordered(old: Survey, new: Survey) -> Iterator[str]:
    """Yield why bits under the same rules do not mean the same by position."""
    if len(old.questions) != len(new.questions):
        return
    for what, word, replaced in Wording.of(old).moved(Wording.of(new)):
        yield f"The {what} {word!r} has moved to the place of {replaced!r}."
    if old.digest != new.digest and any(isinstance(question, Text) for question in old):
        yield "The hashes of a text depend on every word of the survey, so its bits are others."


def _words(old: Survey, new: Survey) -> Iterator[str]:
    if old.name != new.name:
        yield f"The survey {old.name!r} is now called {new.name!r}."
    yield from _retitled("the survey", old, new)
    for before, after in zip(old.questions, new.questions, strict=False):
        if before.name != after.name:
            yield f"Question {before.name!r} is now called {after.name!r}."
        was_in, now_in = (getattr(one, "column", None) for one in (before, after))
        if was_in != now_in:
            columns = [
                f"column {column!r}" if column else "its name" for column in (now_in, was_in)
            ]
            yield f"Tables hold {after.name!r} under {columns[0]} instead of {columns[1]}."
        yield from _retitled(f"question {after.name!r}", before, after)
        if isinstance(before, (Number, Text)):
            continue
        for was, now in zip(before.labels, after.labels, strict=False):
            if was != now:
                yield f"{was!r} of question {before.name!r} is now called {now!r}."


def _retitled(what: str, old: object, new: object) -> Iterator[str]:
    """Yield which of the words that people read differ."""
    called = {"title": "another title", "text": "another text", "titles": "other titles of options"}
    for field, words in called.items():
        if (getattr(old, field, None) or None) != (getattr(new, field, None) or None):
            yield f"People read {words} of {what}."


def _protected(old: Plan, new: Plan, *, same_bits: bool) -> Iterator[tuple[bool, str]]:
    yield from _promised(old, new)
    yield from _crowd(old, new)
    was, now = old.max_reports_per_person, new.max_reports_per_person
    if was != now:
        yield now > was, f"A person may send {now} reports to a release instead of {was}."
    if same_bits and old.q != new.q:
        yield _flips("Devices flip each bit", old.q, new.q)
    yield from _remembered(old, new, same_bits=same_bits)
    if old.window != new.window:
        before, after = (
            "none" if plan.window is None else f"{plan.window} seconds" for plan in (old, new)
        )
        shorter = new.window is not None and new.window < (old.window or 10**12)
        effect = ", so that a report shows more exactly when it was sent" if shorter else ""
        # Devices refuse windows that are shorter still: they tell when a report was made.
        less = shorter and new.window is not None and new.window < MIN_WINDOW
        yield less, f"The window is {after} instead of {before}{effect}."
    yield from _parties(old, new, same_bits=same_bits)
    groups = [[{p.survey.bit(*bit) for bit in group} for group in p.joint] for p in (old, new)]
    if same_bits and groups[0] != groups[1]:
        yield False, "Other joint answers are counted."


def _parties(old: Plan, new: Plan, *, same_bits: bool) -> Iterator[tuple[bool, str]]:
    was, now = old.parties, new.parties
    if was is not None and now is not None:
        if was.origins != now.origins:
            work = "aggregate" if isinstance(now, Aggregators) else "relay and analyze"
            yield False, f"Other parties {work} the reports."
        if now.one_operator and not was.one_operator:
            yield True, f"The same people run both parties ({ONE_OPERATOR})."
        if type(was) is type(now) and old.max_weight != new.max_weight:
            weights = f"max_weight {new.max_weight} instead of {old.max_weight}"
            yield False, f"A report has {weights}."
        yield from _noise(old.noise, new.noise, same_bits=same_bits)
    elif was is not None and not was.one_operator:
        words = f"One collector sees senders and reports; {_two(was)} divided them before."
        yield True, words
    elif now is not None and not now.one_operator:
        yield False, f"{_two(now).capitalize()} divide what one collector saw before."


def _noise(
    was: ShareNoise | None, now: ShareNoise | None, *, same_bits: bool
) -> Iterator[tuple[bool, str]]:
    if was is None and now is not None:
        yield False, f"The leader and the helper add noise, {now}."
    elif was is not None and now is None:
        yield True, "The leader and the helper no longer add noise."
    elif was is not None and now is not None and was != now:
        # Other bits need another scale, and the guarantees judge another kind.
        less = same_bits and was.kind == now.kind and now.value < was.value
        yield less, f"The leader and the helper add {now} instead of {was}."


def _two(parties: Parties | Aggregators) -> str:
    first, second = parties.origins
    return f"a {first} and a{'n' * (second == 'analyzer')} {second}"


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
        if was is not None and now is not None and Decimal(was) != Decimal(now):
            yield Decimal(now) > Decimal(was), f"The promised {name} is {now} instead of {was}."


def _crowd(old: Plan, new: Plan) -> Iterator[tuple[bool, str]]:
    if old.crowd_size != new.crowd_size:
        # A promise that comes to need no crowd may do without one.
        free = new.promise.kind == "local" != old.promise.kind
        less = (new.crowd_size or 0) < (old.crowd_size or 0) and not free
        yield (
            less,
            f"The crowd is {new.crowd_size or 'none'} instead of {old.crowd_size or 'none'}.",
        )
    was, now = (float(plan.honest_fraction or "1") for plan in (old, new))
    if was != now:
        words = f"A part {now:g} of the reports is taken for honest instead of {was:g}."
        yield now > was, words
    if old.cohorts != new.cohorts:
        split = (new.cohorts or 1) > (old.cohorts or 1)
        before, after = (plan.cohorts or "no" for plan in (old, new))
        yield split, f"The reports are split into {after} cohorts instead of {before}."


def _remembered(old: Plan, new: Plan, *, same_bits: bool) -> Iterator[tuple[bool, str]]:
    was, now = old.memory, new.memory
    if was is None or now is None:
        if was is not None:
            words = "Devices no longer remember their flips, so that repeated reports average out."
            yield True, words
        elif now is not None:
            yield False, "Devices remember their flips."
    elif same_bits:
        if was.q1 != now.q1:
            yield _flips("Permanent flips come", was.q1, now.q1)
        if was.q2 != now.q2:
            yield _flips("Fresh flips come", was.q2, now.q2)


def _flips(words: str, was: FlipProbability, now: FlipProbability) -> tuple[bool, str]:
    return now.fraction < was.fraction, f"{words} with probability {now} instead of {was}."


def _dominates(old: Plan, new: Plan, *, same_bits: bool, less: bool) -> bool:
    """Whether the fields alone show that the new plan reveals no more than the old one.

    With the same bits and view, more flips, a larger crowd, fewer releases and no smaller weight
    are post-processing or better cover; computed bounds need not fall with every step.
    """
    return (
        same_bits
        and not less
        and old.view == new.view
        and (old.memory is None) == (new.memory is None)
        and (old.noise is None or old.noise.kind == (new.noise or old.noise).kind)
        and releases_a_year(new) <= releases_a_year(old)
        and _cut(new) >= _cut(old)
    )


def _cut(plan: Plan) -> float:
    """Return the largest weight; infinity if the set bits always fit: drops cost delta."""
    weight = plan.max_weight or plan.bits
    return math.inf if weight >= plan.bits else weight


def _changes(old: Plan, new: Plan, *, judged: bool) -> Iterator[Change]:
    """Yield the guarantees that differ, at the old plan's delta.

    A difference that rounding q can make is not weaker; a smaller q for the same bits is found by
    its field.
    """
    delta = old.promise.delta or new.promise.delta or "1e-6"
    before, after = guarantees(old, delta), guarantees(new, delta)
    rounded: dict[Covered, Guarantee] | None = None
    for covers, one in after.items():
        was = before[covers]
        if was == one or any((was, one) == (before[c], after[c]) for c in _SAID_BY[covers]):
            continue
        weaker = judged and one.epsilon > was.epsilon
        if weaker:
            rounded = guarantees(loosened(new), delta) if rounded is None else rounded
            weaker = rounded[covers].epsilon > was.epsilon
        yield Change(covers, was, one, weaker, _change_in_words(covers, was, one, old, new))


def _change_in_words(covers: Covered, was: Guarantee, now: Guarantee, old: Plan, new: Plan) -> str:
    status = _status(now, new)
    if status != _status(was, old):
        status += f"; before: {_status(was, old)}"
    years = [releases_a_year(plan) for plan in (new, old)]
    sent = [n * p.max_reports_per_person for n, p in zip(years, (new, old), strict=True)]
    releases, reports = (
        f"{now_:,} instead of {then:,}" if now_ != then else f"{now_:,}"
        for now_, then in (years, sent)
    )
    known = "to anyone who knows their sender"
    subject = {
        "one report": "One report reveals {} to anyone who knows its sender, the collector too",
        "one release": "One release reveals {} to its readers",
        "a year of releases": f"All releases of a year ({releases}) together reveal {{}} about one"
        " answer to their readers",
        "a year of reports": f"All reports of a person in a year ({reports}) reveal {{}} about one"
        f" answer {known}",
        "a year of reports, with times": f"All reports of a person in a year ({reports}) reveal"
        f" {{}} about the answers and when they changed {known}",
        "all reports of one answer": "All reports of one answer, however many, reveal {} " + known,
    }[covers]
    return f"{subject.format(_cost(now, was))} ({status})."


def _cost(now: Guarantee, was: Guarantee) -> str:
    """Return two epsilons with as many digits as tell them apart."""
    if not now.epsilon.is_finite():
        return f"ever more instead of epsilon {text_up(float_up(was.epsilon))}"
    if not was.epsilon.is_finite():
        return f"epsilon {text_up(float_up(now.epsilon))} instead of ever more"
    for digits in (4, 7, 12):
        new, old = (text_up(float_up(one.epsilon), digits) for one in (now, was))
        if new != old:
            break
    return f"epsilon {new} instead of {old}"


def _status(one: Guarantee, plan: Plan) -> str:
    return "local" if one.kind == "local" else f"proven, delta {one.delta}, view {plan.view}"


def _observed(old: Plan, new: Plan) -> Iterator[tuple[bool, str]]:
    """Yield new observers of a release, and those whose guarantee has another status."""
    if old.crowd_size is None or new.crowd_size is None:
        return
    try:
        before, after = (
            {one.who: one for one in observers(certify(plan), float(old.promise.epsilon))}
            for plan in (old, new)
        )
    except PrivacyRefusal:  # nothing is proven about one of them
        return
    for who, now in after.items():
        was = before.get(who)
        if was is None:
            yield False, f"The {who} sees {now.sees}. The guarantee against it is {_holds(now)}."
        elif was.holds != now.holds:
            words = f"The guarantee against the {who} is {_holds(now)} instead of {_holds(was)}."
            yield now.holds == "local", words


_HIDDEN = {"encrypted": "the encryption", "shared": "the secret sharing"}


def _holds(one: Observer) -> str:
    if one.holds in _HIDDEN:
        return _HIDDEN[one.holds]
    delta = f" at delta {text_up(one.delta)}" if one.holds == "theorem" else ""
    return f"epsilon {text_up(one.epsilon)}{delta} ({one.holds})"


def _shortened(reasons: list[str]) -> list[str]:
    rest = len(reasons) - _SHOWN
    return reasons if rest <= 0 else [*reasons[:_SHOWN], f"And {rest} more."]
