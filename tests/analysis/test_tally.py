"""Tallies: the same reports give the same bytes, and tallies add."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Flags, Plan, PrivacyRefusal, ShoalError, Survey, Tally, estimate, tally
from shoal.analysis.count_table import unpack
from shoal.analysis.tally import Tallying
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip
from shoal.errors import InputError, TallyError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic
from tests.strategies import bounded, json_values, mutated_bytes, mutated_json, rows

Q = FlipProbability(1, 2)
LOCAL = Promise("local", "99999")


def plan_of(bits: int, **fields: Any) -> Plan:
    return Plan(Survey("s", (Flags("f", tuple(map(str, range(bits)))),)), Q, LOCAL, **fields)


def vectors_of(count: int, bits: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).random((count, bits)) < 0.4


def one_by_one(plan: Plan, vectors: np.ndarray) -> dict[str, Any]:
    """The tally's JSON by counting rows in plain Python."""
    by_vector = Counter(pack(vector[None])[0].tobytes().hex() for vector in vectors)
    return {
        "plan": plan.id,
        "reports": len(vectors),
        "simulated": False,
        "by_bit": [int(column.sum()) for column in vectors.T],
        "by_set_bits": [sum(int(v.sum()) == k for v in vectors) for k in range(plan.bits + 1)],
        "by_vector": dict(sorted(by_vector.items())) if plan.bits <= 12 else None,
        "joint": [],
        "cohorts": None,
        "crowds": [{"name": None, "window": None, "reports": len(vectors), "released": False}],
        "people": None,
    }


class TestCounts:
    @pytest.mark.parametrize("bits", [1, 2, 7, 8, 9, 12, 13, 40, 300])
    def test_against_plain_python(self, bits: int):
        plan, vectors = plan_of(bits), vectors_of(333, bits)
        counted = tally(plan, Synthetic(pack(vectors), bits))
        assert counted.to_json() == one_by_one(plan, vectors)
        assert counted.bits == bits

    def test_vectors_on_request(self):
        plan, vectors = plan_of(20), vectors_of(50, 20)
        counted = tally(plan, Synthetic(pack(vectors), 20), vectors=True)
        assert counted.by_vector is not None
        assert sum(counted.by_vector.values()) == 50
        assert (
            tally(plan_of(2), Synthetic(pack(vectors_of(5, 2)), 2), vectors=False).by_vector is None
        )

    @pytest.mark.parametrize("chosen", [(0,), (3, 1), (0, 5, 9), (9, 8, 0, 2)])
    def test_joint_counts(self, chosen: tuple[int, ...]):
        plan, vectors = plan_of(10), vectors_of(500, 10)
        counted = tally(plan, Synthetic(pack(vectors), 10), joint=[chosen])
        wanted = np.zeros(1 << len(chosen), int)
        for vector in vectors:
            wanted[sum(int(vector[bit]) << place for place, bit in enumerate(chosen))] += 1
        assert counted.joint_counts(chosen).tolist() == wanted.tolist()
        # The same from the counts by vector, where there are any.
        assert (
            tally(plan, Synthetic(pack(vectors), 10)).joint_counts(chosen).tolist()
            == wanted.tolist()
        )

    def test_groups_that_the_plan_declares(self):
        plan = plan_of(20, joint=((("f", "3"), ("f", "17")),))
        counted = tally(plan, Synthetic(pack(vectors_of(100, 20)), 20))
        assert list(counted.joint) == [(3, 17)]
        assert counted.joint_counts([3, 17]).sum() == 100

    @pytest.mark.parametrize("chosen", [(17,), (11, 3), (17, 3, 11)])
    def test_a_part_of_a_group_is_summed_from_it(self, chosen: tuple[int, ...]):
        plan, vectors = plan_of(20), vectors_of(300, 20)
        rows = Synthetic(pack(vectors), 20)
        whole = tally(plan, rows, joint=[(3, 17, 5, 11), (3, 17, 5, 11, 0, 1)])
        assert whole.by_vector is None
        wanted = tally(plan, rows, joint=[chosen]).joint_counts(chosen)
        assert whole.joint_counts(chosen).tolist() == wanted.tolist()
        with pytest.raises(TallyError, match="does not count bits"):
            whole.joint_counts([3, 4])

    @pytest.mark.parametrize("chosen", [(), (1, 1), (10,), (-1,), tuple(range(17)), (0.5,)])
    def test_groups_that_are_none(self, chosen: Any):
        with pytest.raises(InputError):
            Tallying(plan_of(10), joint=[chosen])

    def test_nothing_counted(self):
        plan = plan_of(9)
        empty = tally(plan, [])
        assert empty.reports == 0
        assert Tally.from_json(json.loads(json.dumps(empty.to_json())), plan) == empty
        assert empty.joint_counts([0, 1]).tolist() == [0] * 4

    def test_large_counts(self):
        plan = plan_of(2)
        some = tally(plan, Synthetic(np.full((1000, 1), 3, np.uint8), 2), crowd="one")
        for _ in range(40):
            some = some + some
        assert some.reports == 1000 << 40
        assert some.by_bit.tolist() == [1000 << 40] * 2
        assert Tally.from_json(some.to_json(), plan) == some


