"""A whole survey of a table: its sensitivity by brute force, its noise, its intervals, its page.

The oracle turns answers into vectors with code of its own, in exact fractions. OpenDP's noise
cannot be seeded; where noise matters, a seeded one of the same distribution takes its place.
"""

from __future__ import annotations

import itertools
import json
import math
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal import Choice, Flags, Number, Survey, YesNo
from shoal.cli import run
from shoal.curator import Budget, SurveyRelease, noise, release, survey_release
from shoal.curator.counts import CountNoise, count_table, sensitivity
from shoal.curator.estimates import part_of
from shoal.curator.noise import Mechanism, Neighbours
from shoal.errors import InputError, PrivacyRefusal, ShoalError
from shoal.protocol.survey import Date, Text
from shoal.support.table_format import DEFAULT_FORMAT, TableFormat

RELATIONS: tuple[Neighbours, ...] = ("replace", "add-remove")
SLOW_REPLACE = pytest.param("replace", marks=pytest.mark.slow)
UNIT = 2**20

Row = dict[str, Any]
Cell = tuple[list[Fraction], int | None]
"""The entries of one question, and which value the row has in a cross: None for a blank."""

SURVEYS: dict[str, tuple[Survey, dict[str, list[Any]]]] = {
    "choice": (Survey("s", (Choice("c", ("a", "b", "z")),)), {"c": ["a", "b", "z", None]}),
    "other": (
        Survey("s", (Choice("c", ("a",), missing="option", other=True),)),
        {"c": ["a", "else", None]},
    ),
    "yes/no": (
        Survey("s", (YesNo("y"), YesNo("m", missing="option"))),
        {"y": [True, False, None], "m": [True, False, None]},
    ),
    "flags": (
        Survey("s", (Flags("f", ("a", "b", "c", "d", "e"), at_most=2),)),
        {"f": [[], ["a"], ["b"], ["a", "b"], ["c", "d"], ["d", "e"], None]},
    ),
    "flags with others": (
        Survey("s", (Flags("f", ("a", "b", "c"), at_most=2, other=True),)),
        {"f": [[], ["a"], ["a", "b"], ["x"], ["x", "y"], ["c", "x", "y"], None]},
    ),
    "dates crossed": (
        Survey("s", (Date("d", "weekday"), YesNo("y"))).cross("d", "y"),
        {"d": [date(2026, 3, day) for day in range(1, 9)] + [None], "y": [True, False, None]},
    ),
    "bins": (Survey("s", (Number("n", (0, 10)),)), {"n": [-1, 0, 9.5, 10, None]}),
    "grid": (
        Survey("s", (Number("g", low=0, high=8, points=3),)),
        {"g": [-3, 0, 1, 2.7, 4, 6.5, 8, 11, None]},
    ),
    "two points": (
        Survey("s", (Number("g", low=0, high=1, points=2, missing="option"),)),
        {"g": [0, 0.3, 0.5, 1, None]},
    ),
    "cross": (
        Survey("s", (Choice("c", ("a", "b")), YesNo("y"), Flags("f", ("a", "b")))).cross(
            "c", "y", "f=b"
        ),
        {"c": ["a", "b", None], "y": [True, False, None], "f": [[], ["a", "b"], ["b"]]},
    ),
    "grids crossed": (
        Survey(
            "s", (Number("g", low=0, high=8, points=3), Number("n", (5,), missing="option"))
        ).cross("g", "n"),
        {"g": [0, 1.9, 2.1, 8, None], "n": [4, 5, None]},
    ),
}


def entries(question: Any, answer: Any) -> Cell:
    """The oracle: what one answer adds to the counts of its question."""
    kind, labels = question.kind, len(question.labels)
    vector = [Fraction(0)] * labels
    declared = getattr(question, "missing", None) is not None
    if kind == "flags":
        for option in answer or []:
            listed = option in question.options
            vector[question.options.index(option) if listed else -1] = Fraction(1)
        return vector, None
    if answer is None:
        if declared:
            vector[-1] = Fraction(1)
        return vector, labels - 1 if declared else None
    if kind == "yes/no":
        place = 0 if answer else 1
        if answer or declared:
            vector[place] = Fraction(1)
        return vector, place
    if kind == "choice":
        place = question.options.index(answer) if answer in question.options else 1
    elif kind == "date":
        place = answer.isoweekday() - 1
    elif question.edges:
        place = sum(Fraction(edge) <= Fraction(answer) for edge in question.edges)
    else:
        low, high = Fraction(str(question.low)), Fraction(str(question.high))
        steps = question.points - 1
        at = min(max((Fraction(answer) - low) / (high - low) * steps, Fraction(0)), Fraction(steps))
        below = math.floor(at)
        share = Fraction(round((at - below) * UNIT), UNIT)
        vector[below] += 1 - share
        if share:
            vector[below + 1] += share
        return vector, math.floor(at + Fraction(1, 2))
    vector[place] = Fraction(1)
    return vector, place


