"""Two answers together: exact worlds, the size and power of the test, coverage, the likeliest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2_contingency, multinomial

from shoal import Choice, Flags, Number, Plan, Survey, Tally, Text, plan, tally
from shoal.analysis.association import Association, associate, joint_groups
from shoal.analysis.association_tables import JointTable, noise_covariance, side_of
from shoal.cli import run
from shoal.device.arrays.randomize import Original, pack
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import encode
from shoal.device.randomize import flip
from shoal.errors import InputError, TallyError
from shoal.protocol.wire import Synthetic

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "vpn")),
        Choice("channel", ("release", "beta", "nightly")),
        Choice("system", ("a", "b", "c")),
    ),
)
PLAN = plan(SURVEY, q="0.25")


def vectors_of(survey: Survey, cells: Mapping[Any, int]) -> np.ndarray:
    """Rows of 0 and 1 for people given by which bits they set."""
    rows = np.zeros((sum(cells.values()), survey.bits), np.uint8)
    place = 0
    for bits, count in cells.items():
        rows[place : place + count, list(bits)] = 1
        place += count
    return rows


def flipped_for(rows: np.ndarray, q: float, generator: np.random.Generator) -> np.ndarray:
    return np.asarray(rows ^ (generator.random(rows.shape) < q), np.uint8)


def counted(made: Plan, rows: np.ndarray) -> Tally:
    return tally(made, Synthetic(pack(rows), made.bits))


class TestExactWorlds:
    """Every outcome of a tiny crowd, weighed by its exact probability."""

    @pytest.mark.parametrize(
        ("first", "second"), [("one=a", "two"), ("two", "one=b"), ("one=a", "one=b")]
    )
    def test_counts_and_covariance(self, first: str, second: str):
        survey = Survey("tiny", (Flags("one", ("a", "b")), Choice("two", ("x", "y"))))
        made = plan(survey, q="0.125")
        people = np.array([[1, 0, 0, 1], [1, 1, 1, 0], [0, 1, 0, 1]], np.uint8)
        q, flips = 0.125, np.array(list(product((0, 1), repeat=12)), np.uint8).reshape(-1, 3, 4)
        changed = flips.sum(axis=(1, 2))
        chance = q**changed * (1 - q) ** (12 - changed)
        sides = side_of(survey, first), side_of(survey, second)
        # The table is linear in the reports, so one person at a time is enough to add up.
        total, tables = np.zeros((2, 2)), []
        for outcome in product((0, 1), repeat=4):
            one = Association(made, counted(made, np.array([outcome], np.uint8)), *sides, "crowd")
            tables.append(one.table)
        lookup = np.array(tables)
        values = (people ^ flips) @ np.array([8, 4, 2, 1])
        each = lookup[values].sum(axis=1)
        total = (chance[:, None, None] * each).sum(axis=0)
        truth = exact_table(survey, people, *sides)
        assert total == pytest.approx(truth, abs=1e-12)
        flat = (each - truth).reshape(-1, 4)
        covariance = (chance[:, None] * flat).T @ flat
        stated = noise_covariance(*sides, truth.sum(axis=1), truth.sum(axis=0), 3, q)
        assert covariance == pytest.approx(stated, abs=1e-12)


def exact_table(survey: Survey, people: np.ndarray, first, second) -> np.ndarray:
    def indicators(side) -> np.ndarray:
        bits = people[:, list(side.positions)].astype(float)
        return bits if side.option is None else np.hstack((bits, 1 - bits))

    return np.asarray(indicators(first).T @ indicators(second))


def random_counts(
    made: Plan, shares: np.ndarray, crowd: int, generator: np.random.Generator
) -> Tally:
    """A crowd with channel and system drawn from a table of shares."""
    cells = generator.multinomial(crowd, shares.reshape(-1)).reshape(shares.shape)
    people = {(2 + i, 5 + j): int(cells[i, j]) for i in range(3) for j in range(3)}
    return counted(made, flipped_for(vectors_of(made.survey, people), float(made.q), generator))


INDEPENDENT = np.outer([0.5, 0.3, 0.2], [0.2, 0.7, 0.1])
DEPENDENT = INDEPENDENT + 0.04 * np.array([[1, -1, 0], [0, 0, 0], [-1, 1, 0]])


class TestIndependence:
    @pytest.mark.parametrize("q", ["0.02", "0.25"])
    @pytest.mark.parametrize("asked", [("channel", "system"), ("channel=beta", "system=b")])
    @pytest.mark.slow
    def test_size(self, q: str, asked: tuple[str, str]):
        """400 crowds of 1000: rejections at 5 % are binomial, false alarm below 1e-4."""
        made, runs = plan(SURVEY, q=q), 400
        generator = np.random.default_rng(2)
        rejected = 0
        for _ in range(runs):
            counts = random_counts(made, INDEPENDENT, 1000, generator)
            rejected += associate(made, counts, *asked).independence.p_value < 0.05
        assert binom.ppf(5e-5, runs, 0.05) <= rejected <= binom.isf(5e-5, runs, 0.05)

    @pytest.mark.parametrize(
        "q", ["0.05", *(pytest.param(q, marks=pytest.mark.slow) for q in ("0.01", "0.3"))]
    )
    def test_level_of_two_options_in_a_small_crowd(self, q: str):
        """By the exact law of all reported tables; chi-square does not hold its level."""
        n, made = 12, plan(Survey("two", (Flags("f", ("a", "b")),)), q=q)
        flip = float(made.q)
        tables = np.array([
            (n - i - j - k, i, j, k)
            for i, j, k in product(range(n + 1), repeat=3)
            if i + j + k <= n
        ])  # fmt: skip
        sides = side_of(made.survey, "f=a"), side_of(made.survey, "f=b")
        p_values = []
        for none, a, b, both in tables:
            by_bit, by_set_bits = np.array([a + both, b + both]), np.array([none, a + b, both])
            joint: dict[tuple[int, ...], Any] = {(0, 1): np.array([none, a, b, both])}
            counts = Tally(made.id, n, by_bit, by_set_bits, joint=joint, simulated=True)
            test = Association(made, counts, *sides, "population").independence
            assert test.kind == "exact"
            p_values.append(test.p_value)
        for first, second in product((0, 0.05, 0.1, 0.2, 0.5), repeat=2):
            a, b = (flip + (1 - 2 * flip) * share for share in (first, second))
            chances = [(1 - a) * (1 - b), a * (1 - b), (1 - a) * b, a * b]
            law = multinomial.pmf(tables, n, chances)
            for level in (0.001, 0.05, 0.3):
                assert law[np.array(p_values) < level].sum() <= level + 1e-12

    def test_power(self):
        made = plan(SURVEY, q="0.1")
        generator = np.random.default_rng(3)
        runs = 100
        counts = [random_counts(made, DEPENDENT, 5000, generator) for _ in range(runs)]
        tests = [associate(made, c, "channel", "system").independence for c in counts]
        assert {(test.degrees, test.kind) for test in tests} == {(4, "approximate")}
        assert sum(test.p_value < 0.05 for test in tests) > 0.95 * runs

    def test_without_flips_it_is_pearsons(self):
        made = plan(SURVEY, q="0.000001")
        cells = {(2 + i, 5 + j): 100 + 37 * i + 11 * i * j for i in range(3) for j in range(3)}
        counts = counted(made, vectors_of(SURVEY, cells))
        test = associate(made, counts, "channel", "system").independence
        table = [[cells[2 + i, 5 + j] for j in range(3)] for i in range(3)]
        pearson = chi2_contingency(table, correction=False)
        assert test.statistic == pytest.approx(pearson.statistic, rel=1e-3)
        assert test.p_value == pytest.approx(pearson.pvalue, rel=1e-2)


class TestLikeliest:
    def test_is_the_exact_inverse_inside(self):
        """Two bits: four categories, an invertible channel; inside the simplex both agree."""
        generator = np.random.default_rng(4)
        rows = flipped_for(
            vectors_of(SURVEY, {(2, 5): 900, (0, 2, 5): 700, (1, 2, 5): 800, (0, 1, 2, 5): 600}),
            0.25,
            generator,
        )
        found = associate(PLAN, counted(PLAN, rows), "features=sync", "features=vpn")
        assert (found.table > 0).all()
        assert found.constrained == pytest.approx(found.table, abs=1e-3)
        assert found.constrained_by == "maximum likelihood"

    def test_is_a_maximum_with_negative_counts_undone(self):
        generator = np.random.default_rng(5)
        rows = flipped_for(
            vectors_of(SURVEY, {(2, 5): 300, (3, 6): 300, (4, 7): 300}), 0.25, generator
        )
        found = associate(PLAN, counted(PLAN, rows), "channel", "system")
        best = found.constrained
        assert (found.table < 0).any()
        assert (best >= 0).all()
        assert best.sum() == pytest.approx(900)
        # The optimality conditions of a concave likelihood on the simplex.
        counts = JointTable(PLAN, found.tally, found.first, found.second).counts
        assert counts is not None
        left, right = found.first.likelihood(0.25), found.second.likelihood(0.25)
        gradient = left.T @ (counts / (left @ (best / 900) @ right.T)) @ right / 900
        assert gradient.max() == pytest.approx(1, abs=1e-4)
        assert gradient[best > 1] == pytest.approx(1, abs=1e-4)


class TestCoverage:
    """Of 300 crowds, how many intervals hold the truth: binomial, false alarm below 1e-4."""

    RUNS = 300

    def check(self, inside: int) -> None:
        assert inside >= binom.ppf(1e-4, self.RUNS, 0.95)

    @pytest.mark.slow
    def test_of_the_crowd(self):
        generator = np.random.default_rng(7)
        people = vectors_of(SURVEY, {(0, 2, 5): 700, (0, 3, 5): 300, (1, 2, 6): 600, (4, 7): 900})
        inside = dict.fromkeys(["cell", "difference", "odds"], 0)
        for _ in range(self.RUNS):
            counts = counted(PLAN, flipped_for(people, 0.25, generator))
            beta = associate(PLAN, counts, "channel=beta", "system=a")
            inside["cell"] += 300 in beta["beta", "a"].interval()
            pair = associate(PLAN, counts, "features=sync", "channel=release")
            difference, odds = pair.difference(), pair.odds_ratio()
            inside["difference"] += difference.low <= 700 / 1000 - 600 / 1500 <= difference.high
            inside["odds"] += odds.low <= (700 * 900) / (300 * 600) <= odds.high
        for count in inside.values():
            self.check(count)

    def test_of_the_population(self):
        generator = np.random.default_rng(8)
        made = plan(SURVEY, q="0.05")
        a, b = DEPENDENT[0], DEPENDENT[1:].sum(axis=0)
        truth = a[1] / a.sum() - b[1] / b.sum()
        inside = dict.fromkeys(["cell", "difference"], 0)
        for _ in range(self.RUNS):
            counts = random_counts(made, DEPENDENT, 2000, generator)
            pair = associate(made, counts, "channel=release", "system=b", target="population")
            inside["cell"] += 2000 * DEPENDENT[0, 1] in pair["release", "b"].interval()
            difference = pair.difference()
            inside["difference"] += difference.low <= truth <= difference.high
        for count in inside.values():
            self.check(count)

    def test_a_cell_of_a_population_that_nobody_showed(self):
        """Twenty reports without a one do not say that the population has none."""
        made = plan(SURVEY, q="1e-9")
        counts = counted(made, vectors_of(SURVEY, {(2, 5): 20}))
        crowd, population = (
            associate(made, counts, "features=sync", "channel=beta", target=target)["sync", "beta"]
            for target in ("crowd", "population")
        )
        pair = associate(made, counts, "features=sync", "channel=beta", target="population")
        assert pair.covariance[0, 0] == pytest.approx(20 * (1 / 24) * (23 / 24), rel=1e-6)
        assert crowd.interval().high < 0.01
        assert population.interval().high == pytest.approx(20 * 3.8415 / 23.8415, rel=1e-3)


class TestWhatIsAsked:
    def test_two_options_and_numbers(self):
        survey = Survey("s", (Number("age", (18,)), Choice("kind", ("x", "y"))))
        made = plan(survey, q="0.1")
        generator = np.random.default_rng(13)
        rows = flipped_for(vectors_of(survey, {(0, 2): 3000, (1, 3): 5000}), 0.1, generator)
        found = associate(made, counted(made, rows), "age", "kind")
        assert found.table.shape == (2, 2)
        # Nobody has the other two cells: the odds ratio is large and has no upper bound.
        assert found.odds_ratio().low > 1
        assert math.isinf(found.odds_ratio().high)

    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ("features", "channel", "name one of its options"),
            ("channel", "channel", "share options"),
            ("channel=beta", "channel=release", "exclude each other"),
            ("features=sync", "features=sync", "share options"),
            ("features=none", "channel", "no option"),
            ("nothing", "channel", "has no question"),
        ],
    )
    def test_refused(self, first: str, second: str, message: str):
        counts = counted(PLAN, vectors_of(SURVEY, {(2, 5): 10}))
        with pytest.raises(InputError, match=message):
            associate(PLAN, counts, first, second)

    def test_text_is_refused(self):
        survey = Survey("s", (Text("word", bits=8, hashes=1, cohorts=2), Flags("f", ("a",))))
        made = plan(survey, q="0.25")
        counts = tally(made, flip(made, encode(made, [{"word": "x", "f": []}] * 9)))
        with pytest.raises(InputError, match="is text"):
            associate(made, counts, "word", "f=a")

    def test_a_measure_of_a_larger_table(self):
        counts = counted(PLAN, vectors_of(SURVEY, {(2, 5): 10}))
        found = associate(PLAN, counts, "channel", "system")
        for measure in (found.difference, found.odds_ratio):
            with pytest.raises(InputError, match="two values each"):
                measure()
        with pytest.raises(InputError, match="no cell"):
            found["beta", "z"]

    def test_a_group_that_may_be_empty(self):
        generator = np.random.default_rng(9)
        rows = flipped_for(vectors_of(SURVEY, {(2, 5): 300}), 0.25, generator)
        found = associate(PLAN, counted(PLAN, rows), "features=sync", "features=vpn")
        assert (found.difference().low, found.difference().high) == (-1, 1)
        assert math.isinf(found.odds_ratio().high)
        assert found.to_json()["odds_ratio"]["high"] is None


class TestWhatMustBeCounted:
    WIDE = Survey(
        "wide",
        (
            Choice("first", tuple(f"a{i}" for i in range(9))),
            Choice("second", tuple(f"b{i}" for i in range(9))),
        ),
    )

    def originals(self, crowd: int) -> Original:
        generator = np.random.default_rng(10)
        rows = np.zeros((crowd, 18), np.uint8)
        first = generator.integers(0, 9, crowd)
        rows[np.arange(crowd), first] = 1
        rows[np.arange(crowd), 9 + (first + generator.integers(0, 2, crowd)) % 9] = 1
        return Original(pack(rows), 18)

    def test_not_counted(self):
        made = plan(self.WIDE, q="0.1")
        flipped = flip(made, self.originals(100), random_bits=SimulationBits(1))
        with pytest.raises(TallyError, match=r"--joint 'first=a0;second=b0' and 80 more groups"):
            associate(made, tally(made, flipped), "first", "second")
        with pytest.raises(TallyError, match=r"--joint 'first=a0;second=b1',"):
            associate(made, tally(made, flipped), "first=a0", "second=b1")

    def test_pairs_of_bits_are_enough(self):
        groups = joint_groups(self.WIDE, "first", "second")
        assert len(groups) == 81
        made = replace(plan(self.WIDE, q="0.1"), joint=groups)
        flipped = flip(made, self.originals(20_000), random_bits=SimulationBits(1))
        counts = tally(made, flipped)
        found = associate(made, counts, "first", "second")
        assert found.constrained_by == "nearest table"
        assert found.constrained.sum() == pytest.approx(20_000)
        assert found.independence.degrees == 64
        assert found.independence.p_value < 1e-12
        assert found["a0", "b0"].count == pytest.approx(1111, abs=6 * found["a0", "b0"].sigma)
        whole = associate(made, tally(made, flipped, vectors=True), "first", "second")
        assert whole.table == pytest.approx(found.table)


class TestCommand:
    def test_table_and_json(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        PLAN.write(tmp_path / "plan.json")
        generator = np.random.default_rng(12)
        rows = flipped_for(vectors_of(SURVEY, {(0, 2, 5): 600, (1, 3, 6): 400}), 0.25, generator)
        counted(PLAN, rows).write(tmp_path / "tally.json")
        words = ["associate", str(tmp_path / "plan.json"), str(tmp_path / "tally.json")]
        assert run([*words, "features=sync", "channel=release", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert len(document["table"]) == 4
        assert document["independence"]["p_value"] < 1e-6
        assert document["difference"]["low"] > 0
        assert run([*words, "channel", "system", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["difference"] is None
        assert len(document["table"]) == 9
        for asked in (["channel", "system"], ["features=sync", "features=vpn"]):
            assert run([*words, *asked]) == 0
            assert "independence: chi-square" in capsys.readouterr().out
        assert run([*words, "features", "system"]) == 2
        assert "name one of its options" in capsys.readouterr().err
