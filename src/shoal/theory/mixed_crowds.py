"""Crowds of a few different vectors: which of them differ, and the delta and eta of a pair.

*Configurations.* Permuting the bits of a block, in all records alike, changes neither delta nor
eta. On flags neither does flipping a bit in all records. (Theorems: both commute with the channel
and only rename the reports.) So one configuration of each kind suffices.

*Delta and eta*, exactly or within a bracket. The others hold n_1 times z_1, n_2 times z_2, ...; the
last record is x or x'. Reports that all these vectors explain in the same proportion need not be
told apart (theorem: the likelihood ratio is a sufficient statistic), so a histogram has only as
many cells as there are different vectors of ratios. Two values that are opposite on L bits make
L + 1 cells instead of 2^L.

* *Recursion*: add one record after another (SDP, the recursion before (2.2)). All terms are
  positive, so every probability is right to a known relative error, however small delta is. With
  3 cells up to about 300 records, with 6 cells 30, with 8 cells 20, with 12 cells 12.
* *Transform*: the characteristic function of the others' histogram on a window that Bernstein's
  inequality justifies. Right to an absolute error near 1e-11, which the bracket includes. With 3
  cells up to about 20,000 records, with 4 cells 1,000, with 5 cells 100. Larger crowds are refused.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.fft import irfftn, next_fast_len

from shoal.theory.brackets import (
    UNIT,
    Bracket,
    FloatArray,
    IntArray,
    bernstein_reach,
    log_one_plus,
    power_error,
)
from shoal.theory.domains import Block, Domain, Triple, check_domain, classes
from shoal.theory.enumeration import Vector, originals
from shoal.theory.homogeneous import check_crowd
from shoal.theory.stop_loss.reduction import compositions

_EXPONENT = 38.0
_FEW_STEPS = 5e6
_MAX_STEPS = 1e8
_MAX_POINTS = 4e6


class Configuration(NamedTuple):
    """A record in D, the one in D_m, and the values that the others have."""

    x: Vector
    x_prime: Vector
    values: tuple[Vector, ...]


def _slices(domain: Domain) -> list[slice]:
    ends = list(itertools.accumulate((block.bits for block in domain), initial=0))
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


def _block_representatives(block: Block, fixed: Sequence[Vector]) -> list[Vector]:
    """Return one vector of each kind that can be told apart relative to the fixed ones."""
    if not fixed and block.is_flags:
        return [(0,) * block.bits]
    groups: dict[tuple[int, ...], list[int]] = {}
    for bit in range(block.bits):
        groups.setdefault(tuple(vector[bit] for vector in fixed), []).append(bit)
    vectors = []
    for counts in itertools.product(*(range(len(group) + 1) for group in groups.values())):
        if block.lowest <= sum(counts) <= block.highest:
            chosen = {
                bit
                for group, count in zip(groups.values(), counts, strict=True)
                for bit in group[:count]
            }
            vectors.append(tuple(int(bit in chosen) for bit in range(block.bits)))
    return vectors


def configurations(
    domain: Iterable[Block], values: int, limit: int = 20_000
) -> Iterator[Configuration]:
    """Yield one configuration of each kind with this number of different values among the others.

    Stops after trying `limit` of them.

    >>> len(list(configurations((Block(2, 0, 2),), 2)))
    10
    """
    blocks = check_domain(domain)
    seen = set()
    for vectors in itertools.islice(_tuples(blocks, (), 2 + values), limit):
        name = min(
            _signature(blocks, vectors[:2] + order) for order in itertools.permutations(vectors[2:])
        )
        if name not in seen:
            seen.add(name)
            yield Configuration(vectors[0], vectors[1], vectors[2:])


def _tuples(
    blocks: Domain, chosen: tuple[Vector, ...], length: int
) -> Iterator[tuple[Vector, ...]]:
    if len(chosen) == length:
        yield chosen
        return
    parts = [
        _block_representatives(block, [vector[place] for vector in chosen])
        for block, place in zip(blocks, _slices(blocks), strict=True)
    ]
    for choice in itertools.product(*parts):
        vector = tuple(itertools.chain(*choice))
        # x' differs from x; the values of the others differ from one another
        if vector not in (chosen[:1] if len(chosen) == 1 else chosen[2:]):
            yield from _tuples(blocks, (*chosen, vector), length)


def _signature(
    blocks: Domain, vectors: Sequence[Vector]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    name = []
    for block, place in zip(blocks, _slices(blocks), strict=True):
        columns = []
        for bit in range(place.start, place.stop):
            flip = vectors[0][bit] if block.is_flags else 0
            columns.append(tuple(vector[bit] ^ flip for vector in vectors))
        name.append(tuple(sorted(columns)))
    return tuple(name)


def witness(domain: Iterable[Block], triple: Triple) -> Configuration:
    """Find vectors of the domain with the given counts (a, b, c).

    >>> witness((Block(3, 1, 1),), Triple(1, 1, 1))
    Configuration(x=(0, 1, 0), x_prime=(1, 0, 0), values=((0, 0, 1),))
    """
    parts = _split(check_domain(domain), triple)
    if parts is None:
        raise ValueError(f"the domain has no vectors with counts {tuple(triple)}.")
    x, x_prime, z = (tuple(itertools.chain(*column)) for column in zip(*parts, strict=True))
    return Configuration(x, x_prime, (z,))


def _split(blocks: Domain, triple: Triple) -> list[tuple[Vector, Vector, Vector]] | None:
    """Divide the counts among the blocks and place them."""
    if not blocks:
        return [] if sum(triple) == 0 else None
    block, rest = blocks[0], blocks[1:]
    room = sum(other.bits for other in rest)
    parts = {triple} if block.is_flags and not rest else classes((block,))
    for part in sorted(parts, reverse=True):
        left = Triple(triple.a - part.a, triple.b - part.b, triple.c - part.c)
        if min(left) < 0 or sum(left) > room or sum(part) > block.bits:
            continue
        others = _split(rest, left)
        if others is not None:
            return [_placed(block, part), *others]
    return None


def _placed(block: Block, part: Triple) -> tuple[Vector, Vector, Vector]:
    """Vectors x, x', z of one block: a1 of the a bits are set in x and z, the others in x', ..."""
    rest = block.bits - sum(part)
    spans = (range(n + 1) for n in (*part, rest))
    for a1, b1, c1, common in itertools.product(*spans):
        x = a1 + (part.b - b1) + c1 + common
        x_prime = (part.a - a1) + b1 + c1 + common
        z = a1 + b1 + (part.c - c1) + common
        if all(block.lowest <= size <= block.highest for size in (x, x_prime, z)):
            columns = (
                [(1, 0, 1)] * a1 + [(0, 1, 0)] * (part.a - a1)
                + [(0, 1, 1)] * b1 + [(1, 0, 0)] * (part.b - b1)
                + [(1, 1, 0)] * c1 + [(0, 0, 1)] * (part.c - c1)
                + [(1, 1, 1)] * common + [(0, 0, 0)] * (rest - common)
            )  # fmt: skip
            one, two, three = zip(*columns, strict=True)
            return one, two, three
    raise ValueError(f"{block} has no vectors with counts {tuple(part)}.")


def symmetries(domain: Iterable[Block], limit: int = 1000) -> IntArray:
    """Return symmetries as permutations of `originals`, a row each, at most `limit` of them."""
    blocks = check_domain(domain)
    vectors = originals(blocks)
    index = {vector: i for i, vector in enumerate(vectors)}
    moves = []
    for block in blocks:
        masks: Iterable[Vector] = [(0,) * block.bits]
        if block.is_flags:
            masks = itertools.product((0, 1), repeat=block.bits)
        moves.append(itertools.product(itertools.permutations(range(block.bits)), masks))
    rows = []
    for move in itertools.islice(itertools.product(*moves), limit):
        row = []
        for vector in vectors:
            image: list[int] = []
            for (order, mask), place in zip(move, _slices(blocks), strict=True):
                part = vector[place]
                image += [part[bit] ^ flip for bit, flip in zip(order, mask, strict=True)]
            row.append(index[tuple(image)])
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def different_crowds(domain: Iterable[Block], size: int) -> IntArray:
    """List the multisets of `size` originals, one of each kind, as rows of counts.

    A row is kept if no symmetry makes it larger in lexicographic order, so every kind stays in the
    list; if not all symmetries were tried, a kind may stay more than once.

    >>> different_crowds((Block(1, 0, 1),), 2).tolist()
    [[2, 0], [1, 1]]
    """
    blocks = check_domain(domain)
    rows = compositions(size, len(originals(blocks)))[::-1]
    for move in symmetries(blocks):
        change = rows[:, move] - rows
        first = np.argmax(change != 0, axis=1)
        rows = rows[change[np.arange(len(rows)), first] <= 0]
    return rows


def crowd_count(domain: Iterable[Block], size: int) -> int:
    """Return how many multisets of originals there are, symmetries not taken off."""
    count = math.prod(
        sum(math.comb(block.bits, k) for k in range(block.lowest, block.highest + 1))
        for block in check_domain(domain)
    )
    return math.comb(size + count - 1, size)


def cell_chances(vectors: Sequence[Vector], q: float) -> FloatArray:
    """Pmf of one report of each vector over the cells that tell the vectors apart, a row each.

    Bits in which the vectors follow the same pattern matter only through how many of them are
    wrong; outcomes with the same likelihood ratios are one cell.

    >>> cell_chances([(0, 0), (1, 1)], 0.25).round(4).tolist()
    [[0.0625, 0.375, 0.5625], [0.5625, 0.375, 0.0625]]
    """
    first = vectors[0]
    patterns = Counter(
        tuple(vector[bit] ^ first[bit] for vector in vectors) for bit in range(len(first))
    )
    groups = [(pattern, size) for pattern, size in sorted(patterns.items()) if any(pattern)]
    bits = sum(size for _, size in groups)
    flipped = np.indices([size + 1 for _, size in groups]).reshape(len(groups), -1)
    ways = np.ones(flipped.shape[1])
    wrong = np.zeros((len(vectors), flipped.shape[1]), dtype=np.int64)
    for (pattern, size), count in zip(groups, flipped, strict=True):
        ways *= np.array([math.comb(size, i) for i in range(size + 1)], dtype=float)[count]
        for row, differs in enumerate(pattern):
            wrong[row] += size - count if differs else count
    chances = ways * q**wrong * (1.0 - q) ** (bits - wrong)
    _, cell = np.unique(wrong - wrong[0], axis=1, return_inverse=True)
    cell = cell.ravel()
    return np.stack([np.bincount(cell, row) for row in chances])


class Histograms:
    """All histograms of up to `largest` reports over some cells, and how to add a report.

    Histograms are kept by the counts of all cells but the last, ordered by their sum, so those of
    fewer reports are the first of those of more.
    """

    def __init__(self, cells: int, largest: int) -> None:
        self.cells = cells
        self.size = [math.comb(count + cells - 1, cells - 1) for count in range(largest + 1)]
        rows = compositions(largest, cells)
        rows = rows[np.argsort(largest - rows[:, -1], kind="stable"), :-1]
        radix = (largest + 1) ** np.arange(cells - 1)
        keys = rows @ radix
        order = np.argsort(keys)
        ranked = keys[order]
        self._before: list[npt.NDArray[np.intp]] = []
        for cell in range(cells - 1):
            place = order[np.searchsorted(ranked, keys - radix[cell]).clip(max=len(keys) - 1)]
            self._before.append(np.where(rows[:, cell] > 0, place, len(keys)).astype(np.intp))

    def add(self, pmf: FloatArray, count: int, report: FloatArray) -> FloatArray:
        """Pmf of count + 1 reports from that of `count` and of one more."""
        size = self.size[count + 1]
        padded = np.zeros(size + 1)
        padded[: pmf.size] = pmf
        grown = report[-1] * padded[:size]
        for before, chance in zip(self._before, report, strict=False):
            # a cell that was empty has no predecessor: clipping finds the zero at the end
            grown += chance * padded.take(before[:size], mode="clip")
        return np.asarray(grown)


@functools.lru_cache(maxsize=4)
def _histograms(cells: int, largest: int) -> Histograms:
    return Histograms(cells, largest)


def relative_error(bits: int, cells: int, count: int) -> float:
    """Bound the relative error of a probability after adding `count` records, lam's included."""
    return 2.0 * UNIT * (count * (2 * bits + cells + 8) + 64)


