"""Shares and means among people whose number is itself estimated, with score intervals.

A share among the people of an arm, of a step or of a start period is a ratio ``top / whole`` of two
unbiased counts. If its true value is v, T(v) = top - v whole has mean zero, and its variance is
known: that of the flips, exactly, from the covariance of the two counts, and that of who was
drawn from the population, n v (1 - v) for a share among n people. The interval holds every v with
``abs(T(v)) <= factor * sigma(v)``: Fieller's (1954), with Wilson's (1927) variance at the value
tested, so that a share of 0 or 100 % is covered too. It is approximate: normal, for many reports.
Where the whole is not told apart from nobody, there is no limit, and the interval is all possible
values.

A difference or a ratio of two such values is made from the deviations of their own intervals and
the correlation of their flips (Zou and Donner 2008, MOVER; for the ratio Donner and Zou 2012).
People of two groups are different people, so that sampling adds no correlation.

Every function takes arrays whose leading axes are repetitions: a study of coverage runs the code
that estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from shoal.errors import InputError
from shoal.support.checks import check_level

Array = NDArray[np.float64]
Limits = tuple[Array, Array]
Spread = Callable[[Array, float], Array]
"""The variance of T(v) by who was drawn, at a value and a factor."""

_FAR = 10.0
"""Limits further out than this many times the range of values are taken for none."""
_HALVINGS = 44
_MAX_FACTOR = 37.0  # where the normal distribution has nothing left in doubles


def shown_ends(row: Mapping[str, float | None]) -> tuple[float, float, float]:
    """Return value and limits from the JSON of a result, for people: the nearest possible value.

    Flips may move an unbiased value out of its interval, which holds possible values alone.
    """
    value, low, high = (
        unknown if (end := row[name]) is None else end
        for name, unknown in (("value", math.nan), ("low", -math.inf), ("high", math.inf))
    )
    return min(max(value, low), high), low, high


def no_spread(value: Array, factor: float) -> Array:
    """Return 0: the people who reported are all there is, and nobody was drawn."""
    return np.zeros_like(value)


def share_spread(people: Array) -> Spread:
    """Return n v (1 - v); beyond 0 and 1, where no share is, nothing."""

    def spread(value: Array, factor: float) -> Array:
        inside = np.clip(value, 0.0, 1.0)
        return np.asarray(np.maximum(people, 0.0) * inside * (1 - inside))

    return spread


def mean_spread(counts: Array, grid: Array, noise: Array) -> Spread:
    """Return the second moment about v of numbers on a grid, as counted, not too small.

    One standard deviation of its own flips is added. As in Wilson's interval it is at least that of
    a few people at the far end, whom a sample may not show, and at most n (high - v)(v - low)
    (Bhatia and Davis 2000).
    """
    low, high = grid[0], grid[-1]
    people = np.maximum(counts.sum(axis=-1), 0.0)

    def spread(value: Array, factor: float) -> Array:
        inside = np.clip(value, low, high)
        squares = (grid - inside[..., None]) ** 2
        flips = np.sqrt(np.maximum((squares @ noise * squares).sum(axis=-1), 0.0))
        counted = (squares * counts).sum(axis=-1) + flips
        least = factor**2 * squares.max(axis=-1) / 4
        most = people * (high - inside) * (inside - low)
        return np.asarray(np.minimum(np.maximum(counted, least), most))

    return spread


@dataclass(frozen=True, eq=False)
class GroupValue:
    """The share or mean ``top / whole``; `noise` is the covariance that flips give the two."""

    top: Array
    whole: Array
    noise: Array
    spread: Spread
    bounds: tuple[float, float] = (0.0, 1.0)

    @property
    def value(self) -> Array:
        """The estimate; not a number where nobody was seen."""
        whole = np.where(self.whole > 0, self.whole, np.nan)
        return np.asarray(self.top / whole)

    def variance(self, value: Array, factor: float) -> Array:
        """Return the variance of T at a value."""
        (tops, both), (_, wholes) = self.noise
        flips = tops - 2 * value * both + value**2 * wholes
        return np.asarray(np.maximum(flips, 0.0) + self.spread(value, factor))

    def limits(self, factor: float) -> Limits:
        """Return limits that may lie beyond the possible values; infinite where there is none."""
        low, high = self.bounds
        reach = _FAR * (high - low)
        ends = []
        for side, end in ((1, low - reach), (-1, high + reach)):

            def beyond(value: Array, side: int = side) -> Array:
                away = side * (self.top - value * self.whole)
                return np.asarray(away - factor * np.sqrt(self.variance(value, factor)))

            outer = np.full_like(self.top, end)
            inner = np.clip(np.nan_to_num(self.value), low - reach, high + reach)
            open_ended = (self.whole <= 0) | (beyond(outer) <= 0)
            for _ in range(_HALVINGS):
                middle = (outer + inner) / 2
                out = beyond(middle) > 0
                outer, inner = np.where(out, middle, outer), np.where(out, inner, middle)
            ends.append(np.where(open_ended, -side * np.inf, outer))
        return ends[0], ends[1]

    def interval(self, factor: float) -> Limits:
        """Return the limits within the possible values."""
        low, high = self.limits(factor)
        return np.clip(low, *self.bounds), np.clip(high, *self.bounds)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two values of different people; `noise` is the covariance that flips give them.

    Its rows are the top and the whole of the first value, its columns those of the second.
    """

    first: GroupValue
    second: GroupValue
    noise: Array

    def _deviations(self, factor: float) -> tuple[Limits, Limits, Array]:
        """Return how far each interval reaches down and up, and the correlation of the flips."""
        reaches, values, sigmas = [], [], []
        for one in (self.first, self.second):
            low, high = one.limits(factor)
            value = np.nan_to_num(one.value)
            reaches.append((value - low, high - value))
            values.append(value)
            sigmas.append(np.sqrt(one.variance(np.clip(value, *one.bounds), factor)))
        (tops, first_whole), (second_whole, wholes) = self.noise.T
        a, b = values
        shared = tops - a * first_whole - b * second_whole + a * b * wholes
        spread = sigmas[0] * sigmas[1]
        rho = np.divide(shared, spread, out=np.zeros_like(spread), where=spread > 0)
        return reaches[0], reaches[1], np.clip(rho, -1.0, 1.0)

    @property
    def difference(self) -> Array:
        return np.asarray(self.first.value - self.second.value)

    def difference_limits(self, factor: float) -> Limits:
        """Return the interval of the first value minus the second."""
        (down, up), (less, more), rho = self._deviations(factor)
        value = np.nan_to_num(self.difference)
        width = self.first.bounds[1] - self.first.bounds[0]
        low, high = value - _spread(down, more, rho), value + _spread(up, less, rho)
        return np.clip(low, -width, width), np.clip(high, -width, width)

    def ratio_limits(self, factor: float) -> Limits:
        """Return the interval of the first value over the second, from 0 to infinity.

        The r with (a - r b)^2 <= x^2 - 2 rho r x y + r^2 y^2, that is A r^2 - 2 B r + C <= 0.
        """
        (down, up), (less, more), rho = self._deviations(factor)
        a, b = np.nan_to_num(self.first.value), np.nan_to_num(self.second.value)
        ends = []
        for x, y, outer in ((down, more, 0.0), (up, less, math.inf)):
            known = np.isfinite(x) & np.isfinite(y)
            x, y = np.where(known, x, 0.0), np.where(known, y, 0.0)
            A, B, C = b * b - y * y, a * b - rho * x * y, a * a - x * x  # noqa: N806
            root = np.sqrt(np.maximum(B * B - A * C, 0.0))
            if outer == 0.0:  # C / (B + root) is the smaller root, whatever the sign of A
                known &= (a > x) & (B + root > 0)
                end = np.divide(C, B + root, out=np.zeros_like(C), where=known)
            else:
                known &= b > y
                end = np.divide(B + root, A, out=np.zeros_like(C), where=known)
            ends.append(np.where(known, np.maximum(end, 0.0), outer))
        return ends[0], ends[1]

    def zero_factor(self) -> float:
        """Return the factor at which the interval of the difference reaches zero."""
        value = float(np.nan_to_num(self.difference))

        def excess(factor: float) -> float:
            low, high = (float(end) for end in self.difference_limits(factor))
            return low if value > 0 else -high

        if value == 0 or excess(1e-9) <= 0:
            return 0.0
        if excess(_MAX_FACTOR) > 0:
            return _MAX_FACTOR
        return float(brentq(excess, 1e-9, _MAX_FACTOR, xtol=1e-9))


