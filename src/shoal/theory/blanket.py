"""The privacy blanket: delta of a crowd of any composition, bounded from above (BBGN19; theorem).

Whatever its original y, a report v shows ``m(v) <= min_y p(v|y)`` of common mass, so with
probability ``gamma = sum_v m(v)`` it is drawn from a law that does not depend on y. Then for all
collections that differ in one record, x against x',

    delta <= (1/N) E[(Y_1 + ... + Y_N)_+],   Y = (p(v|x') - lam p(v|x)) / m(v) at mass m(v),

and Y = 0 with probability 1 - gamma (BBGN19, Lemmas 5.3 and 5.4, before any relaxation). It holds
for every m below the minimum; a smaller m only loosens it. Blocks multiply.

Which pair (x, x') is worst? Write Y = F a - G b with (F, G) from one bit or block and a, b >= 0
from the rest. *Lemma*: if (F, G) is exchangeable and F' has the law of F, then F a - G b is
larger than F'(a - b) in convex order. Proof: given {F, G} = {s, t}, the first takes the values
sa - tb and ta - sb, the second s(a - b) and t(a - b), each with probability 1/2; the means agree
and the half-widths are |s - t|(a + b)/2 >= |s - t||a - b|/2. Convex order survives mixtures and
iid sums, and the stop-loss is convex. Hence:

* flags: a bit in which x and x' agree is never better for the attacker than one in which they
  differ (F, G = theta, 1 or 1, theta): the worst pair differs in every bit;
* exactly k, choice: m is symmetric in the bits, so moving an element common to x and x' to a bit
  outside both makes it worse: the worst pair overlaps as little as the block allows;
* at most k: the same for each pair of sizes; sizes are tried in turn (`exact` form), or m is
  lowered to ``base * theta^-k`` (`loose` form, base(v) = p(v|0)), which makes bits independent
  with E[theta^(2v-1)] = 1, so that setting one more bit is a mean-preserving spread and the
  worst pair is two disjoint k-sets, provided that 2k <= K. Otherwise flags(K) contains the block.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.coin import log_theta
from shoal.theory.domains import Block, check_domain
from shoal.theory.homogeneous import check_crowd
from shoal.theory.stop_loss.bracket import Bracket
from shoal.theory.stop_loss.law import FloatArray, Law, binomial_log_weights, log_sum
from shoal.theory.stop_loss.stop_loss import stop_loss_of_law

__all__ = ["blanket_delta", "blanket_laws"]

_MOST_CLASSES = 16
_FEW_BITS = 200
_LEAST_GAIN = 0.02
_MOST_ATOMS = 20_000
_MOST_POWERS = 250
_SPARSEST = 8
"""A rectangle of powers may have so many times more places than powers."""
_MOST_BANDS = 3
"""Into so many bands of logarithms the masses of a table may be cut."""


class Ratios(NamedTuple):
    """Powers of theta of ``p(v|x')/m(v)`` and ``p(v|x)/m(v)`` with the log mass of m on each."""

    towards: npt.NDArray[np.int64]
    away: npt.NDArray[np.int64]
    log_mass: FloatArray


def _merged(towards: npt.ArrayLike, away: npt.ArrayLike, log_mass: FloatArray) -> Ratios:
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
    return Ratios(first[live // second.size], second[live % second.size], mass)


def _ranked(
    powers: npt.ArrayLike,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the different powers in order, and the rank of each."""
    flat = np.ravel(powers).astype(np.int64)
    lowest = int(flat.min())
    present = np.bincount(flat - lowest) > 0
    rank = np.cumsum(present) - 1
    return np.flatnonzero(present) + lowest, rank[flat - lowest]


def _flags(bits: int, q: float) -> Ratios:
    i = np.arange(bits + 1)
    # q^L C(L, i), written without cancellation
    mass = binomial_log_weights(bits, 0.5) + bits * math.log(2.0 * q)
    return Ratios(i, bits - i, mass)


def _loose(highest: int, q: float) -> Ratios:
    """Table of blocks in the loose form with so many bits together: bits are independent."""
    i, mass = _loose_side(highest, q)
    total = mass[:, None] + mass[None, :] - highest * log_theta(q)
    shape = total.shape
    towards, away = np.broadcast_to(i[:, None], shape), np.broadcast_to(i[None, :], shape)
    return Ratios(towards.ravel(), away.ravel(), total.ravel())


def _loose_side(highest: int, q: float) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Powers of one ratio and their log masses, spread to `_MOST_POWERS` of them where more.

    A spread keeps the mean of the ratio, as in `_coarsened`. Powers stay dense where the ratio is
    likely to be, as it is drawn or weighted with itself, and only the ends stay beyond.
    """
    i, mass = np.arange(highest + 1), binomial_log_weights(highest, q)
    if highest < _MOST_POWERS:
        return 2 * i, mass
    reach = 9.0 * math.sqrt(highest * q * (1.0 - q)) + 9.0
    low, high = max(0, int(q * highest - reach)), min(highest, int((1 - q) * highest + reach))
    nodes = np.unique(np.append(np.linspace(low, high, _MOST_POWERS - 2).astype(int), [0, highest]))
    left = np.clip(np.searchsorted(nodes, i, side="right") - 1, 0, nodes.size - 2)
    unit = 2.0 * log_theta(q)
    # (e^(i unit) - e^(l unit)) / (e^(r unit) - e^(l unit)), and what it leaves
    gap = nodes[left + 1] - nodes[left]
    share = np.expm1((i - nodes[left]) * unit) / np.expm1(gap * unit)
    rest = np.expm1((nodes[left + 1] - i) * unit) / np.expm1(gap * unit)
    rest *= np.exp((i - nodes[left]) * unit)
    with np.errstate(divide="ignore"):
        parts = np.concatenate([mass + np.log(rest), mass + np.log(share)])
    table = _merged(np.concatenate([left, left + 1]), np.zeros(2 * i.size, dtype=int), parts)
    return 2 * nodes[table.towards], table.log_mass


def _floor(block: Block, zeros: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Exponent of theta in ``min_y p(v|y) / p(v|0)`` when v has that many zeros.

    Setting a bit of y where v is 0 costs a factor theta, where v is 1 it gains one.
    """
    inside = np.where(zeros >= block.highest, -block.highest, -zeros)
    return np.where(zeros < block.lowest, block.lowest - 2 * zeros, inside)


def _exact(block: Block, size: int, size_other: int, q: float) -> Ratios:
    """Table for |x| = size and |x'| = size_other, overlapping as little as possible."""
    both = max(0, size + size_other - block.bits)
    only, other = size - both, size_other - both
    rest = block.bits - both - only - other
    i0, i1, i2, i3 = np.ogrid[: both + 1, : only + 1, : other + 1, : rest + 1]
    base = (
        binomial_log_weights(both, q)[:, None, None, None]
        + binomial_log_weights(only, q)[None, :, None, None]
        + binomial_log_weights(other, q)[None, None, :, None]
        + binomial_log_weights(rest, q)[None, None, None, :]
    )
    floor = _floor(block, block.bits - (i0 + i1 + i2 + i3))
    shape = base.shape
    towards = np.broadcast_to(2 * i0 - both + 2 * i2 - other - floor, shape)
    away = np.broadcast_to(2 * i0 - both + 2 * i1 - only - floor, shape)
    return _merged(towards, away, base + floor * log_theta(q))


def _tables(block: Block, q: float) -> list[Ratios]:
    """One table per class of pairs that may be the worst; see the module."""
    sizes = range(block.lowest, block.highest + 1)
    return [_exact(block, s, t, q) for s, t in itertools.product(sizes, repeat=2)]


def _wants_exact(block: Block, q: float) -> bool:
    if block.lowest == block.highest:
        return True
    # Below `highest` zeros the exact minimum is larger; when that never happens, do not bother.
    few_zeros = binomial_log_weights(block.bits, q)[::-1][: block.highest]
    weight = log_sum(few_zeros + block.highest * log_theta(q))
    return weight > math.log(1e-9) or 2 * block.highest > block.bits


def _coarsened(table: Ratios, pitch: int, q: float) -> Ratios:
    """Move both powers of theta to multiples of `pitch` by mean-preserving spreads.

    Y is linear in either ratio, so each step is a spread of Y: the bound can only grow.
    """
    unit = log_theta(q)
    towards, away, mass = table
    for _ in range(2):
        low = pitch * (towards // pitch)
        part = np.expm1((towards - low) * unit) / math.expm1(pitch * unit)
        with np.errstate(divide="ignore"):
            stay, rise = mass + np.log1p(-part), mass + np.log(part)
        merged = _merged(
            np.concatenate([low, low + pitch]), np.tile(away, 2), np.concatenate([stay, rise])
        )
        towards, away, mass = merged.away, merged.towards, merged.log_mass
    return Ratios(towards, away, mass)


def _fitted(table: Ratios, most: int, q: float) -> Ratios:
    pitch = 1
    while table.log_mass.size > most and q < 0.5:
        pitch *= 2
        table = _coarsened(table, pitch, q)
    return table


def _product(left: Ratios, right: Ratios, q: float) -> Ratios:
    left, right = _fitted(left, 3000, q), _fitted(right, 1200, q)
    product = _convolved(left, right) or _merged(
        left.towards[:, None] + right.towards[None, :],
        left.away[:, None] + right.away[None, :],
        left.log_mass[:, None] + right.log_mass[None, :],
    )
    return _fitted(product, _MOST_ATOMS, q)


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
    live = np.nonzero(log_total > -np.inf)
    return Ratios(
        live[0] * row_pitch + left.towards.min() + right.towards.min(),
        live[1] * column_pitch + left.away.min() + right.away.min(),
        log_total[live],
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


def _power(table: Ratios, count: int, q: float) -> Ratios:
    """Table of `count` equal blocks, by squaring: few products, so few spreads."""
    if count == 1:
        return table
    half = _power(table, count // 2, q)
    square = _product(half, half, q)
    return _product(square, table, q) if count % 2 else square


def _log_gain(block: Block, q: float) -> float:
    """Logarithm of the blanket's mass in the exact form over that in the loose form, at most.

    For a choice it is exact: reports of ones only have theta^2 times the mass.
    """
    if block.highest > 1:
        return math.inf
    return math.log1p(q**block.bits * math.expm1(2.0 * log_theta(q)))


def _total_bits(blocks: Iterable[Block]) -> int:
    return sum(block.bits for block in blocks)


def _forms(blocks: Sequence[Block], q: float) -> list[list[Ratios]]:
    """Tables of the blocks, in the exact form where the number of classes allows it.

    Equal blocks with one class, blocks in the loose form, and flags are one table each.
    """
    rest = [block for block in blocks if (block.lowest, block.highest) != (0, block.bits)]
    free = _total_bits(blocks) - _total_bits(rest)
    forms = []
    classes, loose = 1, 0
    equal: dict[Block, int] = collections.Counter(rest)
    # among many other questions the exact form of a block often gains little
    narrow = len(blocks) == 1 or _total_bits(blocks) <= _FEW_BITS
    most_classes = _MOST_CLASSES if narrow else 1
    for block in sorted(equal, key=lambda block: block.highest - block.lowest):
        kinds = (block.highest - block.lowest + 1) ** 2
        for copies in [equal[block]] if kinds == 1 else [1] * equal[block]:
            gains = narrow or copies * _log_gain(block, q) > _LEAST_GAIN
            if classes * kinds <= most_classes and gains and _wants_exact(block, q):
                classes *= kinds
                forms.append([_power(table, copies, q) for table in _tables(block, q)])
            elif 2 * block.highest <= block.bits:
                loose += copies * block.highest
            else:
                free += copies * block.bits
    if loose:
        forms.append([_loose(loose, q)])
    if free:
        forms.append([_flags(free, q)])
    return forms


def _totals(domain: Iterable[Block], q: float) -> list[Ratios]:
    choices = itertools.product(*_forms(check_domain(domain), q))
    return [functools.reduce(lambda s, t: _product(s, t, q), factors) for factors in choices]


def blanket_laws(domain: Iterable[Block], q: float, epsilon: float) -> list[Law]:
    """Laws of Y, one for each class of pairs that may be the worst.

    Examples
    --------
    >>> [law.log_weight.size for law in blanket_laws((Block(3, 1, 1),), 0.25, 1.0)]
    [5]
    """
    unit = log_theta(q)
    laws = []
    for table in _totals(domain, q):
        log_mass = min(log_sum(table.log_mass), 0.0)
        with np.errstate(divide="ignore"):
            nothing = np.log(-np.expm1(np.array([log_mass])))
        plus = np.append(table.towards * unit, -np.inf)
        minus = np.append(table.away * unit + epsilon, -np.inf)
        laws.append(Law(plus, minus, np.append(table.log_mass, nothing)))
    return laws


def blanket_delta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> Bracket:
    """Bracket the blanket bound on delta(epsilon), for every collection of the domain (theorem).

    The bracket holds the value of the bound; its high end is an upper bound on the true delta.

    Parameters
    ----------
    domain : iterable of Block
        The questions.
    N : int >= 1
        Number of reports.
    q : float in (0, 1/2]
        Flip probability.
    epsilon : float >= 0
        Natural logarithm of lam.
    rtol : float > 0
        Relative width asked for.

    Examples
    --------
    >>> from shoal.theory.domains import flags
    >>> round(blanket_delta((flags(5),), 5000, 0.21013, math.log(2)).high, 4)
    0.005
    """
    check_crowd(N, q, epsilon)
    if q == 0.5:
        return Bracket(0.0, 0.0)
    laws = blanket_laws(domain, q, epsilon)
    if len(laws) == 1:
        return stop_loss_of_law(laws[0], N, rtol).times(1.0 / N).capped(1.0)
    rough = [stop_loss_of_law(law, N, max(rtol, 0.02), 1 << 14) for law in laws]
    floor = max(bracket.low for bracket in rough)
    low = high = 0.0
    for law, bracket in zip(laws, rough, strict=True):
        if bracket.high >= floor:
            fine = stop_loss_of_law(law, N, rtol)
            low, high = max(low, fine.low), max(high, min(fine.high, bracket.high))
    return Bracket(low, high).times(1.0 / N).capped(1.0)
