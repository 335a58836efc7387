r"""The counts view: what a release of counts, and of nothing else, tells about a person.

A release in this view holds, for each bit, how many of N reports set it. Nothing links the bits.

*Theorem.* Let two answers differ in at most d bits, and let ``delta*(lam)`` be the largest hockey
stick ``H_lam`` of one bit's count over all crowds and both orders of the pair (`profile`). Let (P,
Q) be any pair of measures with ``H_lam(P||Q) >= delta*(lam)`` for every lam >= 0. Then the release
is (eps, delta) differentially private, replace-one, for every collection, with
``delta = H_(e^eps)(P^d||Q^d)``.

The proof is in docs/views.md: counts of different bits are independent, and dominating pairs
compose (`theory.composition`).

A pair that dominates both orders has ``delta*(lam) = 1 - lam + lam delta*(1/lam)`` for lam < 1:
the mirrored half, which a sum of losses may need. What d is: `domains.differing_bits`. Colluders:
N - t.

*The attack from below (theorem).* Losses of a fixed pair, after merging some counts, are moved to
the two nearest nodes of a fine grid of step h with their means kept. The moves of d bits are
independent given the losses, have mean 0 and a range of h, so their sum is above w with probability
at most ``exp(-2 w^2 / (d h^2))`` (Hoeffding). So the grid's delta at eps + w exceeds the pair's
delta at eps by at most that probability.

`counts_q`, `counts_crowd` and `counts_epsilon` solve for the other three numbers. Delta falls in q,
in N and in epsilon (theorems: more noise and more people are post-processing).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, Bracket, FloatArray, dot
from shoal.theory.calibration import MIN_Q, check_target, coarse_to_fine, smallest_epsilon
from shoal.theory.composition import Losses, composed_delta, dominating_losses, gaussian_mu
from shoal.theory.counts.profile import NEGLIGIBLE, Atoms, bit_profile, merged_atoms
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import local_q, log_theta

FINE = 2.5e-4
"""Tolerance, in units of the noise, at which a promise is certified."""

_ROUGH_NODES = 2_000
"""Nodes over 24 standard deviations of one loss, to compare attacks."""

_EXACT = 400_000
"""The same for d bits together, for the attack that is reported."""

_LITTLE_NOISE = 4.0
"""So few flips among others that one person alone may be the better bound."""

_FEW = 16
"""Up to this many people every crowd is tried."""

_COARSE = 3e-3
_WIDE = 100
_TOL_IF_WIDE = 2e-3
"""From this many differing bits on a fine profile is slow, and q is solved to this at best."""

_LEAD = 1.3
"""There the fine curve is this many coarse tolerances ahead of the coarse one (observed)."""

_ROUGH_XTOL = 5e-3
"""From this tolerance of the answer on, the coarse profile certifies it."""

_MAX_CROWD = 10**12


def _check(d: int, N: int, q: float, epsilon: float) -> None:
    check_crowd(N, q, epsilon)
    if d < 0:
        raise ValueError(f"the number of differing bits must be at least 0, got d={d}.")


def counts_delta(d: int, N: int, q: float, epsilon: float) -> Bracket:
    """Delta at epsilon of the counts of N people, two of whose answers differ in at most d bits.

    The low end of the bracket is the delta of an attack, the high end is proven for every crowd.

    >>> delta = counts_delta(1, 3, 0.25, math.log(1.1))
    >>> 0.278 < delta.low < 89 / 320 < delta.high < 0.2782
    True
    """
    _check(d, N, q, epsilon)
    proven = proven_counts(d, N, q, epsilon)
    return Bracket(attack_counts(d, N, q, epsilon, proven).delta, proven)


def is_local(d: int, q: float, epsilon: float) -> bool:
    """Whether the promise holds without any crowd."""
    return epsilon >= d * log_theta(q) * (1.0 + 1e-14)


def proven_counts(d: int, N: int, q: float, epsilon: float, tolerance: float = FINE) -> float:
    """Upper bound of delta for every crowd (theorem).

    With hardly any noise of others no crowd is the worst at every loss, and their supremum may be
    above what one person alone reveals. Others are post-processing, so the smaller one holds.
    Losses are cut where the profile is negligible, so a bound as small as that is rounded up: it
    would depend on the place of the cut, and could rise with the crowd.
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
    worst = max(pairs, key=lambda ones: _from_below(pairs[ones], d, epsilon, scale, _ROUGH_NODES))
    nodes = max(_EXACT / math.sqrt(d), 40_000.0)
    return CountsAttack(_from_below(pairs[worst], d, epsilon, scale, nodes), worst)


