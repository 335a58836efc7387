"""SDP section 1.2: which crowd is the worst, and what happens to its promise later.

The two claims are about all collections. A claim about all is refuted by one; the collections here
are small enough to be enumerated in fractions, or homogeneous, where the theory has certified
brackets for any crowd size.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, at_most, claim, equal, show
from shoal.theory.domains import flags
from shoal.theory.enumeration import (
    AnswerPair,
    delta_of_pair,
    eta_of_pair,
    histogram_pmf,
    originals,
    worst_delta,
    worst_eta,
)
from shoal.theory.homogeneous import delta, eta

__all__ = ["findings", "outlier"]

Vector = tuple[int, ...]


def findings() -> Iterator[Finding]:
    """Judge the claims of SDP 1.2."""
    yield _swap_is_worse()
    yield _mixture_is_worse()
    yield _all_homogeneous_alike()
    yield _not_closed()


def outlier(bits: int, crowd: int) -> AnswerPair:
    """SDP's pair: all zeros, against all zeros but one vector of ones."""
    zero = (0,) * bits
    return AnswerPair((zero,) * (crowd - 1), zero, (1,) * bits)


def _swap_is_worse() -> Finding:
    crowd, q, lam = 1000, 0.05, 2
    outlier_eta, swap_eta = (eta(t, crowd, q, math.log(lam)) for t in ((1, 0, 0), (0, 1, 0)))
    outlier_delta, swap_delta = (delta(t, crowd, q, math.log(lam)) for t in ((1, 0, 0), (0, 1, 0)))
    where = f"L = 1, N = {crowd}, q = {q}, lambda = {lam}"
    return claim(
        "SDP",
        f"1.2, claim 1, {where}",
        "the outlier pair has the largest P[R > lambda]",
        [Case("D and D_m exchanged", swap_eta.low, outlier_eta.high)],
        f"the exchanged pair has less, {where}.",
        why=lambda case: (
            f"with D and D_m exchanged eta is {show(case.left)} against {show(case.right)},"
            f" and delta {show(swap_delta, 2)} against {show(outlier_delta, 2)}."
        ),
    )


def _mixture_is_worse() -> Finding:
    q, lam, crowd = Fraction(1, 10), Fraction(9), 10
    zero, one = (0, 0), (1, 1)
    mixed = AnswerPair((zero,) * 5 + (one,) * 4, one, zero)
    forward, reverse = outlier(2, crowd), AnswerPair((zero,) * (crowd - 1), one, zero)
    best = max(eta_of_pair(pair, q, lam) for pair in (forward, reverse))
    deltas = [show(delta_of_pair(pair, q, lam), 4) for pair in (mixed, forward, reverse)]
    return claim(
        "SDP",
        "1.2, claim 1, L = 2, N = 10, q = 0.1, lambda = 9",
        "the outlier pair has the largest P[R > lambda]",
        [Case("5 x 00 + 4 x 11, 11 becomes 00", eta_of_pair(mixed, q, lam), best)],
        "the mixed crowd has less.",
        why=lambda case: (
            f"{case.at}: eta is {show(case.left)}, both homogeneous directions have at"
            f" most {show(case.right)}; delta is {deltas[0]} against {deltas[1]} forward and"
            f" {deltas[2]} reverse."
        ),
    )


def _all_homogeneous_alike() -> Finding:
    cases = []
    for bits, crowd, q in itertools.product((1, 2), (2, 3), (Fraction(1, 5), Fraction(2, 5))):
        laws = {}
        for x in itertools.product((0, 1), repeat=bits):
            opposite = tuple(1 - bit for bit in x)
            laws[x] = _ratio_law(AnswerPair((x,) * (crowd - 1), x, opposite), q)
        first = laws[(0,) * bits]
        cases += [Case(f"z = {x}, N = {crowd}, q = {q}", law, first) for x, law in laws.items()]
    return claim(
        "SDP",
        "1.2, claim 2",
        "all homogeneous D with an outlier have one law of R",
        cases,
        "the laws of R for every z, in fractions.",
        holds=equal,
    )


def _ratio_law(pair: AnswerPair, q: Fraction) -> Counter[tuple[Fraction, Fraction]]:
    towards = histogram_pmf((*pair.others, pair.x_prime), q)
    away = histogram_pmf((*pair.others, pair.x), q)
    return Counter((chance / away[s], chance) for s, chance in towards.items())


def _bit_counts(law: dict[Vector, Fraction], bits: int) -> dict[Vector, Fraction]:
    """Publish how often each bit is set, instead of the histogram."""
    vectors = list(itertools.product((0, 1), repeat=bits))
    merged: dict[Vector, Fraction] = {}
    for counts, chance in law.items():
        key = tuple(
            sum(n * v[j] for n, v in zip(counts, vectors, strict=True)) for j in range(bits)
        )
        merged[key] = merged.get(key, Fraction(0)) + chance
    return merged


def _not_closed() -> Finding:
    bits, crowd, q, lam = 2, 2, Fraction(2, 5), Fraction(11, 10)
    full = {"eta": worst_eta((flags(bits),), crowd, q, lam)[0],
            "delta": worst_delta((flags(bits),), crowd, q, lam)[0]}  # fmt: skip
    counts = {"eta": Fraction(0), "delta": Fraction(0)}
    vectors = originals((flags(bits),))
    for others in itertools.combinations_with_replacement(vectors, crowd - 1):
        laws = {y: _bit_counts(histogram_pmf((*others, y), q), bits) for y in vectors}
        for x, changed in itertools.permutations(vectors, 2):
            both = [(chance, laws[x][key]) for key, chance in laws[changed].items()]
            counts["eta"] = max(
                counts["eta"], sum((s for s, t in both if s > lam * t), Fraction(0))
            )
            lost = sum((max(s - lam * t, Fraction(0)) for s, t in both), Fraction(0))
            counts["delta"] = max(counts["delta"], lost)
    where = f"L = {bits}, N = {crowd}, q = {q}, lambda = {lam}"
    trend = "falls" if at_most(counts["delta"], full["delta"]) else "rises"
    return claim(
        "SDP",
        "1.2, (1.7), as used in 4",
        "(implied) eta of S bounds what is made of S",
        [Case(where, counts["eta"], full["eta"])],
        f"publishing bit counts does not raise eta, {where}.",
        why=lambda case: (
            f"{case.at}: publishing bit counts instead of the histogram raises the"
            f" largest eta from {show(case.right, 4)} to {show(case.left, 4)}, while delta {trend}"
            f" from {show(full['delta'], 4)} to {show(counts['delta'], 4)}."
        ),
    )
