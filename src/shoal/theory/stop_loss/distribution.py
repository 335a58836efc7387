"""Finite laws of differences ``Y = e^plus - e^minus``, kept in logarithms.

Every number of the theory is a stop-loss of such a law: likelihood ratios run over hundreds of
orders of magnitude (``theta^L`` with L = 1000), so neither the ratios nor their probabilities
are ever formed before they are scaled.
"""

from __future__ import annotations

import decimal
import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Law", "binomial_log_weights", "dot", "log_sum"]

FloatArray = npt.NDArray[np.float64]


class Law(NamedTuple):
    """Atoms ``exp(log_plus) - exp(log_minus)`` with probabilities ``exp(log_weight)``.

    The arrays have one length. ``-inf`` stands for 0. Each value is taken to be exact up
    to ``8 u (1 + m)``, u = 2^-53, m the largest of all finite values of both signs: that is what a
    few additions of correctly rounded logarithms can lose. Each log-weight is taken to be exact up
    to ``8 u (1 + |entry| + blur)``; `blur` is what its own size does not tell, of a weight that was
    added up. The engine carries both into its brackets. The weights are those of a probability:
    the heaviest one is what the others leave.
    """

    log_plus: FloatArray
    log_minus: FloatArray
    log_weight: FloatArray
    blur: FloatArray | float = 0.0

    @classmethod
    def of(cls, atoms: npt.ArrayLike, weights: npt.ArrayLike) -> Law:
        """Build a law of plain numbers with plain probabilities."""
        y = np.atleast_1d(np.asarray(atoms, dtype=np.float64))
        w = np.atleast_1d(np.asarray(weights, dtype=np.float64))
        if y.shape != w.shape or y.ndim != 1:
            raise ValueError(f"atoms and weights must match, got shapes {y.shape}, {w.shape}.")
        if not (np.isfinite(y).all() and (w >= 0.0).all() and abs(math.fsum(w) - 1.0) < 1e-9):
            raise ValueError("atoms must be finite, weights must not be negative and sum to 1.")
        with np.errstate(divide="ignore"):
            return cls(np.log(np.maximum(y, 0.0)), np.log(np.maximum(-y, 0.0)), np.log(w))


@functools.lru_cache(maxsize=256)
def _binomial_log_weights(n: int, q: float) -> FloatArray:
    with decimal.localcontext() as context:
        context.prec = 40
        context.Emin = decimal.MIN_EMIN
        heads = decimal.Decimal(q)
        tails = 1 - heads
        term = tails**n
        logs = np.empty(n + 1)
        for i in range(n + 1):
            near = float(term)
            logs[i] = math.log(near) if near > 1e-290 else _log_of_tiny(term)
            term = term * (n - i) / (i + 1) * heads / tails
    logs.setflags(write=False)
    return logs


def _log_of_tiny(term: decimal.Decimal) -> float:
    """Logarithm of a number too small for a float, as that of its digits and of a power of ten."""
    power = term.adjusted()
    return math.log(float(term.scaleb(-power))) + power * math.log(10.0)


def binomial_log_weights(n: int, q: float) -> FloatArray:
    """``ln P[Bin(n, q) = i]`` for i = 0..n, each correct to a few units in the last place.

    A sum of log-gammas would lose 1e-13 at n = 1000, which a crowd of 1e9 multiplies by 1e9.

    Examples
    --------
    >>> np.exp(binomial_log_weights(2, 0.5)).round(12).tolist()
    [0.25, 0.5, 0.25]
    """
    if n < 0:
        raise ValueError(f"n must be at least 0, got n={n}.")
    return _binomial_log_weights(n, q)


def log_sum(values: FloatArray) -> float:
    """Logarithm of a sum of exponentials; ``-inf`` for an empty sum."""
    top = float(np.max(values, initial=-math.inf))
    if top == -math.inf:
        return top
    return top + math.log(float(np.sum(np.exp(values - top))))


def dot(left: FloatArray, right: FloatArray) -> float:
    """Sum of products, by one thread.

    Where `@` hands a long sum to a threaded matrix library, its threads wait for each other longer
    than they add: that took four fifths of the processor's time of a wide survey.
    """
    return float(np.einsum("i,i->", left, right))
