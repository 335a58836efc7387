"""Two short documents: the lecture, and OpenDP's proof of its bit-vector randomizer.

LEC is about randomized response, where p is the flip probability, and the Laplace mechanism. BITVEC
has Theorems 3.2, 3.3 and 3.4, with f = 2q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
from scipy import integrate, special

from shoal.lab import papers
from shoal.lab.papers import Case, Findings, PaperFinding, at_most, equal, estimate_moments, show
from shoal.theory.binomial import pmf
from shoal.theory.calibration import smallest
from shoal.theory.domains import at_most as at_most_set
from shoal.theory.domains import differing_bits
from shoal.theory.enumeration import channel, originals
from shoal.theory.randomized_response import local_epsilon, posterior

_claim = partial(papers.claim, "LEC")
_FLIPS = tuple(Fraction(i, 20) for i in range(1, 10))
_SCALES = (0.5, 1.0, 3.0)
_RISKS = (0.01, 0.05, 0.5)


def findings() -> Findings:
    yield from _privacy()
    yield _expectation()
    yield _estimator()
    yield from _accuracy()
    yield from _sensitivities()
    yield from _laplace()
    yield from _vectors()
    yield from _bitvec_findings()


def _privacy() -> Findings:
    priors, how = [i / 20 for i in range(1, 20)], "Bayes' rule at 19 priors."
    cases = [Case(prior, posterior(prior, 0.5, 1), prior) for prior in priors]
    yield _claim("Example 1.1", "posterior = prior at flip probability 1/2", cases, how)
    cases = [Case(prior, posterior(prior, 0.0, bit), bit) for prior in priors for bit in (0, 1)]
    yield _claim("Example 1.2", "the report is the bit at flip probability 0", cases, how)
    half = Fraction(1, 2)
    cases = [Case(q, half * 0 + half * q, q / 2) for q in (Fraction(i, 10) for i in range(11))]
    yield _claim("Remark 1", "P[M(b) = 1 - b] = q/2", cases, "both coins, in fractions.")
    ratios = {p: papers.largest_local_ratio([(0,), (1,)], p) for p in _FLIPS}
    yield _claim(
        "Theorem 2",
        "epsilon = ln((1-p)/p)",
        [
            Case(p, max(math.log(p / (1 - p)), math.log((1 - p) / p)), math.log(ratio))
            for p, ratio in ratios.items()
        ],
        "the largest ratio over both bits and both reports, nine p.",
    )
    ends = [Case("p = 1/2", local_epsilon(1, 0.5), 0.0)] + [
        Case(p, local_epsilon(1, p) + 6.9, local_epsilon(1, p / 1000.0))
        for p in (1e-1, 1e-4, 1e-7, 1e-10)
    ]
    how = f"0 at p = 1/2, {show(local_epsilon(1, 1e-9))} at p = 1e-9, 6.9 more for each p/1000."
    yield _claim("after Theorem 2", "epsilon = 0 at 1/2, infinite at 0", ends, how, holds=at_most)


def _expectation() -> PaperFinding:
    def formula(bit: int, p: Fraction) -> Fraction:
        return 1 - p + (2 * p - 1) * bit

    means = {(b, p): channel((b,), p)[1] for b, p in product((0, 1), _FLIPS)}
    quarter = Fraction(1, 4)
    return _claim(
        "Claim 3, expectation",
        "E[M(b)] = 1 - p + (2p-1) b",
        [Case((b, p), formula(b, p), mean) for (b, p), mean in means.items()],
        meant=[Case((b, p), formula(b, 1 - p), mean) for (b, p), mean in means.items()],
        instead="E[M(b)] = p + (1-2p) b",
        why=lambda _: (
            f"RR_p flips with probability p, so at p = 1/4, b = 1 the mean report is"
            f" {means[1, quarter]} and not {formula(1, quarter)}; the formula is right for"
            " p = probability of the truth."
        ),
    )


def _estimator() -> PaperFinding:
    """Debias with 1 - p in place of p, as printed, and with p."""
    people = 4
    printed, meant = (
        [
            Case(p, estimate_moments(people, ones, p, assumed)[0] / people, Fraction(ones, people))
            for ones, p in product(range(people + 1), _FLIPS)
            for assumed in [1 - p if wrong else p]
        ]
        for wrong in (True, False)
    )
    quarters = [case for case in printed if case.at == Fraction(1, 4)]
    return _claim(
        "Claim 3, estimator",
        "(mean - (1-p)) / (2p-1) is unbiased",
        printed,
        meant=meant,
        instead="(mean - p) / (1-2p) is unbiased",
        why=lambda _: (
            "as printed its expectation is "
            + ", ".join(f"{case.left} for a mean of {case.right}" for case in quarters)
            + " (p = 1/4): one minus the mean."
        ),
    )


def _accuracy() -> Findings:
    """Theorem 5, with the estimator that was meant."""
    people = 5
    yield _claim(
        "Theorem 5, proof",
        "Var <= 1 / (4 (2p-1)^2 n)",
        [
            Case((ones, p), estimate_moments(people, ones, p)[1] / people**2, bound)
            for ones, p in product(range(people + 1), _FLIPS)
            for bound in [1 / (4 * (2 * p - 1) ** 2 * people)]
        ],
        "the distribution of all counts of 5 people, in fractions.",
        holds=at_most,
    )
    spots = product((10, 100, 1000), (0.1, 0.25, 0.4), (0.01, 0.05, 0.2))
    cases = [
        Case((n, ones, p, risk), _miss(n, ones, p, risk), risk)
        for n, p, risk in spots
        for ones in (0, n // 10, n // 2, n)
    ]
    worst = max(cases, key=lambda case: float(case.left / case.right))
    how = (
        f"exact pmfs of counts, with Claim 3 repaired; the largest miss is {show(worst.left)} for"
        f" delta = {worst.right}."
    )
    statement = "error <= sqrt(1/delta) / (2(1-2p) sqrt n)"
    yield _claim("Theorem 5", statement, cases, how, holds=at_most)

    def needed(alpha: float, gamma: float, risk: float) -> int:
        return smallest(lambda n: _bound(n, 0.5 - gamma, risk) <= alpha, 1, 1 << 60)

    # times (alpha gamma)^2 it is one constant per delta
    yield _claim(
        "after Theorem 5",
        "n = Omega(1/(alpha^2 gamma^2))",
        [
            Case((a, g, d), needed(a, g, d) * (a * g) ** 2, 1 / (16 * d))
            for a, g, d in product((0.02, 0.01), (0.1, 0.01), (0.05, 0.2))
        ],
        "the bound solved for n is 1/(16 delta) / (alpha gamma)^2:"
        f" {show(float(needed(0.01, 0.1, 0.05)))} people for"
        " alpha = 0.01, gamma = 0.1, delta = 0.05.",
        holds=lambda left, right: math.isclose(left, right, rel_tol=1e-3),
    )


def _bound(people: int, p: float, risk: float) -> float:
    return math.sqrt(1.0 / risk) / (2.0 * (1.0 - 2.0 * p) * math.sqrt(people))


def _miss(people: int, ones: int, p: float, risk: float) -> float:
    chances, bound = pmf(people, ones, p).tolist(), _bound(people, p, risk)
    errors = [(s / people - p) / (1.0 - 2.0 * p) - ones / people for s in range(people + 1)]
    return sum(
        (chance for chance, error in zip(chances, errors, strict=True) if abs(error) > bound), 0.0
    )


def density(z: float, b: float) -> float:
    """Density of Lap(b) at z (LEC 2)."""
    return math.exp(-abs(z) / b) / (2.0 * b)


def _sensitivities() -> Findings:
    where, how = "after Definition 6", "all databases of 1 to 5 people and all changes of one."
    sizes = range(1, 6)

    def largest_change(
        query: Callable[[tuple[int, ...]], Fraction], values: range, people: int
    ) -> Fraction:
        databases = product(values, repeat=people)
        return max(abs(query(x) - query((*x[:-1], y))) for x in databases for y in values)

    def mean(x: tuple[int, ...]) -> Fraction:
        return Fraction(sum(x), len(x))

    counts = [Case(n, 1, largest_change(lambda x: Fraction(sum(x)), range(2), n)) for n in sizes]
    yield _claim(where, "a count: 1", counts, how)
    shares = [Case(n, Fraction(1, n), largest_change(mean, range(2), n)) for n in sizes]
    yield _claim(where, "a fraction: 1/n", shares, how)
    salaries = [
        Case(top, Fraction(top, 3), largest_change(mean, range(0, top + 1, top), 3))
        for top in (10, 1000, 100_000)
    ]
    how = "for three people a third of the largest salary allowed, which nothing bounds."
    yield _claim(where, "a mean salary: infinite", salaries, how)


def _laplace() -> Findings:
    def moment(power: int, b: float) -> float:
        def half(side: float) -> float:
            return float(
                integrate.quad(lambda z: (side * z) ** power * density(z, b), 0.0, math.inf)[0]
            )

        return half(-1.0) + half(1.0)

    yield _claim(
        "2, Lap(b)",
        "mass 1, mean 0, variance 2 b^2",
        [
            Case((power, b), moment(power, b), right)
            for b in _SCALES
            for power, right in enumerate((1.0, 0.0, 2.0 * b * b))
        ],
        "quadrature of the printed density, three b.",
        holds=lambda s, t: abs(s - t) < 1e-7,
    )
    cases = []
    for epsilon, change in product((0.1, 1.0, 3.0), (0.5, 1.0, 2.0)):
        b = change / epsilon
        grid = [0.0, *np.linspace(-10 * b, 10 * b, 401).tolist()]
        top = max(density(s, b) / density(s - change, b) for s in grid)
        cases.append(Case((epsilon, change), top, math.exp(epsilon)))
    how = "the largest ratio of densities on a grid is e^epsilon."
    yield _claim("Theorem 8", "the ratio is at most e^epsilon", cases, how)
    # with f(x) = x, f(y) = y the inequality of the proof needs |s - f(x)|
    spots = [(x, y, s) for x, y, s in product(range(-4, 5), repeat=3) if x != y]
    yield _claim(
        "Theorem 8, proof",
        "|s - f(y)| - |y - f(x)| <= |f(y) - f(x)|",
        [Case(f"f(x) = x = {x}, f(y) = y = {y}, s = {s}", abs(s - y) - abs(y - x), abs(y - x))
         for x, y, s in spots],
        holds=at_most,
        meant=[Case("", abs(s - y) - abs(s - x), abs(y - x)) for x, y, s in spots],
        instead="|s - f(y)| - |s - f(x)| <= |f(y) - f(x)|",
        why=lambda case: f"{case.at}: {case.left} > {case.right}; with s in place of y it holds on"
        f" all {len(spots)} points of a grid.",
    )  # fmt: skip

    def tail(b: float, risk: float) -> float:
        start = math.log(1.0 / risk) * b
        return 2.0 * float(integrate.quad(lambda z: density(z, b), start, math.inf)[0])

    yield _claim(
        "Theorem 9",
        "P[|Z| >= ln(1/delta) b] <= delta",
        [Case((b, risk), tail(b, risk), risk) for b, risk in product(_SCALES, _RISKS)],
        "quadrature beyond ln(1/delta) b: the tail is delta exactly.",
        holds=lambda s, t: abs(s - t) < 1e-8,
    )


def _vectors() -> Findings:
    def distance(x: tuple[int, ...], y: tuple[int, ...]) -> int:
        return sum(abs(x.count(value) - y.count(value)) for value in (0, 1))

    cases = []
    for n in range(1, 5):
        databases = list(product((0, 1), repeat=n))
        swap = max(distance(x, (*x[:-1], 1 - x[-1])) for x in databases)
        drop = max(distance(x, x[:-1]) for x in databases)
        cases += [Case(f"swap, n = {n}", 2, swap), Case(f"add or delete, n = {n}", 1, drop)]
    statement = "two counts: 2 by swap, 1 by addition-deletion"
    yield _claim("after Definition 10", statement, cases, "all databases of 1 to 4 people.")
    # adding (Z_1, ..., Z_d) to f(x) only makes sense for f(x) in R^d
    noise = {d: np.zeros(d).shape for d in (2, 3, 10)}
    d, risk = 10, 0.05
    beyond = math.log(d / risk)
    largest = 1.0 - (1.0 - math.exp(-beyond)) ** d
    yield _claim(
        "Theorem 12, codomain",
        "for any function f: N^X -> R",
        [Case(size, (), shape) for size, shape in noise.items()],
        meant=[Case(size, (size,), shape) for size, shape in noise.items()],
        instead="f: N^X -> R^d, |.| the largest coordinate",
        why=lambda _: (
            f"the noise has d coordinates; at d = {d}, delta = {risk} the largest of them"
            f" is beyond the bound with probability {show(largest)}, but their l1 norm with"
            f" {show(float(special.gammaincc(d, beyond)))}."
        ),
    )
    spots = product((1, 2, 10, 1000), _RISKS)
    cases = [Case((d, risk), 1.0 - (1.0 - risk / d) ** d, risk) for d, risk in spots]
    how = "the largest of d independent coordinates, 1 - (1 - delta/d)^d."
    statement = "P[error >= ln(d/delta) b] <= delta"
    yield _claim("Theorem 12", statement, cases, how, holds=at_most)


_bitvec = partial(papers.claim, "BITVEC")
_FS = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))


def _bitvec_findings() -> Findings:
    yield _bitvec(
        "(1), (2)",
        "P[y_j = 1] = 1 - f/2 or f/2",
        (
            Case((f, bit), 1 - f / 2 if bit else f / 2, channel((bit,), f / 2)[1])
            for f, bit in product(_FS, (0, 1))
        ),
        "the channel with q = f/2.",
    )
    yield from _privacy_of_bitvec()
    yield _bitvec(
        "Theorem 3.3, (9)",
        "the estimate is unbiased",
        (
            Case((ones, f), estimate_moments(5, ones, f / 2)[0], Fraction(ones))
            for ones, f in product(range(6), _FS)
        ),
        "all counts of 5 people; at f = 1, which the program accepts, (9) divides by 0.",
    )
    people, bits = 4, 3
    errors = {
        (ones, f): variance + (mean - ones) ** 2
        for ones, f in product(range(people + 1), _FS)
        for mean, variance in [estimate_moments(people, ones, f / 2)]
    }
    yield _bitvec(
        "Theorem 3.4",
        "MSE = nk (f - f^2/2) / (2 (1-f)^2)",
        (
            Case(
                (columns, f),
                people * bits * (f - f**2 / 2) / (2 * (1 - f) ** 2),
                sum(errors[ones, f] for ones in columns),
            )
            for columns, f in product(product(range(people + 1), repeat=bits), _FS)
        ),
        "n = 4, k = 3, every vector of counts, in fractions.",
    )


def _privacy_of_bitvec() -> Findings:
    q = Fraction(1, 4)
    rows = [
        (m, k, papers.largest_local_ratio(originals((at_most_set(m, k),)), q))
        for m in (1, 2)
        for k in range(m, 7)
    ]

    def case(m: int, k: int, top: Fraction, power: int) -> Case:
        return Case(f"m = {m}, k = {k}, f = {2 * q}", local_epsilon(power, float(q)), math.log(top))

    yield _bitvec(
        "Theorem 3.2, 2m + 1 < k",
        "epsilon = 2m ln((2-f)/f)",
        [case(m, k, top, 2 * m) for m, k, top in rows if 2 * m + 1 < k],
        "the largest ratio over all inputs and reports.",
    )
    tight = [case(m, k, top, differing_bits((at_most_set(m, k),))) for m, k, top in rows]
    reached = sum(equal(one.left, one.right) for one in tight)
    least = min(k for m, k, top in rows if m == 2 and top == ((1 - q) / q) ** (2 * m))
    yield _bitvec(
        "Theorem 3.2, any k",
        "the privacy is not dependent on k",
        [case(m, k, top, 2 * m) for m, k, top in rows],
        why=lambda worst: (
            f"{worst.at}: over all inputs epsilon is {show(worst.right)} and not"
            f" {show(worst.left)}; for m = 2 the bound is reached from k = {least} on, and"
            f" min(2m, k) ln((2-f)/f) is right in {reached} of {len(tight)} cases."
        ),
    )
