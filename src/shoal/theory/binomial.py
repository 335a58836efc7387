"""Binomial tails and three uses of them: one bit's count, cohort sizes, truncated reports.

*One bit's count.* Of n reports, m should show a 1; ``A_n(m) = Bin(m, p) + Bin(n - m, q)`` do
(KR 3.1). Its mean is nq + m(p - q), its variance npq. It rises stochastically with m, by at most
one per step (KR 3.1.2 and 3.1.3, theorems).

*A larger crowd never hides less (theorem).* Let delta_N be the largest delta of N honest reports
over all collections of the domain. The report of one more person depends on that person's answer
and coins alone, so an observer who knows the answer can draw it: N + 1 reports are post-processing
of N, and delta_(N+1) <= delta_N. This holds for whole reports and for counts. So a bound for t
people holds for every N >= t; where the price of a bound rises with the crowd, `best_crowd` chooses
t.

*Cohorts (theorem).* Each of N people draws one of m cohorts uniformly. Telling the attacker who is
in which only helps (data processing) and leaves a crowd of n = 1 + Bin(N - 1, 1/m) people. For
every t, ``delta(eps) <= P[n < t] delta_1(eps) + delta_t(eps)``. Texts whose hashes collide set
fewer bits and are in the domain of at most h set bits.

*Truncated reports.* At most W bits of a report may be set: Prio3MultihotCountVec proves it. If
more are set after the flips, a device drops a random excess.

*Theorem (the largest original).* A report of an original with k of L bits set has
``Bin(k, 1 - q) + Bin(L - k, q)`` set bits, which rises stochastically with k since q <= 1/2. So the
original with the most set bits overflows most often.

*Theorem (the price).* Let every report overflow with probability at most tau. If the counts of N
devices that drop nothing are (eps, delta)-DP, those of N devices that drop the excess are
(eps, delta + (1 + e^eps) N tau)-DP; the proof is in docs/dap.md.

N counts the devices that hide each other; what others send can be told to the observer beforehand,
so their overflow costs nothing. Over several releases N tau is multiplied by their number. An
epsilon that holds for a single report costs nothing: dropping is post-processing of that report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import UNIT, FloatArray, bernstein, dot
from shoal.theory.calibration import largest, smallest

_REACH = 9.0
"""Standard deviations of a binomial that are summed; Bernstein's inequality bounds the rest."""

_SMALL = 4096
"""Binomials of up to this many trials are cached: a search asks for the same ones."""

_ROUNDS = 8
"""Maximum number of steps; two or three are enough where delta falls exponentially."""

_MAX_PRODUCTS = 1 << 24
"""Longer distributions are added up by fast Fourier transform, with an absolute error."""

_UNDERFLOW = 1e-290
"""Bound on what underflow takes from a tail."""


class BinomialWindow(NamedTuple):
    """`mass[i]` is P[Bin = first + i], up to a part `error` of it; `omitted` bounds the rest."""

    mass: FloatArray
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
        """Bound on the absolute error of either tail."""
        return self.relative_error + self.omitted

    @property
    def at_most_bound(self) -> float:
        """Upper bound of P[A <= s], close to it even where it is tiny."""
        return min(self.at_most * (1 + self.relative_error) + self.omitted, 1.0)

    @property
    def at_least_bound(self) -> float:
        """Upper bound of P[A >= s], close to it even where it is tiny."""
        return min(self.at_least * (1 + self.relative_error) + self.omitted, 1.0)


def binomial_window(n: int, q: float, reach: float = _REACH) -> BinomialWindow:
    """Return the pmf of Bin(n, q), 0 < q < 1, over `reach` standard deviations around its mean.

    >>> binomial_window(2, 0.25).mass.tolist()
    [0.5625, 0.375, 0.0625]
    """
    window = _window if n <= _SMALL else _window.__wrapped__
    return window(n, q, reach)


@lru_cache(256)
def _window(n: int, q: float, reach: float) -> BinomialWindow:
    window = window_of_width(n, q, reach * math.sqrt(n * q * (1 - q)) + 2 * reach**2)
    window.mass.flags.writeable = False
    return window


