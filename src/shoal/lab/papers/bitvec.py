"""OpenDP's proof of the bit-vector randomizer, with f = 2q: Theorems 3.2, 3.3 and 3.4."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import product

from shoal.lab import papers
from shoal.lab.papers import Case, Findings, equal, estimate_moments, show
from shoal.theory.domains import at_most as at_most_set
from shoal.theory.domains import differing_bits
from shoal.theory.enumeration import channel, originals
from shoal.theory.randomized_response import local_epsilon

_claim = partial(papers.claim, "BITVEC")
_FS = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))


def findings() -> Findings:
    yield _claim(
        "(1), (2)",
        "P[y_j = 1] = 1 - f/2 or f/2",
        (
            Case((f, bit), 1 - f / 2 if bit else f / 2, channel((bit,), f / 2)[1])
            for f, bit in product(_FS, (0, 1))
        ),
        "the channel with q = f/2.",
    )
    yield from _privacy()
    yield _claim(
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
    yield _claim(
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


def _privacy() -> Findings:
    q = Fraction(1, 4)
    rows = [
        (m, k, papers.largest_local_ratio(originals((at_most_set(m, k),)), q))
        for m in (1, 2)
        for k in range(m, 7)
    ]

    def case(m: int, k: int, top: Fraction, power: int) -> Case:
        return Case(f"m = {m}, k = {k}, f = {2 * q}", local_epsilon(power, float(q)), math.log(top))

    yield _claim(
        "Theorem 3.2, 2m + 1 < k",
        "epsilon = 2m ln((2-f)/f)",
        [case(m, k, top, 2 * m) for m, k, top in rows if 2 * m + 1 < k],
        "the largest ratio over all inputs and reports.",
    )
    tight = [case(m, k, top, differing_bits((at_most_set(m, k),))) for m, k, top in rows]
    reached = sum(equal(one.left, one.right) for one in tight)
    least = min(k for m, k, top in rows if m == 2 and top == ((1 - q) / q) ** (2 * m))
    yield _claim(
        "Theorem 3.2, any k",
        "the privacy is not dependent on k",
        [case(m, k, top, 2 * m) for m, k, top in rows],
        why=lambda worst: (
            f"{worst.at}: over all inputs epsilon is {show(worst.right)} and not"
            f" {show(worst.left)}; for m = 2 the bound is reached from k = {least} on, and"
            f" min(2m, k) ln((2-f)/f) is right in {reached} of {len(tight)} cases."
        ),
    )
