"""Many releases about the same people: promises compose.

Without memory every release is randomized afresh, so that the proven promises of single releases
compose. Adding epsilons and deltas is always valid. Tighter is to compose a *dominating pair*: the
proven delta as a function of lam = e^epsilon bounds the privacy profile of every collection and
both directions, so the lower convex hull of finitely many of its values, joined by chords, is the
profile of a pair of laws that dominates the release (Zhu, Dong, Wang 2022). dp-accounting turns
those points into a privacy loss distribution that is pessimistic (Doroshenko et al. 2022) and
composes it. The homogeneous pair would not do: it does not dominate.

In the counts view a release is itself a composition, over the bits in which two answers differ. So
are several releases, over more bits: the same theorem says what holds, and nothing is added.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError
from shoal.support.checks import check_integer, check_number
from shoal.support.rounding import round_up

if TYPE_CHECKING:
    from shoal.planning.certificate import Certificate

__all__ = ["Composition", "composed_delta", "composed_epsilon"]

WORTH_COMPOSING = 12.0
"""Above this epsilon of a single release, bounds that are quick will do: all of them say little."""

_POINTS = 120
_GRID = 4000
_SMALLEST_DELTA = 1e-14
"""Where the single release's profile is cut; what is beyond counts as certain disclosure."""

_MOST_AT_ONCE = 10_000
"""So many releases are composed in half a gigabyte at most. More are composed in blocks of that
size, and the blocks add up."""


