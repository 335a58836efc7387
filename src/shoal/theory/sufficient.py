"""Sufficient differential privacy (SDP 1.2) over the homogeneous crowds of a domain.

SDP asks for ``P[R > e^epsilon] <= eta`` and looks at one crowd, the forward one. Here the
homogeneous crowds of the domain are compared and the largest eta is reported with its crowd. It is
a lower bound on the worst case over all collections (theorem), not a guarantee.

Post-processing may raise eta, so a crowd (a, b, c) may be worse than one with more bits, and the
maximal triples do not suffice. All triples are compared where a domain has at most `MOST_KINDS` of
them: flags(10) has 286, a choice 5. Few need to be evaluated, because of a

Theorem: for every mu < lam, ``eta(lam) <= delta(mu) lam / (lam - mu)``: where R > lam the hockey
stick at mu collects at least ``1 - mu / lam`` of the probability. And delta does not fall when a, b
or c grows (see `domains`), so the bound of a triple holds for every triple below it.

Wider domains have thousands of triples. There the shortlist of the attack on delta is compared, and
the answer says that it is the largest of those only. Of the widest, from some 45 flags on, the two
crowds with the largest deltas are, or the one if the other has less than a tenth of its delta.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

from shoal.theory.domains import Block, Triple, few_classes, maximal_classes
from shoal.theory.homogeneous import (
    check_crowd,
    eta,
    likely_worst,
    rough_delta,
    shortlist,
    take_long,
)
from shoal.theory.stop_loss.bracket import Bracket

__all__ = ["MOST_KINDS", "Sufficient", "sufficient_eta"]

MOST_KINDS = 300
"""Up to so many triples all of them are compared."""

_FEW = 2


class Sufficient(NamedTuple):
    """A crowd with the largest eta, and a bracket of the largest eta of all kinds compared.

    `kinds` is how many kinds of homogeneous crowds were compared; `exhaustive` says whether the
    domain has no others.
    """

    crowd: Triple
    eta: Bracket
    kinds: int
    exhaustive: bool


def sufficient_eta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-2
) -> Sufficient:
    """Find the homogeneous crowd of the domain with the largest eta(epsilon).

    Examples
    --------
    >>> from shoal.theory.domains import choice, flags
    >>> sufficient_eta((choice(10),), 10_000, 0.08, 0.6931).crowd
    Triple(a=1, b=1, c=1)
    >>> sufficient_eta((flags(3),), 3, 0.32920468, 0.29980668).crowd
    Triple(a=2, b=0, c=0)
    """
    check_crowd(N, q, epsilon)
    blocks = tuple(domain)
    every = few_classes(blocks, MOST_KINDS)
    exhaustive = every is not None
    if every is None:
        crowds = _few(shortlist(maximal_classes(blocks), q, epsilon), N, q, epsilon)
    else:
        crowds = sorted(every)
    # a crowd in which x and x' agree has no ratio but 1
    crowds = [crowd for crowd in crowds if crowd.a + crowd.b > 0]
    if not crowds:
        return Sufficient(Triple(0, 0, 0), Bracket(0.0, 0.0), 1, exhaustive)
    enough = 1.0 if exhaustive else 1.0 - rtol
    coarse = _coarse(crowds, N, q, epsilon, max(rtol, 0.05), enough)
    best = max(bracket.low for bracket in coarse.values())
    if best >= enough:
        worst = max(coarse, key=lambda crowd: (coarse[crowd].low, crowd))
        return Sufficient(worst, Bracket(best, 1.0), len(coarse), exhaustive)
    fine = {
        crowd: eta(crowd, N, q, epsilon, rtol) if rtol < 0.05 else bracket
        for crowd, bracket in coarse.items()
        if bracket.high >= best
    }
    worst = max(fine, key=lambda crowd: (sum(fine[crowd]), crowd))
    low, high = (max(ends) for ends in zip(*fine.values(), strict=True))
    return Sufficient(worst, Bracket(low, high), len(crowds), exhaustive)


def _few(crowds: list[Triple], N: int, q: float, epsilon: float) -> list[Triple]:
    """Keep the crowds with the largest deltas where comparing all would take long."""
    if not take_long(crowds):
        return crowds
    roughly = {
        crowd: rough_delta(crowd, N, q, epsilon) for crowd in likely_worst(crowds, N, q, epsilon)
    }
    first, *rest = heapq.nlargest(_FEW, roughly, key=lambda crowd: roughly[crowd])
    return [first, *(crowd for crowd in rest if roughly[crowd].low > 0.1 * roughly[first].low)]


def _coarse(
    crowds: list[Triple], N: int, q: float, epsilon: float, rtol: float, enough: float
) -> dict[Triple, Bracket]:
    """Bracket eta of every crowd that may have the largest one, or until one has `enough`."""
    brackets: dict[Triple, Bracket] = {}
    hopeless: list[Triple] = []
    best, back = 0.0, 0.0
    leader: Triple | None = None
    # from the crowds with many bits down, so that those below them need not be looked at
    for crowd in sorted(crowds, key=lambda t: (-sum(t), -max(t.a, t.b), t)):
        if any(all(map(int.__le__, crowd, top)) for top in hopeless):
            continue
        if best > 0.0:
            if leader is not None:
                back, leader = _step_back(leader, N, q, epsilon), None
            share = -math.expm1(-back)  # 1 - mu / lam
            bound = rough_delta(crowd, N, q, epsilon - back).times(1.0 / share * (1.0 + 1e-14))
            if bound.high < best:
                hopeless.append(crowd)
                continue
        brackets[crowd] = eta(crowd, N, q, epsilon, rtol)
        if brackets[crowd].low > best:
            best = brackets[crowd].low
            if best >= enough:
                break
            leader = crowd
    return brackets


def _step_back(crowd: Triple, N: int, q: float, epsilon: float) -> float:
    """Return ln(lam / mu) near which the bound on eta is smallest, for crowds like this one."""
    steps = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
    bounds = {
        step: rough_delta(crowd, N, q, epsilon - step).high / -math.expm1(-step) for step in steps
    }
    return min(bounds, key=lambda step: bounds[step])
