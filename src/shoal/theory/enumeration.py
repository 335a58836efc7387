"""Small crowds, exactly: the distribution of the histogram, the privacy ratio, delta and eta.

Simple on purpose: this referees everything else. Records are added one after another (SDP (2.1),
the recursion before (2.2)), in floats or in `fractions.Fraction`, as q is given; with a Fraction
every result is exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeVar

from shoal.theory.domains import Block, check_domain

Number = TypeVar("Number", float, Fraction)
Vector = tuple[int, ...]
Histogram = tuple[int, ...]


class AnswerPair(NamedTuple):
    """The records that stay, and the one that is x in D and x' in D_m."""

    others: tuple[Vector, ...]
    x: Vector
    x_prime: Vector


def originals(domain: Iterable[Block]) -> list[Vector]:
    """All vectors of a domain, blocks one after another.

    >>> originals((Block(2, 1, 1),))
    [(0, 1), (1, 0)]
    """
    per_block = [
        [v for v in itertools.product((0, 1), repeat=bits) if lowest <= sum(v) <= highest]
        for bits, lowest, highest in check_domain(domain)
    ]
    return [tuple(itertools.chain(*parts)) for parts in itertools.product(*per_block)]


def channel(y: Vector, q: Number) -> list[Number]:
    """``p(v|y)`` for every v, in the order of `itertools.product` (SDP 1.3)."""
    pmf = []
    for v in itertools.product((0, 1), repeat=len(y)):
        wrong = sum(s != t for s, t in zip(v, y, strict=True))
        pmf.append(q**wrong * (1 - q) ** (len(y) - wrong))
    return pmf


def histogram_pmf(collection: Sequence[Vector], q: Number) -> dict[Histogram, Number]:
    """Probability of each histogram of reports, counts in the order of `channel`.

    >>> histogram_pmf([(0,), (1,)], Fraction(1, 4))[(1, 1)]
    Fraction(5, 8)
    """
    if not collection:
        raise ValueError("a collection needs at least one record, got none.")
    return _pmf_of(collection, len(collection[0]), q)


def _pmf_of(collection: Sequence[Vector], bits: int, q: Number) -> dict[Histogram, Number]:
    pmf: dict[Histogram, Number] = {(0,) * 2**bits: q**0}
    for y in collection:
        pmf = _with_record(pmf, channel(y, q))
    return pmf


def _with_record(pmf: dict[Histogram, Number], report: Sequence[Number]) -> dict[Histogram, Number]:
    grown: dict[Histogram, Number] = {}
    for counts, chance in pmf.items():
        for cell, share in enumerate(report):
            key = counts[:cell] + (counts[cell] + 1,) + counts[cell + 1 :]  # noqa: RUF005
            grown[key] = grown[key] + chance * share if key in grown else chance * share
    return grown


def _two_pmfs(pair: AnswerPair, q: Number) -> list[tuple[Number, Number]]:
    rest = _pmf_of(pair.others, len(pair.x), q)
    # `_with_record` visits cells in the same order for every report, so the keys line up
    ends = [_with_record(rest, channel(y, q)).values() for y in (pair.x_prime, pair.x)]
    return list(zip(*ends, strict=True))


def delta_of_pair(pair: AnswerPair, q: Number, lam: Number) -> Number:
    """Hockey stick ``sum_S (P[S|D_m] - lam P[S|D])_+`` of the histogram (SDP 1.1).

    >>> third = AnswerPair(((1, 0, 0),), (0, 0, 1), (0, 1, 0))
    >>> delta_of_pair(third, Fraction(2, 5), Fraction(7, 4))
    Fraction(354, 15625)
    """
    return _delta(_two_pmfs(pair, q), lam)


def _delta(both: Iterable[tuple[Number, Number]], lam: Number) -> Number:
    return sum((max(s - lam * t, lam * 0) for s, t in both), lam * 0)


def _eta(both: Iterable[tuple[Number, Number]], lam: Number) -> Number:
    return sum((s for s, t in both if s > lam * t), lam * 0)


def eta_of_pair(pair: AnswerPair, q: Number, lam: Number) -> Number:
    """``P[R(S) > lam]`` for S drawn from D_m (SDP 1.7)."""
    return _eta(_two_pmfs(pair, q), lam)


def largest_ratio(pair: AnswerPair, q: Number) -> Number:
    """Largest value of R(S), theta^d for x, x' differing in d bits (SDP 1.2 and after (3.6))."""
    return max(s / t for s, t in _two_pmfs(pair, q))


def _worst(
    domain: Iterable[Block], N: int, q: Number, lam: Number, eta: bool
) -> tuple[Number, AnswerPair]:
    best: tuple[Number, AnswerPair] | None = None
    vectors = originals(domain)
    reports = {y: channel(y, q) for y in vectors}
    for others in itertools.combinations_with_replacement(vectors, N - 1):
        rest = _pmf_of(others, len(vectors[0]), q)
        ends = {y: list(_with_record(rest, reports[y]).values()) for y in vectors}
        for x, x_prime in itertools.permutations(vectors, 2):
            both = zip(ends[x_prime], ends[x], strict=True)
            value = _eta(both, lam) if eta else _delta(both, lam)
            if best is None or value > best[0]:
                best = (value, AnswerPair(others, x, x_prime))
    if best is None:
        raise ValueError("the domain has a single original: there is no pair to compare.")
    return best


def worst_delta(
    domain: Iterable[Block], N: int, q: Number, lam: Number
) -> tuple[Number, AnswerPair]:
    """Largest delta over all pairs of collections of a small domain, with a pair that has it.

    >>> worst_delta((Block(3, 1, 1),), 2, Fraction(2, 5), Fraction(7, 4))[0]
    Fraction(18, 625)
    """
    return _worst(domain, N, q, lam, eta=False)


def worst_eta(domain: Iterable[Block], N: int, q: Number, lam: Number) -> tuple[Number, AnswerPair]:
    """Largest eta over all pairs of collections of a small domain, with a pair that has it."""
    return _worst(domain, N, q, lam, eta=True)
