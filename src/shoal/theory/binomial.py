"""Binomial tails, and what they decide: one bit's count, cohort sizes, reports that are truncated.

*One bit's count*: how many of n reports show a 1 when m of them should,
``A_n(m) = Bin(m, p) + Bin(n - m, q)`` (KR 3.1). Its mean is nq + m(p - q), its variance npq for
every m. It rises stochastically with m (KR 3.1.2, theorem), by at most one per step of m, so that
its quantiles step by 0 or 1 (KR 3.1.3, theorem).

*A larger crowd never hides less (theorem).* Let delta_N be the largest delta of N honest reports,
over all collections of the domain. A collection of N + 1 people is one of N and another person,
whose report depends on that person's answer and coins alone. The observer of N reports who knows
the answer can draw such a report and add it: the larger release is post-processing of the smaller
one, so that delta_(N+1) <= delta_N. It holds for whole reports, for counts, and for reports in
pieces, at the same q. So a bound for t people holds for every N >= t, and the smallest of several
such bounds holds too: where a bound has a price that rises with the crowd, `best_crowd` finds how
many people to count on.

*Cohorts.* Each of N people draws one of m cohorts uniformly, whatever the answer is. Tell the
attacker who is in which: that only helps (data processing). What is left is a crowd of
n = 1 + Bin(N - 1, 1/m) people with one hash function, whose distribution does not depend on any
answer, so that for every t

    delta(eps) <= P[n < t] delta_1(eps) + delta_t(eps)        (theorem)

Texts that set fewer bits because their hashes collide are in the domain of at most h set bits. The
same holds where cohorts are drawn afresh: the attacker is told more.

*Truncated reports.* A device sends the positions of the set bits of its randomized report in W
messages, and dummies in those that are left. If more than W bits are set, it drops a random excess.

*Theorem (the largest original).* Let an original have k of L bits set. Its report has
``Bin(k, 1 - q) + Bin(L - k, q)`` set bits, which rises stochastically with k, since q <= 1/2. So no
original of a domain exceeds W set bits more often than one with the most true bits.

*Theorem (the price).* Let tau bound the probability that a report of the domain has more than W set
bits. If the counts of N devices that drop nothing are (eps, delta) differentially private, then
those of N devices that drop the excess are (eps, delta + (1 + e^eps) N tau) private.

*Proof.* Let P and Q be the distributions of the counts under two neighbours, P' and Q' those after
dropping. Draw the reports once and drop from them: the counts are the same unless one of N
reports overflows, so ``TV(P, P') <= N tau`` and ``TV(Q, Q') <= N tau``. For every event S

    P'(S) <= P(S) + N tau <= e^eps Q(S) + delta + N tau <= e^eps Q'(S) + delta + (1 + e^eps) N tau.

How many dummies there are follows from the counts, so an observer of all messages, shuffled, sees
no more than the counts. QED

N counts the devices that hide each other. Whatever others send, honest or not, can be told to the
observer beforehand (data processing): their overflow costs nothing. In several releases each of
the reports may overflow, so that N tau is multiplied by their number, whether or not their flips
are fresh. At an epsilon that holds for each report by itself nothing is paid: what a device drops
is post-processing of its own report.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.theory.brackets import dot
from shoal.theory.calibration import largest, smallest

_REACH = 9.0
"""Standard deviations of each binomial that are summed; Bernstein bounds what is left out."""

_UNIT_ROUNDOFF = 2.0**-53

_SMALL = 4096
"""Binomials of so many trials are kept: a search asks for the same ones again and again."""

_ROUNDS = 8
"""Maximum number of steps; two or three are enough where delta falls exponentially."""

_UNDERFLOW = 1e-290
"""What floats may have lost of a tail, at most."""


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


def chance_of_fewer(N: int, m: int, t: int) -> float:
    """Upper bound of P[n < t] in one of m cohorts of N people; 0 for t = 1.

    >>> chance_of_fewer(3, 2, 2), chance_of_fewer(3, 1, 3)
    (0.2500000000..., 0.0)
    """
    # n < t means that at most t - 2 of the others are in the cohort
    return tails(t - 2, N - 1, 0, 1.0 / m).at_most_bound if t > 1 and m > 1 else 0.0


def smallest_cohort(N: int, m: int, chance: float) -> tuple[int, float]:
    """Largest t with P[n < t] at most `chance`, and an upper bound of P[n < t].

    Parameters
    ----------
    N : int >= 1
        Number of people.
    m : int >= 1
        Number of cohorts.
    chance : float in [0, 1)
        The largest probability of a smaller cohort.

    >>> smallest_cohort(3, 2, 0.25), smallest_cohort(3, 2, 0.2), smallest_cohort(7, 1, 0.0)
    ((2, 0.2500000000...), (1, 0.0), (7, 0.0))
    """
    t = largest(lambda t: chance_of_fewer(N, m, t) <= chance * (1.0 + 1e-9), 1, N)
    return t, chance_of_fewer(N, m, t)


def best_crowd(delta: Callable[[int], float], price: Callable[[int], float], most: int) -> int:
    """Return the t <= `most` at which ``delta(t) + price(t)`` is about the smallest.

    `delta` falls, and takes long; `price` rises, and is quick. Any answer is valid: this looks for
    the best one. At a fixed q delta falls nearly exponentially in t, so that two values of it tell
    where the sum is smallest, and the value there tells it better.

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


def overflow_chance(bits: int, max_set: int, messages: int, q: float) -> float:
    """Return an upper bound of P[more than W set bits] of the largest original.

    Parameters
    ----------
    bits : int >= 1
        Length of a report, L.
    max_set : int in [0, bits]
        Bits that are set in the largest original, k.
    messages : int >= 1
        How many set bits are sent, W.
    q : float in (0, 1/2]
        Flip probability.

    >>> f"{overflow_chance(100, 1, 12, 0.00869):.1e}", overflow_chance(5, 5, 5, 0.1)
    ('8.5e-11', 0.0)
    """
    if not 0 <= max_set <= bits or messages < 1 or not 0.0 < q <= 0.5:
        raise ValueError(f"no report of {bits} bits: {max_set} set, q={q}, {messages} messages.")
    if messages >= bits:
        return 0.0
    # The whole pmf is summed, so only round-off is left; a float q may be off by half a unit.
    tail = tails(messages + 1, bits, max_set, q, math.inf).at_least_bound
    return min(tail * (1.0 + 1e-15 * bits) + _UNDERFLOW, 1.0)


def truncation_price(chance: float, reports: int, epsilon: float) -> float:
    """Return what dropping costs in delta: ``(1 + e^eps) N tau``, rounded up and at most 1.

    >>> f"{truncation_price(8.5e-11, 10_000, math.log(2)):.2e}", truncation_price(0.0, 10, 9e9)
    ('2.55e-06', 0.0)
    """
    if chance == 0.0:
        return 0.0
    ratio = math.exp(epsilon) if epsilon < 700.0 else math.inf
    return min((1.0 + ratio) * reports * chance * (1.0 + 1e-14 * (1.0 + epsilon)), 1.0)


def min_messages(
    bits: int, max_set: int, q: float, reports: int, epsilon: float, budget: float
) -> int:
    """Return the smallest W whose price is at most a budget; W = L costs nothing.

    >>> min_messages(100, 1, 0.00869, 10_000, math.log(2), 1e-8)
    14
    """

    def pays(messages: int) -> bool:
        chance = overflow_chance(bits, max_set, messages, q)
        return truncation_price(chance, reports, epsilon) <= budget

    return smallest(pays, 1, bits)