def _spread(x: Array, y: Array, rho: Array) -> Array:
    known = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(known, x, 0.0), np.where(known, y, 0.0)
    return np.where(known, np.sqrt(np.maximum(x * x + y * y - 2 * rho * x * y, 0.0)), np.inf)


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Unbiased counts of groups (rows) by answers (columns), and the covariance of their flips."""

    counts: Array
    noise: Array

    def _rows(self, group: int) -> slice:
        columns = self.counts.shape[-1]
        return slice(group * columns, (group + 1) * columns)

    def share(self, group: int, answers: Array, among: Array | None = None) -> GroupValue:
        """Return the share of people with one of some answers, as a 0/1 vector, in a group."""
        among = np.ones_like(answers) if among is None else among
        rows = self.counts[..., group, :]
        return self._value(group, answers, among, share_spread(rows @ among))

    def mean(self, group: int, grid: Array) -> GroupValue:
        """Return the mean in a group of numbers on a grid; further answers have no number."""
        points, rows = len(grid), self.counts[..., group, :]
        value, among = np.zeros(rows.shape[-1]), np.zeros(rows.shape[-1])
        value[:points], among[:points] = grid, 1.0
        own = self.noise[self._rows(group), self._rows(group)][:points, :points]
        spread = mean_spread(rows[..., :points], grid, own)
        return self._value(group, value, among, spread, (float(grid[0]), float(grid[-1])))

    def _value(
        self, group: int, value: Array, among: Array, spread: Spread, bounds: Any = (0.0, 1.0)
    ) -> GroupValue:
        rows, sums = self.counts[..., group, :], np.stack((value, among))
        own = self.noise[self._rows(group), self._rows(group)]
        noise = sums @ own @ sums.T
        return GroupValue(rows @ value, rows @ among, noise, spread, bounds)

    def pair(self, first: int, second: int, answers: Array) -> Pair:
        """Return the shares of some answers in two groups."""
        sums = np.stack((answers, np.ones_like(answers)))
        shared = sums @ self.noise[self._rows(first), self._rows(second)] @ sums.T
        return Pair(self.share(first, answers), self.share(second, answers), shared)

    def mean_pair(self, first: int, second: int, grid: Array) -> Pair:
        """Return the means of a number in two groups."""
        sums = np.zeros((2, self.counts.shape[-1]))
        sums[0, : len(grid)], sums[1, : len(grid)] = grid, 1.0
        shared = sums @ self.noise[self._rows(first), self._rows(second)] @ sums.T
        return Pair(self.mean(first, grid), self.mean(second, grid), shared)


def p_value(factor: float, information: float | None = None) -> float:
    """Return the smallest miss whose interval reaches so many sigmas, of one look or of any."""
    if information is None:
        return min(2 * float(ndtr(-factor)), 1.0)
    exponent = math.log1p(information) - factor**2 / (1 + 1 / information)
    return math.exp(min(exponent / 2, 0.0))


def anytime_factor(level: float, information: float) -> float:
    """Return how many sigmas a confidence sequence reaches, after so much information.

    `information` is the variance of T so far over the one it is tuned to; with equal releases, the
    number of releases so far. With lambda drawn from a normal distribution of variance 1/tau, the
    mean of exp(lambda T - lambda^2 V / 2) is sqrt(tau / (V + tau)) exp(T^2 / (2 (V + tau))): a
    martingale of mean 1 for normal increments, which ever reaches 1 / miss with probability at most
    `miss` (Ville 1939; Robbins 1970). So with at least the level, after all releases at once,
    T^2 <= (V + tau) (log(1 + V / tau) + 2 log(1 / miss)). A theorem for normal increments; those of
    a crowd are sums over its people, hence normal in the limit of large crowds (asymptotic:
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024).

    >>> [round(anytime_factor(0.95, releases), 2) for releases in (1, 8, 52)]
    [3.66, 3.04, 3.19]
    """
    if not information > 0:
        raise InputError(f"a confidence sequence needs reports, got information={information}.")
    miss = 1 - check_level(level)
    return math.sqrt((1 + 1 / information) * (math.log1p(information) - 2 * math.log(miss)))
