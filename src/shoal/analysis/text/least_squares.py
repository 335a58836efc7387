r"""Counts of chosen candidates by weighted least squares, whatever else the crowd answered.

A bit that is truly 0 is reported as 1 at the rate p*, and one that is truly 1 at the rate q*; where
each bit is flipped with probability q these are q and 1 - q. With n_j of N reports in cohort j and
M_jb ones at bit b, the debiased count y_jb = (M_jb - p* n_j) / (q* - p*) (BITVEC 3.2, SDP 4;
RAPPOR 4) has, because everybody draws a cohort,

    E[y_jb] = (n_j / N) (sum of the counts of the texts that set bit b in cohort j).

Three things make it vary:

* the flips: p*(1 - p*) / (q* - p*)^2 for every 0 and q*(1 - q*) / (q* - p*)^2 for every 1. With one
  q for both this is n_j q (1 - q) / (1 - 2q)^2, whatever the truth; otherwise it depends on how
  many ones there are, which the fit says;
* who drew which cohort: a text of count d contributes d (n_j / N)(1 - n_j / N) at its bits;
* texts that are not in the regression. Their mean is a column of its own, the background; their
  unevenness is `extra`, estimated from the residuals.

A popular text that is not among the candidates raises a few bits far above the rest. Such bits are
left out of the fit, and residuals are clipped where they are used to look for more texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, sparse

from shoal.analysis.tally import CohortCounts
from shoal.protocol.text_hash import TextHash, normal_text

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_CHUNK, _HASH_CHUNK = 4096, 1024  # texts
_SCREEN = 16  # cohorts compared first


@dataclass(frozen=True, eq=False)
class Design:
    """The bits of different patterns; `members` says which candidates have each pattern.

    A row of the regression is one bit of one cohort. Only the rows that a candidate sets are kept:
    100,000 candidates in 64 cohorts take 26 MB, a matrix 13 GB. `positions` has shape (cohorts,
    hashes, patterns). Where the hashes of another system hit one bit twice, the second stands at
    `bits`: nowhere.
    """

    positions: NDArray[np.int32]
    bits: int
    members: tuple[tuple[int, ...], ...]

    @property
    def cohorts(self) -> int:
        return int(self.positions.shape[0])

    @property
    def hashes(self) -> int:
        return int(self.positions.shape[1])

    @property
    def patterns(self) -> int:
        return int(self.positions.shape[2])

    def adjoint(self, table: Floats) -> Floats:
        """Return, for each pattern, the sum of a (cohorts, bits) table over the bits it sets."""
        total = np.zeros(self.patterns)
        for places, row in zip(self.positions, self.reaching(table), strict=True):
            for place in places:
                total += row[place]
        return total

    def at(self, chosen: Places, table: Floats) -> Floats:
        """Return a table at the bits of chosen patterns: shape (chosen, cohorts, hashes)."""
        places = self.positions[:, :, chosen]
        cohort = np.arange(self.cohorts)[:, None, None]
        return np.moveaxis(self.reaching(table)[cohort, places], 2, 0)

    def columns(self, chosen: Places, shares: Floats) -> sparse.csc_array:
        """Return the regression's columns of chosen patterns, `shares` the cohorts' weights."""
        places = np.moveaxis(self.positions[:, :, chosen], 2, 0)
        cohort = np.arange(self.cohorts)[None, :, None]
        rows = cohort * self.bits + places
        values = np.broadcast_to(shares[None, :, None], places.shape)
        somewhere = places < self.bits
        starts = np.append(0, np.cumsum(somewhere.sum(axis=(1, 2))))
        shape = (self.cohorts * self.bits, len(chosen))
        return sparse.csc_array((values[somewhere], rows[somewhere], starts), shape=shape)

    @cached_property
    def _collide(self) -> bool:
        return bool((self.positions == self.bits).any())

    def reaching(self, table: Floats) -> Floats:
        """Return a (..., cohorts, bits) table in which also `bits`, which is nowhere, has a 0."""
        if not self._collide:
            return table
        return np.concatenate((table, np.zeros((*table.shape[:-1], 1))), axis=-1)

    def alike(self, chosen: Places, share: float) -> list[tuple[int, int]]:
        """Return pairs (chosen, other) that set at least `share` of their bits alike.

        Only those that are alike in a few cohorts, as such pairs are with a probability of more
        than 0.99, are compared in full.
        """
        screen = min(self.cohorts, _SCREEN)
        pairs = []
        for pattern in chosen:
            mine = self.positions[:, :, pattern]
            few = _shared(self.positions[:screen], mine[:screen], self.bits)
            near = np.flatnonzero(few >= screen * self.hashes * share / 2)
            both = _shared(self.positions[:, :, near], mine, self.bits)
            same = near[both >= share * self.cohorts * self.hashes]
            pairs += [(int(pattern), int(other)) for other in same if other != pattern]
        return pairs


def make_design(
    hashing: TextHash,
    texts: Sequence[str],
    cohorts: int,
    progress: Callable[[int], None] | None = None,
) -> Design:
    """Hash the candidates; those with the same bits in every cohort become one pattern."""
    positions = np.empty((cohorts, hashing.hashes, len(texts)), np.int32)
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        table = np.sort(hash_table(hashing, chunk, cohorts).astype(np.int32), axis=2)
        positions[:, :, start : start + len(chunk)] = np.moveaxis(table, 0, 2)
        if progress is not None:
            progress(len(chunk))
    return merged(positions, hashing.bits)


def merged(positions: NDArray[np.int32], bits: int) -> Design:
    """Return the design of candidates' positions; equal ones become one pattern."""
    count = positions.shape[2]
    keys = np.ascontiguousarray(positions.reshape(-1, count).T).view(
        f"V{4 * positions[..., 0].size}"
    )
    _, first, pattern = np.unique(keys.reshape(-1), return_index=True, return_inverse=True)
    if len(first) == count:
        return Design(positions, bits, tuple((i,) for i in range(count)))
    order = np.argsort(first)  # patterns in the order of their first candidate
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    groups: list[list[int]] = [[] for _ in order]
    for candidate, group in enumerate(rank[pattern.reshape(-1)]):
        groups[group].append(candidate)
    distinct = np.ascontiguousarray(positions[:, :, first[order]])
    return Design(distinct, bits, tuple(map(tuple, groups)))


