r"""The noise of one bit's count: ``Y = Bin(l, q) - Bin(k, q)`` of l zeros and k ones.

A hockey stick of one bit needs three numbers at a place t: ``P[Y = t-1]``, ``P[Y = t]`` and
``P[Y >= t]``. Each comes with a bound on its error, at places that reach far into the upper tail.

*Little noise* (variance below 900): both binomials by the exact ratios of their terms, convolved
term by term. All terms are positive, so errors stay relative; Bernstein's inequality bounds what is
outside the windows, far below 1e-60.

*Much noise*: the law tilted by ``e^(theta y)`` is again one of independent bits, with flip
probabilities ``q e^theta / (p + q e^theta)`` for zeros and ``q e^-theta / (p + q e^-theta)`` for
ones, and its characteristic function is negligible but for a few dozen frequencies, whatever N is:

.. math:: P_\theta[Y = y] = \frac1W \sum_f \varphi(v_f) e^{-i v_f y}, \quad
    \sum_{r \ge 0} e^{-\theta r} P_\theta[Y = y + r] =
    \frac1W \sum_f \frac{\varphi(v_f) e^{-i v_f y}}{1 - e^{-\theta - i v_f}}, \quad
    v_f = 2 \pi f / W .

One tilt is accurate around its own mean; eight of them, two standard deviations apart, reach
probabilities of 1e-40. Errors (theorems):

* frequencies left out: ``|1 + a(e^iv - 1)|^2 = 1 - 4a(1-a) sin^2(v/2)``, so ``|phi(v)| <=
  exp(-2 V sin^2(v/2))``, V the variance; this falls up to v = pi, and there are at most W of them;
* aliasing: sampling frequencies makes the law periodic with period W; what comes from elsewhere
  is positive, and bounded by Bernstein's inequality. In the tail sum the copies from the left carry
  a factor of at most ``e^(-theta r)``, r their distance;
* round-off as in `stop_loss.characteristic`, term by term.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.brackets import UNIT, FloatArray, log_one_plus, power_error

__all__ = ["Steps", "steps"]

_LITTLE_NOISE = 900.0
"""Variance up to which two binomials are convolved term by term."""

_EXPONENT = 140.0
"""Bernstein's exponent of what is outside a window: e^-140 = 1.6e-61."""

_TILTS = 8
_FINENESS = 24
"""Places per standard deviation where there is much noise."""

_HALF = 1.25
"""Places of one tilt reach so many standard deviations to both sides of its mean."""

_PERIODS = {1: 48.0, 3: 26.0}
"""Standard deviations of a tilted law after which it is repeated; 20 where it is tilted more."""

_HIGHEST = 10.0
"""Frequencies go up to this, times a standard deviation."""

CountArray = npt.NDArray[np.int64]


class Steps(NamedTuple):
    """``P[Y = t-1]``, ``P[Y = t]``, ``P[Y >= t]`` at some places t, and bounds on their errors."""

    place: FloatArray
    before: FloatArray
    here: FloatArray
    above: FloatArray
    before_error: FloatArray
    here_error: FloatArray
    above_error: FloatArray


def steps(ones: CountArray, zeros: CountArray, q: float) -> list[Steps]:
    """Return the steps of each crowd of others: ``ones[i]`` ones and ``zeros[i]`` zeros.

    Places begin at the mode or a little before it: below it P is less likely than Q.

    Examples
    --------
    >>> steps(np.array([1]), np.array([1]), 0.25)[0].here.tolist()
    [0.625, 0.1875, 0.0]
    """
    variance = (ones + zeros) * (q * (1.0 - q))
    little = variance < _LITTLE_NOISE
    result: list[Steps | None] = [None] * ones.size
    for i in np.flatnonzero(little):
        result[i] = _convolved(int(ones[i]), int(zeros[i]), q)
    much = np.flatnonzero(~little)
    # laws of one batch share their grids, so they should be alike
    order = much[np.argsort(variance[much], kind="stable")]
    for start in range(0, order.size, 256):
        batch = order[start : start + 256]
        rows = _transformed(ones[batch], zeros[batch], q)
        for row, i in enumerate(batch):
            result[i] = Steps(*(part[row] for part in rows))
    return [entry for entry in result if entry is not None]


class _BinomialPart(NamedTuple):
    mass: FloatArray
    first: int
    omitted: float
    error: float


def _bernstein(x: float | FloatArray, variance: float | FloatArray) -> FloatArray:
    """Bound P[|S - E S| >= x] for a sum of independent bits or their negatives."""
    return np.asarray(2.0 * np.exp(-(x**2) / (2.0 * (variance + x / 3.0))))


def _window(n: int, q: float) -> _BinomialPart:
    """Pmf of Bin(n, q) but for the tails; see `one_bit.law.binomial_window`."""
    mean, variance = n * q, n * q * (1.0 - q)
    third = _EXPONENT / 3.0
    width = third + math.sqrt(third**2 + 2.0 * _EXPONENT * variance) + 1.0
    first, last = max(0, math.floor(mean - width)), min(n, math.ceil(mean + width))
    mode = min(max(math.floor((n + 1) * q), first), last)
    odds = q / (1.0 - q)
    up, down = np.arange(mode, last, dtype=float), np.arange(mode, first, -1, dtype=float)
    rising = np.cumprod((n - up) / (up + 1) * odds)
    falling = np.cumprod(down / (n - down + 1) / odds)
    mass = np.concatenate((falling[::-1], [1.0], rising))
    mass /= mass.sum()
    omitted = 0.0 if first == 0 and last == n else float(_bernstein(width - 1.0, variance))
    # seven roundings per step and the sum; dividing by the sum of the window adds what is omitted
    return _BinomialPart(mass, first, omitted, 12 * UNIT * (mass.size + 1) + 2.0 * omitted)


