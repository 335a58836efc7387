"""The wire form: exact bytes, nothing about who, nothing else accepted."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Flags, Plan, ShoalError, Survey
from shoal.analysis.report_files import parse_batch
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.randomize import flip, pack_reports
from shoal.errors import InputError, ReportError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import Synthetic
from tests.strategies import bounded, json_values, mutated_bytes, mutated_json

SURVEY = Survey("s", (Flags("f", tuple("abcdefghijk")),))
PLAN = Plan(SURVEY, FlipProbability(1, 2), Promise("local", "13"))
COHORTS = Plan(SURVEY, FlipProbability(1, 2), Promise("local", "13"), cohorts=5)
ROWS = np.array([[1, 0], [255, 7], [0, 4]], np.uint8)
SYNTHETIC = Synthetic(ROWS, 11)
REPORT = base64.b64encode(bytes(22)).decode()
VALID = {"plan": PLAN.id, "reports": [REPORT]}


def binary(count: int | None = None, body: bytes | None = None, plan_id: str = PLAN.id) -> bytes:
    """A batch by hand, from the table in the module's docstring."""
    records = b"".join(
        bytes([i] * 16) + struct.pack("<I", 9) + bytes(r) for i, r in enumerate(ROWS)
    )
    body = records if body is None else body
    number = struct.pack("<I", 3 if count is None else count)
    return b"SHOAL\x01" + bytes.fromhex(plan_id) + number + body


class TestForm:
    def test_binary_by_hand(self):
        batch = parse_batch(PLAN, binary())
        assert (batch.rows == ROWS).all()
        assert batch.windows.tolist() == [9, 9, 9]
        assert batch.ids[:, 0].tolist() == [0, 1, 2]
        assert batch.cohorts is None
        assert batch.to_bytes() == binary()

    def test_json_by_hand(self):
        body = binary()[42:]
        texts = [base64.b64encode(body[i : i + 22]).decode() for i in range(0, 66, 22)]
        content = json.dumps({"plan": PLAN.id, "reports": texts}).encode()
        batch = parse_batch(PLAN, content)
        assert batch.to_bytes() == binary()
        assert json.loads(batch.to_json()) == json.loads(content)

    def test_cohorts_by_hand(self):
        cohorts = np.array([0, 4, 2], np.uint16)
        batch = pack_reports(COHORTS, Synthetic(ROWS, 11, cohorts=cohorts), window=7)
        content = batch.to_bytes()
        assert len(content) == 42 + 3 * (16 + 4 + 2 + 2)
        assert content[42 + 24 + 20 : 42 + 24 + 22] == b"\x04\x00"
        again = parse_batch(COHORTS, content)
        assert again.cohorts is not None
        assert again.cohorts.tolist() == [0, 4, 2]

    def test_both_forms_say_the_same(self):
        batch = pack_reports(PLAN, SYNTHETIC, window=3)
        assert len(batch) == 3
        one, two = parse_batch(PLAN, batch.to_bytes()), parse_batch(PLAN, batch.to_json())
        for field in ("plan_id", "ids", "windows", "rows"):
            assert np.array_equal(getattr(one, field), getattr(two, field))

    def test_ids_are_fresh(self):
        """False alarm: 300^2 / 2^129, none."""
        batches = [pack_reports(PLAN, SYNTHETIC) for _ in range(100)]
        parsed = [parse_batch(PLAN, batch.to_bytes()) for batch in batches]
        assert len({row.tobytes() for batch in parsed for row in batch.ids}) == 300

    def test_a_report_of_a_plan_has_one_length(self):
        for rows in (np.zeros((1, 2), np.uint8), np.full((1, 2), 7, np.uint8)):
            assert len(pack_reports(PLAN, Synthetic(rows, 11)).to_bytes()) == 42 + 22


