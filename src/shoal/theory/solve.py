"""Turn the questions round: which q, which epsilon, how large a crowd.

Each search uses rough brackets far from the answer and fine ones near it, always from the safe
side, and ends with a bracket at the very answer: what is returned is certified there, not by the
search. Delta falls in epsilon and in N (theorems; for the blanket in N by Jensen: the mean of
N draws dominates that of N + 1 in convex order), and the true delta in q. Bounds on delta need
not fall in q, and eta need not fall in anything, so q is sought downward from the local q, where
the promise holds without a crowd, to the first failure: below it nothing is claimed. For wide
surveys, whose bounds take long, that search begins at a guess instead, as those for a crowd and for
epsilon always do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from shoal.theory.blanket import normal_guess
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import Curve, Point, edge, judge
from shoal.theory.domains import Block, check_domain, differing_bits
from shoal.theory.gaussian import gaussian_delta
from shoal.theory.homogeneous import check_crowd, eta
from shoal.theory.proven import attack_delta, proven_delta
from shoal.theory.randomized_response import local_epsilon, local_q, log_theta
from shoal.theory.sufficient import sufficient_eta

__all__ = [
    "Solved",
    "attack_q",
    "proven_crowd",
    "proven_epsilon",
    "proven_q",
    "sufficient_q",
]

_FINE = 1e-4
_WIDE = 100
_FINE_IF_WIDE, _XTOL_IF_WIDE = 1e-3, 2e-4
"""With more differing bits, delta is known to a thousandth and q is sought to a 5,000th of its
log-odds: of sigma, that is a tenth of what rounding q up to 16 digits may cost there."""
_XTOL_OF_OTHERS_IF_WIDE = 5e-4
"""A crowd or an epsilon is sought to a 2,000th there. Delta moves at least half as much as a crowd
does, so a crowd is at most a few thousandths above the smallest one."""

_FIRST, _ROUGH = 5e-2, 1e-2
"""How narrow the first bracket at a point is, and the finest one far from the answer."""

_SMALLEST_Q = 1e-12
_SMALLEST_EPSILON = 1e-9
_LARGEST_CROWD = 10**12


class Solved(NamedTuple):
    """The answer and the certified quantity (delta or eta) at it."""

    value: float
    at: Bracket


def _check_target(target: float) -> None:
    if not 0.0 < target < 1.0:
        raise ValueError(f"the target must be strictly between 0 and 1, got {target}.")


def _precision(blocks: tuple[Block, ...], xtol: float) -> tuple[bool, float, float]:
    """Whether a domain is wide, and to what its answer and delta are then known."""
    if differing_bits(blocks) > _WIDE:
        return True, max(xtol, _XTOL_IF_WIDE), _FINE_IF_WIDE
    return False, xtol, _FINE


def _q_of(log_odds: float) -> float:
    return min(1.0 / (1.0 + math.exp(log_odds)), 0.5)


def _remembering(at: Curve) -> Curve:
    """Return the same curve, which computes nothing again that is known well enough."""
    known: dict[float, Bracket] = {}

    def curve(x: float, rtol: float) -> Bracket:
        before = known.get(x, Bracket(0.0, math.inf))
        if not before.is_within(rtol):
            # Asking for more need not bring more, so what was known is not given up.
            found = at(x, rtol)
            high = min(found.high, before.high)
            known[x] = Bracket(min(max(found.low, before.low), high), high)
        return known[x]

    return curve


def _solve_q(
    blocks: tuple[Block, ...], epsilon: float, target: float, at: Curve, xtol: float,
    finest: float = _FINE, stride: float = 1.5, guess: Guess | None = None,
) -> Solved:  # fmt: skip
    """Walk from the local q downward, in log-odds upward, to the first failure; find the edge.

    With a guess of the quantity at each q, begin where the guess meets the target.
    """
    _check_target(target)
    differ = differing_bits(blocks)
    if differ == 0:
        return Solved(_SMALLEST_Q, Bracket(0.0, 0.0))
    safe = min(math.nextafter(local_q(differ, epsilon), 1.0), 0.5) if epsilon > 0.0 else 0.5
    stop = log_theta(_SMALLEST_Q)

    bracket_at = _remembering(at)

    def curve(u: float, rtol: float) -> Bracket:
        return bracket_at(_q_of(u), rtol)

    good = Point(max(log_theta(safe), 1e-9), -1e3, True)
    bad = None
    if guess is not None:
        good, bad = _around(curve, lambda u: guess(_q_of(u)), good, stop, target, finest)
    while bad is None and good.x < stop:
        point = judge(curve, min(stride * good.x, stop), target, _FIRST, _ROUGH)
        good, bad = (point, None) if point.passed else (good, point)
    u = good.x if bad is None else edge(curve, good, bad, target, xtol, finest)
    for _ in range(60):
        final = curve(u, _FIRST)
        if final.high > target:
            final = curve(u, finest)
        if final.high <= target:
            return Solved(_q_of(u), final)
        u -= xtol * u
        xtol *= 1.5
    return Solved(safe, at(safe, finest))


Guess = Callable[[float], float]
"""A quick guess of the quantity at a point."""


def _around(
    curve: Curve, guess: Guess, safe: Point, stop: float, target: float, finest: float
) -> tuple[Point, Point | None]:
    """Find a point that passes and one that fails, not far from each other; None if all pass.

    The quantity rises in x, from `safe`, which is taken to pass, up to `stop`. What is found
    corrects the guess, in logarithms. Steps grow, for it may be far off.
    """
    good, bad, aim, step = safe, None, target, 1.005
    while good.x < stop and (good is safe or bad is None):
        x = _guessed(guess, good.x, stop if bad is None else bad.x, aim)
        if bad is not None:
            x = min(x, bad.x / step)
        elif good is not safe:
            x = min(max(x, good.x * step), stop)
        if x <= safe.x:
            break
        point = judge(curve, x, target, _FIRST, finest)
        good, bad = (point, bad) if point.passed else (good, point)
        found = min(math.log(target) + point.gap, -1e-3)
        # a little further than the edge seems to be, so that it is in between
        aim = guess(x) ** (math.log(target) / found) * (1.6 if point.passed else 0.6)
        step *= step
    return good, bad


def _guessed(guess: Guess, low: float, high: float, target: float) -> float:
    """Point, to half a percent, at which a guess meets the target."""
    while high > 1.005 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if guess(middle) <= target else (low, middle)
    return low


def _around_falling(
    curve: Curve, guess: Guess, lowest: float, safe: Point, target: float, finest: float
) -> tuple[Point, Point | None]:
    """Do the same where the quantity falls in x, which goes from `lowest` up to that of `safe`."""

    def turned(point: Point) -> Point:
        return point._replace(x=1.0 / point.x)

    good, bad = _around(
        lambda y, rtol: curve(1.0 / y, rtol),
        lambda y: guess(1.0 / y),
        turned(safe),
        1.0 / lowest,
        target,
        finest,
    )
    return turned(good), None if bad is None else turned(bad)


def _enough(good: Point, bad: Point, xtol: float, finest: float) -> float:
    """Return how well delta must be known between two points for an answer to `xtol`.

    Where a fine bracket is dear, no finer one is asked for than the slope there needs.
    """
    if good.gap <= -1e3 or bad.passed or bad.x <= 0.0:
        return finest
    slope = (bad.gap - good.gap) / abs(math.log(good.x / bad.x))
    return min(max(finest, xtol * slope), _ROUGH)


def proven_q(
    domain: Iterable[Block], N: int, epsilon: float, delta: float, xtol: float = 3e-6
) -> Solved:
    """Smallest q, to within `xtol` of its log-odds, at which the proven delta is at most `delta`.

    Round q up to what the sampler can draw and ask `proven_delta` again: the true delta can only
    fall, its bound is certified by the second call.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> answer = proven_q((flags(5),), 5000, math.log(2), 0.005)
    >>> round(answer.value, 4), answer.at.high <= 0.005
    (0.2101, True)
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)

    def at(q: float, rtol: float) -> Bracket:
        return proven_delta(blocks, N, q, epsilon, rtol).delta

    def guess(q: float) -> float:
        return normal_guess(blocks, N, q, epsilon)

    wide, xtol, finest = _precision(blocks, xtol)
    # delta moves by several times the step in q, so a long step needs no fine delta; in wide
    # domains it moves by fifty times the step in the log-odds (observed)
    finest = _ROUGH if wide else min(max(xtol, finest), _ROUGH)
    stride = 3.0 if finest >= _ROUGH else 1.5  # from the local q it is a long way
    return _solve_q(blocks, epsilon, delta, at, xtol, finest, stride, guess if wide else None)


