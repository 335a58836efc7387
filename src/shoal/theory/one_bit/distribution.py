"""The law of one bit's count: how many of n reports show a 1 when m of them should.

    A_n(m) = Bin(m, p) + Bin(n - m, q)          KR 3.1

Its mean is nq + m(p - q), its variance npq whatever m is. It rises stochastically with m
(KR 3.1.2, theorem), by at most one per step of m, so that its quantiles step by 0 or 1
(KR 3.1.3, theorem).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.theory.stop_loss.distribution import dot

__all__ = ["BinomialWindow", "Tails", "binomial_window", "pmf", "sum_tails", "tails"]

_REACH = 9.0
"""Standard deviations of each binomial that are summed; Bernstein bounds what is left out."""

_UNIT_ROUNDOFF = 2.0**-53

_SMALL = 4096
"""Binomials of so many trials are kept: a search asks for the same ones again and again."""


class BinomialWindow(NamedTuple):
    """The pmf of a binomial around its mean.

    `mass[i]` is P[Bin = first + i]; `omitted` bounds the mass outside the window, and `error` the
    relative error of each entry.
    """

    mass: NDArray[np.float64]
    first: int
    omitted: float
    error: float


class Tails(NamedTuple):
    """P[A <= s] and P[A >= s], with bounds on their relative error and on the mass left out."""

    at_most: float
    at_least: float
    relative_error: float
    omitted: float

    @property
    def error(self) -> float:
        """A bound on the absolute error of either tail."""
        return self.relative_error + self.omitted

    @property
    def at_most_bound(self) -> float:
        """An upper bound of P[A <= s], close to it even where it is tiny."""
        return min(self.at_most * (1 + self.relative_error) + self.omitted, 1.0)

    @property
    def at_least_bound(self) -> float:
        """An upper bound of P[A >= s], close to it even where it is tiny."""
        return min(self.at_least * (1 + self.relative_error) + self.omitted, 1.0)


def binomial_window(n: int, q: float, reach: float = _REACH) -> BinomialWindow:
    """Return the pmf of Bin(n, q), 0 < q < 1, over `reach` standard deviations around its mean.

    Neighbouring terms have the exact ratio (n-k)/(k+1) * q/(1-q), so that products outwards from
    the mode keep a relative error of a few roundings per step; logarithms of factorials would lose
    eight digits at n = 1e7. The sum is normalized to one.

    >>> binomial_window(2, 0.25).mass.tolist()
    [0.5625, 0.375, 0.0625]
    """
    return _kept_window(n, q, reach) if n <= _SMALL else _window(n, q, reach)


def _window(n: int, q: float, reach: float) -> BinomialWindow:
    mean, sigma = n * q, math.sqrt(n * q * (1 - q))
    width = reach * sigma + 2 * reach**2
    first, last = 0, n
    if width < n:
        first, last = max(0, math.floor(mean - width)), min(n, math.ceil(mean + width))
    mode = min(max(math.floor((n + 1) * q), first), last)
    odds = q / (1 - q)
    up = np.arange(mode, last, dtype=float)
    down = np.arange(mode, first, -1, dtype=float)
    rising = np.cumprod((n - up) / (up + 1) * odds)
    falling = np.cumprod(down / (n - down + 1) / odds)
    mass = np.concatenate((falling[::-1], [1.0], rising))
    mass /= mass.sum()
    whole = first == 0 and last == n
    # Bernstein's inequality, once for each side.
    omitted = 0.0 if whole else 2 * math.exp(-(width**2) / (2 * (sigma**2 + width / 3)))
    return BinomialWindow(mass, first, omitted, 12 * _UNIT_ROUNDOFF * (mass.size + 1))


@lru_cache(256)
def _kept_window(n: int, q: float, reach: float) -> BinomialWindow:
    window = _window(n, q, reach)
    window.mass.flags.writeable = False
    return window


def pmf(n: int, m: int, q: float) -> NDArray[np.float64]:
    """Return P[A_n(m) = s] for s = 0..n.

    >>> pmf(2, 1, 0.25).tolist()
    [0.1875, 0.625, 0.1875]
    """
    return np.convolve(
        binomial_window(m, 1 - q, np.inf).mass, binomial_window(n - m, q, np.inf).mass
    )


def tails(s: int, n: int, m: int, q: float, reach: float = _REACH) -> Tails:
    """Return both tails of A_n(m) at s, each including s itself.

    With an infinite `reach` no mass is left out.

    >>> tails(1, n=2, m=1, q=0.25)[:2]
    (0.8125, 0.8125)
    """
    # Ones that stay ones are those that are not flipped: 1 - q would lose the digits of a tiny q.
    stay = _mirrored(binomial_window(m, q, reach), m)
    return _sum_tails(s, stay, binomial_window(n - m, q, reach))


def sum_tails(s: int, first: tuple[int, float], second: tuple[int, float]) -> Tails:
    """Return both tails at s of the sum of two independent binomials, each (trials, chance).

    >>> sum_tails(1, (1, 0.75), (1, 0.25))[:2]
    (0.8125, 0.8125)
    """
    return _sum_tails(s, binomial_window(*first), binomial_window(*second))


def _mirrored(window: BinomialWindow, n: int) -> BinomialWindow:
    """Return the pmf of n minus the binomial."""
    first = n - window.first - window.mass.size + 1
    return BinomialWindow(window.mass[::-1], first, window.omitted, window.error)


def _sum_tails(s: int, ones: BinomialWindow, zeros: BinomialWindow) -> Tails:
    size = zeros.mass.size
    below = np.concatenate(([0.0], np.cumsum(zeros.mass)))
    above = np.concatenate((np.cumsum(zeros.mass[::-1])[::-1], [0.0]))
    needed = s - (ones.first + np.arange(ones.mass.size)) - zeros.first
    at_most = dot(ones.mass, below[np.clip(needed + 1, 0, size)])
    at_least = dot(ones.mass, above[np.clip(needed, 0, size)])
    error, omitted = ones.error + zeros.error, ones.omitted + zeros.omitted
    return Tails(min(at_most, 1.0), min(at_least, 1.0), error, omitted)
