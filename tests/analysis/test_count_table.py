"""One array of counts, against a count of each report by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from shoal import Flags, Plan, Survey, Text
from shoal.analysis import count_table
from shoal.analysis.count_table import CountTable
from shoal.analysis.tally import Tallying
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

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
