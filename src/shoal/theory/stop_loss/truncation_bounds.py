"""Cut both tails of a law at a price that is known.

Where a law is heavy on both sides the exact cuts of `_reduction` do not bite. Raise atoms below
-d to -d (total weight w) and clamp atoms above c to c. Let S be the sum after the cuts and
``e = E[(Y - c)_+]``.

* From above (theorem): ``(sum Y)_+ <= S_+ + sum (Y - c)_+``, so ``C <= E[S_+] + n e``.
* From below (theorem): losing every sequence with a raised atom costs ``E[S_+]`` at most
  ``n w E[(S' - d)_+]``, S' the sum of n-1 draws. On the others, one draw above c has its linear
  payoff unless the rest falls below -c, which has probability at most
  ``v = inf_s exp((n-1) K(-s) - s c)``, K for the law without the raised atoms. So
  ``C >= E[S_+] - n w E[(S' - d)_+] + n e ((1-w)^(n-1) - v)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.theory.stop_loss.distribution import log_sum
from shoal.theory.stop_loss.reduction import UNIT, Reduced
from shoal.theory.stop_loss.tilt import log_mgf

_SPEEDS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
_RATIOS = (1.5, 4.0, 16.0, 64.0, 256.0)


class Soft(NamedTuple):
    """A milder problem in its own scale, the linear part cut off, and the price of the cuts.

    The stop-loss of the original problem is between that of `problem` plus ``exp(log_extra)``
    and that minus ``exp(log_price)``, all unscaled.
    """

    problem: Reduced
    log_extra: float
    log_price: float


def soften(problem: Reduced, n: int, log_budget: float) -> Soft | None:
    """Find the lowest cut whose price is below ``exp(log_budget)``, unscaled, if there is one."""
    x = problem.x
    budget = log_budget - problem.log_scale
    levels = np.unique(-x[x < -1e-280])
    if levels.size > 40:
        levels = levels[np.unique(np.linspace(0, levels.size - 1, 40).astype(int))]
    best: tuple[float, float, float] | None = None
    for level in levels:
        highest = 0.5 if best is None else min(0.5, best[1])
        ceilings = [ratio * float(level) for ratio in _RATIOS if ratio * float(level) < highest]
        # The price falls as the ceiling rises: what the highest one cannot afford, none can.
        if not ceilings or _log_price(problem, n, float(level), ceilings[-1]) >= budget:
            continue
        for ceiling in ceilings:
            price = _log_price(problem, n, float(level), ceiling)
            if price < budget:
                best = (float(level), ceiling, price)
                break
    if best is None:
        return None
    level, ceiling, price = best
    mild = np.clip(x, -level, ceiling)
    scale = float(np.abs(mild).max())
    reduced = problem._replace(
        x=mild / scale,
        dx=np.where(x > ceiling, 0.0, problem.dx) / scale + 4 * UNIT * np.abs(mild) / scale,
        log_scale=problem.log_scale + math.log(scale),
    )
    log_extra = math.log(n) + _log_excess(problem, ceiling) + problem.log_scale
    return Soft(reduced, log_extra, price + problem.log_scale + 1e-9)


def _log_excess(problem: Reduced, ceiling: float) -> float:
    above = problem.x > ceiling
    return log_sum(problem.log_weight[above] + np.log(problem.x[above] - ceiling))


def _log_price(problem: Reduced, n: int, level: float, ceiling: float) -> float:
    """Logarithm of what the lower bound gives up, in the scale of the problem."""
    x, weight = problem.x, problem.log_weight
    log_n = math.log(n)
    kept = x >= -level
    log_raised = log_n + log_sum(weight[~kept])
    if log_raised > -1.0:
        return math.inf
    speeds = _SPEEDS / level
    mild = np.minimum(x[kept], ceiling)
    fall = (n - 1) * log_mgf(mild, weight[kept], -speeds) - speeds * ceiling
    # draws lost in the exact cuts spoil the linear payoff as raised ones do
    doubt = float(np.logaddexp(log_raised, min(float(np.min(fall)), 0.0)))
    doubt = float(np.logaddexp(doubt, log_n + problem.log_lost))
    parts = [log_n + _log_excess(problem, ceiling) + doubt]
    # the excess itself carries the errors of its atoms
    above = x > ceiling
    parts.append(log_n + log_sum(weight[above] + np.log(problem.dx[above])))
    if log_raised > -math.inf:
        # (S' - d)_+ <= sum (Y - d/4)_+ + (sum min(Y, d/4) - d)_+, the latter as in _tilt
        low = np.clip(x, -level, level / 4.0)
        tail = (n - 1) * log_mgf(low, weight, speeds) - speeds * level - 1.0 - np.log(speeds)
        rest = np.logaddexp(log_n + _log_excess(problem, level / 4.0), float(np.min(tail)))
        parts.append(log_raised + float(rest))
    return log_sum(np.array(parts)) + 1e-9
