"""The lecture: randomized response, where p is the flip probability, and the Laplace mechanism."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from scipy import integrate, special

from shoal.lab.papers import Case, Paper, PaperFinding, at_most, equal, show
from shoal.theory.calibration import smallest
from shoal.theory.enumeration import channel, histogram_pmf
from shoal.theory.randomized_response import local_epsilon, posterior

LEC = Paper("LEC")
_FLIPS = tuple(Fraction(i, 20) for i in range(1, 10))


@LEC.part
def _example() -> Iterator[PaperFinding]:
    priors = [i / 20 for i in range(1, 20)]
    yield LEC.claim(
        "Example 1.1", "posterior = prior at flip probability 1/2",
        [Case(f"prior {prior}", posterior(prior, 0.5, 1), prior) for prior in priors],
        "Bayes' rule at 19 priors.", holds=equal,
    )  # fmt: skip
    yield LEC.claim(
        "Example 1.2", "the report is the bit at flip probability 0",
        [Case(f"prior {prior}", posterior(prior, 0.0, bit), bit)
         for prior in priors for bit in (0, 1)],
        "Bayes' rule at 19 priors.", holds=equal,
    )  # fmt: skip


@LEC.part
def _two_coins() -> Iterator[PaperFinding]:
    half = Fraction(1, 2)
    flips = [(q, half * 0 + half * q) for q in (Fraction(i, 10) for i in range(11))]
    cases = [Case(f"q = {q}", flip, q / 2) for q, flip in flips]
    yield LEC.claim(
        "Remark 1", "P[M(b) = 1 - b] = q/2", cases, "both coins, in fractions.", holds=equal
    )


@LEC.part
def _privacy() -> Iterator[PaperFinding]:
    cases = []
    for p in _FLIPS:
        pmfs = [channel((bit,), p) for bit in (0, 1)]
        largest = max(s / t for a in pmfs for b in pmfs for s, t in zip(a, b, strict=True))
        printed = max(math.log(p / (1 - p)), math.log((1 - p) / p))
        cases.append(Case(f"p = {p}", printed, math.log(largest)))
    how = "the largest ratio over both bits and both reports, nine p."
    yield LEC.claim("Theorem 2", "epsilon = ln((1-p)/p)", cases, how, holds=equal)
    ends = [Case("p = 1/2", local_epsilon(1, 0.5), 0.0)] + [
        Case(f"p = {p}", local_epsilon(1, p) + 6.9, local_epsilon(1, p / 1000.0))
        for p in (1e-1, 1e-4, 1e-7, 1e-10)
    ]
    how = f"0 at p = 1/2, {show(local_epsilon(1, 1e-9))} at p = 1e-9, 6.9 more for each p/1000."
    yield LEC.claim("after Theorem 2", "epsilon = 0 at 1/2, infinite at 0", ends, how)


def _mean_report(bit: int, p: Fraction) -> Fraction:
    """E[M(b)] from the channel that flips with probability p."""
    return channel((bit,), p)[1]


@LEC.part
def _expectation() -> Iterator[PaperFinding]:
    def formula(bit: int, p: Fraction) -> Fraction:
        return 1 - p + (2 * p - 1) * bit

    pairs = list(itertools.product((0, 1), _FLIPS))
    quarter = Fraction(1, 4)
    yield LEC.claim(
        "Claim 3, expectation",
        "E[M(b)] = 1 - p + (2p-1) b",
        [Case(f"b = {b}, p = {p}", formula(b, p), _mean_report(b, p)) for b, p in pairs],
        holds=equal,
        meant=[Case(f"b = {b}, p = {p}", formula(b, 1 - p), _mean_report(b, p)) for b, p in pairs],
        instead="E[M(b)] = p + (1-2p) b",
        why=lambda _: (
            f"RR_p flips with probability p, so at p = 1/4, b = 1 the mean report is"
            f" {_mean_report(1, quarter)} and not {formula(1, quarter)}; the formula is right for"
            " p = probability of the truth."
        ),
    )


def _estimate(count: int, people: int, p: Fraction) -> Fraction:
    """Apply the printed estimator."""
    return (Fraction(count, people) - (1 - p)) / (2 * p - 1)


@LEC.part
def _estimator() -> Iterator[PaperFinding]:
    people = 4
    printed: list[Case] = []
    meant: list[Case] = []
    for ones, p in itertools.product(range(people + 1), _FLIPS):
        pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), p)
        truth, at = Fraction(ones, people), f"mean {Fraction(ones, people)}, p = {p}"
        for flip, into in ((p, printed), (1 - p, meant)):
            mean = sum(chance * _estimate(s[1], people, flip) for s, chance in pmf.items())
            into.append(Case(at, mean, truth))
    yield LEC.claim(
        "Claim 3, estimator",
        "(mean - (1-p)) / (2p-1) is unbiased",
        printed,
        holds=equal,
        meant=meant,
        instead="(mean - p) / (1-2p) is unbiased",
        why=lambda _: (
            "as printed its expectation is "
            + ", ".join(
                f"{c.left} for a mean of {c.right}" for c in printed if c.at.endswith("1/4")
            )
            + " (p = 1/4): one minus the mean."
        ),
    )


@LEC.part
def _variance() -> Iterator[PaperFinding]:
    people = 5
    cases = []
    for ones, p in itertools.product(range(people + 1), _FLIPS):
        pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), p)
        values = [(chance, (Fraction(s[1], people) - p) / (1 - 2 * p)) for s, chance in pmf.items()]
        mean = sum(chance * value for chance, value in values)
        variance = sum(chance * (value - mean) ** 2 for chance, value in values)
        cases.append(Case(f"{ones} ones, p = {p}", variance, 1 / (4 * (2 * p - 1) ** 2 * people)))
    how = "the distribution of all counts of 5 people, in fractions."
    yield LEC.claim("Theorem 5, proof", "Var <= 1 / (4 (2p-1)^2 n)", cases, how)


@LEC.part
def _accuracy() -> Iterator[PaperFinding]:
    """Exact probability of an error beyond the bound, with the estimator that was meant."""
    from shoal.theory.binomial import pmf

    cases = []
    for people, p, risk in itertools.product((10, 100, 1000), (0.1, 0.25, 0.4), (0.01, 0.05, 0.2)):
        bound = _bound(people, p, risk)
        for ones in (0, people // 10, people // 2, people):
            outside = sum(
                float(chance)
                for s, chance in enumerate(pmf(people, ones, p))
                if abs((s / people - p) / (1.0 - 2.0 * p) - ones / people) > bound
            )
            cases.append(Case(f"n = {people}, m = {ones}, p = {p}, delta = {risk}", outside, risk))
    worst = max(cases, key=lambda case: case.left / case.right)
    how = (
        f"exact pmfs of counts, with Claim 3 repaired; the largest miss is {show(worst.left)} for"
        f" delta = {worst.right}."
    )
    yield LEC.claim("Theorem 5", "error <= sqrt(1/delta) / (2(1-2p) sqrt n)", cases, how)


def _bound(people: int, p: float, risk: float) -> float:
    """Return the error bound of Theorem 5."""
    return math.sqrt(1.0 / risk) / (2.0 * (1.0 - 2.0 * p) * math.sqrt(people))


@LEC.part
def _sample_size() -> Iterator[PaperFinding]:
    """Solve the bound for n: times (alpha gamma)^2 it is one constant per delta."""

    def people(alpha: float, gamma: float, risk: float) -> int:
        return smallest(lambda n: _bound(n, 0.5 - gamma, risk) <= alpha, 1, 1 << 60)

    example = float(people(0.01, 0.1, 0.05))
    spots = itertools.product((0.02, 0.01), (0.1, 0.01), (0.05, 0.2))
    cases = [
        Case(f"alpha = {a}, gamma = {g}, delta = {d}", people(a, g, d) * (a * g) ** 2, 1 / (16 * d))
        for a, g, d in spots
    ]
    yield LEC.claim(
        "after Theorem 5",
        "n = Omega(1/(alpha^2 gamma^2))",
        cases,
        f"the bound solved for n is 1/(16 delta) / (alpha gamma)^2: {show(example)} people for"
        " alpha = 0.01, gamma = 0.1, delta = 0.05.",
        holds=lambda left, right: math.isclose(left, right, rel_tol=1e-3),
    )


_SCALES = (0.5, 1.0, 3.0)
_RISKS = (0.01, 0.05, 0.5)


def density(z: float, b: float) -> float:
    """Density of Lap(b) at z (LEC 2)."""
    return math.exp(-abs(z) / b) / (2.0 * b)


def _largest_change(
    query: Callable[[tuple[int, ...]], Fraction], values: range, people: int
) -> Fraction:
    """Largest change of the query when one person's value changes."""
    return max(
        abs(query(x) - query((*x[:-1], other)))
        for x in itertools.product(values, repeat=people)
        for other in values
    )


