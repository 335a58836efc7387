"""SDP 1.3 to 3.3 and its appendix: the ratio, the rule mu + 3 sigma, and the six rows of q."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from shoal.lab.papers import Case, Paper, PaperFinding, equal, show
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.enumeration import AnswerPair, channel, histogram_pmf, largest_ratio
from shoal.theory.homogeneous import eta
from shoal.theory.randomized_response import phi, q_from_phi
from shoal.theory.sufficient import gap_312, gap_313, gap_315, three_sigma_q

RATIO = Paper("SDP")
_QS = (Fraction(1, 10), Fraction(1, 5), Fraction(1, 4), Fraction(2, 5))


@RATIO.part
def _local_maximum() -> Iterator[PaperFinding]:
    def cases() -> Iterator[Case]:
        for bits, q in itertools.product((1, 2, 3), _QS):
            vectors = list(itertools.product((0, 1), repeat=bits))
            pmfs = [channel(v, q) for v in vectors]
            top = max(
                s / t
                for a, b in itertools.product(pmfs, repeat=2)
                for s, t in zip(a, b, strict=True)
            )
            yield Case(f"L = {bits}, q = {q}", top, ((1 - q) / q) ** bits)

    how = "the largest ratio over all x, x', s, in fractions."
    yield RATIO.claim("1.3", "max R(s; x, x') = (p/q)^L", cases(), how, holds=equal)


@RATIO.part
def _counts_start_at_zero() -> Iterator[PaperFinding]:
    seen = [
        (
            bits,
            crowd,
            min(min(counts) for counts in histogram_pmf([(0,) * bits] * crowd, Fraction(1, 4))),
        )
        for bits, crowd in itertools.product((1, 2), (2, 3))
    ]
    yield RATIO.claim(
        "1.3, histogram",
        "s_i in {1, ..., N}",
        [Case(f"L = {b}, N = {n}", 1, low) for b, n, low in seen],
        meant=[Case(f"L = {b}, N = {n}", 0, low) for b, n, low in seen],
        instead="s_i in {0, ..., N}",
        why=lambda case: f"{case.at}: a cell of the histogram can hold {case.right}.",
    )


@RATIO.part
def _ratio_of_histograms() -> Iterator[PaperFinding]:
    """(2.4) for every homogeneous crowd, (3.4) for the zero crowd, from the full distribution."""
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
    yield RATIO.claim("2.1, (2.4)", "R(S) for a homogeneous crowd", general, how, holds=equal)
    statement = "R(S) depends on the set bits only"
    yield RATIO.claim("3, (3.1) to (3.4)", statement, by_set_bits, how, holds=equal)


@RATIO.part
def _index_of_3_5() -> Iterator[PaperFinding]:
    used = (0, 1)
    yield RATIO.claim(
        "3.1, after (3.5)",
        "p_r, r = 1, 2",
        [Case(f"r = {r}", r, used) for r in (1, 2)],
        holds=lambda r, indices: r in indices,
        meant=[Case(f"r = {r}", r - 1, used) for r in (1, 2)],
        instead="p_r, r = 0, 1",
        why=lambda case: f"(3.5) uses p_{used[0]} and p_{used[1]}, and no p_{case.left}.",
    )


@RATIO.part
def _largest() -> Iterator[PaperFinding]:
    cases = [
        Case(
            f"L = {bits}, N = {crowd}, q = {q}",
            largest_ratio(AnswerPair(((0,) * bits,) * (crowd - 1), (0,) * bits, (1,) * bits), q),
            ((1 - q) / q) ** bits,
        )
        for bits, crowd, q in itertools.product((1, 2), (1, 2, 4), _QS)
    ]
    how = "the largest ratio over all histograms, in fractions."
    yield RATIO.claim("3.1, after (3.6)", "max R = (p/q)^L", cases, how, holds=equal)


@RATIO.part
def _moments() -> Iterator[PaperFinding]:
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
        for name, pmf, mean, variance in (
            ("X_0", zero, Fraction(1), first - 1),
            ("X_1", one, first, second - first**2),
        ):
            direct = sum(w * v for w, v in zip(pmf, value, strict=True))
            square = sum(w * v * v for w, v in zip(pmf, value, strict=True))
            single.append(Case(f"E {name}, {at}", mean, direct))
            single.append(Case(f"Var {name}, {at}", variance, square - direct**2))
    yield RATIO.claim(
        "6, (6.6) to (6.9)", "E and Var of X_0, X_1", single,
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
    yield RATIO.claim(
        "3.1", "E R(S) and Var R(S)", whole,
        "the distribution of all histograms, in fractions.", holds=equal,
    )  # fmt: skip


@RATIO.part
def _algebra() -> Iterator[PaperFinding]:
    """Check the steps from (3.12) to (3.16)."""
    grid = [Fraction(i, 40) for i in range(1, 20)]

    def numerator(q: Fraction) -> Fraction:
        p = 1 - q
        return p**4 - p**3 * q + (p * q) ** 2 - p * q**3 + q**4

    def ratio(q: Fraction) -> Fraction:
        return ((1 - q) ** 5 + q**5) / (q * (1 - q)) ** 2

    yield RATIO.claim(
        "3.2, after (3.13)", "(p^4 - p^3 q + ...) / (pq)^4",
        [Case(f"q = {q}", numerator(q) / (q * (1 - q)) ** 4, ratio(q)) for q in grid],
        holds=equal,
        meant=[Case(f"q = {q}", numerator(q) / (q * (1 - q)) ** 2, ratio(q)) for q in grid],
        instead="(p^4 - p^3 q + ...) / (pq)^2",
        why=lambda case: f"{case.at}: the printed quotient is {show(case.left / case.right)} times"
        " (p^5 + q^5)/(pq)^2; with (pq)^2 below, the two are equal.",
    )  # fmt: skip

    def last_step(q: Fraction) -> Fraction:
        value = ((1 - q) ** 3 + q**3) / (q * (1 - q))
        return (value + 1) ** 2 - value - 2

    yield RATIO.claim(
        "3.2, before (3.14)", "(p^5+q^5)/(pq)^2 = (phi+1)^2 - phi - 2",
        [Case(f"q = {q}", last_step(q), ratio(q)) for q in grid],
        f"{len(grid)} values of q, in fractions.", holds=equal,
    )  # fmt: skip
    points = [(row, float(q)) for row in ROWS for q in grid[2:]]
    yield RATIO.claim(
        "3.2, (3.13)", "(3.13) is tighter than (3.12)",
        [
            Case(f"{row.where}, q = {q}", *(gap(q, BITS, row.crowd, math.exp(row.epsilon))
                 for gap in (gap_312, gap_313)))
            for row, q in points
        ],
        "the left side of (3.13) is never the smaller one.",
    )  # fmt: skip
    yield RATIO.claim(
        "3.2, (3.15)", "(3.13) = (3.15)",
        [
            Case(f"{row.where}, q = {q}", gap_313(q, BITS, row.crowd, 1.0),
                 gap_315(phi(q), BITS, row.crowd, 1.0))
            for row, q in points
        ],
        "both sides at every row and 17 values of q.", holds=equal,
    )  # fmt: skip
    yield RATIO.claim(
        "3.2, (3.16)", "(3.16) inverts (3.14)",
        [Case(f"q = {q}", q_from_phi(phi(float(q))), float(q)) for q in grid],
        f"{len(grid)} values of q.", holds=equal,
    )  # fmt: skip


BITS = 5


class Row(NamedTuple):
    """One line of SDP 3.3 as it is printed."""

    lam: str
    epsilon: float
    crowd: int
    q: str
    mass: str

    @property
    def where(self) -> str:
        """The place in the paper."""
        return f"3.3, lambda = {self.lam}, N = {self.crowd}"


ROWS = (
    Row("2", math.log(2), 1000, "0.2446", "0.006"),
    Row("2", math.log(2), 3000, "0.2109", "0.0048"),
    Row("2", math.log(2), 5000, "0.1778", "0.0045"),
    Row("e^2", 2.0, 1000, "0.1692", "0.0037"),
    Row("e^2", 2.0, 3000, "0.1424", "0.0062"),
    Row("e^2", 2.0, 5000, "0.1310", "0.0074"),
)


@RATIO.part
def _rows_findings() -> Iterator[PaperFinding]:
    """Recompute what SDP 3.3 prints."""
    yield RATIO.number(
        "3.3, lambda",
        "e^0.693 = 2",
        math.exp(0.693),
        lambda: f"e^0.693 is {math.exp(0.693)}.",
        digits="2",
    )
    for row in ROWS:
        yield from _row(row)


@functools.cache
def mass_beyond(bits: int, crowd: int, q: float, epsilon: float) -> Bracket:
    """Bracket P[R > lambda] around SDP's crowd; the high end holds for P[R >= lambda] too."""
    return eta((bits, 0, 0), crowd, q, epsilon)


