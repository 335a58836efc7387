"""The truth about small crowds, in fractions, by routes that share nothing with the code.

`collections_worst` starts from people and their coins. `product_worst` uses that counts of bits are
independent and that a crowd matters only through the number of ones of each bit; the first is the
check on the second. `release` starts from any matrix of probabilities.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np


@functools.cache
def count_law(ones: int, zeros: int, q: Fraction) -> tuple[Fraction, ...]:
    law = [Fraction(1)]
    for chance in [1 - q] * ones + [q] * zeros:
        law = [
            (law[s] if s < len(law) else 0) * (1 - chance) + (law[s - 1] if s else 0) * chance
            for s in range(len(law) + 1)
        ]
    return tuple(law)


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

    def with_report(law, vector):
        longer: dict[tuple[int, ...], Fraction] = {}
        for counts, chance in law.items():
            for cell, report in enumerate(itertools.product((0, 1), repeat=len(vector))):
                share = math.prod(
                    1 - q if seen == bit else q for seen, bit in zip(report, vector, strict=True)
                )
                key = (*counts[:cell], counts[cell] + 1, *counts[cell + 1 :])
                longer[key] = longer.get(key, 0) + chance * share
        return longer

    law = {(0,) * 2 ** len(x): Fraction(1)}
    for vector in others:
        law = with_report(law, vector)
    towards, away = with_report(law, x_prime), with_report(law, x)
    keys = sorted(towards)
    return [towards[key] for key in keys], [away[key] for key in keys]


def pairs(N: int, q: Fraction):
    """Both orders of every pair of one bit."""
    for m in range(N):
        one, zero = count_law(m + 1, N - 1 - m, q), count_law(m, N - m, q)
        yield one, zero
        yield zero, one


def bit_worst(N: int, q: Fraction, lam: Fraction) -> Fraction:
    return max(hockey_stick(a, b, lam) for a, b in pairs(N, q))


def collections_worst(answers, N: int, q: Fraction, lam: Fraction) -> Fraction:
    """Every collection of N - 1 others, every pair of answers, every outcome of every coin."""
    d = len(answers[0])
    outcomes = list(itertools.product((0, 1), repeat=d))

    def release(people):
        law: dict[tuple[int, ...], Fraction] = {(0,) * d: Fraction(1)}
        for person in people:
            after: dict[tuple[int, ...], Fraction] = {}
            for counts, chance in law.items():
                for flips in outcomes:
                    weight = chance
                    for flip in flips:
                        weight *= q if flip else 1 - q
                    shown = tuple(
                        c + (b ^ f) for c, b, f in zip(counts, person, flips, strict=True)
                    )
                    after[shown] = after.get(shown, Fraction(0)) + weight
            law = after
        return law

    worst = Fraction(0)
    for others in itertools.combinations_with_replacement(answers, N - 1):
        laws = [release((*others, answer)) for answer in answers]
        for one, two in itertools.permutations(laws, 2):
            worst = max(
                worst, sum((max(one[k] - lam * two[k], Fraction(0)) for k in one), Fraction(0))
            )
    return worst


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


Outcomes = dict[tuple[int, ...], Fraction]


def release(rows, shown, crowd) -> Outcomes:
    """The distribution of a release: report v adds ``shown[v]`` to it."""
    found: Outcomes = {(0,) * len(shown[0]): Fraction(1)}
    for answer in crowd:
        after: Outcomes = {}
        for seen, weight in found.items():
            for report, chance in enumerate(rows[answer]):
                if chance:
                    key = tuple(map(int.__add__, seen, shown[report]))
                    after[key] = after.get(key, Fraction(0)) + weight * chance
        found = after
    return found


def histogram_cells(reports: int) -> list[tuple[int, ...]]:
    """What whole reports show: one more in a cell."""
    return [tuple(int(v == cell) for cell in range(reports)) for v in range(reports)]


def bits_of_reports(bits: int) -> list[tuple[int, ...]]:
    """What reports of so many bits show if their bits are summed."""
    return [tuple(v >> j & 1 for j in range(bits)) for v in range(2**bits)]


def outcome_delta(first: Outcomes, second: Outcomes, lam: Fraction) -> Fraction:
    """The hockey stick of two releases."""
    gaps = (chance - lam * second.get(key, Fraction(0)) for key, chance in first.items())
    return sum((gap for gap in gaps if gap > 0), Fraction(0))


def neighbouring_releases(rows, shown, n: int) -> list[tuple[Outcomes, Outcomes]]:
    """Every pair of neighbours: the releases with x' and with x, among all others."""
    found: list[tuple[Outcomes, Outcomes]] = []
    for others in itertools.combinations_with_replacement(range(len(rows)), n - 1):
        releases = [release(rows, shown, (*others, answer)) for answer in range(len(rows))]
        found += itertools.permutations(releases, 2)
    return found


def side_by_side(first: Outcomes, second: Outcomes) -> Outcomes:
    """Two independent releases."""
    return {
        (*one, *two): chance * other
        for one, chance in first.items()
        for two, other in second.items()
    }
