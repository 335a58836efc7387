"""The guarantees of a plan over time: one report, one release, a year, and all time.

`guarantees_over_time` covers people who report again and again. `guarantees` gives the numbers by
which `shoal.planning.plan_diff` compares two plans: a plan that asks more, or more often, can keep
its promise for one release and still reveal more.

Composition theorems need fresh coins; those of a permanent vector are not fresh. These hold, each a
theorem:

* One release: its N reports are independent, each bit flipped with q: proven(q, N).
* All reports about one answer are made from its permanent vector: local(q1), and for n of them
  exactly `repeated_epsilon`. Neighbours differ in the answer, at the same times. Distinct answers
  have their own vectors and add up.
* All reports of a person whose answers change at any time: given the permanent vectors, which are
  any vectors, each report's bits are flipped afresh with q2 (`changing_epsilon`).
* The same N people in every release, none of whom changes the answer: the releases depend on the
  permanent vectors only through their histogram: proven(q1, N) for all of them, by post-processing.
  c people who change their answer, or miss a release, are no cover: the crowd is N - c.
* Crowds that change: given the permanent vectors, each release flips afresh with q2 the bits of
  vectors of the full cube, so proven(q2, N) for flags on all bits composes. Where that is not
  better than the local bound, only the local bound is claimed.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from shoal.errors import PrivacyRefusal
from shoal.planning.bounds import Overflow, overflow_of
from shoal.planning.certificate import Certificate, certify, check_crowd_hides
from shoal.planning.composition import composed_epsilon, quick_epsilon
from shoal.planning.memory import releases_in_a_year
from shoal.protocol.flip_probability import (
    Q_PARTS,
    USUAL_DIGITS,
    FlipProbability,
    changing_epsilon,
    local_epsilon,
    repeated_epsilon,
)
from shoal.protocol.plan import MAX_NOISE, Aggregators, Memory, Plan
from shoal.protocol.survey import Flags, Survey
from shoal.support.checks import check_integer
from shoal.support.rounding import round_up, text_up

Covered = Literal[
    "one report",
    "one release",
    "a year of releases",
    "a year of reports",
    "a year of reports, with times",
    "all reports of one answer",
]
"""Only `with times` covers when an answer changed, besides the answer."""

_MAX_COMPOSED = 10**6
"""With more releases a year, in windows that devices refuse, no crowd is relied on."""

_LAYER_DIGITS = 26
"""The most digits of a layer of flips that `plan_with_memory` makes."""

_NOISE_STEP = 1e-3
"""A scale has four digits, so that rounding raises it by at most this part."""

HoldsFor = Literal[
    "one report",
    "one release",
    "one answer, every release",
    "answers that change, every release",
    "same crowd, every release",
    "changing crowds, every release",
]


@dataclass(frozen=True)
class Guarantee:
    """One bound: `proven` against readers of releases, `local` against all who know senders.

    Epsilon is rounded up; infinity: no bound is known.
    """

    kind: Literal["proven", "local"]
    epsilon: Decimal
    delta: str | None = None


def releases_a_year(plan: Plan) -> int:
    if plan.window is None:
        return 1
    most, year = plan.survey.reports_per_device, releases_in_a_year(plan.window)
    return year if most is None else min(year, most)


def guarantees(plan: Plan, delta: str) -> dict[Covered, Guarantee]:
    """Return what a plan guarantees; proven bounds are stated at a delta.

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
    year = Guarantee("local", _local(plan, reports))
    release, readers = Guarantee("local", _local(plan, plan.max_reports_per_person)), year
    one, many = _proven(plan, delta)
    if one is not None and one < release.epsilon:
        release = Guarantee("proven", one, delta)
    if many is not None and many < readers.epsilon:
        readers = Guarantee("proven", many, delta)
    return {
        "one report": Guarantee("local", _local(plan, 1)),
        "one release": release,
        "a year of releases": readers,
        "a year of reports": year,
        "a year of reports, with times": Guarantee("local", _local_with_times(plan, reports)),
        "all reports of one answer": Guarantee("local", _forever(plan)),
    }


def _local(plan: Plan, reports: int) -> Decimal:
    differ = plan.survey.differing_bits
    if plan.memory is None:
        return reports * local_epsilon(differ, plan.q)
    return repeated_epsilon(differ, plan.memory, reports)


def _local_with_times(plan: Plan, reports: int) -> Decimal:
    if plan.memory is None:
        return _local(plan, reports)
    return changing_epsilon(plan.survey.differing_bits, plan.bits, plan.memory, reports)


def _forever(plan: Plan) -> Decimal:
    if plan.memory is not None:
        return local_epsilon(plan.survey.differing_bits, plan.memory.q1)
    if (most := plan.reports_per_device) is not None:
        return _local(plan, most)
    return _local(plan, 0) if plan.q.is_blind else Decimal("Infinity")


