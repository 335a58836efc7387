"""The guarantees of a plan for one report, one release, a year and all time, and against whom.

A plan that asks other questions, or asks more often, can keep its promise for one release and still
reveal more. Two plans are compared by these numbers; `shoal.planning.plan_diff` does so. Each holds
for somebody who takes part in every window of a year; a plan without windows asks once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from shoal.errors import PrivacyRefusal
from shoal.planning.over_time.horizons import releases_in_a_year
from shoal.planning.over_time.statements import changing_crowds_epsilon
from shoal.protocol.flip_probability import (
    Q_PARTS,
    USUAL_DIGITS,
    FlipProbability,
    changing_epsilon,
    local_epsilon,
    repeated_epsilon,
)
from shoal.protocol.plan import Memory, Plan
from shoal.support.rounding import round_up

__all__ = ["Covered", "Guarantee", "guarantees", "loosened", "releases_a_year"]

Covered = Literal[
    "one report",
    "one release",
    "a year of releases",
    "a year of reports",
    "a year of reports, with times",
    "all reports of one answer",
]
"""What a guarantee covers. Only `with times` covers when an answer changed, besides the answer."""

_MOST_COMPOSED = 10**6
"""With more releases a year, in windows that devices refuse, no crowd is relied on."""

_LAYER_DIGITS = 26
"""The most digits that a layer of flips can have in a plan with memory that was planned here."""


@dataclass(frozen=True)
class Guarantee:
    """One bound: `proven` against readers of releases, `local` against all who know senders.

    Epsilon is rounded up; infinity means that no bound is known.
    """

    kind: Literal["proven", "local"]
    epsilon: Decimal
    delta: str | None = None


def releases_a_year(plan: Plan) -> int:
    """Return how many releases of a year can hold a report of one person."""
    return 1 if plan.window is None else releases_in_a_year(plan.window)


def guarantees(plan: Plan, delta: str) -> dict[Covered, Guarantee]:
    """Return what a plan guarantees; what is proven is stated at a delta.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
    >>> weekly = plan(survey, q="0.25", crowd_size=1000, epsilon=1, window=604_800)
    >>> for covered, one in guarantees(weekly, "1e-6").items():
    ...     print(covered, one.kind, f"{one.epsilon:.4f}", sep=" | ")
    one report | local | 2.1972
    one release | proven | 0.3552
    a year of releases | proven | 3.0531
    a year of reports | local | 118.6502
    a year of reports, with times | local | 118.6502
    all reports of one answer | local | Infinity
    """
    reports = releases_a_year(plan) * plan.max_reports_per_person
    year, times = _local(plan, reports), _local_with_times(plan, reports)
    release = Guarantee("local", _local(plan, plan.max_reports_per_person))
    readers = Guarantee("local", year)
    one, many = _proven(plan, delta)
    if one is not None and one < release.epsilon:
        release = Guarantee("proven", one, delta)
    if many is not None and many < readers.epsilon:
        readers = Guarantee("proven", many, delta)
    return {
        "one report": Guarantee("local", _local(plan, 1)),
        "one release": release,
        "a year of releases": readers,
        "a year of reports": Guarantee("local", year),
        "a year of reports, with times": Guarantee("local", times),
        "all reports of one answer": Guarantee("local", _for_ever(plan)),
    }


def _local(plan: Plan, reports: int) -> Decimal:
    """Return what a number of reports of one answer reveals to somebody who knows the sender."""
    differ = plan.survey.differing_bits
    if plan.memory is None:
        return reports * local_epsilon(differ, plan.q)
    return repeated_epsilon(differ, plan.memory, reports)


def _local_with_times(plan: Plan, reports: int) -> Decimal:
    if plan.memory is None:
        return _local(plan, reports)
    return changing_epsilon(plan.survey.differing_bits, plan.bits, plan.memory, reports)


def _for_ever(plan: Plan) -> Decimal:
    if plan.memory is not None:
        return local_epsilon(plan.survey.differing_bits, plan.memory.q1)
    if plan.window is not None and not plan.q.is_blind:
        return Decimal("Infinity")
    return _local(plan, plan.max_reports_per_person)


@lru_cache(maxsize=256)
def _proven(plan: Plan, delta: str) -> tuple[Decimal | None, Decimal | None]:
    """Return the proven epsilon of one release, and of those of a year, to their readers.

    With several reports of a person in a release, those of a year do not compose here.
    """
    from shoal.planning.certificate import certify
    from shoal.planning.composition import quick_epsilon

    if plan.crowd_size is None:
        return None, None
    try:
        one = Decimal(quick_epsilon(certify(plan), float(delta)))
        releases = releases_a_year(plan)
        if releases == 1:
            return one, one
        if plan.max_reports_per_person > 1 or releases > _MOST_COMPOSED:
            return one, None
        limit = float(_local(plan, releases))
        many = changing_crowds_epsilon(plan, plan.crowd_size, releases, float(delta), limit)
    except PrivacyRefusal:  # nothing is proven about this plan
        return None, None
    return one, None if math.isinf(many) else Decimal(round_up(many, 6))


def loosened(plan: Plan) -> Plan:
    """Return the plan with q raised by as much as rounding up can raise it.

    Two plans that were made for the same promise differ by no more than this. A plan is compared
    with others by the numbers of this one, so that rounding is not called less protection.
    """
    if plan.memory is None:
        return replace(plan, q=_raised(plan.q, plan.q.digits))
    layers = plan.memory.q1, plan.memory.q2
    if max(q.digits for q in layers) > _LAYER_DIGITS:
        return plan
    memory = Memory(*(_raised(q, _LAYER_DIGITS - 1) for q in layers))
    return replace(plan, q=memory.q, memory=memory)


def _raised(q: FlipProbability, digits: int) -> FlipProbability:
    """Return a q that is larger by one unit of rounding: 2^-16, or 1/2048 of a small q."""
    unit = min(Fraction(1, 2**USUAL_DIGITS), q.fraction / Q_PARTS)
    finest = 2 ** max(digits, USUAL_DIGITS)
    whole = Fraction(int((q.fraction + unit) * finest), finest)
    return FlipProbability.of_fraction(min(max(whole, q.fraction), Fraction(1, 2)))