class TestOrder:
    @pytest.mark.parametrize("bits", [5, 40])
    def test_order_and_chunks_leave_no_trace(self, bits: int, tmp_path: Path):
        plan, packed = plan_of(bits), pack(vectors_of(5000, bits))
        generator = np.random.default_rng(2)
        written = set()
        for shuffled, sizes in itertools.product((False, True), ([5000], [1, 4999], [17] * 295)):
            order = generator.permutation(5000) if shuffled else np.arange(5000)
            chunks = np.split(packed[order], np.cumsum(sizes)[:-1])
            counted = tally(plan, (Synthetic(chunk, bits) for chunk in chunks), joint=[(1, 0)])
            counted.write(tmp_path / "tally.json")
            written.add((tmp_path / "tally.json").read_bytes())
        assert len(written) == 1

    @given(st.integers(1, 20).flatmap(lambda bits: st.tuples(st.just(bits), *[rows(bits)] * 3)))
    @bounded(50)
    def test_tallies_add_and_commute(self, case: Any):
        bits, *parts = case
        plan = plan_of(bits)
        one, two, three = (tally(plan, Synthetic(part, bits), crowd="one") for part in parts)
        together = tally(plan, Synthetic(np.concatenate(parts), bits), crowd="one")
        texts = {
            json.dumps(total.to_json())
            for total in (one + two + three, three + (two + one), (one + three) + two, together)
        }
        assert len(texts) == 1

    def test_a_result_is_not_changed_by_what_comes_later(self):
        plan, packed = plan_of(5), pack(vectors_of(100, 5))
        tallying = Tallying(plan, joint=[(0, 1)], crowd="one")
        tallying.add(packed)
        before = tallying.result()
        text = json.dumps(before.to_json())
        tallying.add(packed)
        assert json.dumps(before.to_json()) == text
        assert tallying.result() == before + before