def oracle(survey: Survey, row: Row) -> list[Fraction]:
    parts = {one.name: entries(one, row[one.name]) for one in survey.asked}
    vector = [entry for part, _ in parts.values() for entry in part]
    for cross in survey.crosses:
        cell: int | None = 0
        for side in cross.sides:
            if side.flag is not None:
                value: int | None = 0 if side.flag in row[side.question.name] else 1
            else:
                value = parts[side.question.name][1]
            cell = None if cell is None or value is None else cell * len(side.values) + value
        cells = [Fraction(0)] * len(cross.labels)
        if cell is not None:
            cells[cell] = Fraction(1)
        vector += cells
    return vector


def rows_of(answers: dict[str, list[Any]]) -> list[Row]:
    return [dict(zip(answers, one, strict=True)) for one in itertools.product(*answers.values())]


@pytest.mark.parametrize("kind", SURVEYS)
class TestSensitivity:
    def test_rows_add_up(self, kind: str):
        survey, answers = SURVEYS[kind]
        rows = rows_of(answers)
        for some in (rows[:1], rows + rows[::2]):
            columns = zip(*(oracle(survey, row) for row in some), strict=True)
            counted = count_table(survey, some, DEFAULT_FORMAT)
            assert counted.rows == len(some)
            assert [count * counted.unit for count in counted.counts] == list(map(sum, columns))

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_against_all_pairs_of_rows(self, kind: str, relation: Neighbours):
        """Tables differ by these rows alone, since the counts of a table are a sum over rows."""
        survey, answers = SURVEYS[kind]
        vectors = [oracle(survey, row) for row in rows_of(answers)]
        if relation == "replace":
            pairs = itertools.combinations(vectors, 2)
            apart = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
        else:
            apart = [[*vector, Fraction(1)] for vector in vectors]
        stated = sensitivity(survey, relation)
        assert max(sum(map(abs, one)) for one in apart) == stated
        assert max(sum(x * x for x in one) for one in apart) == stated