@lru_cache(maxsize=256)
def _proven(plan: Plan, delta: str) -> tuple[Decimal | None, Decimal | None]:
    """Return the proven epsilon of one release, and of all releases of a year.

    With several reports of a person in a release, those of a year are not composed.
    """
    if plan.crowd_size is None:
        return None, None
    try:
        one = Decimal(quick_epsilon(certify(plan), float(delta)))
        releases = releases_a_year(plan)
        if releases == 1:
            return one, one
        if plan.max_reports_per_person > 1 or releases > _MAX_COMPOSED:
            return one, None
        limit = float(_local(plan, releases))
        many = changing_crowds_epsilon(plan, plan.crowd_size, releases, float(delta), limit)
    except PrivacyRefusal:  # nothing is proven about this plan
        return None, None
    return one, None if math.isinf(many) else Decimal(round_up(many, 6))


def loosened(plan: Plan) -> Plan:
    """Return the plan with q and the noise raised by as much as rounding up can raise them.

    Two plans made for the same promise differ by no more than this, so comparing with this plan
    does not call rounding less protection.
    """
    if plan.memory is None:
        made = replace(plan, q=_loosened(plan.q, plan.q.digits))
        if plan.noise is None or not isinstance(plan.parties, Aggregators):
            return made
        scale = min(plan.noise.value * (1.0 + _NOISE_STEP), MAX_NOISE)
        noise = replace(plan.noise, scale=text_up(scale, 8))
        return replace(made, parties=replace(plan.parties, noise=noise))
    layers = plan.memory.q1, plan.memory.q2
    if max(q.digits for q in layers) > _LAYER_DIGITS:
        return plan
    memory = Memory(*(_loosened(q, _LAYER_DIGITS - 1) for q in layers))
    return replace(plan, q=memory.q, memory=memory)


def _loosened(q: FlipProbability, digits: int) -> FlipProbability:
    """Return a q that is larger by one unit of rounding: 2^-16, or 1/2048 of a small q."""
    unit = min(Fraction(1, 2**USUAL_DIGITS), q.fraction / Q_PARTS)
    finest = 2 ** max(digits, USUAL_DIGITS)
    whole = Fraction(int((q.fraction + unit) * finest), finest)
    return FlipProbability.of_fraction(min(max(whole, q.fraction), Fraction(1, 2)))


