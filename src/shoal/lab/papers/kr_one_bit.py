"""KR section 3.1: how many of n reports of one bit show a 1."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.lab.papers._finding import Case, Finding, at_most, claim, equal, show
from shoal.theory.binomial import pmf
from shoal.theory.enumeration import histogram_pmf
from shoal.theory.one_bit import privacy_ratio

__all__ = ["count_law", "findings"]

Law = list[Fraction]

_PEOPLE = 7
_QS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))
_LEVELS = tuple(Fraction(i, 40) for i in range(1, 40))
_HOW = f"all m and s, n up to {_PEOPLE}, three q, in fractions."


def count_law(people: int, ones: int, q: Fraction) -> Law:
    """Return P[A_n(m) = s] for s = 0..n, from the law of all histograms of one bit."""
    if people == 0:
        return [Fraction(1)]
    law = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), q)
    return [law[(people - s, s)] for s in range(people + 1)]


class _Counts:
    """The laws of A_n(m) for all n up to 7, all m and one q, in fractions."""

    def __init__(self, q: Fraction) -> None:
        self.q = q
        sizes = range(_PEOPLE + 1)
        self.laws = {(n, m): count_law(n, m, q) for n in sizes for m in range(n + 1)}
        self.sums = {cell: list(itertools.accumulate(law)) for cell, law in self.laws.items()}

    def pmf(self, n: int, m: int, s: int) -> Fraction:
        return self.laws[n, m][s] if 0 <= s <= n else Fraction(0)

    def cdf(self, n: int, m: int, s: int) -> Fraction:
        return Fraction(0) if s < 0 else self.sums[n, m][min(s, n)]

    def moment(self, n: int, m: int, power: int, around: Fraction | int = 0) -> Fraction:
        terms = ((s - around) ** power * self.pmf(n, m, s) for s in range(n + 1))
        return sum(terms, Fraction(0))

    def quantile(self, n: int, m: int, level: Fraction) -> int:
        return next(s for s in range(n + 1) if self.cdf(n, m, s) >= level)

    def cells(self) -> list[tuple[int, int]]:
        return [cell for cell in self.laws if cell[0] >= 1]

    def with_a_one(self) -> list[tuple[int, int, int]]:
        return [(n, m, s) for n, m in self.cells() if m >= 1 for s in range(n + 1)]

    def with_a_zero(self) -> list[tuple[int, int, int]]:
        return [(n, m, s) for n, m in self.cells() if m < n for s in range(n + 1)]

    def at(self, n: int, m: int, s: int | None = None) -> str:
        return f"n = {n}, m = {m}, q = {self.q}" + ("" if s is None else f", s = {s}")


def findings() -> Iterator[Finding]:
    """Check section 3.1 for all n up to 7 and three q."""
    all_counts = [_Counts(q) for q in _QS]

    def statement(
        where: str,
        printed: str,
        cases: Callable[[_Counts], Iterable[Case]],
        holds: Callable[[Any, Any], bool] = equal,
    ) -> Finding:
        together = itertools.chain.from_iterable(map(cases, all_counts))
        return claim("KR", where, printed, together, _HOW, holds=holds)

    ratio = "pi(s; m-1) if x_1 = 1, 1/pi(s; m) if x_1 = 0"
    yield statement("3.1, ratio", ratio, _ratios, np.allclose)
    yield statement("3.1 with Corollary 4.1", "pi(s; m) falls in s", _falling, at_most)
    yield statement("3.1.1, (3.2), (3.3)", "recursions of the pmf", _pmf_recursions)
    words = "P[A_n(m) = s] between its two predecessors"
    yield statement("3.1.1, first bullet", words, _between, _within)
    yield statement("3.1.1, end", "recursions of the cdf", _cdf_recursions)
    yield statement("3.1.2, mean and variance", "nq + m(p-q), npq for every m", _moments)
    words = "right-skewed at m = 0, left-skewed at m = n"
    yield statement("3.1.2, shape", words, _skewness, lambda left, right: left < 0 < right)
    yield _location()
    words = "F_m(x) - F_m-1(x) = -(p-q) P[A_n-1(m-1) = x]"
    yield statement("3.1.2, differences", words, _differences)
    yield statement("3.1.2, sandwich", "F_m-1(x-1) <= F_m(x) <= F_m-1(x)", _sandwich, _within)
    steps = "quantiles step by 0 or 1 in m"
    yield statement("3.1.3", steps, _steps, lambda step, allowed: step in allowed)


def _within(value: Fraction, ends: tuple[Fraction, Fraction]) -> bool:
    return min(ends) <= value <= max(ends)


def _ratios(c: _Counts) -> Iterator[Case]:
    """Compare quotients of two laws with pi by the recursion."""
    for n, m in c.cells():
        if m >= 1:
            quotients = _quotients(c.laws[n, m - 1], c.laws[n, m])
            yield Case(f"{c.at(n, m)}, x_1 = 1", quotients, privacy_ratio(n, m - 1, float(c.q)))
        if m < n:
            quotients = _quotients(c.laws[n, m + 1], c.laws[n, m])
            yield Case(f"{c.at(n, m)}, x_1 = 0", quotients, 1 / privacy_ratio(n, m, float(c.q)))


def _falling(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_zero():
        if s >= 1:
            here, before = (c.pmf(n, m, t) / c.pmf(n, m + 1, t) for t in (s, s - 1))
            yield Case(c.at(n, m, s), here, before)


def _recursions(c: _Counts, law: Callable[[int, int, int], Fraction]) -> Iterator[Case]:
    p, q = 1 - c.q, c.q
    for n, m, s in c.with_a_one():
        left = p * law(n - 1, m - 1, s - 1) + q * law(n - 1, m - 1, s)
        yield Case(c.at(n, m, s), left, law(n, m, s))
    for n, m, s in c.with_a_zero():
        left = q * law(n - 1, m, s - 1) + p * law(n - 1, m, s)
        yield Case(c.at(n, m, s), left, law(n, m, s))


def _pmf_recursions(c: _Counts) -> Iterator[Case]:
    return _recursions(c, c.pmf)


def _cdf_recursions(c: _Counts) -> Iterator[Case]:
    return _recursions(c, c.cdf)


def _between(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_zero():
        ends = c.pmf(n - 1, m, s - 1), c.pmf(n - 1, m, s)
        yield Case(c.at(n, m, s), c.pmf(n, m, s), ends)


def _moments(c: _Counts) -> Iterator[Case]:
    for n, m in c.cells():
        mean = c.moment(n, m, 1)
        yield Case(f"mean, {c.at(n, m)}", n * c.q + m * (1 - 2 * c.q), mean)
        yield Case(f"variance, {c.at(n, m)}", n * c.q * (1 - c.q), c.moment(n, m, 2, mean))


def _skewness(c: _Counts) -> Iterator[Case]:
    for n in range(1, _PEOPLE + 1):
        last, first = (c.moment(n, m, 3, c.moment(n, m, 1)) for m in (n, 0))
        yield Case(c.at(n, 0), last, first)


def _differences(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_one():
        here, above = c.pmf(n - 1, m - 1, s), c.pmf(n - 1, m - 1, s + 1)
        first = c.cdf(n, m, s) - c.cdf(n, m - 1, s)
        second = c.cdf(n, m, s + 1) - c.cdf(n, m - 1, s)
        yield Case(c.at(n, m, s), first, -(1 - 2 * c.q) * here)
        yield Case(f"{c.at(n, m, s)}, x + 1", second, c.q * (here + above))


def _sandwich(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_one():
        yield Case(c.at(n, m, s), c.cdf(n, m, s), (c.cdf(n, m - 1, s - 1), c.cdf(n, m - 1, s)))


def _steps(c: _Counts) -> Iterator[Case]:
    for (n, m), level in itertools.product(c.cells(), _LEVELS):
        if m >= 1:
            step = c.quantile(n, m, level) - c.quantile(n, m - 1, level)
            yield Case(f"{c.at(n, m)}, level {level}", step, (0, 1))


def _quotients(above: Law, below: Law) -> list[float]:
    return [float(s / t) for s, t in zip(above, below, strict=True)]


def _location() -> Finding:
    """Measure the gap to a shifted law at m = n/2: a lattice effect, hence like n^-1/2."""
    q, gaps = 0.25, {}
    for people in (100, 400, 1600):
        ones = people // 2
        here, start = (np.cumsum(pmf(people, m, q)) for m in (ones, 0))
        shifted = np.arange(people + 1) - ones * (1 - 2 * q)
        there = np.interp(shifted, np.arange(people + 1), start, left=0.0)
        gaps[people] = float(np.abs(here - there).max())
    how = (
        "largest gap at q = 0.25, m = n/2: "
        + ", ".join(f"{show(gap, 2)} for n = {n}" for n, gap in gaps.items())
        + "."
    )
    cases = [
        Case(f"n = {more}", gaps[more], 0.6 * gaps[less]) for less, more in itertools.pairwise(gaps)
    ]
    return claim("KR", "3.1.2, location", "F_n,m(x) ~ F_n,0(x - m(p-q))", cases, how, holds=at_most)
