"""The shuffle is uniform, keeps every message, and uses bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from shoal.server.relay import shuffled_chunks
from shoal.server.relay.shuffled_chunks import permutation, shuffled


def numbered(count: int, length: int = 8) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return messages that tell their place."""
    table = np.zeros((count, length), np.uint8)
    table[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(-1, 4)
    return table


def places(parts: list[np.ndarray[tuple[int, int], np.dtype[np.uint8]]]) -> list[int]:
    whole = np.concatenate(parts)
    return [int(place) for place in whole[:, :4].copy().view("<u4")[:, 0]]


def small_buckets(monkeypatch: pytest.MonkeyPatch, bucket: int, buffered: int) -> None:
    monkeypatch.setattr(shuffled_chunks, "BUCKET_BYTES", bucket)
    monkeypatch.setattr(shuffled_chunks, "BUFFERED_BYTES", buffered)


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [1, 2, 4])
def test_every_order_is_equally_likely(
    buckets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All 24 orders of four messages, thrown into buckets; the bits are the same in every run."""
    small_buckets(monkeypatch, 32 // buckets, 16)
    runs, found = 6000, Counter[tuple[int, ...]]()
    for _ in range(runs):
        parts = [numbered(4)[:3], numbered(4)[3:]]
        found[tuple(places(list(shuffled(parts, 32, tmp_path, "1"))))] += 1
    assert set(found) == set(permutations(range(4)))
    statistic = sum((count - runs / 24) ** 2 for count in found.values()) / (runs / 24)
    assert chi2.sf(statistic, 23) > 1e-4


def test_equal_words_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([[5, 9, 5], [7, 2, 4]])

    class Words:
        def fill(self, out: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> None:
            out[:] = next(drawn)

    monkeypatch.setattr(shuffled_chunks, "SystemBits", Words)
    assert permutation(3).tolist() == [1, 2, 0]


def test_nothing_is_lost_or_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_buckets(monkeypatch, 1000, 3000)
    messages = numbered(2500)
    parts = [messages[start : start + 77] for start in range(0, 2500, 77)]
    out, seen = [], set()
    for part in shuffled(parts, messages.size, tmp_path, "5"):
        out.append(part)
        seen |= {path.name for path in tmp_path.iterdir()}
    assert sorted(places(out)) == list(range(2500))
    assert places(out) != list(range(2500))
    assert len(seen) > 10, "it was meant to need files"
    assert list(tmp_path.iterdir()) == []


def test_files_hold_nothing_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_buckets(monkeypatch, 4000, 4000)
    secret = b"a message that would be found"
    row = np.frombuffer(secret, np.uint8)
    parts = [np.tile(row, (100, 1)) for _ in range(5)]
    work = shuffled(parts, 500 * len(secret), tmp_path, "1")
    next(work)
    files = list(tmp_path.iterdir())
    assert files
    assert not any(secret[:8] in path.read_bytes() for path in files)
    assert len(list(work)) > 1
    assert list(tmp_path.iterdir()) == []


_MEMORY = """
import resource, sys, tempfile
from pathlib import Path
import numpy as np
from shoal.server.relay import shuffled_chunks
shuffled_chunks.BUCKET_BYTES, shuffled_chunks.BUFFERED_BYTES = 1 << 19, 1 << 21
count = int(sys.argv[1])
parts = (np.zeros((1000, 64), np.uint8) for _ in range(count))
with tempfile.TemporaryDirectory() as folder:
    mixed = shuffled_chunks.shuffled(parts, count * 64_000, Path(folder), "1")
    total = sum(map(len, mixed))
assert total == 1000 * count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_crowd() -> None:
    small, large = (
        int(subprocess.run([sys.executable, "-c", _MEMORY, str(count)], check=True,
                           capture_output=True).stdout)
        for count in (50, 1000)
    )  # fmt: skip
    assert large < small + (24 << 10), "64 MB of messages were kept"
