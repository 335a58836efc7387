"""K-Randomization, both versions: channel, ratio, counts of one bit, ratios of sums.

Equation numbers are those of the later version.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import (
    accumulate,
    chain,
    combinations,
    combinations_with_replacement,
    pairwise,
    product,
)
from typing import Any

import numpy as np

from shoal.lab import papers
from shoal.lab.papers import Case, Findings, PaperFinding, at_most, count_pmf, equal, show
from shoal.theory.binomial import pmf
from shoal.theory.enumeration import Vector, channel, histogram_pmf
from shoal.theory.one_bit import privacy_ratio

_claim = partial(papers.claim, "KR")

_PEOPLE = 7
_QS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))
_LEVELS = tuple(Fraction(i, 40) for i in range(1, 40))
_SIZES = (Fraction(1, 2), Fraction(1), Fraction(3))
_PAIRS = tuple(product(_SIZES, repeat=2))


def findings() -> Findings:
    yield from _channel()
    yield _conditioning()
    yield from _counts_of_one_bit()
    yield from _ratios_of_sums()
    yield from _errata()


def _channel() -> Findings:
    yield _claim(
        "1, Proposition 1.1",
        "(1.1) for all events iff (1.2) for all outcomes",
        chain.from_iterable(_events(people, q) for people, q in product((1, 2, 3), _QS)),
        "all events of up to three records, in fractions.",
    )
    yield _claim(
        "2.1, remark",
        "q = f/2",
        (Case(f, (1 - f) + f / 2, 1 - f / 2) for f in (Fraction(i, 10) for i in range(1, 11))),
        "the truth survives with probability (1 - f) + f/2 = 1 - q.",
    )
    yield _claim(
        "2.2, (2.1)",
        "the distribution of A(x)",
        chain(_collections(1, Fraction(1, 4)), _collections(2, Fraction(1, 5))),
        "the sum over all synthetic collections, L = 1 and 2, n = 3, in fractions.",
    )


def _events(people: int, q: Fraction) -> Iterator[Case]:
    outcomes = range(people + 1)
    events = [e for size in range(1, people + 2) for e in combinations(outcomes, size)]
    for ones in range(people):
        first, second = count_pmf(people, ones, q), count_pmf(people, ones + 1, q)
        top = max(sum(first[s] for s in e) / sum(second[s] for s in e) for e in events)
        yield Case((people, ones, q), top, max(s / t for s, t in zip(first, second, strict=True)))


def _collections(bits: int, q: Fraction, people: int = 3) -> Iterator[Case]:
    vectors = list(product((0, 1), repeat=bits))
    for x in combinations_with_replacement(vectors, people):
        total: dict[Vector, Fraction] = {}
        for y in product(vectors, repeat=people):
            wrong = sum(a != b for a, b in zip(chain(*x), chain(*y), strict=True))
            key = tuple(y.count(v) for v in vectors)
            chance = (1 - q) ** (people * bits - wrong) * q**wrong
            total[key] = total.get(key, Fraction(0)) + chance
        yield Case(x, total, histogram_pmf(x, q))


def _conditioning() -> PaperFinding:
    """(3.1): the later version prints x_1' above and below."""
    q = Fraction(1, 4)
    vectors = list(product((0, 1), repeat=2))
    rest, x, changed = vectors[:2], vectors[0], vectors[3]
    others, after, before = (histogram_pmf((*rest, *more), q) for more in ((), (changed,), (x,)))

    def total(record: Vector, s: Vector) -> Fraction:
        less = [tuple(n - (i == j) for i, n in enumerate(s)) for j in range(len(s))]
        return _dot(channel(record, q), [others.get(cells, Fraction(0)) for cells in less])

    true = {s: after[s] / before[s] for s in after}
    return _claim(
        "later version, (3.1)",
        "x_1' in numerator and denominator",
        [Case(s, total(changed, s) / total(changed, s), true[s]) for s in true],
        meant=[Case(s, total(changed, s) / total(x, s), true[s]) for s in true],
        instead="x_1 in the denominator, as in the earlier version",
        why=lambda case: (
            f"as printed the quotient is always {case.left}; the ratio runs from"
            f" {show(min(true.values()))} to {show(max(true.values()))} (n = 3, L = 2, q = {q})."
        ),
    )