def window_of_width(n: int, q: float, width: float) -> BinomialWindow:
    """Return the pmf within `width` of the mean.

    Neighbouring terms have the exact ratio (n-k)/(k+1) * q/(1-q): products outwards from the mode
    lose a few roundings per step, where logarithms of factorials would lose eight digits at
    n = 1e7.
    """
    first, last = 0, n
    if width < n:
        first, last = max(0, math.floor(n * q - width)), min(n, math.ceil(n * q + width))
    mode = min(max(math.floor((n + 1) * q), first), last)
    odds = q / (1 - q)
    up = np.arange(mode, last, dtype=float)
    down = np.arange(mode, first, -1, dtype=float)
    rising = np.cumprod((n - up) / (up + 1) * odds)
    falling = np.cumprod(down / (n - down + 1) / odds)
    mass = np.concatenate((falling[::-1], [1.0], rising))
    mass /= mass.sum()
    omitted = 0.0 if first == 0 and last == n else float(bernstein(width, n * q * (1 - q)))
    return BinomialWindow(mass, first, omitted, 12 * UNIT * (mass.size + 1))


def pmf(n: int, m: int, q: float) -> FloatArray:
    """Return P[A_n(m) = s] for s = 0..n.

    >>> pmf(2, 1, 0.25).tolist()
    [0.1875, 0.625, 0.1875]
    """
    return np.convolve(
        binomial_window(m, 1 - q, np.inf).mass, binomial_window(n - m, q, np.inf).mass
    )


def tails(
    s: int, n: int, m: int, q: float, reach: float = _REACH, noise: BinomialWindow | None = None
) -> Tails:
    """Return both tails of A_n(m) at s, each including s; an infinite `reach` leaves no mass out.

    With `noise`, a distribution on the whole numbers, they are those of the sum with it.

    >>> tails(1, n=2, m=1, q=0.25)[:2]
    (0.8125, 0.8125)
    """
    # Ones that stay ones are those that are not flipped: 1 - q would lose the digits of a tiny q.
    stay = _mirrored(binomial_window(m, q, reach), m)
    flipped = binomial_window(n - m, q, reach)
    return _sum_tails(s, stay, flipped if noise is None else sum_window(flipped, noise))


def sum_tails(
    s: int,
    first: tuple[int, float],
    second: tuple[int, float],
    noise: BinomialWindow | None = None,
) -> Tails:
    """Return both tails at s of a sum of two independent binomials, each (trials, chance)."""
    one, other = binomial_window(*first), binomial_window(*second)
    return _sum_tails(s, one, other if noise is None else sum_window(other, noise))


def sum_window(one: BinomialWindow, other: BinomialWindow) -> BinomialWindow:
    """Return the distribution of a sum of two independent whole numbers.

    >>> sum_window(binomial_window(1, 0.5), binomial_window(1, 0.5)).mass.tolist()
    [0.25, 0.5, 0.25]
    """
    first = one.first + other.first
    error = one.error + other.error + 2 * UNIT * min(one.mass.size, other.mass.size)
    omitted = one.omitted + other.omitted
    if one.mass.size * other.mass.size <= _MAX_PRODUCTS:
        return BinomialWindow(np.convolve(one.mass, other.mass), first, omitted, error)
    from scipy.signal import fftconvolve

    # each value is off by a few roundings of the largest, which the total must bear
    mass = np.maximum(fftconvolve(one.mass, other.mass), 0.0)
    doubt = 128 * UNIT * mass.size * math.sqrt(float(one.mass.max() * other.mass.max()))
    return BinomialWindow(mass, first, omitted + doubt, error)


def _mirrored(window: BinomialWindow, n: int) -> BinomialWindow:
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


def chance_of_fewer(N: int, m: int, t: int) -> float:
    """Upper bound of P[n < t] in one of m cohorts of N people; 0 for t = 1."""
    # n < t means that at most t - 2 of the others are in the cohort
    return tails(t - 2, N - 1, 0, 1.0 / m).at_most_bound if t > 1 and m > 1 else 0.0


def smallest_cohort(N: int, m: int, chance: float) -> tuple[int, float]:
    """Return the largest t with P[n < t] at most `chance`, and an upper bound of that probability.

    >>> smallest_cohort(3, 2, 0.25), smallest_cohort(3, 2, 0.2), smallest_cohort(7, 1, 0.0)
    ((2, 0.2500000000...), (1, 0.0), (7, 0.0))
    """
    t = largest(lambda t: chance_of_fewer(N, m, t) <= chance * (1.0 + 1e-9), 1, N)
    return t, chance_of_fewer(N, m, t)


