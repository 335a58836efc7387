"""The truth about small worlds, from the definitions, in exact integers. Imports nothing of Shoal.

A person's law maps outcomes to whole weights; an outcome is a whole number, and outcomes of
different people add. So the law of a release is the product of its people's laws, whatever a
release shows: a histogram (a digit for each vector), a count, several releases side by side or
their sum. Everything else is a sum over outcomes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce

import mpmath
import numpy as np

Law = dict[int, int]
Answers = tuple[int | None, ...]
"""What a person answers in each release; None where the person is not there."""
Key = Callable[[int, int], int]
"""The outcome that one report makes: of its release and its vector."""

DIGIT = 12
"""Binary digits for a count within an outcome: up to 4095 reports."""


def lam_between(epsilon: float | Fraction) -> tuple[Fraction, Fraction]:
    """Two fractions with e^epsilon between them, alike in fifty digits."""
    if epsilon == 0:
        return Fraction(1), Fraction(1)
    exact = Fraction(epsilon)
    with mpmath.workdps(60):
        value = mpmath.exp(mpmath.mpf(exact.numerator) / mpmath.mpf(exact.denominator))
        man, exp = value.man_exp
    near = Fraction(int(man)) * Fraction(2) ** int(exp)
    return near * (1 - Fraction(1, 10**50)), near * (1 + Fraction(1, 10**50))


def log_of(ratio: Fraction) -> tuple[Fraction, Fraction]:
    """Two fractions with ln(ratio) between them."""
    with mpmath.workdps(60):
        value = mpmath.log(mpmath.mpf(ratio.numerator) / mpmath.mpf(ratio.denominator))
        man, exp = value.man_exp
    near, slack = Fraction(int(man)) * Fraction(2) ** int(exp), Fraction(1, 10**45)
    return near - slack, near + slack


def histogram(bits: int) -> Key:
    """Whole vectors are counted in each release; how often the zero vector came follows from N."""
    cells = 2**bits - 1
    return lambda release, v: 1 << DIGIT * (release * cells + v - 1) if v else 0


def counted(bits: int) -> Key:
    """Each bit is counted by itself in each release, and nothing links the bits of a report."""
    places = [sum(1 << DIGIT * bit for bit in range(bits) if v >> bit & 1) for v in range(2**bits)]
    return lambda release, v: places[v] << DIGIT * bits * release


def summed(bits: int) -> Key:
    """Whole vectors are counted over all releases together."""
    one = histogram(bits)
    return lambda _, v: one(0, v)


def flips(x: int, bits: int, q: Fraction) -> list[int]:
    """Weights of the 2^bits vectors that x becomes when each bit is flipped with q."""
    a, b = q.numerator, q.denominator - q.numerator
    wrong = [(x ^ v).bit_count() for v in range(2**bits)]
    return [a**w * b ** (bits - w) for w in wrong]


def person(answers: Answers, bits: int, q: Fraction, key: Key, q1: Fraction = Fraction(0)) -> Law:
    """Law of all that a person sends: a permanent vector for each answer, fresh flips on top."""
    law = {0: 1}
    for answer in sorted({a for a in answers if a is not None}):
        when = [release for release, a in enumerate(answers) if a == answer]
        of_answer: Law = {}
        for permanent, weight in enumerate(flips(answer, bits, q1)):
            if weight:
                fresh = flips(permanent, bits, q)
                reports = [{key(r, v): w for v, w in enumerate(fresh)} for r in when]
                for outcome, w in reduce(together, reports).items():
                    of_answer[outcome] = of_answer.get(outcome, 0) + weight * w
        law = together(law, of_answer)
    return law


def ones_of(x: int, bits: int, q: Fraction) -> Law:
    """Law of the number of ones in a report about x, counted for each number."""
    law: Law = {}
    for vector, weight in enumerate(flips(x, bits, q)):
        outcome = 1 << DIGIT * (vector.bit_count() - 1) if vector else 0
        law[outcome] = law.get(outcome, 0) + weight
    return law


def truncated(x: int, bits: int, q: Fraction, weight: int) -> Law:
    """Law of the bits that one person's report counts: all set ones, or some of them at random."""
    every = math.lcm(*(math.comb(ones, weight) for ones in range(weight, bits + 1)))
    law: Law = {}
    for vector, chance in enumerate(flips(x, bits, q)):
        set_bits = [place for place in range(bits) if vector >> place & 1]
        ways = list(itertools.combinations(set_bits, min(weight, len(set_bits))))
        for way in ways:
            outcome = sum(1 << DIGIT * place for place in way)
            law[outcome] = law.get(outcome, 0) + chance * every // len(ways)
    return law


def together(one: Law, other: Law) -> Law:
    """Law of the sum of two independent outcomes."""
    law: Law = {}
    for a, wa in one.items():
        for b, wb in other.items():
            law[a + b] = law.get(a + b, 0) + wa * wb
    return law