def middle(bracket: Bracket) -> float:
    """Return the middle of a bracket."""
    return 0.5 * (bracket.low + bracket.high)


def _row(row: Row) -> Iterator[PaperFinding]:
    rule = three_sigma_q(BITS, row.crowd, row.epsilon)
    belongs = roundest(crowds_with(row.q, row.epsilon))

    def other_crowd() -> str:
        return (
            f"(3.12) has the solution {row.q} for N = {belongs}; for N = {row.crowd} it is"
            f" {show(rule, 4)}."
        )

    noise = RATIO.number(row.where, f"q = {row.q}", rule, other_crowd, digits=row.q, up=True)
    yield noise
    mass = mass_beyond(BITS, row.crowd, float(row.q), row.epsilon)
    there = mass_beyond(BITS, row.crowd, rule, row.epsilon)

    def off() -> str:
        share = middle(mass) / float(row.mass)
        draws = middle(mass) * (1.0 - middle(mass)) / (middle(mass) - float(row.mass)) ** 2
        exact = f"the exact mass at q = {row.q} is {show(share, 2)} times the printed one"
        if noise.verdict == "agrees":
            return f"{exact}; a simulation of about {show(draws, 1)} draws can be off by that much."
        right = mass_beyond(BITS, belongs, float(row.q), row.epsilon)
        return (
            f"{exact}; at (3.12)'s q = {show(rule, 4)} it is {show(middle(there), 2)}, and for the"
            f" N = {belongs} that {row.q} belongs to {show(middle(right), 2)}."
        )

    place = f"{row.where}, P[R >= lambda]"
    yield RATIO.number(place, row.mass, mass, off)


