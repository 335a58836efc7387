"""The privacy blanket: delta of a crowd of any composition, bounded from above (BBGN19; theorem).

Whatever its original y, a report v shows ``m(v) <= min_y p(v|y)`` of common mass, so with
probability ``gamma = sum_v m(v)`` its distribution does not depend on y. Then for all collections
that differ in one record, x against x',

    delta <= (1/N) E[(Y_1 + ... + Y_N)_+],   Y = (p(v|x') - lam p(v|x)) / m(v) at mass m(v),

and Y = 0 with probability 1 - gamma (BBGN19, Lemmas 5.3 and 5.4, before any relaxation). It holds
for every m below the minimum; a smaller m only loosens it. Blocks multiply.

Which pair (x, x') is worst? Write Y = F a - G b with (F, G) from one bit or block and a, b >= 0
from the rest. *Lemma*: if (F, G) is exchangeable and F' is distributed as F, then F a - G b is
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

*Tables of likelihood ratios.* A table has the mass of each pair of powers of theta. The powers of a
product are sums, so a product is a convolution. Powers that are too many are moved to multiples of
a pitch, which can only loosen a bound. Each table says how far off its masses may be (`Doubt`), and
the distribution of Y carries that into the engine. A sum of n masses m_i is off by the errors of
its terms in proportion to them: of ``|ln m_i|`` that is at most the one of the sum and ln n, since
``sum p_i ln(1/p_i) <= ln n`` for shares p_i. To that comes u for each addition.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.theory.brackets import UNIT, Bracket, FloatArray, IntArray, binomial_log_weights, log_sum
from shoal.theory.domains import Block, Domain, check_domain
from shoal.theory.homogeneous import check_crowd
from shoal.theory.randomized_response import log_theta
from shoal.theory.stop_loss import delta_of_draws, stop_loss_of
from shoal.theory.stop_loss.reduction import Draw

_MAX_ATOMS = 20_000
_SPARSEST = 8
"""A rectangle may have this many times more places than there are powers."""
_RANGE = 0.49 * -math.log(np.finfo(np.float64).tiny)
"""Logarithms that differ by less have masses whose products do not underflow."""
_MAX_BANDS = 8
"""The logarithms of the masses of a table may be cut into this many bands."""

_MAX_CLASSES = 16
_FEW_BITS = 200
_LEAST_GAIN = 0.02
_MAX_POWERS = 250


class Doubt(NamedTuple):
    """How far off masses may be: by ``8 u (flat + slope |ln m|)`` of themselves, u = 2^-53.

    Masses are at most 1, so that the logarithms of a product have one sign and their sizes add up.
    """

    flat: float
    slope: float

    def more(self, flat: float, slope: float) -> Doubt:
        """Add further errors."""
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

    towards: IntArray
    away: IntArray
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


def _ranked(powers: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    """Return the different powers in order, and the rank of each."""
    flat = np.ravel(powers).astype(np.int64)
    lowest = int(flat.min())
    present = np.bincount(flat - lowest) > 0
    rank = np.cumsum(present) - 1
    return np.flatnonzero(present) + lowest, rank[flat - lowest]


def log_shares(part: IntArray, whole: IntArray | int, unit: float) -> tuple[FloatArray, FloatArray]:
    """Logarithms of the shares of a spread that keeps the mean ``e^(part unit)``.

    One share stays at 1, ``(1 - e^-(b - a)) / (1 - e^-b)``, the other one rises to ``e^b``,
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
    left, right = _fitted(left, 3000, q), _fitted(right, 1200, q)
    both = _convolved(left, right) or merged(
        left.towards[:, None] + right.towards[None, :],
        left.away[:, None] + right.away[None, :],
        left.log_mass[:, None] + right.log_mass[None, :],
        left.doubt.times(right.doubt),
    )
    return _fitted(both, _MAX_ATOMS, q)


