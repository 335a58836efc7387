"""Delta of whole reports: proven for every crowd, and reached by an attack.

`proven_delta` holds for every collection of the domain, `attack_delta` is attained by one. Both
are theorems about replace-one neighbours, N fixed and public, and perfectly anonymized reports;
with t colluders use N - t.

`proven_q`, `proven_epsilon` and `proven_crowd` solve for the other three numbers, and end with a
fine bracket at the answer itself. Delta falls in epsilon and in N (theorems; for the blanket in N
by Jensen: the mean of N draws dominates that of N + 1 in convex order), the true delta also in q.

For a few flags the smallest bound is that of adapted blankets. It takes about half a second, so
rough brackets leave it out, and the solvers begin where one blanket ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from shoal.theory import calibration
from shoal.theory.blanket import blanket_delta, normal_guess
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import FINE, FIRST, ROUGH, Answer, Point
from shoal.theory.composition import gaussian_delta
from shoal.theory.domains import Block, Domain, check_domain, differing_bits
from shoal.theory.homogeneous import attack, check_crowd, local_delta
from shoal.theory.one_bit import worst_one_bit_delta
from shoal.theory.randomized_response import local_epsilon, log_theta

if TYPE_CHECKING:
    from shoal.theory.adapted_search import Adapted

_ROUGH_BLANKET = 0.05
_WIDE = 100
_FINE_IF_WIDE, _XTOL_IF_WIDE = 1e-3, 2e-4
"""With more differing bits, delta is known to a thousandth and q to a 5,000th of its log-odds: of
sigma, that is a tenth of what rounding q up to 16 digits may cost there.
"""
_XTOL_OF_OTHERS_IF_WIDE = 5e-4
"""A crowd or an epsilon is sought to a 2,000th there. Delta moves at least half as much as a crowd
does, so a crowd is at most a few thousandths above the smallest one.
"""

_MIN_EPSILON = 1e-9
_MAX_CROWD = 10**12

_ADAPTED_BITS = range(3, 7)
"""Numbers of flags for adapted blankets: with two nothing is gained, with more it takes long."""
_HOPELESS = 0.5
"""If one blanket gives this delta or more, adapted blankets are not tried."""

_TRIES, _NEAR = 4, 0.03
"""A search runs at most four times. Above this part of the target the worst pairs lead it."""

Method = Literal[
    "exact over m",
    "blanket",
    "adapted blankets",
    "local",
    "composed over bits",
    "noise of one aggregator",
]


class Proven(NamedTuple):
    """The bracket of the best upper bound, whose high end is the promise, and its method."""

    delta: Bracket
    method: Method


class Attack(NamedTuple):
    """A delta that some crowd has, and a description of that crowd.

    A crowd of equal answers is the bits (a, b, c) of `domains.Triple`; for one bit, `ones` of the
    others set it. In the counts view `first` and `second` of the others give the first and the
    second of the two answers that are told apart.
    """

    delta: Bracket
    crowd: dict[str, int]


def _is_one_bit(domain: tuple[Block, ...]) -> bool:
    # bits that are the same in every original say nothing
    live = [
        block for block in domain if block.lowest < block.highest or 0 < block.lowest < block.bits
    ]
    return live == [Block(1, 0, 1)]


def proven_delta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> Proven:
    """Bracket the smallest certified upper bound on delta(epsilon) for all collections.

    The candidates are the exact maximum over m (one bit only), the privacy blanket, adapted
    blankets (a few flags, and no `rtol` above 1e-4), and the local pair, which post-processing
    makes valid for every crowd.

    >>> from shoal.theory.domains import choice, flags
    >>> proven_delta((flags(1),), 1000, 0.0119, 0.6931).method
    'exact over m'
    >>> promise = proven_delta((choice(100),), 10_000, 0.0748, 0.6931)
    >>> promise.method, promise.delta.high < 1e-6
    ('blanket', True)
    """
    check_crowd(N, q, epsilon)
    return _proven_delta(check_domain(domain), N, q, epsilon, rtol)


# A plan asks at its q, its certificate does again, and so does the table of its observers.
@functools.lru_cache(maxsize=64)
def _proven_delta(blocks: Domain, N: int, q: float, epsilon: float, rtol: float) -> Proven:
    best = _quick_delta(blocks, N, q, epsilon, rtol)
    bits = _adapted_bits(blocks)
    if bits and N > 1 and rtol <= FINE and 0.0 < best.delta.high < _HOPELESS:
        adapted = _adapted(bits, N, q, epsilon).delta
        if adapted.high < best.delta.high:
            return Proven(adapted, "adapted blankets")
    return best


def _adapted_bits(blocks: Domain) -> int:
    """Return the number of flags, or 0 where adapted blankets are not tried."""
    bits = sum(block.bits for block in blocks)
    flags_only = all(block.is_flags for block in blocks)
    return bits if flags_only and bits in _ADAPTED_BITS else 0


@functools.lru_cache(maxsize=16)
def _adapted(bits: int, N: int, q: float, epsilon: float, only: int | None = None) -> Adapted:
    from shoal.theory.adapted_search import adapted_delta  # here, so that commands start sooner

    return adapted_delta(bits, N, q, epsilon, only=only)


def _quick_delta(blocks: Domain, N: int, q: float, epsilon: float, rtol: float) -> Proven:
    if epsilon >= local_epsilon(differing_bits(blocks), q) * (1.0 + 1e-14):
        return Proven(Bracket(0.0, 0.0), "local")
    best = Proven(local_delta(blocks, q, epsilon), "local")
    if N == 1:
        return best
    if _is_one_bit(blocks):
        exact = worst_one_bit_delta(N, q, epsilon, max(rtol, 1e-4)).value
        if exact.high <= best.delta.high:
            best = Proven(exact, "exact over m")
        if exact.is_within(0.01):
            return best
    blanket = blanket_delta(blocks, N, q, epsilon, rtol)
    if rtol < _ROUGH_BLANKET and not blanket.is_within(rtol):
        # Where a fine bracket is out of reach, a rough one may be the narrower.
        rough = blanket_delta(blocks, N, q, epsilon, _ROUGH_BLANKET)
        high = min(blanket.high, rough.high)
        blanket = Bracket(min(max(blanket.low, rough.low), high), high)
    # The promise is the smaller of two bounds, and so is what its bracket holds.
    both = Bracket(min(blanket.low, best.delta.low), min(blanket.high, best.delta.high))
    return Proven(both, "blanket" if blanket.high < best.delta.high else best.method)


def attack_delta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> Attack:
    """Bracket the largest delta(epsilon) among the crowds that are tried: a lower bound.

    >>> from shoal.theory.domains import flags
    >>> attack_delta((flags(5),), 5000, 0.1788, 0.6931).crowd
    {'a': 5, 'b': 0, 'c': 0}
    """
    blocks = check_domain(domain)
    check_crowd(N, q, epsilon)
    if _is_one_bit(blocks):
        worst = worst_one_bit_delta(N, q, epsilon, max(rtol, 1e-4))
        # the record changes to 1 among N - 1 others, m of them set
        return Attack(worst.value, {"a": 1, "b": 0, "c": 0, "ones": worst.m})
    best = attack(blocks, N, q, epsilon, rtol)
    return Attack(best.delta, best.crowd._asdict())


def _precision(blocks: tuple[Block, ...], xtol: float) -> tuple[bool, float, float]:
    """Whether a domain is wide, and the tolerances of its answer and of delta."""
    if differing_bits(blocks) > _WIDE:
        return True, max(xtol, _XTOL_IF_WIDE), _FINE_IF_WIDE
    return False, xtol, FINE


def _enough(good: Point, bad: Point, xtol: float, finest: float) -> float:
    """Return how well delta must be known between two points for an answer to `xtol`.

    Where brackets are slow, none is asked to be finer than the slope requires.
    """
    if good.gap <= -1e3 or bad.passed or bad.x <= 0.0:
        return finest
    slope = (bad.gap - good.gap) / abs(math.log(good.x / bad.x))
    return min(max(finest, xtol * slope), ROUGH)


def proven_q(
    domain: Iterable[Block], N: int, epsilon: float, delta: float, xtol: float = 3e-6,
    *, quick: bool = False,
) -> Answer:  # fmt: skip
    """Smallest q, to within `xtol` of its log-odds, at which the proven delta is at most `delta`.

    With adapted blankets, which `quick` leaves out, delta is within 3 % of its target. Round q up
    to a number that the sampler can draw, and certify it with `proven_delta` again.

    >>> from shoal.theory.domains import flags
    >>> answer = proven_q((flags(5),), 5000, math.log(2), 0.005)
    >>> round(answer.value, 3), answer.at.high <= 0.005
    (0.204, True)
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)

    def at(q: float, rtol: float) -> Bracket:
        return _quick_delta(blocks, N, q, epsilon, rtol).delta

    def guess(q: float) -> float:
        return normal_guess(blocks, N, q, epsilon)

    wide, xtol, finest = _precision(blocks, xtol)
    # delta moves by several times the step in q, so a long step needs no fine delta; in wide
    # domains it moves by fifty times the step in the log-odds (observed)
    finest = ROUGH if wide else min(max(xtol, finest), ROUGH)
    stride = 3.0 if finest >= ROUGH else 1.5  # from the local q it is a long way
    answer = calibration.smallest_q(
        differing_bits(blocks), epsilon, delta, at, xtol, finest, stride, guess if wide else None
    )

    if quick:
        return answer

    def point(log_odds: float) -> tuple[int, float, float]:
        return N, calibration.q_of_log_odds(log_odds), epsilon

    log_odds = log_theta(answer.value)
    found = _with_adapted(blocks, point, log_odds, 0.01 * log_odds, delta)
    return answer if found is None else Answer(point(found.value)[1], found.at)