def crowds_with(q: str, epsilon: float) -> range:
    """Crowd sizes for which (3.12) with L = 5 has a solution that rounds to the printed q.

    >>> 10_000 in crowds_with("0.1778", math.log(2))
    True
    """
    half = Decimal(1).scaleb(Decimal(q).as_tuple().exponent) / 2  # type: ignore[arg-type]
    top, bottom = float(Decimal(q) + half), float(Decimal(q) - half)
    first = _first(lambda crowd: three_sigma_q(BITS, crowd, epsilon) <= top)
    return range(first, _first(lambda crowd: three_sigma_q(BITS, crowd, epsilon) < bottom))


def _first(passes: Callable[[int], bool]) -> int:
    """Smallest integer from 101 on that passes, if all later ones do."""
    return smallest(passes, 101, 10**12, start=200, step=200)


def roundest(numbers: range) -> int:
    """Return the number of the range with the most zeros at its end.

    >>> roundest(range(9_950, 10_020))
    10000
    """
    return max(numbers, key=lambda n: (len(str(n)) - len(str(n).rstrip("0")), -n))


@RATIO.part
def _noise_falls() -> Iterator[PaperFinding]:
    crowds = (1000, 3000, 5000, 10_000, 100_000, 1_000_000)
    cases = [
        Case(f"N = {more}", three_sigma_q(BITS, more, epsilon), three_sigma_q(BITS, less, epsilon))
        for epsilon in (math.log(2), 2.0)
        for less, more in itertools.pairwise(crowds)
    ]
    how = "(3.12) solved for six crowds and both lambda."
    yield RATIO.claim("1.2", "a larger dataset requires less noise", cases, how)


@RATIO.part
def _rest_is_negligible() -> Iterator[PaperFinding]:
    """Compare the mass beyond mu + 3 sigma with one in N, the usual meaning of negligible."""
    cells = [(BITS, row.crowd, row.epsilon, row.lam) for row in ROWS] + [
        (40, 10_000_000, 2.0, "e^2")
    ]
    masses: list[tuple[Bracket, Case]] = []
    for bits, crowd, epsilon, lam in cells:
        q = three_sigma_q(bits, crowd, epsilon)
        mass = mass_beyond(bits, crowd, q, epsilon)
        at = f"L = {bits}, lambda = {lam}, N = {crowd}"
        masses.append((mass, Case(at, mass.low, 1.0 / crowd)))
    least = min(mass.low for mass, _ in masses)
    most = max(mass.high for mass, _ in masses)
    bell = 0.5 * math.erfc(3.0 / math.sqrt(2.0))
    finding = RATIO.claim(
        "1.2 and 3.3",
        "the mass beyond mu + 3 sigma is negligible",
        [case for _, case in masses],
        "it is below 1/N in every row.",
        why=lambda _: (
            f"at (3.12)'s q the exact mass runs from {show(least)} to {show(most)}"
            f" (a bell would have {show(bell)}), more than 1/N in every row: a rule of thumb."
        ),
    )
    text = f"{show(least)} to {show(most)}" if finding.verdict != "agrees" else finding.computed
    yield replace(finding, computed=text)
