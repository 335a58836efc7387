"""K-Randomization, both versions: channel, ratio, counts of one bit, ratios of sums.

Equation numbers are those of the later version.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.lab.papers import Case, Paper, PaperFinding, at_most, equal, show
from shoal.theory.binomial import pmf
from shoal.theory.enumeration import channel, histogram_pmf
from shoal.theory.one_bit import privacy_ratio

KR = Paper("KR")
Vector = tuple[int, ...]

_PEOPLE = 7
_QS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))
_LEVELS = tuple(Fraction(i, 40) for i in range(1, 40))
_SIZES = (Fraction(1, 2), Fraction(1), Fraction(3))


def count_pmf(people: int, ones: int, q: Fraction) -> list[Fraction]:
    """Return P[A_n(m) = s] for s = 0..n, from the distribution of all histograms of one bit."""
    if people == 0:
        return [Fraction(1)]
    pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), q)
    return [pmf[(people - s, s)] for s in range(people + 1)]


@KR.statement(
    "1, Proposition 1.1",
    "(1.1) for all events iff (1.2) for all outcomes",
    "all events of up to three records, in fractions.",
)
def _events_and_outcomes() -> Iterator[Case]:
    for people, q in itertools.product((1, 2, 3), _QS):
        for ones in range(people):
            first, second = count_pmf(people, ones, q), count_pmf(people, ones + 1, q)
            events = itertools.chain.from_iterable(
                itertools.combinations(range(people + 1), size) for size in range(1, people + 2)
            )
            top = max(sum(first[s] for s in e) / sum(second[s] for s in e) for e in events)
            single = max(s / t for s, t in zip(first, second, strict=True))
            yield Case(f"n = {people}, m = {ones}, q = {q}", top, single)


@KR.statement(
    "2.1, remark", "q = f/2", "the truth survives with probability (1 - f) + f/2 = 1 - q."
)
def _coin() -> Iterator[Case]:
    for f in (Fraction(i, 10) for i in range(1, 11)):
        yield Case(f"f = {f}", (1 - f) + f / 2, 1 - f / 2)


@KR.statement(
    "2.2, (2.1)",
    "the distribution of A(x)",
    "the sum over all synthetic collections, L = 1 and 2, n = 3, in fractions.",
)
def _histogram_distribution() -> Iterator[Case]:
    """Compare with the pmf built record by record."""
    people = 3
    for bits, q in ((1, Fraction(1, 4)), (2, Fraction(1, 5))):
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
            yield Case(f"x = {x}", total, histogram_pmf(x, q))


@KR.part
def _conditioning() -> Iterator[PaperFinding]:
    """(3.1): the later version prints x_1' above and below."""
    q = Fraction(1, 4)
    vectors = list(itertools.product((0, 1), repeat=2))
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
    yield KR.claim(
        "later version, (3.1)",
        "x_1' in numerator and denominator",
        [Case(f"s = {s}", total(changed, s) / total(changed, s), true[s]) for s in true],
        holds=equal,
        meant=[Case(f"s = {s}", total(changed, s) / total(x, s), true[s]) for s in true],
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
        self.sums = {cell: list(itertools.accumulate(pmf)) for cell, pmf in self.pmfs.items()}
        self.cells = [cell for cell in self.pmfs if cell[0] >= 1]
        self.with_a_one = [(n, m, s) for n, m in self.cells if m >= 1 for s in range(n + 1)]
        self.with_a_zero = [(n, m, s) for n, m in self.cells if m < n for s in range(n + 1)]

    def pmf(self, n: int, m: int, s: int) -> Fraction:
        return self.pmfs[n, m][s] if 0 <= s <= n else Fraction(0)

    def cdf(self, n: int, m: int, s: int) -> Fraction:
        return Fraction(0) if s < 0 else self.sums[n, m][min(s, n)]

    def moment(self, n: int, m: int, power: int, around: Fraction | int = 0) -> Fraction:
        terms = ((s - around) ** power * self.pmf(n, m, s) for s in range(n + 1))
        return sum(terms, Fraction(0))

    def quantile(self, n: int, m: int, level: Fraction) -> int:
        return next(s for s in range(n + 1) if self.cdf(n, m, s) >= level)

    def at(self, n: int, m: int, s: int | None = None) -> str:
        return f"n = {n}, m = {m}, q = {self.q}" + ("" if s is None else f", s = {s}")


_counts = functools.cache(_Counts)


def _of_counts(
    where: str, printed: str, holds: Callable[[Any, Any], bool] = equal
) -> Callable[[Callable[[_Counts], Iterable[Case]]], None]:
    """Add a statement of section 3.1, with cases for all n up to 7 and three q."""

    def add(cases: Callable[[_Counts], Iterable[Case]]) -> None:
        how = f"all m and s, n up to {_PEOPLE}, three q, in fractions."
        every = KR.statement(where, printed, how, holds)
        every(lambda: itertools.chain.from_iterable(cases(_counts(q)) for q in _QS))

    return add


def _within(value: Fraction, ends: tuple[Fraction, Fraction]) -> bool:
    return min(ends) <= value <= max(ends)


@_of_counts("3.1, ratio", "pi(s; m-1) if x_1 = 1, 1/pi(s; m) if x_1 = 0", np.allclose)
def _ratios(c: _Counts) -> Iterator[Case]:
    """Compare quotients of two distributions with pi by the recursion."""

    def quotients(n: int, above: int, below: int) -> list[float]:
        pairs = zip(c.pmfs[n, above], c.pmfs[n, below], strict=True)
        return [float(s / t) for s, t in pairs]

    for n, m in c.cells:
        if m >= 1:
            ratio = privacy_ratio(n, m - 1, float(c.q))
            yield Case(f"{c.at(n, m)}, x_1 = 1", quotients(n, m - 1, m), ratio)
        if m < n:
            ratio = 1 / privacy_ratio(n, m, float(c.q))
            yield Case(f"{c.at(n, m)}, x_1 = 0", quotients(n, m + 1, m), ratio)


@_of_counts("3.1 with Corollary 4.1", "pi(s; m) falls in s", at_most)
def _falling(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_zero:
        if s >= 1:
            here, before = (c.pmf(n, m, t) / c.pmf(n, m + 1, t) for t in (s, s - 1))
            yield Case(c.at(n, m, s), here, before)


def _recursions(c: _Counts, pmf: Callable[[int, int, int], Fraction]) -> Iterator[Case]:
    p, q = 1 - c.q, c.q
    for n, m, s in c.with_a_one:
        left = p * pmf(n - 1, m - 1, s - 1) + q * pmf(n - 1, m - 1, s)
        yield Case(c.at(n, m, s), left, pmf(n, m, s))
    for n, m, s in c.with_a_zero:
        left = q * pmf(n - 1, m, s - 1) + p * pmf(n - 1, m, s)
        yield Case(c.at(n, m, s), left, pmf(n, m, s))


_of_counts("3.1.1, (3.2), (3.3)", "recursions of the pmf")(lambda c: _recursions(c, c.pmf))


@_of_counts("3.1.1, first bullet", "P[A_n(m) = s] between its two predecessors", _within)
def _between(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_zero:
        ends = c.pmf(n - 1, m, s - 1), c.pmf(n - 1, m, s)
        yield Case(c.at(n, m, s), c.pmf(n, m, s), ends)


_of_counts("3.1.1, end", "recursions of the cdf")(lambda c: _recursions(c, c.cdf))


@_of_counts("3.1.2, mean and variance", "nq + m(p-q), npq for every m")
def _moments(c: _Counts) -> Iterator[Case]:
    for n, m in c.cells:
        mean = c.moment(n, m, 1)
        yield Case(f"mean, {c.at(n, m)}", n * c.q + m * (1 - 2 * c.q), mean)
        yield Case(f"variance, {c.at(n, m)}", n * c.q * (1 - c.q), c.moment(n, m, 2, mean))


@_of_counts(
    "3.1.2, shape",
    "right-skewed at m = 0, left-skewed at m = n",
    lambda last, first: bool(last < 0 < first),
)
def _skewness(c: _Counts) -> Iterator[Case]:
    for n in range(1, _PEOPLE + 1):
        last, first = (c.moment(n, m, 3, c.moment(n, m, 1)) for m in (n, 0))
        yield Case(c.at(n, 0), last, first)


@KR.part
def _location() -> Iterator[PaperFinding]:
    """Measure the gap to a shifted distribution at m = n/2: a lattice effect, hence like n^-1/2."""
    q, gaps = 0.25, {}
    for people in (100, 400, 1600):
        ones = people // 2
        here, start = (np.cumsum(pmf(people, m, q)) for m in (ones, 0))
        shifted = np.arange(people + 1) - ones * (1 - 2 * q)
        there = np.interp(shifted, np.arange(people + 1), start, left=0.0)
        gaps[people] = float(np.abs(here - there).max())
    seen = ", ".join(f"{show(gap, 2)} for n = {n}" for n, gap in gaps.items())
    cases = [
        Case(f"n = {more}", gaps[more], 0.6 * gaps[less]) for less, more in itertools.pairwise(gaps)
    ]
    how = f"largest gap at q = 0.25, m = n/2: {seen}."
    yield KR.claim("3.1.2, location", "F_n,m(x) ~ F_n,0(x - m(p-q))", cases, how)


@_of_counts("3.1.2, differences", "F_m(x) - F_m-1(x) = -(p-q) P[A_n-1(m-1) = x]")
def _differences(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_one:
        here, above = c.pmf(n - 1, m - 1, s), c.pmf(n - 1, m - 1, s + 1)
        first = c.cdf(n, m, s) - c.cdf(n, m - 1, s)
        second = c.cdf(n, m, s + 1) - c.cdf(n, m - 1, s)
        yield Case(c.at(n, m, s), first, -(1 - 2 * c.q) * here)
        yield Case(f"{c.at(n, m, s)}, x + 1", second, c.q * (here + above))


@_of_counts("3.1.2, sandwich", "F_m-1(x-1) <= F_m(x) <= F_m-1(x)", _within)
def _sandwich(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_one:
        yield Case(c.at(n, m, s), c.cdf(n, m, s), (c.cdf(n, m - 1, s - 1), c.cdf(n, m - 1, s)))


@_of_counts("3.1.3", "quantiles step by 0 or 1 in m", lambda step, allowed: step in allowed)
def _steps(c: _Counts) -> Iterator[Case]:
    for (n, m), level in itertools.product(c.cells, _LEVELS):
        if m >= 1:
            step = c.quantile(n, m, level) - c.quantile(n, m - 1, level)
            yield Case(f"{c.at(n, m)}, level {level}", step, (0, 1))


@KR.statement(
    "4, Lemma 4.1",
    "a ratio of sums <= the largest ratio",
    "every a in {-2, 0, 1/2, 1, 3}^3 and b in {1/2, 1, 3}^3.",
    at_most,
)
def _lemma_1() -> Iterator[Case]:
    signed = (*_SIZES, Fraction(-2), Fraction(0))
    for a in itertools.product(signed, repeat=3):
        for b in itertools.product(_SIZES, repeat=3):
            largest = max(s / t for s, t in zip(a, b, strict=True))
            yield Case(f"a = {a}, b = {b}", sum(a) / sum(b), largest)


@KR.part
def _lemma_2() -> Iterator[PaperFinding]:
    """(4.2) and (4.3) compare i with j; the later version prints i on both sides, which is void."""
    pairs = list(itertools.product(_SIZES, repeat=2))
    every, ordered = [], []
    for a, b, up, down in itertools.product(pairs, repeat=4):
        case = Case(
            f"a = {_row(a)}, a' = {_row(b)}, lambda = {_row(up)}, mu = {_row(down)}",
            _dot(b, up) / _dot(b, down),
            _dot(a, up) / _dot(a, down),
        )
        every.append(case)
        if up[0] * down[1] >= up[1] * down[0] and a[0] * b[1] >= a[1] * b[0]:
            ordered.append(case)
    how = f"the {len(ordered)} instances of two terms from {{1/2, 1, 3}} with (4.2) and (4.3)."
    yield KR.claim("4, Lemma 4.2", "(4.1) if (4.2) and (4.3)", ordered, how)
    yield KR.claim(
        "later version, (4.2), (4.3)",
        "lambda_i/mu_i >= lambda_i/mu_i, a_i/a_i >= a_i'/a_i'",
        every,
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


@KR.statement(
    "4, Corollary 4.1",
    "the ratio rises in a_2/a_1",
    "every instance from {1/2, 1, 3}, two q.",
    at_most,
)
def _corollary() -> Iterator[Case]:
    pairs = list(itertools.product(_SIZES, repeat=2))
    for q, a, b in itertools.product((Fraction(1, 10), Fraction(2, 5)), pairs, pairs):
        if a[1] / a[0] >= b[1] / b[0]:
            p = 1 - q
            left, right = ((q * v[0] + p * v[1]) / (p * v[0] + q * v[1]) for v in (a, b))
            yield Case(f"a = {_row(a)}, a' = {_row(b)}, q = {q}", right, left)


@KR.statement(
    "4, Lemma 4.3",
    "(4.4) if (4.5)",
    "every instance from {0, 1, 3} that satisfies (4.5).",
    at_most,
)
def _lemma_3() -> Iterator[Case]:
    values, positive = (Fraction(0), Fraction(1), Fraction(3)), (Fraction(1), Fraction(3))
    spots = itertools.product(*[positive] * 2, *[values] * 4, *[positive] * 2)
    for a, a2, b, b2, c, c2, lam, mu in spots:
        if a * c2 >= a2 * c and a * b2 <= a2 * b and b * c2 >= b2 * c:
            left = (a * lam + b * mu) / (c * lam + a * mu)
            right = (a2 * lam + b2 * mu) / (c2 * lam + a2 * mu)
            yield Case(f"{(a, a2, b, b2, c, c2, lam, mu)}", right, left)


@KR.part
def _references() -> Iterator[PaperFinding]:
    """Look up the references of the later version, which kept the numbers of an older section."""
    labels = {"Lemma 4.1", "(4.1)", "(4.2)", "(4.3)", "(4.4)", "(4.5)"}
    printed = ("Lemma 5.1", "(5.1)", "(5.2)", "(5.3)", "(5.4)", "(5.5)")
    yield KR.claim(
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


@KR.part
def _old_bound() -> Iterator[PaperFinding]:
    """Compare: section 5 bounds a ratio by epsilon; the definition (1.2) has e^epsilon."""
    largest = {}
    for q in _QS:
        pmfs = [channel((bit,), q) for bit in (0, 1)]
        pairs = itertools.permutations(pmfs, 2)
        largest[f"q = {q}"] = float(max(s / t for a, b in pairs for s, t in zip(a, b, strict=True)))
    yield KR.claim(
        "5, Old stuff",
        "P[A_0(x) = s] <= epsilon P[A_0(x') = s]",
        [Case(at, math.log(ratio), ratio) for at, ratio in largest.items()],
        holds=equal,
        meant=[Case(at, math.exp(math.log(ratio)), ratio) for at, ratio in largest.items()],
        instead="<= e^epsilon P[A_0(x') = s]",
        why=lambda case: (
            f"flipping a bit with {case.at} is {show(case.left)}-differentially private and its"
            f" largest ratio is {show(case.right)} = e^{show(case.left)}, above the printed bound"
            f" {show(case.left)}."
        ),
    )