def _with_adapted(
    blocks: Domain,
    point: Callable[[float], tuple[int, float, float]],
    x: float,
    step: float,
    delta: float,
) -> Answer | None:
    """Go on with adapted blankets from x, where one blanket ends; None if that gains nothing.

    ``point(x)`` is a crowd, a q and an epsilon, and delta rises in x. Some pair of answers leads
    the search, and all pairs decide about the result.
    """
    bits = _adapted_bits(blocks)
    near = _quick_delta(blocks, *point(x), FIRST) if bits else None
    if near is None or near.method != "blanket" or step <= 0.0:
        return None
    next_one = _quick_delta(blocks, *point(x + step), FIRST).delta.high
    slope = max(math.log(next_one / near.delta.high), 1e-3) / step
    start, aim, pairs, led = x, delta, bits, False
    for _ in range(_TRIES):

        def value(y: float) -> float:
            nonlocal pairs, led
            found = _adapted(bits, *point(y), only=pairs)
            if not led and found.delta.high > _NEAR * delta:
                found, led = _adapted(bits, *point(y)), True
                pairs = found.worst
            return found.delta.high

        start = calibration.further(value, x, start, slope, aim)
        if start == x:
            return None
        final = _proven_delta(blocks, *point(start), FINE)
        if final.delta.high <= delta:
            return Answer(start, final.delta)
        worst = _adapted(bits, *point(start)).worst
        pairs, aim = worst, aim if worst != pairs else 0.98 * aim
    return None