class TestMixing:
    def test_two_plans(self):
        one = tally(plan_of(5), Synthetic(pack(vectors_of(5, 5)), 5))
        two = tally(plan_of(5, crowd_size=5), Synthetic(pack(vectors_of(5, 5)), 5))
        with pytest.raises(TallyError, match="tallies of two plans do not add"):
            one + two

    def test_other_counts(self):
        plan, some = plan_of(5), Synthetic(pack(vectors_of(5, 5)), 5)
        with pytest.raises(TallyError):
            tally(plan, some) + tally(plan, some, vectors=False)
        with pytest.raises(TallyError):
            tally(plan, some) + tally(plan, some, joint=[(0, 1)])

    def test_what_is_no_vector_of_the_plan(self):
        """Of another length too where it fills as many bytes."""
        for plan_bits, bits in ((9, 8), (8, 5)):
            with pytest.raises(InputError):
                tally(plan_of(plan_bits), Synthetic(np.zeros((3, 1), np.uint8), bits))
        with pytest.raises(TypeError):
            tally(plan_of(5), []) + 1  # type: ignore[operator]

    def test_an_original_is_not_tallied(self):
        """Reports are Synthetic; the truth is never counted by mistake."""
        original = Original(np.zeros((3, 1), np.uint8), 5)
        for given_ in (original, [original]):
            with pytest.raises(InputError):
                tally(plan_of(5), given_)  # type: ignore[arg-type]

    def test_padding(self):
        tallying = Tallying(plan_of(5))
        with pytest.raises(TallyError, match="row 1 has padding bits set"):
            tallying.add(np.full((1, 1), 0x20, np.uint8))
        assert tallying.result().reports == 0

    def test_the_mark_of_simulation_stays(self):
        plan, original = plan_of(5), Original(np.zeros((3, 1), np.uint8), 5)
        simulated = flip(plan, original, random_bits=SimulationBits(1))
        counted = tally(plan, simulated)
        assert counted.simulated
        assert counted.to_json()["simulated"] is True
        assert Tally.from_json(counted.to_json(), plan).simulated
        assert (counted + counted).simulated
        assert not tally(plan, flip(plan, original)).simulated

    def test_simulated_reports_do_not_open_a_small_crowd(self):
        """One simulated row among five real ones must not lift the rule about the crowd."""
        plan = plan_of(5, crowd_size=1000)
        original = Original(np.zeros((5, 1), np.uint8), 5)
        real = flip(plan, original)
        simulated = flip(plan, original, random_bits=SimulationBits(1))
        with pytest.raises((PrivacyRefusal, InputError)):
            estimate(plan, tally(plan, [real, simulated]))
        with pytest.raises((PrivacyRefusal, InputError)):
            estimate(plan, tally(plan, real) + tally(plan, simulated))


PLAN = plan_of(9)
VALID = tally(PLAN, Synthetic(pack(vectors_of(40, 9)), 9), joint=[(0, 8)]).to_json()


def changed(*path: Any, to: Any) -> dict[str, Any]:
    document = copy.deepcopy(VALID)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return document


def crowd_of(reports: int, name: str | None = None, released: bool = False) -> dict[str, Any]:
    return {"name": name, "window": None, "reports": reports, "released": released}


VECTORS = VALID["by_vector"]
WRONG: dict[tuple[Any, ...], list[Any]] = {
    ("plan",): ["0" * 64],
    ("reports",): [41, -1, 40.0, True, 2**53],
    ("simulated",): [0],
    ("by_bit", 0): [VALID["by_bit"][0] + 1, -1, 41],
    ("by_bit",): [VALID["by_bit"][:-1]],
    ("by_set_bits", 0): [VALID["by_set_bits"][0] + 1],
    ("by_set_bits",): [VALID["by_set_bits"][::-1]],
    ("by_vector",): [{}, [], {"0000": 40}, {"00": 40}, {"zz00": 40}]
    + [VECTORS | {name: 0} for name in ("FF01", "01  ", "ff")],
    ("by_vector", "0002"): [1],
    ("joint",): [{}, VALID["joint"] * 2],
    ("joint", 0, "bits"): [[8, 0], [0, 0], [0, 9], [], [0.0, 8]],
    ("joint", 0, "counts"): [[40, 0, 0, 0], [10, 10, 20]],
    ("crowds",): [None, [], {}, [*VALID["crowds"], crowd_of(0)]]
    + [[crowd_of(20, one), crowd_of(20, "a")] for one in "ab"]
    + [[crowd_of(20, "a", released=True)] * 2],
    ("crowds", 0): [{"name": None, "reports": 40}],
    ("crowds", 0, "reports"): [39, 40.0],
    ("crowds", 0, "name"): ["", 3],
    ("crowds", 0, "window"): [-1, 2**32, True],
    ("crowds", 0, "released"): [1, True],
    ("people",): ["same", True],
}


