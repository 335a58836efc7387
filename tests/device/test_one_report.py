"""One report on integers and many on arrays: from the same random bits, the same bytes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Flags, Plan, Survey, Text
from shoal.device.arrays.encode import draw_many_below
from shoal.device.arrays.randomize import Original, check_domain
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import OriginalVector, SyntheticVector, check_vector, encode
from shoal.device.randomize import flip, pack_reports
from shoal.errors import AnswerError, InputError, ReportError
from shoal.planning.text_size import discovery_survey
from shoal.protocol.flip_probability import MAX_DIGITS, FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.random_bits import SystemBits, draw_below
from shoal.protocol.wire import Synthetic
from tests.strategies import answers, bounded, flips, surveys

SEEDS = st.integers(0, 2**32)
WORDS = st.sampled_from(["", "tea", " coffee ", "caf\u00e9", "abcdefghijk", "Tea", "ab"])
DISCOVERY = discovery_survey("words", 4, alphabet="abcdetf", bits=32)


@st.composite
def asked_and_answered(draw: st.DrawFn) -> tuple[Survey, dict[str, Any]]:
    """A survey of questions of every kind, and one person's answer to it."""
    if draw(st.integers(0, 7)) == 0:
        return DISCOVERY, {"word": draw(WORDS)}
    survey = draw(surveys())
    answer = draw(answers(survey))
    if draw(st.booleans()):
        hashes, more = draw(st.integers(1, 8)), draw(st.integers(0, 70))
        text = Text("a text", hashes + more, hashes, draw(st.integers(1, 65_535)))
        survey = Survey(survey.name, (*survey.asked, text, *survey.crosses))
        answer = answer | {"a text": draw(WORDS | st.none())}
    return survey, answer


def plan_of(survey: Survey, q: FlipProbability) -> Plan:
    return Plan(survey, q, Promise("local", "1e9"))


class TestTheSameBytes:
    @pytest.mark.slow
    @given(asked_and_answered(), flips(MAX_DIGITS), SEEDS)
    @bounded(300)
    def test_from_answer_to_wire(self, given_, q: FlipProbability, seed: int):
        survey, answer = given_
        plan = plan_of(survey, q)
        one = encode(plan, answer, random_bits=SimulationBits(seed))
        many = encode(plan, [answer], random_bits=SimulationBits(seed))
        assert one.row == many.rows.tobytes()
        assert [one.cohort] == ([None] if many.cohorts is None else many.cohorts.tolist())
        sent = flip(plan, one, random_bits=SimulationBits(seed + 1))
        rows = flip(plan, many, random_bits=SimulationBits(seed + 1))
        assert sent.row == rows.rows.tobytes()
        assert (sent.simulated, sent.cohort) == (rows.simulated, one.cohort) == (True, one.cohort)
        self.check_packed(plan, sent, rows)

    @staticmethod
    def check_packed(plan: Plan, one: SyntheticVector, many: Synthetic) -> None:
        real = SyntheticVector(one.value, one.bits, one.cohort)
        reals = Synthetic(many.rows, many.bits, cohorts=many.cohorts)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SystemBits, "draw", lambda self, count: bytes(range(count)))
            alone = pack_reports(plan, real, window=2**32 - 2)
            batch = pack_reports(plan, reals, window=2**32 - 2)
        assert alone.to_bytes() == batch.to_bytes()
        assert alone.to_json() == batch.to_json()

    def test_every_number_of_digits(self):
        """On lengths around whole words, and on the longest one."""
        for bits in (1, 8, 63, 64, 65, 1000, 65_536):
            drawn = int.from_bytes(np.random.default_rng(bits).bytes(bits // 8 + 1), "little")
            one = OriginalVector(drawn % (1 << bits), bits)
            many = Original(np.frombuffer(one.row, np.uint8)[None], bits)
            for digits in range(1, MAX_DIGITS + 1):
                q = FlipProbability(1 if digits == 1 else 2 ** (digits - 2) + (digits > 2), digits)
                rows = flip(q, many, random_bits=SimulationBits(digits)).rows
                row = flip(q, one, random_bits=SimulationBits(digits)).row
                assert row == rows.tobytes(), (bits, digits)

    @pytest.mark.parametrize("bound", [1, 2, 3, 64, 1000, 65_535, 2**63 + 1])
    def test_numbers_below_a_bound(self, bound: int):
        one, many = SimulationBits(3), SimulationBits(3)
        for _ in range(50):
            assert draw_below(bound, one) == draw_many_below(bound, 1, many)[0]


class TestDomain:
    @pytest.mark.slow
    @given(surveys(), st.integers(min_value=0), st.integers(1, 4))
    @bounded(300)
    def test_both_looks_agree(self, survey: Survey, number: int, sparse: int):
        value = number % (1 << survey.bits)
        for _ in range(sparse):
            value &= number >> 3 * sparse | 1
        row = np.frombuffer(OriginalVector(value, survey.bits).row, np.uint8)[None]
        said: list[str] = []
        for look in (lambda: check_vector(value, survey), lambda: check_domain(row, survey)):
            try:
                look()
                said.append("")
            except AnswerError as error:
                said.append(re.sub("^the original|^original 1", "", str(error)))
        assert said[0] == said[1]

    def test_randomizing_looks_first(self):
        plan = plan_of(Survey("s", (Choice("c", ("a", "b", "c")),)), FlipProbability(1, 2))
        for value in (0, 3, 7):
            with pytest.raises(AnswerError, match="the original sets"):
                flip(plan, OriginalVector(value, 3))
        assert flip(plan, OriginalVector(4, 3)).bits == 3


class TestVectors:
    @pytest.mark.parametrize("kind", [OriginalVector, SyntheticVector])
    def test_a_row_and_its_range(self, kind: Any):
        assert kind(0x205, 10).row == b"\x05\x02"
        for value in (-1, 1024):
            with pytest.raises(InputError, match="below 2"):
                kind(value, 10)

    def test_an_original_and_a_synthetic_are_never_the_same(self):
        one: object = OriginalVector(1, 8)
        assert one != SyntheticVector(1, 8)

    def test_only_originals_are_randomized(self):
        plan = plan_of(Survey("s", (Flags("f", tuple("abc")),)), FlipProbability(1, 2))
        with pytest.raises(InputError, match="takes encoded answers, got SyntheticVector"):
            flip(plan, SyntheticVector(1, 3))  # type: ignore[call-overload]
        with pytest.raises(InputError, match="the plan has 3 bits, the original 4"):
            flip(plan, OriginalVector(1, 4))

    @pytest.mark.parametrize(
        ("vector", "told"),
        [
            (OriginalVector(1, 3), "only synthetic vectors are sent, got OriginalVec"),
            (SyntheticVector(1, 3, simulated=True), "simulated"),
            (SyntheticVector(1, 4), "the plan has 3 bits"),
            (SyntheticVector(1, 3, cohort=0), "cohort"),
        ],
    )
    def test_only_synthetics_of_the_plan_are_sent(self, vector: Any, told: str):
        plan = plan_of(Survey("s", (Flags("f", tuple("abc")),)), FlipProbability(1, 2))
        with pytest.raises(ReportError, match=told):
            pack_reports(plan, vector)

    @pytest.mark.parametrize("cohort", [None, -1, 5, 70_000])
    def test_a_cohort_that_the_plan_does_not_have(self, cohort: int | None):
        survey = Survey("s", (Text("word", 8, 1, 5),))
        with pytest.raises(ReportError, match="cohort"):
            pack_reports(
                plan_of(survey, FlipProbability(1, 2)), SyntheticVector(1, 8, cohort=cohort)
            )
