"""Delta of a release of counts in which two answers differ in d one-bit fragments.

The theorem is in the docstring of the package. `counts_delta` gives both sides: `high` is proven
for every crowd, `low` is an attack, the product of d equal pairs in one crowd that is nearly the
worst.

*The attack from below (theorem).* Losses of a fixed pair, after merging some counts, are moved to
the two nearest nodes of a fine grid of step h with their means kept. The moves of d bits are
independent given the losses, have mean 0 and a range of h, so their sum is above w with probability
at most ``exp(-2 w^2 / (d h^2))`` (Hoeffding). So the grid's delta at eps + w exceeds the pair's
delta at eps by at most that probability.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.cohorts import smallest_cohort
from shoal.theory.composition import Losses, composed_delta, dominating_losses
from shoal.theory.counts.curve import Atoms, merged_atoms
from shoal.theory.counts.profile import NEGLIGIBLE, bit_profile
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import log_theta
from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.distribution import FloatArray, dot
from shoal.theory.stop_loss.reduction import UNIT

__all__ = [
    "FINE",
    "CountsAttack",
    "attack_counts",
    "cohort_crowd",
    "counts_delta",
    "is_local",
    "proven_counts",
    "spread_losses",
]

FINE = 2.5e-4
"""Tolerance, in units of the noise, at which a promise is certified."""

_ROUGH = 2_000
"""Nodes over 24 standard deviations of one loss, to compare attacks."""

_EXACT = 400_000
"""The same for d bits together, for the attack that is reported."""

_LITTLE_NOISE = 4.0
"""So few flips among others that one person alone may be the better bound."""

_FEW = 16
"""So few people that every crowd is tried."""


def check_fragments(d: int) -> None:
    """Refuse a negative number of fragments."""
    if d < 0:
        raise ValueError(f"the number of differing fragments must be at least 0, got d={d}.")


def counts_delta(d: int, N: int, q: float, epsilon: float) -> Bracket:
    """Delta at epsilon of the counts of N people, two of whose answers differ in at most d bits.

    Parameters
    ----------
    d : int >= 0
        Number of bits in which two answers can differ; see `domains.differing_bits`.
    N : int >= 1
        Number of people.
    q : float in (0, 1/2]
        Flip probability of each bit.
    epsilon : float >= 0

    Returns
    -------
    Bracket
        `low` is the delta of an attack, `high` is proven for every crowd.

    Examples
    --------
    >>> delta = counts_delta(1, 3, 0.25, math.log(1.1))
    >>> 0.278 < delta.low < 89 / 320 < delta.high < 0.2782
    True
    """
    check_crowd(N, q, epsilon)
    check_fragments(d)
    proven = proven_counts(d, N, q, epsilon)
    return Bracket(attack_counts(d, N, q, epsilon, proven).delta, proven)


def is_local(d: int, q: float, epsilon: float) -> bool:
    """Whether the promise holds without any crowd."""
    return epsilon >= d * log_theta(q) * (1.0 + 1e-14)


def proven_counts(d: int, N: int, q: float, epsilon: float, tolerance: float = FINE) -> float:
    """Upper bound of delta for every crowd (theorem).

    With hardly any noise of others no crowd is the worst at every loss, and their supremum may be
    above what one person alone reveals. Others are post-processing, so the smaller one holds.
    Losses are cut where the profile is negligible, so that a bound as small as that depends on the
    place of the cut: it is rounded up, or it could rise with the crowd.

    Examples
    --------
    >>> proven_counts(2, 10_000, 0.5, 0.1)
    0.0
    """
    if is_local(d, q, epsilon):
        return 0.0
    sizes = {N, 1} if N * q < _LITTLE_NOISE else {N}
    profiles = (bit_profile(size, q, tolerance) for size in sorted(sizes))
    pairs = (dominating_losses(entry.step, entry.high) for entry in profiles)
    least = 100.0 * NEGLIGIBLE * d
    return max(min(composed_delta(losses, d, epsilon).high for losses in pairs), least)


class CountsAttack(NamedTuple):
    """A lower bound of delta, and how many of the others have each differing bit as x' does.

    The rest have it as x does; x' and x are the two answers that are told apart.
    """

    delta: float
    ones: int


def attack_counts(d: int, N: int, q: float, epsilon: float, scale: float) -> CountsAttack:
    """Lower bound of the worst delta: that of d equal bits in the worst of a few crowds.

    `scale` is about as large as delta, not smaller.

    Examples
    --------
    >>> attack_counts(1, 1, 0.25, 0.0, 0.5)
    CountsAttack(delta=0.499..., ones=0)
    """
    if is_local(d, q, epsilon) or scale <= 0.0:
        return CountsAttack(0.0, 0)
    others = N - 1
    crowds = set(range(min(N, _FEW)))
    if N > _FEW:
        profile = bit_profile(N, q, FINE)
        usual = profile.ones[: max(1, profile.ones.size // 2)]
        crowds = {0, others // 2, others, *(int(m) for m in usual[:: max(1, usual.size // 4)])}
    pairs = {ones: merged_atoms(ones, others - ones, q) for ones in sorted(crowds)}
    worst = max(pairs, key=lambda ones: _from_below(pairs[ones], d, epsilon, scale, _ROUGH))
    nodes = max(_EXACT / math.sqrt(d), 40_000.0)
    return CountsAttack(_from_below(pairs[worst], d, epsilon, scale, nodes), worst)


def spread_losses(atoms: Atoms, step: float) -> Losses:
    """Losses on a grid, of the same mean as those of the atoms: each goes to its two neighbours.

    Masses are rounded down.

    Examples
    --------
    >>> spread_losses(Atoms(np.array([1.0]), np.array([0.25])), 1.0).mass.round(9).tolist()
    [0.75, 0.25]
    """
    place = atoms.loss / step
    below = np.floor(place)
    share = place - below
    near = np.concatenate((below, below + 1.0)).astype(np.int64)
    mass = np.concatenate((atoms.mass * (1.0 - share), atoms.mass * share))
    node, where = np.unique(near, return_inverse=True)
    summed: FloatArray = np.bincount(where, weights=mass).astype(np.float64)
    summed *= 1.0 - UNIT * (8.0 + mass.size)
    return Losses(step, node, summed, 0.0)


def _from_below(atoms: Atoms, d: int, epsilon: float, scale: float, nodes: float) -> float:
    mean = dot(atoms.mass, atoms.loss)
    sigma = math.sqrt(dot(atoms.mass, (atoms.loss - mean) ** 2))
    # where a loss is nearly always the same, its range decides
    step = max(24.0 * sigma / nodes, 5e-6 * float(np.ptp(atoms.loss)))
    chance = 1e-5 * scale
    width = step * math.sqrt(0.5 * d * math.log(1.0 / chance))
    width += d * 16 * UNIT * (1.0 + float(np.abs(atoms.loss).max()))
    return max(composed_delta(spread_losses(atoms, step), d, epsilon + width).low - chance, 0.0)


def cohort_crowd(N: int, cohorts: int, delta: float) -> tuple[int, float]:
    """Crowd size and delta to plan for when N people draw one of several cohorts.

    A cohort may turn out small; that happens with a probability that is paid from delta, one
    twentieth of it at most (theorem: see `cohorts`). With one cohort nothing changes.

    Examples
    --------
    >>> cohort_crowd(10_000, 1, 1e-6)
    (10000, 1e-06)
    >>> t, rest = cohort_crowd(10_000, 4, 1e-6)
    >>> 2_200 < t < 2_500, 0.95e-6 <= rest < 1e-6
    (True, True)
    """
    crowd, price = smallest_cohort(N, cohorts, 0.05 * delta)
    return crowd, delta - price * (1.0 + 4 * UNIT) if price else delta
