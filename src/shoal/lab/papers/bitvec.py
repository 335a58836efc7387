"""OpenDP's proof of the bit-vector randomizer, with f = 2q: Theorems 3.2, 3.3 and 3.4."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

from shoal.lab.papers import Case, Paper, PaperFinding, equal, show
from shoal.theory.domains import at_most as at_most_set
from shoal.theory.domains import differing_bits
from shoal.theory.enumeration import channel, histogram_pmf, originals
from shoal.theory.randomized_response import local_epsilon

BITVEC = Paper("BITVEC")
_FS = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))


@BITVEC.statement("(1), (2)", "P[y_j = 1] = 1 - f/2 or f/2", "the channel with q = f/2.")
def _coin() -> Iterator[Case]:
    for f, bit in itertools.product(_FS, (0, 1)):
        yield Case(f"f = {f}, x_j = {bit}", 1 - f / 2 if bit else f / 2, channel((bit,), f / 2)[1])


def _largest_ratio(set_bits: int, bits: int, q: Fraction) -> Fraction:
    """Largest ratio over all inputs with at most m ones and all reports."""
    pmfs = [channel(x, q) for x in originals((at_most_set(set_bits, bits),))]
    pairs = itertools.permutations(pmfs, 2)
    return max(s / t for one, other in pairs for s, t in zip(one, other, strict=True))


@BITVEC.part
def _privacy() -> Iterator[PaperFinding]:
    q = Fraction(1, 4)
    rows = [(m, k, _largest_ratio(m, k, q)) for m in (1, 2) for k in range(1, 7) if m <= k]

    def case(m: int, k: int, top: Fraction, power: int) -> Case:
        return Case(f"m = {m}, k = {k}, f = {2 * q}", local_epsilon(power, float(q)), math.log(top))

    wide = [case(m, k, top, 2 * m) for m, k, top in rows if 2 * m + 1 < k]
    how = "the largest ratio over all inputs and reports."
    yield BITVEC.claim(
        "Theorem 3.2, 2m + 1 < k", "epsilon = 2m ln((2-f)/f)", wide, how, holds=equal
    )
    tight = [case(m, k, top, differing_bits((at_most_set(m, k),))) for m, k, top in rows]
    reached = sum(equal(case.left, case.right) for case in tight)
    least = min(k for m, k, top in rows if m == 2 and top == ((1 - q) / q) ** (2 * m))
    yield BITVEC.claim(
        "Theorem 3.2, any k",
        "the privacy is not dependent on k",
        [case(m, k, top, 2 * m) for m, k, top in rows],
        holds=equal,
        why=lambda worst: (
            f"{worst.at}: over all inputs epsilon is {show(worst.right)} and not"
            f" {show(worst.left)}; for m = 2 the bound is reached from k = {least} on, and"
            f" min(2m, k) ln((2-f)/f) is right in {reached} of {len(tight)} cases."
        ),
    )


def _counts(people: int, ones: int, f: Fraction) -> dict[int, Fraction]:
    pmf = histogram_pmf([(1,)] * ones + [(0,)] * (people - ones), f / 2)
    return {s[1]: chance for s, chance in pmf.items()}


def _guess(count: int, people: int, f: Fraction) -> Fraction:
    """Estimate a count by (9)."""
    return (count - people * f / 2) / (1 - f)


@BITVEC.statement(
    "Theorem 3.3, (9)",
    "the estimate is unbiased",
    "all counts of 5 people; at f = 1, which the program accepts, (9) divides by 0.",
)
def _unbiased() -> Iterator[Case]:
    for ones, f in itertools.product(range(6), _FS):
        mean = sum(chance * _guess(s, 5, f) for s, chance in _counts(5, ones, f).items())
        yield Case(f"count {ones}, f = {f}", mean, Fraction(ones))


@BITVEC.statement(
    "Theorem 3.4",
    "MSE = nk (f - f^2/2) / (2 (1-f)^2)",
    "n = 4, k = 3, every vector of counts, in fractions.",
)
def _squared_error() -> Iterator[Case]:
    """Sum the error of k bits of n people over the distribution of each bit's count."""
    people, bits = 4, 3
    for columns, f in itertools.product(itertools.product(range(people + 1), repeat=bits), _FS):
        error = sum(
            chance * (_guess(s, people, f) - ones) ** 2
            for ones in columns
            for s, chance in _counts(people, ones, f).items()
        )
        printed = people * bits * (f - f**2 / 2) / (2 * (1 - f) ** 2)
        yield Case(f"counts {columns}, f = {f}", printed, error)
