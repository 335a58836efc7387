"""What each kind of trust, and each question of a survey, costs in noise.

The less trust is needed, the more noise an answer needs (SDP 4, LEC 2). For one survey
and one privacy wanted:

================  =========================================  ====================================
local             no trust in anyone                         q from epsilon alone
proven            the reports are anonymized                 q from epsilon, delta, crowd; theorem
sufficient        the same; homogeneous crowds only          SDP's (epsilon, eta = delta)
three-sigma       the same; SDP's rule for sufficient        q from epsilon and crowd
counts            only counts are seen, no reports           q from epsilon, delta, crowd; theorem
curator           a curator sees all answers                 Laplace noise, epsilon alone
curator_gaussian  the same                                   normal noise, epsilon and delta
================  =========================================  ====================================

Every question makes two people's answers differ in more bits, so all bits need more flips. The cost
of a question is found by leaving it out, with every cross that it is a side of: the promise and the
crowd stay the same, and every other count has a smaller sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, Literal

from shoal.errors import InputError
from shoal.planning.bounds import Bound, bound_of, domain_of
from shoal.planning.plan import plan
from shoal.protocol.plan import MAX_CROWD
from shoal.protocol.survey import Question, Survey
from shoal.support.checks import check_decimal, check_integer, check_level, check_number
from shoal.theory import laplace as laplace_law
from shoal.theory.blanket import blanket_delta
from shoal.theory.calibration import NoValueError, smallest
from shoal.theory.composition import gaussian_sigma
from shoal.theory.homogeneous import eta
from shoal.theory.proven import proven_delta, proven_q
from shoal.theory.randomized_response import count_sigma, local_q, normal_factor
from shoal.theory.sufficient import gap_312, sufficient_eta, sufficient_q, three_sigma_q

Trust = Literal[
    "local", "proven", "sufficient", "three-sigma", "counts", "curator", "curator_gaussian"
]

_XTOL = 1e-3
"""Of the log-odds of q: more digits than a comparison needs, at a tenth of a plan's time."""

_EXACT = 10**7
"""Up to this crowd every way to prove a delta is tried while people are searched for."""

_CLOSE = 0.01
"""How closely the number of people needed is found."""


@dataclass(frozen=True)
class Cost:
    """What one kind of trust costs.

    Parameters
    ----------
    trust
        Who is trusted with what.
    q, scale
        The noise: a device's flip probability, or the scale of a curator's. None if it does not
        apply, or if no noise keeps the promise.
    sigma
        The standard deviation of a count.
    half_width
        How far an interval for a group reaches to either side, in people: a normal one, which is
        approximate, and for a curator the exact one.
    people_needed
        How many people it takes to know the group as well as asked; None for more than 10^12.
    gain_over_local
        How many times smaller sigma is than with local noise.
    """

    trust: Trust
    q: float | None
    scale: float | None
    sigma: float | None
    half_width: float | None
    people_needed: int | None
    gain_over_local: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the cost as plain JSON values, with the noise that applies."""
        noise = {"curator": {"scale": self.scale}, "curator_gaussian": {}}
        return noise.get(self.trust, {"q": self.q}) | {
            "sigma": self.sigma,
            "half_width": self.half_width,
            "people_needed": self.people_needed,
            "gain_over_local": self.gain_over_local,
        }


@dataclass(frozen=True)
class Comparison:
    """The costs of every kind of trust for one question and one privacy wanted."""

    survey: Survey
    crowd_size: int
    epsilon: str
    delta: str
    share: float
    relative_error: float
    level: float
    costs: tuple[Cost, ...]

    def __getitem__(self, trust: str) -> Cost:
        for cost in self.costs:
            if cost.trust == trust:
                return cost
        kinds = ", ".join(cost.trust for cost in self.costs)
        raise InputError(f"unknown kind of trust {trust!r}; choose one of {kinds}.")

    def __iter__(self) -> Iterator[Cost]:
        return iter(self.costs)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values; its gain is that of the proven promise."""
        return {
            "survey": self.survey.name,
            "bits": self.survey.bits,
            "differing_bits": self.survey.differing_bits,
            "crowd_size": self.crowd_size,
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "share": self.share,
            "relative_error": self.relative_error,
            "level": self.level,
            **{cost.trust: cost.to_json() for cost in self.costs},
            "gain_over_local": self["proven"].gain_over_local,
        }


