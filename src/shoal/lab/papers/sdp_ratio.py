"""SDP 1.3 to 3.3 and its appendix: the ratio, the rule mu + 3 sigma, and the six rows of q."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import NamedTuple

from shoal.lab import papers
from shoal.lab.papers import Case, Findings, PaperFinding, at_most, show
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.enumeration import AnswerPair, channel, histogram_pmf, largest_ratio
from shoal.theory.homogeneous import eta
from shoal.theory.randomized_response import phi
from shoal.theory.sufficient import gap_312, three_sigma_q

_claim, _number = partial(papers.claim, "SDP"), partial(papers.number, "SDP")
_QS = (Fraction(1, 10), Fraction(1, 5), Fraction(1, 4), Fraction(2, 5))


def findings() -> Findings:
    yield from _ratio()
    yield from _moments()
    yield from _algebra()
    yield _number("3.3, lambda", "e^0.693 = 2", math.exp(0.693), digits="2")
    for row in ROWS:
        yield from _row(row)
    yield from _rule_of_thumb()


def outlier(bits: int, crowd: int) -> AnswerPair:
    """SDP's pair: all zeros, against all zeros but one vector of ones."""
    zero = (0,) * bits
    return AnswerPair((zero,) * (crowd - 1), zero, (1,) * bits)


def _ratio() -> Findings:
    yield _claim(
        "1.3",
        "max R(s; x, x') = (p/q)^L",
        (
            Case((bits, q), papers.largest_local_ratio(vectors, q), ((1 - q) / q) ** bits)
            for bits, q in product((1, 2, 3), _QS)
            for vectors in [product((0, 1), repeat=bits)]
        ),
        "the largest ratio over all x, x', s, in fractions.",
    )
    least = {
        f"L = {bits}, N = {crowd}": min(map(min, histogram_pmf([(0,) * bits] * crowd, _QS[2])))
        for bits, crowd in product((1, 2), (2, 3))
    }
    yield _claim(
        "1.3, histogram",
        "s_i in {1, ..., N}",
        [Case(at, 1, low) for at, low in least.items()],
        holds=at_most,
        meant=[Case(at, 0, low) for at, low in least.items()],
        instead="s_i in {0, ..., N}",
        why=lambda case: f"{case.at}: a cell of the histogram can hold {case.right}.",
    )
    yield from _ratio_of_histograms()
    used = (0, 1)
    yield _claim(
        "3.1, after (3.5)",
        "p_r, r = 1, 2",
        [Case(r, r, used) for r in (1, 2)],
        holds=lambda r, indices: r in indices,
        meant=[Case(r, r - 1, used) for r in (1, 2)],
        instead="p_r, r = 0, 1",
        why=lambda case: f"(3.5) uses p_{used[0]} and p_{used[1]}, and no p_{case.left}.",
    )
    yield _claim(
        "3.1, after (3.6)",
        "max R = (p/q)^L",
        (
            Case((bits, crowd, q), largest_ratio(outlier(bits, crowd), q), ((1 - q) / q) ** bits)
            for bits, crowd, q in product((1, 2), (1, 2, 4), _QS)
        ),
        "the largest ratio over all histograms, in fractions.",
    )


def _ratio_of_histograms() -> Findings:
    """(2.4) for every homogeneous crowd, (3.4) for the zero crowd, from the full distribution."""
    bits, crowd, q = 2, 3, Fraction(1, 5)
    vectors = list(product((0, 1), repeat=bits))
    zero, one = vectors[0], vectors[-1]
    general, by_set_bits = [], []
    for x in vectors:
        towards, away = (histogram_pmf([x] * (crowd - 1) + [last], q) for last in (one, zero))
        p_x, p_1, p_0 = channel(x, q), channel(one, q), channel(zero, q)
        for s in towards:
            ratio = towards[s] / away[s]
            top, bottom = (sum(n * p[i] / p_x[i] for i, n in enumerate(s)) for p in (p_1, p_0))
            general.append(Case((x, s), top / bottom, ratio))
            if x == zero:
                powers = [(q / (1 - q)) ** (bits - 2 * sum(v)) for v in vectors]
                total = sum(n * power for n, power in zip(s, powers, strict=True))
                by_set_bits.append(Case(s, total / crowd, ratio))
    how = f"every histogram of L = {bits}, N = {crowd}, q = {q}, in fractions."
    yield _claim("2.1, (2.4)", "R(S) for a homogeneous crowd", general, how)
    yield _claim("3, (3.1) to (3.4)", "R(S) depends on the set bits only", by_set_bits, how)


def _powers(bits: int, q: Fraction) -> tuple[Fraction, Fraction]:
    """Return the first and the second moment of X_1, as printed."""
    p = 1 - q
    return ((p**3 + q**3) / (p * q)) ** bits, ((p**5 + q**5) / (p * q) ** 2) ** bits