def attack_q(
    domain: Iterable[Block], N: int, epsilon: float, delta: float, xtol: float = 3e-6
) -> Solved:
    """Smallest q at which the crowds tried have delta at most `delta`: no promise, a yardstick.

    Examples
    --------
    >>> from shoal.theory.domains import choice
    >>> round(attack_q((choice(100),), 10_000, math.log(2), 1e-6).value, 4)
    0.0722
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)

    def at(q: float, rtol: float) -> Bracket:
        return attack_delta(blocks, N, q, epsilon, rtol).delta

    return _solve_q(blocks, epsilon, delta, at, xtol)


def sufficient_q(
    domain: Iterable[Block], N: int, epsilon: float, target: float, xtol: float = 3e-5
) -> Solved:
    """Smallest q, coming from the local one, with eta at most `target` on all crowds (SDP 3.2).

    One crowd is solved for, then all are compared there; if another one is worse it takes its
    place. The answer is certified on all of them.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> 0.245 < sufficient_q((flags(5),), 1000, math.log(2), 0.006).value < 0.248
    True
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)
    crowd: tuple[int, int, int] = (differing_bits(blocks), 0, 0)

    def at(q: float, rtol: float) -> Bracket:
        return eta(crowd, N, q, epsilon, max(rtol, 1e-2))

    best = Solved(0.0, Bracket(0.0, 0.0))
    for _ in range(6):
        answer = _solve_q(blocks, epsilon, target, at, xtol, 1e-2)
        best = max(best, answer)
        worst = sufficient_eta(blocks, N, best.value, epsilon)
        if worst.eta.high <= target or sum(worst.crowd) == 0:
            return Solved(best.value, worst.eta)
        if worst.crowd == crowd:
            xtol *= 3.0
        crowd = worst.crowd
    q = best.value
    while True:
        # two crowds that are equally bad: leave the edge
        q = _q_of(log_theta(q) * (1.0 - 3e-4))
        worst = sufficient_eta(blocks, N, q, epsilon)
        if worst.eta.high <= target:
            return Solved(q, worst.eta)


