"""K-Randomization, both versions: the channel and the ratio. They show no figure.

Equation numbers are those of the later version. `kr_one_bit` has section 3.1, `kr_sums` the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, equal, show
from shoal.lab.papers.kr_one_bit import count_law
from shoal.theory.enumeration import channel, histogram_pmf

__all__ = ["findings"]

Vector = tuple[int, ...]
_QS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))


def findings() -> Iterator[Finding]:
    """Recompute what KR 1, 2 and 3 up to (3.1) print."""
    yield _events_and_outcomes()
    yield _coin()
    yield _law_of_histograms()
    yield _conditioning()


def _events_and_outcomes() -> Finding:
    """Proposition 1.1: the largest ratio over events is the largest over outcomes."""
    cases = []
    for people, q in itertools.product((1, 2, 3), _QS):
        for ones in range(people):
            first, second = count_law(people, ones, q), count_law(people, ones + 1, q)
            outcomes = range(people + 1)
            events = itertools.chain.from_iterable(
                itertools.combinations(outcomes, size) for size in range(1, people + 2)
            )
            top = max(sum(first[s] for s in e) / sum(second[s] for s in e) for e in events)
            single = max(s / t for s, t in zip(first, second, strict=True))
            cases.append(Case(f"n = {people}, m = {ones}, q = {q}", top, single))
    how = "all events of up to three records, in fractions."
    statement = "(1.1) for all events iff (1.2) for all outcomes"
    return claim("KR", "1, Proposition 1.1", statement, cases, how, holds=equal)


def _coin() -> Finding:
    cases = [
        Case(f"f = {f}", (1 - f) + f / 2, 1 - f / 2)
        for f in (Fraction(i, 10) for i in range(1, 11))
    ]
    how = "the truth survives with probability (1 - f) + f/2 = 1 - q."
    return claim("KR", "2.1, remark", "q = f/2", cases, how, holds=equal)


def _law_of_histograms() -> Finding:
    """(2.1) summed over all synthetic collections, against the law built record by record."""
    cases = []
    for bits, people, q in ((1, 3, Fraction(1, 4)), (2, 3, Fraction(1, 5))):
        vectors = list(itertools.product((0, 1), repeat=bits))
        for x in itertools.combinations_with_replacement(vectors, people):
            total: dict[Vector, Fraction] = {}
            for y in itertools.product(vectors, repeat=people):
                wrong = sum(
                    a != b for v, w in zip(x, y, strict=True) for a, b in zip(v, w, strict=True)
                )
                key = tuple(y.count(v) for v in vectors)
                chance = (1 - q) ** (people * bits - wrong) * q**wrong
                total[key] = total.get(key, Fraction(0)) + chance
            cases.append(Case(f"x = {x}", total, histogram_pmf(x, q)))
    how = "the sum over all synthetic collections, L = 1 and 2, n = 3, in fractions."
    return claim("KR", "2.2, (2.1)", "the law of A(x)", cases, how, holds=equal)


def _conditioning() -> Finding:
    """(3.1): the later version prints x_1' above and below."""
    bits, q = 2, Fraction(1, 4)
    vectors = list(itertools.product((0, 1), repeat=bits))
    rest = (vectors[0], vectors[1])
    x, changed = vectors[0], vectors[3]
    others, after, before = (histogram_pmf((*rest, *more), q) for more in ((), (changed,), (x,)))

    def total(record: Vector, s: Vector) -> Fraction:
        shares = channel(record, q)
        less = [tuple(n - (i == j) for i, n in enumerate(s)) for j in range(len(s))]
        return sum(
            (shares[j] * others.get(less[j], Fraction(0)) for j in range(len(s))), Fraction(0)
        )

    true = {s: after[s] / before[s] for s in after}
    return claim(
        "KR",
        "later version, (3.1)",
        "x_1' in numerator and denominator",
        [Case(f"s = {s}", total(changed, s) / total(changed, s), true[s]) for s in true],
        "",
        holds=equal,
        meant=[Case(f"s = {s}", total(changed, s) / total(x, s), true[s]) for s in true],
        instead="x_1 in the denominator, as in the earlier version",
        why=lambda case: (
            f"as printed the quotient is always {case.left}; the ratio runs from"
            f" {show(min(true.values()))} to {show(max(true.values()))} (n = 3, L = 2, q = {q})."
        ),
    )