def _convolved(left: Ratios, right: Ratios) -> Ratios | None:
    """Return the product of two tables as a sum of shifted rectangles, or None.

    The masses leave their logarithms, in bands in which none underflows, and the powers must fill
    their rectangle. It is several times faster than merging pairs.
    """
    row, rows, row_pitch = _on_lattice(left.towards, right.towards)
    column, columns, column_pitch = _on_lattice(left.away, right.away)
    height, width = int(row.max()) + 1, int(column.max()) + 1
    widest = max(float(np.ptp(left.log_mass)), float(np.ptp(right.log_mass)))
    if widest >= _MAX_BANDS * _RANGE or height * width > _SPARSEST * row.size:
        return None
    log_total = np.full((height + int(rows.max()), width + int(columns.max())), -np.inf)
    pairs = 0
    for one in _bands(left.log_mass):
        top, first, last = left.log_mass[one].max(), int(row[one].min()), int(row[one].max())
        rectangle = np.zeros((last - first + 1, width))
        rectangle[row[one] - first, column[one]] = np.exp(left.log_mass[one] - top)
        for other in _bands(right.log_mass):
            total = np.zeros(log_total.shape)
            other_top = right.log_mass[other].max()
            masses = np.exp(right.log_mass[other] - other_top)
            for i in np.unique(rows[other]).tolist():
                # Few terms are added at a time: that keeps their round-off small.
                shifted = np.zeros((len(rectangle), log_total.shape[1]))
                here = rows[other] == i
                for j, mass in zip(columns[other][here].tolist(), masses[here], strict=True):
                    shifted[:, j : j + width] += mass * rectangle
                total[first + i : first + i + len(rectangle)] += shifted
            with np.errstate(divide="ignore"):
                logs = np.log(total) + (top + other_top)
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


