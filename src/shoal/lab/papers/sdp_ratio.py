"""SDP sections 1.3 to 3.2 and its appendix: the law of the ratio and the rule mu + 3 sigma."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, equal, show
from shoal.lab.papers.sdp_rows import BITS, ROWS
from shoal.theory.enumeration import AnswerPair, channel, histogram_pmf, largest_ratio
from shoal.theory.randomized_response import phi, q_from_phi
from shoal.theory.sufficient import gap_312, gap_313, gap_315

__all__ = ["findings"]

_QS = (Fraction(1, 10), Fraction(1, 5), Fraction(1, 4), Fraction(2, 5))


def findings() -> Iterator[Finding]:
    """Recompute what SDP 1.3, 2, 3.1, 3.2 and 6 print."""
    yield _local_maximum()
    yield _counts_start_at_zero()
    yield from _ratio_of_histograms()
    yield _index_of_3_5()
    yield _largest()
    yield from _moments()
    yield from _algebra()


def _local_maximum() -> Finding:
    def cases() -> Iterator[Case]:
        for bits, q in itertools.product((1, 2, 3), _QS):
            vectors = list(itertools.product((0, 1), repeat=bits))
            laws = [channel(v, q) for v in vectors]
            top = max(
                s / t
                for a, b in itertools.product(laws, repeat=2)
                for s, t in zip(a, b, strict=True)
            )
            yield Case(f"L = {bits}, q = {q}", top, ((1 - q) / q) ** bits)

    how = "the largest ratio over all x, x', s, in fractions."
    return claim("SDP", "1.3", "max R(s; x, x') = (p/q)^L", cases(), how, holds=equal)


def _counts_start_at_zero() -> Finding:
    seen = [
        (
            bits,
            crowd,
            min(min(counts) for counts in histogram_pmf([(0,) * bits] * crowd, Fraction(1, 4))),
        )
        for bits, crowd in itertools.product((1, 2), (2, 3))
    ]
    return claim(
        "SDP",
        "1.3, histogram",
        "s_i in {1, ..., N}",
        [Case(f"L = {b}, N = {n}", 1, low) for b, n, low in seen],
        "",
        meant=[Case(f"L = {b}, N = {n}", 0, low) for b, n, low in seen],
        instead="s_i in {0, ..., N}",
        why=lambda case: f"{case.at}: a cell of the histogram can hold {case.right}.",
    )


def _index_of_3_5() -> Finding:
    used = (0, 1)
    return claim(
        "SDP",
        "3.1, after (3.5)",
        "p_r, r = 1, 2",
        [Case(f"r = {r}", r, used) for r in (1, 2)],
        "",
        holds=lambda r, indices: r in indices,
        meant=[Case(f"r = {r}", r - 1, used) for r in (1, 2)],
        instead="p_r, r = 0, 1",
        why=lambda case: f"(3.5) uses p_{used[0]} and p_{used[1]}, and no p_{case.left}.",
    )


def _ratio_of_histograms() -> Iterator[Finding]:
    """(2.4) for every homogeneous crowd, (3.4) for the zero crowd, from the full law."""
    bits, crowd, q = 2, 3, Fraction(1, 5)
    vectors = list(itertools.product((0, 1), repeat=bits))
    zero, one = vectors[0], vectors[-1]
    general, by_set_bits = [], []
    for x in vectors:
        towards = histogram_pmf([x] * (crowd - 1) + [one], q)
        away = histogram_pmf([x] * (crowd - 1) + [zero], q)
        p_x, p_1, p_0 = channel(x, q), channel(one, q), channel(zero, q)
        for s in towards:
            ratio = towards[s] / away[s]
            top = sum(n * p_1[i] / p_x[i] for i, n in enumerate(s))
            bottom = sum(n * p_0[i] / p_x[i] for i, n in enumerate(s))
            general.append(Case(f"x = {x}, S = {s}", top / bottom, ratio))
            if x == zero:
                odds = q / (1 - q)
                total = sum(
                    n * odds ** (bits - 2 * sum(v)) for n, v in zip(s, vectors, strict=True)
                )
                by_set_bits.append(Case(f"S = {s}", total / crowd, ratio))
    how = f"every histogram of L = {bits}, N = {crowd}, q = {q}, in fractions."
    yield claim("SDP", "2.1, (2.4)", "R(S) for a homogeneous crowd", general, how, holds=equal)
    statement = "R(S) depends on the set bits only"
    yield claim("SDP", "3, (3.1) to (3.4)", statement, by_set_bits, how, holds=equal)


def _largest() -> Finding:
    cases = [
        Case(
            f"L = {bits}, N = {crowd}, q = {q}",
            largest_ratio(AnswerPair(((0,) * bits,) * (crowd - 1), (0,) * bits, (1,) * bits), q),
            ((1 - q) / q) ** bits,
        )
        for bits, crowd, q in itertools.product((1, 2), (1, 2, 4), _QS)
    ]
    how = "the largest ratio over all histograms, in fractions."
    return claim("SDP", "3.1, after (3.6)", "max R = (p/q)^L", cases, how, holds=equal)


def _moments() -> Iterator[Finding]:
    """Appendix (6.6) to (6.9), and E R, Var R of 3.1, against direct summation."""
    single, whole = [], []
    for bits, q in itertools.product((1, 2, 5, 8), _QS):
        p = 1 - q
        value = [(q / p) ** (bits - 2 * ones) for ones in range(bits + 1)]
        ways = [math.comb(bits, ones) for ones in range(bits + 1)]
        zero = [way * q**ones * p ** (bits - ones) for ones, way in enumerate(ways)]
        one = [way * p**ones * q ** (bits - ones) for ones, way in enumerate(ways)]
        first = ((p**3 + q**3) / (p * q)) ** bits
        second = ((p**5 + q**5) / (p * q) ** 2) ** bits
        at = f"L = {bits}, q = {q}"
        for name, law, mean, variance in (
            ("X_0", zero, Fraction(1), first - 1),
            ("X_1", one, first, second - first**2),
        ):
            direct = sum(w * v for w, v in zip(law, value, strict=True))
            square = sum(w * v * v for w, v in zip(law, value, strict=True))
            single.append(Case(f"E {name}, {at}", mean, direct))
            single.append(Case(f"Var {name}, {at}", variance, square - direct**2))
    yield claim(
        "SDP", "6, (6.6) to (6.9)", "E and Var of X_0, X_1", single,
        "direct summation over the set bits, in fractions.", holds=equal,
    )  # fmt: skip
    for bits, crowd, q in itertools.product((1, 2), (2, 3), _QS):
        p, at = 1 - q, f"L = {bits}, N = {crowd}, q = {q}"
        zero_v, one_v = (0,) * bits, (1,) * bits
        towards = histogram_pmf([zero_v] * (crowd - 1) + [one_v], q)
        away = histogram_pmf([zero_v] * crowd, q)
        pairs = [(chance, chance / away[s]) for s, chance in towards.items()]
        expected = sum(chance * ratio for chance, ratio in pairs)
        spread = sum(chance * (ratio - expected) ** 2 for chance, ratio in pairs)
        first = ((p**3 + q**3) / (p * q)) ** bits
        second = ((p**5 + q**5) / (p * q) ** 2) ** bits
        mean = Fraction(crowd - 1, crowd) + first / crowd
        variance = ((crowd - 1) * (first - 1) + second - first**2) / crowd**2
        whole.append(Case(f"E R, {at}", mean, expected))
        whole.append(Case(f"Var R, {at}", variance, spread))
    yield claim(
        "SDP", "3.1", "E R(S) and Var R(S)", whole,
        "the law of all histograms, in fractions.", holds=equal,
    )  # fmt: skip


def _algebra() -> Iterator[Finding]:
    """Check the steps from (3.12) to (3.16)."""
    grid = [Fraction(i, 40) for i in range(1, 20)]

    def numerator(q: Fraction) -> Fraction:
        p = 1 - q
        return p**4 - p**3 * q + (p * q) ** 2 - p * q**3 + q**4

    def ratio(q: Fraction) -> Fraction:
        return ((1 - q) ** 5 + q**5) / (q * (1 - q)) ** 2

    yield claim(
        "SDP", "3.2, after (3.13)", "(p^4 - p^3 q + ...) / (pq)^4",
        [Case(f"q = {q}", numerator(q) / (q * (1 - q)) ** 4, ratio(q)) for q in grid], "",
        holds=equal,
        meant=[Case(f"q = {q}", numerator(q) / (q * (1 - q)) ** 2, ratio(q)) for q in grid],
        instead="(p^4 - p^3 q + ...) / (pq)^2",
        why=lambda case: f"{case.at}: the printed quotient is {show(case.left / case.right)} times"
        " (p^5 + q^5)/(pq)^2; with (pq)^2 below, the two are equal.",
    )  # fmt: skip

    def last_step(q: Fraction) -> Fraction:
        value = ((1 - q) ** 3 + q**3) / (q * (1 - q))
        return (value + 1) ** 2 - value - 2

    yield claim(
        "SDP", "3.2, before (3.14)", "(p^5+q^5)/(pq)^2 = (phi+1)^2 - phi - 2",
        [Case(f"q = {q}", last_step(q), ratio(q)) for q in grid],
        f"{len(grid)} values of q, in fractions.", holds=equal,
    )  # fmt: skip
    points = [(row, float(q)) for row in ROWS for q in grid[2:]]
    yield claim(
        "SDP", "3.2, (3.13)", "(3.13) is tighter than (3.12)",
        [
            Case(f"{row.where}, q = {q}", *(gap(q, BITS, row.crowd, math.exp(row.epsilon))
                 for gap in (gap_312, gap_313)))
            for row, q in points
        ],
        "the left side of (3.13) is never the smaller one.",
    )  # fmt: skip
    yield claim(
        "SDP", "3.2, (3.15)", "(3.13) = (3.15)",
        [
            Case(f"{row.where}, q = {q}", gap_313(q, BITS, row.crowd, 1.0),
                 gap_315(phi(q), BITS, row.crowd, 1.0))
            for row, q in points
        ],
        "both sides at every row and 17 values of q.", holds=equal,
    )  # fmt: skip
    yield claim(
        "SDP", "3.2, (3.16)", "(3.16) inverts (3.14)",
        [Case(f"q = {q}", q_from_phi(phi(float(q))), float(q)) for q in grid],
        f"{len(grid)} values of q.", holds=equal,
    )  # fmt: skip