def gap(towards: FloatArray, away: FloatArray, lam: float, relative: float, eta: bool) -> Bracket:
    """Bracket ``sum (s - lam t)_+``, or with `eta` the sum of s where s > lam t."""
    margin = towards - lam * away
    doubt = relative * (towards + lam * away)
    if eta:
        low = float(towards[margin > doubt].sum()) * (1.0 - relative - 1e-13)
        high = float(towards[margin >= -doubt].sum()) * (1.0 + relative + 1e-13)
    else:
        low = float(np.maximum(margin - doubt, 0.0).sum()) * (1.0 - 1e-13)
        high = float(np.maximum(margin + doubt, 0.0).sum()) * (1.0 + 1e-13)
    # probabilities below 1e-300 may have been lost
    return Bracket(low, high + 1e-290).capped(1.0)


def _steps(cells: int, count: int) -> float:
    return float(cells * math.comb(count + cells, cells))


def _window(counts: Sequence[int], chances: FloatArray) -> tuple[int, list[int], list[int]]:
    """Return the cell left out (the busiest), and start and length of the window of the others."""
    weight = np.array(counts, dtype=float)
    mean = weight @ chances
    variance = weight @ (chances * (1.0 - chances))
    out = int(np.argmax(variance))
    half = [bernstein_reach(_EXPONENT, each) for each in variance.tolist()]
    cells = [cell for cell in range(len(mean)) if cell != out]
    start = [math.floor(mean[cell] - half[cell]) for cell in cells]
    length = [next_fast_len(math.ceil(2.0 * half[cell]) + 4, real=True) for cell in cells]
    return out, start, length