def _moments_of(pairs: list[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    mean = sum((chance * value for chance, value in pairs), Fraction(0))
    return mean, sum((chance * (value - mean) ** 2 for chance, value in pairs), Fraction(0))


def _moments() -> Findings:
    """Appendix (6.6) to (6.9), and E R, Var R of 3.1, against direct summation."""
    single, whole = [], []
    for bits, q in product((1, 2, 5, 8), _QS):
        first, second = _powers(bits, q)
        ones = range(bits + 1)
        zero = [math.comb(bits, k) * q**k * (1 - q) ** (bits - k) for k in ones]
        values = [(q / (1 - q)) ** (bits - 2 * k) for k in ones]
        for chances, printed in (
            (zero, (Fraction(1), first - 1)),
            (zero[::-1], (first, second - first**2)),
        ):
            direct = _moments_of(list(zip(chances, values, strict=True)))
            single += [Case((bits, q), *sides) for sides in zip(printed, direct, strict=True)]
    how = "direct summation over the set bits, in fractions."
    yield _claim("6, (6.6) to (6.9)", "E and Var of X_0, X_1", single, how)
    for bits, crowd, q in product((1, 2), (2, 3), _QS):
        first, second = _powers(bits, q)
        zero_v, one_v = (0,) * bits, (1,) * bits
        towards = histogram_pmf([zero_v] * (crowd - 1) + [one_v], q)
        away = histogram_pmf([zero_v] * crowd, q)
        direct = _moments_of([(chance, chance / away[s]) for s, chance in towards.items()])
        mean = Fraction(crowd - 1, crowd) + first / crowd
        variance = ((crowd - 1) * (first - 1) + second - first**2) / crowd**2
        whole += [Case((bits, crowd, q), mean, direct[0]), Case((bits, q), variance, direct[1])]
    how = "the distribution of all histograms, in fractions."
    yield _claim("3.1", "E R(S) and Var R(S)", whole, how)


def _gap(first: float, second: float, crowd: int, lam: float) -> float:
    inside = first / crowd + (second - first**2) / crowd**2
    return 1.0 + first / crowd + 3.0 * math.sqrt(max(inside, 0.0)) - lam


def _gap_313(q: float, bits: int, crowd: int, lam: float) -> float:
    """Left side less right side of (3.13), which drops the terms in 1/N of (3.12)."""
    p = 1.0 - q
    # SDP prints (pq)^4 in the derivation below (3.13); (pq)^2 is right.
    return _gap(
        ((p**3 + q**3) / (p * q)) ** bits, ((p**5 + q**5) / (p * q) ** 2) ** bits, crowd, lam
    )


def _gap_315(value: float, bits: int, crowd: int, lam: float) -> float:
    """Left side less right side of (3.15), a function of phi; equal to (3.13)."""
    return _gap(value**bits, ((value + 1.0) ** 2 - value - 2.0) ** bits, crowd, lam)


def q_from_phi(value: float) -> float:
    """Flip probability with the given ``phi >= 1`` (3.16)."""
    # (phi+1)^2 - 4 = (phi-1)(phi+3): no cancellation near phi = 1, that is near q = 1/2.
    return 1.0 / (1.0 + ((value + 1.0) + math.sqrt((value - 1.0) * (value + 3.0))) / 2.0)


def _algebra() -> Findings:
    grid = [Fraction(i, 40) for i in range(1, 20)]

    def numerator(q: Fraction) -> Fraction:
        p = 1 - q
        return p**4 - p**3 * q + (p * q) ** 2 - p * q**3 + q**4

    yield _claim(
        "3.2, after (3.13)",
        "(p^4 - p^3 q + ...) / (pq)^4",
        [Case(f"q = {q}", numerator(q) / (q * (1 - q)) ** 4, _powers(1, q)[1]) for q in grid],
        meant=[Case(q, numerator(q) / (q * (1 - q)) ** 2, _powers(1, q)[1]) for q in grid],
        instead="(p^4 - p^3 q + ...) / (pq)^2",
        why=lambda case: (
            f"{case.at}: the printed quotient is {show(case.left / case.right)} times"
            " (p^5 + q^5)/(pq)^2; with (pq)^2 below, the two are equal."
        ),
    )
    moments = {q: _powers(1, q) for q in grid}
    cases = [Case(q, (value + 1) ** 2 - value - 2, x) for q, (value, x) in moments.items()]
    how = f"{len(grid)} values of q, in fractions."
    yield _claim("3.2, before (3.14)", "(p^5+q^5)/(pq)^2 = (phi+1)^2 - phi - 2", cases, how)
    points = [(row, float(q)) for row in ROWS for q in grid[2:]]
    yield _claim(
        "3.2, (3.13)",
        "(3.13) is tighter than (3.12)",
        [
            Case(f"{row.where}, q = {q}", gap_312(*at), _gap_313(*at))
            for row, q in points
            for at in [(q, BITS, row.crowd, math.exp(row.epsilon))]
        ],
        "the left side of (3.13) is never the smaller one.",
        holds=at_most,
    )
    yield _claim(
        "3.2, (3.15)",
        "(3.13) = (3.15)",
        [
            Case((row.where, q), _gap_313(q, *at), _gap_315(phi(q), *at))
            for row, q in points
            for at in [(BITS, row.crowd, 1.0)]
        ],
        "both sides at every row and 17 values of q.",
    )
    cases = [Case(q, q_from_phi(phi(float(q))), float(q)) for q in grid]
    yield _claim("3.2, (3.16)", "(3.16) inverts (3.14)", cases, f"{len(grid)} values of q.")


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


@functools.cache
def mass_beyond(bits: int, crowd: int, q: float, epsilon: float) -> Bracket:
    """Bracket P[R > lambda] around SDP's crowd; the high end holds for P[R >= lambda] too."""
    return eta((bits, 0, 0), crowd, q, epsilon)


def middle(bracket: Bracket) -> float:
    """Return the middle of a bracket."""
    return 0.5 * (bracket.low + bracket.high)


def _row(row: Row) -> Findings:
    rule = three_sigma_q(BITS, row.crowd, row.epsilon)
    belongs = roundest(crowds_with(row.q, row.epsilon))

    def other_crowd() -> str:
        return (
            f"(3.12) has the solution {row.q} for N = {belongs}; for N = {row.crowd} it is"
            f" {show(rule, 4)}."
        )

    noise = _number(row.where, f"q = {row.q}", rule, other_crowd, digits=row.q, up=True)
    yield noise
    mass = mass_beyond(BITS, row.crowd, float(row.q), row.epsilon)

    def off() -> str:
        share = middle(mass) / float(row.mass)
        draws = middle(mass) * (1.0 - middle(mass)) / (middle(mass) - float(row.mass)) ** 2
        exact = f"the exact mass at q = {row.q} is {show(share, 2)} times the printed one"
        if noise.verdict == "agrees":
            return f"{exact}; a simulation of about {show(draws, 1)} draws can be off by that much."
        there = mass_beyond(BITS, row.crowd, rule, row.epsilon)
        right = mass_beyond(BITS, belongs, float(row.q), row.epsilon)
        return (
            f"{exact}; at (3.12)'s q = {show(rule, 4)} it is {show(middle(there), 2)}, and for the"
            f" N = {belongs} that {row.q} belongs to {show(middle(right), 2)}."
        )

    yield _number(f"{row.where}, P[R >= lambda]", row.mass, mass, off)


def crowds_with(q: str, epsilon: float) -> range:
    """Crowd sizes for which (3.12) with L = 5 has a solution that rounds to the printed q.

    >>> 10_000 in crowds_with("0.1778", math.log(2))
    True
    """
    half = Decimal(1).scaleb(Decimal(q).as_tuple().exponent) / 2  # type: ignore[arg-type]
    top, bottom = float(Decimal(q) + half), float(Decimal(q) - half)

    def first(passes: Callable[[float], bool]) -> int:
        return smallest(
            lambda crowd: passes(three_sigma_q(BITS, crowd, epsilon)),
            101, 10**12, start=200, step=200,
        )  # fmt: skip

    return range(first(lambda rule: rule <= top), first(lambda rule: rule < bottom))


def roundest(numbers: range) -> int:
    """Return the number of the range with the most zeros at its end.

    >>> roundest(range(9_950, 10_020))
    10000
    """
    return max(numbers, key=lambda n: (len(str(n)) - len(str(n).rstrip("0")), -n))


def _rule_of_thumb() -> Findings:
    crowds = (1000, 3000, 5000, 10_000, 100_000, 1_000_000)
    cases = [
        Case(more, three_sigma_q(BITS, more, epsilon), three_sigma_q(BITS, less, epsilon))
        for epsilon in (math.log(2), 2.0)
        for less, more in pairwise(crowds)
    ]
    how = "(3.12) solved for six crowds and both lambda."
    yield _claim("1.2", "a larger dataset requires less noise", cases, how, holds=at_most)
    yield _rest_is_negligible()


def _rest_is_negligible() -> PaperFinding:
    """Compare the mass beyond mu + 3 sigma with one in N, the usual meaning of negligible."""
    cells = [*((BITS, row.crowd, row.epsilon) for row in ROWS), (40, 10_000_000, 2.0)]
    masses = {cell: mass_beyond(*cell[:2], three_sigma_q(*cell), cell[2]) for cell in cells}
    span = (
        f"{show(min(mass.low for mass in masses.values()))} to"
        f" {show(max(mass.high for mass in masses.values()))}"
    )
    bell = 0.5 * math.erfc(3.0 / math.sqrt(2.0))
    finding = _claim(
        "1.2 and 3.3",
        "the mass beyond mu + 3 sigma is negligible",
        [Case(cell, mass.low, 1.0 / cell[1]) for cell, mass in masses.items()],
        holds=at_most,
        why=lambda _: (
            f"at (3.12)'s q the exact mass runs from {span}"
            f" (a bell would have {show(bell)}), more than 1/N in every row: a rule of thumb."
        ),
    )
    return finding if finding.verdict == "agrees" else replace(finding, computed=span)
