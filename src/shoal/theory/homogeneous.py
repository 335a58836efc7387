"""A crowd of equal vectors around one record: the exact privacy of the pair, and the attack.

The other N - 1 records equal z, the last one is x or x'. With the counts (a, b, c) of
`domains.Triple` and independent i ~ Bin(a, q), j ~ Bin(b, q), k ~ Bin(c, q), a report drawn from
z has the likelihood ratios ``w' = theta^(2i-a+2k-c)`` towards x' and ``w = theta^(2j-b+2k-c)``
towards x. With N iid draws from z (SDP (2.4) and (3.1), extended to any pair; theorem):

    R      = sum w' / sum w
    delta  = (1/N) E[(sum (w' - lam w))_+]
    eta    = P_x'[R > lam] = delta - lam d+delta/dlam        (delta is convex in lam)

SDP's own case, the outlier in a crowd of opposites, is "forward", (L, 0, 0). Its swap, "reverse",
is (0, L, 0). That forward is the worst case (SDP 1.2, claim 1) is a conjecture, and false.
Crowds like these bound the true worst case from below: they are attacks, not guarantees.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import Bracket, FloatArray, binomial_log_weights
from shoal.theory.domains import Block, Triple, differing_bits, maximal_classes
from shoal.theory.randomized_response import check_q, local_epsilon, log_theta, phi
from shoal.theory.stop_loss import MAX_TERMS, delta_of_draws
from shoal.theory.stop_loss.reduction import Draw, compositions, few_outcomes, outcome_chances

_MAX_ATOMS = 20_000
_SHORTLIST = 5
_FEW_CROWDS = 32
_FINALISTS = 4
_FEW_ATOMS = 5000


class HomogeneousAttack(NamedTuple):
    """The worst crowd found and its delta."""

    crowd: Triple
    delta: Bracket


class RatioDistribution(NamedTuple):
    """Values of the privacy ratio on an even grid and their probabilities."""

    values: FloatArray
    probabilities: FloatArray


def check_crowd(N: int, q: float, epsilon: float) -> None:
    """Refuse a crowd size below 1, an invalid q, and a negative, infinite or NaN epsilon."""
    check_q(q)
    if N < 1:
        raise ValueError(f"N must be at least 1, got N={N}.")
    if not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and at least 0, got epsilon={epsilon}.")


def crowd_draw(crowd: tuple[int, int, int], q: float, epsilon: float) -> Draw:
    """Draw of ``w' - e^epsilon w`` for one report drawn from the crowd's vector."""
    a, b, c = crowd
    i, j, k = np.ogrid[: a + 1, : b + 1, : c + 1]
    weight = (
        binomial_log_weights(a, q)[:, None, None]
        + binomial_log_weights(b, q)[None, :, None]
        + binomial_log_weights(c, q)[None, None, :]
    )
    unit = log_theta(q)
    plus = np.broadcast_to((2 * i - a + 2 * k - c) * unit, weight.shape)
    minus = np.broadcast_to(epsilon + (2 * j - b + 2 * k - c) * unit, weight.shape)
    return Draw(plus.ravel(), minus.ravel(), weight.ravel())


def delta(
    crowd: tuple[int, int, int], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> Bracket:
    """Bracket delta(epsilon) of the pair around a homogeneous crowd (a, b, c) (theorem).

    N = 1 gives the local pair. Forward and reverse differ by orders of magnitude:

    >>> f"{delta((1, 0, 0), 1000, 0.05, math.log(2)).high:.1e}"
    '1.6e-13'
    >>> f"{delta((0, 1, 0), 1000, 0.05, math.log(2)).high:.1e}"
    '5.5e-07'
    """
    check_crowd(N, q, epsilon)
    return _delta(crowd, N, q, epsilon, rtol)


@functools.lru_cache(maxsize=256)
def _delta(
    crowd: tuple[int, int, int],
    N: int,
    q: float,
    epsilon: float,
    rtol: float,
    max_terms: int = MAX_TERMS,
) -> Bracket:
    if crowd[0] + crowd[1] == 0 or (q == 0.5 and epsilon >= 0.0):
        return Bracket(0.0, 0.0)
    return delta_of_draws(crowd_draw(crowd, q, epsilon), N, rtol, max_terms)


def local_delta(domain: Iterable[Block], q: float, epsilon: float) -> Bracket:
    """Bracket delta(epsilon) of the worst pair with no crowd at all; 0 from the local epsilon on.

    Only bits that differ tell x from x', and more of them tell more (post-processing), so the
    worst pair differs in as many bits as the domain allows (theorem). By post-processing again, it
    bounds the delta of any crowd.
    """
    check_crowd(1, q, epsilon)
    differ = differing_bits(domain)
    if epsilon >= local_epsilon(differ, q) * (1.0 + 1e-14):
        return Bracket(0.0, 0.0)
    return _delta((differ, 0, 0), 1, q, epsilon, 1e-12)


def eta(
    crowd: tuple[int, int, int], N: int, q: float, epsilon: float, rtol: float = 5e-3
) -> Bracket:
    """Bracket ``eta(epsilon) = P_x'[R > e^epsilon]`` around a homogeneous crowd (SDP 1.7).

    Few outcomes are enumerated. Otherwise ``eta = delta - lam d+delta``, and the right derivative
    of the convex delta is between the difference quotients to its left and to its right. Where R
    has an atom at lam no rtol can be reached; the bracket then shows the size of the jump. Where
    delta itself is hardly known, only ``delta <= eta <= delta(mu) lam / (lam - mu)`` is used.

    >>> bracket = eta((5, 0, 0), 1000, 0.2446, math.log(2))   # SDP 3.3 prints .006
    >>> 0.0070 < bracket.low < bracket.high < 0.0072
    True
    """
    check_crowd(N, q, epsilon)
    if crowd[0] + crowd[1] == 0 or q == 0.5:
        return Bracket(0.0, 0.0)
    atoms = math.prod(part + 1 for part in crowd)
    if few_outcomes(N, atoms) and sum(crowd) * log_theta(q) + epsilon < 300.0:
        return _eta_enumerated(crowd, N, q, epsilon)
    rough = _delta(crowd, N, q, epsilon, 1e-2)
    if rough.low >= 1.0 - rtol:
        return Bracket(rough.low, 1.0)  # eta is at least delta
    if not rough.is_within(0.02):
        return Bracket(rough.low, max(rough.low, _eta_bound(crowd, N, q, epsilon)))
    beyond = _delta(crowd, N, q, epsilon + 0.02, 1e-2)
    if rough.high < 1e-290 or beyond.low <= 0.0:
        steep = 100.0
    else:
        steep = min(max(math.log(rough.high / beyond.low) / 0.02, 1.0), 1e4)
    step = 0.4 * rtol / steep
    fine = max(0.2 * rtol * steep * step, 1e-9)
    here = _delta(crowd, N, q, epsilon, fine)
    if not here.is_within(0.01 + 100.0 * fine):
        return Bracket(rough.low, max(rough.low, _eta_bound(crowd, N, q, epsilon)))
    right = _delta(crowd, N, q, epsilon + math.log1p(step), fine)
    left = _delta(crowd, N, q, epsilon + math.log1p(-step), fine)
    slack = 1.0 + 1e-15 * (1.0 + epsilon) / step
    low = here.low + max(here.low - right.high, 0.0) / step / slack
    high = here.high + max(left.high - here.low, 0.0) / step * slack
    return Bracket(min(low, high), high).capped(1.0)


def _eta_bound(crowd: tuple[int, int, int], N: int, q: float, epsilon: float) -> float:
    """Bound eta by ``delta(mu) lam / (lam - mu)`` at a few mu < lam (theorem, see `sufficient`)."""
    bounds = [
        _delta(crowd, N, q, epsilon - step, 0.02, max_terms=1 << 14).high / -math.expm1(-step)
        for step in (1.0, 0.3, 0.1)
    ]
    return min(1.0, min(bounds) * (1.0 + 1e-14))


def _eta_enumerated(crowd: tuple[int, int, int], N: int, q: float, epsilon: float) -> Bracket:
    draw = crowd_draw(crowd, q, epsilon)
    counts = compositions(N, draw.log_weight.size)
    chance, wobble = outcome_chances(counts, draw.log_weight)
    top = float(max(draw.log_plus.max(), draw.log_minus.max()))
    towards, away = np.exp(draw.log_plus - top), np.exp(draw.log_minus - top)
    towards_sum, away_sum = (np.einsum("ij,j->i", counts, part) for part in (towards, away))
    margin = towards_sum - away_sum
    doubt = 2.0**-46 * (1.0 + abs(top)) * (towards_sum + away_sum)
    share = chance * towards_sum * math.exp(top) / N
    low = float(np.sum((share * (1.0 - wobble))[margin > doubt]))
    high = float(np.sum((share * (1.0 + wobble))[margin > -doubt]))
    return Bracket(max(low * (1.0 - 1e-12), 0.0), min(high * (1.0 + 1e-12), 1.0))


def attack(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> HomogeneousAttack:
    """Find the homogeneous crowd of the domain with the largest delta: a lower bound (theorem).

    Crowds are ranked by the second moment of ``w' - lam w``, which decides for large N; the first
    few are evaluated roughly, the best of them finely.

    >>> from shoal.theory.domains import choice
    >>> attack((choice(100),), 10_000, 0.0722, math.log(2)).crowd
    Triple(a=1, b=1, c=1)
    """
    check_crowd(N, q, epsilon)
    crowds = shortlist(maximal_classes(domain), q, epsilon)
    attacks = [HomogeneousAttack(crowd, rough_delta(crowd, N, q, epsilon)) for crowd in crowds]
    if not attacks:
        return HomogeneousAttack(Triple(0, 0, 0), Bracket(0.0, 0.0))
    best = max(attacks, key=lambda candidate: (candidate.delta.low, candidate.delta.high))
    rivals = [c for c in attacks if c.delta.high >= best.delta.low > 0.0]
    rivals = heapq.nlargest(_FINALISTS, rivals, key=lambda c: c.delta.low)
    sharp = [HomogeneousAttack(c.crowd, _delta(c.crowd, N, q, epsilon, rtol)) for c in rivals]
    return max([*sharp, best], key=lambda c: (c.delta.low, c.delta.high))


def rough_delta(crowd: Triple, N: int, q: float, epsilon: float) -> Bracket:
    """Bracket delta to two digits: enough to rank crowds."""
    return _delta(crowd, N, q, epsilon, 0.02, max_terms=1 << 14)


def take_long(crowds: Iterable[Triple]) -> bool:
    """Whether crowds have too many atoms together for all of them to be evaluated finely."""
    return sum(map(_atoms, crowds)) > _FEW_ATOMS


def _atoms(crowd: Triple) -> int:
    return math.prod(part + 1 for part in crowd)


def shortlist(crowds: Iterable[Triple], q: float, epsilon: float) -> list[Triple]:
    """Pick the crowds with the largest second moments of ``w' - lam w``, and the corners.

    If there are few crowds with few atoms, all are kept: for small N the second moment decides
    little.
    """
    growth, lam = math.log(phi(q)), math.exp(min(epsilon, 300.0))
    pool = sorted(t for t in crowds if _atoms(t) <= _MAX_ATOMS)
    if len(pool) <= _FEW_CROWDS and not take_long(pool):
        return pool

    def second_moment(t: Triple, factor: float) -> float:
        # E[(w' - lam w)^2] = phi^c (phi^a + lam^2 phi^b - 2 lam), from E[w'^2] = phi^(a+c) etc.
        top = max(t.a, t.b) * growth
        inner = math.exp(t.a * growth - top) + factor**2 * math.exp(t.b * growth - top)
        inner -= 2.0 * factor * math.exp(-top)
        return t.c * growth + top + math.log(max(inner, 1e-300))

    picks = set(heapq.nlargest(_SHORTLIST, pool, key=lambda t: second_moment(t, 1.0)))
    picks |= set(heapq.nlargest(_SHORTLIST, pool, key=lambda t: second_moment(t, lam)))
    picks |= set(heapq.nlargest(1, pool, key=lambda t: (t.a, t.c)))
    picks |= set(heapq.nlargest(1, pool, key=lambda t: (t.b, t.c)))
    picks |= set(heapq.nlargest(1, pool, key=lambda t: (min(t), sum(t))))
    return sorted(picks)


def ratio_moments(L: int, N: int, q: float) -> tuple[float, float]:
    """Mean and variance of R under D_m, forward (SDP 3.1 and appendix; theorem), or infinity.

    >>> mean, variance = ratio_moments(5, 1000, 0.24454)
    >>> round(mean + 3 * math.sqrt(variance), 3)
    2.0
    """
    check_crowd(N, q, 0.0)
    odds = math.exp(log_theta(q))
    try:
        first = phi(q) ** L
        second = (odds**2 - odds + 1.0 - 1.0 / odds + odds**-2) ** L
        square = first**2
    except OverflowError:
        return math.inf, math.inf
    mean = (N - 1) / N + first / N
    # at q = 1/2 both parts vanish, and round-off must not leave less than nothing
    return mean, max((N - 1) / N**2 * (first - 1.0) + (second - square) / N**2, 0.0)


def ratio_distribution(L: int, N: int, q: float, points: int = 2048) -> RatioDistribution:
    """Approximate the pmf of R under D_m, forward, on an even grid: for pictures, not certified.

    The grid runs from 0 to six standard deviations above the mean, whose last point holds the rest;
    atoms are split between neighbours so that means are kept.
    """
    mean, variance = ratio_moments(L, N, q)
    top = mean + 6.0 * math.sqrt(variance)
    size = 1 << math.ceil(math.log2(8 * points))
    unit = top * N / (size // 2 - 1)
    ratios = np.exp((2.0 * np.arange(L + 1) - L) * log_theta(q)) / unit

    def transform(weights: FloatArray) -> FloatArray:
        # atoms beyond the picture go to the middle of the empty upper half
        place = np.where(ratios < size // 2, ratios, 0.75 * size)
        base = np.floor(place).astype(np.int64)
        cells = np.bincount(base, weights * (base + 1 - place), minlength=size)
        cells += np.bincount(base + 1, weights * (place - base), minlength=size)[:size]
        return np.asarray(np.fft.rfft(cells))

    crowd = transform(np.exp(binomial_log_weights(L, q)))
    outlier = transform(np.exp(binomial_log_weights(L, q))[::-1])
    mass = np.clip(np.fft.irfft(crowd ** (N - 1) * outlier, size), 0.0, None)
    inside = mass[: size // 2].reshape(points, -1).sum(axis=1)
    inside[-1] += mass[size // 2 :].sum()
    values = (np.arange(points) + 0.5) * (size // 2 // points) * unit / N
    return RatioDistribution(values, inside / inside.sum())