def _shared(positions: NDArray[np.int32], mine: NDArray[np.int32], bits: int) -> NDArray[np.int64]:
    """Count the bits that patterns share with one pattern."""
    shared = np.zeros(positions.shape[2], np.int64)
    for places, own in zip(positions, mine, strict=True):
        for place in own[own < bits]:
            shared += (places == place).any(axis=0)
    return shared


def hash_table(hashing: TextHash, texts: Iterable[str], cohorts: int) -> NDArray[np.uint16]:
    """Return the positions of texts in every cohort: shape (texts, cohorts, hashes).

    >>> hash_table(TextHash("00" * 32, "word", bits=256, hashes=2), ["shoal"], 1).tolist()
    [[[40, 248]]]
    """
    encoded = [normal_text(text).encode() for text in texts]
    out = np.empty((len(encoded), cohorts, hashing.hashes), np.uint16)
    for start in range(0, len(encoded), _HASH_CHUNK):
        chunk = encoded[start : start + _HASH_CHUNK]
        digests = b"".join(hashing.digest(text, c) for text in chunk for c in range(cohorts))
        words = np.frombuffer(digests, "<u4").reshape(len(chunk), cohorts, 8)
        out[start : start + _HASH_CHUNK] = _places(words, hashing.bits, hashing.hashes)
    return out


def _places(words: NDArray[np.uint32], bits: int, hashes: int) -> NDArray[np.uint64]:
    """Return the positions that digests choose, one after another among the free bits."""
    out = np.empty((*words.shape[:-1], hashes), np.uint64)
    for i in range(hashes):
        place = words[..., i].astype(np.uint64) * np.uint64(bits - i) >> np.uint64(32)
        for earlier in np.moveaxis(np.sort(out[..., :i], axis=-1), -1, 0):
            place = place + (place >= earlier)  # step over a bit that is taken
        out[..., i] = place
    return out


CLIP = 4.0  # standard deviations beyond which residuals are clipped, and their bits not fitted
_CLIPPED_SQUARE = 0.99988  # E[min(|Z|, 4)^2] of a standard normal Z, to five digits
_LEFT_OUT = 1e-6  # weight of a bit that is not fitted: a text of such bits has a huge sigma
_BLOCK = 1 << 22
_STEPS = 8  # of fitting at most
_SETTLED = 0.05  # fitting ends when no count moves by more than this part of its sigma