def best_crowd(delta: Callable[[int], float], price: Callable[[int], float], most: int) -> int:
    """Return the t <= `most`, all valid, at which ``delta(t) + price(t)`` is about the smallest.

    `delta` falls and is slow, `price` rises and is quick. Delta falls nearly exponentially in t, so
    two values of it locate the minimum, and the value there improves it.

    >>> best_crowd(lambda t: math.exp(-0.1 * t), lambda t: 1e-9 * t, 10_000)
    184
    """
    known: dict[int, float] = {}

    def log_delta(t: int) -> float:
        if t not in known:
            known[t] = math.log(max(delta(t), 1e-300))
        return known[t]

    def cheap(limit: float) -> int:
        return largest(lambda t: price(t) <= limit, 1, most) if price(1) <= limit else 1

    t = most if price(most) < 0.5 else cheap(1e-6)
    if t == most and (price(t) == 0.0 or math.log(100.0 * price(t)) <= log_delta(t)):
        return t
    other = cheap(1e-15)
    if other == t:
        other = most if t < most else max(t // 2, 1)
    for _ in range(_ROUNDS):
        if t == other:
            break
        slope = (log_delta(t) - log_delta(other)) / (t - other)
        if slope < 0.0:
            t = _model_minimum(log_delta(t), t, slope, price, most)
        else:  # too many people to tell: delta is as small as it gets
            t = cheap(0.01 * math.exp(log_delta(t)))
        other = min(known, key=lambda one: abs(one - t))
        if abs(other - t) <= t // 1000:
            break
    log_delta(t)
    return min(known, key=lambda t: math.exp(known[t]) + price(t))


def _model_minimum(
    log_delta: float, at: int, slope: float, price: Callable[[int], float], most: int
) -> int:
    """Return where ``exp(log_delta + slope (t - at)) + price(t)`` begins to rise."""

    def rises(t: int) -> bool:
        if t >= most:
            return True
        gain = -math.expm1(slope) * math.exp(min(log_delta + slope * (t - at), 700.0))
        return price(t + 1) - price(t) >= gain

    return smallest(rises, 1, most, start=at)


def overflow_chance(bits: int, max_set: int, max_weight: int, q: float) -> float:
    """Return an upper bound of P[more than W set bits] of the largest original.

    Reports have `bits` bits, of which the largest original sets `max_set`; W is `max_weight`.

    >>> f"{overflow_chance(100, 1, 12, 0.00869):.1e}", overflow_chance(5, 5, 5, 0.1)
    ('8.5e-11', 0.0)
    """
    if not 0 <= max_set <= bits or max_weight < 1 or not 0.0 < q <= 0.5:
        raise ValueError(f"no report of {bits} bits: {max_set=}, {max_weight=}, {q=}.")
    if max_weight >= bits:
        return 0.0
    # The whole pmf is summed, so only round-off is left; a float q may be off by half a unit.
    tail = tails(max_weight + 1, bits, max_set, q, math.inf).at_least_bound
    return min(tail * (1.0 + 1e-15 * bits) + _UNDERFLOW, 1.0)


def truncation_price(chance: float, reports: int, epsilon: float) -> float:
    """Return the cost of dropping in delta, ``(1 + e^eps) N tau``, rounded up and at most 1.

    >>> f"{truncation_price(8.5e-11, 10_000, math.log(2)):.2e}", truncation_price(0.0, 10, 9e9)
    ('2.55e-06', 0.0)
    """
    if chance == 0.0:
        return 0.0
    ratio = math.exp(epsilon) if epsilon < 700.0 else math.inf
    return min((1.0 + ratio) * reports * chance * (1.0 + 1e-14 * (1.0 + epsilon)), 1.0)


def smallest_weight(
    bits: int, max_set: int, q: float, reports: int, epsilon: float, budget: float
) -> int:
    """Return the smallest W whose price is within the budget; W = L costs nothing.

    >>> smallest_weight(100, 1, 0.00869, 10_000, math.log(2), 1e-8)
    14
    """

    def pays(max_weight: int) -> bool:
        chance = overflow_chance(bits, max_set, max_weight, q)
        return truncation_price(chance, reports, epsilon) <= budget

    return smallest(pays, 1, bits)