class TestPacking:
    def test_what_does_not_travel(self):
        simulated = flip(PLAN, Original(ROWS, 11), random_bits=SimulationBits(1))
        with pytest.raises(ReportError, match="simulated vectors are not for release"):
            pack_reports(PLAN, simulated)
        with pytest.raises(InputError, match="only synthetic vectors are sent"):
            pack_reports(PLAN, Original(ROWS, 11))  # type: ignore[arg-type]
        for width, bits in ((1, 8), (2, 10)):
            with pytest.raises(ReportError, match="the plan has 11 bits"):
                pack_reports(PLAN, Synthetic(np.zeros((1, width), np.uint8), bits))

    def test_json_with_more_brackets_is_not_parsed(self, monkeypatch: pytest.MonkeyPatch):
        content = pack_reports(PLAN, SYNTHETIC).to_json()
        monkeypatch.setattr(json, "loads", None)
        for old, new in ((b"[", b"[["), (b'"reports"', b'"x": {}, "reports"'), (b"[", b"")):
            with pytest.raises(ReportError, match="a JSON batch is"):
                parse_batch(PLAN, content.replace(old, new, 1))

    def test_the_window_is_the_one_that_is_open(self, monkeypatch: pytest.MonkeyPatch):
        """A report of window 0 would be refused, or counted where it does not belong."""
        daily = replace(PLAN, window=86_400)
        monkeypatch.setattr("time.time", lambda: 20_000 * 86_400 + 5.5)
        assert set(pack_reports(daily, SYNTHETIC).windows) == {20_000}
        assert set(pack_reports(daily, SYNTHETIC, window=7).windows) == {7}
        assert set(pack_reports(PLAN, SYNTHETIC).windows) == {0}

    @pytest.mark.parametrize("window", [-1, 2**32, 1.5, "1", True])
    def test_windows_are_whole_numbers_of_32_bits(self, window: Any):
        with pytest.raises(InputError, match="window"):
            pack_reports(PLAN, SYNTHETIC, window=window)

    def test_cohorts_exactly_when_the_plan_has_them(self):
        with pytest.raises(ReportError, match="cohorts"):
            pack_reports(COHORTS, SYNTHETIC)
        with pytest.raises(ReportError, match="cohorts"):
            pack_reports(PLAN, Synthetic(ROWS, 11, cohorts=np.zeros(3, np.uint16)))

        beyond = Synthetic(ROWS, 11, cohorts=np.array([0, 5, 0], np.uint16))
        with pytest.raises(ReportError, match="a cohort must be below 5, got 5"):
            pack_reports(COHORTS, beyond)
        wrong: Any
        for wrong in (np.zeros(2, np.uint16), np.array([0, -1, 0]), np.zeros(3)):
            with pytest.raises(InputError, match="3 cohorts, as uint16"):
                Synthetic(ROWS, 11, cohorts=wrong)

    def test_too_many(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("shoal.protocol.wire.MAX_REPORTS", 2)
        with pytest.raises(ReportError, match="at most 2 reports, got 3"):
            pack_reports(PLAN, SYNTHETIC)
        with pytest.raises(ReportError, match="1 to 2 reports, got 3"):
            parse_batch(PLAN, binary())


class TestParsing:
    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"S", b"SHOAL\x02" + binary()[6:], b" " + binary(), binary() + b"\0"),
            *(binary()[:41], binary()[:-1], binary(count=2), binary(count=4)),
            *(binary(count=0, body=b""), binary(count=2**32 - 1), binary(plan_id=COHORTS.id)),
            binary()[:-1] + b"\x08",  # a padding bit
            *(b"{", b"{" * 100_000, b'{"plan": NaN}', b"{\xff}"),
        ],
    )
    def test_bytes_that_are_no_batch(self, content: bytes):
        with pytest.raises(ReportError):
            parse_batch(PLAN, content)

    @pytest.mark.parametrize(
        "document",
        [
            *({}, {"plan": PLAN.id}, {"plan": COHORTS.id, "reports": [REPORT]}),
            *({"plan": [PLAN.id], "reports": [REPORT]}, VALID | {"user": "me"}),
            *({"plan": PLAN.id, "reports": one} for one in ([], "AAAA", [1], [None], ["A"])),
            *({"plan": PLAN.id, "reports": [one]} for one in ("AAAA", "é", REPORT + "\n")),
            {"plan": PLAN.id, "reports": [base64.b64encode(bytes(21)).decode()]},
        ],
    )
    def test_json_that_is_no_batch(self, document: object):
        with pytest.raises(ReportError):
            parse_batch(PLAN, json.dumps(document).encode())

    def test_json_with_a_key_twice(self):
        content = json.dumps(VALID).encode()
        assert len(parse_batch(PLAN, content).rows) == 1
        with pytest.raises(ReportError):
            parse_batch(PLAN, b'{"plan": "another", ' + content[1:])

    def test_a_cohort_too_large(self):
        body = bytes(16) + struct.pack("<IH", 0, 5) + bytes(2)
        with pytest.raises(ReportError, match="cohort must be below 5, got 5"):
            parse_batch(COHORTS, binary(count=1, body=body, plan_id=COHORTS.id))


class TestFuzz:
    @given(st.binary(max_size=120))
    @bounded(200)
    def test_any_bytes(self, content: bytes):
        _try(content)

    @given(mutated_bytes(binary()))
    @bounded(150)
    def test_broken_binary(self, content: bytes):
        _try(content)

    @given(mutated_bytes(parse_batch(PLAN, binary()).to_json()))
    @bounded(150)
    def test_broken_json(self, content: bytes):
        _try(content)

    @pytest.mark.slow
    @given(mutated_json(json.loads(parse_batch(PLAN, binary()).to_json())) | json_values)
    @bounded(200)
    def test_mutated_json(self, document: object):
        _try(json.dumps(document).encode())


def _try(content: bytes) -> None:
    """Either a batch that says what it was parsed from, or a ShoalError."""
    try:
        batch = parse_batch(PLAN, content)
    except ShoalError:
        return
    assert parse_batch(PLAN, batch.to_bytes()).to_bytes() == batch.to_bytes()
    if content[:1] != b"{":
        assert batch.to_bytes() == content
    assert not (batch.rows[:, 1] & 0xF8).any()
