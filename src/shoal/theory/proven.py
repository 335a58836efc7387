"""What is promised, and what an attack already reaches: the two ends of the truth.

`proven_delta` holds for every collection of the domain, `attack_delta` is attained by one. Both
are theorems about replace-one neighbours, N fixed and public, and perfectly anonymized reports;
with t colluders use N - t. The attack never exceeds the promise.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, NamedTuple

from shoal.theory.blanket import blanket_delta
from shoal.theory.brackets import Bracket
from shoal.theory.domains import Block, Domain, Triple, check_domain, differing_bits
from shoal.theory.homogeneous import attack, check_crowd, local_delta
from shoal.theory.one_bit import OneBitWorst, worst_one_bit_delta
from shoal.theory.randomized_response import local_epsilon

__all__ = ["AttackDelta", "Method", "Proven", "attack_delta", "proven_delta"]

_ROUGH = 0.05

Method = Literal["exact over m", "blanket", "local", "composed over bits"]


class Proven(NamedTuple):
    """The bracket of the best upper bound, whose high end is the promise, and where it is from."""

    delta: Bracket
    method: Method


class AttackDelta(NamedTuple):
    """A delta that some crowd has: counts of bits (a, b, c), or for one bit the worst m."""

    delta: Bracket
    crowd: Triple | OneBitWorst


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

    The candidates are the exact maximum over m (one bit only), the privacy blanket, and the local
    pair, which post-processing makes valid for every crowd.

    Parameters
    ----------
    domain : iterable of Block
        The questions.
    N : int >= 1
        Crowd size.
    q : float in (0, 1/2]
        Flip probability.
    epsilon : float >= 0
        Natural logarithm of lam.
    rtol : float > 0
        Relative width asked for.

    Examples
    --------
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
    if rtol < _ROUGH and not blanket.is_within(rtol):
        # Where a fine bracket is out of reach, a rough one may be the narrower.
        rough = blanket_delta(blocks, N, q, epsilon, _ROUGH)
        high = min(blanket.high, rough.high)
        blanket = Bracket(min(max(blanket.low, rough.low), high), high)
    # The promise is the smaller of two bounds, and so is what its bracket holds.
    both = Bracket(min(blanket.low, best.delta.low), min(blanket.high, best.delta.high))
    return Proven(both, "blanket" if blanket.high < best.delta.high else best.method)


def attack_delta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> AttackDelta:
    """Bracket the largest delta(epsilon) among the crowds that are tried: a lower bound.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> attack_delta((flags(5),), 5000, 0.1788, 0.6931).crowd
    Triple(a=5, b=0, c=0)
    """
    blocks = check_domain(domain)
    check_crowd(N, q, epsilon)
    if _is_one_bit(blocks):
        worst = worst_one_bit_delta(N, q, epsilon, max(rtol, 1e-4))
        return AttackDelta(worst.value, worst)
    best = attack(blocks, N, q, epsilon, rtol)
    return AttackDelta(best.delta, best.crowd)
