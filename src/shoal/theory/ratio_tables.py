"""Tables of likelihood ratios: how the questions of a survey multiply, with their round-off.

A table has the mass of each pair of powers of theta. The powers of a product are sums, so a product
is a convolution. Powers that are too many are moved to multiples of a pitch, which can only loosen
a bound.

*Round-off.* Each table says how far off its masses may be (`Doubt`), and the law of Y carries that
into the engine. A sum of n masses m_i is off by the errors of its terms in proportion to them: of
``|ln m_i|`` that is at most the one of the sum and ln n, since ``sum p_i ln(1/p_i) <= ln n`` for
shares p_i. To that comes u for each addition.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.brackets import FloatArray
from shoal.theory.randomized_response import log_theta

__all__ = ["Doubt", "Ratios", "log_shares", "merged", "power", "product"]

_MOST_ATOMS = 20_000
_SPARSEST = 8
"""A rectangle of powers may have so many times more places than powers."""
_MOST_BANDS = 3
"""Into so many bands of logarithms the masses of a table may be cut."""


class Doubt(NamedTuple):
    """How far off masses may be: by ``8 u (flat + slope |ln m|)`` of themselves, u = 2^-53.

    Masses are at most 1, so that the logarithms of a product have one sign and their sizes add up.
    """

    flat: float
    slope: float

    def more(self, flat: float, slope: float) -> Doubt:
        """Return the doubt after further errors."""
        return Doubt(self.flat + flat, self.slope + slope)

    def times(self, other: Doubt) -> Doubt:
        """Return the doubt of products, whose logarithms are added."""
        return Doubt(self.flat + other.flat, max(self.slope, other.slope) + 0.125)

    def summed(self, terms: int, additions: int) -> Doubt:
        """Return the doubt of sums that are formed after a division by the largest term."""
        log_terms = math.log(terms)
        return self.more(self.slope * log_terms + (3.0 * log_terms + additions + 5.0) / 8.0, 0.125)


class Ratios(NamedTuple):
    """Powers of theta of ``p(v|x')/m(v)`` and ``p(v|x)/m(v)`` with the log mass of m on each."""

    towards: npt.NDArray[np.int64]
    away: npt.NDArray[np.int64]
    log_mass: FloatArray
    doubt: Doubt


def merged(
    towards: npt.ArrayLike, away: npt.ArrayLike, log_mass: FloatArray, doubt: Doubt
) -> Ratios:
    """Add up the masses of equal pairs of powers, in the order of the pairs."""
    first, row = _ranked(towards)
    second, column = _ranked(away)
    place = row * second.size + column
    size = first.size * second.size
    flat = np.ravel(log_mass)
    top = np.full(size, -np.inf)
    np.maximum.at(top, place, flat)
    live = np.flatnonzero(top > -np.inf)
    total = np.bincount(place, np.exp(flat - np.where(top > -np.inf, top, 0.0)[place]), size)
    mass = top[live] + np.log(total[live])
    terms = int(np.bincount(place).max())
    return Ratios(
        first[live // second.size], second[live % second.size], mass, doubt.summed(terms, terms)
    )


def _ranked(
    powers: npt.ArrayLike,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the different powers in order, and the rank of each."""
    flat = np.ravel(powers).astype(np.int64)
    lowest = int(flat.min())
    present = np.bincount(flat - lowest) > 0
    rank = np.cumsum(present) - 1
    return np.flatnonzero(present) + lowest, rank[flat - lowest]


def log_shares(
    part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64] | int, unit: float
) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the shares of a spread that keeps the mean ``e^(part unit)``.

    One share stays at 1, ``(1 - e^-(b - a)) / (1 - e^-b)``, and the other one rises to ``e^b``,
    ``(e^a - 1) / (e^b - 1)``, with ``a = part unit``, ``b = whole unit``. If the unit is right to
    4u, they are right to ``20 u + 8 u b``, and to 3u of themselves: 5u + 2u for each factor below
    1, which is at most as sensitive as its argument.
    """
    down = np.expm1(-whole * unit)
    with np.errstate(divide="ignore"):
        stay = np.log(np.expm1((part - whole) * unit) / down)
        rise = (part - whole) * unit + np.log(np.expm1(-part * unit) / down)
    return np.minimum(stay, 0.0), np.minimum(rise, 0.0)


def _coarsened(table: Ratios, pitch: int, q: float) -> Ratios:
    """Move both powers of theta to multiples of `pitch` by mean-preserving spreads.

    Y is linear in either ratio, so each step is a spread of Y: the bound can only grow.
    """
    unit = log_theta(q)
    for _ in range(2):
        low = pitch * (table.towards // pitch)
        stay, rise = log_shares(table.towards - low, pitch, unit)
        spread = merged(
            np.concatenate([low, low + pitch]),
            np.tile(table.away, 2),
            np.concatenate([table.log_mass + stay, table.log_mass + rise]),
            table.doubt.more(2.5 + pitch * unit, 0.5),
        )
        table = spread._replace(towards=spread.away, away=spread.towards)
    return table


def _fitted(table: Ratios, most: int, q: float) -> Ratios:
    pitch = 1
    while table.log_mass.size > most and q < 0.5:
        pitch *= 2
        table = _coarsened(table, pitch, q)
    return table


def product(left: Ratios, right: Ratios, q: float) -> Ratios:
    """Return the table of two blocks together."""
    left, right = _fitted(left, 3000, q), _fitted(right, 1200, q)
    both = _convolved(left, right) or merged(
        left.towards[:, None] + right.towards[None, :],
        left.away[:, None] + right.away[None, :],
        left.log_mass[:, None] + right.log_mass[None, :],
        left.doubt.times(right.doubt),
    )
    return _fitted(both, _MOST_ATOMS, q)


def _convolved(left: Ratios, right: Ratios) -> Ratios | None:
    """Return the product of two tables as a sum of shifted rectangles, or None.

    For this the masses leave their logarithms, in bands of which none falls below the smallest
    float, and the powers must fill their rectangle. It is several times faster than merging pairs.
    """
    row, rows, row_pitch = _on_lattice(left.towards, right.towards)
    column, columns, column_pitch = _on_lattice(left.away, right.away)
    height, width = int(row.max()) + 1, int(column.max()) + 1
    widest = max(float(np.ptp(left.log_mass)), float(np.ptp(right.log_mass)))
    # Long floats are eight times slower, so that a few bands of short ones take less time.
    kind = np.float64 if widest < _MOST_BANDS * _range(np.float64) else np.longdouble
    if widest >= _MOST_BANDS * _range(kind) or height * width > _SPARSEST * row.size:
        return None
    log_total = np.full((height + int(rows.max()), width + int(columns.max())), -np.inf)
    pairs = 0
    for one in _bands(left.log_mass, kind):
        top, first, last = left.log_mass[one].max(), int(row[one].min()), int(row[one].max())
        rectangle = np.zeros((last - first + 1, width), kind)
        masses = np.exp((left.log_mass[one] - top).astype(kind))
        rectangle[row[one] - first, column[one]] = masses
        for other in _bands(right.log_mass, kind):
            total = np.zeros(log_total.shape, kind)
            other_top = right.log_mass[other].max()
            masses = np.exp((right.log_mass[other] - other_top).astype(kind))
            for i in np.unique(rows[other]).tolist():
                # Few terms are added at a time: that keeps their round-off small.
                shifted = np.zeros((len(rectangle), log_total.shape[1]), kind)
                here = rows[other] == i
                for j, mass in zip(columns[other][here].tolist(), masses[here], strict=True):
                    shifted[:, j : j + width] += mass * rectangle
                total[first + i : first + i + len(rectangle)] += shifted
            with np.errstate(divide="ignore"):
                logs = np.log(total).astype(np.float64) + (top + other_top)
            log_total = np.logaddexp(log_total, logs)
            pairs += 1
    live = np.nonzero(log_total > -np.inf)
    # Both exponentials, a logarithm, the tops, and the sums of bands; u |ln m| each at most.
    doubt = left.doubt.times(right.doubt).more(1.0 + 0.5 * pairs, 0.625 + 0.125 * pairs)
    additions = int(np.bincount(rows).max()) + int(np.unique(rows).size)
    doubt = doubt.summed(min(left.log_mass.size, right.log_mass.size), additions)
    return Ratios(
        live[0] * row_pitch + left.towards.min() + right.towards.min(),
        live[1] * column_pitch + left.away.min() + right.away.min(),
        log_total[live],
        doubt,
    )


def _bands(log_mass: FloatArray, kind: type[np.floating[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return the places of masses in bands so narrow that products of two masses are not lost."""
    band = ((log_mass.max() - log_mass) // _range(kind)).astype(int)
    return [np.flatnonzero(band == number) for number in range(int(band.max()) + 1)
            if np.any(band == number)]  # fmt: skip


def _range(kind: type[np.floating[Any]]) -> float:
    """By how much logarithms may differ so that products of two masses are not lost."""
    return 0.49 * -float(np.log(np.finfo(kind).tiny))


def _on_lattice(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Return the places of powers on their coarsest common lattice, from 0, and its pitch."""
    left, right = left - left.min(), right - right.min()
    pitch = max(int(np.gcd(np.gcd.reduce(left), np.gcd.reduce(right))), 1)
    return left // pitch, right // pitch, pitch


def power(table: Ratios, count: int, q: float) -> Ratios:
    """Table of `count` equal blocks, by squaring: few products, so few spreads."""
    if count == 1:
        return table
    half = power(table, count // 2, q)
    square = product(half, half, q)
    return product(square, table, q) if count % 2 else square
