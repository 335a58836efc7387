"""The smallest value that keeps a promise, whatever the value is: q, a crowd, epsilon, delta.

Two forms of one question. `smallest` and `largest` ask a predicate yes or no, for whole numbers and
for floats. `edge` asks a quantity that comes in brackets, whose distance from the target tells
where to look next; rough brackets do while it is far away. Whatever is returned was itself asked
and passed: if a predicate is not monotone the answer may not be the smallest, but it keeps the
promise. The example was `mechanism_calibration` of Google's dp_accounting.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from shoal.theory.brackets import Bracket

__all__ = ["Curve", "NoValueError", "Point", "edge", "judge", "largest", "smallest"]

Number = TypeVar("Number", int, float)

_BINADE = 1 << 52
"""Floats between a power of two and the next: that many places up is twice as much."""


class NoValueError(ValueError):
    """No value in the range keeps the promise."""


def smallest(
    keeps: Callable[[Number], bool],
    low: Number,
    high: Number,
    *,
    start: Number | None = None,
    step: int = 1,
    rtol: float = 0.0,
) -> Number:
    """Return the smallest value in [low, high] that keeps a promise, at most `rtol` above it.

    Parameters
    ----------
    keeps
        False below some value and true from there on. Whole numbers are asked if `low` and `high`
        are whole numbers, otherwise floats.
    low, high
        Both belong to the range. An end is asked only if the answer depends on it.
    start
        Where to begin, if the answer is thought to be near; otherwise in the middle.
    step
        How far the second value is from `start`: in whole numbers, or, for floats, in factors
        of two. Later steps double until the answer is bracketed.
    rtol
        How far the answer may be from the smallest value, as a part of the answer. 0 is exact,
        with at most 64 halvings for floats.

    Raises
    ------
    NoValueError
        If not even `high` keeps the promise.

    Examples
    --------
    >>> smallest(lambda n: n * n >= 1000, 0, 10**9), smallest(lambda x: x * x >= 2, 0.0, 2.0)
    (32, 1.4142135623730951)
    >>> smallest(lambda n: n > 10, 0, 10)
    Traceback (most recent call last):
    shoal.theory.calibration.NoValueError: no value from 0 to 10 keeps the promise.
    """
    if not low <= high:
        raise ValueError(f"low must be at most high, got low={low} and high={high}.")
    whole = isinstance(low, int) and isinstance(high, int)
    place: Callable[[Number], int] = int if whole else _place
    value = cast(Callable[[int], Number], int if whole else _float)
    step = step if whole else step * _BINADE
    first, last = place(low), place(high)
    # One below the range nothing is kept and one above it everything: neither is asked.
    bad, good = first - 1, last + 1
    if start is not None:
        probe = min(max(place(start), first), last)
        while bad < probe < good:
            if keeps(value(probe)):
                good, probe = probe, max(probe - step, bad)
            else:
                bad, probe = probe, min(probe + step, good)
            step *= 2
    while good - bad > 1:
        probe = (bad + good) // 2
        if bad >= first:
            below, above = value(bad), value(min(good, last))
            if above - below < rtol * min(abs(below), abs(above)):
                if good <= last:
                    break
                probe = last
        if keeps(value(probe)):
            good = probe
        else:
            bad = probe
    if good > last:
        raise NoValueError(f"no value from {low} to {high} keeps the promise.")
    return value(good)


def largest(
    keeps: Callable[[Number], bool],
    low: Number,
    high: Number,
    *,
    start: Number | None = None,
    step: int = 1,
    rtol: float = 0.0,
) -> Number:
    """Return the largest value in [low, high] that keeps a promise: `smallest`, turned round.

    Examples
    --------
    >>> largest(lambda n: n * n <= 1000, 0, 10**9)
    31
    """
    begin = None if start is None else -start
    return 0 - smallest(
        lambda value: keeps(0 - value), -high, -low, start=begin, step=step, rtol=rtol
    )


def _place(number: float) -> int:
    """Return where a float stands in the order of all floats; 0 is at place 0."""
    bits: int = struct.unpack("<q", struct.pack("<d", abs(number)))[0]
    return bits if number > 0 else -bits


def _float(place: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", abs(place)))[0]
    return math.copysign(number, place)


Curve = Callable[[float, float], Bracket]
"""Bracket of a quantity at a point, of a given relative width."""


class Point(NamedTuple):
    """A point, ln(quantity / target) there, and whether the quantity is surely within target."""

    x: float
    gap: float
    passed: bool


def judge(curve: Curve, x: float, target: float, rtol: float, finest: float) -> Point:
    """Compare the quantity at a point with the target, with finer brackets while it is open."""
    while True:
        bracket = curve(x, rtol)
        # Where a bracket is as narrow as it gets, its high end decides, so that is compared.
        known = bracket.is_within(2.0 * rtol)
        value = 0.5 * (bracket.low + bracket.high) if known else bracket.high
        gap = math.log(max(value, 1e-300) / target)
        if bracket.high <= target:
            return Point(x, min(gap, -1e-12), True)
        if bracket.low > target:
            return Point(x, max(gap, 1e-12), False)
        if rtol <= finest or not known:
            # It is also what the next point must lower.
            return Point(x, math.log(bracket.high / target), False)
        rtol = max(finest, rtol / 50.0)


def edge(
    curve: Curve, good: Point, bad: Point, target: float, xtol: float, finest: float = 1e-4
) -> float:
    """Close in on the edge between a passing and a failing point; return the passing end.

    False position with the Illinois rule on the logarithm of the quantity, bisection while an end
    is off the scale.
    """
    weight_good = weight_bad = 1.0
    for _ in range(80):
        if abs(bad.x - good.x) <= xtol * max(abs(good.x), abs(bad.x)):
            break
        reach_good, reach_bad = -good.gap * weight_good, bad.gap * weight_bad
        share = 0.5
        if max(reach_good, reach_bad) < 30.0:
            share = min(max(reach_good / (reach_good + reach_bad), 0.01), 0.99)
        rtol = min(max(0.05 * (bad.gap - good.gap), finest), 0.05)
        point = judge(curve, good.x + share * (bad.x - good.x), target, rtol, finest)
        if point.passed:
            weight_bad = 0.5 * weight_bad if weight_good == 1.0 else 1.0
            good, weight_good = point, 1.0
        else:
            weight_good = 0.5 * weight_good if weight_bad == 1.0 else 1.0
            bad, weight_bad = point, 1.0
    return good.x
