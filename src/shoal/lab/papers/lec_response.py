"""The lecture, section 1: randomized response, where p is the probability of a flip."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, equal, show
from shoal.theory.calibration import smallest
from shoal.theory.enumeration import channel, histogram_pmf
from shoal.theory.randomized_response import local_epsilon, posterior

__all__ = ["findings"]

_FLIPS = tuple(Fraction(i, 20) for i in range(1, 10))


def findings() -> Iterator[Finding]:
    """Recompute Example 1, Remark 1, Theorem 2, Claim 3 and Theorem 5."""
    yield from _example()
    yield _two_coins()
    yield from _privacy()
    yield _expectation()
    yield _estimator()
    yield _variance()
    yield _accuracy()
    yield _sample_size()


def _example() -> Iterator[Finding]:
    priors = [i / 20 for i in range(1, 20)]
    yield claim(
        "LEC", "Example 1.1", "posterior = prior at flip probability 1/2",
        [Case(f"prior {prior}", posterior(prior, 0.5, 1), prior) for prior in priors],
        "Bayes' rule at 19 priors.", holds=equal,
    )  # fmt: skip
    yield claim(
        "LEC", "Example 1.2", "the report is the bit at flip probability 0",
        [Case(f"prior {prior}", posterior(prior, 0.0, bit), bit)
         for prior in priors for bit in (0, 1)],
        "Bayes' rule at 19 priors.", holds=equal,
    )  # fmt: skip


def _two_coins() -> Finding:
    half = Fraction(1, 2)
    flips = [(q, half * 0 + half * q) for q in (Fraction(i, 10) for i in range(11))]
    cases = [Case(f"q = {q}", flip, q / 2) for q, flip in flips]
    return claim(
        "LEC", "Remark 1", "P[M(b) = 1 - b] = q/2", cases, "both coins, in fractions.", holds=equal
    )


def _privacy() -> Iterator[Finding]:
    cases = []
    for p in _FLIPS:
        laws = [channel((bit,), p) for bit in (0, 1)]
        largest = max(s / t for a in laws for b in laws for s, t in zip(a, b, strict=True))
        printed = max(math.log(p / (1 - p)), math.log((1 - p) / p))
        cases.append(Case(f"p = {p}", printed, math.log(largest)))
    how = "the largest ratio over both bits and both reports, nine p."
    yield claim("LEC", "Theorem 2", "epsilon = ln((1-p)/p)", cases, how, holds=equal)
    ends = [Case("p = 1/2", local_epsilon(1, 0.5), 0.0)] + [
        Case(f"p = {p}", local_epsilon(1, p) + 6.9, local_epsilon(1, p / 1000.0))
        for p in (1e-1, 1e-4, 1e-7, 1e-10)
    ]
    how = f"0 at p = 1/2, {show(local_epsilon(1, 1e-9))} at p = 1e-9, 6.9 more for each p/1000."
    yield claim("LEC", "after Theorem 2", "epsilon = 0 at 1/2, infinite at 0", ends, how)


def _mean_report(bit: int, p: Fraction) -> Fraction:
    """E[M(b)] from the channel that flips with probability p."""
    return channel((bit,), p)[1]


def _expectation() -> Finding:
    def formula(bit: int, p: Fraction) -> Fraction:
        return 1 - p + (2 * p - 1) * bit

    pairs = list(itertools.product((0, 1), _FLIPS))
    quarter = Fraction(1, 4)
    return claim(
        "LEC",
        "Claim 3, expectation",
        "E[M(b)] = 1 - p + (2p-1) b",
        [Case(f"b = {b}, p = {p}", formula(b, p), _mean_report(b, p)) for b, p in pairs],
        "",
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


def _estimator() -> Finding:
    people = 4
    printed: list[Case] = []
    meant: list[Case] = []
    for ones, p in itertools.product(range(people + 1), _FLIPS):
        law = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), p)
        truth, at = Fraction(ones, people), f"mean {Fraction(ones, people)}, p = {p}"
        for flip, into in ((p, printed), (1 - p, meant)):
            mean = sum(chance * _estimate(s[1], people, flip) for s, chance in law.items())
            into.append(Case(at, mean, truth))
    return claim(
        "LEC",
        "Claim 3, estimator",
        "(mean - (1-p)) / (2p-1) is unbiased",
        printed,
        "",
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


def _variance() -> Finding:
    people = 5
    cases = []
    for ones, p in itertools.product(range(people + 1), _FLIPS):
        law = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), p)
        values = [(chance, (Fraction(s[1], people) - p) / (1 - 2 * p)) for s, chance in law.items()]
        mean = sum(chance * value for chance, value in values)
        variance = sum(chance * (value - mean) ** 2 for chance, value in values)
        cases.append(Case(f"{ones} ones, p = {p}", variance, 1 / (4 * (2 * p - 1) ** 2 * people)))
    how = "the law of all counts of 5 people, in fractions."
    return claim("LEC", "Theorem 5, proof", "Var <= 1 / (4 (2p-1)^2 n)", cases, how)


def _accuracy() -> Finding:
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
        f"exact laws of counts, with Claim 3 repaired; the largest miss is {show(worst.left)} for"
        f" delta = {worst.right}."
    )
    return claim("LEC", "Theorem 5", "error <= sqrt(1/delta) / (2(1-2p) sqrt n)", cases, how)


def _bound(people: int, p: float, risk: float) -> float:
    """Return the error bound of Theorem 5."""
    return math.sqrt(1.0 / risk) / (2.0 * (1.0 - 2.0 * p) * math.sqrt(people))


def _sample_size() -> Finding:
    """Solve the bound for n: times (alpha gamma)^2 it is one constant per delta."""

    def people(alpha: float, gamma: float, risk: float) -> int:
        return smallest(lambda n: _bound(n, 0.5 - gamma, risk) <= alpha, 1, 1 << 60)

    example = float(people(0.01, 0.1, 0.05))
    spots = itertools.product((0.02, 0.01), (0.1, 0.01), (0.05, 0.2))
    cases = [
        Case(f"alpha = {a}, gamma = {g}, delta = {d}", people(a, g, d) * (a * g) ** 2, 1 / (16 * d))
        for a, g, d in spots
    ]
    return claim(
        "LEC",
        "after Theorem 5",
        "n = Omega(1/(alpha^2 gamma^2))",
        cases,
        f"the bound solved for n is 1/(16 delta) / (alpha gamma)^2: {show(example)} people for"
        " alpha = 0.01, gamma = 0.1, delta = 0.05.",
        holds=lambda left, right: math.isclose(left, right, rel_tol=1e-3),
    )
