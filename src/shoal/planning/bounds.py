"""The proven delta of a survey in each view; q, epsilon or crowd size solved from it.

`reports`: the observer has every anonymized report of a crowd, whole. The theorems are the privacy
blanket and, for a few flags, adapted blankets (`shoal.theory.proven`).

`counts`: the observer has only how many reports set each bit. The counts of different bits are
independent given the answers, so the promise composes over the bits in which two answers can differ
(`shoal.theory.counts`); releases with fresh flips add more such bits. Each cohort of a text is
counted by itself: the crowd is the smallest cohort that chance allows, and delta pays for a smaller
one. A report that a leader and a helper receive in shares has at most W set bits, and delta pays
for those that are dropped (`shoal.theory.binomial` has both theorems).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

from shoal.errors import PrivacyRefusal
from shoal.protocol.plan import MAX_CROWD, Plan, View
from shoal.protocol.survey import Survey
from shoal.support.rounding import round_up, text_up
from shoal.theory.binomial import (
    best_crowd,
    chance_of_fewer,
    overflow_chance,
    smallest_cohort,
    smallest_weight,
    truncation_price,
)
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import NoValueError, settle, smallest
from shoal.theory.counts import (
    FINE,
    attack_counts,
    counts_crowd,
    counts_epsilon,
    counts_q,
    is_local,
    proven_counts,
)
from shoal.theory.domains import Block, Domain
from shoal.theory.proven import (
    Attack,
    Proven,
    attack_delta,
    proven_crowd,
    proven_delta,
    proven_epsilon,
    proven_q,
)
from shoal.theory.randomized_response import count_sigma

PART_OF_DELTA = 0.01
"""The planner allows the fewest set bits whose price is at most this part of delta."""

_ROUGH = 3e-3
"""Tolerance of the theory where a rough bound will do: q is within a percent."""

_PRICE = 0.05
"""The part of delta that pays for cohorts that turn out small."""

_STEPS = 500
"""A crowd with cohorts is found to 1/500."""

_PARTS = 8
"""Number of smaller epsilons to try where dropped bits cost more than everything else."""

_MAX_QUICK_BITS = 500
"""With more bits even a rough q takes long."""

_FEW_BITS, _PEOPLE_PER_BIT = 20, 15
"""With more bits and fewer people per bit, q for whole reports is near 1/2, which takes long."""


@dataclass(frozen=True)
class Overflow:
    """The cost of sending at most `max_weight` set bits of reports of `bits` bits.

    The largest original sets `max_set` bits. `q` is the flip probability of the sent reports if it
    is not the one asked about: with memory, some statements are about the permanent or the fresh
    flips alone. Each device sends `reports` reports in all.
    """

    bits: int
    max_set: int
    max_weight: int
    q: float | None = None
    reports: int = 1

    @classmethod
    def of(cls, survey: Survey, max_weight: int) -> Overflow:
        return cls(survey.bits, sum(q.max_set_bits for q in survey), max_weight)

    def chance(self, q: float) -> float:
        """Return an upper bound of the chance that a report sets more bits than fit."""
        return _overflow_chance(self.bits, self.max_set, self.max_weight, self.q or q)

    def price(self, crowd: int, q: float, epsilon: float, releases: int = 1) -> float:
        return truncation_price(self.chance(q), crowd * self.reports * releases, epsilon)

    def smallest_weight(self, crowd: int, q: float, epsilon: float, delta: float) -> int:
        """Return the smallest limit whose price is at most 1 % of delta."""
        budget = PART_OF_DELTA * delta
        return smallest_weight(self.bits, self.max_set, q, crowd, epsilon, budget)

    def bias(self, released: int, q: float) -> float:
        """Return by how many people dropped bits lower an estimated count on average, at most.

        They take at most one 1 per overflowing report off the ones, of which 1 - 2q are a person.
        """
        chance, slope = self.chance(q), 1.0 - 2.0 * (self.q or q)
        if not chance or not slope:
            return math.inf if chance else 0.0
        return released * chance / slope * (1.0 + 1e-15)

    def to_json(self, crowd: int, released: int, q: float, epsilon: float) -> dict[str, Any]:
        """Return the limit, the chance of more set bits, its price, and the bias of a count."""
        numbers = {
            "chance_of_more": self.chance(q),
            "price": self.price(crowd, q, epsilon),
            "bias": self.bias(released, q),
        }
        rounded = {
            name: round_up(one) if math.isfinite(one) else None for name, one in numbers.items()
        }
        return {"max_weight": self.max_weight, **rounded}


_overflow_chance = lru_cache(maxsize=1024)(overflow_chance)


def overflow_of(plan: Plan) -> Overflow | None:
    """Return how the reports of a plan overflow; None if all bits may be set."""
    return None if plan.max_weight is None else Overflow.of(plan.survey, plan.max_weight)


def domain_of(survey: Survey) -> Domain:
    """Return the survey's domain in the words of the theory: bits, fewest and most set bits."""
    parts = (part for question in survey for part in question.parts)
    return tuple(Block(part.bits, part.min_set_bits, part.max_set_bits) for part in parts)


