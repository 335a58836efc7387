"""Which bits each candidate sets: the design of the regression, kept as positions.

A row of the regression is one bit of one cohort. A candidate sets `hashes` rows in each cohort, and
only these are kept: 100,000 candidates in 64 cohorts take 26 MB, where a matrix would take 13 GB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from shoal.protocol.text_hash import TextHash, normal_text

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

_CHUNK, _HASH_CHUNK = 4096, 1024  # texts
_SCREEN = 16  # cohorts compared first


@dataclass(frozen=True, eq=False)
class Design:
    """The bits of different patterns; `members` says which candidates have each pattern.

    `positions` has shape (cohorts, hashes, patterns); those of one pattern differ in each cohort.
    Where the hashes of another system hit one bit twice, the second stands at `bits`: nowhere.
    """

    positions: NDArray[np.int32]
    bits: int
    members: tuple[tuple[int, ...], ...]

    @property
    def cohorts(self) -> int:
        return int(self.positions.shape[0])

    @property
    def hashes(self) -> int:
        return int(self.positions.shape[1])

    @property
    def patterns(self) -> int:
        return int(self.positions.shape[2])

    def adjoint(self, table: Floats) -> Floats:
        """Return, for each pattern, the sum of a (cohorts, bits) table over the bits it sets."""
        total = np.zeros(self.patterns)
        for places, row in zip(self.positions, self.reaching(table), strict=True):
            for place in places:
                total += row[place]
        return total

    def at(self, chosen: Places, table: Floats) -> Floats:
        """Return a table at the bits of chosen patterns: shape (chosen, cohorts, hashes)."""
        places = self.positions[:, :, chosen]
        cohort = np.arange(self.cohorts)[:, None, None]
        return np.moveaxis(self.reaching(table)[cohort, places], 2, 0)

    def columns(self, chosen: Places, shares: Floats) -> sparse.csc_array:
        """Return the regression's columns of chosen patterns, `shares` the cohorts' weights."""
        places = np.moveaxis(self.positions[:, :, chosen], 2, 0)
        cohort = np.arange(self.cohorts)[None, :, None]
        rows = cohort * self.bits + places
        values = np.broadcast_to(shares[None, :, None], places.shape)
        somewhere = places < self.bits
        starts = np.append(0, np.cumsum(somewhere.sum(axis=(1, 2))))
        shape = (self.cohorts * self.bits, len(chosen))
        return sparse.csc_array((values[somewhere], rows[somewhere], starts), shape=shape)

    @cached_property
    def _collide(self) -> bool:
        return bool((self.positions == self.bits).any())

    def reaching(self, table: Floats) -> Floats:
        """Return a (..., cohorts, bits) table in which also `bits`, which is nowhere, has a 0."""
        if not self._collide:
            return table
        return np.concatenate((table, np.zeros((*table.shape[:-1], 1))), axis=-1)

    def alike(self, chosen: Places, share: float) -> list[tuple[int, int]]:
        """Return pairs (chosen, other) that set at least `share` of their bits alike.

        A few cohorts are looked at first. A pair this much alike passes them with a probability of
        more than 0.99, and is then compared in full.
        """
        screen = min(self.cohorts, _SCREEN)
        tables = self.positions[:screen].reshape(-1, self.patterns)
        orders = [np.argsort(table, kind="stable") for table in tables]
        ranked = [table[order] for table, order in zip(tables, orders, strict=True)]
        pairs = []
        for pattern in chosen:
            mine = self.positions[:, :, pattern]
            hits = []
            for row, (order, sorted_places) in enumerate(zip(orders, ranked, strict=True)):
                own = mine[row // self.hashes]
                for place in own[own < self.bits]:
                    ends = np.searchsorted(sorted_places, (place, place + 1))
                    hits.append(order[ends[0] : ends[1]])
            others, times = np.unique(np.concatenate(hits), return_counts=True)
            near = others[times >= screen * self.hashes * share / 2]
            both = _shared(self.positions[:, :, near], mine, self.bits)
            same = near[both >= share * self.cohorts * self.hashes]
            pairs += [(int(pattern), int(other)) for other in same if other != pattern]
        return pairs


def make_design(
    hashing: TextHash,
    texts: Sequence[str],
    cohorts: int,
    progress: Callable[[int], None] | None = None,
) -> Design:
    """Hash the candidates; those with the same bits in every cohort become one pattern."""
    positions = np.empty((cohorts, hashing.hashes, len(texts)), np.int32)
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        table = np.sort(hash_table(hashing, chunk, cohorts).astype(np.int32), axis=2)
        positions[:, :, start : start + len(chunk)] = np.moveaxis(table, 0, 2)
        if progress is not None:
            progress(len(chunk))
    return merged(positions, hashing.bits)


def merged(positions: NDArray[np.int32], bits: int) -> Design:
    """Return the design of candidates' positions; equal ones become one pattern."""
    count = positions.shape[2]
    keys = np.ascontiguousarray(positions.reshape(-1, count).T).view(
        f"V{4 * positions[..., 0].size}"
    )
    _, first, pattern = np.unique(keys.reshape(-1), return_index=True, return_inverse=True)
    if len(first) == count:
        return Design(positions, bits, tuple((i,) for i in range(count)))
    order = np.argsort(first)  # patterns in the order of their first candidate
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    groups: list[list[int]] = [[] for _ in order]
    for candidate, group in enumerate(rank[pattern.reshape(-1)]):
        groups[group].append(candidate)
    distinct = np.ascontiguousarray(positions[:, :, first[order]])
    return Design(distinct, bits, tuple(map(tuple, groups)))


def _shared(positions: NDArray[np.int32], mine: NDArray[np.int32], bits: int) -> NDArray[np.int64]:
    """Count the bits that patterns share with one pattern."""
    shared = np.zeros(positions.shape[2], np.int64)
    for places, own in zip(positions, mine, strict=True):
        for place in own[own < bits]:
            shared += (places == place).any(axis=0)
    return shared


def hash_table(hashing: TextHash, texts: Iterable[str], cohorts: int) -> NDArray[np.uint16]:
    """Return the positions of texts in every cohort: shape (texts, cohorts, hashes).

    >>> hash_table(TextHash("00" * 32, "word", bits=256, hashes=2), ["shoal"], 1).tolist()
    [[[40, 248]]]
    """
    encoded = [normal_text(text).encode() for text in texts]
    out = np.empty((len(encoded), cohorts, hashing.hashes), np.uint16)
    for start in range(0, len(encoded), _HASH_CHUNK):
        chunk = encoded[start : start + _HASH_CHUNK]
        digests = b"".join(hashing.digest(text, c) for text in chunk for c in range(cohorts))
        words = np.frombuffer(digests, "<u4").reshape(len(chunk), cohorts, 8)
        out[start : start + _HASH_CHUNK] = _places(words, hashing.bits, hashing.hashes)
    return out


def _places(words: NDArray[np.uint32], bits: int, hashes: int) -> NDArray[np.uint64]:
    """Return the positions that digests choose, one after another among the free bits."""
    out = np.empty((*words.shape[:-1], hashes), np.uint64)
    for i in range(hashes):
        place = words[..., i].astype(np.uint64) * np.uint64(bits - i) >> np.uint64(32)
        for earlier in np.moveaxis(np.sort(out[..., :i], axis=-1), -1, 0):
            place = place + (place >= earlier)  # step over a bit that is taken
        out[..., i] = place
    return out
