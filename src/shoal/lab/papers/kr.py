"""K-Randomization, both versions: channel, ratio, counts of one bit, ratios of sums.

Equation numbers are those of the later version.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.lab.papers import Case, PaperFinding, at_most, claim, equal, show
from shoal.theory.binomial import pmf
from shoal.theory.enumeration import channel, histogram_pmf
from shoal.theory.one_bit import privacy_ratio

Vector = tuple[int, ...]


def findings() -> Iterator[PaperFinding]:
    """Recompute what KR 1, 2 and 3 up to (3.1) print."""
    yield _events_and_outcomes()
    yield _coin()
    yield _histogram_distribution()
    yield _conditioning()
    yield from _one_bit()
    yield from _sums()


def _events_and_outcomes() -> PaperFinding:
    """Proposition 1.1: the largest ratio over events is the largest over outcomes."""
    cases = []
    for people, q in itertools.product((1, 2, 3), _QS):
        for ones in range(people):
            first, second = count_pmf(people, ones, q), count_pmf(people, ones + 1, q)
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


def _coin() -> PaperFinding:
    cases = [
        Case(f"f = {f}", (1 - f) + f / 2, 1 - f / 2)
        for f in (Fraction(i, 10) for i in range(1, 11))
    ]
    how = "the truth survives with probability (1 - f) + f/2 = 1 - q."
    return claim("KR", "2.1, remark", "q = f/2", cases, how, holds=equal)


def _histogram_distribution() -> PaperFinding:
    """(2.1) summed over all synthetic collections, against the pmf built record by record."""
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
    return claim("KR", "2.2, (2.1)", "the distribution of A(x)", cases, how, holds=equal)


def _conditioning() -> PaperFinding:
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


Pmf = list[Fraction]

_PEOPLE = 7
_QS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))
_LEVELS = tuple(Fraction(i, 40) for i in range(1, 40))
_HOW = f"all m and s, n up to {_PEOPLE}, three q, in fractions."


def count_pmf(people: int, ones: int, q: Fraction) -> Pmf:
    """Return P[A_n(m) = s] for s = 0..n, from the distribution of all histograms of one bit."""
    if people == 0:
        return [Fraction(1)]
    pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), q)
    return [pmf[(people - s, s)] for s in range(people + 1)]


class _Counts:
    """The distributions of A_n(m) for all n up to 7, all m and one q, in fractions."""

    def __init__(self, q: Fraction) -> None:
        self.q = q
        sizes = range(_PEOPLE + 1)
        self.pmfs = {(n, m): count_pmf(n, m, q) for n in sizes for m in range(n + 1)}
        self.sums = {cell: list(itertools.accumulate(pmf)) for cell, pmf in self.pmfs.items()}

    def pmf(self, n: int, m: int, s: int) -> Fraction:
        return self.pmfs[n, m][s] if 0 <= s <= n else Fraction(0)

    def cdf(self, n: int, m: int, s: int) -> Fraction:
        return Fraction(0) if s < 0 else self.sums[n, m][min(s, n)]

    def moment(self, n: int, m: int, power: int, around: Fraction | int = 0) -> Fraction:
        terms = ((s - around) ** power * self.pmf(n, m, s) for s in range(n + 1))
        return sum(terms, Fraction(0))

    def quantile(self, n: int, m: int, level: Fraction) -> int:
        return next(s for s in range(n + 1) if self.cdf(n, m, s) >= level)

    def cells(self) -> list[tuple[int, int]]:
        return [cell for cell in self.pmfs if cell[0] >= 1]

    def with_a_one(self) -> list[tuple[int, int, int]]:
        return [(n, m, s) for n, m in self.cells() if m >= 1 for s in range(n + 1)]

    def with_a_zero(self) -> list[tuple[int, int, int]]:
        return [(n, m, s) for n, m in self.cells() if m < n for s in range(n + 1)]

    def at(self, n: int, m: int, s: int | None = None) -> str:
        return f"n = {n}, m = {m}, q = {self.q}" + ("" if s is None else f", s = {s}")


def _one_bit() -> Iterator[PaperFinding]:
    """Check section 3.1 for all n up to 7 and three q."""
    all_counts = [_Counts(q) for q in _QS]

    def statement(
        where: str,
        printed: str,
        cases: Callable[[_Counts], Iterable[Case]],
        holds: Callable[[Any, Any], bool] = equal,
    ) -> PaperFinding:
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
    """Compare quotients of two distributions with pi by the recursion."""
    for n, m in c.cells():
        if m >= 1:
            quotients = _quotients(c.pmfs[n, m - 1], c.pmfs[n, m])
            yield Case(f"{c.at(n, m)}, x_1 = 1", quotients, privacy_ratio(n, m - 1, float(c.q)))
        if m < n:
            quotients = _quotients(c.pmfs[n, m + 1], c.pmfs[n, m])
            yield Case(f"{c.at(n, m)}, x_1 = 0", quotients, 1 / privacy_ratio(n, m, float(c.q)))


def _falling(c: _Counts) -> Iterator[Case]:
    for n, m, s in c.with_a_zero():
        if s >= 1:
            here, before = (c.pmf(n, m, t) / c.pmf(n, m + 1, t) for t in (s, s - 1))
            yield Case(c.at(n, m, s), here, before)


def _recursions(c: _Counts, pmf: Callable[[int, int, int], Fraction]) -> Iterator[Case]:
    p, q = 1 - c.q, c.q
    for n, m, s in c.with_a_one():
        left = p * pmf(n - 1, m - 1, s - 1) + q * pmf(n - 1, m - 1, s)
        yield Case(c.at(n, m, s), left, pmf(n, m, s))
    for n, m, s in c.with_a_zero():
        left = q * pmf(n - 1, m, s - 1) + p * pmf(n - 1, m, s)
        yield Case(c.at(n, m, s), left, pmf(n, m, s))


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


def _quotients(above: Pmf, below: Pmf) -> list[float]:
    return [float(s / t) for s, t in zip(above, below, strict=True)]


def _location() -> PaperFinding:
    """Measure the gap to a shifted distribution at m = n/2: a lattice effect, hence like n^-1/2."""
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


_SIZES = (Fraction(1, 2), Fraction(1), Fraction(3))


def _sums() -> Iterator[PaperFinding]:
    """Recompute the lemmas of KR 4, the references to them, and the bound of KR 5."""
    yield _lemma_1()
    yield from _lemma_2()
    yield _corollary()
    yield _lemma_3()
    yield _references()
    yield _old_bound()


def _dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def _lemma_1() -> PaperFinding:
    signed = (*_SIZES, Fraction(-2), Fraction(0))
    cases = [
        Case(f"a = {a}, b = {b}", sum(a) / sum(b), max(s / t for s, t in zip(a, b, strict=True)))
        for a in itertools.product(signed, repeat=3)
        for b in itertools.product(_SIZES, repeat=3)
    ]
    how = "every a in {-2, 0, 1/2, 1, 3}^3 and b in {1/2, 1, 3}^3."
    return claim("KR", "4, Lemma 4.1", "a ratio of sums <= the largest ratio", cases, how)


def _lemma_2() -> Iterator[PaperFinding]:
    """(4.2) and (4.3) compare i with j; the later version prints i on both sides, which is void."""
    weights = [
        (up, down)
        for up in itertools.product(_SIZES, repeat=2)
        for down in itertools.product(_SIZES, repeat=2)
    ]
    every, ordered = [], []
    for (a, b), (up, down) in itertools.product(weights, repeat=2):
        case = Case(
            f"a = {_row(a)}, a' = {_row(b)}, lambda = {_row(up)}, mu = {_row(down)}",
            _dot(b, up) / _dot(b, down),
            _dot(a, up) / _dot(a, down),
        )
        every.append(case)
        if up[0] * down[1] >= up[1] * down[0] and a[0] * b[1] >= a[1] * b[0]:
            ordered.append(case)
    how = f"the {len(ordered)} instances of two terms from {{1/2, 1, 3}} with (4.2) and (4.3)."
    yield claim("KR", "4, Lemma 4.2", "(4.1) if (4.2) and (4.3)", ordered, how)
    yield claim(
        "KR",
        "later version, (4.2), (4.3)",
        "lambda_i/mu_i >= lambda_i/mu_i, a_i/a_i >= a_i'/a_i'",
        every,
        "",
        meant=ordered,
        instead="j in the right and lower places, as in the earlier version",
        why=lambda case: (
            f"as printed they always hold, and then (4.1) fails: {case.at} gives"
            f" {show(case.right)} on its left and {show(case.left)} on its right."
        ),
    )


def _row(values: Sequence[Fraction]) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


def _corollary() -> PaperFinding:
    cases = []
    for q in (Fraction(1, 10), Fraction(2, 5)):
        p = 1 - q
        for a, b in itertools.product(itertools.product(_SIZES, repeat=2), repeat=2):
            if a[1] / a[0] >= b[1] / b[0]:
                left, right = ((q * v[0] + p * v[1]) / (p * v[0] + q * v[1]) for v in (a, b))
                cases.append(Case(f"a = {_row(a)}, a' = {_row(b)}, q = {q}", right, left))
    how = "every instance from {1/2, 1, 3}, two q."
    return claim("KR", "4, Corollary 4.1", "the ratio rises in a_2/a_1", cases, how)


def _lemma_3() -> PaperFinding:
    cases = []
    values = (Fraction(0), Fraction(1), Fraction(3))
    positive = (Fraction(1), Fraction(3))
    spots = itertools.product(
        positive, positive, values, values, values, values, positive, positive
    )
    for a, a2, b, b2, c, c2, lam, mu in spots:
        if a * c2 >= a2 * c and a * b2 <= a2 * b and b * c2 >= b2 * c:
            left = (a * lam + b * mu) / (c * lam + a * mu)
            right = (a2 * lam + b2 * mu) / (c2 * lam + a2 * mu)
            cases.append(Case(f"{(a, a2, b, b2, c, c2, lam, mu)}", right, left))
    how = "every instance from {0, 1, 3} that satisfies (4.5)."
    return claim("KR", "4, Lemma 4.3", "(4.4) if (4.5)", cases, how)


def _references() -> PaperFinding:
    """Look up the references of the later version, which kept the numbers of an older section."""
    labels = {"Lemma 4.1", "(4.1)", "(4.2)", "(4.3)", "(4.4)", "(4.5)"}
    printed = ("Lemma 5.1", "(5.1)", "(5.2)", "(5.3)", "(5.4)", "(5.5)")
    return claim(
        "KR",
        "later version, 1 and 4",
        "Lemma 5.1, (5.1) to (5.5)",
        [Case(name, name, labels) for name in printed],
        "",
        holds=lambda name, names: name in names,
        meant=[Case(name, name.replace("5.", "4.", 1), labels) for name in printed],
        instead="Lemma 4.1, (4.1) to (4.5)",
        why=lambda case: (
            f"{len(printed)} references such as {case.left} point to nothing; with 4"
            " in place of 5 each of them is found."
        ),
    )


def _old_bound() -> PaperFinding:
    """Compare: section 5 bounds a ratio by epsilon; the definition (1.2) has e^epsilon."""
    rows = []
    for q in (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5)):
        pmfs = [channel((bit,), q) for bit in (0, 1)]
        largest = max(s / t for a in pmfs for b in pmfs for s, t in zip(a, b, strict=True))
        rows.append((f"q = {q}", math.log(largest), float(largest)))
    return claim(
        "KR",
        "5, Old stuff",
        "P[A_0(x) = s] <= epsilon P[A_0(x') = s]",
        [Case(at, epsilon, largest) for at, epsilon, largest in rows],
        "",
        holds=equal,
        meant=[Case(at, math.exp(epsilon), largest) for at, epsilon, largest in rows],
        instead="<= e^epsilon P[A_0(x') = s]",
        why=lambda case: (
            f"flipping a bit with {case.at} is {show(case.left)}-differentially private and its"
            f" largest ratio is {show(case.right)} = e^{show(case.left)}, above the printed bound"
            f" {show(case.left)}."
        ),
    )