def bound_of(
    survey: Survey,
    view: View,
    *,
    cohorts: int | None = None,
    releases: int = 1,
    overflow: Overflow | None = None,
) -> Bound:
    """Return the bound for one report of a person in a view.

    `proven` gives delta as a bracket whose high end is proven. Epsilon, q and the crowd size are
    the smallest that keep a promise, each certified by `proven` at the returned value.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> [round(bound_of(survey, view).q(10_000, 1, 1e-6), 4) for view in ("reports", "counts")]
    [0.203, 0.01]
    """
    if view == "reports":
        return ReportsBound(domain_of(survey))
    return CountsBound(survey.differing_bits, cohorts or survey.cohorts or 1, releases, overflow)


@dataclass(frozen=True)
class ReportsBound:
    """The bound for whole anonymized reports of a domain."""

    domain: Domain

    def proven(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Proven:
        return proven_delta(self.domain, crowd_size, q, epsilon, rtol)

    def attack(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return the worst crowd found and its delta: a lower bound of the truth."""
        return attack_delta(self.domain, crowd_size, q, epsilon, rtol)

    def epsilon(self, crowd_size: int, q: float, delta: float, *, rough: bool = False) -> float:
        return proven_epsilon(self.domain, crowd_size, q, delta, quick=rough).value

    def crowd_size(self, q: float, epsilon: float, delta: float) -> float:
        return proven_crowd(self.domain, q, epsilon, delta).value

    def q(self, crowd_size: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
        precision: dict[str, Any] = {"xtol": 1e-3} if rough else {}
        return proven_q(self.domain, crowd_size, epsilon, delta, **precision).value


@dataclass(frozen=True)
class CountsBound:
    """The bound for counts of bits; two answers differ in at most `differing` of them.

    A person takes part in `releases` releases, each time with fresh flips. `overflow` is set where
    only so many bits may be set; such reports have one cohort.
    """

    differing: int
    cohorts: int = 1
    releases: int = 1
    overflow: Overflow | None = None

    @property
    def _whole(self) -> CountsBound:
        return replace(self, overflow=None)

    @property
    def _bits(self) -> int:
        return self.differing * self.releases

    def proven(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Proven:
        """Return the proven delta at an epsilon, with 0 as its low end; rough from rtol 0.01 on."""
        tolerance = _ROUGH if rtol >= 0.01 else FINE
        delta = self._delta(crowd_size, q, epsilon, tolerance)
        return Proven(Bracket(0.0, delta), "composed over bits")

    def hiding(self, crowd_size: int, q: float, epsilon: float) -> int:
        """Return how many people the proven delta relies on: all, or fewer if that costs less.

        A larger crowd never hides less, so that a bound for fewer people holds (theorem: see
        `shoal.theory.binomial`). With cohorts this is the smallest cohort relied on.
        """

        def delta(size: int) -> float:
            return proven_counts(self._bits, size, q, epsilon, _ROUGH)

        if self.cohorts == 1 and self.overflow is None:
            return crowd_size
        cost = partial(self._cost, crowd_size, q, epsilon)
        return best_crowd(delta, cost, crowd_size)

    def _cost(self, crowd_size: int, q: float, epsilon: float, relied_on: int) -> float:
        if self.cohorts == 1:
            return self._price(relied_on, q, epsilon)
        chance = chance_of_fewer(crowd_size, self.cohorts, relied_on)
        return chance * self.releases * (1.0 + 1e-14)

    def _price(self, crowd_size: int, q: float, epsilon: float) -> float:
        """Return the cost of dropped bits; nothing where an epsilon holds without a crowd."""
        if self.overflow is None or is_local(self._bits, q, epsilon):
            return 0.0
        return self.overflow.price(crowd_size, q, epsilon, self.releases)

    def _delta(self, crowd_size: int, q: float, epsilon: float, tolerance: float = FINE) -> float:
        if is_local(self._bits, q, epsilon):
            return 0.0
        whole, price = self._parts(crowd_size, q, epsilon, tolerance)
        if self.overflow is None or price <= whole:
            return min((whole + price) * (1.0 + 1e-15), 1.0) if price else whole
        # a smaller epsilon promises more, and dropped bits may cost less there
        parts = (epsilon * part / _PARTS for part in range(_PARTS + 1))
        paid = (sum(self._parts(crowd_size, q, less, tolerance)) for less in parts)
        return min(min(paid) * (1.0 + 1e-15), 1.0)

    def _parts(
        self, crowd_size: int, q: float, epsilon: float, tolerance: float
    ) -> tuple[float, float]:
        size = self.hiding(crowd_size, q, epsilon)
        whole = proven_counts(self._bits, size, q, epsilon, tolerance)
        return whole, self._cost(crowd_size, q, epsilon, size)

    def _cohort(self, crowd_size: int, chance: float) -> tuple[int, float]:
        """Return the smallest cohort of all releases, and the chance of a smaller one."""
        if self.cohorts == 1:
            return crowd_size, 0.0
        size, price = smallest_cohort(crowd_size, self.cohorts, chance / self.releases)
        return size, price * self.releases * (1.0 + 1e-14)

    def attack(self, crowd_size: int, q: float, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return a crowd and its delta: a lower bound of the truth, and the proven one above it.

        The two answers differ in as many bits as any two; some of the others give the second, the
        rest the first. So each differing bit has the same two distributions, up to exchanging 0 and
        1, and the domain allows this crowd, for it holds no third answer. With cohorts a person
        hides among fewer, so the delta of one cohort of all is a lower bound too. The price of
        dropped bits is taken off.
        """
        del rtol
        proven = self._delta(crowd_size, q, epsilon)
        attack = attack_counts(self._bits, crowd_size, q, epsilon, proven)
        low = max(attack.delta - self._price(crowd_size, q, epsilon), 0.0)
        crowd_of_two = {"first": crowd_size - 1 - attack.ones, "second": attack.ones}
        return Attack(Bracket(min(low, proven), proven), crowd_of_two)

    def epsilon(self, crowd_size: int, q: float, delta: float) -> float:
        if delta == 0.0 or (self.cohorts == 1 and self.overflow is None):
            return counts_epsilon(self._bits, crowd_size, q, delta).value
        if self.overflow is not None:
            local = counts_epsilon(self._bits, crowd_size, q, 0.0).value
            epsilon, kept = settle(
                lambda left, _: self._whole.epsilon(crowd_size, q, left),
                lambda epsilon: delta - self._price(crowd_size, q, epsilon * (1.0 + 1e-6)),
                lambda epsilon: self._delta(crowd_size, q, epsilon) <= delta,
                delta,
            )
            return min(epsilon, local) if kept else local
        size, price = self._cohort(crowd_size, _PRICE * delta)
        epsilon = counts_epsilon(self._bits, size, q, delta - price).value
        step = 1e-5
        while self._delta(crowd_size, q, epsilon) > delta:  # by a hair: another cohort was taken
            epsilon, step = epsilon * (1.0 + step), 2.0 * step
        return epsilon

    def crowd_size(self, q: float, epsilon: float, delta: float) -> float:

        def keeps(size: float) -> bool:
            return size > MAX_CROWD or self._delta(int(size), q, epsilon) <= delta

        if self.overflow is not None:
            size, kept = settle(
                lambda left, last: max(self._whole.crowd_size(q, epsilon, left), last + 1),
                lambda size: delta - self._price(int(size) + 1, q, epsilon),
                keeps,
                delta,
            )
            return size if kept else math.inf
        if self.cohorts == 1:
            return counts_crowd(self._bits, q, epsilon, delta).value
        if proven_counts(self._bits, 1, q, epsilon) <= delta:
            return 1
        needed = counts_crowd(self._bits, q, epsilon, (1.0 - _PRICE) * delta).value
        if needed > MAX_CROWD:
            return needed

        def has_cohorts(size: int) -> bool:
            return self._cohort(size, _PRICE * delta)[0] >= needed

        # where the smallest cohort has that many people, the promise is kept, and hardly with fewer
        low, start = int(needed), min(int(needed) * self.cohorts, MAX_CROWD)
        step = low // 64 + 1
        try:
            near = smallest(has_cohorts, low, MAX_CROWD, start=start, step=step, rtol=1e-4)
            step = near // _STEPS + 1
            return smallest(keeps, 1, MAX_CROWD, start=near, step=step, rtol=1.5 / _STEPS)
        except NoValueError:
            return math.inf

    def q(self, crowd_size: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
        if self.overflow is not None:
            return self._q_dropping(self.overflow, crowd_size, epsilon, delta)
        size, price = self._cohort(crowd_size, _PRICE * delta)
        precision = {"xtol": 5e-3} if rough else {}
        return counts_q(self._bits, size, epsilon, delta - price, **precision).value

    def _q_dropping(
        self, overflow: Overflow, crowd_size: int, epsilon: float, delta: float
    ) -> float:
        def price(q: float) -> float:
            return self._price(crowd_size, q, epsilon)

        def left(q: float) -> float:
            if price(q) >= delta:
                return 0.0
            # the next q is a little larger and drops more
            return max(delta - price(min(q * 1.002, 0.5)), 0.5 * (delta - price(q)))

        def keeps(q: float) -> bool:
            return price(q) < delta and self._delta(crowd_size, q, epsilon) <= delta

        q, kept = settle(
            lambda left, _: self._whole.q(crowd_size, epsilon, left), left, keeps, delta
        )
        if kept:
            return q
        raise PrivacyRefusal(
            f"max_weight must be larger for reports of {overflow.bits} bits, got"
            f" max_weight={overflow.max_weight}: with q = {q:.3g} dropped bits cost a delta of"
            f" {text_up(price(q), 3)}, of {text_up(delta, 3)} in all; or leave the number to the"
            " planner."
        )


Bound = ReportsBound | CountsBound


class OtherView(NamedTuple):
    """The q and sigma that the same promise needs in the other view, or why they are missing."""

    view: View
    q: float | None
    sigma: float | None
    reason: str | None = None


@lru_cache(maxsize=64)
def other_view(agreed: Plan) -> OtherView | None:
    """Return what the same proven promise would need in the other view, to about two digits.

    None without a crowd, where nothing depends on the view, and with parties, which have one view
    each. Slow cases are not computed.

    >>> from shoal import Flags, plan
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> agreed = plan(survey, crowd_size=10_000, epsilon=1, delta="1e-6", view="counts")
    >>> other = other_view(agreed)
    >>> other.view, round(other.q, 3), round(other.sigma)
    ('reports', 0.203, 68)
    """
    promise, crowd = agreed.promise, agreed.crowd_size
    if crowd is None or agreed.parties is not None:
        return None
    view: View = "reports" if agreed.view == "counts" else "counts"
    if (reason := _not_compared(agreed, view)) is not None:
        return OtherView(view, None, None, reason)
    bound = bound_of(agreed.survey, view, cohorts=agreed.cohorts)
    q = bound.q(crowd, float(promise.epsilon), float(promise.delta or 0), rough=True)
    if q >= 0.5:
        return OtherView(view, None, None, "no flip probability keeps this promise")
    return OtherView(view, q, count_sigma(crowd, q))


def _not_compared(agreed: Plan, view: View) -> str | None:
    """Return why the other view of a plan is not computed, or None."""
    if agreed.promise.delta in (None, "0"):
        return "only a promise with a delta is compared"
    if agreed.max_reports_per_person > 1:
        return "only plans with one report of a person are compared"
    if agreed.bits == 1:
        return "a report of one bit says as much as its count"
    bits, crowd = agreed.bits, agreed.crowd_size or 0
    crowded = view == "counts" or bits <= _FEW_BITS or crowd >= _PEOPLE_PER_BIT * bits
    if bits > _MAX_QUICK_BITS or not crowded:
        return f"takes long to compute here; plan with --view {view} to see it"
    return None
