"""Words found without a list: the pairs, the chaining, the two paths to a tally, the evidence."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import shoal
from shoal import Plan, Survey, Text, tally
from shoal.analysis.count_table import unpack
from shoal.analysis.text.discovery import (
    LetterPair,
    chain_pairs,
    chances_of_nobody,
    discover,
    frequent_pairs,
)
from shoal.cli import run
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import SimulationBits, simulation_generator
from shoal.device.encode import encode
from shoal.device.randomize import flip
from shoal.errors import InputError, SurveyError
from shoal.lab.populations import simulate_texts
from shoal.planning.certificate import certify
from shoal.planning.text_size import discovery_survey
from shoal.protocol.plan import Promise
from shoal.protocol.survey import QuestionPart
from shoal.protocol.text_hash import Pairs

SMALL = discovery_survey("words", 4, alphabet="abcd", bits=64, cohorts=6)
PAIRS = Pairs(4, "abcd")


def encode_words(survey: Survey | Plan, words: Sequence[object], **how: Any) -> Original:
    return encode(survey, [{"word": word} for word in words], **how)


def zipf(crowd: int, words: int, length: int, seed: int) -> dict[str, int]:
    """A crowd with words of random letters whose shares fall like 1/rank."""
    generator = simulation_generator(seed)
    letters = np.array(list(string.ascii_lowercase))
    made: dict[str, None] = {}
    while len(made) < words:
        made["".join(generator.choice(letters, length))] = None
    shares = 1 / np.arange(1, words + 1)
    counts = generator.multinomial(crowd, shares / shares.sum())
    return dict(zip(made, counts.tolist(), strict=True))


class TestPairs:
    def test_parts_of_the_question(self):
        survey = discovery_survey("words", 10)
        (question,) = survey
        assert isinstance(question, Text)
        assert question.pairs == Pairs(10, string.ascii_lowercase)
        assert question.pairs.positions == 9
        assert question.parts == (
            QuestionPart(1024, 0, 1),
            QuestionPart(26 * 26 + 26 + 1 + 1, 1, 1),
        )
        assert question.bits == survey.bits == len(question.labels) == 1024 + 704
        assert len(set(question.labels)) == question.bits
        assert (question.min_set_bits, question.max_set_bits) == (1, 2)
        assert survey.slices_of("word") == (slice(0, 1024), slice(1024, 1728))
        assert survey.cohorts == 63
        assert survey.differing_bits == 4

    def test_the_promise_is_that_of_two_questions(self):
        """A word and its pair are hidden as a text and a choice beside it are."""
        apart = Survey("words", (Text("word", 64, 1, 6), shoal.Choice("pair", PAIRS.labels)))
        certificates = [certify(s, q="0.1", crowd_size=1000) for s in (SMALL, apart)]
        one, other = (certificate.delta(epsilon=1) for certificate in certificates)
        assert one == other
        assert certificates[0].local_epsilon == certificates[1].local_epsilon

    @given(st.text("abcd", min_size=1, max_size=4))
    def test_pairs_chain_back_to_the_word(self, word: str):
        letters = [PAIRS.options[PAIRS.option(word, i)] for i in range(PAIRS.positions)]
        assert chain_pairs([[LetterPair(i, p, 0.5)] for i, p in enumerate(letters)], 10).words == (
            word,
        )

    def test_words_that_do_not_fit_are_other(self):
        for word in ("", "abcda", "abx", "a_", "ab cd"):
            assert PAIRS.labels[PAIRS.option(word, 0)] == "other", word

    def test_through_json_and_toml(self):
        assert Survey.from_json(SMALL.to_json()) == SMALL
        odd = discovery_survey("w", 3, alphabet='a"\\é\U0001f41f{}', cohorts=2)
        assert Survey.from_toml(odd.to_toml()) == odd
        assert 'pairs = { alphabet = "abcd", length = 4 }' in SMALL.to_toml()

    def test_refused(self):
        alphabets: Any = ("aa", "", "a_", "a;", "a b", "a\u0301")
        for wrong in ({"length": 1}, {"length": 65}, {"cohorts": 64},
                      *({"alphabet": letters} for letters in alphabets)):  # fmt: skip
            with pytest.raises(SurveyError):
                discovery_survey("words", **({"length": 10} | wrong))

    def test_refused_in_a_document(self):
        for wrong, message in (
            (None, "must be an object with"),
            ("abc", "must be an object with"),
            ({}, "has no field 'length'"),
            ({"length": 4, "letters": "ab"}, "'letters'"),
            ({"length": "4"}, "length of pairs"),
            ({"length": 4, "alphabet": ["a", "b"]}, "an alphabet is a text"),
            ({"length": 5, "alphabet": "ab"}, "must be a multiple of 4"),
        ):
            document = Text("word", 64, 1, 6).to_json() | {"pairs": wrong}
            with pytest.raises(SurveyError, match=message):
                Survey.from_json({"name": "s", "questions": [document]})

    def test_surveys_without_pairs_are_refused(self):
        survey = Survey("s", (Text("word", bits=8, hashes=1, cohorts=12), *_renamed("names")))
        plan = shoal.plan(survey, q="0.1")
        counted = tally(plan, flip(plan, encode(plan, [{"word": "a", "names": "b"}])))
        assert discover(plan, counted).question.name == "names"
        with pytest.raises(SurveyError, match="question 'word' has no text with pairs"):
            discover(plan, counted, question="word")
        with pytest.raises(SurveyError, match="has no question 'wrd'"):
            discover(plan, counted, question="wrd")
        plain = shoal.plan(Survey("s", survey.questions[:1]), q="0.1")
        with pytest.raises(SurveyError, match="survey 's' has no text with pairs"):
            discover(plain, tally(plain, flip(plain, encode(plain, [{"word": "a"}]))))

    def test_two_questions_with_pairs(self):
        """Each finds its own words; whoever asks for both must say which."""
        survey = Survey("s", (*_renamed("first"), *_renamed("second")))
        plan = shoal.plan(survey, q="0.05")
        noise = SimulationBits(1)
        answers = [{"first": "abcd", "second": "dd"}] * 3000
        report = flip(plan, encode(plan, answers, random_bits=noise), random_bits=noise)
        counted = tally(plan, report)
        for question, word in answers[0].items():
            found = discover(plan, counted, question=question)
            assert [one.value for one in found.words] == [word]
        with pytest.raises(InputError, match="'first', 'second'; say which"):
            discover(plan, counted)


def _renamed(name: str) -> tuple[Text]:
    return (Text(name, bits=64, hashes=1, cohorts=12, pairs=PAIRS),)


class TestEncoding:
    def test_one_pair_at_the_position_of_the_cohort(self):
        words = ["abcd", "dd", None, "abcdabcd"] * 50
        original = encode_words(SMALL, words, random_bits=SimulationBits(1))
        vectors = unpack(original.rows, SMALL.bits)
        assert original.cohorts is not None
        hashing, (bloom, pairs) = SMALL.text_hash("word"), SMALL.slices_of("word")
        assert (vectors[:, pairs].sum(axis=1) == 1).all()
        labels = PAIRS.labels
        for word, cohort, vector in zip(words, original.cohorts, vectors, strict=True):
            filled = (word or "").ljust(4, "_")
            start = int(cohort) % 3
            shown = labels[int(np.flatnonzero(vector[pairs])[0])]
            fits = word is not None and len(word) <= 4
            assert shown == (filled[start : start + 2] if fits else "other")
            bits = set(np.flatnonzero(vector[bloom]).tolist())
            assert bits == (set(hashing.positions(word, int(cohort))) if word else set())

    def test_a_table_says_the_same_as_a_list(self):
        words = ["abcd", "dd", None, " ", "abcdabcd", "b"] * 30
        table = pa.table({"word": words, "ignored": range(180)})
        whole = encode(SMALL, table, random_bits=SimulationBits(5))
        rows = encode_words(SMALL, words, random_bits=SimulationBits(5))
        assert (whole.rows == rows.rows).all()


class TestAssembling:
    @given(st.integers(0, 2**32 - 1), st.integers(1, 12))
    def test_the_best_chains_by_brute_force(self, seed: int, most: int):
        generator = np.random.default_rng(seed)
        options = [a + b for a in "abc" for b in "abc"]
        pairs = [
            [
                LetterPair(i, str(p), float(generator.random()))
                for p in generator.choice(options, 4, False)
            ]
            for i in range(4)
        ]
        chains = {}
        for walk in product(*pairs):
            if all(a.letters[1] == b.letters[0] for a, b in pairwise(walk)):
                word = walk[0].letters + "".join(pair.letters[1] for pair in walk[1:])
                chains[word] = min(pair.share for pair in walk)
        got = chain_pairs(pairs, most)
        ranked = sorted(chains.values(), reverse=True)
        assert [chains[word] for word in got.words] == ranked[:most]
        assert (got.cut is None) == (len(chains) <= most)
        if got.cut is not None:
            assert all(s <= got.cut for word, s in chains.items() if word not in got.words)

    def test_pairs_nobody_has_are_kept_as_seldom_as_said(self):
        """400 crowds that all answer "other": any pair kept is false, and miss is 0.2."""
        plan = shoal.plan(SMALL, q="0.25")
        (question,) = SMALL
        assert isinstance(question, Text)
        runs = 400
        false = 0
        for seed in range(runs):
            counts = simulate_texts(plan, {"zzzz": 3000}, seed=seed)
            kept = frequent_pairs(plan, counts, question, miss=0.2, limit=99)
            false += any(kept)
        # At most 0.2 in theory; beyond this count with a probability below 1e-6.
        assert false <= binom.isf(1e-6, runs, 0.2)
        assert false > 0.05 * runs  # and the threshold is not absurdly far out


class TestConfirming:
    @pytest.mark.slow
    def test_the_bound_holds_for_words_that_nobody_has(self):
        """2000 words that nobody has against one tally whose hidden words are heavy.

        The bound says: at most a share x has a chance of x or less. Binomial, false alarm 1e-6.
        """
        plan = shoal.plan(discovery_survey("words", 10, bits=64, cohorts=18), q="0.05")
        truth = zipf(1_000_000, words=300, length=10, seed=7)
        drawn = simulate_texts(plan, truth, seed=8)
        nobody = [f"nobody {number}" for number in range(2000)]
        chances = np.concatenate(
            [chances_of_nobody(plan, drawn, "word", [word], [0.0]) for word in nobody]
        )
        for share in (0.3, 0.1, 0.01, 0.001):
            assert (chances <= share).sum() <= binom.isf(1e-6, 2000, share)
        assert (chances <= 0.3).sum() > 50  # it is no empty bound
        ranked = list(truth)[:5]
        counts = [float(truth[word]) for word in ranked]
        assert chances_of_nobody(plan, drawn, "word", ranked, counts).max() < 1e-12

    def test_words_that_meet_in_a_false_one_do_not_make_it(self):
        """A crowd in which decoding alone finds a word that nobody has."""
        plan = shoal.plan(discovery_survey("words", 10, bits=64, cohorts=9), q="0.05")
        truth = zipf(1_000_000, words=2_000, length=10, seed=1)
        drawn = simulate_texts(plan, truth, seed=5001)
        found = discover(plan, drawn, candidates=1000, fdr=0.01)
        assert found.decoded is not None
        assert {word.value for word in found.decoded.discoveries} - set(truth)
        assert {word.value for word in found.words} <= set(truth)
        assert len(found.words) > 5
        assert any("may be absent" in note for note in found.notes)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return shoal.plan(discovery_survey("words", 10), crowd_size=10_000_000, epsilon=1, delta="1e-8")


class TestEvidence:
    """The top 10 of an unknown Zipf crowd of 10,000,000 with words of 10 letters."""

    def test_the_promise_is_proven(self, plan: Plan):
        assert plan.promise.kind == "proven"
        assert certify(plan).delta(epsilon=1).high <= 1e-8
        assert float(plan.q) == pytest.approx(0.04625, abs=1e-4)

    @pytest.mark.slow
    @pytest.mark.parametrize(("seed", "size"), [(1, 10_000), (2, 2_000)])
    def test_top_ten_and_nothing_false(self, plan: Plan, seed: int, size: int):
        truth = zipf(10_000_000, words=size, length=10, seed=seed)
        found = discover(plan, simulate_texts(plan, truth, seed=seed))
        ranked = sorted(truth, key=lambda word: -truth[word])
        words = [word.value for word in found.words]
        assert words[:10] == ranked[:10]
        assert set(words) <= set(truth)
        # 95 % intervals: 3 or more of 10 miss with a probability of 1.2 %, and the seeds are fixed.
        inside = [word.low <= truth[word.value] <= word.high for word in found.words[:10]]
        assert sum(inside) >= 8

    @pytest.mark.slow
    def test_nothing_is_found_in_noise(self, plan: Plan):
        """Every word is rare: chains of pairs lead to words that nobody has, and none is found."""
        generator = simulation_generator(5)
        letters = np.array(list(string.ascii_lowercase))
        drawn = generator.choice(letters, (5_000, 10))
        truth = {"".join(word): 2_000 for word in drawn}
        found = discover(plan, simulate_texts(plan, truth, seed=5), candidates=1000)
        assert {word.value for word in found.words} <= set(truth)


class TestViews:
    def test_counts_are_all_it_needs(self):
        """The same words from a tally that holds nothing but the counts of single bits."""
        survey = discovery_survey("words", 3, alphabet="abc", bits=64)
        whole = shoal.plan(survey, q="0.03", crowd_size=20_000, delta="1e-6")
        counts = replace(whole, view="counts", promise=Promise("proven", "99", delta="0.5"))
        tally = simulate_texts(counts, {"abc": 9000, "cab": 6000, "bb": 5000}, seed=1)
        assert tally.view == "counts"
        words = discover(counts, tally).words
        assert [word.value for word in words] == ["abc", "cab", "bb"]
        assert words[0].low <= 9000 <= words[0].high


class TestPromise:
    @pytest.mark.parametrize("q", ["0.1", "0.3"])
    @pytest.mark.parametrize("seed", range(4))
    def test_holds_exactly_in_a_crowd_of_two(self, q: str, seed: int):
        """Every word, every other person, every pair of reports with their cohorts.

        Two bits and two cohorts, so that words often collide in one cohort and not in the other.
        """
        survey = discovery_survey(f"tiny {seed}", 3, alphabet="a", bits=2, cohorts=2)
        laws = [report_law(survey, word, float(q)) for word in ("a", "aa", "aaa", "", "b", "c")]
        for lam in (1.2, 3.0, 10.0):
            promised = certify(survey, q=q, crowd_size=2).delta(epsilon=float(np.log(lam)))
            worst = 0.0
            for other in laws:
                crowds = [np.outer(law, other) + np.outer(other, law) for law in laws]
                for a, b in product(crowds, repeat=2):
                    # The order is not seen: both halves of the matrix are the same outcome.
                    worst = max(worst, float(np.maximum(a - lam * b, 0).sum() / 2))
            assert worst <= promised.high + 1e-12


def report_law(survey: Survey, word: str, q: float) -> np.ndarray:
    """The chance of every report: cohort by cohort, over all vectors."""
    (question,) = survey
    assert isinstance(question, Text)
    assert question.pairs is not None
    values = np.array(list(product((0, 1), repeat=survey.bits)))
    assert survey.cohorts is not None
    laws = []
    for cohort in range(survey.cohorts):
        truth = np.zeros(survey.bits, int)
        if word:
            truth[list(survey.text_hash("word").positions(word, cohort))] = 1
        pair = question.pairs.option(word, cohort % question.pairs.positions)
        truth[question.filter_bits + pair] = 1
        wrong = (values != truth).sum(axis=1)
        laws.append(q**wrong * (1 - q) ** (survey.bits - wrong) / survey.cohorts)
    return np.concatenate(laws)


class TestCommand:
    def test_nothing_frequent(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        plan = shoal.plan(SMALL, q="0.25")
        plan.write(tmp_path / "plan.json")
        simulate_texts(plan, {"zzzz": 5000}, seed=1).write(tmp_path / "tally.json")
        words = ["discover", str(tmp_path / "plan.json"), str(tmp_path / "tally.json")]
        assert run([*words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["words"] == []
        assert "no pair is frequent" in document["notes"][0]
        assert run(words) == 0

    def test_bad_usage(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        survey = str(tmp_path / "s.toml")
        for words in (
            ["discover"],
            ["discover", "plan.json"],
            ["discover", "--make", survey],
            ["discover", "--make", survey, "--length", "1"],
            ["discover", "--make", str(tmp_path / "s.json"), "--length", "5"],
            ["discover", "--make", survey, "--length", "5", "--alphabet", "a_"],
            ["discover", "plan.json", "--make", survey, "--length", "5"],
            ["discover", "--make", str(tmp_path / "none" / "s.toml"), "--length", "5"],
        ):
            assert run(words) == 2
            said = capsys.readouterr()
            assert said.out == ""
            assert len(said.err.splitlines()) == 1
        assert not list(tmp_path.iterdir())
