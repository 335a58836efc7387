"""SDP 1.2 (the worst crowd), 4 (what less noise buys) and 5 (vectors with few set bits).

One counterexample refutes a claim about all collections. Those here are small enough to be
enumerated in fractions, or homogeneous, where the theory has certified brackets for any crowd size.
Section 5 compares two answers, but the others may hold a third one, which its reductions overlook.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, permutations, product

from shoal.lab import papers
from shoal.lab.papers import Case, Findings, PaperFinding, at_most, sdp_ratio, show
from shoal.lab.papers.sdp_ratio import outlier
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.domains import choice, flags
from shoal.theory.enumeration import (
    AnswerPair,
    Vector,
    delta_of_pair,
    eta_of_pair,
    histogram_pmf,
    originals,
    worst_delta,
    worst_eta,
)
from shoal.theory.homogeneous import delta, eta
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import gain, three_sigma_q

_claim, _number = partial(papers.claim, "SDP"), partial(papers.number, "SDP")
# a claim that bounds the left sides by the right ones
_bound = partial(_claim, holds=at_most)


def findings() -> Findings:
    yield from _worst_crowd()
    yield _not_closed()
    yield from sdp_ratio.findings()
    yield _estimator()
    yield from _short_vectors()
    yield from _long_vectors()
    yield _one_hot()
    yield _large_crowd("5, one of K >= 3 options, N = 10000", _ONE_SET_BIT, 1)
    yield _few_set_bits()
    for k in (2, 3):
        yield _large_crowd(f"5, k = {k}, K >= {3 * k}, N = 10000", _FEW_SET_BITS, k)


def _worst_crowd() -> Findings:
    crowd, q, lam = 1000, 0.05, 2
    etas, deltas = (
        [measure(t, crowd, q, math.log(lam)) for t in ((0, 1, 0), (1, 0, 0))]
        for measure in (eta, delta)
    )
    printed = "the outlier pair has the largest P[R > lambda]"
    yield _bound(
        f"1.2, claim 1, L = 1, N = {crowd}, q = {q}, lambda = {lam}",
        printed,
        [Case("D and D_m exchanged", etas[0].low, etas[1].high)],
        why=lambda case: (
            f"with D and D_m exchanged eta is {show(case.left)} against {show(case.right)},"
            f" and delta {show(deltas[0], 2)} against {show(deltas[1], 2)}."
        ),
    )
    exact = Fraction(1, 10), Fraction(9)
    zero, one = (0, 0), (1, 1)
    mixed = AnswerPair((zero,) * 5 + (one,) * 4, one, zero)
    forward, reverse = outlier(2, 10), AnswerPair((zero,) * 9, one, zero)
    best = max(eta_of_pair(pair, *exact) for pair in (forward, reverse))
    shown = [show(delta_of_pair(pair, *exact), 4) for pair in (mixed, forward, reverse)]
    yield _bound(
        "1.2, claim 1, L = 2, N = 10, q = 0.1, lambda = 9",
        printed,
        [Case("5 x 00 + 4 x 11, 11 becomes 00", eta_of_pair(mixed, *exact), best)],
        why=lambda case: (
            f"{case.at}: eta is {show(case.left)}, both homogeneous directions have at"
            f" most {show(case.right)}; delta is {shown[0]} against {shown[1]} forward and"
            f" {shown[2]} reverse."
        ),
    )
    spots = product((1, 2), (2, 3), (Fraction(1, 5), Fraction(2, 5)))
    yield _claim(
        "1.2, claim 2",
        "all homogeneous D with an outlier have one distribution of R",
        [
            Case((x, n, q), _ratio_distribution(x, n, q), _ratio_distribution((0,) * bits, n, q))
            for bits, n, q in spots
            for x in product((0, 1), repeat=bits)
        ],
        "the distributions of R for every z, in fractions.",
    )


def _ratio_distribution(x: Vector, crowd: int, q: Fraction) -> Counter[tuple[Fraction, Fraction]]:
    """Return the ratios of the opposite of x in a crowd of x, with their chances."""
    others = (x,) * (crowd - 1)
    towards = histogram_pmf((*others, tuple(1 - bit for bit in x)), q)
    away = histogram_pmf((*others, x), q)
    return Counter((chance / away[s], chance) for s, chance in towards.items())


def _bit_counts(pmf: dict[Vector, Fraction], bits: int) -> dict[Vector, Fraction]:
    """Publish how often each bit is set, instead of the histogram."""
    vectors = list(product((0, 1), repeat=bits))
    merged: dict[Vector, Fraction] = {}
    for counts, chance in pmf.items():
        key = tuple(
            sum(n * v[j] for n, v in zip(counts, vectors, strict=True)) for j in range(bits)
        )
        merged[key] = merged.get(key, Fraction(0)) + chance
    return merged


def _not_closed() -> PaperFinding:
    bits, crowd, q, lam = 2, 2, Fraction(2, 5), Fraction(11, 10)
    full_eta, full_delta = (
        worst((flags(bits),), crowd, q, lam)[0] for worst in (worst_eta, worst_delta)
    )
    etas, deltas = [], []
    vectors = originals((flags(bits),))
    for others in combinations_with_replacement(vectors, crowd - 1):
        pmfs = {y: _bit_counts(histogram_pmf((*others, y), q), bits) for y in vectors}
        for x, changed in permutations(vectors, 2):
            both = [(chance, pmfs[x][key]) for key, chance in pmfs[changed].items()]
            etas.append(sum((s for s, t in both if s > lam * t), Fraction(0)))
            deltas.append(sum((max(s - lam * t, Fraction(0)) for s, t in both), Fraction(0)))
    trend = "falls" if at_most(max(deltas), full_delta) else "rises"
    return _bound(
        "1.2, (1.7), as used in 4",
        "(implied) eta of S bounds what is made of S",
        [Case(f"L = {bits}, N = {crowd}, q = {q}, lambda = {lam}", max(etas), full_eta)],
        why=lambda case: (
            f"{case.at}: publishing bit counts instead of the histogram raises the"
            f" largest eta from {show(case.right, 4)} to {show(case.left, 4)}, while delta {trend}"
            f" from {show(full_delta, 4)} to {show(max(deltas), 4)}."
        ),
    )


def _estimator() -> PaperFinding:
    """E and sigma of the estimate, from the distribution of one bit's count."""
    people, cases = 6, []
    for d, q in product(range(people + 1), (Fraction(1, 10), Fraction(1, 4))):
        mean, variance = papers.estimate_moments(people, d, q)
        cases += [
            Case((d, q), Fraction(d), mean),
            Case((d, q), people * q * (1 - q) / (1 - 2 * q) ** 2, variance),
        ]
    how = f"the distribution of all counts of {people} people, in fractions."
    return _claim("4", "E d^ = d, sigma = sqrt(Nqp)/(p-q)", cases, how)