def compare(
    survey: Survey,
    *,
    crowd_size: int,
    epsilon: object,
    delta: object,
    share: float = 0.01,
    relative_error: float = 0.1,
    level: float = 0.95,
) -> Comparison:
    """Compare what each kind of trust costs.

    Parameters
    ----------
    survey
        What is asked.
    crowd_size
        How many people answer.
    epsilon, delta
        The privacy wanted, decimals; `delta` is also SDP's eta. Local and curator need no delta.
    share, relative_error, level
        The group to know, as a share of the crowd; how well, relative to itself; how surely.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> costs = compare(survey, crowd_size=10_000, epsilon=1, delta="1e-6")
    >>> [round(cost.gain_over_local, 1) for cost in costs]
    [1.0, 6.9, 8.0, 9.5, 49.3, 70.7, 52.8]
    >>> costs["curator"].scale
    5.0
    """
    crowd = check_integer("crowd_size", crowd_size, lowest=1, highest=MAX_CROWD)
    texts = (
        check_decimal("epsilon", epsilon, above=0),
        check_decimal("delta", delta, above=0, below=1),
    )
    if not 1e-6 <= float(texts[0]) <= 100 or float(texts[1]) < 1e-300:
        raise InputError(f"epsilon must be between 1e-6 and 100, got epsilon={texts[0]}.")
    if not 0 < check_number("share", share) <= 1:
        raise InputError(f"share must be in (0, 1], got share={share}.")
    if not 1e-9 <= check_number("relative_error", relative_error) <= 1e9:
        raise InputError(f"relative_error must be above 0, got {relative_error}.")
    error = Fraction(share) * Fraction(relative_error)
    question = _Question(survey, crowd, float(texts[0]), float(texts[1]), error, check_level(level))
    return Comparison(survey, crowd, *texts, share, relative_error, level, question.costs())


@dataclass(frozen=True)
class PeopleNeeded:
    """How many people each view needs for a share within an error; None for more than 10^12.

    `within` is the error to either side, as a share of everybody, and `local` the number of people
    if no one is trusted.
    """

    within: float
    share: float | None
    level: float
    reports: int | None
    counts: int | None
    local: int | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return dict(vars(self))


def people_needed(
    survey: Survey,
    *,
    epsilon: object,
    delta: object,
    within: float,
    share: float | None = None,
    level: float = 0.95,
) -> PeopleNeeded:
    """Return how many people are needed to know a share within an error, in each view.

    Parameters
    ----------
    survey
        What is asked.
    epsilon, delta
        The privacy wanted, decimals.
    within
        How far the estimate of a share may be off to either side: 0.02 is 2 % of everybody.
    share
        The share, if the people are a random sample and it is the population's that is asked for:
        drawing the people then adds to the error. Without it the people themselves are meant.
    level
        How surely. The interval is normal, which is approximate.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> needed = people_needed(survey, epsilon=1, delta="1e-6", within=0.02)
    >>> needed.reports, needed.counts
    (5910, 999)
    """
    numbers = (
        float(check_decimal("epsilon", epsilon, above=0)),
        float(check_decimal("delta", delta, above=0, below=1)),
    )
    if not 1e-9 <= check_number("within", within) < 1:
        raise InputError(f"within must be above 0 and below 1, got within={within}.")
    if share is not None and not 0 < check_number("share", share) < 1:
        raise InputError(f"share must be strictly between 0 and 1, got share={share}.")
    sampled = 0.0 if share is None else share * (1 - share)
    wanted = _Question(survey, 1, *numbers, Fraction(within), check_level(level), sampled)
    keeps = (wanted.proven, wanted.counts, wanted.local)
    return PeopleNeeded(within, share, level, *(wanted.people_needed(one) for one in keeps))


