"""Published bounds for any local randomizer, for comparison: clones and stronger clones.

Both reduce a crowd to three symbols. The others draw 0, 1 or "neither" with probabilities
Q = (r, r, 1 - 2r), the victim draws 0 or 1 with odds ``e^eps0`` to 1, and delta is the hockey stick
of the counts, a stop-loss of iid draws: ``delta = (1/N) E[(sum (P_0 - lam P_1) / Q)_+]``.

* clones: r = e^-eps0 / 2 (Feldman, McMillan and Talwar 2021, Theorem 3.1; theorem);
* stronger clones: r = 1 / (e^eps0 + 1) (the same authors, 2023; by their erratum, a theorem for
  some randomizers only).

"Variation ratio" bounds are left out on purpose: with their published parameters for one-hot
vectors one returns less than the exact delta (see the tests).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np

from shoal.theory.brackets import Bracket
from shoal.theory.calibration import smallest_q
from shoal.theory.domains import Block, check_domain, differing_bits
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import local_epsilon, local_q
from shoal.theory.stop_loss import delta_of_draws
from shoal.theory.stop_loss.reduction import Draw

PublishedBound = Literal["clones", "stronger clones"]


def published_delta(
    domain: Iterable[Block],
    N: int,
    q: float,
    epsilon: float,
    bound: PublishedBound,
    rtol: float = 1e-4,
) -> Bracket:
    """Bracket delta(epsilon) by a published bound, that of its three-symbol reduction."""
    check_crowd(N, q, epsilon)
    if bound not in get_args(PublishedBound):
        raise ValueError(f'bound must be "clones" or "stronger clones", got {bound!r}.')
    local = local_epsilon(differing_bits(domain), q)
    log_r = -local - (math.log(2.0) if bound == "clones" else math.log1p(math.exp(-local)))
    often = -math.log1p(math.exp(-local))
    seldom = often - local
    rest = -math.expm1(min(log_r + math.log(2.0), 0.0))
    draw = Draw(
        np.array([often - log_r, seldom - log_r, -np.inf]),
        np.array([epsilon + seldom - log_r, epsilon + often - log_r, -np.inf]),
        np.array([log_r, log_r, math.log(rest) if rest > 0.0 else -np.inf]),
    )
    return delta_of_draws(draw, N, rtol)


def published_q(
    domain: Iterable[Block],
    N: int,
    epsilon: float,
    delta: float,
    bound: PublishedBound,
    xtol: float = 1e-3,
) -> float:
    """Find the smallest q, to within `xtol` of its log-odds, that a published bound allows.

    Never more than the local q, which needs no crowd.

    >>> from shoal.theory.domains import flags
    >>> round(published_q((flags(5),), 5000, math.log(2), 0.005, "stronger clones"), 3)
    0.243
    """
    check_crowd(N, 0.5, epsilon)
    blocks = check_domain(domain)
    differ = differing_bits(blocks)
    safe = local_q(differ, epsilon)

    def at(q: float, rtol: float) -> Bracket:
        return (
            Bracket(0.0, 0.0) if q >= safe else published_delta(blocks, N, q, epsilon, bound, rtol)
        )

    return smallest_q(differ, epsilon, delta, at, xtol, finest=0.01).value
