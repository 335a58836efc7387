"""Few draws of few atoms: list every way they can fall."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.distribution import FloatArray
from shoal.theory.stop_loss.reduction import UNIT, Reduced

__all__ = ["compositions", "enumerated", "few_outcomes", "outcome_chances"]

_FEW = 20_000


def compositions(n: int, parts: int) -> npt.NDArray[np.int64]:
    """List all ways to divide n draws among `parts` atoms, one row each.

    Examples
    --------
    >>> compositions(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    rows = np.zeros((1, 0), dtype=np.int64)
    left = np.array([n])
    for _ in range(parts - 1):
        copies = left + 1
        count = np.arange(int(copies.sum())) - np.repeat(np.cumsum(copies) - copies, copies)
        rows = np.column_stack([np.repeat(rows, copies, axis=0), count])
        left = np.repeat(left, copies) - count
    return np.column_stack([rows, left])


def few_outcomes(n: int, parts: int) -> bool:
    """Whether `compositions` is short enough to be the best method.

    Examples
    --------
    >>> few_outcomes(1000, 2), few_outcomes(1000, 6)
    (True, False)
    """
    return parts <= 64 and math.comb(n + parts - 1, min(n, parts - 1)) * parts <= 2 * _FEW


def outcome_chances(
    counts: npt.NDArray[np.int64], log_weight: FloatArray, blur: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Multinomial probability of each row, and a bound on its relative error.

    Examples
    --------
    >>> chance, _ = outcome_chances(compositions(2, 2), np.log([0.5, 0.5]))
    >>> chance.round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    n = int(counts[0].sum())
    # a table of lgamma, since few numbers occur; SciPy would take longer to load
    log_factorial = np.array([math.lgamma(k + 1.0) for k in range(n + 1)])
    logs = counts * log_weight - log_factorial[counts]
    size = (counts * (np.abs(log_weight) + blur)).sum(axis=1) + log_factorial[n] * 2.0
    chance = np.exp(logs.sum(axis=1) + log_factorial[n])
    return chance, 16 * UNIT * (2.0 + size + 2.0 * n)


def enumerated(problem: Reduced, n: int) -> Bracket:
    """Stop-loss of a reduced problem, in its scale, summed over all outcomes."""
    counts = compositions(n, problem.x.size)
    chance, wobble = outcome_chances(counts, problem.log_weight, problem.blur)
    total = np.einsum("ij,j->i", counts, problem.x)
    own = problem.dx + 8 * UNIT * (1 + problem.x.size) * np.abs(problem.x)
    doubt = np.einsum("ij,j->i", counts, own)
    low = float(np.sum(chance * (1.0 - wobble) * np.maximum(total - doubt, 0.0)))
    high = float(np.sum(chance * (1.0 + wobble) * np.maximum(total + doubt, 0.0)))
    return Bracket(max(low, 0.0) * (1.0 - 1e-12), high * (1.0 + 1e-12))