def attack_q(
    domain: Iterable[Block], N: int, epsilon: float, delta: float, xtol: float = 3e-6
) -> Answer:
    """Smallest q at which the crowds tried have delta at most `delta`: a yardstick, no promise.

    >>> from shoal.theory.domains import choice
    >>> round(attack_q((choice(100),), 10_000, math.log(2), 1e-6).value, 4)
    0.0722
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)

    def at(q: float, rtol: float) -> Bracket:
        return attack_delta(blocks, N, q, epsilon, rtol).delta

    return calibration.smallest_q(differing_bits(blocks), epsilon, delta, at, xtol)


def proven_epsilon(
    domain: Iterable[Block], N: int, q: float, delta: float, xtol: float = 1e-5,
    *, quick: bool = False,
) -> Answer:  # fmt: skip
    """Smallest epsilon, rounded up by about `xtol`, at which the proven delta is at most `delta`.

    With adapted blankets, which `quick` leaves out, delta is within 3 % of its target. ``delta =
    0`` asks for the local epsilon.

    >>> from shoal.theory.domains import flags
    >>> [round(proven_epsilon((flags(5),), 5000, 0.21013, 0.005, quick=q).value, 2) for q in (0, 1)]
    [0.63, 0.69]
    """
    check_crowd(N, q, 0.0)
    return _proven_epsilon(check_domain(domain), N, q, delta, xtol, quick)


@functools.lru_cache(maxsize=16)
def _proven_epsilon(
    blocks: Domain, N: int, q: float, delta: float, xtol: float, quick: bool
) -> Answer:
    answer = _quick_epsilon(blocks, N, q, delta, xtol)
    if quick:
        return answer

    def point(x: float) -> tuple[int, float, float]:
        return N, q, max(-x, 0.0)

    found = _with_adapted(blocks, point, -answer.value, 0.01 * answer.value, delta)
    return answer if found is None else Answer(point(found.value)[2], found.at)


def _quick_epsilon(blocks: Domain, N: int, q: float, delta: float, xtol: float) -> Answer:
    local = local_epsilon(differing_bits(blocks), q) * (1.0 + 1e-13)
    if delta == 0.0:
        return Answer(local, Bracket(0.0, 0.0))
    calibration.check_target(delta)
    if local <= _MIN_EPSILON:
        return Answer(local, Bracket(0.0, 0.0))
    wide, xtol, finest = _precision(blocks, xtol)
    xtol = max(xtol, _XTOL_OF_OTHERS_IF_WIDE) if wide else xtol

    def at(epsilon: float, rtol: float) -> Bracket:
        return _quick_delta(blocks, N, q, epsilon, rtol).delta

    # as of a Gaussian mechanism with the same delta at epsilon = 0, where that is mu / sqrt(2 pi)
    mu = math.sqrt(2.0 * math.pi) * normal_guess(blocks, N, q, 0.0)

    def guess(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon)

    curve = calibration.remembering(at)
    safe = Point(local, -1e3, True)
    near = ROUGH if wide else finest
    good, bad = calibration.around_falling(curve, guess, _MIN_EPSILON, safe, delta, near)
    if bad is None:
        bad = calibration.judge(curve, 0.0, delta, FIRST, finest)
    if wide:
        finest = _enough(good, bad, xtol, finest)
    answer = 0.0 if bad.passed else calibration.edge(curve, good, bad, delta, xtol, finest)
    # A finer bracket need not be a better one, and a plan is certified by a fine one.
    while (final := at(answer, FINE)).high > delta and answer < local:
        answer = min(max(answer * (1.0 + xtol), _MIN_EPSILON), local)
        xtol *= 2.0
    return Answer(answer, final)


def proven_crowd(
    domain: Iterable[Block], q: float, epsilon: float, delta: float, xtol: float = 1e-5
) -> Answer:
    """Smallest crowd, rounded up by `xtol`, at which the proven delta is at most `delta`.

    With adapted blankets delta is within 3 % of its target. Infinite when 1e12 is not enough.

    >>> from shoal.theory.domains import choice
    >>> 9_990 < proven_crowd((choice(100),), 0.07477, math.log(2), 1e-6).value <= 10_000
    True
    """
    blocks = check_domain(domain)
    check_crowd(1, q, epsilon)
    calibration.check_target(delta)
    answer = _quick_crowd(blocks, q, epsilon, delta, xtol)
    if not math.isfinite(answer.value):
        return answer

    def point(log_crowd: float) -> tuple[int, float, float]:
        return math.ceil(math.exp(-log_crowd)), q, epsilon

    found = _with_adapted(blocks, point, -math.log(answer.value), 0.01, delta)
    return answer if found is None else Answer(point(found.value)[0], found.at)


def _quick_crowd(blocks: Domain, q: float, epsilon: float, delta: float, xtol: float) -> Answer:
    wide, xtol, finest = _precision(blocks, xtol)
    xtol = max(xtol, _XTOL_OF_OTHERS_IF_WIDE) if wide else xtol

    def at(N: float, rtol: float) -> Bracket:
        return _quick_delta(blocks, int(N), q, epsilon, rtol).delta

    def guess(N: float) -> float:
        return normal_guess(blocks, math.ceil(N), q, epsilon)

    bracket_at = calibration.remembering(at)

    def curve(N: float, rtol: float) -> Bracket:
        return bracket_at(math.ceil(N), rtol)

    safe = Point(_MAX_CROWD, -1e3, True)
    near = ROUGH if wide else finest
    good, bad = calibration.around_falling(curve, guess, 1.0, safe, delta, near)
    if good.x > 0.999 * _MAX_CROWD:
        good = calibration.judge(curve, _MAX_CROWD, delta, FIRST, finest)
        if not good.passed:
            return Answer(math.inf, Bracket(0.0, 1.0))
    if bad is None:
        bad = calibration.judge(curve, 1, delta, FIRST, finest)
    if wide:
        finest = _enough(good, bad, xtol, finest)
    # below one person there is nothing left to resolve
    whole = max(xtol, 0.5 / good.x)
    answer = (
        1 if bad.passed else math.ceil(calibration.edge(curve, good, bad, delta, whole, finest))
    )
    step = xtol
    # A finer bracket need not be a better one, and a plan is certified by a fine one.
    while (final := at(answer, FINE)).high > delta:
        answer, step = answer + math.ceil(step * answer), 2.0 * step
        if answer > _MAX_CROWD:
            return Answer(math.inf, Bracket(0.0, 1.0))
    while 1 < answer < 1.0 / xtol:
        below = at(answer - 1, FINE)
        if below.high > delta:
            break
        answer, final = answer - 1, below
    return Answer(answer, final)