@dataclass(frozen=True)
class Composition:
    """What `releases` releases under one certificate promise together."""

    certificate: Certificate
    releases: int

    def __post_init__(self) -> None:
        check_integer("releases", self.releases, lowest=1, highest=10**6)

    def epsilon(self, *, delta: float) -> float:
        """Return the proven epsilon of all releases together at a delta, rounded up.

        Never more than `basic_epsilon`.
        """
        if not 0 < check_number("delta", delta) < 1:
            raise InputError(f"delta must be strictly between 0 and 1, got delta={delta}.")
        if self.certificate.view == "counts":
            return round_up(self._together.epsilon(delta=delta), 6)
        if _top_epsilon(self.certificate) == 0.0:
            return 0.0  # nothing is revealed, however often
        block = float(self._block_loss.get_epsilon_for_delta(part_of(delta, self._blocks)))
        return min(round_up(self._blocks * block, 6), self.basic_epsilon(delta=delta))

    def delta(self, *, epsilon: float) -> float:
        """Return the proven delta of all releases together at an epsilon, rounded up."""
        if check_number("epsilon", epsilon) < 0:
            raise InputError(f"epsilon must not be negative, got epsilon={epsilon}.")
        if self.certificate.view == "counts":
            return min(round_up(self._together.delta(epsilon=epsilon).high, 6), 1.0)
        if _top_epsilon(self.certificate) == 0.0:
            return 0.0
        block = float(self._block_loss.get_delta_for_epsilon(part_of(epsilon, self._blocks)))
        single = self.certificate.delta(epsilon=part_of(epsilon, self.releases)).high
        return min(round_up(self._blocks * block, 6), round_up(self.releases * single, 6), 1.0)

    def basic_epsilon(self, *, delta: float) -> float:
        """Return the epsilon that adding up gives: each release has its part of delta."""
        return self.releases * self.certificate.epsilon(delta=part_of(delta, self.releases))

    def to_json(self, delta: float) -> dict[str, Any]:
        """Return what holds at a delta for all releases together, beside basic addition."""
        if not 0 < delta < 1:
            raise InputError(f"releases compose at a delta strictly between 0 and 1, got {delta}.")
        return {
            "releases": self.releases,
            "delta": delta,
            "epsilon": self.epsilon(delta=delta),
            "basic_epsilon": round_up(self.basic_epsilon(delta=delta), 6),
        }

    @property
    def _together(self) -> Certificate:
        """All releases as one, in the counts view."""
        return replace(self.certificate, releases=self.releases)

    @property
    def _blocks(self) -> int:
        return -(-self.releases // _MOST_AT_ONCE)

    @cached_property
    def _block_loss(self) -> Any:
        """The privacy loss of one block; the last block may have fewer releases than that."""
        try:
            from dp_accounting.pld import pld_pmf
            from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
        except ImportError as error:
            raise InputError(
                "composing releases needs dp-accounting; pip install 'shoal[compose]'."
            ) from error
        steps, deltas, interval = dominating_profile(self.certificate)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(interval, steps, deltas)
        return PrivacyLossDistribution(pmf).self_compose(min(self.releases, _MOST_AT_ONCE), 1e-16)


def part_of(total: float, count: int) -> float:
    """Return the equal part of a total, rounded down: `count` of them are never more than it.

    >>> part_of(1.0, 3) * 3 <= 1.0, part_of(1.0, 1)
    (True, 1.0)
    """
    part = total / count
    return part if Fraction(part) * count <= Fraction(total) else math.nextafter(part, 0.0)


def quick_epsilon(certificate: Certificate, delta: float) -> float:
    """Return the proven epsilon; where it is large and within a tenth of the local one, that one.

    There the exact search takes a minute for many bits and gains nothing that matters.
    """
    local = round_up(certificate.reports_per_person * certificate.local_epsilon, 6)
    if local > WORTH_COMPOSING and _whole(certificate).delta(epsilon=0.9 * local).high > delta:
        return local
    return certificate.epsilon(delta=delta)


def _whole(certificate: Certificate) -> Certificate:
    """Return the certificate of reports of which nothing is dropped: its delta falls in epsilon."""
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
    if releases > 1 and _worth_composing(certificate, _SMALLEST_DELTA):
        return certificate.compose(releases).delta(epsilon=epsilon)
    single = certificate.delta(epsilon=part_of(epsilon, releases)).high
    return min(round_up(releases * single, 6), 1.0)


def _worth_composing(certificate: Certificate, delta: float) -> bool:
    local = certificate.reports_per_person * certificate.local_epsilon
    small = local <= WORTH_COMPOSING or quick_epsilon(_whole(certificate), delta) <= WORTH_COMPOSING
    if certificate.view == "counts":
        return small
    return small and importlib.util.find_spec("dp_accounting") is not None


@lru_cache(16)
def _top_epsilon(certificate: Certificate) -> float:
    """Return the epsilon beyond which one release's profile is cut."""
    return certificate.epsilon(delta=_SMALLEST_DELTA)


@lru_cache(16)
def dominating_profile(
    certificate: Certificate,
) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """Return points of a privacy profile that dominates one release, in both directions.

    They are given as whole steps of an interval of epsilon, and the delta at each.
    """
    top = _top_epsilon(certificate)
    interval = top / _GRID
    steps = np.unique(np.rint(np.linspace(0, _GRID, _POINTS)).astype(np.int64))
    high = np.array([certificate.delta(epsilon=s * interval, rtol=1e-3).high for s in steps])
    high = np.minimum.accumulate(high)
    positive = steps[1:]
    all_steps = np.concatenate((-positive[::-1], steps))
    # For the swapped pair: H_{1/lam} = 1 - 1/lam + H_lam / lam, and the bound holds for both.
    mirrored = -np.expm1(-positive * interval) + np.exp(-positive * interval) * high[1:]
    deltas = np.concatenate((mirrored[::-1], high))
    return all_steps, _convex(np.exp(all_steps * interval), deltas), interval


def _convex(lam: NDArray[np.float64], deltas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lower convex hull of (0, 1) and the points, at the points.

    The true profile is convex and below all points, hence below their hull.
    """
    x, y = np.concatenate(([0.0], lam)), np.concatenate(([1.0], deltas))
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) >= 2:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.interp(lam, x[hull], y[hull])


def group_factor(epsilon: float, size: int) -> float:
    """Return by what group privacy multiplies delta, for a person with `size` reports.

    Replacing them one after another, delta(epsilon) <= sum_i e^(i epsilon / size) delta_1(epsilon /
    size), i < size. Rounded up, and infinite where it is larger than any float.

    >>> group_factor(0.0, 3), group_factor(5e-324, 2), group_factor(1e6, 3)
    (3.0, 2.0, inf)
    """
    if epsilon > 700:
        return math.inf
    if epsilon < 1e-12:
        return size * math.exp(epsilon)  # no term is larger; parts of tiny floats are not exact
    # The rounding of epsilon / size is multiplied by it.
    return math.expm1(epsilon) / math.expm1(epsilon / size) * (1 + 1e-15 * (1 + epsilon))
