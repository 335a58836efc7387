"""One array of counts, against a count of each report by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from shoal import Flags, Plan, Survey, Text
from shoal.analysis import count_table
from shoal.analysis.count_table import BitCounter, CountTable, count_set_bits
from shoal.analysis.tally import Tallying
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from tests.kernels_help import compiled_kernels

SHORT = Survey("short", (Flags("f", tuple("abcdefghij")),))
LONG = Survey("long", (Flags("f", tuple(f"option {n}" for n in range(43))),))
COHORTS = Survey("cohorts", (Text("t", bits=20, hashes=2, cohorts=5),))
JOINT = ((0, 9), (3, 1, 8), tuple(range(10)))


def plan_of(survey: Survey) -> Plan:
    return Plan(survey, FlipProbability(1, 2), Promise("local", "50"))


def rows_of(plan: Plan, count: int, seed: int) -> np.ndarray:
    bits = np.random.default_rng(seed).integers(0, 2, (count, plan.bits), dtype=np.uint8)
    return np.packbits(bits, axis=1, bitorder="little")


def one_by_one(plan: Plan, rows: np.ndarray, weights: list[int]) -> dict[str, Any]:
    """The counts of reports that count, each bit by itself."""
    bits = [
        [int(row[j // 8]) >> (j % 8) & 1 for j in range(plan.bits)]
        for row, weight in zip(rows, weights, strict=True)
        if weight
    ]
    joint = {}
    for group in JOINT:
        values = Counter(sum(b[bit] << i for i, bit in enumerate(group)) for b in bits)
        joint[group] = [values[value] for value in range(1 << len(group))]
    return {
        "reports": len(bits),
        "by_bit": [sum(b[j] for b in bits) for j in range(plan.bits)],
        "by_set_bits": [sum(sum(b) == n for b in bits) for n in range(plan.bits + 1)],
        "joint": joint,
    }


@pytest.mark.parametrize("survey", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("sizes", [[1, 1, 3], [300, 2, 257]], ids=["few", "many"])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_count(survey: Survey, sizes: list[int], weighted: bool, monkeypatch):
    """However rows are cut, summed directly or by the adder tree, and in between written out."""
    monkeypatch.setattr(count_table, "_FEW_BYTES", 600)
    monkeypatch.setattr(count_table, "_BYTES_AT_ONCE", 400)
    plan = plan_of(survey)
    table = CountTable(plan, JOINT, vectors=survey is SHORT, extra=2)
    table.numbers[:2] = 77, 78
    parts: list[np.ndarray] = []
    all_weights: list[int] = []
    for seed, size in enumerate(sizes):
        rows = rows_of(plan, size, seed)
        weights = np.random.default_rng(seed).integers(0, 2, size) if weighted else None
        table.add(rows, None, weights)
        parts.append(rows)
        all_weights += [1] * size if weights is None else weights.tolist()
        wanted = one_by_one(plan, np.concatenate(parts), all_weights)
        assert table.reports == wanted["reports"] == int(table.numbers[2])
        assert table.by_bit.tolist() == wanted["by_bit"]
        assert table.by_set_bits.tolist() == wanted["by_set_bits"]
        assert {group: found.tolist() for group, found in table.joint.items()} == wanted["joint"]
        if survey is SHORT:
            assert table.by_vector.tolist() == wanted["joint"][JOINT[2]]
            assert sum(table.vectors().values()) == wanted["reports"]
    assert table.numbers[:2].tolist() == [77, 78]


@pytest.mark.parametrize("weighted", [False, True])
def test_cohorts(weighted: bool, monkeypatch):
    monkeypatch.setattr(count_table, "_BYTES_AT_ONCE", 30)
    plan = plan_of(COHORTS)
    rows = rows_of(plan, 40, 1)
    cohorts = np.random.default_rng(2).integers(0, 4, 40).astype(np.uint16)  # none in the last
    weights = np.random.default_rng(3).integers(0, 2, 40)
    table = CountTable(plan, (), vectors=False)
    table.add(rows, cohorts, weights if weighted else None)
    bits = np.unpackbits(rows, axis=1, count=plan.bits, bitorder="little").astype(int)
    counts = weights if weighted else np.ones(40, int)
    for cohort in range(5):
        here = (cohorts == cohort) * counts
        assert table.cohorts[cohort].tolist() == [here.sum(), *(bits * here[:, None]).sum(axis=0)]
    assert table.by_bit.tolist() == (bits * counts[:, None]).sum(axis=0).tolist()


def test_numbers_can_be_stored_and_filled_again():
    """A tally goes on where the numbers of another left off, as an open crowd does."""
    plan = plan_of(SHORT)
    first, second, whole = Tallying(plan), Tallying(plan), Tallying(plan)
    rows = rows_of(plan, 50, 4)
    first.add(rows[:20])
    second.table.numbers[:] = first.table.numbers
    second.add(rows[20:])
    whole.add(rows)
    assert second.result() == whole.result()


def test_a_row_of_weight_zero_is_in_no_count():
    for vectors in (None, True):
        for survey in (SHORT, LONG):
            plan = plan_of(survey)
            with_others, alone = Tallying(plan, vectors=vectors), Tallying(plan, vectors=vectors)
            rows = rows_of(plan, 9, 5)
            with_others.add(rows, weights=np.array([0, 1, 0, 1, 1, 0, 0, 0, 1]), window=7)
            alone.add(rows[[1, 3, 4, 8]], window=7)
            assert with_others.result() == alone.result()


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
    def test_ragged_chunks(self):
        for width in (*range(1, 21), 125, 1000, 8192):
            generator = np.random.default_rng(width)
            # More than five blocks of 2 * 64 KiB, so that carries go up three levels.
            rows = random_rows(700_000 // width + 17, width, seed=width)
            cuts, truth = np.sort(generator.integers(0, len(rows), 12)), slowly(rows)
            counter = BitCounter(width)
            for chunk in np.split(rows, cuts):
                counter.add(chunk)
            assert (counter.counts() == truth).all(), width
            assert (counter.counts() == truth).all(), width  # reading changes nothing
            counter.add(rows[:5])
            assert (counter.counts() == truth + slowly(rows[:5])).all(), width

    def test_rows_that_are_not_contiguous(self):
        wide = random_rows(50_000, 12, seed=2)
        counter = BitCounter(5)
        counter.add(wide[::2, 3:8])
        counter.add(np.asfortranarray(wide[:, :5]))
        assert (counter.counts() == slowly(wide[::2, 3:8]) + slowly(wide[:, :5])).all()

    def test_unanimous_rows_short_of_a_block(self):
        """All ones in as many rows as wait unadded: a byte holds 255 of them, not 256."""
        for width in (*range(1, 21), 125):
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