def spread_losses(atoms: Atoms, step: float) -> Losses:
    """Losses on a grid, of the same mean as those of the atoms: each goes to its two neighbours.

    Masses are rounded down.
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


class CountsAnswer(NamedTuple):
    """The smallest value that keeps the promise, and the proven delta there."""

    value: float
    delta: float


def _tolerance(xtol: float) -> float:
    return FINE if xtol < _ROUGH_XTOL else _COARSE


def _solve(
    bound: Callable[[float, float], float], start: float, low: float, high: float, target: float,
    xtol: float,
) -> float:  # fmt: skip
    lead = _LEAD * _COARSE if _TOL_IF_WIDE <= xtol < _ROUGH_XTOL else 0.0
    fine = _tolerance(xtol)
    return coarse_to_fine(bound, start, low, high, target, xtol, _COARSE, fine, lead)


def _log_noise(q: float) -> float:
    """``ln(q (1 - q) / (1 - 2q)^2)``: the variance of an estimated count per person."""
    return math.log(q * (1.0 - q)) - 2.0 * math.log(1.0 - 2.0 * q)


def _q_of(log_noise: float) -> float:
    odds = 4.0 * math.exp(log_noise)
    return 0.5 * odds / (1.0 + odds) / (1.0 + 1.0 / math.sqrt(1.0 + odds))


def counts_q(d: int, N: int, epsilon: float, delta: float, xtol: float = 5e-4) -> CountsAnswer:
    """Smallest flip probability that keeps (epsilon, delta).

    Within `xtol`, or `_TOL_IF_WIDE` for many bits, as a share of the variance of a count. Round q
    up to a number that the sampler can draw: the true delta can only fall.

    >>> answer = counts_q(2, 100, 1.0, 1e-3)
    >>> 0.121 < answer.value < 0.124, 0.99e-3 < answer.delta <= 1e-3
    (True, True)
    """
    _check(d, N, 0.5, epsilon)
    check_target(delta)
    if d == 0:
        return CountsAnswer(MIN_Q, 0.0)
    local = min(math.nextafter(local_q(d, epsilon * (1.0 - 1e-13)), 1.0), 0.5)
    if local <= MIN_Q:
        return CountsAnswer(MIN_Q, proven_counts(d, N, MIN_Q, epsilon))
    if d > _WIDE:
        xtol = max(xtol, _TOL_IF_WIDE)
    # a normal count is no promise, and where the search begins (Dong, Roth and Su 2022)
    guess = math.log(d / max(N - 1, 1)) - 2.0 * math.log(gaussian_mu(epsilon, delta))

    def curve(log_noise: float, tolerance: float) -> float:
        return proven_counts(d, N, min(_q_of(log_noise), local), epsilon, tolerance)

    # q = 1/2 has no finite noise, and is never needed where delta > 0
    ends = _log_noise(MIN_Q), _log_noise(min(local, 0.5 - 1e-9))
    q = min(_q_of(_solve(curve, guess, *ends, delta, xtol)), local)
    return CountsAnswer(q, proven_counts(d, N, q, epsilon, _tolerance(xtol)))


def counts_crowd(
    d: int, q: float, epsilon: float, delta: float, xtol: float = 5e-4
) -> CountsAnswer:
    """Smallest crowd, to within a relative `xtol`, that keeps (epsilon, delta) at q.

    Infinite when 1e12 people are not enough.
    """
    _check(d, 1, q, epsilon)
    check_target(delta)

    def curve(log_n: float, tolerance: float) -> float:
        return proven_counts(d, math.ceil(math.exp(log_n) - 1e-6), q, epsilon, tolerance)

    if proven_counts(d, 1, q, epsilon) <= delta:
        return CountsAnswer(1, proven_counts(d, 1, q, epsilon))
    top = math.log(_MAX_CROWD)
    if curve(top, _COARSE) > delta and curve(top, FINE) > delta:
        return CountsAnswer(math.inf, 1.0)
    sigma = math.sqrt(d) * (1.0 - 2.0 * q) / gaussian_mu(epsilon, delta)
    guess = math.log(2.0 + sigma**2 / (q * (1.0 - q)))
    N = math.ceil(math.exp(_solve(curve, guess, 0.0, top, delta, xtol)) - 1e-6)
    while N * xtol < 1.0 and N > 1 and proven_counts(d, N - 1, q, epsilon) <= delta:
        N -= 1
    return CountsAnswer(N, proven_counts(d, N, q, epsilon))


def counts_epsilon(d: int, N: int, q: float, delta: float, xtol: float = 1e-5) -> CountsAnswer:
    """Smallest epsilon, to within a relative `xtol`, at which delta is kept.

    ``delta = 0`` asks for the local epsilon.
    """
    _check(d, N, q, 0.0)
    local = d * log_theta(q) * (1.0 + 1e-13)
    if delta == 0.0:
        return CountsAnswer(local, 0.0)
    check_target(delta)

    def curve(epsilon: float) -> float:
        return proven_counts(d, N, q, epsilon)

    root = smallest_epsilon(curve, delta, local, 0.5 * xtol)
    return CountsAnswer(root, curve(root))