def work_of(counts: Sequence[int], chances: FloatArray) -> float:
    """Return the work that `mixed_crowd` will take, in elementary steps, or infinity."""
    steps = _steps(chances.shape[1], sum(counts) + 1)
    if steps <= _FEW_STEPS:
        return steps
    points = float(math.prod(_window(counts, chances)[2]))
    if points <= _MAX_POINTS:
        return 40.0 * points * len(chances[0])
    return steps if steps <= _MAX_STEPS else math.inf


def mixed_crowd(
    others: Mapping[Vector, int],
    x: Vector,
    x_prime: Vector,
    q: float,
    epsilon: float,
    eta: bool = False,
) -> Bracket:
    """Bracket delta(epsilon), or eta, of replacing x by x' among the others, by counts (theorem).

    Not homogeneous, and worse than every homogeneous crowd:

    >>> bracket = mixed_crowd({(0, 0): 5, (1, 1): 4}, (1, 1), (0, 0), 0.1, math.log(9))
    >>> round(bracket.low, 4), round(bracket.high, 4)
    (0.1408, 0.1408)
    """
    present = {vector: count for vector, count in others.items() if count > 0}
    counts = list(present.values())
    check_crowd(sum(counts) + 1, q, epsilon)
    if x == x_prime or q == 0.5:
        return Bracket(0.0, 0.0)
    chances = cell_chances([x, x_prime, *present], q)
    away, towards, rest = chances[0], chances[1], chances[2:]
    work = work_of(counts, rest if counts else chances)
    if math.isinf(work):
        raise ValueError(
            f"a crowd of {sum(counts) + 1} with {chances.shape[1]} kinds of reports is too large"
            " to be evaluated."
        )
    lam = math.exp(epsilon)
    if work != _steps(chances.shape[1], sum(counts) + 1):
        relative = relative_error(len(x), chances.shape[1], 1)
        return _transformed(counts, rest, towards, away, lam, eta, relative)
    table = _histograms(chances.shape[1], sum(counts) + 1)
    pmf, done = np.ones(1), 0
    for count, report in zip(counts, rest, strict=True):
        for _ in range(count):
            pmf = table.add(pmf, done, report)
            done += 1
    relative = relative_error(len(x), chances.shape[1], done + 1)
    return gap(table.add(pmf, done, towards), table.add(pmf, done, away), lam, relative, eta)