def _convolved(ones: int, zeros: int, q: float) -> Steps:
    up, down = _window(zeros, q), _window(ones, q)
    pmf = np.convolve(up.mass, down.mass[::-1])
    relative = up.error + down.error + 4 * UNIT * pmf.size
    # products below the smallest floats vanish
    omitted = up.omitted + down.omitted + (1e-300 if pmf.min() < 1e-280 else 0.0)
    mode = int(np.argmax(pmf))
    before: FloatArray = np.append(0.0, pmf)[mode:]
    here = np.append(pmf[mode:], 0.0)
    above: FloatArray = np.cumsum(here[::-1])[::-1]
    place: FloatArray = np.arange(here.size, dtype=np.float64) + float(
        mode + up.first - down.first - down.mass.size + 1
    )
    errors = [relative * part + omitted for part in (before, here, above)]
    if down.first == 0 and up.first + up.mass.size == zeros + 1:
        # nobody is left above the last place: its zeros are exact
        errors[1][-1] = errors[2][-1] = 0.0
    return Steps(place, before, here, above, *errors)


def _transformed(ones: CountArray, zeros: CountArray, q: float) -> Steps:
    k, m = ones[:, None].astype(np.float64), zeros[:, None].astype(np.float64)
    sigma = math.sqrt(float((ones + zeros).max()) * q * (1.0 - q))
    parts = [_tilted(k, m, q, (2 * j + 1) / sigma, 2 * j + 1) for j in range(_TILTS)]
    return Steps(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


def _tilted(k: FloatArray, m: FloatArray, q: float, theta: float, standard: int) -> Steps:
    """Return the steps around the mean of the tilted law, which is `standard` deviations out."""
    p, grow, shrink = 1.0 - q, math.exp(theta), math.exp(-theta)
    up, down = q * grow / (p + q * grow), q * shrink / (p + q * shrink)
    variance = m * (up * (1.0 - up)) + k * (down * (1.0 - down))
    narrow, wide = math.sqrt(float(variance.min())), math.sqrt(float(variance.max()))
    pitch = max(1, int(narrow / _FINENESS))
    half = math.ceil(_HALF * narrow / pitch)
    place = pitch * np.arange(-half, half + 1)
    period = math.ceil(wide * _PERIODS.get(standard, 20.0))
    # fewer than half of them, since narrow is at least 10 here
    count = math.ceil(_HIGHEST / narrow * period / (2.0 * math.pi)) + 1
    v = 2.0 * math.pi / period * np.arange(count)
    turn = -2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)
    spoiled = 16 * UNIT * np.abs(turn)
    log_up, doubt_up = log_one_plus(up * turn, up * spoiled)
    log_down, doubt_down = log_one_plus(down * np.conj(turn), down * spoiled)
    start = np.floor(m * up - k * down)
    exponent = m * log_up + k * log_down - 1j * v * start
    size = np.exp(exponent.real)
    reach = float(place[-1]) + 2.0
    wobble = 8 * UNIT * (8.0 + v * (np.abs(start) + reach))
    wobble = wobble + m * (doubt_up + 8 * UNIT * np.abs(log_up))
    wobble = wobble + k * (doubt_down + 8 * UNIT * np.abs(log_down))
    wobble = wobble + 4 * UNIT * (count + 8)  # the sum over frequencies
    doubt = power_error(size, wobble)
    weight = np.full(count, 2.0 / period)
    weight[0] /= 2.0
    terms = weight * np.exp(exponent)
    # 1 / (1 - e^(-theta - iv)), without cancelling
    tail = 1.0 / (-math.expm1(-theta) + shrink * (2.0 * np.sin(v / 2.0) ** 2 + 1j * np.sin(v)))
    angle = np.outer(v, place)
    cosine, sine = np.cos(angle), np.sin(angle)

    def at(values: npt.NDArray[np.complex128]) -> FloatArray:
        # einsum, not @: a threaded matrix library spends its time waiting on a busy machine
        real = np.einsum("ij,jk->ik", np.ascontiguousarray(values.real), cosine)
        return np.asarray(real + np.einsum("ij,jk->ik", np.ascontiguousarray(values.imag), sine))

    missing = np.exp(-2.0 * variance * math.sin(math.pi / period * count) ** 2)
    alias = _bernstein(period - reach, variance)
    sure = 9.5 * wide
    left = math.exp(-theta * (period - reach - sure)) + _bernstein(sure, variance)
    error = np.sum(weight * doubt, axis=1, keepdims=True) + missing + alias
    tail_error = np.sum(weight * np.abs(tail) * doubt, axis=1, keepdims=True)
    tail_error += missing / -math.expm1(-theta) + alias + left / -math.expm1(-theta * period)
    # back: P[Y = y] = M(theta) e^(-theta y) times the tilted one
    log_mgf = m * math.log1p(q * math.expm1(theta)) + k * math.log1p(q * math.expm1(-theta))
    y: FloatArray = start + place
    factor = np.exp(log_mgf - theta * y)
    mgf_size = m * q * math.expm1(theta) - k * q * math.expm1(-theta)
    slack = 16 * UNIT * (4.0 + mgf_size + theta * np.abs(y))
    here, before = at(terms), at(terms * np.exp(1j * v))
    above = at(terms * tail)
    back = factor * grow
    return Steps(
        y,
        np.maximum(before, 0.0) * back,
        np.maximum(here, 0.0) * factor,
        np.maximum(above, 0.0) * factor,
        back * (error + slack * np.abs(before)) * (1.0 + slack),
        factor * (error + slack * np.abs(here)) * (1.0 + slack),
        factor * (tail_error + slack * np.abs(above)) * (1.0 + slack),
    )
