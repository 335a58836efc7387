"""Vectors outside the plan's domain do not leave: exactly at the boundary, through every door."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from shoal import Choice, Flags, Number, Plan, Survey, Text, simulate
from shoal.device.arrays.randomize import _ROWS, Original, check_domain, pack
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.encode import OriginalVector, encode
from shoal.device.memory import DeviceMemory
from shoal.device.randomize import flip
from shoal.errors import AnswerError
from shoal.lab.populations import populate
from shoal.planning.text_size import discovery_survey
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.questions import Question

LAYERS = Memory(FlipProbability(1, 2), FlipProbability(1, 2))


def options(count: int) -> tuple[str, ...]:
    return tuple(f"o{place}" for place in range(count))


KINDS: dict[str, Question] = {
    "choice": Choice("c", options(5)),
    "choice or missing": Choice("c", ("a",), missing="option"),
    "wide choice": Choice("c", options(300)),
    "number": Number("n", (1, 2, 3)),
    "at most three": Flags("k", options(7), at_most=3),
    "wide at most": Flags("k", options(200), at_most=130),
    "text": Text("t", bits=40, hashes=3, cohorts=4),
    "wide text": Text("t", bits=300, hashes=8, cohorts=4),
}


def plan_of(*questions: Question, memory: Memory | None = None) -> Plan:
    survey = Survey("s", questions)
    q = FlipProbability(3, 3) if memory is None else memory.q
    return Plan(survey, q, Promise("local", "100000"), memory=memory)


def original(agreed: Plan, vectors: np.ndarray) -> Original:
    cohorts = None if agreed.cohorts is None else np.zeros(len(vectors), np.uint16)
    return Original(pack(vectors), agreed.bits, cohorts)


def allowed(question: Question, vector: np.ndarray) -> bool:
    return bool(question.min_set_bits <= vector.sum() <= question.max_set_bits)


class TestBoundary:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("before", [0, 3, 8, 61])
    def test_exactly_at_it_and_beyond(self, kind: str, before: int):
        question = KINDS[kind]
        others = (Flags("f", options(before)),) if before else ()
        agreed = plan_of(*others, question, Flags("g", options(4)))
        fewest, most, bits = question.min_set_bits, question.max_set_bits, question.bits
        random = np.random.default_rng(1)
        for count in {0, fewest - 1, fewest, fewest + 1, most - 1, most, most + 1, bits}:
            if not 0 <= count <= bits:
                continue
            vectors = random.integers(0, 2, (9, agreed.bits)).astype(bool)
            block = vectors[:, before : before + bits]
            for row in block:
                row[:] = False
                row[random.permutation(bits)[:most]] = True
            assert len(flip(agreed, original(agreed, vectors))) == 9
            block[6] = False
            block[6, random.permutation(bits)[:count]] = True
            if fewest <= count <= most:
                flip(agreed, original(agreed, vectors))
            else:
                name = question.name
                with pytest.raises(AnswerError, match=rf"7 sets {count} bits of question '{name}'"):
                    flip(agreed, original(agreed, vectors))
                with pytest.raises(AnswerError, match=rf"1 sets {count} bits"):
                    flip(agreed, original(agreed, vectors[6:7]))

    def test_every_vector_of_a_survey(self):
        """Blocks that share words, against a look at each block by itself."""
        questions = (
            Choice("a", options(2)),
            Choice("b", options(3)),
            Flags("f", options(1)),
            Number("n", (1,)),
            Choice("c", options(3)),
            Flags("k", options(2), at_most=1),
        )
        survey = Survey("s", questions)
        for vector in product((False, True), repeat=survey.bits):
            bits = np.array([vector])
            right = all(allowed(q, bits[0, survey.slice_of(q.name)]) for q in survey)
            try:
                check_domain(pack(bits), survey)
            except AnswerError:
                assert not right, vector
            else:
                assert right, vector

    @pytest.mark.parametrize("rows", [1, 2, 3, _ROWS - 1, _ROWS, _ROWS + 1, 2 * _ROWS + 1])
    def test_every_row_of_many(self, rows: int):
        """The first and the last row of each stretch that is looked at in one go."""
        agreed = plan_of(Choice("c", options(3)))
        packed = np.full((rows, 1), 2, np.uint8)
        check_domain(packed, agreed.survey)
        for row in {0, rows - 1, rows // 2, min(_ROWS - 1, rows - 1), min(_ROWS, rows - 1)}:
            for wrong in (0, 3):
                packed[row] = wrong
                with pytest.raises(AnswerError, match=f"original {row + 1} sets"):
                    flip(agreed, Original(packed, 3))
            packed[row] = 4
        check_domain(packed, agreed.survey)

    def test_what_is_around_a_row_does_not_count(self):
        """A slice of a wider array, whose neighbours would be wrong."""
        wide = np.full((4, 9), 255, np.uint8)
        wide[:, 3] = 1
        survey = Survey("s", (Choice("c", options(8)),))
        check_domain(wide[:, 3:4], survey)
        check_domain(np.zeros((0, 1), np.uint8), survey)


class TestDoors:
    @pytest.mark.parametrize("layers", [None, LAYERS])
    def test_memory(self, tmp_path: Path, layers: Memory | None):
        agreed = plan_of(Choice("c", options(3)), memory=layers)
        device = DeviceMemory(tmp_path / "memory", bytes(range(32)))
        wrong = OriginalVector(5, 3)
        with pytest.raises(AnswerError, match="sets 2 bits"):
            device.report(agreed, wrong)
        if layers is not None:
            for door in (device.remember, device.digest):
                with pytest.raises(AnswerError, match="sets 2 bits"):
                    door(agreed, wrong)
        assert not (tmp_path / "memory").exists()
        assert device.report(agreed, OriginalVector(4, 3)).bits == 3


class TestWhatIsMadeFits:
    @pytest.mark.parametrize("kind", KINDS)
    def test_made_up_people(self, kind: str):
        survey = Survey("s", (Flags("f", ("x",)), KINDS[kind]))
        for chunk in populate(survey, 500, simulation_generator(1)):
            check_domain(chunk.rows, survey)

    def test_words_and_no_answer(self):
        """A word sets as many bits as there are hashes, no answer sets none."""
        survey = Survey("s", (Text("t", bits=7, hashes=3, cohorts=2),))
        rows = encode(survey, [{"t": f"word {i}"} for i in range(200)] + [{"t": ""}]).rows
        assert set(np.bitwise_count(rows).ravel().tolist()) == {0, 3}
        check_domain(rows, survey)

    def test_words_to_be_discovered(self):
        survey = discovery_survey("d", 4, bits=64)
        words = ["abcd", "a", "", "longer than that", "émile"]
        check_domain(encode(survey, [{"word": word} for word in words]).rows, survey)
        agreed = Plan(survey, FlipProbability(1, 2), Promise("local", "100"))
        simulate(agreed, users=500, seed=1, through="reports")

    @pytest.mark.parametrize("set_bits", [(0, 1), (64, 65), (0,), (0, 64, 65), ()])
    def test_a_word_and_its_pair_have_limits_of_their_own(self, set_bits):
        """As many bits as the question allows in all, but not in each of its parts."""
        survey = discovery_survey("d", 4, bits=64, alphabet="ab")
        check_domain(pack(np.isin(np.arange(survey.bits), (3, 70))[None]), survey)
        vector = np.zeros((1, survey.bits), bool)
        vector[0, list(set_bits)] = True
        with pytest.raises(AnswerError, match="question 'word'"):
            check_domain(pack(vector), survey)
