"""Cross tables: the best table of the cells, exact shares, the test's size and power, slices."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from scipy.stats import binom, chi2, chi2_contingency, ncx2

from shoal import Choice, Flags, Number, Plan, PrivacyRefusal, Survey, Tally, YesNo, estimate, tally
from shoal.analysis.association import associate
from shoal.analysis.contrasts import part_of
from shoal.analysis.cross_tables import cross_table
from shoal.analysis.estimates import Estimate
from shoal.analysis.independence import InteractionTest
from shoal.analysis.intervals import Target
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import encode
from shoal.device.randomize import flip
from shoal.errors import InputError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise, View

ASKED = Survey(
    "shop",
    (
        Choice("age", ("young", "middle", "old")),
        Choice("brand", ("a", "b", "c", "d")),
        YesNo("smokes"),
        Flags("uses", ("app", "card")),
    ),
)


def plan_of(survey: Survey, q: str = "0.01", view: View = "counts") -> Plan:
    promise = Promise("proven", "2000", delta="1e-6")
    return Plan(survey, FlipProbability.at_least(q), promise, crowd_size=10, view=view)


def truth_of(survey: Survey, people: np.ndarray) -> np.ndarray:
    """How many people set each bit of a survey of age, brand and more, given a table of both."""
    rest = survey.bits - 7 - people.size
    return np.concatenate((people.sum(axis=1), people.sum(axis=0), np.zeros(rest), people.ravel()))


def drawn(agreed: Plan, shares: np.ndarray, crowd: int, generator: np.random.Generator) -> Tally:
    """The tally of a crowd drawn from a population, by the law of its counts."""
    people = generator.multinomial(crowd, shares.ravel()).reshape(shares.shape)
    truth = truth_of(agreed.survey, people).astype(int)
    q = float(agreed.q)
    ones = generator.binomial(truth, 1 - q) + generator.binomial(crowd - truth, q)
    return Tally(agreed.id, crowd, ones, simulated=True)


class TestBestTable:
    @pytest.mark.parametrize(
        ("crossed", "asked"),
        [
            (("age", "brand"), ("age", "brand")),
            (("age", "brand"), ("brand", "age=old")),
            (("smokes", "age", "uses=card"), ("uses=card", "age")),
            (("smokes", "age", "uses=card"), ("age=middle", "smokes")),
            (("uses=app", "uses=card"), ("uses=app", "uses=card")),
        ],
    )
    def test_is_unbiased_and_its_covariance_is_known(
        self, crossed: tuple[str, ...], asked: tuple[str, str]
    ):
        """As the linear map of the counts that it is, probed one count at a time."""
        agreed, n = plan_of(ASKED.cross(*crossed), "0.125"), 64
        q, bits = 0.125, agreed.bits

        def table(ones: np.ndarray) -> np.ndarray:
            return associate(agreed, Tally(agreed.id, n, ones), *asked).table.ravel()

        start = table(np.zeros(bits, int))
        columns = [table(np.eye(bits, dtype=int)[bit]) - start for bit in range(bits)]
        slopes = np.array(columns).T
        generator = np.random.default_rng(1)
        people = [
            {
                "age": generator.choice(("young", "middle", "old")),
                "brand": generator.choice(tuple("abcd")),
                "smokes": generator.choice(("yes", "no")),
                "uses": [use for use in ("app", "card") if generator.random() < 0.4],
            }
            for _ in range(n)
        ]
        rows = encode(agreed, people).rows
        truth = np.unpackbits(rows, axis=1, count=bits, bitorder="little").sum(axis=0)
        association = associate(agreed, Tally(agreed.id, n, truth), *asked)
        expected = start + slopes @ (q * n + (1 - 2 * q) * truth)
        exact = [
            sum(_has(one, asked[0], a) and _has(one, asked[1], b) for one in people)
            for a in association.first.categories
            for b in association.second.categories
        ]
        assert expected == pytest.approx(exact, abs=1e-9)
        # Every count has the variance n q (1 - q), whatever the people answered.
        spread = slopes @ slopes.T * n * q * (1 - q)
        assert spread == pytest.approx(association.covariance, abs=1e-9)


def _has(person: dict[str, Any], name: str, category: str) -> bool:
    given = person[name.partition("=")[0]]
    answers = given if isinstance(given, list) else [given]
    wanted = category.removeprefix("not ")
    return (wanted in answers) != category.startswith("not ")


class TestIndependence:
    UNEVEN = np.outer([0.7, 0.28, 0.02], [0.6, 0.3, 0.09, 0.01])

    @pytest.mark.parametrize(
        ("q", "crowd"), [("0.01", 2000), pytest.param("0.0005", 20_000, marks=pytest.mark.slow)]
    )
    def test_size(self, q: str, crowd: int):
        """Some cells expect less than one person; rejections at 5 % are binomial.

        The chance that a test of exact size fails here is 1e-4.
        """
        agreed, runs = plan_of(ASKED.cross("age", "brand"), q), 400
        generator = np.random.default_rng(3)
        p_values = []
        for _ in range(runs):
            counts = drawn(agreed, self.UNEVEN, crowd, generator)
            test = associate(agreed, counts, "age", "brand").independence
            assert (test.kind, test.degrees) == ("approximate", 6)
            p_values.append(test.p_value)
        rejected = sum(p < 0.05 for p in p_values)
        assert binom.ppf(5e-5, runs, 0.05) <= rejected <= binom.isf(5e-5, runs, 0.05)

    @pytest.mark.slow
    def test_power_is_as_stated(self):
        """An excess that is said to be seen 4 times of 5, in 250 crowds; false alarm 1e-4."""
        agreed, crowd, runs = plan_of(ASKED.cross("age", "brand")), 4000, 250
        ages, brands = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1])
        null = np.outer(ages, brands)
        generator = np.random.default_rng(4)
        first = associate(agreed, drawn(agreed, null, crowd, generator), "age", "brand")
        stated = first.sensitivity(0.05, 0.8)
        assert stated is not None
        assert 0 < stated.least < stated.most
        found = {}
        for people in (stated.least, stated.most):
            shift = np.outer(np.eye(3)[1] - ages, np.eye(4)[2] - brands) / (0.7 * 0.8)
            counts = [
                drawn(agreed, null + people / crowd * shift, crowd, generator) for _ in range(runs)
            ]
            tests = [associate(agreed, one, "age", "brand").independence for one in counts]
            found[people] = sum(test.p_value < 0.05 for test in tests)
        assert found[stated.most] >= binom.ppf(1e-4, runs, 0.8)
        assert found[stated.least] <= binom.isf(1e-4, runs, 0.8)
        assert "people off independence would be seen with probability 0.8" in stated.in_words

    def test_without_flips_it_is_pearsons(self):
        agreed = plan_of(ASKED.cross("age", "brand"), "0.000000001")
        people = np.array([[90, 50, 30, 25], [40, 60, 20, 30], [30, 30, 50, 45]])
        ones = truth_of(agreed.survey, people).astype(int)
        counts = Tally(agreed.id, 500, ones, simulated=True)
        pearson = chi2_contingency(people, correction=False)
        for names in (("age", "brand"), ("brand", "age")):
            test = cross_table(agreed, counts, *names).test
            assert test.result.statistic == pytest.approx(pearson.statistic, rel=1e-4)
            assert test.result.p_value == pytest.approx(pearson.pvalue, rel=1e-3)
            # An excess x in a cell of shares a and b has x^2 / (N a (1 - a) b (1 - b)).
            stated = test.sensitivity(0.05, 0.8)
            shares = (people.sum(axis=axis) / 500 for axis in (1, 0))
            spread = np.outer(*(share * (1 - share) for share in shares))
            needed = np.sqrt(_noncentrality(6, 0.05, 0.8) * 500 * spread)
            assert stated.least == pytest.approx(needed.min(), rel=1e-3)
            assert stated.most == pytest.approx(needed.max(), rel=1e-3)

    def test_too_few_people_and_flips_are_said(self):
        agreed = plan_of(ASKED.cross("age", "brand"), "0.000001")
        counts = drawn(agreed, self.UNEVEN, 500, np.random.default_rng(5))
        table = cross_table(agreed, counts, "age", "brand")
        assert table.test.result.kind == "rough"

    def test_an_answer_that_everybody_has(self):
        """No dependence is possible in its row, and nothing is divided by zero."""
        noise = np.eye(4) * 100.0
        test = InteractionTest(np.array([[600.0, 400.0], [0.0, 0.0]]), noise)
        assert test.result.p_value > 0.5
        assert np.isfinite(test.sensitivity().most)
        nobody = InteractionTest(np.array([[-3.0, 1.0], [0.0, -2.0]]), noise)
        assert nobody.result.p_value > 0.5

    @pytest.mark.parametrize("power", [0.05, 1.0, float("nan")])
    def test_a_power_that_is_none(self, power: float):
        test = InteractionTest(np.full((2, 2), 100.0), np.eye(4))
        with pytest.raises(InputError, match="power"):
            test.sensitivity(0.05, power)


def _noncentrality(degrees: int, level: float, power: float) -> float:
    grid = np.linspace(0.01, 100, 200_001)
    reached = np.asarray(ncx2.sf(chi2.isf(level, degrees), degrees, grid) >= power)
    return float(grid[reached.argmax()])


class TestShares:
    @pytest.mark.parametrize(("a", "rest"), [(0, 0), (0, 5), (3, 2), (8, 0), (2, 9)])
    def test_a_part_covers_at_least_its_level(self, a: int, rest: int):
        """By the exact law of all counts of a tiny crowd: one option against two others."""
        n, level = 8, 0.8
        question, q = Choice("c", ("x", "y", "z")), FlipProbability.at_least("0.125")
        truth = a / (a + rest) if a + rest else 0.0
        laws = [_law(a, n), _law(rest, 2 * n)]
        covered = 0.0
        for ones, others in product(range(n + 1), range(2 * n + 1)):
            counts = (ones, min(others, n), max(others - n, 0))
            x, y, z = (Estimate(question, label, m, n, q, "crowd", 0.0)
                       for label, m in zip("xyz", counts, strict=True))  # fmt: skip
            part = part_of(x, [y, z], level)
            assert 0 <= part.low < part.high <= 1
            assert (part.low, part.high) == (0, 1) or not math.isnan(part.value)
            assert not part.value < 0
            assert not part.value > 1
            covered += laws[0][ones] * laws[1][others] * (part.low <= truth <= part.high)
        assert covered >= level - 1e-9

    @pytest.mark.parametrize("q", ["0.1", pytest.param("0.01", marks=pytest.mark.slow)])
    @pytest.mark.parametrize("target", ["crowd", "population"])
    def test_small_rows_are_covered(self, target: Target, q: str):
        """Of 150 tables for each row of few people: false alarm 1e-10 a case."""
        n, level, runs, flip = 400, 0.8, 150, FlipProbability.at_least(q)
        generator = np.random.default_rng(12)
        for row in ((1, 0, 0), (3, 1, 0, 0), (0, 10, 0), (12, 0, 0, 0, 0, 0), (5, 5, 5), (40, 2)):
            question = Choice("c", tuple(map(str, range(len(row) + 1))))
            covered = 0
            for _ in range(runs):
                people = np.array(row)
                if target == "population":
                    shares = np.append(people, n - people.sum()) / n
                    people = generator.multinomial(n, shares)[:-1]
                ones = generator.binomial(people, 1 - float(flip))
                ones += generator.binomial(n - people, float(flip))
                cells = [
                    Estimate(question, str(place), int(one), n, flip, target, 0.0)
                    for place, one in enumerate(ones)
                ]
                place = int(generator.integers(len(row)))
                part = part_of(cells[place], cells[:place] + cells[place + 1 :], level)
                assert part.low < part.high
                covered += part.low <= row[place] / sum(row) <= part.high
            assert covered >= binom.ppf(1e-10, runs, level), row

    def test_nobody_in_a_row_is_unknown(self):
        """Ones far below those of nobody: the part is unknown, not certain."""
        question, q = Choice("c", tuple("wxyz")), FlipProbability.at_least("0.1")
        for target in get_args(Target):
            cells = [
                Estimate(question, label, ones, 400, q, target, 0.0)
                for label, ones in zip("xyz", (55, 20, 15), strict=True)
            ]
            part = part_of(cells[0], cells[1:])
            assert math.isnan(part.value)
            assert (part.low, part.high) == (0, 1)
            assert part.to_json()["value"] is None
            # A row of which the others seem to be fewer than nobody is not certain either.
            cells[0] = replace(cells[0], ones=150)
            part = part_of(cells[0], cells[1:])
            assert (part.value, part.high) == (1, 1)
            assert part.low < 0.9

    def test_a_part_needs_others(self):
        one = Estimate(
            Choice("c", ("x", "y")), "x", 5, 9, FlipProbability.at_least("0.1"), "crowd", 0.0
        )
        with pytest.raises(InputError, match="other options"):
            part_of(one, [])


def _law(ones: int, bits: int) -> np.ndarray:
    """How many of so many bits show a one, if each is flipped with probability 1/8."""
    stay = binom.pmf(np.arange(ones + 1), ones, 0.875)
    return np.convolve(stay, binom.pmf(np.arange(bits - ones + 1), bits - ones, 0.125))


SMALL = Survey("s", (YesNo("smokes"), Choice("brand", ("old", "new")), Number("age", (30,)))).cross(
    "smokes", "brand", "age"
)


class TestTable:
    @pytest.fixture
    def counts(self) -> tuple[Plan, Tally]:
        agreed = plan_of(ASKED.cross("age", "brand").cross("smokes", "uses=app"))
        people = [{"age": "old", "brand": "b", "smokes": "yes", "uses": ["app"]}] * 300
        people += [{"age": "young", "brand": "a", "smokes": "no", "uses": ["app"]}] * 200
        people += [{"age": "young", "brand": "b", "smokes": "no", "uses": []}] * 500
        reports = flip(agreed, encode(agreed, people), random_bits=SimulationBits(1))
        return agreed, tally(agreed, reports)

    def test_cells_totals_and_shares(self, counts: tuple[Plan, Tally]):
        agreed, tally_ = counts
        table = cross_table(agreed, tally_, "age", "brand")
        estimates = estimate(agreed, tally_)
        assert table["old", "b"] == estimates["age x brand"]["old x b"]
        assert 300 in table["old", "b"].interval(0.9999)
        turned = cross_table(agreed, tally_, "brand", "age")
        assert turned["b", "old"] == table["old", "b"]
        assert turned.row_shares() == tuple(zip(*table.column_shares(), strict=True))
        for total, own in zip(table.row_totals(), estimates["age"].values(), strict=True):
            assert (total.value, total.low, total.high) == pytest.approx(
                (own.count, own.interval().low, own.interval().high)
            )
        young = table.row_shares(0.9999)[0]
        for share, truth in zip(young, (2 / 7, 5 / 7, 0, 0), strict=True):
            assert share.low <= truth <= share.high

    def test_a_flag_and_a_yes(self, counts: tuple[Plan, Tally]):
        table = cross_table(*counts, "smokes", "uses=app")
        assert table.values == (("smokes", "not smokes"), ("app", "not app"))
        for totals, truth in (
            (table.row_totals(0.9999), (300, 700)),
            (table.column_totals(0.9999), (500, 500)),
        ):
            for total, people in zip(totals, truth, strict=True):
                assert total.low <= people <= total.high
            assert sum(total.value for total in totals) == pytest.approx(1000)
        document = table.to_json()
        assert document["odds_ratio"]["high"] is None or document["odds_ratio"]["high"] > 100
        assert document["difference"]["low"] > 0.5
        assert table.association.independence == table.test.result

    def test_what_is_not_there(self, counts: tuple[Plan, Tally]):
        with pytest.raises(InputError, match=r'no cross of .* plan it with --cross "age;smokes"'):
            cross_table(*counts, "age", "smokes")
        with pytest.raises(InputError, match="two or more different questions"):
            cross_table(*counts, "age")
        with pytest.raises(InputError, match="takes several answers"):
            cross_table(*counts, "age", "uses")
        table = cross_table(*counts, "age", "brand")
        with pytest.raises(InputError, match="never 'z'"):
            table["old", "z"]
        with pytest.raises(InputError, match="one value of each"):
            table["old"]
        with pytest.raises(InputError, match="three or more"):
            table.slices  # noqa: B018

    def test_people_who_may_repeat(self, counts: tuple[Plan, Tally]):
        agreed, one = counts
        both = one.named("a") + one.named("b")
        with pytest.raises(InputError, match="may be the same"):
            cross_table(agreed, both, "age", "brand").test  # noqa: B018


class TestSlices:
    def test_each_answer_to_the_first_has_a_table(self):
        agreed = plan_of(SMALL)
        people = [{"smokes": "yes", "brand": "new", "age": 20}] * 400
        people += [{"smokes": "no", "brand": "old", "age": 50}] * 600
        reports = flip(agreed, encode(agreed, people), random_bits=SimulationBits(2))
        table = cross_table(agreed, tally(agreed, reports), "age", "smokes", "brand")
        assert list(table.slices) == ["below 30", "30 and above"]
        young = table.slices["below 30"]
        assert young.given == {"age": "below 30"}
        assert young["smokes", "new"] == table["below 30", "smokes", "new"]
        assert [round(one.value, -2) for one in young.row_totals()] == [400, 0]
        document = json.loads(json.dumps(table.to_json()))
        assert [one["given"] for one in document["slices"]] == [
            {"age": "below 30"},
            {"age": "30 and above"},
        ]
        with pytest.raises(InputError, match="take its slices"):
            table.row_totals()
        with pytest.raises(InputError, match="no other measure"):
            young.association  # noqa: B018

    def test_answers_that_are_independent_given_the_first(self):
        """Among all people they go together, in no slice they do; false alarm 1e-4."""
        agreed, crowd, runs, q = plan_of(SMALL), 4000, 100, 0.01
        parts = np.outer([0.8, 0.2], [0.9, 0.1]), np.outer([0.3, 0.7], [0.2, 0.8])
        shares = np.stack(parts) / 2
        generator = np.random.default_rng(7)
        within = among = 0
        for _ in range(runs):
            people = generator.multinomial(crowd, shares.ravel()).reshape(2, 2, 2)
            own = [people[0].sum(), *people.sum(axis=(0, 2)), *people.sum(axis=(0, 1))]
            truth = np.array([*own, *people.ravel()])
            ones = generator.binomial(truth, 1 - q) + generator.binomial(crowd - truth, q)
            counts = Tally(agreed.id, crowd, ones, simulated=True)
            table = cross_table(agreed, counts, "smokes", "brand", "age")
            within += table.slices["smokes"].test.result.p_value < 0.05
            among += associate(agreed, counts, "brand", "age").independence.p_value < 0.05
        assert binom.ppf(5e-5, runs, 0.05) <= within <= binom.isf(5e-5, runs, 0.05)
        assert among == runs


class TestWhereThereIsNoCross:
    def test_the_refusal_names_it(self):
        survey = Survey("s", (*ASKED.questions, Flags("sports", ("x", "y", "z"), at_most=2)))
        agreed = plan_of(survey.cross("age", "brand"))
        counts = Tally(agreed.id, 100, np.full(agreed.bits, 50))
        for names, cross in (
            (("age", "smokes"), "age;smokes"),
            (("smokes=yes", "uses=card"), "smokes;uses=card"),
            (("age x brand", "smokes"), "age;brand;smokes"),
        ):
            with pytest.raises(PrivacyRefusal, match=f'--cross "{cross}"'):
                associate(agreed, counts, *names)
        with pytest.raises(PrivacyRefusal, match="cannot be crossed"):
            associate(agreed, counts, "age", "sports=x")

    def test_too_many_cells(self):
        options = tuple(map(str, range(50)))
        agreed = plan_of(Survey("s", (Choice("a", options), Choice("b", options))).cross("a", "b"))
        counts = Tally(agreed.id, 100, np.full(agreed.bits, 2))
        with pytest.raises(InputError, match="2,500 cells"):
            associate(agreed, counts, "a", "b")
        assert associate(agreed, counts, "a=1", "b").table.shape == (2, 50)