def crowd(people: Iterable[Law]) -> Law:
    """Law of what a crowd sends together."""
    return reduce(together, people, {0: 1})


def neighbours(
    bits: int, q: Fraction, others: Iterable[int], x: int, y: int, key: Key
) -> tuple[Law, Law]:
    """The laws of one release with y and with x among the same others."""
    rest = crowd(person((z,), bits, q, key) for z in others)
    towards, away = (together(rest, person((z,), bits, q, key)) for z in (y, x))
    return towards, away


def one_bit(n: int, m: int, q: Fraction) -> list[int]:
    """Weights of 0..n ones in n reports, m of them about a set bit.

    A polynomial in powers of two: its coefficients stand side by side in one whole number.
    """
    a, b = q.numerator, q.denominator - q.numerator
    size = n * q.denominator.bit_length() // 8 + 2
    x = 1 << 8 * size
    product = (b + a * x) ** (n - m) * (a + b * x) ** m
    row = product.to_bytes((n + 1) * size, "little")
    return [int.from_bytes(row[size * s : size * (s + 1)], "little") for s in range(n + 1)]


def one_more(rest: Sequence[int], x: int, q: Fraction) -> Law:
    """Add a report about a bit x to the ones of others."""
    a, b = q.numerator, q.denominator - q.numerator
    zero, one = (b, a) if x == 0 else (a, b)
    padded = [0, *rest, 0]
    return {s: one * padded[s] + zero * padded[s + 1] for s in range(len(rest) + 1)}


def delta(towards: Law, away: Law, lam: Fraction) -> Fraction:
    """The hockey-stick divergence: the largest P(event) - lam Q(event)."""
    p, q = sum(towards.values()), sum(away.values())
    up, down = q * lam.denominator, p * lam.numerator
    gained = 0
    for outcome, weight in towards.items():
        gap = up * weight - down * away.get(outcome, 0)
        if gap > 0:
            gained += gap
    return Fraction(gained, p * q * lam.denominator)


def coins(count: int, q: Fraction, lam: Fraction) -> Fraction:
    """Delta of so many randomized bits of one person, all of them 1 or all 0: a binomial sum."""
    lie, truth = q.numerator, q.denominator - q.numerator
    gained = 0
    for ones in range(count + 1):
        towards, away = truth**ones * lie ** (count - ones), lie**ones * truth ** (count - ones)
        gap = lam.denominator * towards - lam.numerator * away
        if gap > 0:
            gained += math.comb(count, ones) * gap
    return Fraction(gained, lam.denominator * q.denominator**count)


def eta(towards: Law, away: Law, lam: Fraction) -> Fraction:
    """The probability, under the first law, of outcomes more than lam times as likely."""
    p, q = sum(towards.values()), sum(away.values())
    up, down = q * lam.denominator, p * lam.numerator
    hit = sum(w for outcome, w in towards.items() if up * w > down * away.get(outcome, 0))
    return Fraction(hit, p)


def largest_ratio(towards: Law, away: Law) -> Fraction:
    """The largest ratio of two probabilities."""
    p, q = sum(towards.values()), sum(away.values())
    return max(Fraction(w * q, p * away[outcome]) for outcome, w in towards.items())


def product(pairs: Sequence[tuple[Law, Law]], lam: Fraction) -> Fraction:
    """Delta of several independent releases side by side, each a pair of laws."""
    towards = crowd(_side_by_side(p for p, _ in pairs))
    away = crowd(_side_by_side(q for _, q in pairs))
    return delta(towards, away, lam)


def _side_by_side(laws: Iterable[Law]) -> Iterable[Law]:
    return [{o << 64 * i: w for o, w in law.items()} for i, law in enumerate(laws)]


def worst_m(n: int, q: float, lam: float) -> list[tuple[float, int, bool]]:
    """The crowds of one bit, worst first, in floats: (delta, set bits among the others, up).

    Only a search: whatever is claimed is judged at the exact law of the crowds that it returns.
    """
    others = n - 1
    first, second = _binomials(others, q), _binomials(others, 1 - q)
    rows = []
    for m in range(others + 1):
        rest = np.convolve(first[others - m], second[m])
        one = np.append(q * rest, 0) + np.append(0, (1 - q) * rest)
        zero = np.append((1 - q) * rest, 0) + np.append(0, q * rest)
        for up, (p, r) in ((True, (one, zero)), (False, (zero, one))):
            rows.append((float(np.maximum(p - lam * r, 0).sum()), m, up))
    return sorted(rows, reverse=True)


def _binomials(n: int, q: float) -> list[np.ndarray]:
    laws = [np.ones(1)]
    for _ in range(n):
        laws.append(np.append((1 - q) * laws[-1], 0) + np.append(0, q * laws[-1]))
    return laws


