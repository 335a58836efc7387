"""Simulation: repeats itself, knows the truth, and is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import Choice, Flags, Number, Survey, Tally, Text, YesNo, plan, simulate
from shoal.analysis.count_table import unpack
from shoal.analysis.text.discovery import discover
from shoal.cli import run as command
from shoal.device.arrays.randomize import Original
from shoal.device.arrays.simulation_bits import simulation_generator
from shoal.device.encode import encode
from shoal.errors import InputError
from shoal.lab.populations import populate, read_weights, texts_for, zipf
from shoal.planning.text_size import discovery_survey

SURVEY = Survey(
    "s",
    (
        Flags("f", ("a", "b", "c")),
        Choice("c", ("x", "y"), missing="option"),
        Flags("l", tuple("pqrst"), at_most=2),
        Number("n", ("1", "2")),
    ),
)
PLAN = plan(SURVEY, q="0.25")


class TestPeople:
    def test_answers_are_allowed(self):
        people = list(populate(SURVEY, 300_000, simulation_generator(1)))
        assert sum(map(len, people)) == 300_000
        for original in people:
            vectors = unpack(original.rows, SURVEY.bits)
            for question in SURVEY:
                set_bits = vectors[:, SURVEY.slice_of(question.name)].sum(axis=1)
                assert set_bits.min() >= question.min_set_bits
                assert set_bits.max() <= question.max_set_bits

    def test_everybody_is_in_the_cell_of_the_other_answers(self):
        survey = Survey("s", (*SURVEY.asked, YesNo("y")))
        crossed = plan(survey.cross("c", "y", "f=b").cross("n", "c"), q="0.01")
        run = simulate(crossed, users=5_000, seed=1)
        cells = dict(zip(crossed.survey.labels, run.truth.tolist(), strict=True))
        for option in ("x", "y", "(missing)"):
            for cross, place in (("c x y x f=b", 0), ("n x c", 1)):
                inside = [
                    count
                    for (name, label), count in cells.items()
                    if name == cross and label.split(" x ")[place] == option
                ]
                assert sum(inside) == cells["c", option] > 100
        yes = [cells["c x y x f=b", f"{c} x y x b"] for c in ("x", "y", "(missing)")]
        assert 0 < sum(yes) < min(cells["y", "yes"], cells["f", "b"])
        estimates = run.estimates["n x c"]
        assert abs(sum(one.count for one in estimates.values()) - 5_000) < 500

    def test_cells_are_not_drawn_from_their_law(self):
        crossed = plan(SURVEY.cross("c", "n"), q="0.25")
        with pytest.raises(InputError, match="crosses questions, whose cells"):
            simulate(crossed, users=100, seed=1, through="distribution")


class TestRun:
    def test_the_same_seed_the_same_numbers(self):
        one, two, other = (simulate(PLAN, users=5000, seed=seed) for seed in (3, 3, 4))
        assert one.to_json() == two.to_json()
        assert one.to_json() != other.to_json()

    def test_without_a_seed_each_run_is_fresh(self):
        """Equal only if thousands of bits agree. False alarm: below 1e-20."""
        one, two = (simulate(PLAN, users=2000) for _ in range(2))
        assert one.to_json() != two.to_json()

    def test_a_smaller_crowd_than_planned_may_be_simulated(self):
        crowd = plan(SURVEY, q="0.25", crowd_size=10**6)
        assert simulate(crowd, users=100, seed=1).estimates.tally.reports == 100

    def test_the_truth_of_given_answers(self):
        answers = [
            {"f": ["a"], "c": "x", "l": ["p"], "n": 0},
            {"f": ["a", "b"], "c": None, "l": [], "n": 2},
        ] * 500
        original = encode(SURVEY, answers)
        run = simulate(PLAN, answers=original, seed=1)
        assert run.true_count("f", "a") == 1000
        assert run.true_count("f", "b") == 500
        assert run.true_count("c", "(missing)") == 500
        assert run.estimates.tally.reports == 1000
        halves = [Original(part, SURVEY.bits) for part in np.split(original.rows, 2)]
        assert (simulate(PLAN, answers=iter(halves), seed=1).truth == run.truth).all()
        document = run.to_json()
        assert document["questions"]["f"]["a"]["truth"] == 1000

    def test_users_drawn_from_answers(self):
        (original,) = populate(SURVEY, 1, simulation_generator(1))
        run = simulate(PLAN, users=300_000, answers=original, seed=1)
        (bits,) = unpack(original.rows, SURVEY.bits)
        assert run.truth.tolist() == (300_000 * bits.astype(int)).tolist()
        assert run.estimates.tally.reports == 300_000

    def test_intervals_cover_the_truth(self):
        """Seeded: of 14 * 60 exact intervals at 99 % about 8 miss, never 30."""
        missed = 0
        for seed in range(60):
            run = simulate(PLAN, users=3000, seed=seed)
            for question, options in run.estimates.items():
                for label, one in options.items():
                    missed += run.true_count(question, label) not in one.interval(0.99)
        assert missed < 30

    def test_progress(self):
        done: list[int] = []
        simulate(PLAN, users=200_000, seed=1, progress=done.append)
        assert sum(done) == 200_000
        assert len(done) > 1


EMPTY = Original(np.zeros((0, 2), np.uint8), SURVEY.bits)
NOBODY: list[Any] = [EMPTY, [EMPTY], [], iter([])]


def test_refused():
    wrong: list[dict[str, Any]] = [
        {"users": None},
        *({"users": users} for users in (0, -1, 1.5, True)),
        *({"answers": answers} for answers in NOBODY),
        {"users": None, "answers": Original(np.zeros((5, 1), np.uint8), 3)},
        *({"seed": seed} for seed in (-1, 2**63, 0.5, "x")),
    ]
    for given in wrong:
        with pytest.raises(InputError):
            simulate(PLAN, **{"users": 10, "seed": 1, **given})


MIXED = Survey(
    "mixed",
    (
        Text("word", bits=24, hashes=2, cohorts=3),
        Flags("l", tuple("pqrst"), at_most=2),
        Choice("c", ("x", "y")),
        Flags("f", ("a", "b")),
    ),
)
WORDS = {"tea": 5, "coffee": 3, "": 2}


class TestTexts:
    def test_drawn_and_made_counts_have_the_same_mean_and_spread(self):
        """Counts by cohort and bit, 200 crowds of 500 each way, against each other.

        The largest of 3 x 33 differences of means, in standard errors, exceeds 6 with probability
        below 2e-7; variances of 200 agree within a factor of 1.8 (below 5e-5 each). Seeded.
        """
        agreed = plan(MIXED, q="0.2")
        found = {}
        for through in ("distribution", "reports"):
            counts = []
            for seed in range(200):
                one = simulate(agreed, users=500, texts=WORDS, through=through, seed=seed)
                tally = one.estimates.tally
                assert tally.cohorts is not None
                assert sum(one.texts["word"].values()) == 500
                counts.append([[c.reports, *c.by_bit.tolist()] for c in tally.cohorts])
            found[through] = np.array(counts, float)
        drawn, made = found["distribution"], found["reports"]
        error = np.sqrt((drawn.var(axis=0) + made.var(axis=0)) / 200)
        assert np.abs((drawn.mean(axis=0) - made.mean(axis=0)) / error).max() < 6
        ratio = drawn.var(axis=0) / made.var(axis=0)
        assert 1 / 1.8 < ratio.min() <= ratio.max() < 1.8

    def test_the_truth_of_the_law(self):
        """True counts by bit follow from the texts: with one cohort, exactly."""
        survey = Survey("s", (Text("word", bits=64, hashes=2, cohorts=1),))
        one = simulate(plan(survey, q="0.2"), users=10**9, texts=WORDS, seed=1)
        expected = np.zeros(64, int)
        for text in ("tea", "coffee"):
            positions = set(survey.text_hash("word").positions(text, 0))
            expected[list(positions)] += one.texts["word"][text]
        assert one.truth.tolist() == expected.tolist()
        assert one.texts["word"][""] == pytest.approx(2e8, rel=1e-3)

    @pytest.mark.parametrize("through", ["distribution", "reports"])
    def test_decoded_with_the_truth_beside_it(self, through: Any):
        survey = Survey("s", (Text("word", bits=64, hashes=1, cohorts=8), Flags("f", ("a",))))
        made = plan(survey, q="0.1")
        one = simulate(made, users=50_000, texts=WORDS, through=through, seed=2)
        document = one.to_json()
        assert document["questions"]["f"]["a"]["truth"] == one.true_count("f", "a")
        rows = document["texts"]["word"]["candidates"]
        assert [row["value"] for row in rows] == ["tea", "coffee"]
        for row in rows:
            assert row["truth"] == one.texts["word"][row["value"]]
            assert abs(row["count"] - row["truth"]) < 5 * row["sigma"]
        assert one.estimates.notes == (
            "question 'word' is text; find its answers with shoal decode.",
        )

    def test_without_texts_a_hundred_are_made_up(self):
        survey = Survey("s", (Text("word", bits=64, hashes=1, cohorts=8),))
        one = simulate(plan(survey, q="0.1"), users=10_000, seed=1)
        assert len(one.texts["word"]) == 100
        assert one.texts["word"]["text 1"] > 1000

    @pytest.mark.parametrize("through", ["distribution", "reports"])
    def test_pairs_of_letters_follow_from_the_word(self, through: Any):
        survey = discovery_survey("words", 4, alphabet="abcd", bits=64, cohorts=6)
        made = plan(survey, q="0.1")
        texts = {"abcd": 3.0, "dd": 2.0, "toolong": 1.0}
        one = simulate(made, users=30_000, texts=texts, through=through, seed=3)
        pairs = one.truth[survey.slices_of("word")[1]]
        assert pairs.sum() == 30_000
        assert pairs[-1] == one.texts["word"]["toolong"]
        found = discover(made, one.estimates.tally)
        assert [word.value for word in found.words] == ["abcd", "dd"]
        assert len(one.estimates) == 0
        assert "shoal discover" in one.estimates.notes[0]

    def test_texts_are_joined_in_normal_form(self):
        survey = Survey("s", (Text("word", bits=8, hashes=1, cohorts=1),))
        given = texts_for(survey, {"caf\u00e9": 1, " cafe\u0301": 2, "tea": 1})["word"]
        assert given.names == ("caf\u00e9", "tea")
        assert given.chances.tolist() == [0.75, 0.25]

    def test_refusals(self):
        survey = Survey("s", (Text("word", bits=64, hashes=1, cohorts=8),))
        made = plan(survey, q="0.1")
        answers = encode(made, [{"word": "tea"}])
        wrong: list[dict[str, Any]] = [
            {"texts": {}},
            {"texts": {"a": 0.0}},
            {"texts": {"a": -1}},
            {"texts": {"a": float("nan")}},
            {"through": "guess"},
            {"answers": answers, "texts": WORDS},
            {"answers": answers, "through": "distribution"},
        ]
        for given in wrong:
            with pytest.raises(InputError):
                simulate(made, users=10, seed=1, **given)
        with pytest.raises(InputError, match="has no text question"):
            simulate(PLAN, users=10, texts=WORDS)
        with pytest.raises(InputError, match="how many users"):
            simulate(made, seed=1)
        with pytest.raises(InputError, match="not known"):
            simulate(made, answers=answers, seed=1).decoded("word")
        with pytest.raises(InputError, match="Zipf"):
            zipf(["a"], -1)

    def test_weights_in_a_file(self, tmp_path: Path):
        path = tmp_path / "w.csv"
        path.write_text("weight,text\n2,tea\n0.5,\n1,tea\n", "utf-8")
        assert read_weights(path) == {"tea": 3.0, "": 0.5}
        for content in ("text\ntea\n", "text,weight\ntea,x\n", "text,weight\ntea,-1\n", ""):
            path.write_text(content, "utf-8")
            with pytest.raises(InputError, match=r"w\.csv"):
                read_weights(path)
        with pytest.raises(InputError, match="cannot read texts"):
            read_weights(tmp_path / "none.csv")


class TestCommand:
    def test_texts_from_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ):
        monkeypatch.chdir(tmp_path)
        survey = Survey("s", (Text("word", bits=128, hashes=1, cohorts=8),))
        made = plan(survey, q="0.1")
        made.write("plan.json")
        Path("words.txt").write_text("tea\ncoffee\nwater\n", "utf-8")
        Path("words.csv").write_text("text,weight\ntea,9\ncoffee,1\n", "utf-8")
        words = "simulate plan.json --users 1000000 --seed 1 --texts".split()
        assert command([*words, "words.txt", "--json", "-o", "tally.json"]) == 0
        document = json.loads(capsys.readouterr().out)
        rows = document["texts"]["word"]["candidates"]
        shares = [row["truth"] / 1e6 for row in rows]
        assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.005)
        assert Tally.read("tally.json", made).reports == 1_000_000
        assert document["questions"] == {}
        assert document["notes"] == ["question 'word' is text; find its answers with shoal decode."]
        assert command([*words, "words.csv"]) == 0
        assert "2 of 2 texts found, 0 of them false" in capsys.readouterr().out
        for wrong in (["words.csv", "--zipf", "1"], ["none.txt"], ["words.txt", "--zipf", "-1"]):
            assert command([*words, *wrong]) == 2
        assert command("simulate plan.json --users 10 --zipf 1".split()) == 2