def _count(x: tuple[int, ...]) -> Fraction:
    return Fraction(sum(x))


def _mean(x: tuple[int, ...]) -> Fraction:
    return Fraction(sum(x), len(x))


@LEC.part
def _sensitivities() -> Iterator[PaperFinding]:
    where = "after Definition 6"
    how = "all databases of 1 to 5 people and all changes of one."
    sizes = range(1, 6)
    counts = [Case(f"n = {n}", Fraction(1), _largest_change(_count, range(2), n)) for n in sizes]
    yield LEC.claim(where, "a count: 1", counts, how, holds=equal)
    shares = [Case(f"n = {n}", Fraction(1, n), _largest_change(_mean, range(2), n)) for n in sizes]
    yield LEC.claim(where, "a fraction: 1/n", shares, how, holds=equal)
    salaries = [
        Case(
            f"salaries up to {top}",
            Fraction(top, 3),
            _largest_change(_mean, range(0, top + 1, top), 3),
        )
        for top in (10, 1000, 100_000)
    ]
    how = "for three people a third of the largest salary allowed, which nothing bounds."
    yield LEC.claim(where, "a mean salary: infinite", salaries, how, holds=equal)


@LEC.part
def _moments() -> Iterator[PaperFinding]:
    cases = []
    for b in _SCALES:
        for name, power, right in (
            ("mass", 0, 1.0),
            ("mean", 1, 0.0),
            ("variance", 2, 2.0 * b * b),
        ):
            sides = [
                integrate.quad(
                    lambda z, s=side, k=power, b=b: (s * z) ** k * density(z, b), 0.0, math.inf
                )[0]
                for side in (-1.0, 1.0)
            ]
            cases.append(Case(f"{name}, b = {b}", sum(sides), right))
    how = "quadrature of the printed density, three b."
    statement = "mass 1, mean 0, variance 2 b^2"
    yield LEC.claim("2, Lap(b)", statement, cases, how, holds=lambda s, t: abs(s - t) < 1e-7)


