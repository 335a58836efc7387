"""One bit, all crowds: exact privacy for L = 1 (KR 3.1).

A crowd of n bits, m of them 1, shows ``A_n(m) ~ Bin(m, p) + Bin(n-m, q)`` ones. Changing one
record moves m by one, so the worst case over *all* collections is a maximum over m. Write d(k, l)
for the delta of changing a record among k ones and l zeros. One more person only adds independent
noise to the count, which is post-processing, so d does not rise in k nor in l: that makes the
maximum affordable for large n. All formulas here are theorems.

*Many crowds at once.* Let B be the count shown by the others, k of whom hold a 1 and l a 0, with
pmf b. Going from 0 to 1 changes the pmf from ``q b(s-1) + p b(s)`` to ``p b(s-1) + q b(s)`` (KR
(3.2), (3.3)), so with ``A = p - lam q`` and ``lam p - q = A + lam - 1``

    delta = sum_s [A b(s-1) - (A + lam - 1) b(s)]_+ .

b is log-concave, so the bracket is positive exactly beyond the point where b(s-1)/b(s) passes
``r = (A + lam - 1)/A``. Tilting b by ``e^(ts)``, t = ln r, puts the mode of the tilted distribution
right there, and the mode of a sum of independent bits is less than 1 away from its mean (Darroch
1964). So one transform around that mean holds every term, to full relative accuracy however small
delta is. Errors: what the transform aliases and leaves out is bounded by Bernstein's inequality,
its round-off as in `stop_loss.inversion`.

A itself may cancel down to its round-off, or to a wrong sign. Delta and eta do not fall when A
grows, so the upper ends use A rounded up, and t is that of A rounded up: the true point where the
bracket turns positive can only be further on. They are exactly 0 only where epsilon is surely
above ln(p/q).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.binomial import pmf
from shoal.theory.brackets import (
    UNIT,
    Bracket,
    FloatArray,
    IntArray,
    bernstein_reach,
    log_one_plus,
    power_error,
)
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import log_theta

_EXPONENT = 45.0
_CHUNK = 1 << 20


class OneBitWorst(NamedTuple):
    """The worst change of one record: from m ones to m + 1, or the same with 0 and 1 exchanged."""

    m: int
    value: Bracket


def privacy_ratio(n: int, m: int, q: float) -> FloatArray:
    """``pi(s; m) = P[A_n(m) = s] / P[A_n(m+1) = s]`` for s = 0..n, falling in s (KR 3.1)."""
    if not 0 <= m < n:
        raise ValueError(f"m must be between 0 and n - 1, got m={m}, n={n}.")
    ratio: FloatArray = pmf(n, m, q) / pmf(n, m + 1, q)
    return ratio


def worst_one_bit_delta(
    n: int, q: float, epsilon: float, rtol: float = 1e-3, work: int = 30_000_000
) -> OneBitWorst:
    """Largest delta(epsilon) over all m and both directions: exact for L = 1 (theorem).

    All m are tried when that is cheap. Otherwise stretches of m are bounded by the monotonicity
    of d(k, l): for k in [k0, k1] it is at most d(k0, n-1-k1). Stretches that cannot hold the
    maximum are dropped, the others halved, until the bracket is within `rtol` or `work` (points
    transformed) is used up. The high end is valid at any moment.

    >>> worst = worst_one_bit_delta(1000, 0.0119, np.log(2))
    >>> round(worst.value.high, 3)
    0.005
    """
    check_crowd(n, q, epsilon)
    length = transform_length(n, q, epsilon)
    if n * length <= min(work, 2_000_000):
        m = np.arange(n)
        ends = upward(m, n - 1 - m, q, epsilon)
        value = Bracket(*map(float, (ends.low.max(), ends.high.max())))
        return OneBitWorst(int(np.argmax(ends.low)), value)
    edges = np.unique(np.linspace(0, n, 33).astype(np.int64))
    first, last = edges[:-1], edges[1:] - 1
    best_low, best_m = 0.0, 0
    settled = 0.0
    while True:
        work -= 2 * first.size * length
        inner = upward(first, n - 1 - first, q, epsilon)
        outer = upward(last, n - 1 - last, q, epsilon)
        for ends, place in ((inner, first), (outer, last)):
            top = int(np.argmax(ends.low))
            if ends.low[top] > best_low:
                best_low, best_m = float(ends.low[top]), int(place[top])
        above = upward(first, n - 1 - last, q, epsilon).high
        single = first == last
        above = np.where(single, inner.high, above)
        done = single | (above <= max(best_low * (1.0 + rtol), 1e-290))
        settled = max(settled, float(np.max(above[done], initial=0.0)))
        if done.all() or work <= 0:
            high = max(best_low, settled, float(above.max(initial=0.0)))
            return OneBitWorst(best_m, Bracket(best_low, high))
        first, last = first[~done], last[~done]
        middle = (first + last) // 2
        first, last = np.concatenate([first, middle + 1]), np.concatenate([middle, last])
        keep = first <= last
        first, last = first[keep], last[keep]


class Ends(NamedTuple):
    """Lower and upper ends of many brackets."""

    low: FloatArray
    high: FloatArray


class CountTilt(NamedTuple):
    """``A`` rounded up, by how much at most, ``lam - 1``, t, and P[bit = 1] after tilting.

    `ones` is that of people who hold a 1, `zeros` that of people who hold a 0.
    """

    rise: float
    doubt: float
    excess: float
    t: float
    ones: float
    zeros: float


def transform_length(n: int, q: float, epsilon: float) -> int:
    """Length of the transform that one crowd of n others needs."""
    tilt = _tilt(q, epsilon)
    if tilt is None:
        return 1
    variance = n * max(tilt.ones * (1.0 - tilt.ones), tilt.zeros * (1.0 - tilt.zeros))
    return 1 << math.ceil(math.log2(2.0 * bernstein_reach(_EXPONENT, variance) + 8.0))


def _tilt(q: float, epsilon: float) -> CountTilt | None:
    """Tilt to where delta is decided; None where it is surely 0."""
    # log_theta is right to a few units of round-off, so this sign is certain
    if epsilon >= log_theta(q) * (1.0 + 1e-14):
        return None
    excess = math.expm1(epsilon)
    # p - lam q = (1 - 2q) - q (lam - 1): neither part cancels
    open_, closed = 1.0 - 2.0 * q, q * excess
    doubt = 8 * UNIT * (open_ + closed)
    rise = open_ - closed + doubt
    if rise <= 0.0:
        return None
    t = math.log1p(excess / rise)
    odds = (1.0 - q) / q
    return CountTilt(
        rise,
        2.0 * doubt,
        excess,
        t,
        1.0 / (1.0 + math.exp(-t) / odds),
        1.0 / (1.0 + odds * math.exp(-t)),
    )


def upward(ones: IntArray, zeros: IntArray, q: float, epsilon: float, eta: bool = False) -> Ends:
    """Delta (or eta) of changing a 0 to a 1 among `ones` + `zeros` others, for arrays of both."""
    tilt = _tilt(q, epsilon)
    if tilt is None:
        return Ends(np.zeros(ones.size), np.zeros(ones.size))
    length = transform_length(int((ones + zeros).max()), q, epsilon)
    rows = max(1, _CHUNK // length)
    parts = [
        _upward(ones[i : i + rows], zeros[i : i + rows], q, tilt, length, eta)
        for i in range(0, ones.size, rows)
    ]
    return Ends(
        np.concatenate([part.low for part in parts]), np.concatenate([part.high for part in parts])
    )


def _upward(
    ones: IntArray, zeros: IntArray, q: float, tilt: CountTilt, length: int, eta: bool
) -> Ends:
    t, p = tilt.t, 1.0 - q
    k, m = ones[:, None].astype(np.float64), zeros[:, None].astype(np.float64)
    # the first positive term has s > mean; one step of slack for the round-off of the mean
    start = np.floor(ones * tilt.ones + zeros * tilt.zeros) - 1.0
    v = 2.0 * math.pi / length * np.arange(length // 2 + 1)
    turn = -2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)
    # the tilted probabilities are right to 8 units of round-off, the turn to 4
    spoiled = 16 * UNIT * np.abs(turn)
    log_one, doubt_one = log_one_plus(tilt.ones * turn, tilt.ones * spoiled)
    log_zero, doubt_zero = log_one_plus(tilt.zeros * turn, tilt.zeros * spoiled)
    exponent = k * log_one + m * log_zero - 1j * v * start[:, None]
    size = np.exp(exponent.real)
    wobble = 8 * UNIT * (4.0 + v * np.abs(start)[:, None])
    wobble = wobble + k * (doubt_one + 8 * UNIT * np.abs(log_one))
    wobble = wobble + m * (doubt_zero + 8 * UNIT * np.abs(log_zero))
    wobble += 32 * UNIT * math.log2(length)
    b = np.fft.irfft(np.conj(np.exp(exponent)), length, axis=1)[:, : length // 2]
    error = 2.0 / length * np.sum(power_error(size, wobble), axis=1)
    error += 2.0 * math.exp(-_EXPONENT)
    here, before = b[:, 1:], b[:, :-1]
    offset = np.arange(1, length // 2)
    decay = np.exp(-t * offset)
    # in tilted terms b(s-1) gains the factor e^t = r, which makes both coefficients equal
    level = tilt.rise + tilt.excess  # e^t A
    terms = level * (before - here)
    spread = np.abs(before) + np.abs(here)
    doubt = level * (2.0 * error[:, None] + 8 * UNIT * (2.0 + t) * spread)
    # ... where A is its upper end; below it the terms may be smaller by so much
    short = doubt + tilt.doubt * (math.exp(t) * np.abs(before) + np.abs(here))
    if eta:
        # the set is an upper one: once surely in, always in
        sure = np.logical_or.accumulate(terms > short, axis=1)
        maybe = sure | (terms > -doubt)
        terms, doubt = p * math.exp(t) * before + q * here, (p * math.exp(t) + q) * error[:, None]
        low = np.where(sure, np.maximum(terms - doubt, 0.0), 0.0)
        high = np.where(maybe, terms + doubt, 0.0)
    else:
        low, high = np.maximum(terms - short, 0.0), np.maximum(terms + doubt, 0.0)
    # what is beyond the window: a Bernstein tail, times at most e^t p + q, or for delta e^t A
    beyond = 2.0 * math.exp(-_EXPONENT) * (p * math.exp(t) + q if eta else level)
    log_mgf = ones * np.log(q + p * math.exp(t)) + zeros * np.log(p + q * math.exp(t))
    log_factor = log_mgf - t * start
    slack = 16 * UNIT * (4.0 + np.abs(log_mgf) + np.abs(t * start) + ones + zeros)
    factor = np.exp(np.minimum(log_factor, 700.0))
    # einsum, not @: see `stop_loss.inversion`; the sums have positive terms of at most `length`
    slack += UNIT * length
    low_end = factor * np.einsum("ij,j->i", low, decay) * (1.0 - slack)
    high_end = factor * (np.einsum("ij,j->i", high, decay) + beyond) * (1.0 + slack)
    # without any others delta is A, and adding people is post-processing
    most = 1.0 if eta else min(1.0, tilt.rise)
    # delta is positive here, however small; numbers below 1e-300 may be off by more than `slack`
    high_end = np.clip(high_end + 1e-300, 0.0, most)
    return Ends(np.clip(low_end, 0.0, high_end), high_end)
