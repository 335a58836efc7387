"""Which collections differ up to symmetry, and one of each kind.

Permuting the bits of a block, in all records alike, changes neither delta nor eta. On flags neither
does flipping a bit in all records. (Theorems: both commute with the channel and only rename the
reports.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import IntArray
from shoal.theory.domains import Block, Domain, Triple, check_domain, classes
from shoal.theory.enumeration import Vector, originals
from shoal.theory.stop_loss.reduction import compositions


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
