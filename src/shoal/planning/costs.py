"""The noise that each trust model, and each question of a survey, costs.

The less trust is needed, the more noise an answer needs (SDP 4, LEC 2):

================  =========================================  ====================================
local             no trust in anyone                         q from epsilon alone
proven            the reports are anonymized                 q from epsilon, delta, crowd; theorem
sufficient        the same; homogeneous crowds only          SDP's (epsilon, eta = delta)
three-sigma       the same; SDP's rule for sufficient        q from epsilon and crowd
counts            only counts are seen, no reports           q from epsilon, delta, crowd; theorem
curator           a curator sees all answers                 Laplace noise, epsilon alone
curator_gaussian  the same                                   normal noise, epsilon and delta
================  =========================================  ====================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from shoal.errors import InputError
from shoal.planning.bounds import Bound, bound_of, domain_of
from shoal.planning.plan import plan
from shoal.protocol.plan import MAX_CROWD
from shoal.protocol.promise import promise_warnings
from shoal.protocol.survey import Question, Survey
from shoal.support.checks import (
    check_decimal,
    check_integer,
    check_level,
    check_number,
    check_one_of,
    takes,
)
from shoal.support.results import Displayed, Section, TableExport, arrow_rows, first_rows
from shoal.theory import laplace
from shoal.theory.blanket import blanket_delta
from shoal.theory.calibration import NoValueError, smallest
from shoal.theory.composition import gaussian_sigma
from shoal.theory.homogeneous import eta
from shoal.theory.proven import proven_delta, proven_q
from shoal.theory.randomized_response import count_sigma, local_q, normal_factor
from shoal.theory.sufficient import gap_312, sufficient_eta, sufficient_q, three_sigma_q

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

Trust = Literal[
    "local", "proven", "sufficient", "three-sigma", "counts", "curator", "curator_gaussian"
]

_XTOL = 1e-3
"""Of the log-odds of q: more digits than a comparison needs, at a tenth of a plan's time."""

_EXACT = 10**7
"""Up to this crowd size `people_needed` tries every way to prove a delta."""


@dataclass(frozen=True)
class Cost:
    """The cost of one trust model.

    The noise is a device's flip probability `q` or the `scale` of a curator's noise, None if it
    does not apply or no noise keeps the promise. `sigma` is the standard deviation of a count, and
    `half_width` that of an interval for a group, in people: normal, hence approximate, or exact for
    the curator's Laplace noise. `people_needed` know the group as well as asked, None for more than
    10^12. `gain_over_local` is how many times smaller sigma is than with local noise.
    """

    trust: Trust
    q: float | None
    scale: float | None
    sigma: float | None
    half_width: float | None
    people_needed: int | None
    gain_over_local: float | None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with the noise that applies."""
        noise = {"curator": {"scale": self.scale}, "curator_gaussian": {}}
        return noise.get(self.trust, {"q": self.q}) | {
            "sigma": self.sigma,
            "half_width": self.half_width,
            "people_needed": self.people_needed,
            "gain_over_local": self.gain_over_local,
        }


@dataclass(frozen=True, repr=False)
class Comparison(Displayed, TableExport):
    """The cost of every trust model for one survey and one promise."""

    survey: Survey
    crowd_size: int
    epsilon: str
    delta: str
    share: float
    relative_error: float
    level: float
    costs: tuple[Cost, ...]

    def __getitem__(self, trust: str) -> Cost:
        costs = {cost.trust: cost for cost in self.costs}
        check_one_of("trust", trust, tuple(costs))
        return costs[cast(Trust, trust)]

    def __iter__(self) -> Iterator[Cost]:
        return iter(self.costs)

    @property
    def warnings(self) -> list[str]:
        """The weaknesses of the promise, each a sentence, as of `Plan.warnings`."""
        return promise_warnings(float(self.epsilon), self.delta, self.crowd_size)

    def _headline(self) -> str:
        return (
            f"{self.survey.name}: the cost of each trust model, {self.crowd_size:,} people, epsilon"
            f" {self.epsilon}, delta {self.delta}"
        )

    def _sections(self) -> list[Section]:
        rows = [
            (
                cost.trust,
                *(
                    "" if number is None else f"{number:,.4g}"
                    for number in (cost.sigma, cost.half_width)
                ),
                "" if cost.people_needed is None else f"{cost.people_needed:,}",
            )
            for cost in self.costs
        ]
        heads = ("trust", "sigma of a count", f"half width at {self.level:.6g}", "people needed")
        return [Section(heads, rows)]

    def _remarks(self) -> tuple[str, ...]:
        return (
            f"people needed: to know a group of {self.share:.4g} of everybody within"
            f" {self.relative_error:.4g} of itself. A model without numbers is impossible here.",
            "sufficient and three-sigma are not guarantees.",
        )

    def plot(self) -> Figure:
        """Draw how wide an interval each trust model leaves; needs matplotlib."""
        from shoal.reports.plots.results import plot_costs

        return plot_costs(self)

    def to_arrow(self) -> pa.Table:
        """Return the costs as an Arrow table, a row for each trust model."""
        return arrow_rows(["trust"], [dict(vars(cost)) for cost in self.costs])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the overall gain is that of the proven promise."""
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
            "warnings": self.warnings,
        }