@dataclass(frozen=True)
class GuaranteeOverTime:
    """One guarantee, for whom it holds, and in words; epsilon and delta are rounded up."""

    kind: Literal["proven", "local"]
    holds_for: HoldsFor
    epsilon: float
    delta: float
    words: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def guarantees_over_time(
    plan: Plan, releases: int, *, delta: float | None = None, changed: int = 0
) -> list[GuaranteeOverTime]:
    """Return what holds when a person reports in each of `releases` releases under a plan.

    Without a crowd only local statements are made. A plan with memory and text, or with memory and
    several reports in a release, is refused. Proven epsilons are given at `delta`, by default the
    promise's, else 1e-6. `changed` of the same crowd changed their answer or missed a release: they
    are no cover.

    >>> from shoal.planning.memory import plan_with_memory
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> plan = plan_with_memory(survey, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
    >>> for one in guarantees_over_time(plan, 52):
    ...     print(one.kind, one.holds_for, one.epsilon, one.delta, sep=" | ")
    local | one report | 6.838059 | 0.0
    proven | one release | 0.999845 | 1e-06
    local | one answer, every release | 10.221024 | 0.0
    local | answers that change, every release | 528.071931 | 0.0
    proven | same crowd, every release | 3.42281 | 1e-06
    proven | changing crowds, every release | 137.106 | 1e-06
    """
    check_integer("releases", releases, lowest=1, highest=10**6)
    check_integer("changed", changed, lowest=0)
    check_crowd_hides(plan)
    if delta is None:
        delta = float(plan.promise.delta or "1e-6")
    # Several reports of one person in a release need group privacy: no crowd is relied on here.
    crowd = plan.crowd_size if plan.max_reports_per_person == 1 else None
    reports = releases * plan.max_reports_per_person
    differ, memory = plan.survey.differing_bits, plan.memory
    only = " of counts" if plan.view == "counts" else ""
    found: list[GuaranteeOverTime] = []

    def local(holds_for: HoldsFor, epsilon: Decimal, words: str) -> None:
        found.append(GuaranteeOverTime("local", holds_for, float(epsilon), 0.0, words))

    def proven(holds_for: HoldsFor, epsilon: float, words: str) -> None:
        found.append(GuaranteeOverTime("proven", holds_for, round_up(epsilon, 6), delta, words))

    local(
        "one report",
        local_epsilon(differ, plan.q),
        "A single report, against any observer who sees it and knows its sender, the collector"
        " too.",
    )
    if crowd is not None:
        proven(
            "one release",
            quick_epsilon(_certificate(plan, plan.q, crowd), delta),
            f"One release{only} of {crowd:,} reports, one per person, whatever the answers are.",
        )
    one_answer, any_answers = _local(plan, reports), _local_with_times(plan, reports)
    if memory is None:
        local(
            "answers that change, every release",
            any_answers,
            f"All {reports:,} reports of a person, each with fresh flips, against any observer who"
            " sees them and knows their sender. It grows with every report: if the answer stays the"
            " same, the flips average out.",
        )
        if crowd is None:
            return found
        epsilon = changing_crowds_epsilon(plan, crowd, reports, delta, math.inf)
        if epsilon < any_answers:
            proven(
                "changing crowds, every release",
                epsilon,
                f"All {reports:,} releases{only} together, of {crowd:,} reports each, with fresh"
                " flips.",
            )
        return found
    local(
        "one answer, every release",
        one_answer,
        f"All {reports:,} reports about one answer, against any observer who sees them and knows"
        " their sender; however many there are, at most"
        f" {text_up(float(local_epsilon(differ, memory.q1)))}. The bounds of distinct answers add"
        " up. This covers the answers, not the times at which they changed.",
    )
    local(
        "answers that change, every release",
        any_answers,
        f"All {reports:,} reports of a person, against any observer who sees them and knows their"
        " sender, for all answers and the times at which they changed.",
    )
    if crowd is None:
        return found
    if crowd > changed:
        # In the counts view too: fresh flips change a count in a way that depends on the count
        # alone, so every release is made from the counts of the permanent vectors.
        same = _certificate(plan, memory.q1, crowd - changed, releases)
        # Only the price of dropped bits depends on the number of releases.
        drops = same.overflow is not None and same.overflow.chance(float(plan.q)) > 0
        proven(
            "same crowd, every release",
            quick_epsilon(same, delta),
            f"All releases{only} together, {f'{releases:,} of them' if drops else 'however many'},"
            f" if the same people report in each and {crowd - changed:,} of them, this person among"
            " them, never change their answer: everything is made from their permanent vectors.",
        )
    composed = changing_crowds_epsilon(plan, crowd, releases, delta, float(any_answers))
    if composed < float(any_answers):
        proven(
            "changing crowds, every release",
            composed,
            f"All {releases:,} releases{only} together, each with {crowd:,} reports of any people:"
            " the fresh flips of each release compose, as if the permanent vectors were the"
            " answers. This covers all of a person's answers and when they changed.",
        )
    else:
        local(
            "changing crowds, every release",
            one_answer,
            "Where other people report from release to release, no crowd is relied on; for one"
            " answer only the local bound is claimed.",
        )
    return found


def changing_crowds_epsilon(
    plan: Plan, crowd: int, releases: int, delta: float, limit: float
) -> float:
    """Return the proven epsilon of all releases together, whichever people report in each.

    Infinity, without composing, where one release alone reaches the limit.
    """
    if plan.memory is None:
        return composed_epsilon(_certificate(plan, plan.q, crowd), releases, delta)
    everything = Survey("all", (Flags("bits", tuple(str(j) for j in range(plan.bits))),))
    cube = certify(everything, q=plan.memory.q2, crowd_size=crowd, view=plan.view)
    cube = replace(cube, overflow=_sent(plan))
    single = quick_epsilon(cube, delta)
    return composed_epsilon(cube, releases, delta) if single < limit else math.inf


def _certificate(plan: Plan, q: FlipProbability, crowd: int, reports: int = 1) -> Certificate:
    """Return the certificate of one release at another q; `reports` of a device may overflow."""
    if plan.noise is not None:  # such a plan has no memory, so that q is its own
        return certify(plan)
    certificate = certify(plan.survey, q=q, crowd_size=crowd, view=plan.view)
    return replace(certificate, cohorts=plan.cohorts, overflow=_sent(plan, reports))


def _sent(plan: Plan, reports: int = 1) -> Overflow | None:
    """Return the overflow of reports sent with the plan's q, whichever flips are asked about.

    Sending them whole gives the same releases unless one overflows, which each does with at most
    the probability of the largest answer, whatever its flips share with others. Bounds of releases
    that are added up hold given all permanent vectors, each with the price of these vectors; on
    average over them, which joint convexity allows, that is the price of the plan's q.
    """
    overflow = overflow_of(plan)
    return None if overflow is None else replace(overflow, q=float(plan.q), reports=reports)