def proven_epsilon(
    domain: Iterable[Block], N: int, q: float, delta: float, xtol: float = 1e-5
) -> Solved:
    """Smallest epsilon, rounded up by about `xtol`, at which the proven delta is at most `delta`.

    ``delta = 0`` asks for the local epsilon.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> round(proven_epsilon((flags(5),), 5000, 0.21013, 0.005).value, 3)
    0.693
    """
    blocks = check_domain(domain)
    check_crowd(N, q, 0.0)
    local = local_epsilon(differing_bits(blocks), q) * (1.0 + 1e-13)
    if delta == 0.0:
        return Solved(local, Bracket(0.0, 0.0))
    _check_target(delta)
    if local <= _SMALLEST_EPSILON:
        return Solved(local, Bracket(0.0, 0.0))
    wide, xtol, finest = _precision(blocks, xtol)
    xtol = max(xtol, _XTOL_OF_OTHERS_IF_WIDE) if wide else xtol

    def at(epsilon: float, rtol: float) -> Bracket:
        return proven_delta(blocks, N, q, epsilon, rtol).delta

    # as of a Gaussian mechanism with the same delta at epsilon = 0, where that is mu / sqrt(2 pi)
    mu = math.sqrt(2.0 * math.pi) * normal_guess(blocks, N, q, 0.0)

    def guess(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon)

    curve = _remembering(at)
    safe = Point(local, -1e3, True)
    near = _ROUGH if wide else finest
    good, bad = _around_falling(curve, guess, _SMALLEST_EPSILON, safe, delta, near)
    if bad is None:
        bad = judge(curve, 0.0, delta, _FIRST, finest)
    if wide:
        finest = _enough(good, bad, xtol, finest)
    answer = 0.0 if bad.passed else edge(curve, good, bad, delta, xtol, finest)
    # A finer bracket need not be a better one, and a plan is certified by a fine one.
    while (final := at(answer, _FINE)).high > delta and answer < local:
        answer = min(max(answer * (1.0 + xtol), _SMALLEST_EPSILON), local)
        xtol *= 2.0
    return Solved(answer, final)


def proven_crowd(
    domain: Iterable[Block], q: float, epsilon: float, delta: float, xtol: float = 1e-5
) -> Solved:
    """Crowd at which the proven delta is at most `delta`: the smallest, rounded up by `xtol`.

    Infinite when 1e12 is not enough.

    Examples
    --------
    >>> from shoal.theory.domains import choice
    >>> 9_990 < proven_crowd((choice(100),), 0.07477, math.log(2), 1e-6).value <= 10_000
    True
    """
    blocks = check_domain(domain)
    check_crowd(1, q, epsilon)
    _check_target(delta)
    wide, xtol, finest = _precision(blocks, xtol)
    xtol = max(xtol, _XTOL_OF_OTHERS_IF_WIDE) if wide else xtol

    def at(N: float, rtol: float) -> Bracket:
        return proven_delta(blocks, int(N), q, epsilon, rtol).delta

    def guess(N: float) -> float:
        return normal_guess(blocks, math.ceil(N), q, epsilon)

    bracket_at = _remembering(at)

    def curve(N: float, rtol: float) -> Bracket:
        return bracket_at(math.ceil(N), rtol)

    safe = Point(_LARGEST_CROWD, -1e3, True)
    near = _ROUGH if wide else finest
    good, bad = _around_falling(curve, guess, 1.0, safe, delta, near)
    if good.x > 0.999 * _LARGEST_CROWD:
        good = judge(curve, _LARGEST_CROWD, delta, _FIRST, finest)
        if not good.passed:
            return Solved(math.inf, Bracket(0.0, 1.0))
    if bad is None:
        bad = judge(curve, 1, delta, _FIRST, finest)
    if wide:
        finest = _enough(good, bad, xtol, finest)
    # below one person there is nothing left to resolve
    whole = max(xtol, 0.5 / good.x)
    answer = 1 if bad.passed else math.ceil(edge(curve, good, bad, delta, whole, finest))
    step = xtol
    # A finer bracket need not be a better one, and a plan is certified by a fine one.
    while (final := at(answer, _FINE)).high > delta:
        answer, step = answer + math.ceil(step * answer), 2.0 * step
        if answer > _LARGEST_CROWD:
            return Solved(math.inf, Bracket(0.0, 1.0))
    while 1 < answer < 1.0 / xtol:
        below = at(answer - 1, _FINE)
        if below.high > delta:
            break
        answer, final = answer - 1, below
    return Solved(answer, final)