@takes(survey=Survey)
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
    """Compare the cost of each trust model.

    Parameters
    ----------
    survey
        The questions.
    crowd_size
        How many people answer.
    epsilon, delta
        The promise, decimals; `delta` is also SDP's eta. Local and curator need no delta.
    share, relative_error, level
        The group to estimate, as a share of the crowd; its relative error; the confidence level.

    >>> from shoal import Flags
    >>> survey = Survey("browser", (Flags("features", ("a", "b", "c", "d", "e")),))
    >>> costs = compare(survey, crowd_size=10_000, epsilon=1, delta="1e-6")
    >>> [round(cost.gain_over_local, 1) for cost in costs]
    [1.0, 7.4, 8.0, 9.5, 49.3, 70.7, 52.8]
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
    question = CrowdSearch(
        survey, crowd, float(texts[0]), float(texts[1]), error, check_level(level)
    )
    return Comparison(survey, crowd, *texts, share, relative_error, level, question.costs())


@dataclass(frozen=True)
class PeopleNeeded:
    """How many people each view, and local noise, needs; None for more than 10^12.

    `within` is the error of a share to either side.
    """

    within: float
    share: float | None
    level: float
    reports: int | None
    counts: int | None
    local: int | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@takes(survey=Survey)
def people_needed(
    survey: Survey,
    *,
    epsilon: object,
    delta: object,
    within: float,
    share: float | None = None,
    level: float = 0.95,
) -> PeopleNeeded:
    """Return how many people each view needs to know a share `within` an error to either side.

    0.02 is 2 % of everybody. Give `share` if the people are a random sample and the population's
    share is asked for: drawing the people then adds to the error. The interval is normal, which is
    approximate.

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
    wanted = CrowdSearch(survey, 1, *numbers, Fraction(within), check_level(level), sampled)
    keeps = (wanted.proven, wanted.counts, wanted.local)
    return PeopleNeeded(within, share, level, *(wanted.people_needed(one) for one in keeps))


Keeps = Callable[[int, float], bool]
"""Whether a crowd of a size keeps a promise with a q."""