class _Counts:
    """The distributions of A_n(m) for all n up to 7, all m and one q, in fractions."""

    def __init__(self, q: Fraction) -> None:
        self.q = q
        sizes = range(_PEOPLE + 1)
        self.pmfs = {(n, m): count_pmf(n, m, q) for n in sizes for m in range(n + 1)}
        self.sums = {cell: list(accumulate(pmf)) for cell, pmf in self.pmfs.items()}
        self.cells = [cell for cell in self.pmfs if cell[0] >= 1]
        self.with_a_one = [(n, m, s) for n, m in self.cells if m >= 1 for s in range(n + 1)]
        self.with_a_zero = [(n, m, s) for n, m in self.cells if m < n for s in range(n + 1)]

    def pmf(self, n: int, m: int, s: int) -> Fraction:
        return self.pmfs[n, m][s] if 0 <= s <= n else Fraction(0)

    def cdf(self, n: int, m: int, s: int) -> Fraction:
        return Fraction(0) if s < 0 else self.sums[n, m][min(s, n)]

    def moment(self, n: int, m: int, power: int, around: Fraction | int = 0) -> Fraction:
        return _dot([Fraction(s - around) ** power for s in range(n + 1)], self.pmfs[n, m])

    def quantile(self, n: int, m: int, level: Fraction) -> int:
        return next(s for s in range(n + 1) if self.cdf(n, m, s) >= level)

    def ratios(self) -> Iterator[Case]:
        for n, m in self.cells:
            for above in (m - 1, m + 1):
                if 0 <= above <= n:
                    pairs = zip(self.pmfs[n, above], self.pmfs[n, m], strict=True)
                    ratio = privacy_ratio(n, min(m, above), float(self.q))
                    quotients = [float(s / t) for s, t in pairs]
                    yield Case((n, m, above), quotients, ratio if above < m else 1 / ratio)

    def falling(self) -> Iterator[Case]:
        for n, m, s in self.with_a_zero:
            if s >= 1:
                here, before = (self.pmf(n, m, t) / self.pmf(n, m + 1, t) for t in (s, s - 1))
                yield Case((n, m, s), here, before)

    def recursions(self, chance: Callable[[int, int, int], Fraction]) -> Iterator[Case]:
        p, q = 1 - self.q, self.q
        for n, m, s in self.with_a_one:
            left = p * chance(n - 1, m - 1, s - 1) + q * chance(n - 1, m - 1, s)
            yield Case((n, m, s), left, chance(n, m, s))
        for n, m, s in self.with_a_zero:
            left = q * chance(n - 1, m, s - 1) + p * chance(n - 1, m, s)
            yield Case((n, m, s), left, chance(n, m, s))

    def between(self) -> Iterator[Case]:
        for n, m, s in self.with_a_zero:
            ends = self.pmf(n - 1, m, s - 1), self.pmf(n - 1, m, s)
            yield Case((n, m, s), self.pmf(n, m, s), ends)

    def moments(self) -> Iterator[Case]:
        for n, m in self.cells:
            mean = self.moment(n, m, 1)
            yield Case((n, m), n * self.q + m * (1 - 2 * self.q), mean)
            yield Case((n, m), n * self.q * (1 - self.q), self.moment(n, m, 2, mean))

    def skewness(self) -> Iterator[Case]:
        for n in range(1, _PEOPLE + 1):
            last, first = (self.moment(n, m, 3, self.moment(n, m, 1)) for m in (n, 0))
            yield Case(n, last, first)

    def differences(self) -> Iterator[Case]:
        for n, m, s in self.with_a_one:
            here, above = self.pmf(n - 1, m - 1, s), self.pmf(n - 1, m - 1, s + 1)
            before = self.cdf(n, m - 1, s)
            yield Case((n, m, s), self.cdf(n, m, s) - before, -(1 - 2 * self.q) * here)
            yield Case((n, m, s), self.cdf(n, m, s + 1) - before, self.q * (here + above))

    def sandwich(self) -> Iterator[Case]:
        for n, m, s in self.with_a_one:
            ends = self.cdf(n, m - 1, s - 1), self.cdf(n, m - 1, s)
            yield Case((n, m, s), self.cdf(n, m, s), ends)

    def steps(self) -> Iterator[Case]:
        for (n, m), level in product(self.cells, _LEVELS):
            if m >= 1:
                step = self.quantile(n, m, level) - self.quantile(n, m - 1, level)
                yield Case((n, m, level), step, (0, 1))