def _sigma(q: float) -> float:
    return count_sigma(1, q)


def _short_vectors() -> Findings:
    """L = 5, N = 5000, lambda = 2."""
    bits, crowd, epsilon = 5, 5000, math.log(2)
    local = local_q(bits, epsilon)
    right = three_sigma_q(bits, crowd, epsilon)
    yield _number("4, (4.3)", "q = 0.465", local, digits="0.465")
    # sqrt(q(1-q)) = s(1-2q) with x = 1 - 2q is 1 - x^2 = 4 s^2 x^2
    would = 0.5 * (1.0 - 1.0 / math.sqrt(4.0 * 7.5**2 + 1.0))
    yield _number(
        "4, after (4.3)",
        "sigma = 7.5 sqrt N",
        Bracket(_sigma(0.465), _sigma(local)),
        lambda: (
            f"q = 0.465 gives {show(_sigma(0.465))} and the unrounded q {show(_sigma(local))};"
            f" 7.5 needs q = {show(would, 4)}."
        ),
        digits="7.5",
    )
    yield _number("4, sigma at q = 0.1778", "sigma = 0.6 sqrt N", _sigma(0.1778), digits="0.6")
    yield _number(
        "4, gain for 5000 records",
        "12 fold",
        gain(bits, crowd, epsilon),
        lambda: (
            f"(3.12) gives q = {show(right, 4)} for N = {crowd}, so sigma = {show(_sigma(right))}"
            f" sqrt N; a gain of {show(gain(bits, 10_000, epsilon))} belongs to N = 10000."
        ),
        digits="12",
    )


def _long_vectors() -> Findings:
    """L = 40, N = 10M, lambda = e^2; the errors are three sigma."""
    bits, crowd, epsilon = 40, 10_000_000, 2.0
    local, sufficient = local_q(bits, epsilon), three_sigma_q(bits, crowd, epsilon)
    far, near = 3.0 * count_sigma(crowd, local), 3.0 * count_sigma(crowd, sufficient)
    group = 0.01 * crowd
    for where, printed, digits, value in (
        ("local q", "q = 0.4875", "0.4875", local),
        ("local sigma", "20 times", "20", _sigma(local)),
        ("local error, three sigma", "200K", "2E+5", far),
        ("sufficient q", "q = 0.351", "0.351", sufficient),
        ("sufficient sigma", "1.6", "1.6", _sigma(sufficient)),
        ("gain", "12.5", "12.5", gain(bits, crowd, epsilon)),
        ("error, three sigma", "15K", "15E+3", near),
    ):
        yield _number(f"4, L = 40, {where}", printed, value, digits=digits)
    yield _number(
        "4, L = 40, 1 % of 10M",
        "10 % error",
        100.0 * near / group,
        lambda: (
            f"three sigma are {near:,.0f} of {group:,.0f} people, {100 * near / group:.1f} %;"
            f" 10 % is {show(0.1 * group / (near / 3.0))} sigma."
        ),
        digits="10",
        unit=" %",
    )


