"""Which originals are allowed, and how two of them can lie relative to a crowd.

A domain is a tuple of blocks, one per question; an original is one vector for each block. A
crowd of equal vectors z around a record that is x or x' matters only through three counts of
bits (SDP 2.1 extended to any pair; theorem):

* ``a``: bits where z = x != x',
* ``b``: bits where z = x' != x,
* ``c``: bits where x = x' != z.

Counts add over blocks, so the feasible triples of a domain are the sums of its blocks' triples.

Theorem: delta of the crowd (a, b, c) does not fall when a, b or c grows, because leaving a bit out
of every report is post-processing. So for delta the maximal triples suffice. Nothing of the kind
holds for eta, which post-processing may raise.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from shoal.theory.brackets import IntArray


class Block(NamedTuple):
    """Vectors of `bits` bits with at least `lowest` and at most `highest` set bits."""

    bits: int
    lowest: int
    highest: int

    @property
    def is_flags(self) -> bool:
        """Whether every vector is allowed."""
        return self.lowest == 0 and self.highest == self.bits


Domain = tuple[Block, ...]


class Triple(NamedTuple):
    """Counts of bits: z = x != x', z = x' != x, and x = x' != z."""

    a: int
    b: int
    c: int


Triples = IntArray
"""Different triples as rows, in order."""


def flags(bits: int) -> Block:
    """Any of the 2^bits vectors."""
    return Block(bits, 0, bits)


def choice(options: int) -> Block:
    """Exactly one of the options."""
    return Block(options, 1, 1)


def at_most(highest: int, bits: int) -> Block:
    """At most `highest` set bits."""
    return Block(bits, 0, min(highest, bits))


def check_domain(domain: Iterable[Block]) -> Domain:
    """Return the domain as a tuple of blocks, or raise `ValueError`."""
    return _checked(tuple(domain))


@functools.lru_cache(maxsize=64)
def _checked(domain: tuple[Block, ...]) -> Domain:
    # A survey of a thousand questions is asked about a hundred times while it is planned.
    blocks = tuple(Block(*block) for block in domain)
    if not blocks:
        raise ValueError("a domain needs at least one block, got none.")
    for block in blocks:
        if not 0 <= block.lowest <= block.highest <= block.bits or block.bits < 1:
            raise ValueError(f"a block needs 0 <= lowest <= highest <= bits, got {block}.")
    return blocks


@functools.lru_cache(maxsize=1024)
def _differing(block: Block) -> int:
    if block.lowest < block.highest and 2 * block.lowest <= block.bits <= 2 * block.highest:
        return block.bits
    return max(min(t, 2 * block.bits - t) for t in (2 * block.lowest, 2 * block.highest))


def differing_bits(domain: Iterable[Block]) -> int:
    """Largest number of bits in which two originals differ (theorem; corrects BITVEC's 2m).

    Sizes s, s' allow any distance up to ``min(s + s', 2K - s - s')``; blocks add.

    >>> differing_bits((flags(5), choice(3), at_most(3, 4)))
    11
    """
    return sum(_differing(block) for block in check_domain(domain))


def _is_feasible(block: Block, a: int, b: int, c: int) -> bool:
    # a splits into bits set in (z, x) and bits set in x' alone, and so on; t bits are set in all.
    rest = block.bits - a - b - c
    if rest < 0:
        return False
    if block.lowest == 0:
        # Let a be the largest. If a <= highest, let x', x and z be disjoint of sizes a, b, c; else
        # share a - highest bits between z and x. So the pairwise distances are all that matters.
        return max(a + b, a + c, b + c) <= 2 * block.highest
    a1, b1, c1 = np.ogrid[: a + 1, : b + 1, : c + 1]
    sizes = np.broadcast_arrays(a1 + b1 + (c - c1), a1 + (b - b1) + c1, (a - a1) + b1 + c1)
    largest, smallest = np.maximum.reduce(sizes), np.minimum.reduce(sizes)
    least = np.maximum(0, block.lowest - smallest)
    most = np.minimum(rest, block.highest - largest)
    return bool((least <= most).any())


@functools.lru_cache(maxsize=128)
def _block_classes(block: Block) -> frozenset[Triple]:
    reach, bits = _differing(block), block.bits
    # a + b, a + c and b + c are the three pairwise distances
    return frozenset(
        Triple(a, b, c)
        for a in range(reach + 1)
        for b in range(min(reach - a, bits - a) + 1)
        for c in range(min(reach - max(a, b), bits - a - b) + 1)
        if _is_feasible(block, a, b, c)
    )


def classes(domain: Iterable[Block]) -> frozenset[Triple]:
    """All feasible triples of a domain (theorem: the sums of the blocks' feasible triples)."""
    every = few_classes(domain, math.inf)
    assert every is not None
    return every


def few_classes(domain: Iterable[Block], limit: float) -> frozenset[Triple] | None:
    """All feasible triples of a domain (theorem: sums of those of blocks), or None beyond `limit`.

    None also where a single block is so wide that counting its triples would take long.

    >>> len(few_classes((flags(10),), 300) or ()), few_classes((flags(11),), 300)
    (286, None)
    """
    total = _NOTHING
    # (0, 0, 0) is feasible in every block, so the number only grows
    for block in _gathered(domain):
        half = _differing(block) // 2
        if (half + 1) * (half + 2) // 2 > limit:
            return None
        total = _sums(total, _rows(_block_classes(block)))
        if len(total) > limit:
            return None
    return _named(total)


