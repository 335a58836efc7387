"""Sufficient differential privacy (SDP 1.2) over all homogeneous crowds of a domain.

SDP asks for ``P[R > e^epsilon] <= eta`` and looks at one crowd, the forward one. Here all
homogeneous crowds of the shortlist are compared and the largest eta is reported with its crowd.
It is a lower bound on the worst case over all collections (theorem), not a guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .bracket import Bracket
from .domains import Block, Triple, maximal_classes
from .homogeneous import check_crowd, eta, rough_delta, shortlist

__all__ = ["Sufficient", "sufficient_eta"]


class Sufficient(NamedTuple):
    """The crowd with the largest eta found, and that eta."""

    crowd: Triple
    eta: Bracket


def sufficient_eta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-2
) -> Sufficient:
    """Find the homogeneous crowd of the domain with the largest eta(epsilon).

    Examples
    --------
    >>> from shoal.theory.domains import choice
    >>> sufficient_eta((choice(10),), 10_000, 0.08, 0.6931).crowd
    Triple(a=1, b=1, c=1)
    """
    check_crowd(N, q, epsilon)
    crowds = shortlist(maximal_classes(domain), q, epsilon)
    rough = {crowd: rough_delta(crowd, N, q, epsilon) for crowd in crowds}
    floor = max((bracket.low for bracket in rough.values()), default=0.0)
    # eta is at least delta and in practice at most some tens of it
    close = [crowd for crowd in crowds if rough[crowd].high >= floor / 100.0]
    coarse = {crowd: eta(crowd, N, q, epsilon, max(rtol, 0.05)) for crowd in close}
    best = max((bracket.low for bracket in coarse.values()), default=0.0)
    found = [
        Sufficient(crowd, eta(crowd, N, q, epsilon, rtol))
        for crowd, bracket in coarse.items()
        if bracket.high >= best
    ]
    if not found:
        return Sufficient(Triple(0, 0, 0), Bracket(0.0, 0.0))
    return max(found, key=lambda candidate: candidate.eta.low + candidate.eta.high)