_ONE_SET_BIT = "one set bit needs the noise of L = 2"
_FEW_SET_BITS = "k set bits need the noise of L = 2k"


def _one_hot() -> PaperFinding:
    def worst_of_both(n: int, q: Fraction, lam: Fraction) -> tuple[str, Fraction, Fraction, str]:
        measure = worst_eta if n == 2 else worst_delta
        (sparse, third), (full, _) = (
            measure((block,), n, q, lam) for block in (choice(3), flags(2))
        )
        crowd = f"{_text(third.others[0])}, while {_text(third.x)} becomes {_text(third.x_prime)}"
        return f"N = {n}, q = {q}, lambda = {lam}", sparse, full, crowd

    eta_at, sparse, full, _ = worst_of_both(2, Fraction(2, 5), Fraction(7, 4))
    delta_at, sparse_delta, full_delta, crowd = worst_of_both(3, Fraction(1, 5), Fraction(4))
    return _bound(
        "5, one of 3 options, all collections",
        _ONE_SET_BIT,
        [Case(eta_at, sparse, full), Case(delta_at, sparse_delta, full_delta)],
        why=lambda _: (
            f"{eta_at}: the largest eta is {show(sparse)} against {show(full)} for L = 2;"
            f" {delta_at}: delta is {show(sparse_delta)} against {show(full_delta)},"
            f" with the others on a third option ({crowd})."
        ),
    )


def _text(vector: Vector) -> str:
    return "".join(map(str, vector))


def _few_set_bits() -> PaperFinding:
    q, lam, crowd = Fraction(2, 5), Fraction(7, 4), 2
    others, x, changed = (1, 1, 0, 0, 0, 0), (0, 0, 1, 1, 0, 0), (0, 0, 0, 0, 1, 1)
    third = AnswerPair((others,) * (crowd - 1), x, changed)
    full = list(_full_cube(4, crowd))
    cases = [
        Case(name, at(third, q, lam), max(at(pair, q, lam) for pair in full))
        for name, at in (("eta", eta_of_pair), ("delta", delta_of_pair))
    ]
    return _bound(
        f"5, k = 2, K = 6, N = {crowd}, q = {q}, lambda = {lam}",
        _FEW_SET_BITS,
        cases,
        why=lambda _: (
            f"the others hold {_text(others)} while {_text(x)} becomes {_text(changed)}: "
            + " and ".join(f"{c.at} is {show(c.left)} against {show(c.right)}" for c in cases)
            + " for the worst of all 4-bit collections."
        ),
    )


def _full_cube(bits: int, crowd: int) -> Iterator[AnswerPair]:
    """All pairs of collections on the cube, up to flipping and permuting bits."""
    for others in combinations_with_replacement(originals((flags(bits),)), crowd - 1):
        for weight in range(1, bits + 1):
            yield AnswerPair(others, (0,) * bits, (1,) * weight + (0,) * (bits - weight))


def _large_crowd(where: str, printed: str, k: int) -> PaperFinding:
    forward, reverse, third = (
        noise_needed(t, 10_000, math.log(2), 1e-6)
        for t in ((2 * k, 0, 0), (0, 2 * k, 0), (k, k, k))
    )
    return _bound(
        where,
        printed,
        [Case("q for lambda = 2, delta = 1e-6", third, max(forward, reverse))],
        why=lambda case: (
            f"{case.at}: {show(forward)} for SDP's outlier, {show(reverse)} for its"
            f" swap, but {show(third)} when the crowd holds a third value."
        ),
    )


def noise_needed(crowd: tuple[int, int, int], size: int, epsilon: float, target: float) -> float:
    """Smallest q at which the homogeneous crowd (a, b, c) has delta at most `target`.

    >>> round(noise_needed((2, 0, 0), 10_000, math.log(2), 1e-6), 4)
    0.0432
    """
    return smallest(
        lambda q: delta(crowd, size, q, epsilon, 1e-3).high <= target, 1e-3, 0.5, rtol=1e-5
    )