@dataclass(frozen=True)
class CrowdSearch:
    """The noise that a promise costs a survey, and the smallest crowd that knows a share."""

    survey: Survey
    crowd: int
    epsilon: float
    delta: float
    error: Fraction  # of a share, to either side
    level: float
    sampled: float = 0.0  # the variance that drawing one person from a population adds
    flips: float = 1.0  # the variance of the flips, in units of that of a count
    sigmas: float | None = None  # that the error is; by default those of an interval at the level

    @property
    def _sigmas(self) -> float:
        return normal_factor(self.level) if self.sigmas is None else self.sigmas

    def proven(self, crowd: int, q: float) -> bool:
        domain = domain_of(self.survey)
        # The blanket is quick for any crowd; the exact bound for one bit is not.
        if blanket_delta(domain, crowd, q, self.epsilon, 0.02).high <= self.delta:
            return True
        if crowd > _EXACT:
            return self.local(crowd, q)
        return proven_delta(domain, crowd, q, self.epsilon, 0.02).delta.high <= self.delta

    def counts(self, crowd: int, q: float) -> bool:
        if self.local(crowd, q):
            return True
        return self._bound.proven(crowd, q, self.epsilon, 0.02).delta.high <= self.delta

    def local(self, crowd: int, q: float) -> bool:
        return q >= self._local_q

    def sufficient(self, crowd: int, q: float) -> bool:
        domain, differ = domain_of(self.survey), self.survey.differing_bits
        # P[R > lam] (1 - lam'/lam) <= delta(lam') for lam' < lam: far away that settles it.
        less = 0.9 * self.epsilon
        above = blanket_delta(domain, crowd, q, less, 0.1).high / -math.expm1(less - self.epsilon)
        if above <= self.delta:
            return True
        if eta((differ, 0, 0), crowd, q, self.epsilon, 0.05).low > self.delta:
            return False
        return sufficient_eta(domain, crowd, q, self.epsilon, 0.05).eta.high <= self.delta

    def three_sigma(self, crowd: int, q: float) -> bool:
        try:
            return gap_312(q, self.survey.differing_bits, crowd, math.exp(self.epsilon)) <= 0
        except OverflowError:  # the mean of R alone is beyond any lambda
            return False

    @cached_property
    def _local_q(self) -> float:
        return local_q(self.survey.differing_bits, self.epsilon)

    @cached_property
    def _bound(self) -> Bound:
        return bound_of(self.survey, "counts")

    def costs(self) -> tuple[Cost, ...]:
        domain, differ = domain_of(self.survey), self.survey.differing_bits
        wish = (self.crowd, self.epsilon, self.delta)
        try:
            rule = three_sigma_q(differ, self.crowd, self.epsilon)
        except ValueError:  # epsilon is too small for this crowd: the rule has no answer
            rule = None
        scale = differ / self.epsilon  # replacing one person moves `differ` counts by one
        normal = gaussian_sigma(differ, self.epsilon, self.delta)  # Balle and Wang 2018, exact
        return (
            self._flips("local", self._local_q, self.local),
            self._flips("proven", proven_q(domain, *wish, _XTOL).value, self.proven),
            self._flips("sufficient", sufficient_q(domain, *wish, _XTOL).value, self.sufficient),
            self._flips("three-sigma", rule, self.three_sigma),
            self._flips("counts", self._bound.q(*wish), self.counts),
            self._added(
                "curator",
                laplace.discrete_sigma(scale),
                laplace.discrete_radius(1 - self.level, scale),
                scale,
            ),
            self._added("curator_gaussian", normal, normal_factor(self.level) * normal),
        )

    def _flips(self, trust: Trust, q: float | None, keeps: Keeps) -> Cost:
        """Return the cost of flipping with q; `keeps` tells whether a promise is kept."""
        needed = self.people_needed(keeps)
        if q is None or q >= 0.5:
            return Cost(trust, q, None, None, None, needed, None)
        sigma = count_sigma(self.crowd, q)
        reach = normal_factor(self.level) * sigma
        return Cost(trust, q, None, sigma, reach, needed, self._gain(sigma))

    def _added(self, trust: Trust, sigma: float, reach: float, scale: float | None = None) -> Cost:
        """Return the cost of noise that a curator adds to the counts of all bits."""
        needed = max(math.ceil(reach / self.error), 1)
        return Cost(trust, None, scale, sigma, reach, needed, self._gain(sigma))

    def _gain(self, sigma: float) -> float | None:
        local = count_sigma(self.crowd, self._local_q)
        return local / sigma if sigma and math.isfinite(local) else None

    def _largest_q(self, crowd: int) -> float:
        """Return the q at which a crowd of that size knows the group just as well as asked.

        z sqrt(pq) / (p - q) = error sqrt(N) (SDP 4); with r = (error sqrt(N) / z)^2 this is
        (p - q)^2 = 1 / (1 + 4r).
        """
        spread = (crowd * (self.error / self._sigmas) ** 2 - self.sampled) / self.flips
        if spread <= 0:
            return 0.0
        # (1 - 1/sqrt(1 + 4r)) / 2 without cancellation for small r
        root = math.sqrt(1 + 4 * spread)
        return 2 * spread / (root * (root + 1))

    def people_needed(self, keeps: Keeps) -> int | None:
        """Return the smallest crowd whose q, as large as the error allows, keeps the promise.

        A larger crowd allows more noise and needs less. The search comes from above, where the
        local q suffices, to the first failure; the returned crowd has passed.
        """
        local = self._local_q
        spread = local * (1 - local) / (1 - 2 * local) ** 2 if local < 0.5 else math.inf
        error = self.error / self._sigmas
        top = (self.flips * spread + self.sampled) / error**2 * (1 + 1e-9)
        most = MAX_CROWD if top > MAX_CROWD else max(math.ceil(top), 1)

        @cache
        def passes(crowd: int) -> bool:
            q = self._largest_q(crowd)
            return 0 < q < 0.5 and keeps(crowd, q)

        def enough(size: float) -> bool:
            return passes(math.ceil(size))

        try:  # with floats, so that steps are factors
            return math.ceil(smallest(enough, 1.0, float(most), start=most, rtol=0.01))
        except NoValueError:
            return None


