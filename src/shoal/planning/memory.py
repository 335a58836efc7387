"""Plans with memory: partly permanent flips, horizons, and whether reports can be linked.

A permanent vector sent unchanged names its sender: two equal vectors of many bits do not come from
two people. The fresh flips on top hide that. `shoal.planning.guarantees` has the guarantees.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import shortfall
from shoal.planning.plan import Deployment, check_strength, raising
from shoal.protocol.flip_probability import FlipProbability, exact_fraction, repeated_epsilon
from shoal.protocol.plan import MAX_CROWD, Memory, Plan, View
from shoal.protocol.survey import Survey
from shoal.support.checks import check_decimal, check_integer, takes
from shoal.theory.calibration import smallest

MIN_DIGITS, MAX_DIGITS = 16, 26
"""Digits of q1 and q2; the effective q has at most one less than both together, which is 51."""

_HALF = Fraction(1, 2)

_DAY = 86_400
_RATES = {"hourly": 3600, "daily": _DAY, "weekly": 7 * _DAY, "monthly": 30 * _DAY}
_SPANS = {"day": 1, "week": 7, "month": 31, "year": 366}
_WORDS = re.compile(
    r"(?:(hourly|daily|weekly|monthly)|every ([1-9][0-9]{0,3}) days) for"
    r" (an?|[1-9][0-9]{0,3}) (day|week|month|year)s?"
)
_MAX_BITS = 256


@takes(survey=Survey)
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
    leader: str | None = None,
    helper: str | None = None,
    max_weight: int | None = None,
    accept_weak_promise: bool = False,
) -> Plan:
    """Make a plan whose flips are partly permanent, so that many releases do not average them away.

    Arguments that `shoal.plan` does not have:

    * `releases`: how many times each person may report; or `horizon`, the same in words, such as
      "daily for a year", which also sets the window: an outbox makes one report in each.
    * `lifetime_epsilon`: limit of what all reports of a person reveal about the answers to an
      observer who sees every report and knows its sender; None sets no limit.
    * `distinct_answers`: how many different answers a person may have within the horizon.
    * `fresh`: the part of the flips that is fresh each time, strictly between 0 and 1. At one half
      either layer leaves as much of a bit as the other, so following a person through time, which
      q2 prevents, is about as hard as averaging, which q1 prevents (`linking_probability`).
    * `max_reports_per_person`: only 1. Several reports in a release share permanent flips, and the
      proof for a single release needs independent ones.

    The least effective q keeps the proven promise of a single release. Flips weaken a bit by
    1 - 2q, and two layers by (1 - 2 q1)(1 - 2 q2); `fresh` is the part of that, in logarithms, of
    the fresh layer. Then q1 is the smallest that keeps both the promise and the lifetime's limit.
    Both are rounded up to whole binary digits, and the promise is certified at the q they make.
    Text is refused, whose cohorts a memory would fix. The price of dropped bits is that of one
    release; `guarantees_over_time` counts every release.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> plan = plan_with_memory(survey, crowd_size=10_000, epsilon=1, delta="1e-6", releases=52)
    >>> round(float(plan.q), 3), round(float(plan.memory.q1), 3), round(float(plan.memory.q2), 3)
    (0.203, 0.115, 0.115)
    """
    check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
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
    origins = {"relay": relay, "analyzer": analyzer, "leader": leader, "helper": helper}
    deployed = Deployment.of(survey, view, origins, max_weight, window)
    left = deployed.left(float(delta_text))
    least = Fraction(deployed.bound.q(crowd_size, float(epsilon_text), left))
    q2 = _rounded_up(exact_fraction((1 - (1 - 2 * float(least)) ** share) / 2))
    if q2.is_blind:
        raise _nothing_left()
    rest = (least - q2.fraction) / (1 - 2 * q2.fraction)
    q1 = _rounded_up(max(rest, Fraction(1, 2**MAX_DIGITS)))
    if lifetime_epsilon is not None:
        limit = Decimal(check_decimal("lifetime_epsilon", lifetime_epsilon, above=0))
        # Each answer has at least one report, so that none has more than this many.
        most = releases - distinct_answers + 1
        q1 = _within(survey, q1, q2, limit / distinct_answers, most)
    for candidate in raising(q1, MAX_DIGITS):
        memory = Memory(candidate, q2)
        if candidate.is_blind or memory.q.is_blind:
            break
        plan = deployed.draft(memory.q, crowd_size, epsilon_text, delta_text, memory=memory)
        if shortfall(plan) <= 0:
            check_strength(plan, accept_weak_promise)
            return plan
    raise _nothing_left()


def _nothing_left() -> PrivacyRefusal:
    return PrivacyRefusal(
        "reports would carry no information: every bit would be a coin toss; choose a larger"
        " epsilon, a larger crowd, a larger lifetime_epsilon or fewer distinct answers."
    )


def _rounded_up(wanted: Fraction) -> FlipProbability:
    """Round up to as few digits as keep q within 1/2048, at most 26."""
    for digits in range(MIN_DIGITS, MAX_DIGITS + 1):
        rounded = Fraction(math.ceil(wanted * 2**digits), 2**digits)
        if rounded <= wanted * Fraction(2049, 2048):
            break
    return FlipProbability.of_fraction(min(rounded, _HALF))


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


class Horizon(NamedTuple):
    """The window in seconds, and how many windows the horizon can overlap."""

    window: int
    releases: int


def parse_horizon(text: str) -> Horizon:
    """Read "daily for a year", "weekly for 2 years", "every 14 days for 6 months".

    Months and years are taken at their longest, 31 and 366 days; a monthly window has 30 days.

    >>> parse_horizon("daily for a year")
    Horizon(window=86400, releases=367)
    >>> parse_horizon("every 14 days for 6 months").releases
    15
    """
    match = _WORDS.fullmatch(" ".join(text.lower().split())) if isinstance(text, str) else None
    if match is None:
        raise InputError(
            f"a horizon is written like 'daily for a year' or 'every 14 days for 6 months', got"
            f" {str(text)[:60]!r}."
        )
    rate, days, count, span = match.groups()
    window = _RATES[rate] if rate else int(days) * _DAY
    lasts = (1 if count in ("a", "an") else int(count)) * _SPANS[span] * _DAY
    return Horizon(window, _windows_touched(lasts, window))


def releases_in_a_year(window: int) -> int:
    """Return how many windows of a given length a year of 366 days can overlap.

    >>> releases_in_a_year(7 * 86_400)
    54
    """
    return _windows_touched(_SPANS["year"] * _DAY, window)


def _windows_touched(seconds: int, window: int) -> int:
    """Return how many windows a span of time can overlap, wherever it starts.

    Windows start at multiples of their length since 1970 (UTC) and a person starts at any time, so
    the first and the last window may both be partial: ceil(seconds / window) + 1.
    """
    return -(-seconds // window) + 1


def linking_probability(bits: int, memory: Memory, crowd_size: int) -> float:
    """Return how often an observer finds the other report of a sender among `crowd_size` reports.

    All senders have the same answer and the attacker knows it, so only the permanent flips tell
    them apart; the attacker takes the most likely report, at random among equals. Exact for up to
    256 bits; beyond, 1 is returned, an upper bound. People whose answers differ are found more
    easily, with memory and without. Guessing succeeds with probability 1 / crowd_size; with q2 = 0
    a long vector is always found.

    >>> from shoal.protocol.flip_probability import FlipProbability
    >>> memory = Memory(FlipProbability(1, 3), FlipProbability(1, 3))
    >>> [round(linking_probability(bits, memory, 1000), 4) for bits in (5, 40)]
    [0.0046, 0.1528]
    """
    check_integer("bits", bits, lowest=1)
    check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
    if bits > _MAX_BITS:
        return 1.0
    q, q1, q2 = float(memory.q), float(memory.q1), float(memory.q2)
    # Probabilities of a second flip after a first flip, and after a first truth.
    flip_again = ((1 - q1) * q2**2 + q1 * (1 - q2) ** 2) / q
    flip_now = q2 * (1 - q2) / (1 - q)
    weights = _binomial(bits, q)
    total = 0.0
    for flips in range(bits + 1):
        rest = bits - flips
        i, j = np.arange(flips + 1), np.arange(rest + 1)
        scores = np.add.outer(
            i * math.log(flip_again / q) + (flips - i) * math.log((1 - flip_again) / (1 - q)),
            j * math.log(flip_now / q) + (rest - j) * math.log((1 - flip_now) / (1 - q)),
        )
        own = np.outer(_binomial(flips, flip_again), _binomial(rest, flip_now))
        other = np.outer(_binomial(flips, q), _binomial(rest, q))
        _, place = np.unique(np.round(scores, 9), return_inverse=True)
        mine = np.bincount(place.ravel(), own.ravel())
        equal = np.bincount(place.ravel(), other.ravel()).astype(np.float64)
        above = np.append(np.cumsum(equal[::-1])[::-1][1:], 0.0)
        total += weights[flips] * float(mine @ _chance_to_win(above, equal, crowd_size))
    return min(float(total), 1.0)


def _chance_to_win(
    above: NDArray[np.float64], equal: NDArray[np.float64], crowd_size: int
) -> NDArray[np.float64]:
    """Return P(no other scores higher, and the draw among equals is won).

    With chances b that another scores equal and a that it scores less, n = N - 1: the sum over k of
    C(n,k) a^(n-k) b^k / (k+1) is ((a+b)^N - a^N) / (N b).
    """
    at_most = np.clip(1.0 - above, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.exp(crowd_size * np.log1p(-np.minimum(above, 1.0)))
        part = np.minimum(equal / at_most, 1.0)
        won = -level * np.expm1(crowd_size * np.log1p(-part)) / (crowd_size * equal)
        alone = np.exp((crowd_size - 1) * np.log1p(-np.minimum(above, 1.0)))
    return np.asarray(np.where(crowd_size * part > 1e-12, won, alone))


def _binomial(trials: int, chance: float) -> NDArray[np.float64]:
    rest = 1 - chance
    every = range(trials + 1)
    return np.array([math.comb(trials, k) * chance**k * rest ** (trials - k) for k in every])