def _within(value: Fraction, ends: tuple[Fraction, Fraction]) -> bool:
    return min(ends) <= value <= max(ends)


def _counts_of_one_bit() -> Findings:
    every = [_Counts(q) for q in _QS]

    def of_counts(
        where: str,
        printed: str,
        cases: Callable[[_Counts], Iterable[Case]],
        holds: Callable[[Any, Any], bool] = equal,
    ) -> PaperFinding:
        how = f"all m and s, n up to {_PEOPLE}, three q, in fractions."
        return _claim(where, printed, chain.from_iterable(map(cases, every)), how, holds=holds)

    statement = "pi(s; m-1) if x_1 = 1, 1/pi(s; m) if x_1 = 0"
    yield of_counts("3.1, ratio", statement, _Counts.ratios, np.allclose)
    yield of_counts("3.1 with Corollary 4.1", "pi(s; m) falls in s", _Counts.falling, at_most)
    statement = "recursions of the pmf"
    yield of_counts("3.1.1, (3.2), (3.3)", statement, lambda c: c.recursions(c.pmf))
    statement = "P[A_n(m) = s] between its two predecessors"
    yield of_counts("3.1.1, first bullet", statement, _Counts.between, _within)
    yield of_counts("3.1.1, end", "recursions of the cdf", lambda c: c.recursions(c.cdf))
    statement = "nq + m(p-q), npq for every m"
    yield of_counts("3.1.2, mean and variance", statement, _Counts.moments)
    statement = "right-skewed at m = 0, left-skewed at m = n"
    yield of_counts(
        "3.1.2, shape", statement, _Counts.skewness, lambda last, first: last < 0 < first
    )
    yield _location()
    statement = "F_m(x) - F_m-1(x) = -(p-q) P[A_n-1(m-1) = x]"
    yield of_counts("3.1.2, differences", statement, _Counts.differences)
    statement = "F_m-1(x-1) <= F_m(x) <= F_m-1(x)"
    yield of_counts("3.1.2, sandwich", statement, _Counts.sandwich, _within)
    statement = "quantiles step by 0 or 1 in m"
    yield of_counts("3.1.3", statement, _Counts.steps, lambda step, allowed: step in allowed)


def _location() -> PaperFinding:
    """Measure the gap to a shifted distribution at m = n/2: a lattice effect, hence like n^-1/2."""
    q, gaps = 0.25, {}
    for people in (100, 400, 1600):
        ones = people // 2
        here, start = (np.cumsum(pmf(people, m, q)) for m in (ones, 0))
        shifted = np.arange(people + 1) - ones * (1 - 2 * q)
        there = np.interp(shifted, np.arange(people + 1), start, left=0.0)
        gaps[people] = float(np.abs(here - there).max())
    seen = ", ".join(f"{show(gap, 2)} for n = {n}" for n, gap in gaps.items())
    cases = [Case(more, gaps[more], 0.6 * gaps[less]) for less, more in pairwise(gaps)]
    how = f"largest gap at q = 0.25, m = n/2: {seen}."
    return _claim("3.1.2, location", "F_n,m(x) ~ F_n,0(x - m(p-q))", cases, how, holds=at_most)


