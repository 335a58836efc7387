"""Worlds to search for the worst pair of collections, in steps that can be resumed.

* `OneBitWorld`: one bit, all crowds, because only the number of ones matters. Exhaustive up to
  20,000 records, on a grid of the number of ones beyond.
* `SmallWorld`: every multiset of others up to symmetry with every pair of records. Exhaustive.
* `FamilyWorld`: the best homogeneous crowds at any size, and others with two or three different
  values, each kind up to symmetry, on a grid of their shares, as far as `mixed_crowds` can
  evaluate them. Not exhaustive.

Every value is a certified bracket of a real pair, so a find is an attack (theorem); that nothing
else is worse is a theorem only where the world is exhaustive.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from shoal.theory import domains, homogeneous, mixed_crowds
from shoal.theory.brackets import Bracket, FloatArray
from shoal.theory.domains import Block, Domain, Triple, check_domain, differing_bits
from shoal.theory.enumeration import Vector, originals
from shoal.theory.mixed_crowds import (
    Configuration,
    Histograms,
    cell_chances,
    configurations,
    crowd_count,
    mixed_crowd,
    witness,
)
from shoal.theory.one_bit import transform_length, upward
from shoal.theory.sufficient import sufficient_eta

_MAX_CROWDS = 2_000_000
_MAX_SMALL_WORK = 3e10
_MAX_FAMILY_WORK = 2e10
_MAX_ORIGINALS = 64
_MAX_CELLS = 12
_ONE_BIT_ALL = 20_000


class CollectionPair(NamedTuple):
    """A pair of collections, by the counts of the others' values, and its bracket."""

    value: Bracket
    others: tuple[tuple[Vector, int], ...]
    x: Vector
    x_prime: Vector


class World(Protocol):
    """Something to search; a step returns its worst pair and how many pairs it looked at."""

    exhaustive: bool
    description: str
    steps: int

    def step(self, index: int) -> tuple[CollectionPair, int]:
        """Return the worst pair of one step and how many pairs it looked at."""


class SearchQuestion(NamedTuple):
    """The question asked of every pair."""

    domain: Domain
    N: int
    q: float
    epsilon: float
    eta: bool


@functools.lru_cache(maxsize=16)
def homogeneous_best(
    domain: Domain, N: int, q: float, epsilon: float, eta: bool
) -> tuple[Triple, Bracket]:
    """Find the worst homogeneous crowd: all kinds while they are few, else a shortlist of them.

    For delta the maximal triples suffice (see `domains`); for eta see `sufficient`.
    """
    blocks = check_domain(domain)
    measure = homogeneous.eta if eta else homogeneous.delta
    reach = differing_bits(blocks)
    narrow = sum(block.bits for block in blocks) <= 6
    crowds = {Triple(reach, 0, 0), Triple(0, reach, 0)}
    if eta:
        crowds.add(sufficient_eta(blocks, N, q, epsilon).crowd)
    elif narrow or N == 1:
        crowds |= domains.maximal_classes(blocks)
    else:
        crowds.add(homogeneous.attack(blocks, N, q, epsilon).crowd)
    measures = [(t, measure(t, N, q, epsilon)) for t in sorted(crowds, reverse=True) if t.a + t.b]
    return max(measures, key=lambda pair: pair[1].low)