@dataclass(frozen=True)
class _Question:
    survey: Survey
    crowd: int
    epsilon: float
    delta: float
    error: Fraction  # of a share, to either side
    level: float
    sampled: float = 0.0  # the variance that drawing one person from a population adds

    def proven(self, crowd: int, q: float) -> bool:
        """Whether whole reports keep the promise."""
        domain = domain_of(self.survey)
        # The blanket is quick for any crowd; the exact bound for one bit is not.
        if blanket_delta(domain, crowd, q, self.epsilon, 0.02).high <= self.delta:
            return True
        if crowd > _EXACT:
            return self.local(crowd, q)
        return proven_delta(domain, crowd, q, self.epsilon, 0.02).delta.high <= self.delta

    def counts(self, crowd: int, q: float) -> bool:
        """Whether counts keep the promise."""
        if self.local(crowd, q):
            return True
        return self._bound.proven(crowd, q, self.epsilon, 0.02).delta.high <= self.delta

    def local(self, crowd: int, q: float) -> bool:
        """Whether each report keeps it by itself."""
        return q >= local_q(self.survey.differing_bits, self.epsilon)

    @cached_property
    def _bound(self) -> Bound:
        return bound_of(self.survey, "counts")

    def costs(self) -> tuple[Cost, ...]:
        domain, differ = domain_of(self.survey), self.survey.differing_bits
        epsilon, delta = self.epsilon, self.delta

        def sufficient(crowd: int, q: float) -> bool:
            # P[R > lam] (1 - lam'/lam) <= delta(lam') for lam' < lam: far away that settles it.
            less = 0.9 * epsilon
            above = blanket_delta(domain, crowd, q, less, 0.1).high / -math.expm1(less - epsilon)
            if above <= delta:
                return True
            if eta((differ, 0, 0), crowd, q, epsilon, 0.05).low > delta:
                return False
            return sufficient_eta(domain, crowd, q, epsilon, 0.05).eta.high <= delta

        def rule(crowd: int, q: float) -> bool:
            try:
                return gap_312(q, differ, crowd, math.exp(epsilon)) <= 0
            except OverflowError:  # the mean of R alone is beyond any lambda
                return False

        return (
            self._cost("local", local_q(differ, epsilon), self.local),
            self._cost(
                "proven",
                proven_q(domain, self.crowd, epsilon, delta, _XTOL).value,
                self.proven,
            ),
            self._cost(
                "sufficient",
                sufficient_q(domain, self.crowd, epsilon, delta, _XTOL).value,
                sufficient,
            ),
            self._cost("three-sigma", self._three_sigma_q(), rule),
            self._cost("counts", self._bound.q(self.crowd, epsilon, delta), self.counts),
            self._curator(),
            self._gaussian(),
        )

    def _three_sigma_q(self) -> float | None:
        try:
            return three_sigma_q(self.survey.differing_bits, self.crowd, self.epsilon)
        except ValueError:  # epsilon is too small for this crowd: the rule has no answer
            return None

    def _cost(self, trust: Trust, q: float | None, keeps: Callable[[int, float], bool]) -> Cost:
        """Return the cost of flipping with q, where `keeps` tells whether a promise is kept."""
        needed = self.people_needed(keeps)
        if q is None or q >= 0.5:
            return Cost(trust, q, None, None, None, needed, None)
        sigma = count_sigma(self.crowd, q)
        local = count_sigma(self.crowd, local_q(self.survey.differing_bits, self.epsilon))
        reach = normal_factor(self.level) * sigma
        return Cost(trust, q, None, sigma, reach, needed, local / sigma)

    def _largest_q(self, crowd: int) -> float:
        """Return the q at which a crowd of that size knows the group just as well as asked.

        z sqrt(pq) / (p - q) = error sqrt(N) (SDP 4); with r = (error sqrt(N) / z)^2 this is
        (p - q)^2 = 1 / (1 + 4r).
        """
        spread = crowd * (self.error / normal_factor(self.level)) ** 2 - self.sampled
        if spread <= 0:
            return 0.0
        # (1 - 1/sqrt(1 + 4r)) / 2 without cancellation for small r
        root = math.sqrt(1 + 4 * spread)
        return 2 * spread / (root * (root + 1))

    def people_needed(self, keeps: Callable[[int, float], bool]) -> int | None:
        """Return the smallest crowd whose q, as large as the error allows, keeps the promise.

        A larger crowd allows more noise and needs less. The search comes from above, where the
        local q suffices, to the first failure; what it returns has passed.
        """
        local = local_q(self.survey.differing_bits, self.epsilon)
        spread = local * (1 - local) / (1 - 2 * local) ** 2 if local < 0.5 else math.inf
        error = self.error / normal_factor(self.level)
        top = (spread + self.sampled) / error**2 * (1 + 1e-9)
        most = MAX_CROWD if top > MAX_CROWD else max(math.ceil(top), 1)
        passes = cache(lambda crowd: self._passes(keeps, crowd))
        try:
            # floats, so that steps are factors: a crowd has a size, not a place
            return math.ceil(
                smallest(
                    lambda size: passes(math.ceil(size)), 1.0, float(most), start=most, rtol=_CLOSE
                )
            )
        except NoValueError:
            return None

    def _passes(self, keeps: Callable[[int, float], bool], crowd: int) -> bool:
        q = self._largest_q(crowd)
        return 0 < q < 0.5 and keeps(crowd, q)

    def _curator(self) -> Cost:
        """Laplace noise on the counts of all bits; replacing one person moves `differing_bits`."""
        scale = self.survey.differing_bits / self.epsilon
        sigma = laplace_law.discrete_sigma(scale)
        reach = laplace_law.discrete_radius(1 - self.level, scale)
        needed = max(math.ceil(reach / self.error), 1)
        local = count_sigma(self.crowd, local_q(self.survey.differing_bits, self.epsilon))
        gain = local / sigma if sigma and math.isfinite(local) else None
        return Cost("curator", None, scale, sigma, reach, needed, gain)

    def _gaussian(self) -> Cost:
        """Return the cost of normal noise, calibrated exactly (Balle and Wang 2018)."""
        sigma = gaussian_sigma(self.survey.differing_bits, self.epsilon, self.delta)
        reach = normal_factor(self.level) * sigma
        needed = max(math.ceil(reach / self.error), 1)
        local = count_sigma(self.crowd, local_q(self.survey.differing_bits, self.epsilon))
        gain = local / sigma if math.isfinite(local) else None
        return Cost("curator_gaussian", None, None, sigma, reach, needed, gain)