def _ratios_of_sums() -> Findings:
    signed = (*_SIZES, Fraction(-2), Fraction(0))
    yield _claim(
        "4, Lemma 4.1",
        "a ratio of sums <= the largest ratio",
        (
            Case((a, b), sum(a) / sum(b), max(s / t for s, t in zip(a, b, strict=True)))
            for a, b in product(product(signed, repeat=3), product(_SIZES, repeat=3))
        ),
        "every a in {-2, 0, 1/2, 1, 3}^3 and b in {1/2, 1, 3}^3.",
        holds=at_most,
    )
    yield from _lemma_2()
    yield _claim(
        "4, Corollary 4.1",
        "the ratio rises in a_2/a_1",
        (
            Case((a, b, q), _mixed(b, q), _mixed(a, q))
            for q, a, b in product((Fraction(1, 10), Fraction(2, 5)), _PAIRS, _PAIRS)
            if a[1] / a[0] >= b[1] / b[0]
        ),
        "every instance from {1/2, 1, 3}, two q.",
        holds=at_most,
    )
    values, positive = (Fraction(0), Fraction(1), Fraction(3)), (Fraction(1), Fraction(3))
    spots = product(*[positive] * 2, *[values] * 4, *[positive] * 2)
    yield _claim(
        "4, Lemma 4.3",
        "(4.4) if (4.5)",
        (
            Case(
                (a, a2, b, b2, c, c2, lam, mu),
                (a2 * lam + b2 * mu) / (c2 * lam + a2 * mu),
                (a * lam + b * mu) / (c * lam + a * mu),
            )
            for a, a2, b, b2, c, c2, lam, mu in spots
            if a * c2 >= a2 * c and a * b2 <= a2 * b and b * c2 >= b2 * c
        ),
        "every instance from {0, 1, 3} that satisfies (4.5).",
        holds=at_most,
    )


def _mixed(a: Sequence[Fraction], q: Fraction) -> Fraction:
    return (q * a[0] + (1 - q) * a[1]) / ((1 - q) * a[0] + q * a[1])


def _lemma_2() -> Findings:
    """(4.2) and (4.3) compare i with j; the later version prints i on both sides, which is void."""
    every, ordered = [], []
    for a, b, up, down in product(_PAIRS, repeat=4):
        case = Case(
            f"a = {_row(a)}, a' = {_row(b)}, lambda = {_row(up)}, mu = {_row(down)}",
            _dot(b, up) / _dot(b, down),
            _dot(a, up) / _dot(a, down),
        )
        every.append(case)
        if up[0] * down[1] >= up[1] * down[0] and a[0] * b[1] >= a[1] * b[0]:
            ordered.append(case)
    how = f"the {len(ordered)} instances of two terms from {{1/2, 1, 3}} with (4.2) and (4.3)."
    yield _claim("4, Lemma 4.2", "(4.1) if (4.2) and (4.3)", ordered, how, holds=at_most)
    yield _claim(
        "later version, (4.2), (4.3)",
        "lambda_i/mu_i >= lambda_i/mu_i, a_i/a_i >= a_i'/a_i'",
        every,
        holds=at_most,
        meant=ordered,
        instead="j in the right and lower places, as in the earlier version",
        why=lambda case: (
            f"as printed they always hold, and then (4.1) fails: {case.at} gives"
            f" {show(case.right)} on its left and {show(case.left)} on its right."
        ),
    )


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def _row(values: Sequence[Fraction]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _errata() -> Findings:
    # the later version kept the numbers of an older section
    labels = {"Lemma 4.1", "(4.1)", "(4.2)", "(4.3)", "(4.4)", "(4.5)"}
    printed = ("Lemma 5.1", "(5.1)", "(5.2)", "(5.3)", "(5.4)", "(5.5)")
    yield _claim(
        "later version, 1 and 4",
        "Lemma 5.1, (5.1) to (5.5)",
        [Case(name, name, labels) for name in printed],
        holds=lambda name, names: name in names,
        meant=[Case(name, name.replace("5.", "4.", 1), labels) for name in printed],
        instead="Lemma 4.1, (4.1) to (4.5)",
        why=lambda case: (
            f"{len(printed)} references such as {case.left} point to nothing; with 4"
            " in place of 5 each of them is found."
        ),
    )
    # section 5 bounds a ratio by epsilon; the definition (1.2) has e^epsilon
    largest = {f"q = {q}": float(papers.largest_local_ratio([(0,), (1,)], q)) for q in _QS}
    yield _claim(
        "5, Old stuff",
        "P[A_0(x) = s] <= epsilon P[A_0(x') = s]",
        [Case(at, math.log(ratio), ratio) for at, ratio in largest.items()],
        meant=[Case(at, math.exp(math.log(ratio)), ratio) for at, ratio in largest.items()],
        instead="<= e^epsilon P[A_0(x') = s]",
        why=lambda case: (
            f"flipping a bit with {case.at} is {show(case.left)}-differentially private and its"
            f" largest ratio is {show(case.right)} = e^{show(case.left)}, above the printed bound"
            f" {show(case.left)}."
        ),
    )
