"""Coverage by the exact law: which numbers of ones give an interval that holds the truth.

An interval depends on nothing but the number of ones, so how often it holds the truth is the
probability of a range of them; no repetitions are needed to know it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from shoal.analysis.intervals import Interval, IntervalKind, interval
from shoal.theory.binomial import tails
from shoal.theory.calibration import NoValueError, smallest

__all__ = ["covering", "probability"]


def covering(
    m: int, n: int, q: float, level: float, kind: IntervalKind, options: int
) -> tuple[int, int]:
    """Return the first and the last number of ones whose interval holds m.

    Both ends of an interval rise with the ones (KR 3.1.2), so the numbers in between are all of
    them, and a few intervals decide about any number of repetitions.

    >>> covering(100, 1000, 0.25, 0.95, "exact", 1)
    (273, 327)
    """

    @cache
    def at(ones: int) -> Interval:
        return interval(ones, n, q, level=level, kind=kind, options=options)

    # The interval of the most likely number of ones tells how far to go from it.
    centre = round(n * q + m * (1 - 2 * q))
    around = at(centre)
    reach = math.ceil(max(around.high - m, m - around.low, 1) * (1 - 2 * q))
    first = _first(lambda ones: at(ones).high >= m, n, centre - reach)
    last = _first(lambda ones: at(ones).low > m, n, centre + reach) - 1
    return first, last


def _first(rises: Callable[[int], bool], n: int, guess: int) -> int:
    """Return the first number of 0..n for which a rising predicate holds, n + 1 if none."""
    try:
        return smallest(rises, 0, n, start=guess)
    except NoValueError:
        return n + 1


def probability(first: int, last: int, m: int, n: int, q: float) -> float:
    """Return P[first <= A_n(m) <= last] by the exact law."""
    if first > last:
        return 0.0
    below = tails(first - 1, n, m, q).at_most if first > 0 else 0.0
    above = tails(last + 1, n, m, q).at_least if last < n else 0.0
    return max(0.0, 1 - below - above)
