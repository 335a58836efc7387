r"""Hockey sticks of one bit, many crowds at once.

Let B be the count shown by the others, k of whom hold a 1 and l a 0, with pmf b. Going from 0 to
1 changes the pmf from ``q b(s-1) + p b(s)`` to ``p b(s-1) + q b(s)`` (KR (3.2), (3.3)), so with
``A = p - lam q`` and ``lam p - q = A + lam - 1``

    delta = sum_s [A b(s-1) - (A + lam - 1) b(s)]_+ .

b is log-concave, so the bracket is positive exactly beyond the point where b(s-1)/b(s) passes
``r = (A + lam - 1)/A``. Tilting b by ``e^(ts)``, t = ln r, puts the mode of the tilted law
right there, and the mode of a sum of independent bits is less than 1 away from its mean (Darroch
1964). So one transform around that mean holds every term, to full relative accuracy however small
delta is. Errors: what the transform aliases and leaves out is bounded by Bernstein's inequality,
its round-off as in `_inversion`.

A itself may cancel down to its round-off, or to a wrong sign. Delta and eta do not fall when A
grows, so the upper ends use A rounded up, and t is that of A rounded up: the true point where the
bracket turns positive can only be further on. They are exactly 0 only where epsilon is surely
above ln(p/q).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.randomized_response import log_theta
from shoal.theory.stop_loss.characteristic import log_one_plus, power_error
from shoal.theory.stop_loss.distribution import FloatArray
from shoal.theory.stop_loss.reduction import UNIT

IntArray = npt.NDArray[np.int64]

_EXPONENT = 45.0
_CHUNK = 1 << 20


class Ends(NamedTuple):
    """Lower and upper ends of many brackets."""

    low: FloatArray
    high: FloatArray


class Tilt(NamedTuple):
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
    # Bernstein: exp(-x^2 / (2 (variance + x/3))) = exp(-45)
    half = _EXPONENT / 3.0 + math.sqrt((_EXPONENT / 3.0) ** 2 + 2.0 * _EXPONENT * variance)
    return 1 << math.ceil(math.log2(2.0 * half + 8.0))


def _tilt(q: float, epsilon: float) -> Tilt | None:
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
    return Tilt(
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


def _upward(ones: IntArray, zeros: IntArray, q: float, tilt: Tilt, length: int, eta: bool) -> Ends:
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
    # einsum, not @: see _inversion._factored; the sums have positive terms of at most `length`
    slack += UNIT * length
    low_end = factor * np.einsum("ij,j->i", low, decay) * (1.0 - slack)
    high_end = factor * (np.einsum("ij,j->i", high, decay) + beyond) * (1.0 + slack)
    # without any others delta is A, and adding people is post-processing
    most = 1.0 if eta else min(1.0, tilt.rise)
    # delta is positive here, however small; numbers below 1e-300 may be off by more than `slack`
    high_end = np.clip(high_end + 1e-300, 0.0, most)
    return Ends(np.clip(low_end, 0.0, high_end), high_end)