class OneBitWorld:
    """All crowds of one bit, by the number of ones among the others; a 0 becomes a 1.

    A 1 that becomes a 0 is the same with 0 and 1 exchanged.
    """

    def __init__(self, question: SearchQuestion) -> None:
        self._question = question
        others = question.N - 1
        self.exhaustive = question.N <= _ONE_BIT_ALL
        self.description = "every crowd"
        ones = np.arange(others + 1)
        if not self.exhaustive:
            self.description = "a grid of the number of ones"
            near = np.unique(np.geomspace(1, others, 200).astype(np.int64))
            even = np.linspace(0, others, 101).astype(np.int64)
            ones = np.unique(np.concatenate([[0], near, others - near, even]))
        length = transform_length(others + 1, question.q, question.epsilon)
        self._chunk = max(1, (1 << 20) // length)
        self._ones = ones
        self.steps = -(-ones.size // self._chunk)

    def step(self, index: int) -> tuple[CollectionPair, int]:
        _, n, q, epsilon, eta = self._question
        ones = self._ones[index * self._chunk : (index + 1) * self._chunk]
        ends = upward(ones, n - 1 - ones, q, epsilon, eta)
        top = _first_largest(ends.low)
        count = int(ones[top])
        value = Bracket(float(ends.low[top]), float(ends.high[top]))
        others = [((0,), n - 1 - count), ((1,), count)]
        return CollectionPair(value, _present(others), (0,), (1,)), ones.size


def _first_largest(values: FloatArray) -> int:
    # equal up to round-off counts as equal, so that the same crowd wins on every machine
    return int(np.argmax(values >= values.max() * (1.0 - 1e-9)))


def _present(others: Iterable[tuple[Vector, int]]) -> tuple[tuple[Vector, int], ...]:
    return tuple((vector, count) for vector, count in others if count > 0)


def _small_work(domain: Domain, N: int) -> float:
    """Estimate the steps of a full search, or infinity."""
    crowds = crowd_count(domain, N - 1)
    if crowds > _MAX_CROWDS or crowd_count(domain, 1) > _MAX_ORIGINALS:
        return math.inf
    vectors = originals(domain)
    cells = cell_chances(vectors, 0.25).shape[1]
    histograms = math.comb(N + cells - 1, cells - 1)
    if histograms * len(vectors) > 2e7:
        return math.inf
    different = max(1.0, crowds / len(mixed_crowds.symmetries(domain)))
    return float(different * histograms * len(vectors) * (cells + len(vectors)))


class SmallWorld:
    """Every multiset of others up to symmetry, with every pair of records."""

    exhaustive = True
    description = "every crowd"

    def __init__(self, question: SearchQuestion) -> None:
        self._question = question
        self._vectors = originals(question.domain)
        self._reports = cell_chances(self._vectors, question.q)
        cells = self._reports.shape[1]
        self._crowds = mixed_crowds.different_crowds(question.domain, question.N - 1)
        self._table = Histograms(cells, question.N)
        self._relative = mixed_crowds.relative_error(len(self._vectors[0]), cells, question.N)
        self._pmfs: list[tuple[int, FloatArray]] = [(-1, np.ones(1))]
        self.steps = len(self._crowds)

    def step(self, index: int) -> tuple[CollectionPair, int]:
        _, N, _, epsilon, eta = self._question
        counts = self._crowds[index]
        rest = self._rest(np.repeat(np.arange(len(counts)), counts).tolist())
        pmfs = np.stack([self._table.add(rest, N - 1, report) for report in self._reports])
        lam = math.exp(epsilon)
        bound = lam * pmfs
        reached = np.zeros((len(pmfs), len(pmfs)))
        for towards, pmf in enumerate(pmfs):
            margin = pmf - bound
            if eta:
                # as `gap` does it, without its doubt: only to rank
                margin = pmf * (margin > self._relative * (pmf + bound))
            reached[towards] = np.maximum(margin, 0.0, out=margin).sum(axis=1)
        np.fill_diagonal(reached, 0.0)
        top = _first_largest(reached.ravel())
        towards, away = divmod(top, len(pmfs))
        value = mixed_crowds.gap(pmfs[towards], pmfs[away], lam, self._relative, eta)
        others = _present(zip(self._vectors, counts.tolist(), strict=True))
        pairs = len(pmfs) * (len(pmfs) - 1)
        return CollectionPair(value, others, self._vectors[away], self._vectors[towards]), pairs

    def _rest(self, records: list[int]) -> FloatArray:
        """Pmf of the others; what the crowd before had in common is kept."""
        shared = 0
        for (record, _), wanted in zip(self._pmfs[1:], records, strict=False):
            if record != wanted:
                break
            shared += 1
        del self._pmfs[shared + 1 :]
        for record in records[shared:]:
            count = len(self._pmfs) - 1
            pmf = self._table.add(self._pmfs[-1][1], count, self._reports[record])
            self._pmfs.append((record, pmf))
        return self._pmfs[-1][1]


class FamilyWorld:
    """Homogeneous crowds, and crowds of two or three values on a grid of their shares."""

    exhaustive = False

    def __init__(self, question: SearchQuestion) -> None:
        self._question = question
        best, _ = homogeneous_best(*question)
        reach = differing_bits(question.domain)
        triples = sorted({best, Triple(reach, 0, 0), Triple(0, reach, 0)}, reverse=True)
        alike = [witness(question.domain, triple) for triple in triples]
        self._triples = triples
        self._crowds: list[tuple[Configuration, tuple[int, ...]]] = [
            (configuration, (question.N - 1,)) for configuration in alike
        ]
        work, two, three = 0.0, 0, 0
        for cost, configuration, shares in sorted(self._candidates(), key=lambda item: item[0]):
            work += cost * len(shares)
            if work > _MAX_FAMILY_WORK:
                break
            self._crowds += [(configuration, share) for share in shares]
            two += len(configuration.values) == 2
            three += len(configuration.values) == 3
        self.description = (
            f"homogeneous crowds, {two} kinds with two values and {three} with three values"
            " among the others"
        )
        self.steps = len(self._crowds)

    def _candidates(self) -> Iterator[tuple[float, Configuration, list[tuple[int, ...]]]]:
        domain, N, q, _, _ = self._question
        for values in (2, 3):
            shares = _shares(values, N - 1)
            if not shares:
                continue
            for configuration in _kinds(domain, values):
                known = [configuration.x, configuration.x_prime, *configuration.values]
                rest = cell_chances(known, q)[2:]
                if rest.shape[1] <= _MAX_CELLS:
                    costs = [(mixed_crowds.work_of(share, rest), share) for share in shares]
                    near = [share for cost, share in costs if math.isfinite(cost)]
                    if near:
                        cost = max(cost for cost, _ in costs if math.isfinite(cost))
                        yield cost, configuration, near

    def step(self, index: int) -> tuple[CollectionPair, int]:
        _, N, q, epsilon, eta = self._question
        (x, x_prime, values), counts = self._crowds[index]
        others = tuple(zip(values, counts, strict=True))
        if len(values) == 1:
            measure = homogeneous.eta if eta else homogeneous.delta
            value = measure(self._triples[index], N, q, epsilon)
        else:
            value = mixed_crowd(dict(others), x, x_prime, q, epsilon, eta)
        return CollectionPair(value, _present(others), x, x_prime), 1


def _kinds(domain: Domain, values: int) -> Iterator[Configuration]:
    """Kinds of crowds: all of a narrow domain; of a wide one those between two far records."""
    bits = sum(block.bits for block in domain)
    sparse = all(block.highest <= 2 for block in domain) and len(domain) == 1
    if bits <= 6 or sparse:
        yield from configurations(domain, values)
    elif values == 2:
        far = witness(domain, Triple(differing_bits(domain), 0, 0))
        yield Configuration(far.x, far.x_prime, (far.x, far.x_prime))


def _shares(values: int, total: int) -> list[tuple[int, ...]]:
    """List how `total` others may be divided among two or three values."""
    if values == 2:
        few = set(range(1, total))
        if total > 40:
            few = {round(total * i / 12) for i in range(1, 12)}
            few |= {1, 2, 4, 8, total - 8, total - 4, total - 2, total - 1}
        return [(count, total - count) for count in sorted(few)]
    steps = total if total <= 8 else 6
    triples = set()
    for i, j in itertools.product(range(1, steps), repeat=2):
        if i + j < steps:
            one, two = round(total * i / steps), round(total * j / steps)
            triples.add((one, two, total - one - two))
    return sorted(triples)


def world_of(domain: Iterable[Block], N: int, q: float, epsilon: float, eta: bool) -> World:
    """Choose how to search: exhaustively where that is affordable, else by families.

    >>> world = world_of((Block(2, 0, 2),), 10, 0.1, math.log(9), eta=False)
    >>> world.exhaustive, world.steps
    (True, 35)
    """
    homogeneous.check_crowd(N, q, epsilon)
    blocks = check_domain(domain)
    question = SearchQuestion(blocks, N, q, epsilon, eta)
    if differing_bits(blocks) == 0:
        raise ValueError("the domain has a single original: there is no pair to compare.")
    if blocks == (Block(1, 0, 1),):
        return OneBitWorld(question)
    if _small_work(blocks, N) <= _MAX_SMALL_WORK:
        return SmallWorld(question)
    return FamilyWorld(question)
