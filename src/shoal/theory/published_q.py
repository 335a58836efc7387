"""How much noise a published bound asks for: clones and stronger clones turned round.

Both bounds see q only through the local epsilon ``d ln(p/q)``, and a larger local epsilon is a
weaker randomizer with a larger bound (FMT21 and FMT23: a randomizer that is eps-private is
eps'-private for every larger eps'). So they fall in q and bisection finds the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from .coin import local_q, log_theta
from .domains import Block, check_domain, differing_bits
from .homogeneous import check_crowd
from .published import clones_delta, stronger_clones_delta

__all__ = ["published_q"]

_MOST_LOG_ODDS = 27.0


def published_q(
    domain: Iterable[Block],
    N: int,
    epsilon: float,
    delta: float,
    bound: Literal["clones", "stronger clones"],
    xtol: float = 1e-3,
) -> float:
    """Find the smallest q, to within `xtol` of its log-odds, that a published bound allows.

    Never more than the local q, which needs no crowd.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> round(published_q((flags(5),), 5000, math.log(2), 0.005, "stronger clones"), 3)
    0.243
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)
    if bound not in ("clones", "stronger clones"):
        raise ValueError(f'bound must be "clones" or "stronger clones", got {bound!r}.')
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be strictly between 0 and 1, got {delta}.")
    measure = clones_delta if bound == "clones" else stronger_clones_delta
    safe = local_q(differing_bits(blocks), epsilon)

    def passes(log_odds: float) -> bool:
        return measure(blocks, N, _q_of(log_odds), epsilon, 0.01).high <= delta

    good = max(log_theta(safe), 1e-9)
    bad = 2.0 * good
    while passes(bad):
        good, bad = bad, 2.0 * bad
        if bad > _MOST_LOG_ODDS:
            return _q_of(good)
    while bad - good > xtol * bad:
        middle = 0.5 * (good + bad)
        if passes(middle):
            good = middle
        else:
            bad = middle
    return _q_of(good)


def _q_of(log_odds: float) -> float:
    return min(1.0 / (1.0 + math.exp(log_odds)), 0.5)
