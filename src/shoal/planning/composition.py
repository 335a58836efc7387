"""Many releases about the same people: promises compose.

Without memory every release is randomized afresh, so the proven promises of single releases
compose. Adding epsilons and deltas is always valid. Tighter is to compose a *dominating pair*: the
proven delta as a function of lam = e^epsilon bounds the privacy profile of every collection and
both directions, so the lower convex hull of finitely many of its values is the profile of a pair
that dominates the release (Zhu, Dong, Wang 2022; Doroshenko et al. 2022). The homogeneous pair does
not dominate. `shoal.theory.composition` composes the pair and bounds every error, so no epsilon and
no delta is below the truth. In the counts view several releases are one over more bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from shoal.errors import InputError
from shoal.support.checks import check_integer, check_number
from shoal.support.results import Displayed, Section
from shoal.support.rounding import round_up
from shoal.theory import composition as theory
from shoal.theory.calibration import smallest_epsilon

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate


WORTH_COMPOSING = 12.0
"""Above this epsilon of a single release, quick bounds will do: all bounds say little."""

_SMALL_DELTA = 1e-14
"""Most losses of a release are below the epsilon where its delta is this small."""


@dataclass(frozen=True, repr=False)
class Composition(Displayed):
    """The joint promise of `releases` releases under one certificate."""

    certificate: Certificate
    releases: int

    def __post_init__(self) -> None:
        check_integer("releases", self.releases, lowest=1, highest=10**6)

    def _headline(self) -> str:
        return f"{self.releases:,} releases; {self.certificate._headline()}"

    def _sections(self) -> tuple[Section, ...]:
        return ()

    def _remarks(self) -> tuple[str, ...]:
        return ("epsilon(delta=...) and delta(epsilon=...) compute what holds for all releases.",)

    def epsilon(self, *, delta: float) -> float:
        """Return the proven epsilon of all releases together at a delta, rounded up.

        Never more than `basic_epsilon`. A delta of 0 asks for the local epsilons, which add up.
        """
        basic = self.basic_epsilon(delta=delta)
        if delta == 0 or basic == 0.0 or self.releases == 1:
            return basic
        if self.certificate.view == "counts":
            return min(round_up(self._together.epsilon(delta=delta), 6), basic)
        return min(round_up(smallest_epsilon(self._composed, delta, basic), 6), basic)

    def delta(self, *, epsilon: float) -> float:
        """Return the proven delta of all releases together at an epsilon, rounded up."""
        if check_number("epsilon", epsilon) < 0:
            raise InputError(f"epsilon must not be negative, got epsilon={epsilon}.")
        single = self.certificate.delta(epsilon=part_of(epsilon, self.releases)).high
        added = min(round_up(self.releases * single, 6), 1.0)
        if self.releases == 1 or added == 0.0:
            return added
        if self.certificate.view == "counts":
            return min(round_up(self._together.delta(epsilon=epsilon).high, 6), added)
        return min(round_up(self._composed(epsilon), 6), added)

    def basic_epsilon(self, *, delta: float) -> float:
        """Return the sum of the epsilons: each release has its part of delta."""
        if not 0 <= check_number("delta", delta) < 1:
            raise InputError(f"delta must be in [0, 1), got delta={delta}.")
        one = self.certificate.epsilon(delta=part_of(delta, self.releases))
        return one if self.releases == 1 else self.releases * one * (1 + 1e-15)

    def to_json(self, delta: float) -> dict[str, Any]:
        """Return the epsilon at a delta for all releases together, next to basic addition."""
        return {
            "releases": self.releases,
            "delta": delta,
            "epsilon": self.epsilon(delta=delta),
            "basic_epsilon": round_up(self.basic_epsilon(delta=delta), 6),
        }

    @property
    def _together(self) -> Certificate:
        return replace(self.certificate, releases=self.releases)

    def _composed(self, epsilon: float) -> float:
        return theory.composed_delta(_losses(self.certificate), self.releases, epsilon).high


def part_of(total: float, count: int) -> float:
    """Return total / count, rounded down: `count` parts never exceed the total.

    >>> part_of(1.0, 3) * 3 <= 1.0, part_of(1.0, 1)
    (True, 1.0)
    """
    part = total / count
    return part if Fraction(part) * count <= Fraction(total) else math.nextafter(part, 0.0)


def quick_epsilon(certificate: Certificate, delta: float) -> float:
    """Return the proven epsilon, or the local one if that is large and at most a tenth above it.

    There the exact search takes a minute for many bits and gains nothing that matters.
    """
    local = round_up(certificate.reports_per_person * certificate.local_epsilon, 6)
    if (
        local > WORTH_COMPOSING
        and _whole(certificate).delta(epsilon=0.9 * local, rtol=1e-3).high > delta
    ):
        return local
    return certificate.epsilon(delta=delta)


def _whole(certificate: Certificate) -> Certificate:
    return replace(certificate, overflow=None)


def composed_epsilon(certificate: Certificate, releases: int, delta: float) -> float:
    """Return the epsilon of several releases: composed tightly where it is worth it, else added."""
    if delta == 0:
        return math.inf
    if releases == 1 or not _worth_composing(certificate, delta):
        return releases * quick_epsilon(certificate, part_of(delta, releases))
    return certificate.compose(releases).epsilon(delta=delta)


def composed_delta(certificate: Certificate, releases: int, epsilon: float) -> float:
    """Return the delta of several releases: composed tightly where it is worth it, else added."""
    if releases > 1 and _worth_composing(certificate, _SMALL_DELTA):
        return certificate.compose(releases).delta(epsilon=epsilon)
    single = certificate.delta(epsilon=part_of(epsilon, releases)).high
    return min(round_up(releases * single, 6), 1.0)


def _worth_composing(certificate: Certificate, delta: float) -> bool:
    local = certificate.reports_per_person * certificate.local_epsilon
    return local <= WORTH_COMPOSING or (
        quick_epsilon(_whole(certificate), delta) <= WORTH_COMPOSING
    )


@lru_cache(16)
def _losses(certificate: Certificate) -> theory.Losses:
    """Return losses that dominate one release, in both directions."""
    bulk = certificate.epsilon(delta=_SMALL_DELTA, rough=True)

    def curve(epsilon: float) -> float:
        return certificate.delta(epsilon=epsilon, rtol=1e-3 if epsilon <= bulk else 0.1).high

    # from here on, delta is 0
    top = certificate.reports_per_person * certificate.local_epsilon * (1 + 4e-14)
    return theory.losses_of_curve(curve, bulk, top)


def group_factor(epsilon: float, size: int) -> float:
    """Return the factor of group privacy on delta for a person with `size` reports, rounded up.

    Replacing them one by one: delta(epsilon) <= sum_{i < size} e^(i epsilon / size) delta_1(epsilon
    / size). Infinite where it is larger than any float.

    >>> group_factor(0.0, 3), group_factor(5e-324, 2), group_factor(1e6, 3)
    (3.0, 2.0, inf)
    """
    if epsilon > 700:
        return math.inf
    if epsilon < 1e-12:
        return size * math.exp(epsilon)  # no term is larger; parts of tiny floats are not exact
    # The rounding of epsilon / size is multiplied by it.
    return math.expm1(epsilon) / math.expm1(epsilon / size) * (1 + 1e-15 * (1 + epsilon))