@LEC.part
def _ratio() -> Iterator[PaperFinding]:
    """Theorem 8: the density at s moves by a factor of at most e^epsilon, and that much."""
    cases = []
    for epsilon, change in itertools.product((0.1, 1.0, 3.0), (0.5, 1.0, 2.0)):
        b = change / epsilon
        grid = np.linspace(-10 * b, 10 * b, 401)
        top = max(density(s, b) / density(s - change, b) for s in grid)
        top = max(top, density(0.0, b) / density(change, b))
        cases.append(Case(f"epsilon = {epsilon}, Delta = {change}", float(top), math.exp(epsilon)))
    how = "the largest ratio of densities on a grid is e^epsilon."
    yield LEC.claim("Theorem 8", "the ratio is at most e^epsilon", cases, how, holds=equal)


@LEC.part
def _triangle() -> Iterator[PaperFinding]:
    """Try the inequality of the proof with f(x) = x, f(y) = y: it needs |s - f(x)|."""
    grid = range(-4, 5)
    spots = [(x, y, s) for x, y, s in itertools.product(grid, repeat=3) if x != y]
    yield LEC.claim(
        "Theorem 8, proof",
        "|s - f(y)| - |y - f(x)| <= |f(y) - f(x)|",
        [Case(f"f(x) = x = {x}, f(y) = y = {y}, s = {s}", abs(s - y) - abs(y - x), abs(y - x))
         for x, y, s in spots],
        meant=[Case("", abs(s - y) - abs(s - x), abs(y - x)) for x, y, s in spots],
        instead="|s - f(y)| - |s - f(x)| <= |f(y) - f(x)|",
        why=lambda case: f"{case.at}: {case.left} > {case.right}; with s in place of y it holds on"
        f" all {len(spots)} points of a grid.",
    )  # fmt: skip


