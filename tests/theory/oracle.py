"""The truth about small crowds in fractions: the adversary's oracle, as these tests ask it.

`collections_worst` starts from people and their coins. `product_worst` uses that counts of bits are
independent and that a crowd matters only through the number of ones of each bit; the first is the
check on the second.
"""

import functools
import itertools
from fractions import Fraction

import numpy as np

from tests.adversary import channels, oracle


@functools.cache
def count_law(ones: int, zeros: int, q: Fraction) -> tuple[Fraction, ...]:
    weights = oracle.one_bit(ones + zeros, ones, q)
    total = sum(weights)
    return tuple(Fraction(weight, total) for weight in weights)


def hockey_stick(first, second, lam: Fraction) -> Fraction:
    return sum(
        (max(a - lam * b, Fraction(0)) for a, b in zip(first, second, strict=True)), Fraction(0)
    )


def eta(first, second, lam: Fraction) -> Fraction:
    return sum((a for a, b in zip(first, second, strict=True) if a > lam * b), Fraction(0))


def vectors_of(domain) -> list[tuple[int, ...]]:
    """All originals of a domain of blocks (bits, lowest, highest)."""
    blocks = [
        [v for v in itertools.product((0, 1), repeat=bits) if low <= sum(v) <= high]
        for bits, low, high in domain
    ]
    return [tuple(itertools.chain(*parts)) for parts in itertools.product(*blocks)]


def triples_of(domain) -> set[tuple[int, int, int]]:
    """The counts (a, b, c) of every z, x, x' of a domain."""
    found = set()
    for three in itertools.product(vectors_of(domain), repeat=3):
        bits = list(zip(*three, strict=True))
        a = sum(z == x != y for z, x, y in bits)
        b = sum(z == y != x for z, x, y in bits)
        found.add((a, b, sum(x == y != z for z, x, y in bits)))
    return found


def histogram_pair(others, x, x_prime, q: Fraction) -> tuple[list[Fraction], list[Fraction]]:
    """Laws of the histogram of reports with x' and with x among the others, aligned."""

    def number(vector) -> int:
        return sum(bit << place for place, bit in enumerate(vector))

    key = oracle.histogram(len(x))
    crowd = (number(x), number(x_prime), key)
    laws = oracle.neighbours(len(x), q, map(number, others), *crowd)
    towards, away = (
        [Fraction(law[outcome], sum(law.values())) for outcome in sorted(law)] for law in laws
    )
    return towards, away


def pairs(N: int, q: Fraction):
    """Both orders of every pair of one bit."""
    for m in range(N):
        one, zero = count_law(m + 1, N - 1 - m, q), count_law(m, N - m, q)
        yield one, zero
        yield zero, one


def bit_worst(N: int, q: Fraction, lam: Fraction) -> Fraction:
    return max(hockey_stick(a, b, lam) for a, b in pairs(N, q))


def collections_worst(bits: int, N: int, q: Fraction, lam: Fraction) -> Fraction:
    """Every collection of N - 1 others, every pair of answers, every outcome of every coin."""
    answers, key = range(2**bits), oracle.counted(bits)
    return max(
        oracle.delta(*oracle.neighbours(bits, q, others, x, y, key), lam)
        for others in itertools.combinations_with_replacement(answers, N - 1)
        for x, y in itertools.permutations(answers, 2)
    )


def product_worst(d: int, N: int, q: Fraction, lam: float) -> float:
    """All crowds of d bits, in floats: products of positive numbers, so good to 1e-12.

    Going down among m ones is going up among m zeros with the count read backwards, so that only
    upward pairs are needed, each with any number of ones.
    """
    laws = [
        tuple(
            np.array([float(x) for x in law])
            for law in (count_law(m + 1, N - 1 - m, q), count_law(m, N - m, q))
        )
        for m in range(N)
    ]
    worst = 0.0
    for crowd in itertools.combinations_with_replacement(laws, d):
        one, two = np.ones(1), np.ones(1)
        for up, down in crowd:
            one, two = np.outer(one, up).ravel(), np.outer(two, down).ravel()
        worst = max(worst, float(np.maximum(one - lam * two, 0.0).sum()))
    return worst


def neighbouring_releases(rows, key, n: int) -> list[channels.Pair]:
    """Every pair of neighbours of any matrix: the releases with x' and with x, among all others."""
    laws, inputs = [channels.law(row, key) for row in rows], range(len(rows))
    return [
        channels.pair(laws, list(others), x, y)
        for others in itertools.combinations_with_replacement(inputs, n - 1)
        for x, y in itertools.permutations(inputs, 2)
    ]
