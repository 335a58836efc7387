"""SDP section 5: vectors with few set bits, and the third value that it overlooks.

Section 5 compares two answers with each other. The others may hold a third answer, which none of
the reductions has room for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from shoal.lab.papers._finding import Case, Finding, claim, show
from shoal.theory.calibration import smallest
from shoal.theory.domains import choice, flags
from shoal.theory.enumeration import (
    AnswerPair,
    delta_of_pair,
    eta_of_pair,
    originals,
    worst_delta,
    worst_eta,
)
from shoal.theory.homogeneous import delta

__all__ = ["findings", "noise_needed"]

Vector = tuple[int, ...]
_LN2 = math.log(2)


def findings() -> Iterator[Finding]:
    """Judge the reductions of SDP 5."""
    yield from _one_hot()
    yield from _few_set_bits()


def _one_hot() -> Iterator[Finding]:
    printed = "one set bit needs the noise of L = 2"
    q, lam, crowd = Fraction(2, 5), Fraction(7, 4), 2
    sparse, _ = worst_eta((choice(3),), crowd, q, lam)
    full, _ = worst_eta((flags(2),), crowd, q, lam)
    wide = (Fraction(1, 5), Fraction(4), 3)
    sparse_delta, third = worst_delta((choice(3),), wide[2], wide[0], wide[1])
    full_delta, _ = worst_delta((flags(2),), wide[2], wide[0], wide[1])
    yield claim(
        "SDP",
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


def _few_set_bits() -> Iterator[Finding]:
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
    yield claim(
        "SDP",
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


def _large_crowd(where: str, printed: str, k: int) -> Finding:
    crowd, target = 10_000, 1e-6
    forward, reverse, third = (
        noise_needed(t, crowd, _LN2, target) for t in ((2 * k, 0, 0), (0, 2 * k, 0), (k, k, k))
    )
    return claim(
        "SDP",
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