def _transformed(
    counts: Sequence[int],
    rest: FloatArray,
    towards: FloatArray,
    away: FloatArray,
    lam: float,
    eta: bool,
    relative: float,
) -> Bracket:
    out, start, length = _window(counts, rest)
    cells = [cell for cell in range(rest.shape[1]) if cell != out]
    turns = []
    for axis, size in enumerate(length):
        last = axis == len(length) - 1
        angle = 2.0 * math.pi * (np.fft.rfftfreq(size) if last else np.fft.fftfreq(size))
        shape = [1] * len(length)
        shape[axis] = angle.size
        turns.append(angle.reshape(shape))
    exponent = np.zeros([turn.size for turn in turns], dtype=complex)
    drift = np.zeros(exponent.shape)
    for begin, angle in zip(start, turns, strict=True):
        exponent += 1j * begin * angle
        drift += abs(begin * angle)
    for count, report in zip(counts, rest, strict=True):
        # log of the characteristic function of one report, exact near 1
        a = np.zeros(exponent.shape, dtype=complex)
        spoiled = np.zeros(exponent.shape)
        for cell, angle in zip(cells, turns, strict=True):
            a = a + report[cell] * (-2.0 * np.sin(angle / 2.0) ** 2 - 1j * np.sin(angle))
            spoiled = spoiled + report[cell] * np.abs(angle)
        log, doubt = log_one_plus(a, relative * spoiled)
        exponent += count * log
        drift += count * (doubt / (8.0 * UNIT) + np.abs(log))
    size = np.exp(exponent.real)
    points = math.prod(length)
    wobble = np.asarray(8.0 * UNIT * (8.0 + drift) + 32.0 * UNIT * math.log2(points))
    spoiled = power_error(size, wobble)
    # Parseval and Cauchy-Schwarz: the sum over all cells of what round-off and wrapping spoil
    lost = 2.0 * math.sqrt(float(np.sum(spoiled**2)))
    lost += 4.0 * len(cells) * math.exp(-_EXPONENT)
    each = 2.0 * float(np.sum(spoiled)) / points
    each += 4.0 * len(cells) * math.exp(-_EXPONENT)
    pmf = irfftn(np.exp(exponent), s=length)
    s, t = towards[out] * pmf, away[out] * pmf
    for axis, cell in enumerate(cells):
        moved = np.roll(pmf, 1, axis)
        s, t = s + towards[cell] * moved, t + away[cell] * moved
    margin = s - lam * t
    if not eta:
        value, slack = float(np.maximum(margin, 0.0).sum()), (1.0 + lam) * (lost + relative)
        return Bracket(max(value - slack, 0.0), value + slack).capped(1.0)
    doubt = (1.0 + lam) * each + relative * (np.abs(s) + lam * np.abs(t))
    sure, maybe = (
        float(np.clip(s[hit], 0.0, None).sum()) for hit in (margin > doubt, margin >= -doubt)
    )
    slack = lost + relative
    return Bracket(max(sure - slack, 0.0), maybe + slack + 1e-12).capped(1.0)
