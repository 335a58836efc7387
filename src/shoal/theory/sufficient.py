"""Sufficient differential privacy (SDP 1.2) over the homogeneous crowds of a domain.

SDP asks for ``P[R > e^epsilon] <= eta`` and looks at one crowd, the forward one. Here the
homogeneous crowds of the domain are compared and the largest eta is reported with its crowd. It is
a lower bound on the worst case over all collections (theorem), not a guarantee.

Post-processing may raise eta, so the maximal triples do not suffice. All triples are compared where
a domain has at most `MAX_KINDS` of them: flags(10) has 286, a choice 5. Few are evaluated, because

    eta(lam) <= delta(mu) lam / (lam - mu)    for every mu < lam       (theorem)

where R > lam the hockey stick at mu collects at least ``1 - mu / lam`` of the probability. And
delta does not fall when a, b or c grows, so the bound of a triple holds for every triple below it.

Wider domains have thousands of triples. There the shortlist of the attack on delta is compared, and
the answer says so. Where these are large, the crowd with the largest delta is, and the next that is
not nearly the same if it has a tenth of its delta.

*The three-sigma rule* (SDP 3.2): mean plus three standard deviations of R at most lam. A rule of
thumb (observed): the exact eta at its q runs from .0013 to .0087 over the paper's rows. It looks
at the forward crowd only; it is no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from shoal.theory import homogeneous
from shoal.theory.brackets import Bracket
from shoal.theory.calibration import Answer, q_of_log_odds, smallest, smallest_q
from shoal.theory.domains import (
    Block,
    Triple,
    check_domain,
    differing_bits,
    few_classes,
    maximal_classes,
)
from shoal.theory.homogeneous import check_crowd, eta, ratio_moments, rough_delta
from shoal.theory.randomized_response import count_sigma, local_q, log_theta

MAX_KINDS = 300
"""Up to this many triples all are compared."""


class Sufficient(NamedTuple):
    """A crowd with the largest eta, and a bracket of the largest eta of all kinds compared.

    `kinds` is how many were compared; `exhaustive` says whether the domain has no others.
    """

    crowd: Triple
    eta: Bracket
    kinds: int
    exhaustive: bool


def sufficient_eta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-2
) -> Sufficient:
    """Find the homogeneous crowd of the domain with the largest eta(epsilon).

    >>> from shoal.theory.domains import choice, flags
    >>> sufficient_eta((choice(10),), 10_000, 0.08, 0.6931).crowd
    Triple(a=1, b=1, c=1)
    >>> sufficient_eta((flags(3),), 3, 0.32920468, 0.29980668).crowd
    Triple(a=2, b=0, c=0)
    """
    check_crowd(N, q, epsilon)
    blocks = tuple(domain)
    every = few_classes(blocks, MAX_KINDS)
    exhaustive = every is not None
    if every is None:
        crowds = homogeneous.shortlist(maximal_classes(blocks), q, epsilon)
        if homogeneous.take_long(crowds):
            crowds = _few(crowds, N, q, epsilon)
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
    """Keep the crowd with the largest delta, and the next one that is not nearly the same."""
    roughly = {crowd: rough_delta(crowd, N, q, epsilon) for crowd in crowds}
    first, *rest = sorted(crowds, key=lambda crowd: roughly[crowd], reverse=True)
    apart = (
        crowd
        for crowd in rest
        if sum(abs(x - y) for x, y in zip(crowd, first, strict=True)) > 0.1 * sum(first)
    )
    return [first, *(one for one in [*apart][:1] if roughly[one].low > 0.1 * roughly[first].low)]


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


def sufficient_q(
    domain: Iterable[Block], N: int, epsilon: float, target: float, xtol: float = 3e-5
) -> Answer:
    """Smallest q, coming from the local one, with eta at most `target` on all crowds (SDP 3.2).

    One crowd is solved for, then all are compared there; if another one is worse it takes its
    place. The answer is certified on all of them.
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)
    crowd: tuple[int, int, int] = (differing_bits(blocks), 0, 0)

    def at(q: float, rtol: float) -> Bracket:
        return eta(crowd, N, q, epsilon, max(rtol, 1e-2))

    best = Answer(0.0, Bracket(0.0, 0.0))
    for _ in range(6):
        answer = smallest_q(differing_bits(blocks), epsilon, target, at, xtol, 1e-2)
        best = max(best, answer)
        worst = sufficient_eta(blocks, N, best.value, epsilon)
        if worst.eta.high <= target or sum(worst.crowd) == 0:
            return Answer(best.value, worst.eta)
        if worst.crowd == crowd:
            xtol *= 3.0
        crowd = worst.crowd
    q = best.value
    while True:
        # two crowds that are equally bad: leave the edge
        q = q_of_log_odds(log_theta(q) * (1.0 - 3e-4))
        worst = sufficient_eta(blocks, N, q, epsilon)
        if worst.eta.high <= target:
            return Answer(q, worst.eta)


def gap_312(q: float, L: int, N: int, lam: float) -> float:
    """``E R + 3 sqrt(Var R) - lam`` (SDP 3.12)."""
    mean, variance = ratio_moments(L, N, q)
    return mean + 3.0 * math.sqrt(max(variance, 0.0)) - lam


def three_sigma_q(L: int, N: int, epsilon: float) -> float:
    """Smallest q with (3.12) satisfied; the left side falls in q because ``phi`` does.

    >>> round(three_sigma_q(5, 5000, math.log(2)), 4)    # SDP 3.3 prints .1778, which is N = 10000
    0.1963
    """
    check_crowd(N, 0.5, epsilon)
    if L < 1:
        raise ValueError(f"L must be at least 1, got L={L}.")
    lam = math.exp(epsilon)
    if gap_312(0.5, L, N, lam) > 0.0:
        raise ValueError(f"no q satisfies the rule: lam={lam} is too close to 1 for N={N}.")
    # theta^L = e^600 keeps every power finite
    floor = max(1e-9, 1.0 / (1.0 + math.exp(min(150.0 / L, 20.0))))
    return smallest(lambda q: gap_312(q, L, N, lam) <= 0.0, floor, 0.5)


def gain(L: int, N: int, epsilon: float) -> float:
    """How many times smaller the error is than with local noise (SDP 4), by rule (3.12).

    >>> round(gain(40, 10_000_000, 2.0), 1)
    12.5
    """
    local = count_sigma(N, local_q(L, epsilon))
    return local / count_sigma(N, three_sigma_q(L, N, epsilon))