@dataclass(frozen=True)
class QuestionCost:
    """One question: its bits, and q and sigma of the others if it were not asked.

    They are None for the only question of a survey.
    """

    question: Question
    q_without: float | None
    sigma_without: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.question.name,
            "kind": self.question.kind,
            "bits": self.question.bits,
            "differing_bits": self.question.differing_bits,
            "q_without": self.q_without,
            "sigma_without": self.sigma_without,
        }


@dataclass(frozen=True)
class SurveyCosts:
    """The noise of a survey, and what each of its questions adds to it."""

    survey: Survey
    crowd_size: int
    q: float
    sigma: float
    questions: tuple[QuestionCost, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "survey": self.survey.name,
            "bits": self.survey.bits,
            "differing_bits": self.survey.differing_bits,
            "crowd_size": self.crowd_size,
            "q": self.q,
            "sigma": self.sigma,
            "questions": [one.to_json() for one in self.questions],
        }


def survey_costs(
    survey: Survey, *, crowd_size: int, epsilon: object, delta: object, view: Any = "reports"
) -> SurveyCosts:
    """Return what each question adds to the noise of all counts, for one promise and one crowd.

    >>> from shoal import Choice, YesNo
    >>> asked = Survey("people", (YesNo("smokes"), Choice("city", ("Rome", "Oslo", "Bern"))))
    >>> costs = survey_costs(asked, crowd_size=5_000, epsilon=1, delta="1e-6", view="counts")
    >>> [round(one.sigma_without / costs.sigma, 2) for one in costs.questions]
    [0.86, 0.71]
    """

    def noise(asked: Survey) -> tuple[float, float]:
        agreed = plan(asked, crowd_size=crowd_size, epsilon=epsilon, delta=delta, view=view)
        return float(agreed.q), count_sigma(crowd_size, float(agreed.q))

    q, sigma = noise(survey)
    costs = []
    for question in survey:
        left = _without(survey, question)
        q_left, sigma_left = (None, None) if left is None else noise(left)
        costs.append(QuestionCost(question, q_left, sigma_left))
    return SurveyCosts(survey, crowd_size, q, sigma, tuple(costs))


def _without(survey: Survey, left_out: Question) -> Survey | None:
    """Return the survey without a question and what is derived from it; None if nothing is left."""
    crosses = [
        cross
        for cross in survey.crosses
        if cross is not left_out and all(side.question != left_out for side in cross.sides)
    ]
    asked = [question for question in survey.asked if question is not left_out]
    return Survey(survey.name, (*asked, *crosses)) if asked else None
