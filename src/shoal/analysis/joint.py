"""Joint answers: how many people have each combination of chosen bits.

The channel on j bits is the j-fold Kronecker power of [[p, q], [q, p]], so it is undone one bit at
a time in j 2^j steps. The spread of a cell grows like (1 - 2q)^-j: look at it before you use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.intervals import Interval, Target, drawn_sigma, normal_interval
from shoal.errors import InputError

__all__ = ["Cell", "JointEstimates", "estimate_joint"]


@dataclass(frozen=True)
class Cell:
    """One combination of bits: the values in the order asked, its count and its spread.

    `count` and `variance`, that of the flips, are unbiased; where few reports fall oddly the
    variance can be too small, even negative. `noise`, its root, does not follow it below what any
    crowd of this size must have. `drawn` is how many people were drawn from a population, 0 if the
    crowd itself is meant.
    """

    values: tuple[int, ...]
    count: float
    variance: float
    noise: float
    drawn: int

    @property
    def sigma(self) -> float:
        """The standard deviation of the count: of the flips and, for a population, of who."""
        return drawn_sigma(self.count, self.noise, self.drawn)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the normal interval of the count, which is approximate: for large crowds."""
        return normal_interval(self.count, self.noise, level, self.drawn)


@dataclass(frozen=True)
class JointEstimates:
    """Estimates of every combination of chosen bits: ``joint[1, 0]`` is set, not set."""

    bits: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]

    def __getitem__(self, values: tuple[int, ...] | int) -> Cell:
        wanted = (values,) if isinstance(values, int) else tuple(values)
        for cell in self.cells:
            if cell.values == wanted:
                return cell
        raise InputError(f"a combination is {len(self.bits)} values of 0 or 1, got {values}.")


def estimate_joint(
    counts: NDArray[np.int64],
    q: float,
    bits: Sequence[tuple[str, str]],
    target: Target = "crowd",
) -> JointEstimates:
    """Undo the flips of chosen bits jointly.

    `counts[v]` is how many reports show the combination v, the first bit least significant.

    A cell's variance is estimated without bias from the same counts as sum_v count(v) w(v)^2 -
    count, where w are the inverse channel's weights for that cell: each report adds
    E[w^2] - (E w)^2, and E w is 1 for those truly in the cell and 0 for the others.
    """
    j = len(bits)
    if counts.shape != (1 << j,):
        raise InputError(f"{j} bits have {1 << j} joint counts, got {counts.size}.")
    scale = 1 / (1 - 2 * q)
    keep, flip = (1 - q) * scale, -q * scale
    undone = _each_bit(counts.astype(float), j, keep, flip)
    squared = _each_bit(counts.astype(float), j, keep**2, flip**2)
    reports = int(counts.sum())
    variance = squared - undone
    # A person d bits off the cell adds this much; a crowd of n adds n times the least of it.
    same, other = (1 - q) * keep**2 + q * flip**2, (1 - q) * flip**2 + q * keep**2
    least = min(same ** (j - d) * other**d - (d == 0) for d in range(j + 1))
    noise = np.sqrt(np.maximum(variance, reports * least))
    drawn = reports if target == "population" else 0
    cells = []
    for values in product((0, 1), repeat=j):
        index = sum(value << place for place, value in enumerate(values))
        cell = (float(undone[index]), float(variance[index]), float(noise[index]))
        cells.append(Cell(values, *cell, drawn))
    return JointEstimates(tuple(bits), tuple(cells))


def _each_bit(
    table: NDArray[np.float64], bits: int, same: float, other: float
) -> NDArray[np.float64]:
    """Apply [[same, other], [other, same]] to every bit of the table's index."""
    for place in range(bits):
        pairs = table.reshape(-1, 2, 1 << place)
        clear, set_ = pairs[:, 0], pairs[:, 1]
        table = np.stack((same * clear + other * set_, other * clear + same * set_), axis=1)
        table = table.reshape(-1)
    return table
