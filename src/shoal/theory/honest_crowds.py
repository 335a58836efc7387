"""Tests of honest crowds: tails and mixtures that hold whatever the true answers are.

*Tails.* Bits are flipped independently, so the number of reports in a set A is a sum of independent
coins whose rates differ. If no original reaches A with more than `rate`, the mean is at most
n * rate, and from the mean plus one on the upper tail is at most that of a binomial with the same
mean (Hoeffding 1956, theorem 5); a binomial's tail rises with its rate. Every bound falls as its
count grows more extreme, so it is a valid p-value.

*Mixtures.* Is a histogram a mixture of given distributions? Report i follows that of its own
original, P_(k_i), and all are independent. For weights g >= 0 the arithmetic mean bounds the
geometric one: E[prod_i g(T_i)] <= (sum_t Pbar(t) g(t))^n, where Pbar, the average of the n
distributions, is a mixture. With g = A / Pbar that is one for every A, hence at most one for an
average over any prior of A (theorem). So

    e = (average over A of the likelihood) / (largest likelihood of a mixture)

has an expectation of at most one under every honest crowd, and by Markov 1/e is a valid p-value:
universal inference (Wasserman, Ramdas, Balakrishnan 2020) with a Dirichlet prior. It needs no
asymptotics, and detects every distribution outside the mixtures as n grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from scipy.special import betainc, betaincc, gammaln, logsumexp

from shoal.theory.binomial import pmf, tails
from shoal.theory.brackets import FloatArray, IntArray

_TINY = 1e-300  # raising a distribution's entry to this can only make honest crowds likelier
_ROUNDOFF = 2.0**-53
_GOOD_GAP = 1e-3
_STEPS = 60
_FIRST_SUPPORT = 48
_PRIOR = 0.5  # Jeffreys

MAX_EXACT = 10**11
"""Up to this many bits the distribution of a sum of bits is computed, beyond it is bounded."""

_ROUNDING = 1 + 1e-9  # the incomplete beta function is good to about 1e-12


def set_bit_pmfs(bits: int, fewest: int, most: int, q: float) -> FloatArray:
    """Return the pmfs of the number of set bits in a report, one row per number of true bits."""
    return np.array([pmf(bits, k, q) for k in range(fewest, most + 1)])


def bins(pmfs: FloatArray, count: int) -> NDArray[np.intp]:
    """Cut the outcomes into at most `count` runs that the distributions' average fills equally.

    Returns the start of each run. The cuts know the distributions and nothing of the data.
    """
    outcomes = pmfs.shape[1]
    if outcomes <= count:
        return np.arange(outcomes)
    reached = np.cumsum(pmfs.mean(axis=0))
    cuts = np.searchsorted(reached, np.arange(1, count) / count) + 1
    return np.unique(np.concatenate(([0], cuts[cuts < outcomes]))).astype(np.intp)


def log_evidence(
    pmfs: FloatArray, counts: IntArray, cuts: Sequence[NDArray[np.intp]], share: float = 0.0
) -> float:
    """Return ln e against every mixture, averaged over several ways to cut the outcomes.

    A part `share` of the reports may be anything: mixtures are then (1 - share) of one of the
    distributions' and share of any other.
    """
    logs = []
    for starts in cuts:
        seen = np.add.reduceat(counts, starts).astype(float)
        coarse = np.add.reduceat(pmfs, starts, axis=1)
        prior = np.full(seen.size, _PRIOR)
        marginal = (
            gammaln(prior.sum())
            - gammaln(prior.sum() + seen.sum())
            + float((gammaln(prior + seen) - gammaln(prior)).sum())
        )
        logs.append(marginal - most_likely(coarse, seen, share))
    guard = 24 * _ROUNDOFF * (pmfs.shape[1] + 1) * float(counts.sum())
    return float(logsumexp(logs) - math.log(len(logs)) - guard)


def most_likely(pmfs: FloatArray, counts: FloatArray, share: float = 0.0) -> float:
    """Return the largest log-likelihood of a mixture, from above.

    Any mixture Q gives a bound: by Jensen's inequality no other one is better by more than
    n ln(max_k sum_t counts(t)/n P_k(t)/Q(t)). The search only makes the bound tight (Wang 2007,
    constrained Newton steps by non-negative least squares).
    """
    seen = counts > 0
    part = counts[seen] / counts.sum()
    columns = np.maximum(pmfs[:, seen], _TINY) * (1 - share)
    # Fakes may show any outcome; those that nobody saw would only lower the likelihood.
    groups = np.zeros(len(columns), int)
    if share > 0:
        columns = np.concatenate((columns, share * np.eye(part.size)))
        groups = np.concatenate((groups, np.ones(part.size, int)))
    weights = _start(groups)
    best = math.inf
    for _ in range(_STEPS):
        mixed = weights @ columns
        slopes = columns @ (part / mixed)
        gap = math.log(sum(slopes[groups == g].max() for g in range(groups.max() + 1)))
        best = min(best, float(part @ np.log(mixed)) + gap)
        if gap * counts.sum() < _GOOD_GAP:
            break
        improved = _step(columns, groups, part, weights, mixed, slopes)
        if improved is None:
            break
        weights = improved
    return best * float(counts.sum())


def _start(groups: NDArray[np.int_]) -> FloatArray:
    weights = np.zeros(groups.size)
    for group in range(groups.max() + 1):
        members = np.flatnonzero(groups == group)
        spread = np.linspace(0, members.size - 1, min(members.size, _FIRST_SUPPORT))
        weights[members[np.unique(spread.astype(int))]] = 1
        weights[members] /= weights[members].sum()
    return weights


def _step(
    columns: FloatArray,
    groups: NDArray[np.int_],
    part: FloatArray,
    weights: FloatArray,
    mixed: FloatArray,
    slopes: FloatArray,
) -> FloatArray | None:
    """Return better weights, or None if none are found."""
    padded = np.concatenate(([-np.inf], slopes, [-np.inf]))
    peaks = (slopes >= padded[:-2]) & (slopes >= padded[2:])
    active = np.flatnonzero((weights > 0) | peaks)
    root = np.sqrt(part)
    # The quadratic around the present mixture, with the sums of weights as heavy extra rows.
    heavy = 1e3
    rows = (columns[active] / mixed * root).T
    count = int(groups.max()) + 1
    sums = heavy * (groups[active] == np.arange(count)[:, None])
    target = np.concatenate((2 * root, np.full(count, heavy)))
    try:
        shares, _ = nnls(np.vstack((rows, sums)), target)
    except RuntimeError:  # it did not converge
        return _rescaled(weights, slopes, groups)
    proposal = np.zeros(weights.size)
    proposal[active] = shares
    for group in range(count):
        total = proposal[groups == group].sum()
        if not total > 0:
            return _rescaled(weights, slopes, groups)
        proposal[groups == group] /= total
    height = float(part @ np.log(mixed))
    step = 1.0
    while step > 1e-4:
        tried = (1 - step) * weights + step * proposal
        reached = tried @ columns
        if (reached > 0).all() and float(part @ np.log(reached)) > height:
            return tried
        step /= 2
    return _rescaled(weights, slopes, groups)


def _rescaled(
    weights: FloatArray, slopes: FloatArray, groups: NDArray[np.int_]
) -> FloatArray | None:
    """Return one step of expectation and maximization, which never goes down."""
    raised = weights * slopes
    for group in range(int(groups.max()) + 1):
        raised[groups == group] /= raised[groups == group].sum()
    return None if np.allclose(raised, weights, rtol=1e-9, atol=0) else raised


def at_least(count: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> FloatArray:
    """Return P[Bin(trials, rate) >= count], rounded up; for any whole numbers.

    >>> at_least([0, 1, 2, 3], 2, 0.5).round(6).tolist()
    [1.0, 0.75, 0.25, 0.0]
    """
    s, n, p = (np.asarray(x, float) for x in (count, trials, rate))
    inside = (s >= 1) & (s <= n)
    tail = betainc(np.where(inside, s, 1.0), np.where(inside, n - s + 1, 1.0), p)
    return np.minimum(np.where(inside, tail * _ROUNDING, np.where(s < 1, 1.0, 0.0)), 1.0)


def at_most(count: ArrayLike, trials: ArrayLike, rate: float) -> FloatArray:
    """Return P[Bin(trials, rate) <= count], rounded up.

    >>> at_most([-1, 0, 1, 2], 2, 0.5).round(6).tolist()
    [0.0, 0.25, 0.75, 1.0]
    """
    s, n = np.asarray(count, float), np.asarray(trials, float)
    inside = (s >= 0) & (s < n)
    # The other way round, at_least takes 1 - rate, which has no more digits than 1 where q is tiny.
    tail = betaincc(np.where(inside, s + 1, 1.0), np.where(inside, n - s, 1.0), rate)
    return np.minimum(np.where(inside, tail * _ROUNDING, np.where(s < 0, 0.0, 1.0)), 1.0)


def hoeffding_at_least(count: ArrayLike, trials: ArrayLike, rate: ArrayLike) -> FloatArray:
    """Bound P[S >= count] for every sum S of `trials` coins of mean rate at most `rate`.

    One wherever the theorem does not hold: below the mean plus one.
    """
    s, n, p = (np.asarray(x, float) for x in (count, trials, rate))
    return np.where(s >= n * p + 1, at_least(s, n, p), 1.0)


def sum_p_values(
    ones: int, reports: int, bits: int, fewest: int, most: int, q: float, fakes: int = 0
) -> tuple[float, float]:
    """Return p-values for too few and for too many ones in a block of `bits` bits.

    The ones of all reports together rise stochastically with every true bit, so they are between
    A(reports * fewest) and A(reports * most) over reports * bits bits (KR 3.1.2, theorem). The
    `fakes` reports among them may hold anything.

    >>> [round(p, 4) for p in sum_p_values(0, reports=1, bits=2, fewest=1, most=1, q=0.25)]
    [0.1875, 1.0]
    """
    honest = reports - fakes
    size, needed = honest * bits, ones - fakes * bits
    if size == 0:
        return 1.0, 1.0
    too_few = 1.0 if ones >= size else _lower(ones, size, honest * fewest, q)
    # Turning every bit over turns too many into too few.
    too_many = 1.0 if needed <= 0 else _lower(size - needed, size, size - honest * most, q)
    return too_few, too_many


def _lower(ones: int, size: int, true_ones: int, q: float) -> float:
    """Bound P[A_size(true_ones) <= ones]."""
    if size <= MAX_EXACT:
        return tails(ones, size, true_ones, q).at_most_bound
    share = true_ones / size
    return float(hoeffding_at_least(size - ones, size, 1 - (q + share * (1 - 2 * q))))