class TestReading:
    def test_a_collectors_answer_about_a_crowd(self, tmp_path: Path):
        """It holds the tally and the SHA-256 of its bytes; another tally beside it is refused."""
        released = json.dumps(VALID, sort_keys=True, separators=(",", ":")).encode()
        crowd = {"number": 1, "sha256": hashlib.sha256(released).hexdigest(), "tally": VALID}
        (tmp_path / "crowd.json").write_text(json.dumps(crowd))
        assert Tally.read(tmp_path / "crowd.json", PLAN).to_json() == VALID
        other = one_by_one(PLAN, vectors_of(3, PLAN.bits, seed=2))
        (tmp_path / "crowd.json").write_text(json.dumps(crowd | {"tally": other}))
        with pytest.raises(TallyError, match="SHA-256"):
            Tally.read(tmp_path / "crowd.json", PLAN)

    @pytest.mark.parametrize(
        ("path", "value"), [(path, value) for path, values in WRONG.items() for value in values]
    )
    def test_counts_that_do_not_belong_together(self, path: Any, value: Any):
        with pytest.raises(TallyError):
            Tally.from_json(changed(*path, to=value), PLAN)

    def test_documents_that_are_none(self):
        wrong: list[Any] = [{k: v for k, v in VALID.items() if k != key} for key in VALID]
        for document in (*wrong, VALID | {"who": "me"}, [], None):
            with pytest.raises(TallyError):
                Tally.from_json(document, PLAN)

    def test_a_joint_table_that_contradicts_the_vectors(self):
        """Same marginals, another dependence: the counts by vector know better."""
        counts = VALID["joint"][0]["counts"]
        other = [counts[0] - 1, counts[1] + 1, counts[2] + 1, counts[3] - 1]
        with pytest.raises(TallyError):
            Tally.from_json(changed("joint", 0, "counts", to=other), PLAN)

    def test_set_bits_that_contradict_the_vectors(self):
        """Same total of set bits, another spread: the counts by vector know better."""
        spread = list(VALID["by_set_bits"])
        peak = int(np.argmax(spread))
        spread[peak] -= 2
        spread[peak - 1] += 1
        spread[peak + 1] += 1
        with pytest.raises(TallyError):
            Tally.from_json(changed("by_set_bits", to=spread), PLAN)

    def test_sums_that_wrap_around(self):
        """Counts that agree only modulo 2^64 do not agree."""
        bits, reports = 4096, 2**53 - 1
        plan = plan_of(bits)
        by_set_bits = [0] * (bits + 1)
        left = reports + 2**64
        for place in range(bits + 1):
            by_set_bits[place] = min(left, reports)
            left -= by_set_bits[place]
        assert left == 0
        dot = sum(place * count for place, count in enumerate(by_set_bits)) % 2**64
        by_bit = [0] * bits
        for place in range(bits):
            by_bit[place] = min(dot, reports)
            dot -= by_bit[place]
        document = VALID | {"plan": plan.id, "reports": reports, "crowds": [crowd_of(reports)]}
        document |= {"by_bit": by_bit, "by_set_bits": by_set_bits, "by_vector": None, "joint": []}
        with pytest.raises(TallyError, match="not of the same reports"):
            Tally.from_json(document, plan)

    @pytest.mark.slow
    @given(st.sampled_from([VALID]).flatmap(mutated_json) | json_values)
    @bounded(400)
    def test_mutated_json(self, document: Any):
        try:
            counted = Tally.from_json(document, PLAN)
        except ShoalError:
            return
        assert Tally.from_json(counted.to_json(), PLAN) == counted
        assert counted.by_set_bits is not None
        assert counted.by_set_bits.sum() == counted.reports
        if counted.by_vector is not None:
            packed = np.array([list(bytes.fromhex(key)) for key in counted.by_vector], np.uint8)
            weights = np.array(list(counted.by_vector.values()))
            assert (weights @ unpack(packed, 9) == counted.by_bit).all()

    @given(mutated_bytes(json.dumps(VALID).encode()))
    @bounded(150)
    def test_broken_files(self, tmp_path: Path, content: bytes):
        (tmp_path / "t.json").write_bytes(content)
        try:
            Tally.read(tmp_path / "t.json", PLAN)
        except ShoalError:
            return
