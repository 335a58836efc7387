"""Text to bit positions: the same in every version and language, and as good as random.

The hash is deterministic, so a test of uniformity passes or fails for ever. Its alarm of 1e-6 is
the probability with which a random family of hash functions would have failed it when written.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from shoal import Survey, Text
from shoal.analysis.text.least_squares import hash_table
from shoal.protocol.text_hash import TextHash, normal_text
from tests.data import generate_text_hash_vectors as generator

VECTORS = json.loads(
    (Path(__file__).parents[1] / "data" / "text_hash_vectors.json").read_text("utf-8")
)
ALARM = 1e-6
ZEROS = "00" * 32
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class TestVectors:
    @pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
    def test_positions(self, vector):
        word = TextHash(vector["survey"], vector["question"], vector["bits"], vector["hashes"])
        got = word.positions(vector["text"], vector["cohort"])
        assert list(got) == vector["positions"]

    def test_the_file_is_what_the_script_makes(self):
        for vector in VECTORS:
            given_ = {name: vector[name] for name in vector.keys() - {"positions"}}
            assert generator.positions(**given_) == vector["positions"]

    def test_through_a_survey(self):
        survey = Survey("words", (Text("word", bits=256, hashes=2, cohorts=64),))
        expected = generator.positions(survey.digest, "word", 256, 2, 5, "tea")
        assert list(survey.text_hash("word").positions("tea", 5)) == expected

    @given(texts, texts.filter(lambda name: 0 < len(name) < 200), st.integers(0, 65_534))
    def test_any_text_by_the_independent_route(self, text, name, cohort):
        expected = generator.positions(ZEROS, name, 777, 8, cohort, text)
        assert list(TextHash(ZEROS, name, 777, 8).positions(text, cohort)) == expected

    @given(
        st.lists(texts, min_size=1, max_size=4),
        st.integers(1, 8),
        st.integers(0, 65_528),
        st.integers(1, 5),
    )
    def test_one_text_and_a_table_of_many(self, many, hashes, more, cohorts):
        word = TextHash(ZEROS, "word", hashes + more, hashes)
        table = hash_table(word, many, cohorts).tolist()
        wanted = [[list(word.positions(text, c)) for c in range(cohorts)] for text in many]
        assert table == wanted


class TestDifferentPositions:
    """Every text sets the same number of bits in every cohort; the promise rests on it."""

    @given(texts, st.integers(1, 8), st.integers(0, 20), st.integers(0, 65_534))
    def test_they_differ_and_are_inside(self, text, hashes, more, cohort):
        found = TextHash(ZEROS, "word", hashes + more, hashes).positions(text, cohort)
        assert len(set(found)) == hashes
        assert set(found) <= set(range(hashes + more))

    def test_every_pair_is_as_likely_as_another(self):
        """Chi-square of 45 pairs over 20,000 texts; beyond 120 with probability below 1e-8."""
        pairs = hash_table(TextHash(ZEROS, "word", 10, 2), [f"w{i}" for i in range(20_000)], 1)[
            :, 0
        ]
        ordered = np.sort(pairs, axis=1)
        counts = np.bincount(ordered[:, 0] * 10 + ordered[:, 1], minlength=100)
        seen = counts[counts > 0]
        assert len(seen) == 45
        assert ((seen - 20_000 / 45) ** 2 / (20_000 / 45)).sum() < 120


class TestNormalForm:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("caf\u00e9", "cafe\u0301"),
            ("\ud55c", "\u1112\u1161\u11ab"),
            ("\u212b", "\u00c5"),
            (" tea\n", "tea"),
            ("\u00a0tea", "tea"),
            ("", " \t"),
        ],
    )
    def test_same(self, one, other):
        assert normal_text(one) == normal_text(other)
        word = TextHash(ZEROS, "word", 65_536, 8)
        assert word.positions(one, 0) == word.positions(other, 0)

    @pytest.mark.parametrize(
        ("one", "other"), [("tea", "Tea"), ("fish", "\ufb01sh"), ("a b", "a  b"), ("x", "x\u200b")]
    )
    def test_different(self, one, other):
        word = TextHash(ZEROS, "word", 65_536, 8)
        assert word.positions(one, 0) != word.positions(other, 0)


class TestSeparation:
    def test_surveys_questions_and_cohorts(self):
        """All of these would agree with a probability of about 2^-128 each."""
        base = TextHash(ZEROS, "word", 65_536, 8).positions("tea", 0)
        others = [
            TextHash("01" + "00" * 31, "word", 65_536, 8).positions("tea", 0),
            TextHash(ZEROS, "wort", 65_536, 8).positions("tea", 0),
            TextHash(ZEROS, "word", 65_536, 8).positions("tea", 1),
            # What ends the name cannot begin the text.
            TextHash(ZEROS, "wor", 65_536, 8).positions("dtea", 0),
        ]
        assert len({base, *others}) == 5

    def test_more_hashes_keep_the_first(self):
        eight = TextHash(ZEROS, "word", 1000, 8).positions("tea", 0)
        assert TextHash(ZEROS, "word", 1000, 3).positions("tea", 0) == eight[:3]

    def test_two_surveys_that_differ_in_anything(self):
        one = Survey("words", (Text("word", bits=256, hashes=2, cohorts=64),))
        two = Survey("words", (Text("word", bits=256, hashes=2, cohorts=32),))
        same = hash_table(one.text_hash("word"), ["tea"], 32) == hash_table(
            two.text_hash("word"), ["tea"], 32
        )
        assert same.mean() < 0.1


class TestUniformity:
    TABLE = hash_table(TextHash(ZEROS, "word", 100, 2), (f"text {i}" for i in range(5000)), 8)

    @staticmethod
    def p_value(counts: np.ndarray) -> float:
        expected = counts.sum() / counts.size
        return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1))

    def test_each_cohort_and_hash(self):
        """16 tables of 5000 positions over 100 bits; Bonferroni."""
        for cohort in range(8):
            for place in range(2):
                counts = np.bincount(self.TABLE[:, cohort, place], minlength=100)
                assert self.p_value(counts) > ALARM / 16

    def test_pairs_of_cohorts_and_hashes(self):
        """Positions of one text in two cohorts, and its two positions in one, are independent."""
        pairs = [(self.TABLE[:, a, 0], self.TABLE[:, b, 0]) for a in range(8) for b in range(a)]
        pairs += [(self.TABLE[:, a, 0], self.TABLE[:, a, 1]) for a in range(8)]
        for one, other in pairs:
            joint = np.bincount(one.astype(int) // 10 * 10 + other // 10, minlength=100)
            assert self.p_value(joint) > ALARM / len(pairs)

    def test_bits_that_do_not_divide_two_to_the_32(self):
        table = hash_table(TextHash(ZEROS, "word", 7, 1), (f"text {i}" for i in range(7000)), 1)
        assert self.p_value(np.bincount(table.ravel(), minlength=7)) > ALARM