def _gathered(domain: Iterable[Block]) -> list[Block]:
    """Return the blocks with all flags in one: neither order nor cuts between flags matter."""
    blocks = check_domain(domain)
    free = sum(block.bits for block in blocks if block.is_flags)
    rest = [block for block in blocks if not block.is_flags]
    return [*rest, *([flags(free)] if free else [])]


_NOTHING: Triples = np.zeros((1, 3), np.int64)


def _rows(triples: Iterable[Triple]) -> Triples:
    return np.array(sorted(set(triples)), np.int64).reshape(-1, 3)


def _named(rows: Triples) -> frozenset[Triple]:
    return frozenset(itertools.starmap(Triple, rows.tolist()))


def _different(rows: Triples) -> Triples:
    sizes = rows.max(axis=0) + 1
    # one number for a row sorts much faster than three
    return np.stack(np.unravel_index(np.unique(np.ravel_multi_index(rows.T, sizes)), sizes), axis=1)


def _sums(left: Triples, right: Triples) -> Triples:
    return _different((left[:, None] + right).reshape(-1, 3))


def maximal(triples: Iterable[Triple]) -> frozenset[Triple]:
    """Keep the triples that no other one dominates in all three counts."""
    return _named(_maximal(_rows(triples)))


def _maximal(rows: Triples) -> Triples:
    if not len(rows):
        return rows
    (a, row), (b, column) = (np.unique(rows[:, i], return_inverse=True) for i in (0, 1))
    # the largest c at each (a, b), and then at this a and b or above; beyond the last ones none
    top = np.full((a.size + 1, b.size + 1), -1)
    np.maximum.at(top, (row, column), rows[:, 2])
    reached = np.maximum.accumulate(np.maximum.accumulate(top[::-1, ::-1], axis=0), axis=1)
    reached = reached[::-1, ::-1]
    beyond = np.maximum(reached[row + 1, column], reached[row, column + 1])
    kept: Triples = rows[(rows[:, 2] > beyond) & (rows[:, 2] == top[row, column])]
    return kept


_FULL_REACH, _FEW_COPIES = 12, 32
"""Up to this reach of a block, and this many equal blocks, all triples are tried; else a net."""


@functools.lru_cache(maxsize=128)
def _block_candidates(block: Block) -> frozenset[Triple]:
    reach = _differing(block)
    if reach <= _FULL_REACH:
        return maximal(_block_classes(block))
    half = reach // 2
    steps = {0, 1, 2, reach // 3, reach // 4, half, reach - half, reach - 2, reach - 1, reach}
    steps |= {block.highest, block.bits - 2 * block.highest, block.bits // 3}
    net = set()
    for a, b in itertools.product(sorted(s for s in steps if 0 <= s <= reach), repeat=2):
        if a + b > min(reach, block.bits):
            continue
        # c is as large as it can be; feasibility is not monotone in c, so walk down.
        top = min(reach - max(a, b), block.bits - a - b)
        if block.is_flags:
            net.add(Triple(a, b, top))
            continue
        for c in range(top, max(top - 4, -1), -1):
            if _is_feasible(block, a, b, c):
                net.add(Triple(a, b, c))
                break
    return maximal(net)


def _copied(triples: Triples, copies: int) -> Triples:
    """Add up one triple for each of many equal blocks: a net of sums of up to three of them."""
    steps = sorted({0, 1, 2, copies // 4, copies // 3, copies // 2})
    net = _NOTHING[:0]
    for i, j in itertools.product(steps, repeat=2):
        two = _sums((copies - i - j) * triples, i * triples)
        net = np.concatenate([net, _maximal(_sums(two, j * triples))])
    return _maximal(_different(net))


def maximal_classes(domain: Iterable[Block], limit: int = 4000) -> frozenset[Triple]:
    """Feasible triples worth attacking: all maximal ones while that is cheap, else a net of them.

    Every triple is feasible, so an attack over them is a valid lower bound; where blocks are wide
    or many it need not be the best one.

    >>> sorted(maximal_classes((choice(3),)))
    [Triple(a=0, b=2, c=0), Triple(a=1, b=1, c=1), Triple(a=2, b=0, c=0)]
    """
    return _maximal_classes(check_domain(domain), limit)


@functools.lru_cache(maxsize=16)
def _maximal_classes(domain: Domain, limit: int) -> frozenset[Triple]:
    total = _NOTHING
    blocks = collections.Counter(_gathered(domain))
    many = [block for block, copies in blocks.items() if copies > _FEW_COPIES]
    few = [block for block in _gathered(domain) if block not in many]
    for candidates in [
        *(_copied(_rows(_block_candidates(block)), blocks[block]) for block in many),
        *(_rows(_block_candidates(block)) for block in few),
    ]:
        total = _maximal(_sums(total, candidates))
        if len(total) > limit:
            # keep the triples that are furthest out; corners first
            a, b, c = total.T
            ranked = total[np.lexsort((a, -c, -np.maximum(a, b)))]
            total = _different(
                np.concatenate([ranked[: limit // 2], ranked[:: 1 + len(ranked) // 999]])
            )
    return frozenset(t for t in _named(total) if t.a + t.b > 0)