def _bands(log_mass: FloatArray) -> list[IntArray]:
    """Return the places of masses in bands so narrow that products of two do not underflow."""
    band = ((log_mass.max() - log_mass) // _RANGE).astype(int)
    return [np.flatnonzero(band == number) for number in np.unique(band)]


def _on_lattice(left: IntArray, right: IntArray) -> tuple[IntArray, IntArray, int]:
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


_BINOMIAL = Doubt(0.5, 0.5)
"""That of `binomial_log_weights`."""


def _flags(bits: int, q: float) -> Ratios:
    i = np.arange(bits + 1)
    # q^L C(L, i), written without cancellation
    mass = binomial_log_weights(bits, 0.5) + bits * math.log(2.0 * q)
    return Ratios(i, bits - i, mass, _BINOMIAL.more(0.5, 0.5))


def _loose(highest: int, q: float) -> Ratios:
    """Table of blocks in the loose form, whose bits are independent, with `highest` bits in all."""
    i, mass, doubt = _loose_side(highest, q)
    total = mass[:, None] + mass[None, :] - highest * log_theta(q)
    shape = total.shape
    towards, away = np.broadcast_to(i[:, None], shape), np.broadcast_to(i[None, :], shape)
    return Ratios(towards.ravel(), away.ravel(), total.ravel(), doubt.times(doubt).more(0.5, 0.75))


def _loose_side(highest: int, q: float) -> tuple[IntArray, FloatArray, Doubt]:
    """Powers of one ratio and their log masses, spread to `_MAX_POWERS` of them where more.

    A spread keeps the mean of the ratio, as in `_coarsened`. Powers stay dense where the ratio is
    likely to be, as it is drawn or weighted with itself, and only the ends stay beyond.
    """
    i, mass = np.arange(highest + 1), binomial_log_weights(highest, q)
    if highest < _MAX_POWERS:
        return 2 * i, mass, _BINOMIAL
    reach = 9.0 * math.sqrt(highest * q * (1.0 - q)) + 9.0
    low, high = max(0, int(q * highest - reach)), min(highest, int((1 - q) * highest + reach))
    nodes = np.unique(np.append(np.linspace(low, high, _MAX_POWERS - 2).astype(int), [0, highest]))
    left = np.clip(np.searchsorted(nodes, i, side="right") - 1, 0, nodes.size - 2)
    unit = 2.0 * log_theta(q)
    gap = nodes[left + 1] - nodes[left]
    stay, rise = log_shares(i - nodes[left], gap, unit)
    table = merged(
        np.concatenate([left, left + 1]),
        np.zeros(2 * i.size, dtype=int),
        np.concatenate([mass + stay, mass + rise]),
        _BINOMIAL.more(2.5 + int(gap.max()) * unit, 0.5),
    )
    return 2 * nodes[table.towards], table.log_mass, table.doubt


def _floor(block: Block, zeros: IntArray) -> IntArray:
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
    # where the floor is above 0 it takes back what the weights went below it
    back = max(int(floor.max()), 0) * log_theta(q)
    doubt = Doubt(2.0 + 3.0 * back, 1.0)
    return merged(towards, away, base + floor * log_theta(q), doubt)


def _wants_exact(block: Block, q: float) -> bool:
    if block.lowest == block.highest:
        return True
    # Below `highest` zeros the exact minimum is larger; when that never happens, do not bother.
    few_zeros = binomial_log_weights(block.bits, q)[::-1][: block.highest]
    weight = log_sum(few_zeros + block.highest * log_theta(q))
    return weight > math.log(1e-9) or 2 * block.highest > block.bits


def _log_gain(block: Block, q: float) -> float:
    """Logarithm of the blanket's mass in the exact form over that in the loose form, at most.

    For a choice it is exact: reports of ones only have theta^2 times the mass.
    """
    if block.highest > 1:
        return math.inf
    return math.log1p(q**block.bits * math.expm1(2.0 * log_theta(q)))


def _total_bits(blocks: Iterable[Block]) -> int:
    return sum(block.bits for block in blocks)


def _forms(blocks: Sequence[Block], q: float) -> list[tuple[list[Ratios], int]]:
    """Tables of the blocks and their copies, exact where the number of classes allows it.

    Equal blocks with one class, blocks in the loose form, and flags are one table each.
    """
    rest = [block for block in blocks if not block.is_flags]
    free = _total_bits(blocks) - _total_bits(rest)
    forms = []
    classes, loose = 1, 0
    equal: dict[Block, int] = collections.Counter(rest)
    # among many other questions the exact form of a block often gains little
    narrow = len(blocks) == 1 or _total_bits(blocks) <= _FEW_BITS
    max_classes = _MAX_CLASSES if narrow else 1
    for block in sorted(equal, key=lambda block: block.highest - block.lowest):
        kinds = (block.highest - block.lowest + 1) ** 2
        for copies in [equal[block]] if kinds == 1 else [1] * equal[block]:
            gains = narrow or copies * _log_gain(block, q) > _LEAST_GAIN
            if classes * kinds <= max_classes and gains and _wants_exact(block, q):
                classes *= kinds
                sizes = range(block.lowest, block.highest + 1)
                pairs = itertools.product(sizes, repeat=2)  # that may be the worst
                forms.append(([_exact(block, s, t, q) for s, t in pairs], copies))
            elif 2 * block.highest <= block.bits:
                loose += copies * block.highest
            else:
                free += copies * block.bits
    if loose:
        forms.append(([_loose(loose, q)], 1))
    if free:
        forms.append(([_flags(free, q)], 1))
    return forms


# Where a rough bracket did not decide, a finer one is asked for at the same q.
@functools.lru_cache(maxsize=2)
def _totals(domain: Domain, q: float) -> list[Ratios]:
    forms = _forms(domain, q)
    powers = [[power(table, copies, q) for table in tables] for tables, copies in forms]
    choices = itertools.product(*powers)
    return [functools.reduce(lambda s, t: product(s, t, q), factors) for factors in choices]


def blanket_draws(domain: Iterable[Block], q: float, epsilon: float) -> list[Draw]:
    """Distributions of Y, one for each class of pairs that may be the worst."""
    return [_draw(table, log_theta(q), epsilon) for table in _totals(check_domain(domain), q)]


def _draw(table: Ratios, unit: float, epsilon: float) -> Draw:
    """Return the distribution of Y, which is 0 with the mass that the table leaves."""
    flat, slope = table.doubt
    log_atoms = math.log(table.log_mass.size)
    log_mass = min(log_sum(table.log_mass), 0.0)
    # as of a sum in pairs: 40 additions at most, one after another
    error = 8.0 * UNIT * (flat + slope * (log_atoms - log_mass) + log_atoms + 6.0)
    # What is left must be larger than its error; a smaller m only loosens the bound.
    lower = 1024.0 * error if -log_mass < 1024.0 * error else 0.0
    left = -math.expm1(log_mass - lower)
    blur = max(flat, 1.0) - 1.0 + (max(slope, 0.875) - 0.875) * np.abs(table.log_mass)
    return Draw(
        np.append(table.towards * unit, -np.inf),
        np.append(table.away * unit + epsilon, -np.inf),
        np.append(table.log_mass - lower, math.log(left)),
        np.append(blur, error / left / (8.0 * UNIT)),
    )


def blanket_delta(
    domain: Iterable[Block], N: int, q: float, epsilon: float, rtol: float = 1e-4
) -> Bracket:
    """Bracket the blanket bound on delta(epsilon), for every collection of the domain (theorem).

    The bracket holds the value of the bound; its high end is an upper bound on the true delta.

    >>> from shoal.theory.domains import flags
    >>> round(blanket_delta((flags(5),), 5000, 0.21013, math.log(2)).high, 4)
    0.005
    """
    check_crowd(N, q, epsilon)
    if q == 0.5:
        return Bracket(0.0, 0.0)
    draws = blanket_draws(domain, q, epsilon)
    if len(draws) == 1:
        return delta_of_draws(draws[0], N, rtol)
    rough = [stop_loss_of(draw, N, max(rtol, 0.02), 1 << 14) for draw in draws]
    floor = max(bracket.low for bracket in rough)
    low = high = 0.0
    for draw, bracket in zip(draws, rough, strict=True):
        if bracket.high >= floor:
            fine = stop_loss_of(draw, N, rtol)
            low, high = max(low, fine.low), max(high, min(fine.high, bracket.high))
    return Bracket(low, high).times(1.0 / N).capped(1.0)


def normal_guess(domain: Iterable[Block], N: int, q: float, epsilon: float) -> float:
    """Guess the blanket's delta as if the sum of Y were normal: no bound, a start for a search.

    Moments of blocks multiply, so this takes no product of tables.
    """
    unit, moments = log_theta(q), np.zeros(3)
    for (*_, table), copies in _forms(check_domain(domain), q):  # the last: of the largest answers
        for i, powers in enumerate((2 * table.towards, table.towards + table.away, 2 * table.away)):
            moments[i] += copies * log_sum(table.log_mass + powers * unit)
    # of Y = F - lam G, divided by the largest moment
    top = float(moments.max()) + 2.0 * epsilon
    both, mixed, other = np.exp(moments + epsilon * np.arange(3) - top)
    log_sigma = 0.5 * (top + math.log(max(both - 2.0 * mixed + other, 1e-300)) + math.log(N))
    away = 0.0
    if epsilon > 0.0:
        log_excess = epsilon + math.log(-math.expm1(-epsilon))
        away = math.exp(min(math.log(N) + log_excess - log_sigma, 3.4))  # beyond 30, all is tiny
    tail = math.exp(-0.5 * away**2) / math.sqrt(2.0 * math.pi)
    tail -= 0.5 * away * math.erfc(away / math.sqrt(2.0))
    return min(math.exp(min(log_sigma, 500.0)) / N * max(tail, 0.0), 1.0)
