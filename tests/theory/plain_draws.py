"""Draws of plain numbers with plain probabilities, for tests of the stop-loss engine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shoal.theory.brackets import Bracket
from shoal.theory.stop_loss import stop_loss_of
from shoal.theory.stop_loss.reduction import Draw


def draw_of(atoms, weights) -> Draw:
    y, w = (np.array(numbers, dtype=np.float64) for numbers in (atoms, weights))
    with np.errstate(divide="ignore"):
        return Draw(np.log(np.maximum(y, 0.0)), np.log(np.maximum(-y, 0.0)), np.log(w))


def stop_loss(atoms, weights, n, threshold=0.0, rtol=1e-4) -> Bracket:
    """Bracket ``E[(Y_1 + ... + Y_n - threshold)_+]``, Y iid with these atoms and weights."""
    y, share = np.array(atoms, dtype=np.float64), threshold / n
    with np.errstate(divide="ignore"):
        plus = np.log(np.maximum(y, 0.0) + max(-share, 0.0))
        minus = np.log(np.maximum(-y, 0.0) + max(share, 0.0))
    if Fraction(share) * n == Fraction(threshold):
        # atoms exactly at the threshold are exactly 0, which logarithms cannot tell
        plus[y == share] = minus[y == share] = -np.inf
    return stop_loss_of(Draw(plus, minus, draw_of(atoms, weights).log_weight), n, rtol)
