"""SDP 1.2 (the worst crowd), 4 (what less noise buys) and 5 (vectors with few set bits).

One counterexample refutes a claim about all collections. Those here are small enough to be
enumerated in fractions, or homogeneous, where the theory has certified brackets for any crowd size.
Section 5 compares two answers, but the others may hold a third one, which its reductions overlook.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from shoal.lab.papers import Case, Paper, PaperFinding, at_most, equal, sdp_ratio, show
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest
from shoal.theory.domains import choice, flags
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
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import gain, three_sigma_q

SDP = Paper("SDP")
Vector = tuple[int, ...]


def outlier(bits: int, crowd: int) -> AnswerPair:
    """SDP's pair: all zeros, against all zeros but one vector of ones."""
    zero = (0,) * bits
    return AnswerPair((zero,) * (crowd - 1), zero, (1,) * bits)


@SDP.part
def _swap_is_worse() -> Iterator[PaperFinding]:
    crowd, q, lam = 1000, 0.05, 2
    outlier_eta, swap_eta = (eta(t, crowd, q, math.log(lam)) for t in ((1, 0, 0), (0, 1, 0)))
    outlier_delta, swap_delta = (delta(t, crowd, q, math.log(lam)) for t in ((1, 0, 0), (0, 1, 0)))
    where = f"L = 1, N = {crowd}, q = {q}, lambda = {lam}"
    yield SDP.claim(
        f"1.2, claim 1, {where}",
        "the outlier pair has the largest P[R > lambda]",
        [Case("D and D_m exchanged", swap_eta.low, outlier_eta.high)],
        f"the exchanged pair has less, {where}.",
        why=lambda case: (
            f"with D and D_m exchanged eta is {show(case.left)} against {show(case.right)},"
            f" and delta {show(swap_delta, 2)} against {show(outlier_delta, 2)}."
        ),
    )


