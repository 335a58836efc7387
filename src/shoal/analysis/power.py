"""The power of an experiment before there is any data: people needed, and detectable effects.

The difference of two arms has the variance (k s + v) / N: s = pq / (p - q)^2 is that of a bit's
count for each report, k how many such variances the flips of all cells and sums of the table give
the difference, and v = s_1 (1 - s_1) / pi_1 + s_0 (1 - s_0) / pi_0 that of who was drawn. A test
finds an effect of z sigmas with the power wanted, z the sum of its two normal quantiles
(approximate). With several comparisons, each is tested at its part of the miss, which Holm's method
never falls below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from shoal.analysis.association_tables import TableDesign, side_of
from shoal.analysis.experiments import arm_of, outcomes_of, shares_compared
from shoal.errors import InputError
from shoal.planning.costs import CrowdSearch
from shoal.planning.share_noise import flips_alone
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Arm, Survey
from shoal.support.checks import check_decimal, check_level, check_number, takes
from shoal.theory.randomized_response import local_q, normal_factor


@dataclass(frozen=True)
class Detection:
    """How many people an experiment needs to detect an effect, each in another trust model.

    `share` is that of control, `open` with open answers. None for more than 10^12 people.
    """

    effect: float
    share: float
    level: float
    power: float
    comparisons: int
    open: int
    counts: int | None
    reports: int | None
    local: int | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class DetectableEffect:
    """The smallest difference of shares that a plan's crowd detects; None for more than 100 %."""

    share: float
    level: float
    power: float
    comparisons: int
    planned: float | None
    open: float | None
    local: float | None

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class _ComparedArms:
    """The widest comparison of an arm with control, at a share of control and an effect."""

    survey: Survey
    arm: Arm
    level: float
    power: float

    @cached_property
    def number(self) -> int:
        """How many comparisons are made: of arms and outcomes."""
        outcomes = 0
        for _, name in outcomes_of(self.survey, self.arm):
            side = side_of(self.survey, name)
            question = self.survey[side.question]
            grid = getattr(question, "grid", ())
            outcomes += 1 if grid else len(list(shares_compared(question, side.categories)))
        return max(outcomes, 1) * (len(self.arm.options) - 1)

    @property
    def sigmas(self) -> float:
        """How many sigmas an effect must be."""
        each = 1 - (1 - self.level) / self.number
        return normal_factor(each) + NormalDist().inv_cdf(self.power)

    def variances(self, share: float, effect: float) -> tuple[float, float]:
        """Return k and v of the arm that knows least."""
        other = share + effect
        rarest = min(range(1, len(self.arm.options)), key=lambda arm: self.arm.shares[arm])
        control, treated = self.arm.shares[0], self.arm.shares[rarest]
        drawn = share * (1 - share) / control + other * (1 - other) / treated
        flips = 0.0
        for _, name in outcomes_of(self.survey, self.arm):
            side = side_of(self.survey, name)
            shape = (len(self.arm.labels), len(side.categories))
            design = TableDesign(np.ones(shape), (shape[0], len(side.positions)))
            weights = np.zeros(shape)
            weights[rarest], weights[0] = -other / treated, share / control
            weights[rarest, 0], weights[0, 0] = (1 - other) / treated, -(1 - share) / control
            each = weights.reshape(-1)
            flips = max(flips, float(each @ design.covariance @ each))
        return flips, drawn

    def effect(self, people: int, q: float, share: float) -> float | None:
        """Return the smallest effect that is found: the one of as many sigmas as it must be."""
        noise = q * (1 - q) / (1 - 2 * q) ** 2 if q < 0.5 else math.inf
        side = 1 if share <= 0.5 else -1
        found = 0.0
        for _ in range(100):
            if found > max(share, 1 - share) or not math.isfinite(noise):
                return None
            flips, drawn = self.variances(share, side * found)
            found = self.sigmas * math.sqrt((flips * noise + drawn) / people)
        return found


def _comparison(survey: Survey, arm: str | None, level: float, power: float) -> _ComparedArms:
    check_level(level)
    if not 0 < check_number("power", power) < 1:
        raise InputError(f"power must be strictly between 0 and 1, got power={power}.")
    return _ComparedArms(survey, arm_of(survey, arm), level, power)


def _check_share(share: float) -> None:
    if not 0 <= check_number("share", share) <= 1:
        raise InputError(f"share must be between 0 and 1, got share={share}.")


@takes(survey=Survey)
def people_to_detect(
    survey: Survey,
    effect: float,
    *,
    epsilon: object,
    delta: object,
    share: float = 0.5,
    arm: str | None = None,
    level: float = 0.95,
    power: float = 0.8,
) -> Detection:
    """Return how many people an experiment needs to detect a difference of shares.

    `effect` is 0.02 for two percentage points more than control's `share`. All arms and outcomes
    are compared; the rarest arm decides.

    >>> from shoal import YesNo
    >>> asked = Survey("tool", (Arm("start", ("old", "new")), YesNo("done")))
    >>> survey = asked.cross("start", "done")
    >>> needed = people_to_detect(survey, 0.02, epsilon=1, delta="1e-6")
    >>> needed.open, needed.counts
    (19607, 20117)
    """
    compared = _comparison(survey, arm, level, power)
    _check_share(share)
    if check_number("effect", effect) == 0 or not 0 <= share + effect <= 1:
        raise InputError(
            f"an effect of {100 * effect:g} points on a share of {100 * share:g} % is not possible;"
            " give another effect or share."
        )
    numbers = (
        float(check_decimal("epsilon", epsilon, above=0)),
        float(check_decimal("delta", delta, above=0, below=1)),
    )
    flips, drawn = compared.variances(share, effect)
    error = Fraction(abs(effect))
    search = CrowdSearch(survey, 1, *numbers, error, level, drawn, flips, compared.sigmas)
    return Detection(
        effect,
        share,
        level,
        power,
        compared.number,
        max(math.ceil(drawn * (compared.sigmas / effect) ** 2), 1),
        search.people_needed(search.counts),
        search.people_needed(search.proven),
        search.people_needed(search.local),
    )


@takes(plan=Plan)
def detectable_effect(
    plan: Plan,
    *,
    people: int | None = None,
    share: float = 0.5,
    arm: str | None = None,
    level: float = 0.95,
    power: float = 0.8,
) -> DetectableEffect:
    """Return the smallest difference of shares that an experiment detects, by default in one crowd.

    Beside it are those with open answers, and with local noise of the plan's epsilon.
    """
    compared = _comparison(plan.survey, arm, level, power)
    _check_share(share)
    size = plan.crowd_size if people is None else people
    if size is None:
        raise InputError("this plan needs no crowd; say how many people will report.")
    local = local_q(plan.survey.differing_bits, float(plan.promise.epsilon))
    planned = float(plan.q) if plan.noise is None else flips_alone(plan, size)
    found = (compared.effect(size, q, share) for q in (planned, 0.0, local))
    return DetectableEffect(share, level, power, compared.number, *found)
