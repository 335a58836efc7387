"""What one person's reports reveal to somebody who sees them all and knows who sent them.

Without memory each report costs d ln((1-q)/q), where d is the number of bits in which two answers
can differ, and reports add up (BITVEC 3.1). With memory all reports of one answer come from one
permanent vector. Of n of them the worst outcome is that all agree in a bit, so they cost exactly

    d ln( (p1 p2^n + q1 q2^n) / (q1 p2^n + p1 q2^n) ),      p = 1 - q,

which is one report's d ln((1-q)/q) at n = 1 and stays below d ln((1-q1)/q1) however many there
are; distinct answers add up. Where plans share a permanent vector and have different q2, a product
over the reports replaces each power. That is the price of *what* was answered. *When*
the answer changed is hidden by the fresh flips alone: two reports of one permanent vector are
alike, two reports of different ones are not. Hiding that too costs at most d ln((1-q)/q) for the
first report and L ln((1-q2)/q2) for each later one, L all bits of a report.

This is the only place where a local epsilon is computed exactly: decimals of 80 digits, rounded up.
(`shoal.theory.randomized_response` has the same formula in floats, for searches and certificates.)
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.protocol.flip_probability import FlipProbability

if TYPE_CHECKING:
    from shoal.protocol.plan import Memory

__all__ = ["EXACT", "changing_epsilon", "local_epsilon", "repeated_epsilon", "vector_epsilon"]

EXACT = 50
"""Decimal places where a local epsilon is compared and not shown."""

_DIGITS = 80
_GUARD = "1e-60"
_PLACES = 6


def local_epsilon(
    differing_bits: int, q: FlipProbability, places: int = _PLACES
) -> decimal.Decimal:
    """Return d ln((1-q)/q), rounded up to some decimal places, at most 50 (BITVEC 3.1).

    >>> local_epsilon(2, FlipProbability(1, 2)), local_epsilon(2, FlipProbability(1, 2), places=2)
    (Decimal('2.197225'), Decimal('2.20'))
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        return _up(differing_bits * ((1 - _decimal(q)) / _decimal(q)).ln(), places)


def repeated_epsilon(differing_bits: int, memory: Memory, reports: int) -> decimal.Decimal:
    """Return what `reports` reports of one answer reveal together, rounded up.

    >>> from shoal.protocol.plan import Memory
    >>> memory = Memory(FlipProbability(1, 2), FlipProbability(1, 2))
    >>> [str(repeated_epsilon(2, memory, n)) for n in (1, 2, 10, 1000)]
    ['1.021652', '1.694596', '2.197135', '2.197225']
    """
    return vector_epsilon(differing_bits, memory.q1, [(memory.q2, reports)])


def vector_epsilon(
    differing_bits: int, q1: FlipProbability, uses: Iterable[tuple[FlipProbability, int]]
) -> decimal.Decimal:
    """Return what all reports of one permanent vector reveal together, rounded up.

    `uses` are pairs of a q2 and how many reports were made with it.

    >>> vector_epsilon(2, FlipProbability(1, 2), [(FlipProbability(1, 2), 1)] * 2)
    Decimal('1.694596')
    """
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        permanent, faded = _decimal(q1), decimal.Decimal(1)
        for q2, reports in uses:
            faded *= (_decimal(q2) / (1 - _decimal(q2))) ** reports
        ratio = (1 - permanent + permanent * faded) / (permanent + (1 - permanent) * faded)
        return _up(differing_bits * ratio.ln())


def changing_epsilon(
    differing_bits: int, bits: int, memory: Memory, reports: int
) -> decimal.Decimal:
    """Return what `reports` reports reveal about the answers and when they changed, rounded up.

    The bits of the first one are flipped with q. Given what was sent before, each bit of a later
    one is one or zero with probability at least q2 each, whatever the answers were; so the bound
    holds. It need not be attained.
    """
    if reports == 0:
        return decimal.Decimal(0)
    later = (reports - 1) * local_epsilon(bits, memory.q2)
    return local_epsilon(differing_bits, memory.q) + later


def _decimal(q: FlipProbability) -> decimal.Decimal:
    return decimal.Decimal(q.numerator) / decimal.Decimal(2**q.digits)


def _up(value: decimal.Decimal, places: int = _PLACES) -> decimal.Decimal:
    if not value:
        return decimal.Decimal(0)
    # The guard is far larger than the rounding of 80 digits, far smaller than any place.
    guarded, last = value + decimal.Decimal(_GUARD), decimal.Decimal(1).scaleb(-places)
    return guarded.quantize(last, rounding=decimal.ROUND_CEILING)
