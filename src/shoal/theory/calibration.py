"""The smallest value that keeps a promise, for any kind of value: q, a crowd, epsilon, delta.

* `smallest` and `largest` ask a predicate of whole numbers or floats.
* `edge`, `around` and `smallest_q` ask a quantity in brackets: rough ones far from the target.
* `coarse_to_fine` asks an upper bound that is cheap when coarse, and certifies with a fine one.

Every returned value was itself asked and passed. If the quantity is not monotone, the answer may
not be the smallest, but it keeps the promise. Modelled on dp_accounting's `mechanism_calibration`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

from shoal.theory.brackets import Bracket
from shoal.theory.randomized_response import local_q, log_theta

Number = TypeVar("Number", int, float)

_BINADE = 1 << 52
"""Floats between a power of two and the next."""


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

    `keeps` is false below some value and true from there on; it is asked whole numbers if both ends
    are whole numbers, otherwise floats, and an end only if the answer depends on it. `start` is
    where to begin if the answer is thought to be near, and `step` the distance of the second value
    from it, in whole numbers or in factors of two; it doubles until the answer is bracketed. If not
    even `high` keeps the promise, that is a `NoValueError`.

    >>> smallest(lambda n: n * n >= 1000, 0, 10**9), smallest(lambda x: x * x >= 2, 0.0, 2.0)
    (32, 1.4142135623730951)
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
    """Return the largest value in [low, high] that keeps a promise; see `smallest`.

    >>> largest(lambda n: n * n <= 1000, 0, 10**9)
    31
    """
    begin = None if start is None else -start
    return 0 - smallest(
        lambda value: keeps(0 - value), -high, -low, start=begin, step=step, rtol=rtol
    )


def _place(number: float) -> int:
    """Return the rank of a float among all floats; 0 has rank 0."""
    bits: int = struct.unpack("<q", struct.pack("<d", abs(number)))[0]
    return bits if number > 0 else -bits


def _float(place: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", abs(place)))[0]
    return math.copysign(number, place)


Curve = Callable[[float, float], Bracket]
"""Bracket of a quantity at a point, of a given relative width."""

Guess = Callable[[float], float]

FINE = 1e-4
FIRST, ROUGH = 5e-2, 1e-2
"""Width of the first bracket at a point, and of the finest one far from the answer."""

MIN_Q = 1e-12

_ROOM, _REACH, _FEW = 0.01, 0.25, 10
"""`further` aims so far below the target (in logarithms), in steps of this length, this many."""


class Answer(NamedTuple):
    """The value found and the certified quantity (delta or eta) there."""

    value: float
    at: Bracket


class Point(NamedTuple):
    """A point, ln(quantity / target) there, and whether the quantity is surely within target."""

    x: float
    gap: float
    passed: bool


def check_target(target: float) -> None:
    """Refuse a target outside (0, 1)."""
    if not 0.0 < target < 1.0:
        raise ValueError(f"delta must be strictly between 0 and 1, got {target}.")


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
            # The next point must lower the high end too.
            return Point(x, math.log(bracket.high / target), False)
        rtol = max(finest, rtol / 50.0)


def edge(
    curve: Curve, good: Point, bad: Point, target: float, xtol: float, finest: float = FINE
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


def remembering(curve: Curve) -> Curve:
    """Cache a curve: a point that is known well enough is not computed again."""
    known: dict[float, Bracket] = {}

    def remembered(x: float, rtol: float) -> Bracket:
        before = known.get(x, Bracket(0.0, math.inf))
        if not before.is_within(rtol):
            # A finer bracket need not be a better one, so keep what was known.
            found = curve(x, rtol)
            high = min(found.high, before.high)
            known[x] = Bracket(min(max(found.low, before.low), high), high)
        return known[x]

    return remembered


def around(
    curve: Curve, guess: Guess, safe: Point, stop: float, target: float, finest: float
) -> tuple[Point, Point | None]:
    """Find a passing and a failing point, not far from each other; None if all points pass.

    The quantity rises in x from `safe`, which is taken to pass, up to `stop`. Each point corrects
    the guess, in logarithms. Steps grow, because the guess may be far off.
    """
    good, bad, aim, step = safe, None, target, 1.005
    while good.x < stop and (good is safe or bad is None):
        x, high = good.x, stop if bad is None else bad.x
        while high > 1.005 * x:  # where the guess meets the target, to half a percent
            middle = math.sqrt(x * high)
            x, high = (middle, high) if guess(middle) <= aim else (x, middle)
        if bad is not None:
            x = min(x, bad.x / step)
        elif good is not safe:
            x = min(max(x, good.x * step), stop)
        if x <= safe.x:
            break
        point = judge(curve, x, target, FIRST, finest)
        good, bad = (point, bad) if point.passed else (good, point)
        found = min(math.log(target) + point.gap, -1e-3)
        # a little further than the edge seems to be, so that it is in between
        aim = guess(x) ** (math.log(target) / found) * (1.6 if point.passed else 0.6)
        step *= step
    return good, bad


def around_falling(
    curve: Curve, guess: Guess, lowest: float, safe: Point, target: float, finest: float
) -> tuple[Point, Point | None]:
    """Do the same where the quantity falls in x, from `lowest` up to that of `safe`."""
    points = around(
        lambda y, rtol: curve(1.0 / y, rtol),
        lambda y: guess(1.0 / y),
        safe._replace(x=1.0 / safe.x),
        1.0 / lowest,
        target,
        finest,
    )
    good, bad = (None if point is None else point._replace(x=1.0 / point.x) for point in points)
    assert good is not None
    return good, bad


def q_of_log_odds(log_odds: float) -> float:
    """Return the flip probability with ``ln(p / q) = log_odds``."""
    return min(1.0 / (1.0 + math.exp(log_odds)), 0.5)


def smallest_q(
    differ: int, epsilon: float, target: float, at: Curve, xtol: float,
    finest: float = FINE, stride: float = 1.5, guess: Guess | None = None,
) -> Answer:  # fmt: skip
    """Return the smallest q at which a quantity is within target, to `xtol` of its log-odds.

    Bounds on delta need not fall in q, and eta need not fall in anything. So the search goes down
    from the local q, where the promise holds without a crowd, to the first failure. A guess of the
    quantity at each q says where to begin. Two answers differ in at most `differ` bits.
    """
    check_target(target)
    if differ == 0:
        return Answer(MIN_Q, Bracket(0.0, 0.0))
    safe = min(math.nextafter(local_q(differ, epsilon), 1.0), 0.5) if epsilon > 0.0 else 0.5
    stop = log_theta(MIN_Q)
    bracket_at = remembering(at)

    def curve(u: float, rtol: float) -> Bracket:
        return bracket_at(q_of_log_odds(u), rtol)

    good = Point(max(log_theta(safe), 1e-9), -1e3, True)
    bad = None
    if guess is not None:
        good, bad = around(curve, lambda u: guess(q_of_log_odds(u)), good, stop, target, finest)
    while bad is None and good.x < stop:
        point = judge(curve, min(stride * good.x, stop), target, FIRST, ROUGH)
        good, bad = (point, None) if point.passed else (good, point)
    u = good.x if bad is None else edge(curve, good, bad, target, xtol, finest)
    for _ in range(60):
        final = curve(u, FIRST)
        if final.high > target:
            final = curve(u, finest)
        if final.high <= target:
            return Answer(q_of_log_odds(u), final)
        u -= xtol * u
        xtol *= 1.5
    return Answer(safe, at(safe, finest))


def further(
    value: Callable[[float], float], good: float, x: float, slope: float, target: float
) -> float:
    """Return nearly the largest x at which an expensive quantity is at most target.

    Its logarithm rises in x with about `slope`. It passes at `good`, and the search begins at x.
    It evaluates few values; the returned one passed with a little room, for platforms that round
    differently, or is `good`.
    """
    aim, best, bad = math.log(target) - _ROOM, good, math.inf
    before: tuple[float, float] | None = None
    reach = _REACH * abs(x)
    for _ in range(_FEW):
        log_value = math.log(max(value(x), 1e-300))
        gap = log_value - aim
        if gap > 0.5 * _ROOM:
            bad = min(bad, x)
        else:
            best = max(best, x)
            if gap >= -2.0 * _ROOM:
                break
        if before is None:
            # the slope is that near the target, and larger where the quantity is far below it
            slope *= 0.5 + 0.5 * max(log_value / aim, 1.0)
        elif (x - before[0]) * (gap - before[1]) > 0.0:
            slope = (gap - before[1]) / (x - before[0])
        before = x, gap
        x = min(max(x - gap / slope, x - reach), x + reach)
        if not best < x < bad:
            x = 0.5 * (best + min(bad, best + reach))
    return best


def coarse_to_fine(
    bound: Callable[[float, float], float], start: float, low: float, high: float, target: float,
    xtol: float, coarse: float, fine: float, lead: float = 0.0,
) -> float:  # fmt: skip
    """Return the smallest x in [low, high], to within `xtol`, whose bound is within target.

    ``bound(x, tolerance)`` falls in x, and `high` is known to pass. The search uses the tolerance
    `coarse`; `fine` certifies the answer. Its edge is about `lead` below the coarse one.
    """

    def gap(x: float, tolerance: float = coarse) -> float:
        return math.log(max(bound(x, tolerance), 1e-300) / target)

    # widen a stretch from the start until the coarse curve crosses the target in it
    x, width = min(max(start, low), high), 0.05
    value = gap(x)
    fails = value > 0.0
    slope = -1.0
    while x != (high if fails else low):
        other = min(x + width, high) if fails else max(x - width, low)
        beyond = gap(other)
        if (beyond > 0.0) != fails:
            from scipy.optimize import brentq  # here, so that other commands start sooner

            slope = (beyond - value) / (other - x)
            ends = min(x, other), max(x, other)
            x = max(float(brentq(gap, *ends, xtol=4.0 * xtol, rtol=1e-10)) - lead, low)
            break
        x, value, width = other, beyond, 3.0 * width
    # step along the fine curve until it passes at x and not, or hardly, at x - xtol
    failing, passing = -math.inf, high
    for _ in range(12):
        value = gap(x, fine)
        if value <= 0.0:
            passing = min(passing, x)
            if value >= 1.5 * xtol * slope or x <= low:
                break
        else:
            failing = max(failing, x)
        if passing - failing <= xtol:
            break
        # aim at half a tolerance inside
        aim = x - value / slope + 0.5 * xtol
        if not failing < aim < passing:
            aim = 0.5 * (max(failing, low) + passing)
        x = min(max(aim, low), high)
    return passing


def smallest_epsilon(
    curve: Callable[[float], float], delta: float, top: float, rtol: float = 1e-5
) -> float:
    """Return the smallest epsilon at which a falling curve is at most delta, or `top`.

    It is up to about `rtol` too large, and the curve was asked there unless it is `top`.

    >>> round(smallest_epsilon(lambda eps: math.exp(-eps), 1e-3, 50.0), 3)
    6.908
    """
    from scipy.optimize import brentq

    def gap(epsilon: float) -> float:
        return math.log(max(curve(epsilon), 1e-320) / delta)

    if gap(0.0) <= 0.0:
        return 0.0
    if gap(top) > 0.0:
        return top
    root = float(brentq(gap, 0.0, top, xtol=1e-300, rtol=rtol))
    step = rtol
    while root < top and gap(root) > 0.0:
        root, step = min(root * (1.0 + step), top), 2.0 * step
    return root


def settle(
    find: Callable[[float, float], float],
    left: Callable[[float], float],
    keeps: Callable[[float], bool],
    target: float,
    tries: int = 30,
) -> tuple[float, bool]:
    """Find a value that pays its own price from the target; return it and whether it keeps it.

    ``find(target, last)`` solves without the price, ``left(value)`` is what the price at a value
    leaves of the target.
    """
    value = find(target, 0.0)
    for _ in range(tries):
        if keeps(value):
            return value, True
        if (rest := left(value)) <= 0.0:
            break
        value = find(rest, value)
    return value, False
