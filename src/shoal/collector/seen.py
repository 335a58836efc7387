"""Which reports have come already: keyed hashes of their ids, for the life of their window.

An id is random and comes with one report only, so its hash says nothing about anybody; the key is
drawn for the window and destroyed with it. Hashes are kept sorted, in chunks on the disk and in
runs in memory, so that the order within a commit is gone with it. Chunks are numbered as they come:
until sixty-four of them become one, whoever reads the disk sees which commit came first. Numbers by
chance would hide that, and make the pages of a commit vary, which must not tell new from repeated.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from shoal.randomness import SystemBits

__all__ = ["SeenReports"]

_BYTES = 16
_FAN_IN = 64
_HIGHEST_LEVEL = 2

Digests = NDArray[np.uint64]
"""A row of two words for each digest, sorted by the first."""


class SeenReports:
    """The reports of one window of one plan that have come."""

    def __init__(self, database: sqlite3.Connection, plan_id: str, window: int) -> None:
        self._database, self._where = database, (plan_id, window)
        self._key = self._window_key()
        chunks = database.execute(
            "SELECT level, digests FROM seen WHERE plan = ? AND window = ?", self._where
        ).fetchall()
        self._runs = _Runs()
        if chunks:
            self._runs.add(_joined([digests for _, digests in chunks]))
        self._chunks = Counter(level for level, _ in chunks)

    def _window_key(self) -> bytes:
        row = self._database.execute(
            "SELECT key FROM window_keys WHERE plan = ? AND window = ?", self._where
        ).fetchone()
        if row is not None:
            return bytes(row[0])
        key = SystemBits().draw(32)
        self._database.execute("INSERT INTO window_keys VALUES (?, ?, ?)", (*self._where, key))
        return key

    def remember(self, ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Remember report ids, inside a transaction, and tell which of them are new.

        As much is written for a repeated id as for a new one, so that neither the time of the
        answer nor the size of the data tells them apart: a digest that stands for nothing.
        """
        flat = ids.tobytes()
        key = self._key
        digests = np.frombuffer(
            b"".join(
                blake2b(flat[start : start + _BYTES], digest_size=_BYTES, key=key).digest()
                for start in range(0, len(flat), _BYTES)
            ),
            "<u8",
        ).reshape(-1, 2)
        fresh = ~self._runs.contain(digests)
        _, first = np.unique(digests, axis=0, return_index=True)
        once = np.zeros(len(digests), bool)
        once[first] = True
        fresh &= once
        fillers = np.frombuffer(SystemBits().draw(digests.nbytes), "<u8").reshape(-1, 2)
        kept = _sorted(np.where(fresh[:, None], digests, fillers))
        self._runs.add(kept)
        self._write(kept)
        return fresh

    def _write(self, digests: Digests) -> None:
        """Append a chunk; sixty-four of a level become one of the next."""
        self._append(0, digests)
        for level in range(_HIGHEST_LEVEL):
            if self._chunks[level] < _FAN_IN:
                return
            these = (*self._where, level)
            chunks = self._database.execute(
                "SELECT digests FROM seen WHERE plan = ? AND window = ? AND level = ?", these
            ).fetchall()
            self._database.execute(
                "DELETE FROM seen WHERE plan = ? AND window = ? AND level = ?", these
            )
            self._chunks[level] = 0
            self._append(level + 1, _joined([digests for (digests,) in chunks]))

    def _append(self, level: int, digests: Digests) -> None:
        self._database.execute(
            "INSERT INTO seen (plan, window, level, digests) VALUES (?, ?, ?, ?)",
            (*self._where, level, digests.astype("<u8").tobytes()),
        )
        self._chunks[level] += 1


class _Runs:
    """A set of digests as sorted runs, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._runs: list[Digests] = []

    def contain(self, digests: Digests) -> NDArray[np.bool_]:
        """Tell which digests are in the set."""
        found = np.zeros(len(digests), bool)
        for run in self._runs:
            first, second = run[:, 0], run[:, 1]
            left = np.searchsorted(first, digests[:, 0])
            place = np.minimum(left, len(run) - 1)
            same = first[place] == digests[:, 0]
            found |= same & (second[place] == digests[:, 1])
            # Two digests that share 64 bits do not come up, but being wrong is not an option.
            for row in np.flatnonzero(same & ~found):
                end = np.searchsorted(first, digests[row, 0], side="right")
                found[row] = (second[left[row] : end] == digests[row, 1]).any()
        return found

    def add(self, digests: Digests) -> None:
        """Add sorted digests, merging runs that are not much longer."""
        while self._runs and len(self._runs[-1]) < 2 * len(digests):
            digests = _sorted(np.concatenate((self._runs.pop(), digests)))
        self._runs.append(digests)


def _joined(chunks: list[bytes]) -> Digests:
    return _sorted(np.frombuffer(b"".join(chunks), "<u8").reshape(-1, 2))


def _sorted(digests: Digests) -> Digests:
    return np.ascontiguousarray(digests[np.argsort(digests[:, 0], kind="stable")])