@dataclass(frozen=True, eq=False)
class Data:
    """Debiased counts of a text question, and what is known of their spread.

    `noise` is the variance of the flips where every bit is 0, to which each 1 adds `noise_of_one`.
    """

    debiased: Floats
    noise: Floats
    shares: Floats
    reports: int
    density: float
    noise_of_one: float = 0.0

    def flips(self, ones: Floats) -> Floats:
        """Return the variance of the flips, given how many people's bit is truly 1."""
        if not self.noise_of_one:
            return np.broadcast_to(self.noise, self.debiased.shape)
        # Where only ones are flipped, a bit that seems to be nobody's would be taken for certain.
        least = 1.0 if self.noise_of_one > 0 else 0.0
        people = np.clip(ones, least, np.maximum(self.shares[:, None] * self.reports, least))
        return np.asarray(self.noise + self.noise_of_one * people)

    @property
    def used(self) -> Floats:
        """1 for cohorts that have reports, 0 for the others: shape (cohorts, 1)."""
        return np.asarray((self.shares > 0)[:, None], float)


@dataclass(frozen=True, eq=False)
class Fit:
    """Counts of chosen patterns; `inverse` is of the normal equations, background first."""

    chosen: Places
    counts: Floats
    background: float
    inverse: Floats
    columns: sparse.csc_array
    residual: Floats
    variance: Floats
    weight: Floats
    flips: Floats
    extra: float

    def weights_of(self, combinations: Floats) -> Floats:
        """Return the weight of every row in combinations of (background, counts)."""
        return np.asarray((combinations @ self.inverse) @ (self.columns.T * self.weight.ravel()))

    def leverage(self) -> Floats:
        """Return the part of a change in each row that the fit absorbs, 0 to 1."""
        taken = np.empty(self.weight.size)
        rows = sparse.csr_array(self.columns)
        step = max(1, _BLOCK // max(len(self.inverse), 1))
        for start in range(0, len(taken), step):
            part = rows[start : start + step]
            taken[start : start + step] = (part.multiply(part @ self.inverse)).sum(axis=1)
        return np.clip(taken.reshape(self.weight.shape) * self.weight, 0.0, 1.0)

    def fixed(self, data: Data) -> Floats:
        """Return the variance of each row without the fitted texts: flips and `extra`."""
        extra = self.extra * data.shares[:, None] * len(data.shares)
        return np.asarray(self.flips + extra)


def make_data(cohorts: tuple[CohortCounts, ...], bits: slice, q: float, hashes: int) -> Data:
    sizes = np.array([cohort.reports for cohort in cohorts], float)
    ones = np.array([cohort.by_bit[bits] for cohort in cohorts], float)
    return debias(sizes, ones, zero_rate=q, one_rate=1 - q, hashes=hashes)


def debias(sizes: Floats, ones: Floats, *, zero_rate: float, one_rate: float, hashes: int) -> Data:
    """Debias the counts of cohorts; the rates are how often a 0, and a 1, is reported as 1.

    >>> sizes, ones = np.array([1000.0]), np.array([[550.0]])
    >>> data = debias(sizes, ones, zero_rate=0.5, one_rate=0.75, hashes=1)
    >>> data.debiased.tolist(), data.flips(np.array([[200.0]])).tolist()
    ([[200.0]], [[3800.0]])
    """
    total, length, slope = sizes.sum(), ones.shape[1], one_rate - zero_rate
    of_zero, of_one = (rate * (1 - rate) / slope**2 for rate in (zero_rate, one_rate))
    symmetric = math.isclose(zero_rate, 1 - one_rate, rel_tol=1e-12)
    return Data(
        debiased=(ones - zero_rate * sizes[:, None]) / slope,
        noise=(sizes * of_zero)[:, None],
        shares=sizes / total,
        reports=int(total),
        density=-np.expm1(hashes * np.log1p(-1 / length)) if length > 1 else 1.0,
        noise_of_one=0.0 if symmetric else of_one - of_zero,
    )


def fit(data: Data, design: Design, chosen: Places, extra: float, surplus: float = 0.0) -> Fit:
    """Fit the background and the chosen patterns together; `extra` is where to begin.

    Every fitted text takes a degree of freedom; `surplus` more those chosen as they came out large.
    """
    shares = data.shares[:, None]
    other = sparse.csc_array(
        np.broadcast_to(shares * data.density, data.debiased.shape).reshape(-1, 1)
    )
    columns = sparse.csc_array(sparse.hstack((other, design.columns(chosen, data.shares))))
    solution = np.zeros(columns.shape[1])
    residual, variance = np.zeros(data.debiased.shape), np.ones(data.debiased.shape)
    freedom = max(1 - (columns.shape[1] + surplus) / residual.size, 0.1)
    uneven = shares * len(shares)
    fitted = np.broadcast_to(data.debiased.mean(axis=1, keepdims=True), residual.shape)
    for hard in (False, True):
        for _ in range(_STEPS):
            before = solution
            trust = data.used * _trust(residual / np.sqrt(variance), hard=hard)
            flips = data.flips(fitted)
            known = flips + _cohort_spread(data, columns, solution)
            weight = trust / _usable(known + extra * uneven)
            inverse = _inverted(columns, weight)
            solution = inverse @ (columns.T @ (weight * data.debiased).ravel())
            fitted = (columns @ solution).reshape(residual.shape)
            residual = data.debiased - fitted
            extra = _extra_variance(residual, known, uneven, data.used, freedom)
            variance = _usable(known + extra * uneven)
            if (np.abs(solution - before) <= _SETTLED * np.sqrt(np.diag(inverse))).all():
                break
    return Fit(
        chosen=chosen,
        counts=solution[1:],
        background=float(solution[0]),
        inverse=inverse,
        columns=columns,
        residual=residual,
        variance=variance,
        weight=weight,
        flips=flips,
        extra=extra,
    )


def _usable(variance: Floats) -> Floats:
    return np.maximum(variance, 1e-12)  # a cohort without reports has none


def _trust(standardized: Floats, *, hard: bool) -> Floats:
    """Return the weight of residuals: 1 up to `CLIP`, beyond it less and less, or nearly none.

    Where a popular unknown text shares a bit with a known one, least squares alone puts all bits of
    the known one far off. Huber's weights, the soft ones, find the only minimum of a convex loss
    from any start, and from there the bits far off can be left out.
    """
    beyond = np.maximum(np.abs(standardized) / CLIP, 1.0)
    return np.asarray(np.where(beyond > 1, _LEFT_OUT, 1.0) if hard else 1 / beyond)


def _cohort_spread(data: Data, columns: sparse.csc_array, solution: Floats) -> Floats:
    """Return the variance of the fitted texts' shares of each cohort."""
    mean = (columns[:, 1:] @ np.maximum(solution[1:], 0)).reshape(data.debiased.shape)
    return np.asarray(mean * (1 - data.shares[:, None]))


def _inverted(columns: sparse.csc_array, weight: Floats) -> Floats:
    normal = (columns.T @ (columns * weight.reshape(-1, 1))).toarray()
    scale = np.sqrt(np.maximum(np.diag(normal), 1e-300))
    # Patterns that are nearly the same are told apart badly, not wrongly: a ridge of one part in
    # 10^9 keeps the equations solvable and shows as a huge sigma.
    scaled = normal / scale / scale[:, None] + 1e-9 * np.eye(len(scale))
    upper, _ = linalg.lapack.dpotri(linalg.cholesky(scaled))
    inverse = np.triu(upper) + np.triu(upper, 1).T
    return np.asarray(inverse / scale / scale[:, None])


def _extra_variance(
    residual: Floats, known: Floats, shape: Floats, used: Floats, freedom: float
) -> float:
    """Return the variance that the known sources leave over, from clipped residuals.

    It solves mean(min(u^2, 16)) = E[min(Z^2, 16)] for the standardized residuals u (Huber's
    proposal 2); clipping keeps a popular unknown text from widening every interval.
    """
    squares = residual**2
    rows = max(float(used.sum()) * float(residual.shape[1]), 1.0)
    target = _CLIPPED_SQUARE * freedom

    def gap(extra: float) -> float:
        spread = _usable(known + extra * shape)
        return float((np.minimum(squares / spread, CLIP**2) * used).sum()) / rows - target

    if gap(0.0) <= 0:
        return 0.0
    high = float(squares.max()) + 1.0
    while gap(high) > 0:  # a cohort of few reports has a small part in `shape`
        high *= 4
    while high > 1e-6 and gap(high / 4) <= 0:
        high /= 4
    return float(optimize.brentq(gap, 0.0, high, rtol=1e-6))
