r"""Hockey sticks of one bit, many crowds at once.

Let B be the count shown by the others, k of whom hold a 1 and l a 0, with pmf b. Going from 0 to
1 changes the pmf from ``q b(s-1) + p b(s)`` to ``p b(s-1) + q b(s)`` (KR (3.2), (3.3)), so

    delta = sum_s [(p - lam q) b(s-1) - (lam p - q) b(s)]_+ .

b is log-concave, so the bracket is positive exactly beyond the point where b(s-1)/b(s) passes
``r = (lam p - q)/(p - lam q)``. Tilting b by ``e^(ts)``, t = ln r, puts the mode of the tilted law
right there, and the mode of a sum of independent bits is less than 1 away from its mean (Darroch
1964). So one transform around that mean holds every term, to full relative accuracy however small
delta is. Errors: what the transform aliases and leaves out is bounded by Bernstein's inequality,
its round-off as in `_inversion`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._reduction import UNIT
from .law import FloatArray

IntArray = npt.NDArray[np.int64]

_EXPONENT = 45.0
_CHUNK = 1 << 20


class Ends(NamedTuple):
    """Lower and upper ends of many brackets."""

    low: FloatArray
    high: FloatArray


def transform_length(n: int, q: float, epsilon: float) -> int:
    """Length of the transform that one crowd of n others needs."""
    tilt = _tilted_bits(q, epsilon)
    if tilt is None:
        return 1
    _, ones, zeros = tilt
    variance = n * max(ones * (1.0 - ones), zeros * (1.0 - zeros))
    # Bernstein: exp(-x^2 / (2 (variance + x/3))) = exp(-45)
    half = _EXPONENT / 3.0 + math.sqrt((_EXPONENT / 3.0) ** 2 + 2.0 * _EXPONENT * variance)
    return 1 << math.ceil(math.log2(2.0 * half + 8.0))


def _tilted_bits(q: float, epsilon: float) -> tuple[float, float, float] | None:
    lam, p = math.exp(epsilon), 1.0 - q
    if p <= lam * q:
        return None
    t = math.log((lam * p - q) / (p - lam * q))
    # P[bit = 1] after tilting, of those who hold a 1 and of those who hold a 0
    return t, 1.0 / (1.0 + q / p * math.exp(-t)), 1.0 / (1.0 + p / q * math.exp(-t))


def upward(ones: IntArray, zeros: IntArray, q: float, epsilon: float, eta: bool = False) -> Ends:
    """Delta (or eta) of changing a 0 to a 1 among `ones` + `zeros` others, for arrays of both."""
    tilt = _tilted_bits(q, epsilon)
    if tilt is None:
        return Ends(np.zeros(ones.size), np.zeros(ones.size))
    length = transform_length(int((ones + zeros).max()), q, epsilon)
    rows = max(1, _CHUNK // length)
    parts = [
        _upward(ones[i : i + rows], zeros[i : i + rows], q, epsilon, tilt, length, eta)
        for i in range(0, ones.size, rows)
    ]
    return Ends(
        np.concatenate([part.low for part in parts]), np.concatenate([part.high for part in parts])
    )


def _log_bit(q: float, turn: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    a = q * turn
    size = 0.5 * np.log1p(2.0 * a.real + np.abs(a) ** 2)
    return np.asarray(size + 1j * np.arctan2(a.imag, 1.0 + a.real))


def _upward(
    ones: IntArray,
    zeros: IntArray,
    q: float,
    epsilon: float,
    tilt: tuple[float, float, float],
    length: int,
    eta: bool,
) -> Ends:
    t, p1, p0 = tilt
    p, lam = 1.0 - q, math.exp(epsilon)
    k, m = ones[:, None].astype(np.float64), zeros[:, None].astype(np.float64)
    start = np.floor(ones * p1 + zeros * p0) - 2.0  # b is needed from here on
    v = 2.0 * math.pi / length * np.arange(length // 2 + 1)
    turn = -2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)
    log_one, log_zero = _log_bit(p1, turn), _log_bit(p0, turn)
    exponent = k * log_one + m * log_zero - 1j * v * start[:, None]
    size = np.exp(exponent.real)
    wobble = (
        8 * UNIT * (4.0 + k * np.abs(log_one) + m * np.abs(log_zero) + v * np.abs(start)[:, None])
    )
    wobble += 32 * UNIT * math.log2(length)
    b = np.fft.irfft(np.conj(np.exp(exponent)), length, axis=1)[:, : length // 2]
    error = 2.0 / length * np.sum(size * np.minimum(wobble, 2.0), axis=1)
    error += 2.0 * math.exp(-_EXPONENT)
    here, before = b[:, 1:], b[:, :-1]
    offset = np.arange(1, length // 2)
    decay = np.exp(-t * offset)
    # in tilted terms b(s-1) gains the factor e^t = r, which makes both coefficients equal
    terms = (lam * p - q) * (before - here)
    # ... up to the rounding of t and of the two coefficients
    skew = 8 * UNIT * (2.0 + t + p / (p - lam * q) + lam * p / (lam * p - q))
    doubt = (lam * p - q) * (2.0 * error[:, None] + skew * (np.abs(before) + np.abs(here)))
    if eta:
        # the set is an upper one: once surely in, always in
        sure = np.logical_or.accumulate(terms > doubt, axis=1)
        maybe = sure | (terms > -doubt)
        terms, doubt = p * math.exp(t) * before + q * here, (p * math.exp(t) + q) * error[:, None]
        low = np.where(sure, np.maximum(terms - doubt, 0.0), 0.0)
        high = np.where(maybe, terms + doubt, 0.0)
    else:
        low, high = np.maximum(terms - doubt, 0.0), np.maximum(terms + doubt, 0.0)
    # what lies beyond the window: at most e^t p + q times a Bernstein tail
    beyond = 2.0 * math.exp(-_EXPONENT) * (p * math.exp(t) + q)
    log_mgf = ones * np.log(q + p * math.exp(t)) + zeros * np.log(p + q * math.exp(t))
    log_factor = log_mgf - t * start
    slack = 16 * UNIT * (4.0 + np.abs(log_mgf) + np.abs(t * start) + ones + zeros)
    factor = np.exp(np.minimum(log_factor, 700.0))
    # einsum, not @: see _inversion._factored; the sums have positive terms of at most `length`
    slack += UNIT * length
    low_end = factor * np.einsum("ij,j->i", low, decay) * (1.0 - slack)
    high_end = factor * (np.einsum("ij,j->i", high, decay) + beyond) * (1.0 + slack)
    # delta is positive here, however small
    return Ends(np.clip(low_end, 0.0, 1.0), np.clip(high_end, 5e-324, 1.0))