@SDP.part
def _mixture_is_worse() -> Iterator[PaperFinding]:
    q, lam, crowd = Fraction(1, 10), Fraction(9), 10
    zero, one = (0, 0), (1, 1)
    mixed = AnswerPair((zero,) * 5 + (one,) * 4, one, zero)
    forward, reverse = outlier(2, crowd), AnswerPair((zero,) * (crowd - 1), one, zero)
    best = max(eta_of_pair(pair, q, lam) for pair in (forward, reverse))
    deltas = [show(delta_of_pair(pair, q, lam), 4) for pair in (mixed, forward, reverse)]
    yield SDP.claim(
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


@SDP.part
def _all_homogeneous_alike() -> Iterator[PaperFinding]:
    cases = []
    for bits, crowd, q in itertools.product((1, 2), (2, 3), (Fraction(1, 5), Fraction(2, 5))):
        pmfs = {}
        for x in itertools.product((0, 1), repeat=bits):
            opposite = tuple(1 - bit for bit in x)
            pmfs[x] = _ratio_distribution(AnswerPair((x,) * (crowd - 1), x, opposite), q)
        first = pmfs[(0,) * bits]
        cases += [Case(f"z = {x}, N = {crowd}, q = {q}", pmf, first) for x, pmf in pmfs.items()]
    yield SDP.claim(
        "1.2, claim 2",
        "all homogeneous D with an outlier have one distribution of R",
        cases,
        "the distributions of R for every z, in fractions.",
        holds=equal,
    )


def _ratio_distribution(pair: AnswerPair, q: Fraction) -> Counter[tuple[Fraction, Fraction]]:
    towards = histogram_pmf((*pair.others, pair.x_prime), q)
    away = histogram_pmf((*pair.others, pair.x), q)
    return Counter((chance / away[s], chance) for s, chance in towards.items())


def _bit_counts(pmf: dict[Vector, Fraction], bits: int) -> dict[Vector, Fraction]:
    """Publish how often each bit is set, instead of the histogram."""
    vectors = list(itertools.product((0, 1), repeat=bits))
    merged: dict[Vector, Fraction] = {}
    for counts, chance in pmf.items():
        key = tuple(
            sum(n * v[j] for n, v in zip(counts, vectors, strict=True)) for j in range(bits)
        )
        merged[key] = merged.get(key, Fraction(0)) + chance
    return merged


@SDP.part
def _not_closed() -> Iterator[PaperFinding]:
    bits, crowd, q, lam = 2, 2, Fraction(2, 5), Fraction(11, 10)
    full = {"eta": worst_eta((flags(bits),), crowd, q, lam)[0],
            "delta": worst_delta((flags(bits),), crowd, q, lam)[0]}  # fmt: skip
    counts = {"eta": Fraction(0), "delta": Fraction(0)}
    vectors = originals((flags(bits),))
    for others in itertools.combinations_with_replacement(vectors, crowd - 1):
        pmfs = {y: _bit_counts(histogram_pmf((*others, y), q), bits) for y in vectors}
        for x, changed in itertools.permutations(vectors, 2):
            both = [(chance, pmfs[x][key]) for key, chance in pmfs[changed].items()]
            counts["eta"] = max(
                counts["eta"], sum((s for s, t in both if s > lam * t), Fraction(0))
            )
            lost = sum((max(s - lam * t, Fraction(0)) for s, t in both), Fraction(0))
            counts["delta"] = max(counts["delta"], lost)
    where = f"L = {bits}, N = {crowd}, q = {q}, lambda = {lam}"
    trend = "falls" if at_most(counts["delta"], full["delta"]) else "rises"
    yield SDP.claim(
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


SDP.part(sdp_ratio.RATIO.findings)

_SHORT, _LONG = (5, 5000, math.log(2)), (40, 10_000_000, 2.0)
"""Bits, crowd and epsilon of the two examples."""


def _sigma(q: float) -> float:
    return count_sigma(1, q)


@SDP.part
def _estimator() -> Iterator[PaperFinding]:
    """E and sigma of the estimate, from the distribution of one bit's count."""
    people = 6
    cases = []
    for d, q in itertools.product(range(people + 1), (Fraction(1, 10), Fraction(1, 4))):
        pmf = histogram_pmf([(1,)] * d + [(0,)] * (people - d), q)
        guess = {s: (s[1] - q * people) / (1 - 2 * q) for s in pmf}
        mean = sum(chance * guess[s] for s, chance in pmf.items())
        square = sum(chance * guess[s] ** 2 for s, chance in pmf.items())
        at = f"d = {d}, q = {q}"
        cases.append(Case(f"E, {at}", Fraction(d), mean))
        cases.append(Case(f"Var, {at}", people * q * (1 - q) / (1 - 2 * q) ** 2, square - mean**2))
    how = f"the distribution of all counts of {people} people, in fractions."
    yield SDP.claim("4", "E d^ = d, sigma = sqrt(Nqp)/(p-q)", cases, how, holds=equal)


@SDP.part
def _short_vectors() -> Iterator[PaperFinding]:
    """L = 5, N = 5000, lambda = 2."""
    bits, crowd, epsilon = _SHORT
    local = local_q(bits, epsilon)
    right = three_sigma_q(bits, crowd, epsilon)
    yield SDP.number("4, (4.3)", "q = 0.465", local, lambda: f"it is {local}.", digits="0.465")

    def needs() -> str:
        # sqrt(q(1-q)) = s(1-2q) with x = 1 - 2q is 1 - x^2 = 4 s^2 x^2
        would = 0.5 * (1.0 - 1.0 / math.sqrt(4.0 * 7.5**2 + 1.0))
        return (
            f"q = 0.465 gives {show(_sigma(0.465))} and the unrounded q {show(_sigma(local))};"
            f" 7.5 needs q = {show(would, 4)}."
        )

    both = Bracket(_sigma(0.465), _sigma(local))
    yield SDP.number("4, after (4.3)", "sigma = 7.5 sqrt N", both, needs, digits="7.5")
    yield SDP.number(
        "4, sigma at q = 0.1778", "sigma = 0.6 sqrt N", _sigma(0.1778),
        lambda: f"it is {_sigma(0.1778)}.", digits="0.6",
    )  # fmt: skip
    yield SDP.number(
        "4, gain for 5000 records",
        "12 fold",
        gain(bits, crowd, epsilon),
        lambda: (
            f"(3.12) gives q = {show(right, 4)} for N = {crowd}, so sigma = {show(_sigma(right))}"
            f" sqrt N; a gain of {show(gain(bits, 10_000, epsilon))} belongs to N = 10000."
        ),
        digits="12",
    )


@SDP.part
def _long_vectors() -> Iterator[PaperFinding]:
    """L = 40, N = 10M, lambda = e^2; the errors are three sigma."""
    bits, crowd, epsilon = _LONG
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
        yield SDP.number(
            f"4, L = 40, {where}", printed, value,
            lambda value=value: f"it is {value}.",  # type: ignore[misc]
            digits=digits,
        )  # fmt: skip
    yield SDP.number(
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


_LN2 = math.log(2)


@SDP.part
def _one_hot() -> Iterator[PaperFinding]:
    printed = "one set bit needs the noise of L = 2"
    q, lam, crowd = Fraction(2, 5), Fraction(7, 4), 2
    sparse, _ = worst_eta((choice(3),), crowd, q, lam)
    full, _ = worst_eta((flags(2),), crowd, q, lam)
    wide = (Fraction(1, 5), Fraction(4), 3)
    sparse_delta, third = worst_delta((choice(3),), wide[2], wide[0], wide[1])
    full_delta, _ = worst_delta((flags(2),), wide[2], wide[0], wide[1])
    yield SDP.claim(
        "5, one of 3 options, all collections",
        printed,
        [
            Case(f"eta, N = {crowd}, q = {q}, lambda = {lam}", sparse, full),
            Case(
                f"delta, N = {wide[2]}, q = {wide[0]}, lambda = {wide[1]}", sparse_delta, full_delta
            ),
        ],
        "no collection of one-hot vectors is worse than the worst of 2-bit vectors.",
        why=lambda _: (
            f"N = {crowd}, q = {q}, lambda = {lam}: the largest eta is {show(sparse)}"
            f" against {show(full)} for L = 2; N = {wide[2]}, q = {wide[0]}, lambda = {wide[1]}:"
            f" delta is {show(sparse_delta)} against {show(full_delta)}, with the others on a third"
            f" option ({_text(third.others[0])}, while {_text(third.x)} becomes"
            f" {_text(third.x_prime)})."
        ),
    )
    yield _large_crowd("5, one of K >= 3 options, N = 10000", printed, 1)


def _text(vector: Vector) -> str:
    return "".join(map(str, vector))


@SDP.part
def _few_set_bits() -> Iterator[PaperFinding]:
    printed = "k set bits need the noise of L = 2k"
    q, lam, crowd = Fraction(2, 5), Fraction(7, 4), 2
    others, x, changed = (1, 1, 0, 0, 0, 0), (0, 0, 1, 1, 0, 0), (0, 0, 0, 0, 1, 1)
    third = AnswerPair((others,) * (crowd - 1), x, changed)
    full = list(_full_cube(4, crowd))
    where = f"k = 2, K = 6, N = {crowd}, q = {q}, lambda = {lam}"
    cases = [
        Case(f"{name}", at(third, q, lam), max(at(pair, q, lam) for pair in full))
        for name, at in (("eta", eta_of_pair), ("delta", delta_of_pair))
    ]
    yield SDP.claim(
        f"5, {where}",
        printed,
        cases,
        f"a third value is no worse than the worst of 4-bit vectors, {where}.",
        why=lambda _: (
            f"the others hold {_text(others)} while {_text(x)} becomes {_text(changed)}: "
            + " and ".join(f"{c.at} is {show(c.left)} against {show(c.right)}" for c in cases)
            + " for the worst of all 4-bit collections."
        ),
    )
    for k in (2, 3):
        yield _large_crowd(f"5, k = {k}, K >= {3 * k}, N = 10000", printed, k)


def _full_cube(bits: int, crowd: int) -> Iterable[AnswerPair]:
    """All pairs of collections on the cube, up to flipping and permuting bits."""
    vectors = originals((flags(bits),))
    for weight in range(1, bits + 1):
        changed = (1,) * weight + (0,) * (bits - weight)
        for others in itertools.combinations_with_replacement(vectors, crowd - 1):
            yield AnswerPair(others, (0,) * bits, changed)


def _large_crowd(where: str, printed: str, k: int) -> PaperFinding:
    crowd, target = 10_000, 1e-6
    forward, reverse, third = (
        noise_needed(t, crowd, _LN2, target) for t in ((2 * k, 0, 0), (0, 2 * k, 0), (k, k, k))
    )
    return SDP.claim(
        where,
        printed,
        [Case("q for lambda = 2, delta = 1e-6", third, max(forward, reverse))],
        "a crowd on a third value needs no more noise.",
        why=lambda case: (
            f"{case.at}: {show(forward)} for SDP's outlier, {show(reverse)} for its"
            f" swap, but {show(third)} when the crowd holds a third value."
        ),
    )


def noise_needed(crowd: tuple[int, int, int], size: int, epsilon: float, target: float) -> float:
    """Smallest q at which the homogeneous crowd (a, b, c) has delta at most `target`.

    >>> round(noise_needed((2, 0, 0), 10_000, _LN2, 1e-6), 4)
    0.0432
    """

    def keeps(q: float) -> bool:
        return delta(crowd, size, q, epsilon, 1e-3).high <= target

    return smallest(keeps, 1e-3, 0.5, rtol=1e-5)