@LEC.part
def _tail() -> Iterator[PaperFinding]:
    cases = []
    for b, risk in itertools.product(_SCALES, _RISKS):
        beyond = math.log(1.0 / risk) * b
        tail = 2.0 * integrate.quad(lambda z, b=b: density(z, b), beyond, math.inf)[0]
        cases.append(Case(f"b = {b}, delta = {risk}", tail, risk))
    how = "quadrature beyond ln(1/delta) b: the tail is delta exactly."
    statement = "P[|Z| >= ln(1/delta) b] <= delta"
    yield LEC.claim("Theorem 9", statement, cases, how, holds=lambda s, t: abs(s - t) < 1e-8)


@LEC.part
def _vector_sensitivity() -> Iterator[PaperFinding]:
    def counts(people: tuple[int, ...]) -> tuple[int, int]:
        return people.count(0), people.count(1)

    def distance(x: tuple[int, ...], y: tuple[int, ...]) -> int:
        return sum(abs(a - b) for a, b in zip(counts(x), counts(y), strict=True))

    cases = []
    for n in range(1, 5):
        databases = list(itertools.product((0, 1), repeat=n))
        swap = max(distance(x, (*x[:-1], 1 - x[-1])) for x in databases)
        drop = max(distance(x, x[:-1]) for x in databases)
        cases += [Case(f"swap, n = {n}", 2, swap), Case(f"add or delete, n = {n}", 1, drop)]
    how = "all databases of 1 to 4 people."
    statement = "two counts: 2 by swap, 1 by addition-deletion"
    yield LEC.claim("after Definition 10", statement, cases, how, holds=equal)


@LEC.part
def _codomain() -> Iterator[PaperFinding]:
    """Adding (Z_1, ..., Z_d) to f(x) only makes sense for f(x) in R^d."""
    dimensions = (2, 3, 10)
    noise = {d: np.zeros(d).shape for d in dimensions}
    d, risk = 10, 0.05
    beyond = math.log(d / risk)
    largest = 1.0 - (1.0 - math.exp(-beyond)) ** d
    total = float(special.gammaincc(d, beyond))
    yield LEC.claim(
        "Theorem 12, codomain",
        "for any function f: N^X -> R",
        [Case(f"d = {d}", (), noise[d]) for d in dimensions],
        holds=equal,
        meant=[Case(f"d = {d}", (d,), noise[d]) for d in dimensions],
        instead="f: N^X -> R^d, |.| the largest coordinate",
        why=lambda _: (
            f"the noise has d coordinates; at d = {d}, delta = {risk} the largest of them"
            f" is beyond the bound with probability {show(largest)}, but their l1 norm with"
            f" {show(total)}."
        ),
    )


@LEC.part
def _vector_tail() -> Iterator[PaperFinding]:
    cases = [
        Case(f"d = {d}, delta = {risk}", 1.0 - (1.0 - risk / d) ** d, risk)
        for d, risk in itertools.product((1, 2, 10, 1000), _RISKS)
    ]
    how = "the largest of d independent coordinates, 1 - (1 - delta/d)^d."
    statement = "P[error >= ln(d/delta) b] <= delta"
    yield LEC.claim("Theorem 12", statement, cases, how, holds=at_most)
