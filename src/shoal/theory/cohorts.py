"""Smaller crowds that hide enough: cohorts that are known, and crowds that cost less.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoal.theory.calibration import largest, smallest
from shoal.theory.one_bit.distribution import tails

__all__ = ["best_crowd", "chance_of_fewer", "smallest_cohort"]

_ROUNDS = 8
"""Maximum number of steps; two or three are enough where delta falls exponentially."""


def chance_of_fewer(N: int, m: int, t: int) -> float:
    """Upper bound of P[n < t] in one of m cohorts of N people; 0 for t = 1.

    Examples
    --------
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

    Examples
    --------
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

    Examples
    --------
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