@dataclass(frozen=True)
class QuestionCost:
    """A question, and q and sigma of the others without it; None for the only question."""

    question: Question
    q_without: float | None
    sigma_without: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.question.name,
            "kind": self.question.kind,
            "bits": self.question.bits,
            "differing_bits": self.question.differing_bits,
            "q_without": self.q_without,
            "sigma_without": self.sigma_without,
        }


@dataclass(frozen=True, repr=False)
class SurveyCosts(Displayed, TableExport):
    """What each question adds to the noise of all counts."""

    survey: Survey
    crowd_size: int
    q: float
    sigma: float
    questions: tuple[QuestionCost, ...]

    def _headline(self) -> str:
        return f"{self.survey.name}: q = {self.q:.5g}, sigma of a count {self.sigma:,.4g}"

    def _sections(self) -> list[Section]:
        shown, left_out = first_rows(self.questions)
        rows = [
            (
                one.question.name,
                f"{one.question.bits:,}",
                "" if one.sigma_without is None else f"{one.sigma_without:,.4g}",
            )
            for one in shown
        ]
        return [Section(("question", "bits", "sigma without it"), rows, left_out=left_out)]

    def to_arrow(self) -> pa.Table:
        """Return the costs as an Arrow table, a row for each question."""
        return arrow_rows(["name", "kind"], [one.to_json() for one in self.questions])

    def to_json(self) -> dict[str, Any]:
        return {
            "survey": self.survey.name,
            "bits": self.survey.bits,
            "differing_bits": self.survey.differing_bits,
            "crowd_size": self.crowd_size,
            "q": self.q,
            "sigma": self.sigma,
            "questions": [one.to_json() for one in self.questions],
        }


@takes(survey=Survey)
def survey_costs(
    survey: Survey, *, crowd_size: int, epsilon: object, delta: object, view: Any = "reports"
) -> SurveyCosts:
    """Return what each question adds to the noise of all counts, for one promise and one crowd.

    Every question makes two answers differ in more bits, so all bits need more flips. The cost of a
    question is found by leaving it out, with every cross that it is a side of.

    >>> from shoal import Choice, YesNo
    >>> asked = Survey("people", (YesNo("smokes"), Choice("city", ("Rome", "Oslo", "Bern"))))
    >>> costs = survey_costs(asked, crowd_size=5_000, epsilon=1, delta="1e-6", view="counts")
    >>> [round(one.sigma_without / costs.sigma, 2) for one in costs.questions]
    [0.86, 0.71]
    """
    wish: Any = {"crowd_size": crowd_size, "epsilon": epsilon, "delta": delta, "view": view}

    def noise(asked: Survey) -> tuple[float, float]:
        agreed = plan(asked, **wish, accept_weak_promise=True)
        return float(agreed.q), count_sigma(crowd_size, float(agreed.q))

    q, sigma = noise(survey)
    costs = []
    for question in survey:
        left = _without(survey, question)
        q_left, sigma_left = (None, None) if left is None else noise(left)
        costs.append(QuestionCost(question, q_left, sigma_left))
    return SurveyCosts(survey, crowd_size, q, sigma, tuple(costs))


def _without(survey: Survey, left_out: Question) -> Survey | None:
    crosses = [
        cross
        for cross in survey.crosses
        if cross is not left_out and all(side.question != left_out for side in cross.sides)
    ]
    asked = [question for question in survey.asked if question is not left_out]
    return replace(survey, questions=(*asked, *crosses)) if asked else None