class TestReading:
    """No row changes how another one is read: the counts of two rows are the sum of each alone."""

    SURVEY = Survey(
        "s", (Number("g", low=0, high=8, points=3), Flags("f", ("a", "b"), other=True))
    ).cross("g", "f=a")
    CELLS = ("", "1", "1e0001", "0e9999", "1e999", "1,5", "nan", " 2 ", "a", "x;y", '"a', "a,a,a")

    def counted(self, path: Path, lines: tuple[str, ...], **declared: Any) -> list[int]:
        path.write_text("\n".join(["g,f", *lines, ""]))
        written = TableFormat(invalid="missing", **declared)
        found = count_table(self.SURVEY, path, written)
        return [found.rows, *found.counts]

    @pytest.mark.parametrize("skip_blank", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_lines(self, tmp_path: Path, skip_blank: bool):
        path = tmp_path / "table.csv"
        lines = [*map(",".join, itertools.product(self.CELLS, ("", "a", "x;y"))), ""]
        alone = {line: self.counted(path, (line,), skip_blank=skip_blank) for line in lines}
        for pair in itertools.product(lines, lines[:: 1 if skip_blank else 6]):
            total = [sum(one) for one in zip(*map(alone.__getitem__, pair), strict=True)]
            assert self.counted(path, pair, skip_blank=skip_blank) == total, pair

    @pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ns"), pa.date64()])
    def test_dates_that_python_cannot_hold(self, kind: Any):
        survey, lenient = Survey("s", (Date("d", "month"),)), TableFormat(invalid="missing")
        table = pa.table({"d": pa.array([0, 2**62, -(2**62), None], kind)})
        assert count_table(survey, table.slice(0, 1), lenient).counts[0] == 1
        total = sum(sum(count_table(survey, table.slice(i, 1), lenient).counts) for i in range(4))
        assert sum(count_table(survey, table, lenient).counts) == total
        if kind == pa.timestamp("s"):
            with pytest.raises(InputError, match="2 answers"):
                count_table(survey, table.slice(0, 3), DEFAULT_FORMAT)


SURVEY = Survey(
    "shop",
    (
        Choice("brand", ("old", "new")),
        Number("age", low=0, high=100, points=6),
        YesNo("smokes"),
        Flags("uses", ("a", "b", "c")),
    ),
).cross("brand", "smokes")


def people(n: int = 400, seed: int = 1) -> dict[str, list[Any]]:
    draws = np.random.default_rng(seed)
    return {
        "brand": draws.choice(["old", "new", ""], n, p=[0.6, 0.3, 0.1]).tolist(),
        "age": np.round(draws.gamma(5, 8, n), 1).tolist(),
        "smokes": draws.choice(["yes", "no"], n).tolist(),
        "uses": draws.choice(["a", "a;b", "", "c"], n).tolist(),
    }


def write_csv(path: Path, table: dict[str, list[Any]]) -> None:
    rows = [tuple(table), *zip(*table.values(), strict=True)]
    path.write_text("\n".join(",".join(map(str, row)) for row in rows))


class Seeded:
    """Noise of the same distribution as OpenDP's, which repeats; it keeps what it was given."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int = 1, quiet: bool = False) -> None:
        self.given: list[list[int]] = []
        self.draws, self.quiet = np.random.default_rng(seed), quiet
        patch.setattr(CountNoise, "mechanism", lambda noise, values: self.mechanism(noise, values))

    def mechanism(self, law: CountNoise, values: list[int]) -> Mechanism:
        steps, size = law.scale / float(law.unit), len(values)
        if law.distribution == "Laplace":  # a difference of two geometric variables
            stop = -math.expm1(-1 / steps)
            drawn = self.draws.geometric(stop, size) - self.draws.geometric(stop, size)
        else:
            drawn = np.rint(self.draws.normal(scale=steps, size=size)).astype(np.int64)
        drawn *= not self.quiet

        def add(given: list[int]) -> list[int]:
            self.given.append(list(given))
            return [value + int(more) for value, more in zip(given, drawn, strict=True)]

        return Mechanism(steps, True, add)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Seeded:
    return Seeded(monkeypatch, quiet=True)


class TestRelease:
    @pytest.mark.parametrize("relation", RELATIONS)
    @pytest.mark.parametrize("delta", [None, "1e-6"])
    def test_scale_of_the_noise(self, relation: Neighbours, delta: str | None):
        """2 + 2 + 1 + 3 + 2 bits differ; 1 + 1 + 1 + 3 + 1 are set, and the rows are counted."""
        found = release(SURVEY, people(), epsilon="0.5", delta=delta, neighbours=relation)
        change = 10 if relation == "replace" else 8
        assert found.noise.sensitivity == change
        if delta is None:
            assert found.noise.distribution == "Laplace"
            assert found.noise.scale == 2 * change
            assert found.noise.sigma == pytest.approx(math.sqrt(2) * 2 * change, rel=1e-9)
            assert found.noise.delta == "0"
        else:
            normal = noise.gaussian_scale(Fraction(change), "0.5", delta)
            smaller = min(math.sqrt(2) * 2 * change, normal)
            assert found.noise.sigma == pytest.approx(smaller, rel=1e-6)
            assert (found.noise.delta == "0") == (smaller < normal)

    def test_one_bit_keeps_laplace_noise_and_spends_no_delta(self):
        survey = Survey("s", (YesNo("y"),))
        budget = Budget("1")
        answers = {"y": ["yes"] * 10}
        found = release(
            survey, answers, epsilon="1", delta="1e-6", neighbours="replace", budget=budget
        )
        assert (found.noise.distribution, found.noise.delta) == ("Laplace", "0")
        assert budget.releases[0].delta == "0"

    def test_opendp_adds_that_noise(self):
        """20,000 counts; each of two bounds fails with a probability below 1e-12."""
        survey = Survey("s", (Flags("f", tuple(f"o{i}" for i in range(2000))),))
        for delta, law in ((None, "Laplace"), ("1e-6", "Gaussian")):
            found = release(
                survey, {"f": ["o1"] * 3}, epsilon="1", delta=delta, neighbours="replace"
            )
            assert found.noise.distribution == law
            errors = np.array(found.counts)
            errors[1] -= 3
            ratio = float(np.mean(errors**2)) / found.noise.sigma**2
            # The variance of a square is at most 5 sigma^4: 8 standard errors, with Laplace tails.
            assert abs(ratio - 1) < 10 * math.sqrt(5 / len(errors))

    def test_counts_shares_and_blanks(self, quiet: Seeded):
        table = {
            "brand": ["old", "new", "", "old"],
            "age": [10, 30, None, 50],
            "smokes": ["yes", "", "no", "no"],
            "uses": ["a;b", "", "c", "a"],
        }
        found = release(SURVEY, table, epsilon=1, neighbours="replace")
        assert {label: one.count for label, one in found["brand"].items()} == {
            "old": 2, "new": 1, "(missing)": 1,
        }  # fmt: skip
        assert found["brand"]["old"].share == 0.5
        assert found["age"]["(missing)"].count == 1
        assert [one.count for one in found["age"].values()][:4] == [0.5, 1, 1, 0.5]
        assert found.numbers["age"].mean is not None
        assert found.numbers["age"].mean.value == pytest.approx(30, abs=1e-4)
        assert found.crosses["brand x smokes"]["old", "smokes"].count == 1
        assert sum(one.count for one in found["brand x smokes"].values()) == 2
        assert any("blank" in note for note in found.to_json()["estimates"]["notes"])
        for options in found.to_json()["estimates"]["questions"].values():
            assert all(row["low"] <= row["high"] for row in options.values())

    def test_every_form_of_a_table(self, quiet: Seeded, tmp_path: Path):
        import pandas as pd
        import polars as pl

        table = people(60)
        arrow = pa.table(table)
        write_csv(tmp_path / "t.csv", table)
        lines = [json.dumps(row) for row in arrow.to_pylist()]
        (tmp_path / "t.ndjson").write_text("\n".join(lines))
        pq.write_table(arrow, tmp_path / "t.parquet")
        files = [tmp_path / f"t.{form}" for form in ("csv", "ndjson", "parquet")]
        whole = release(SURVEY, table, epsilon=1, neighbours="replace")
        for source in (*files, arrow, pd.DataFrame(table), pl.DataFrame(table)):
            one = release(SURVEY, source, epsilon=1, neighbours="replace")
            assert (one.counts, one.rows) == (whole.counts, 60), type(source)

    def test_a_private_number_of_rows_is_a_noisy_count(self, monkeypatch: pytest.MonkeyPatch):
        seeded = Seeded(monkeypatch)
        found = release(SURVEY, people(4321), epsilon=1, neighbours="add-remove")
        assert seeded.given[0][-1] == 4321 * UNIT
        assert found.rows != 4321
        assert "4321" not in json.dumps(found.to_json())
        assert "4,321" not in found.to_html() + found.to_markdown() + str(found)

    def test_noise_is_chosen_before_the_table_is_read(self, monkeypatch: pytest.MonkeyPatch):
        order: list[str] = []

        def noted(name: str, function: Any) -> Any:
            def call(*given: Any) -> Any:
                order.append(name)
                return function(*given)

            return call

        monkeypatch.setattr(CountNoise, "choose", noted("noise", CountNoise.choose))
        monkeypatch.setattr(survey_release, "count_table", noted("table", count_table))
        release(SURVEY, people(), epsilon=1, delta="1e-6", neighbours="replace")
        assert order == ["noise", "table"]

    def test_inferred_options_must_be_declared_public(self, quiet: Seeded, tmp_path: Path):
        path = tmp_path / "s.toml"
        path.write_text(SURVEY.to_toml() + "\n[table]\ninferred = true\n")
        budget = Budget("1")
        terms: dict[str, Any] = {"epsilon": 1, "neighbours": "replace", "budget": budget}
        with pytest.raises(PrivacyRefusal, match="inferred from a table"):
            release(path, people(), **terms)
        with pytest.raises(PrivacyRefusal, match="inferred"):
            release(SURVEY, people(), table_format=TableFormat(inferred=True), **terms)
        with pytest.raises(PrivacyRefusal, match="inferred"):
            release(path, people(), table_format=TableFormat(invalid="missing"), **terms)
        assert budget.spent == "0"
        found = release(path, people(), options_are_public=True, **terms)
        assert any("it was not checked" in text for text in found.assumptions)
        path.write_text(SURVEY.to_toml())
        again = release(path, people(), epsilon=1, neighbours="replace")
        assert not any("it was not checked" in text for text in again.assumptions)

    def test_an_invalid_cell_names_its_row_and_not_its_content(self):
        table, budget = people(), Budget("1")
        table["brand"][6], table["age"][3] = "secret", "secret"
        terms: dict[str, Any] = {"epsilon": 1, "neighbours": "replace", "budget": budget}
        with pytest.raises(InputError, match="row 4") as caught:
            release(SURVEY, table, **terms)
        assert "secret" not in str(caught.value)
        assert budget.spent == "0"
        lenient = TableFormat(invalid="missing")
        assert release(SURVEY, table, table_format=lenient, **terms).rows == 400

    def test_blank_rows_are_not_skipped_where_the_number_of_rows_is_public(self):
        skipping: dict[str, Any] = {"table_format": TableFormat(skip_blank=True), "epsilon": 1}
        with pytest.raises(PrivacyRefusal, match="skip_blank"):
            release(SURVEY, people(), neighbours="replace", **skipping)
        release(SURVEY, people(), neighbours="add-remove", **skipping)

    def test_a_file_without_rows_has_neighbours_too(self, tmp_path: Path):
        """Under add-remove an error would tell a table of one row from one of none."""
        path = tmp_path / "people.csv"
        for blank in ("", ",,,\n\n"):
            path.write_text("brand,age,smokes,uses\n" + blank)
            written = TableFormat(skip_blank=True)
            assert count_table(SURVEY, path, written).rows == 0
            terms: dict[str, Any] = {"epsilon": 1, "table_format": written}
            assert release(SURVEY, path, neighbours="add-remove", **terms).rows >= 1
        path.write_text("brand,age,smokes,uses\n")
        with pytest.raises(InputError, match="no rows"):
            release(SURVEY, path, epsilon=1, neighbours="replace")

    def test_originals_are_no_table(self, tmp_path: Path):
        survey = Survey("s", (Number("g", low=0, high=1, points=2, missing="option"),))
        table = pa.table({"original": pa.array([b"\x02"] * 9, pa.binary(1))})
        marked = table.replace_schema_metadata({"shoal.survey": survey.digest})
        pq.write_table(marked, tmp_path / "originals.parquet")
        with pytest.raises(InputError, match="no column 'g'"):
            count_table(survey, tmp_path / "originals.parquet", DEFAULT_FORMAT)

    def test_text_is_left_out(self, quiet: Seeded):
        word = Text("word", bits=64, hashes=2, cohorts=8)
        survey = Survey("s", (Choice("brand", ("old", "new")), word))
        found = release(survey, people(), epsilon=1, neighbours="replace")
        assert (found.left_out, found.noise.sensitivity, list(found)) == (("word",), 2, ["brand"])
        assert "was left out" in found.to_html()
        with pytest.raises(InputError, match="was left out"):
            found["word"]
        with pytest.raises(InputError, match="text only"):
            release(Survey("s", (word,)), people(), epsilon=1, neighbours="replace")

    def test_refusals_spend_nothing(self):
        budget = Budget("5")
        usual: dict[str, Any] = {"table": people(), "epsilon": 1, "neighbours": "replace"}
        wishes: tuple[dict[str, Any], ...] = (
            {"epsilon": 0}, {"epsilon": "x"}, {"delta": 0}, {"delta": 1}, {"delta": "1e-200"},
            {"neighbours": "both"}, {"level": 95}, {"table": 3}, {"table": "none.csv"},
            {"table": {"brand": ["old"]}}, {"table": {**people(), "brand": ["old"]}},
            {"table": {name: [] for name in people()}}, {"title": ""},
        )  # fmt: skip
        for wrong in wishes:
            with pytest.raises(ShoalError):
                release(SURVEY, budget=budget, **(usual | wrong))
        assert budget.spent == "0"


class TestGaussian:
    @pytest.mark.parametrize(
        ("squared", "epsilon", "delta"),
        [(1, "1", "1e-6"), (25, "0.3", "1e-5"), (7, "3", "1e-9"), (400, "1", "1e-6")],
    )
    def test_delta_by_another_computation(self, squared: int, epsilon: str, delta: str):
        """The conversion of zCDP, minimized by mpmath: within delta, and hardly less."""
        scale = noise.gaussian_scale(Fraction(squared), epsilon, delta)
        mpmath.mp.dps = 40
        rho = mpmath.mpf(squared) / (2 * mpmath.mpf(scale) ** 2)

        def slope(alpha: Any) -> Any:
            return mpmath.diff(lambda a: self.log_delta(rho, mpmath.mpf(epsilon), a), alpha)

        start = (mpmath.mpf(epsilon) + rho) / (2 * rho)
        best = mpmath.findroot(slope, start + 1)
        found = mpmath.exp(self.log_delta(rho, mpmath.mpf(epsilon), best))
        assert 1 - 1e-6 < float(found / mpmath.mpf(delta)) <= 1 + 1e-12

    @staticmethod
    def log_delta(rho: Any, epsilon: Any, alpha: Any) -> Any:
        log = mpmath.log
        return (alpha - 1) * (alpha * rho - epsilon) + alpha * log(1 - 1 / alpha) - log(alpha - 1)

    @pytest.mark.parametrize("shift", [(1,), (1, -1), (2, 0), (1, 1, 1)])
    @pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "1e-2"), ("2", "1e-4")])
    def test_delta_by_brute_force(self, shift: tuple[int, ...], epsilon: str, delta: str):
        """The hockey-stick divergence of the discrete Gaussian, summed over whole vectors."""
        squared = sum(one * one for one in shift)
        scale = noise.gaussian_scale(Fraction(squared), epsilon, delta)
        far = math.ceil(9 * scale) + 2
        places = np.arange(-far, far + 1)
        pmf = np.exp(-0.5 * (places / scale) ** 2)
        pmf /= pmf.sum()
        first = second = np.ones(1)
        for one in shift:
            moved = np.exp(-0.5 * ((places - one) / scale) ** 2)
            first = np.multiply.outer(first, pmf).ravel()
            second = np.multiply.outer(second, moved / moved.sum()).ravel()
        excess = np.clip(first - math.exp(float(epsilon)) * second, 0, None).sum()
        assert 0 < excess <= float(delta)

    def test_too_little_noise_is_refused(self):
        scale = noise.gaussian_scale(Fraction(9), "1", "1e-6")
        noise.gaussian_mechanism(scale, Fraction(9), "1", "1e-6", [1, 2])
        with pytest.raises(PrivacyRefusal, match="nothing was released"):
            noise.gaussian_mechanism(scale * 0.999, Fraction(9), "1", "1e-6", [1, 2])


class TestBudget:
    def test_nothing_is_drawn_beyond_it(self, monkeypatch: pytest.MonkeyPatch):
        seeded = Seeded(monkeypatch)
        budget = Budget("1")
        release(SURVEY, people(), epsilon="0.6", neighbours="replace", budget=budget)
        assert len(seeded.given) == 1
        with pytest.raises(PrivacyRefusal, match=r"only 0\.4 is left"):
            release(SURVEY, people(), epsilon="0.6", neighbours="replace", budget=budget)
        assert len(seeded.given) == 1
        assert budget.left == "0.4"

    def test_delta_is_spent_where_it_is_used(self):
        budget = Budget("2", delta="1e-6")
        survey = Survey("s", (Flags("f", tuple(map(str, range(300)))),))
        table = {"f": ["1"] * 5}
        terms: dict[str, Any] = {"neighbours": "replace", "budget": budget}
        found = release(survey, table, epsilon="1", delta="6e-7", **terms)
        assert found.noise.distribution == "Gaussian"
        assert (budget.left, budget.delta_left) == ("1", "4e-7") or budget.delta_left == "0.0000004"
        with pytest.raises(PrivacyRefusal, match="delta"):
            release(survey, table, epsilon="1", delta="6e-7", **terms)
        assert budget.left == "1"

    def test_a_crash_before_the_draw_loses_budget_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        path = tmp_path / "b.json"

        def crash(values: Any) -> Any:
            assert Budget(path=path).left == "0.5", "the expense must be on disk by now"
            raise KeyboardInterrupt

        monkeypatch.setattr(CountNoise, "mechanism", lambda *_: Mechanism(1.0, True, crash))
        budget = Budget("1", path)
        with pytest.raises(KeyboardInterrupt):
            release(SURVEY, people(), epsilon="0.5", neighbours="replace", budget=budget)
        assert Budget(path=path).left == "0.5"


class TestIntervals:
    @pytest.mark.parametrize("relation", ["add-remove", SLOW_REPLACE])
    @pytest.mark.parametrize("delta", [None, pytest.param("1e-3", marks=pytest.mark.slow)])
    def test_cover(self, relation: Neighbours, delta: str | None, monkeypatch: pytest.MonkeyPatch):
        """Seeded: 250 releases at 90 %; a true 90 % is below 84.5 % once in 500 times."""
        survey = Survey(
            "s",
            (Choice("brand", ("old", "new")), Number("age", low=0, high=100, points=6)),
        ).cross("brand", "age")
        n, releases = 60, 250
        table = {name: column for name, column in people(n).items() if name in ("brand", "age")}
        age = np.clip(table["age"], 0, 100)
        truth = {name: table["brand"].count(name) for name in ("old", "new")}
        truth["(missing)"] = table["brand"].count("")
        old = age[np.array(table["brand"]) == "old"]
        in_cell = int((np.floor(old / 20 + 0.5) == 2).sum())
        Seeded(monkeypatch, seed=7)
        hits: dict[str, int] = {}
        for _ in range(releases):
            found = release(survey, table, epsilon="1", delta=delta, neighbours=relation, level=0.9)
            held = {
                f"{kind} {label}": one.low / by <= count / of <= one.high / by
                for label, count in truth.items()
                for one in [found["brand"][label].interval(0.9)]
                for kind, by, of in (("count", 1, 1), ("share", found.rows, n))
            }
            numbers = found.numbers["age"]
            assert numbers.mean is not None
            held["mean"] = numbers.mean.low <= age.mean() <= numbers.mean.high
            median = numbers.quantile(0.5)
            assert median.low is not None
            assert median.high is not None
            held["median"] = median.low <= np.median(age) <= median.high
            row = found.crosses["brand x age"].cells[0].tolist()
            part = part_of(row[2], row[:2] + row[3:], 0.9)
            held["part of a row"] = part.low <= in_cell / len(old) <= part.high
            for name, held_here in held.items():
                hits[name] = hits.get(name, 0) + bool(held_here)
        assert {name: hit for name, hit in hits.items() if hit < 0.845 * releases} == {}

    def test_one_count_has_the_tail_of_its_noise(self):
        """No shorter interval would do, by the sum of the distribution itself."""
        survey = Survey("s", (YesNo("y"), Flags("f", tuple("abcdefghij"))))
        for delta in (None, "1e-6"):
            law = CountNoise.choose(survey, "replace", "1", delta)
            places = np.arange(-4000, 4001)
            if law.distribution == "Laplace":
                pmf = np.exp(-np.abs(places) / law.scale)
            else:
                pmf = np.exp(-0.5 * (places / law.scale) ** 2)
            pmf /= pmf.sum()
            for miss in (0.5, 0.05, 0.001):
                radius = law.radius(miss)
                assert pmf[np.abs(places) > radius].sum() <= miss * (1 + 1e-9)
                assert pmf[np.abs(places) > radius - 1].sum() > miss

    @pytest.mark.slow
    def test_the_test_of_independence_keeps_its_level(self, monkeypatch: pytest.MonkeyPatch):
        """Seeded: of 400 tables of independent answers about 5 % have a p-value below 0.05.

        The chi-square distribution would not do: Laplace noise has heavier tails.
        """
        options = tuple("abcd")
        survey = Survey("s", (Choice("x", options), Choice("y", options))).cross("x", "y")
        Seeded(monkeypatch, seed=3)
        draws = np.random.default_rng(4)
        below = 0
        for _ in range(400):
            table = {name: draws.choice(options, 500).tolist() for name in "xy"}
            found = release(survey, table, epsilon="0.1", neighbours="replace")
            result = found.crosses["x x y"].to_json()["independence"]
            below += result["p_value"] <= 0.05
        assert 6 <= below <= 36

    def test_dependence_is_found(self, monkeypatch: pytest.MonkeyPatch):
        survey = Survey("s", (Choice("x", ("a", "b")), Choice("y", ("a", "b")))).cross("x", "y")
        Seeded(monkeypatch)
        table = {"x": ["a", "b"] * 500, "y": ["a", "b"] * 500}
        document = release(survey, table, epsilon=1, neighbours="replace").to_json()
        assert document["crosses"]["x x y"]["independence"]["p_value"] == 1 / 10_000


class TestPage:
    @pytest.fixture
    def found(self, monkeypatch: pytest.MonkeyPatch) -> SurveyRelease:
        Seeded(monkeypatch)
        budget = Budget("3", delta="1e-5")
        return release(
            SURVEY, people(), epsilon="1", delta="1e-6", neighbours="replace", budget=budget,
            title="Customers", date="May 2026",
        )  # fmt: skip

    def test_says_who_is_trusted_and_what_holds(self, found: SurveyRelease):
        promise = found.to_json()["promise"]
        assert (promise["status"], promise["observer"]) == ("theorem", "readers of this release")
        assert (promise["epsilon"], promise["delta"]) == ("1", found.noise.delta)
        for text in (found.to_html(), found.to_markdown()):
            for said in (
                "The curator sees every row and is trusted.",
                "the number of rows is public",
                "no noise protects them",
                "Releases about the same people add up",
                "epsilon 1 of 3 spent",
                "This is a theorem",
                "Customers",
                "May 2026",
            ):
                assert said in text.replace("&#39;", "'"), said
            assert "flipped" not in text
            assert 'certificate": null' in text or "ertificate" not in text

    def test_shows_words_and_blank_cells(self):
        asked = Survey(
            "shop", (Choice("brand", ("old", "new"), titles={"old": "Old <b>"}),), title="Our shop"
        )
        found = release(asked, {"brand": ["old", ""] * 50}, epsilon="9", neighbours="replace")
        page = found.to_html()
        for said in ("<h1><bdi>Our shop</bdi></h1>", "Old &lt;b&gt;", "(missing)"):
            assert said in page, said

    def test_shares_add_to_a_hundred_percent(self, found: SurveyRelease):
        questions = found.to_json()["estimates"]["questions"]
        for name in ("brand", "age"):
            rows = questions[name].values()
            assert sum(row["constrained"] for row in rows) == pytest.approx(400)
            assert all(0 <= row["constrained"] <= 400 for row in rows)

    def test_tables(self, found: SurveyRelease):
        table = found.to_arrow()
        assert table.num_rows == sum(len(options) for options in found.values())
        assert json.loads(table.schema.metadata[b"shoal"]) == found.to_json()
        assert found.to_pandas()["option"].tolist()[:3] == ["old", "new", "(missing)"]
        assert found.to_polars().height == table.num_rows
        assert "brand" in str(found)
        assert "epsilon 1" in repr(found)


class TestCommand:
    TERMS = ("--epsilon", "1", "--neighbours", "replace")

    @pytest.fixture
    def at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "s.toml").write_text(SURVEY.to_toml())
        write_csv(tmp_path / "d.csv", people(50))
        return tmp_path

    @pytest.mark.parametrize(
        ("code", "words", "why"),
        [
            (2, ["d.csv", "s.toml"], "a survey (.toml) before it"),
            (2, ["s.toml"], "a survey (.toml) before it"),
            (2, ["s.toml", "d.csv", "--count", "age>3"], "--count is for a single query"),
            (2, ["s.toml", "d.csv", "--miss", "0.1"], "--miss is for a single query"),
            (2, ["d.csv", "--count", "-o", "r.html"], "--output goes with a survey"),
            (2, ["d.csv", "--count", "--delta", "1e-6"], "--delta goes with a survey"),
            (2, ["s.toml", "d.csv", "-o", "r.txt"], "must end in"),
            (2, ["s.toml", "d.csv", "-o", "none/r.html"], "there is no folder"),
            (2, ["s.toml", "d.csv", "-o", "d.csv"], "is the input"),
            (2, ["s.toml", "d.csv", "--budget-delta", "1"], "--budget-total needs --budget"),
            (3, ["s.toml", "d.csv", "--budget", "b.json"], "only 0.5 is left"),
        ],
    )
    def test_refusals(self, at: Path, capsys, code: int, words: list[str], why: str):
        Budget("0.5", at / "b.json")
        before = {path.name: path.read_bytes() for path in at.iterdir()}
        assert run(["curator", *words, *self.TERMS]) == code
        assert why in capsys.readouterr().err
        after = {path.name: path.read_bytes() for path in at.iterdir()}
        assert after == before

    def test_inferred_options(self, at: Path, capsys):
        (at / "s.toml").write_text(SURVEY.to_toml() + "\n[table]\ninferred = true\n")
        assert run(["curator", "s.toml", "d.csv", *self.TERMS]) == 3
        assert "--options-are-public" in capsys.readouterr().err
        (at / "f.toml").write_text("[table]\n")
        words = ["curator", "s.toml", "d.csv", *self.TERMS, "--table-format", "f.toml"]
        assert run(words) == 3
        assert run([*words, "--options-are-public"]) == 0