def one_bit_pair(n: int, m: int, up: bool, q: Fraction) -> tuple[Law, Law]:
    """The two laws of one crowd: m of the others have the bit set, one record changes."""
    rest = one_bit(n - 1, m, q)
    one, zero = one_more(rest, 1, q), one_more(rest, 0, q)
    return (one, zero) if up else (zero, one)


def worst_deltas(n: int, q: Fraction, epsilon: float | Fraction) -> list[Fraction]:
    """Delta in the two worst crowds of one bit, exactly at a ratio just above e^epsilon."""
    _, lam = lam_between(epsilon)
    worst = worst_m(n, float(q), math.exp(min(float(epsilon), 700.0)))[:2]
    return [delta(*one_bit_pair(n, m, up, q), lam) for _, m, up in worst]


def homogeneous_pair(a: int, b: int, c: int, n: int, q: Fraction) -> tuple[Law, Law]:
    """The two laws of a record x' or x among n - 1 reports about one vector z.

    Bits in which all three agree say nothing. z = 0; x' has the bits of a and c set, x those of b
    and c. Reports that are equally likely under each of z, x, x' are counted together.
    """
    bits = a + b + c
    first = ((1 << a) - 1) | ((1 << c) - 1) << (a + b)
    second = ((1 << b) - 1) << a | ((1 << c) - 1) << (a + b)
    laws = [flips(x, bits, q) for x in (0, first, second)]
    merged: dict[tuple[Fraction, Fraction], list[int]] = {}
    for weights in zip(*laws, strict=True):
        kind = (Fraction(weights[1], weights[0]), Fraction(weights[2], weights[0]))
        sums = merged.setdefault(kind, [0, 0, 0])
        for i, w in enumerate(weights):
            sums[i] += w
    kinds = list(merged.values())
    z = {_place(i): sums[0] for i, sums in enumerate(kinds)}
    rest = _power(z, n - 1)
    return (
        together(rest, {_place(i): sums[1] for i, sums in enumerate(kinds)}),
        together(rest, {_place(i): sums[2] for i, sums in enumerate(kinds)}),
    )


def _place(kind: int) -> int:
    return 1 << DIGIT * (kind - 1) if kind else 0


def _power(law: Law, n: int) -> Law:
    """Law of n equal people: the multinomial coefficients, one after the other."""
    if not n:
        return {0: 1}
    outcomes = list(law.items())
    powers = [[w**k for k in range(n + 1)] for _, w in outcomes]
    found: Law = {}

    def fill(kind: int, left: int, outcome: int, weight: int) -> None:
        if kind == len(outcomes) - 1:
            found[outcome + left * outcomes[kind][0]] = weight * powers[kind][left]
            return
        for k in range(left + 1):
            more = weight * math.comb(left, k) * powers[kind][k]
            fill(kind + 1, left - k, outcome + k * outcomes[kind][0], more)

    fill(0, n, 0, 1)
    return found


def homogeneous_floor(a: int, b: int, c: int, n: int, q: float, lam: float) -> float:
    """A lower bound of delta of a large homogeneous crowd: (1/n) E[(sum of n gains)_+], SDP 3.

    Gains w' - lam w are rounded down to a lattice, which only lowers the expectation. What an FFT
    can be wrong by is subtracted.
    """
    theta = (1 - q) / q
    gains: dict[float, float] = {}
    for i, j, k in itertools.product(range(a + 1), range(b + 1), range(c + 1)):
        ways = math.comb(a, i) * math.comb(b, j) * math.comb(c, k)
        chance = ways * q ** (i + j + k) * (1 - q) ** (a + b + c - i - j - k)
        gain = theta ** (2 * i - a + 2 * k - c) - lam * theta ** (2 * j - b + 2 * k - c)
        gains[gain] = gains.get(gain, 0.0) + chance
    low = min(gains)
    size = 1 << 18
    step = (max(gains) - low + 1e-9) * n / (size - 2 * n)  # so that no sum leaves the window
    pmf = np.zeros(size)
    for gain, chance in gains.items():
        pmf[math.floor((gain - low) / step)] += chance
    law = np.fft.irfft(np.fft.rfft(pmf) ** n, size)
    sums = np.arange(size) * step + n * low
    wrong = 1e-13 * n * (abs(sums).max() + 1)
    return float((law * np.maximum(sums, 0)).sum() - wrong) / n * (1 - 1e-9)


def ratio_moments(bits: int, n: int, q: Fraction) -> tuple[Fraction, Fraction]:
    """Mean and variance of R = P_x'(S) / P_x(S) under x', by enumeration (SDP 3, forward)."""
    towards, away = homogeneous_pair(bits, 0, 0, n, q)
    p, r = sum(towards.values()), sum(away.values())
    law = [(Fraction(w, p), Fraction(w * r, away[o] * p)) for o, w in towards.items()]
    mean = sum((chance * ratio for chance, ratio in law), Fraction(0))
    return mean, sum((chance * ratio**2 for chance, ratio in law), -(mean**2))
