"""Planning with memory, and what a plan promises when the same people report again and again.

Composition theorems need fresh coins, and a permanent vector's are not. What holds, each a theorem:

* One release: its N reports are independent and lie with q, so proven(q, N).
* The reports about one answer, however many: they are made from its permanent vector, so local(q1);
  for n of them exactly `shoal.memory.revealing.repeated_epsilon`. Neighbours differ in what the
  answer was, at the same times. Distinct answers have vectors of their own and add up.
* All reports of a person whose answers may change at any time: given the permanent vectors, which
  are any vectors, each report lies afresh with q2 (`shoal.memory.revealing.changing_epsilon`).
* The same N people in every release, none of whom changes the answer: the releases depend on the
  permanent vectors only through their histogram, so proven(q1, N) for all of them together, by
  post-processing. People who change their answer, or miss a release, are no cover: c of them make
  the crowd N - c.
* Crowds that change: given the permanent vectors, each release lies afresh with q2 about vectors of
  the full cube, so proven(q2, N) for flags on all bits composes. Where that is not better than the
  local bound, the local bound is all that is claimed.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from shoal._check import check_decimal, check_integer
from shoal.errors import InputError, PrivacyRefusal
from shoal.lies import LieProbability, exact_fraction
from shoal.memory.revealing import changing_epsilon, local_epsilon, repeated_epsilon
from shoal.plans import LARGEST_CROWD, Memory, Plan, Promise
from shoal.rounding import round_up
from shoal.survey import Flags, Survey

if TYPE_CHECKING:
    from shoal.auditing import Certificate

__all__ = ["HoldsFor", "Statement", "plan_with_memory", "statements"]

FEWEST_DIGITS, MOST_DIGITS = 16, 26
"""Digits of q1 and q2; the effective q has at most one less than both together, which is 51."""

_HALF = Fraction(1, 2)

HoldsFor = Literal[
    "one report",
    "one release",
    "one answer, every release",
    "answers that change, every release",
    "same crowd, every release",
    "changing crowds, every release",
]


@dataclass(frozen=True)
class Statement:
    """One thing that holds, for whom, and in words; epsilon and delta are rounded up."""

    kind: Literal["proven", "local"]
    holds_for: HoldsFor
    epsilon: float
    delta: float
    words: str


def plan_with_memory(
    survey: Survey,
    *,
    crowd_size: int,
    epsilon: object,
    delta: object,
    releases: int,
    lifetime_epsilon: object = None,
    distinct_answers: int = 1,
    instantaneous: object = "0.5",
    max_reports_per_person: int = 1,
) -> Plan:
    """Make a plan whose lies are partly permanent, so that many releases do not average them away.

    The least effective q is the one that keeps the proven promise of a single release. Lies weaken
    what a bit says by 1 - 2q, and two layers by (1 - 2 q1)(1 - 2 q2); `instantaneous` says which
    part of that, in logarithms, the fresh layer takes. Then q1 is the smallest that keeps both the
    promise and the lifetime's limit. Both are rounded up to whole binary digits, and the promise is
    certified at exactly the q that they make.

    Parameters
    ----------
    survey
        What is asked; no text, whose cohorts a memory would fix.
    crowd_size, epsilon, delta
        The promise of each release.
    releases
        How many times each person may report: the horizon.
    lifetime_epsilon
        What a person's reports in all releases may reveal about the answers to somebody who sees
        every report and knows its sender; None sets no limit.
    distinct_answers
        How many different answers a person may have within the horizon.
    instantaneous
        The part of the lies that is fresh each time, strictly between 0 and 1. Half by default:
        either layer alone then leaves as much of a bit as the other, so that following a person
        through time (against which q2 stands) and averaging (against which q1 stands) are about
        equally hard. `shoal.memory.linking_probability` says how hard.
    max_reports_per_person
        Only 1: several reports of one person in a release share permanent lies, and the proof for
        a single release needs independent ones.

    Examples
    --------
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> plan = plan_with_memory(survey, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
    >>> round(float(plan.q), 4), round(float(plan.memory.q1), 4), round(float(plan.memory.q2), 4)
    (0.2146, 0.1223, 0.1223)
    """
    check_integer("crowd_size", crowd_size, lowest=1, highest=LARGEST_CROWD)
    check_integer("releases", releases, lowest=1)
    check_integer("distinct_answers", distinct_answers, lowest=1, highest=releases)
    epsilon_text = check_decimal("epsilon", epsilon, above=0)
    delta_text = check_decimal("delta", delta, above=0, below=1)
    share = float(check_decimal("instantaneous", instantaneous, above=0, below=1))
    if check_integer("max_reports_per_person", max_reports_per_person, lowest=1) > 1:
        raise PrivacyRefusal(
            "with memory a person sends one report per release: several would share their permanent"
            f" lies and not hide each other, got max_reports_per_person={max_reports_per_person}."
        )
    if survey.cohorts is not None:
        raise InputError(
            "text and memory do not go together yet: a remembered vector belongs to one cohort, and"
            " a cohort that a device keeps splits the crowd. Plan text without memory."
        )
    from shoal.auditing import domain_of
    from shoal.theory.solve import proven_q

    asked, allowed = float(epsilon_text), float(delta_text)
    least = Fraction(proven_q(domain_of(survey), crowd_size, asked, allowed).value)
    q2 = _rounded_up(exact_fraction((1 - (1 - 2 * float(least)) ** share) / 2))
    if q2.is_blind:
        raise _nothing_left()
    rest = (least - q2.fraction) / (1 - 2 * q2.fraction)
    q1 = _rounded_up(max(rest, Fraction(1, 2**MOST_DIGITS)))
    if lifetime_epsilon is not None:
        limit = Decimal(check_decimal("lifetime_epsilon", lifetime_epsilon, above=0))
        # Each answer has at least one report, so that none has more than this many.
        most = releases - distinct_answers + 1
        q1 = _within(survey, q1, q2, limit / distinct_answers, most)
    for candidate in _raising(q1):
        memory = Memory(candidate, q2)
        if candidate.is_blind or memory.q.is_blind:
            break
        made = Plan(
            survey,
            memory.q,
            Promise("proven", epsilon_text, delta_text),
            crowd_size,
            memory=memory,
        )
        if _certified(survey, memory.q, crowd_size, asked, allowed):
            return made
    raise _nothing_left()


def _nothing_left() -> PrivacyRefusal:
    return PrivacyRefusal(
        "every bit would be a coin toss and nothing could be learned; ask for a larger epsilon, a"
        " larger crowd, a larger lifetime_epsilon or fewer distinct answers."
    )


def _certified(
    survey: Survey, q: LieProbability, crowd_size: int, epsilon: float, delta: float
) -> bool:
    from shoal.auditing import audit

    return audit(survey, q=q, crowd_size=crowd_size).delta(epsilon=epsilon).high <= delta


def _rounded_up(wanted: Fraction) -> LieProbability:
    """Round up to as few digits as keep q within 1/2048, at most 26."""
    for digits in range(FEWEST_DIGITS, MOST_DIGITS + 1):
        rounded = Fraction(math.ceil(wanted * 2**digits), 2**digits)
        if rounded <= wanted * Fraction(2049, 2048):
            break
    return LieProbability.of_fraction(min(rounded, _HALF))


def _raising(q1: LieProbability) -> Iterator[LieProbability]:
    """Yield q1 and larger ones: a bound need not fall with every step."""
    yield q1
    for attempt in range(MOST_DIGITS):
        step = Fraction(2**attempt, 2 ** max(q1.digits, FEWEST_DIGITS))
        yield LieProbability.of_fraction(min(q1.fraction + step, _HALF))


def _within(
    survey: Survey, q1: LieProbability, q2: LieProbability, limit: Decimal, reports: int
) -> LieProbability:
    """Return the smallest q1, from the given one up, at which one answer stays within a limit.

    More permanent lies are post-processing of fewer, so that what is revealed falls as q1 rises.
    """
    differ = survey.differing_bits

    def fits(numerator: int) -> bool:
        candidate = LieProbability.of_fraction(Fraction(numerator, 2**digits))
        return repeated_epsilon(differ, Memory(candidate, q2), reports) <= limit

    digits = max(q1.digits, 20)
    low, high = int(q1.fraction * 2**digits), 2 ** (digits - 1)
    if fits(low):
        return q1
    while high - low > 1:  # low does not fit, high does: at 1/2 nothing is revealed
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return LieProbability.of_fraction(Fraction(high, 2**digits))


def statements(
    plan: Plan, releases: int, *, delta: float | None = None, changed: int = 0
) -> list[Statement]:
    """Return what holds when a person reports in each of `releases` releases under a plan.

    Parameters
    ----------
    plan
        With memory or without; without a crowd only the local statements are made.
    releases
        How many releases hold a report of the same person.
    delta
        At which delta the proven epsilons are given; by default the promise's, else 1e-6.
    changed
        How many of the same crowd changed their answer or missed a release: they are no cover.

    Examples
    --------
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> plan = plan_with_memory(survey, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
    >>> for one in statements(plan, 52):
    ...     print(one.kind, one.holds_for, one.epsilon, one.delta, sep=" | ")
    local | one report | 6.485957 | 0.0
    proven | one release | 0.999962 | 1e-06
    local | one answer, every release | 9.855599 | 0.0
    local | answers that change, every release | 509.121506 | 0.0
    proven | same crowd, every release | 9.84637 | 1e-06
    proven | changing crowds, every release | 102.95 | 1e-06
    """
    check_integer("releases", releases, lowest=1, highest=10**6)
    check_integer("changed", changed, lowest=0)
    if delta is None:
        delta = float(plan.promise.delta or "1e-6")
    # Several reports of one person in a release share permanent lies, or need group privacy: then
    # no crowd is counted on here.
    crowd = plan.crowd_size if plan.max_reports_per_person == 1 else None
    reports = releases * plan.max_reports_per_person
    made = [_one_report(plan)]
    if crowd is not None:
        made.append(_one_release(plan, crowd, delta))
    if plan.memory is None:
        return made + _fresh(plan, crowd, reports, delta)
    one_answer = _one_answer(plan, plan.memory, reports)
    any_answers = _any_answers(plan, plan.memory, reports)
    made += [one_answer, any_answers]
    if crowd is not None:
        if crowd > changed:
            made.append(_same_crowd(plan, plan.memory, delta, crowd - changed))
        made.append(_changing(plan, plan.memory, crowd, releases, delta, (one_answer, any_answers)))
    return made


def _one_report(plan: Plan) -> Statement:
    return Statement(
        "local",
        "one report",
        float(local_epsilon(plan.survey.differing_bits, plan.q)),
        0.0,
        "A single report, to whoever sees it and knows its sender, the collector too.",
    )


def _one_release(plan: Plan, crowd: int, delta: float) -> Statement:
    from shoal.auditing import audit

    certificate = audit(plan.survey, q=plan.q, crowd_size=crowd)
    return Statement(
        "proven",
        "one release",
        round_up(certificate.epsilon(delta=delta), 6),
        delta,
        f"One release of {crowd:,} reports, one per person, whatever the answers are.",
    )


def _one_answer(plan: Plan, memory: Memory, reports: int) -> Statement:
    differ = plan.survey.differing_bits
    return Statement(
        "local",
        "one answer, every release",
        float(repeated_epsilon(differ, memory, reports)),
        0.0,
        f"All {reports:,} reports about one answer, to whoever sees them and knows their sender;"
        f" however many there are, at most {local_epsilon(differ, memory.q1)}. Distinct answers add"
        " up. It covers what was answered, not when that changed.",
    )


def _any_answers(plan: Plan, memory: Memory, reports: int) -> Statement:
    return Statement(
        "local",
        "answers that change, every release",
        float(changing_epsilon(plan.survey.differing_bits, plan.bits, memory, reports)),
        0.0,
        f"All {reports:,} reports of a person, to whoever sees them and knows their sender, about"
        " all answers and the times at which they changed.",
    )


def _same_crowd(plan: Plan, memory: Memory, delta: float, crowd: int) -> Statement:
    from shoal.auditing import audit

    certificate = audit(plan.survey, q=memory.q1, crowd_size=crowd)
    return Statement(
        "proven",
        "same crowd, every release",
        round_up(certificate.epsilon(delta=delta), 6),
        delta,
        f"All releases together, however many, if the same people report in each and {crowd:,} of"
        " them, this person among them, never change their answer: everything is made from their"
        " permanent vectors.",
    )


def _changing(
    plan: Plan,
    memory: Memory,
    crowd: int,
    releases: int,
    delta: float,
    local: tuple[Statement, Statement],
) -> Statement:
    from shoal.auditing import audit

    one_answer, any_answers = local
    cube = audit(_cube(plan.bits), q=memory.q2, crowd_size=crowd)
    # All releases reveal at least what one does; if that is too much, nothing is to be composed.
    single = cube.epsilon(delta=delta)
    composed = _composed(cube, releases, delta) if single < any_answers.epsilon else math.inf
    if composed < any_answers.epsilon:
        return Statement(
            "proven",
            "changing crowds, every release",
            round_up(composed, 6),
            delta,
            f"All {releases:,} releases together, each with {crowd:,} reports of any people: the"
            " fresh lies of each release compose, as if the permanent vectors were the answers. It"
            " covers all of a person's answers and when they changed.",
        )
    return Statement(
        "local",
        "changing crowds, every release",
        one_answer.epsilon,
        0.0,
        "Where other people report from release to release, no crowd is counted on; for one answer"
        " the local bound is all that is claimed.",
    )


def _fresh(plan: Plan, crowd: int | None, reports: int, delta: float) -> list[Statement]:
    from shoal.auditing import audit

    local = reports * local_epsilon(plan.survey.differing_bits, plan.q)
    made = [
        Statement(
            "local",
            "answers that change, every release",
            float(local),
            0.0,
            f"All {reports:,} reports of a person, each with fresh lies, to whoever sees them and"
            " knows their sender. It grows with every report: the same answer averages out.",
        )
    ]
    if crowd is None:
        return made
    epsilon = _composed(audit(plan.survey, q=plan.q, crowd_size=crowd), reports, delta)
    if epsilon < local:
        words = f"All {reports:,} releases together, of {crowd:,} reports each, with fresh lies."
        holds_for: HoldsFor = "changing crowds, every release"
        made.append(Statement("proven", holds_for, round_up(epsilon, 6), delta, words))
    return made


def _composed(certificate: Certificate, releases: int, delta: float) -> float:
    """Return the epsilon of several releases: composed tightly if that is installed, else added."""
    if delta == 0:
        return math.inf
    if releases == 1:
        return certificate.epsilon(delta=delta)
    if importlib.util.find_spec("dp_accounting") is None:
        return certificate.compose(releases).basic_epsilon(delta=delta)
    return certificate.compose(releases).epsilon(delta=delta)


def _cube(bits: int) -> Survey:
    """Return the survey that allows every vector."""
    return Survey("every vector", (Flags("bits", tuple(str(j) for j in range(bits))),))
