"""What is proven in each view: delta, and the same question turned round for epsilon, crowd and q.

`reports`: the observer has every anonymized report of a crowd, whole. The theorem is the privacy
blanket (`shoal.theory.proven`).

`counts`: the observer has how many reports set each bit, and nothing else. The counts of different
bits are independent given the answers, so that the promise composes over the bits in which two
answers can differ (`shoal.theory.counts`). Releases with fresh flips add more such bits.
Where reports are split into cohorts, counts are those of each cohort, and the crowd is the smallest
cohort that chance allows; a smaller one is paid for in delta (`shoal.theory.binomial`).
Where a relay and an analyzer receive reports in pieces, those that do not fit are paid for in
delta too (`shoal.planning.fragments`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from shoal.errors import PrivacyRefusal
from shoal.planning.fragments import PART_OF_DELTA, Overflow
from shoal.protocol.plan import MAX_CROWD, Plan, View
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_up
from shoal.theory import solve
from shoal.theory.binomial import best_crowd, chance_of_fewer, smallest_cohort
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import NoValueError, smallest
from shoal.theory.counts import (
    FINE,
    attack_counts,
    counts_crowd,
    counts_epsilon,
    counts_q,
    is_local,
    proven_counts,
    rough_counts_q,
)
from shoal.theory.domains import Block, Domain, Triple
from shoal.theory.proven import Proven, attack_delta, proven_delta
from shoal.theory.randomized_response import count_sigma

__all__ = [
    "Attack",
    "CountsBound",
    "OtherView",
    "ReportsBound",
    "bound_of",
    "domain_of",
    "other_view",
]

_ROUGH = 3e-3
"""Tolerance of the theory where a rough bound will do: q is within a percent."""

_PRICE = 0.05
"""The part of delta that pays for cohorts that turn out small."""

_STEPS = 500
"""A crowd with cohorts is found to such a part of itself."""

_PARTS = 8
"""So many smaller epsilons are tried where dropping costs more than all else."""

_TRIES = 30
"""So often an answer is looked for again with the price that the last one has."""

_WIDEST_QUICK = 500
"""Above so many bits even a rough q takes long."""

_FEW_BITS, _PEOPLE_PER_BIT = 20, 15
"""With more bits, and fewer people for each, q is near 1/2 for whole reports: that takes long."""


class Attack(NamedTuple):
    """A delta that some crowd has, and what is known of that crowd.

    A crowd of equal answers is the bits (a, b, c) of `shoal.theory.domains`. For one bit, `ones` is
    how many of the others set it. In the view of counts, `first` and `second` are how many of the
    others give the first and the second of the two answers that are told apart.
    """

    delta: Bracket
    crowd: dict[str, int]


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
) -> ReportsBound | CountsBound:
    """Return what is proven about a survey in a view.

    Examples
    --------
    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> [round(bound_of(survey, view).q(10_000, 1, 1e-6), 4) for view in ("reports", "counts")]
    [0.2146, 0.01]
    """
    if view == "reports":
        return ReportsBound(domain_of(survey))
    return CountsBound(survey.differing_bits, cohorts or survey.cohorts or 1, releases, overflow)


@dataclass(frozen=True)
class ReportsBound:
    """What whole anonymized reports of a domain reveal."""

    domain: Domain

    def proven(self, crowd: int, q: float, epsilon: float, rtol: float = 1e-4) -> Proven:
        """Return the proven delta at an epsilon and the method that proves it."""
        return proven_delta(self.domain, crowd, q, epsilon, rtol)

    def attack(self, crowd: int, q: float, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return the worst crowd found and its delta: a lower bound of the truth."""
        attack = attack_delta(self.domain, crowd, q, epsilon, rtol)
        if isinstance(attack.crowd, Triple):
            return Attack(attack.delta, attack.crowd._asdict())
        # One bit: the record changes to 1 (up) or to 0 among N - 1 others, m of them set.
        up = attack.crowd.up
        return Attack(
            attack.delta, {"a": int(up), "b": int(not up), "c": 0, "ones": attack.crowd.m}
        )

    def epsilon(self, crowd: int, q: float, delta: float) -> float:
        """Return the smallest proven epsilon at a delta."""
        return solve.proven_epsilon(self.domain, crowd, q, delta).value

    def crowd(self, q: float, epsilon: float, delta: float) -> float:
        """Return the smallest crowd that keeps a promise; infinite if there is none."""
        return solve.proven_crowd(self.domain, q, epsilon, delta).value

    def q(self, crowd: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
        """Return the smallest q that keeps a promise, or one that is roughly as small."""
        precision = {"xtol": 1e-3} if rough else {}
        return solve.proven_q(self.domain, crowd, epsilon, delta, **precision).value

    def quick_q(self, crowd: int, epsilon: float, delta: float) -> float:
        """Return a q that keeps a promise, within about a percent of the smallest."""
        return self.q(crowd, epsilon, delta, rough=True)


@dataclass(frozen=True)
class CountsBound:
    """What the counts of single bits reveal, of which two answers differ in at most so many.

    `releases` is in how many releases a person takes part, each time with fresh flips. `overflow`
    is there where reports are sent in pieces; they have one cohort.
    """

    differing: int
    cohorts: int = 1
    releases: int = 1
    overflow: Overflow | None = None

    @property
    def _whole(self) -> CountsBound:
        """The same of reports of which nothing is dropped."""
        return replace(self, overflow=None)

    def _price(self, crowd: int, q: float, epsilon: float) -> float:
        """Return what dropping costs; nothing where an epsilon holds without a crowd."""
        if self.overflow is None or is_local(self._bits, q, epsilon):
            return 0.0
        return self.overflow.price(crowd, q, epsilon, self.releases)

    @property
    def _bits(self) -> int:
        return self.differing * self.releases

    def proven(self, crowd: int, q: float, epsilon: float, rtol: float = 1e-4) -> Proven:
        """Return the proven delta at an epsilon; from an `rtol` of 0.01 on it is a rough one.

        Its low end is 0: `attack` has the other side.
        """
        tolerance = _ROUGH if rtol >= 0.01 else FINE
        return Proven(Bracket(0.0, self._delta(crowd, q, epsilon, tolerance)), "composed over bits")

    def hiding(self, crowd: int, q: float, epsilon: float) -> int:
        """Return how many people the proven delta relies on: all, or fewer where that costs less.

        A larger crowd never hides less, so that a bound for fewer people holds (theorem: see
        `shoal.theory.binomial`). With cohorts this is the smallest cohort relied on.
        """

        def delta(size: int) -> float:
            return proven_counts(self._bits, size, q, epsilon, _ROUGH)

        if self.cohorts == 1 and self.overflow is None:
            return crowd
        return best_crowd(delta, self._cost(crowd, q, epsilon), crowd)

    def _cost(self, crowd: int, q: float, epsilon: float) -> Callable[[int], float]:
        """Return the price of relying on a number of people of a crowd."""

        def cost(size: int) -> float:
            if self.cohorts == 1:
                return self._price(size, q, epsilon)
            chance = chance_of_fewer(crowd, self.cohorts, size)
            return chance * self.releases * (1.0 + 1e-14)

        return cost

    def _delta(self, crowd: int, q: float, epsilon: float, tolerance: float = FINE) -> float:
        if is_local(self._bits, q, epsilon):
            return 0.0
        whole, price = self._parts(crowd, q, epsilon, tolerance)
        if self.overflow is None or price <= whole:
            return min((whole + price) * (1.0 + 1e-15), 1.0) if price else whole
        # a smaller epsilon promises more, and what is dropped may cost less there
        parts = (epsilon * part / _PARTS for part in range(_PARTS + 1))
        paid = (sum(self._parts(crowd, q, less, tolerance)) for less in parts)
        return min(min(paid) * (1.0 + 1e-15), 1.0)

    def _parts(self, crowd: int, q: float, epsilon: float, tolerance: float) -> tuple[float, float]:
        """Return the delta of the people relied on, and the price of relying on them."""
        size = self.hiding(crowd, q, epsilon)
        whole = proven_counts(self._bits, size, q, epsilon, tolerance)
        return whole, self._cost(crowd, q, epsilon)(size)

    def _cohort(self, crowd: int, chance: float) -> tuple[int, float]:
        """Return the smallest cohort of all releases, and the chance of a smaller one."""
        size, price = smallest_cohort(crowd, self.cohorts, chance / self.releases)
        return size, price * self.releases * (1.0 + 1e-14)

    def attack(self, crowd: int, q: float, epsilon: float, rtol: float = 1e-4) -> Attack:
        """Return a crowd and its delta: a lower bound of the truth, and the proven one above it.

        The two answers differ in as many bits as any two; of the others some give the second and
        the rest the first. So every bit that differs has the same two distributions: a bit that is
        set in the first answer only has them with 0 and 1 exchanged. The domain allows this crowd,
        for it holds no third answer. With cohorts a person hides among fewer, so that the delta of
        one cohort of all is a lower bound too. Where reports are sent in pieces, the price is taken
        off.
        """
        del rtol
        proven = self._delta(crowd, q, epsilon)
        attack = attack_counts(self._bits, crowd, q, epsilon, proven)
        low = max(attack.delta - self._price(crowd, q, epsilon), 0.0)
        crowd_of_two = {"first": crowd - 1 - attack.ones, "second": attack.ones}
        return Attack(Bracket(min(low, proven), proven), crowd_of_two)

    def epsilon(self, crowd: int, q: float, delta: float) -> float:
        """Return the smallest proven epsilon at a delta."""
        if self.overflow is not None and delta > 0.0:
            return self._epsilon_in_pieces(crowd, q, delta)
        if self.cohorts == 1 or delta == 0.0:
            return counts_epsilon(self._bits, crowd, q, delta).value
        size, price = self._cohort(crowd, _PRICE * delta)
        epsilon = counts_epsilon(self._bits, size, q, delta - price).value
        step = 1e-5
        while self._delta(crowd, q, epsilon) > delta:  # by a hair: another cohort was taken
            epsilon, step = epsilon * (1.0 + step), 2.0 * step
        return epsilon

    def crowd(self, q: float, epsilon: float, delta: float) -> float:
        """Return the smallest crowd that keeps a promise; infinite if there is none."""
        if self.overflow is not None:
            return self._crowd_in_pieces(q, epsilon, delta)
        if self.cohorts == 1:
            return counts_crowd(self._bits, q, epsilon, delta).value
        if proven_counts(self._bits, 1, q, epsilon) <= delta:
            return 1
        needed = counts_crowd(self._bits, q, epsilon, (1.0 - _PRICE) * delta).value
        if needed > MAX_CROWD:
            return needed

        def has_cohorts(crowd: int) -> bool:
            return self._cohort(crowd, _PRICE * delta)[0] >= needed

        def keeps(crowd: int) -> bool:
            return self._delta(crowd, q, epsilon) <= delta

        # where the smallest cohort has that many people, the promise is kept, and hardly with fewer
        low, start = int(needed), min(int(needed) * self.cohorts, MAX_CROWD)
        step = low // 64 + 1
        try:
            near = smallest(has_cohorts, low, MAX_CROWD, start=start, step=step, rtol=1e-4)
            step = near // _STEPS + 1
            return smallest(keeps, 1, MAX_CROWD, start=near, step=step, rtol=1.5 / _STEPS)
        except NoValueError:
            return float("inf")

    def q(self, crowd: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
        """Return the smallest q that keeps a promise, or one that is roughly as small."""
        if self.overflow is not None:
            return self._q_in_pieces(crowd, epsilon, delta)
        size, price = self._cohort(crowd, _PRICE * delta)
        precision = {"xtol": 5e-3} if rough else {}
        return counts_q(self._bits, size, epsilon, delta - price, **precision).value

    def quick_q(self, crowd: int, epsilon: float, delta: float) -> float:
        """Return a q that keeps a promise, within about a percent of the smallest."""
        size, price = self._cohort(crowd, _PRICE * delta)
        return rough_counts_q(self._bits, size, epsilon, delta - price)

    # What dropping costs depends on what is looked for. So look with the price of the last try
    # until the answer, with its own price, keeps the promise.

    def _epsilon_in_pieces(self, crowd: int, q: float, delta: float) -> float:
        local = counts_epsilon(self._bits, crowd, q, 0.0).value
        epsilon = self._whole.epsilon(crowd, q, delta)
        for _ in range(_TRIES):
            left = delta - self._price(crowd, q, epsilon * (1.0 + 1e-6))
            if left <= 0.0 or epsilon >= local:
                break
            epsilon = self._whole.epsilon(crowd, q, left)
            if self._delta(crowd, q, epsilon) <= delta:
                return min(epsilon, local)
        return local

    def _crowd_in_pieces(self, q: float, epsilon: float, delta: float) -> float:
        crowd = self._whole.crowd(q, epsilon, delta)
        for _ in range(_TRIES):
            if crowd > MAX_CROWD or self._delta(int(crowd), q, epsilon) <= delta:
                return crowd
            left = delta - self._price(int(crowd) + 1, q, epsilon)
            if left <= 0.0:
                break
            crowd = max(self._whole.crowd(q, epsilon, left), crowd + 1)
        return float("inf")

    def _q_in_pieces(self, crowd: int, epsilon: float, delta: float) -> float:
        assert self.overflow is not None
        q = self._whole.q(crowd, epsilon, delta)
        for _ in range(_TRIES):
            price = self._price(crowd, q, epsilon)
            if price >= delta:
                break
            if self._delta(crowd, q, epsilon) <= delta:
                return q
            # the next q is a little larger, and so is what it drops
            grown = self._price(crowd, min(q * 1.002, 0.5), epsilon)
            q = self._whole.q(crowd, epsilon, max(delta - grown, 0.5 * (delta - price)))
        raise PrivacyRefusal(
            f"{self.overflow.messages} messages are too few for a report of {self.overflow.bits}"
            f" bits: with q = {q:.3g} what does not fit costs a delta of {text_up(price, 3)}, of"
            f" {text_up(delta, 3)} in all; allow more messages, or leave the number to the planner."
        )


class OtherView(NamedTuple):
    """What the same promise needs in the other view: q, and the sigma of a count.

    Where they are not computed, `reason` says why.
    """

    view: View
    q: float | None
    sigma: float | None
    reason: str | None = None


@lru_cache(maxsize=64)
def other_view(agreed: Plan) -> OtherView | None:
    """Return what the same proven promise would need in the other view, to about two digits.

    None where no crowd is needed, so that nothing depends on the view. What is known to take long
    is not computed.

    Examples
    --------
    >>> from shoal import Flags, plan
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> agreed = plan(survey, crowd_size=10_000, epsilon=1, delta="1e-6", view="counts")
    >>> other = other_view(agreed)
    >>> other.view, round(other.q, 3), round(other.sigma)
    ('reports', 0.215, 72)
    """
    promise, crowd = agreed.promise, agreed.crowd_size
    if crowd is None:
        return None
    view: View = "reports" if agreed.view == "counts" else "counts"
    if (reason := _not_compared(agreed, view)) is not None:
        return OtherView(view, None, None, reason)
    bound = bound_of(agreed.survey, view, cohorts=agreed.cohorts)
    delta = float(promise.delta or 0)
    if agreed.parties is not None and view == "counts":
        delta *= 1.0 - PART_OF_DELTA  # the rest is for what does not fit into the messages
    q = bound.quick_q(crowd, float(promise.epsilon), delta)
    if q >= 0.5:
        return OtherView(view, None, None, "no flip probability keeps this promise")
    return OtherView(view, q, count_sigma(crowd, q))


def _not_compared(agreed: Plan, view: View) -> str | None:
    """Return why nothing is computed about another view of a plan, or None."""
    if agreed.promise.delta in (None, "0"):
        return "only a promise with a delta is compared"
    if agreed.max_reports_per_person > 1:
        return "only plans with one report of a person are compared"
    if agreed.bits == 1:
        return "a report of one bit says as much as its count"
    bits, crowd = agreed.bits, agreed.crowd_size or 0
    crowded = view == "counts" or bits <= _FEW_BITS or crowd >= _PEOPLE_PER_BIT * bits
    if bits > _WIDEST_QUICK or not crowded:
        return f"takes long to compute here; plan with --view {view} to see it"
    return None
