"""The carry-save counter, of NumPy and of the C kernel, against unpacking every bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.analysis import count_table
from shoal.analysis.count_table import BitCounter, count_set_bits
from tests.kernels_help import compiled_kernels
from tests.strategies import bounded


def slowly(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64))


def random_rows(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, width), np.uint8)


@pytest.fixture(params=["numpy", "c"], autouse=True, scope="module")
def _either_way(request: pytest.FixtureRequest):
    kernels = None if request.param == "numpy" else compiled_kernels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(count_table, "load_kernels", lambda: kernels)
        yield


class TestBitCounter:
    @pytest.mark.parametrize("width", [*range(1, 21), 125, 1000, 8192])
    def test_ragged_chunks(self, width: int):
        generator = np.random.default_rng(width)
        # More than five blocks of 2 * 64 KiB, so that carries go up three levels.
        rows = random_rows(700_000 // width + 17, width, seed=width)
        cuts = np.sort(generator.integers(0, len(rows), 12))
        counter = BitCounter(width)
        for chunk in np.split(rows, cuts):
            counter.add(chunk)
        assert (counter.counts() == slowly(rows)).all()
        assert (counter.counts() == slowly(rows)).all()  # reading changes nothing
        counter.add(rows[:5])
        assert (counter.counts() == slowly(rows) + slowly(rows[:5])).all()

    @given(
        st.integers(1, 20),
        st.lists(st.sampled_from([0, 1, 2, 3, 1000, 6553, 65_536, 131_072]), max_size=5),
        st.integers(0, 2**32),
    )
    @bounded(40)
    def test_any_chunks(self, width: int, sizes: list[int], seed: int):
        counter = BitCounter(width)
        chunks = [
            random_rows(min(size, 800_000 // width), width, seed + i)
            for i, size in enumerate(sizes)
        ]
        for chunk in chunks:
            counter.add(chunk)
        wanted = sum((slowly(chunk) for chunk in chunks), np.zeros(width * 8, np.int64))
        assert (counter.counts() == wanted).all()

    def test_one_row_at_a_time(self):
        rows = random_rows(3000, 5, seed=1)
        counter = BitCounter(5)
        for start in range(len(rows)):
            counter.add(rows[start : start + 1])
        assert (counter.counts() == slowly(rows)).all()

    def test_rows_that_are_not_contiguous(self):
        wide = random_rows(50_000, 12, seed=2)
        counter = BitCounter(5)
        counter.add(wide[::2, 3:8])
        counter.add(np.asfortranarray(wide[:, :5]))
        assert (counter.counts() == slowly(wide[::2, 3:8]) + slowly(wide[:, :5])).all()

    def test_many_ones(self):
        """Ten million rows of all ones: every accumulator level is in use and none overflows."""
        counter = BitCounter(1)
        block = np.full((1 << 20, 1), 255, np.uint8)
        for _ in range(10):
            counter.add(block)
        assert counter.counts().tolist() == [10 << 20] * 8

    @pytest.mark.parametrize("width", [*range(1, 21), 125])
    def test_unanimous_rows_short_of_a_block(self, width: int):
        """All ones in as many rows as wait unadded: a byte holds 255 of them, not 256."""
        counter = BitCounter(width)
        rows = np.full((counter._rest.size // width - 1, width), 255, np.uint8)
        counter.add(rows)
        assert counter.counts().tolist() == [len(rows)] * (8 * width)

    @pytest.mark.parametrize("width", [1, 5, 8, 9, 125])
    def test_rows_by_their_set_bits(self, width: int):
        counter, total = BitCounter(width), np.zeros(8 * width + 1, np.int64)
        chunks = [random_rows(count, width, seed=count) for count in (1, 1000, 60_000 // width)]
        for chunk in chunks:
            counter.add(chunk, total)
        rows = np.concatenate(chunks)
        bits = np.unpackbits(rows, axis=1, bitorder="little")
        ones = bits.sum(axis=1, dtype=np.int64)
        assert (total == np.bincount(ones, minlength=8 * width + 1)).all()
        assert (counter.counts() == slowly(rows)).all()

    def test_more_set_bits_than_there_are_counts(self):
        """Padding that is set is noticed; nothing is written beyond the counts."""
        with pytest.raises(ValueError, match=r"set bits|broadcast"):
            BitCounter(1).add(np.full((9, 1), 255, np.uint8), np.zeros(8, np.int64))

    def test_the_input_is_not_changed_or_kept(self):
        rows = random_rows(200_000, 3, seed=3)
        kept = rows.copy()
        counter = BitCounter(3)
        counter.add(rows)
        assert (rows == kept).all()
        rows[:] = 0
        assert (counter.counts() == slowly(kept)).all()


@pytest.mark.parametrize("width", [1, 2, 5, 31, 32, 33, 125, 8192])
def test_count_set_bits(width: int):
    rows = random_rows(300, width, seed=width)
    rows[0], rows[1] = 0, 255
    wanted = np.unpackbits(rows, axis=1).sum(axis=1, dtype=np.int64)
    assert (count_set_bits(rows) == wanted).all()
    assert count_set_bits(rows)[1] == 8 * width
    assert count_set_bits(rows[:0]).tolist() == []
