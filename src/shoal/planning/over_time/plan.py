"""A survey, a crowd and a horizon to a plan whose flips are partly permanent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction

from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.fragments import Pieces
from shoal.planning.over_time.horizons import parse_horizon
from shoal.protocol.flip_probability import FlipProbability, exact_fraction, repeated_epsilon
from shoal.protocol.plan import LARGEST_CROWD, VIEWS, Memory, Plan, Promise, View
from shoal.protocol.survey import Survey
from shoal.support.checks import check_decimal, check_integer
from shoal.theory.calibration import smallest

__all__ = ["plan_with_memory"]

FEWEST_DIGITS, MOST_DIGITS = 16, 26
"""Digits of q1 and q2; the effective q has at most one less than both together, which is 51."""

_HALF = Fraction(1, 2)


def plan_with_memory(
    survey: Survey,
    *,
    crowd_size: int,
    epsilon: object,
    delta: object,
    releases: int | None = None,
    horizon: str | None = None,
    lifetime_epsilon: object = None,
    distinct_answers: int = 1,
    fresh: object = "0.5",
    max_reports_per_person: int = 1,
    view: View = "reports",
    relay: str | None = None,
    analyzer: str | None = None,
    messages: int | None = None,
) -> Plan:
    """Make a plan whose flips are partly permanent, so that many releases do not average them away.

    The least effective q is the one that keeps the proven promise of a single release. Flips weaken
    what a bit says by 1 - 2q, and two layers by (1 - 2 q1)(1 - 2 q2); `fresh` says which
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
        How many times each person may report.
    horizon
        The same in words, such as "daily for a year"; it sets the plan's window too, in each of
        which an outbox makes one report.
    lifetime_epsilon
        What a person's reports in all releases may reveal about the answers to somebody who sees
        every report and knows its sender; None sets no limit.
    distinct_answers
        How many different answers a person may have within the horizon.
    fresh
        The part of the flips that is fresh each time, strictly between 0 and 1. Half by default:
        either layer alone then leaves as much of a bit as the other, so that it is about
        as hard to follow a person through time, which q2 prevents, as to average, which q1
        prevents. `shoal.planning.over_time.linking_probability` computes how hard.
    max_reports_per_person
        Only 1: several reports of one person in a release share permanent flips, and the proof for
        a single release needs independent ones.
    view
        Against whom the promise of each release holds: whoever sees all `reports` without their
        senders, or only the `counts` of bits.
    relay, analyzer, messages
        Two parties that share the work, as in `shoal.plan`. The price of reports that do not fit
        into their messages is that of one release; `statements` count it for every release.

    Examples
    --------
    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> plan = plan_with_memory(survey, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
    >>> round(float(plan.q), 4), round(float(plan.memory.q1), 4), round(float(plan.memory.q2), 4)
    (0.2146, 0.1223, 0.1223)
    """
    check_integer("crowd_size", crowd_size, lowest=1, highest=LARGEST_CROWD)
    if (releases is None) == (horizon is None):
        raise InputError('give either releases or a horizon such as "daily for a year".')
    window = None
    if horizon is not None:
        window, releases = parse_horizon(horizon)
    releases = check_integer("releases", releases, lowest=1)
    check_integer("distinct_answers", distinct_answers, lowest=1, highest=releases)
    epsilon_text = check_decimal("epsilon", epsilon, above=0)
    delta_text = check_decimal("delta", delta, above=0, below=1)
    share = float(check_decimal("fresh", fresh, above=0, below=1))
    if check_integer("max_reports_per_person", max_reports_per_person, lowest=1) > 1:
        raise PrivacyRefusal(
            "with memory a person sends one report per release: several would share their permanent"
            f" flips and not hide each other, got max_reports_per_person={max_reports_per_person}."
        )
    if survey.cohorts is not None:
        raise InputError(
            "text and memory do not go together yet: a remembered vector belongs to one cohort, and"
            " a cohort that a device keeps splits the crowd. Plan text without memory."
        )
    if view not in VIEWS:
        raise InputError(f"view must be one of {', '.join(VIEWS)}, got {view!r}.")
    from shoal.planning.views import bound_of

    epsilon_wanted, delta_wanted = float(epsilon_text), float(delta_text)
    pieces = Pieces.of(survey, view, relay, analyzer, messages)
    bound = bound_of(survey, view, overflow=None if pieces is None else pieces.overflow)
    left = delta_wanted * (1.0 if pieces is None else pieces.left)
    least = Fraction(bound.q(crowd_size, epsilon_wanted, left))
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
        plan = Plan(
            survey,
            memory.q,
            Promise("proven", epsilon_text, delta_text),
            crowd_size,
            window=window,
            memory=memory,
            view=view,
            parties=None
            if pieces is None
            else pieces.parties(crowd_size, memory.q, epsilon_text, delta_wanted),
        )
        if _certified(plan):
            return plan
    raise _nothing_left()


def _nothing_left() -> PrivacyRefusal:
    return PrivacyRefusal(
        "reports would carry no information: every bit would be a coin toss; choose a larger"
        " epsilon, a larger crowd, a larger lifetime_epsilon or fewer distinct answers."
    )


def _certified(plan: Plan) -> bool:
    from shoal.planning.promise import shortfall

    return shortfall(plan) <= 0


def _rounded_up(wanted: Fraction) -> FlipProbability:
    """Round up to as few digits as keep q within 1/2048, at most 26."""
    for digits in range(FEWEST_DIGITS, MOST_DIGITS + 1):
        rounded = Fraction(math.ceil(wanted * 2**digits), 2**digits)
        if rounded <= wanted * Fraction(2049, 2048):
            break
    return FlipProbability.of_fraction(min(rounded, _HALF))


def _raising(q1: FlipProbability) -> Iterator[FlipProbability]:
    """Yield q1 and larger ones: a bound need not fall with every step."""
    yield q1
    for attempt in range(MOST_DIGITS):
        step = Fraction(2**attempt, 2 ** max(q1.digits, FEWEST_DIGITS))
        yield FlipProbability.of_fraction(min(q1.fraction + step, _HALF))


def _within(
    survey: Survey, q1: FlipProbability, q2: FlipProbability, limit: Decimal, reports: int
) -> FlipProbability:
    """Return the smallest q1, from the given one up, at which one answer stays within a limit.

    More permanent flips are post-processing of fewer, so that what is revealed falls as q1 rises.
    """
    differ = survey.differing_bits

    def fits(numerator: int) -> bool:
        candidate = FlipProbability.of_fraction(Fraction(numerator, 2**digits))
        return repeated_epsilon(differ, Memory(candidate, q2), reports) <= limit

    digits = max(q1.digits, 20)
    low, high = int(q1.fraction * 2**digits), 2 ** (digits - 1)
    if fits(low):
        return q1
    # at 1/2 nothing is revealed
    return FlipProbability.of_fraction(Fraction(smallest(fits, low + 1, high), 2**digits))
