"""Encoding: one answer, many, and whole tables, all to the same bits."""

from __future__ import annotations

import datetime
import json
import math
import unicodedata
from decimal import Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Choice, Date, Flags, Number, Plan, ShoalError, Survey, Text, YesNo, plan
from shoal.device.arrays.files import read_answers
from shoal.device.arrays.simulation_bits import SimulationBits
from shoal.device.encode import encode, set_bits
from shoal.errors import AnswerError, InputError, SurveyError
from shoal.support.table_format import TableFormat
from tests.strategies import answers, bounded, surveys

SURVEY = Survey(
    "browser",
    (
        Flags("features", ("sync", "vpn", "reader")),
        Choice("channel", ("release", "beta")),
        Flags("languages", ("en", "fr", "de", "it"), at_most=2),
        Number("age", ("18", "65.5")),
        Choice("system", ("linux", "mac"), missing="option"),
        Number("tabs", ("10",), missing="option"),
    ),
)
GOOD: dict[str, Any] = {
    "features": ["sync"],
    "channel": "beta",
    "languages": "en;de",
    "age": 40,
    "system": "mac",
    "tabs": 3,
}


def bits_of(survey: Survey, answer: dict[str, Any]) -> set[tuple[str, str]]:
    """The labelled bits that one answer sets."""
    value = encode(survey, answer).value
    return {label for bit, label in enumerate(survey.labels) if value >> bit & 1}


class TestOneAnswer:
    def test_the_bits_are_the_labels(self):
        assert bits_of(SURVEY, GOOD) == {
            ("features", "sync"),
            ("channel", "beta"),
            ("languages", "en"),
            ("languages", "de"),
            ("age", "18 to below 65.5"),
            ("system", "mac"),
            ("tabs", "below 10"),
        }

    @pytest.mark.parametrize("value", [[], (), "", "  ", None, set()])
    def test_no_flags(self, value: object):
        assert not [
            label for label in bits_of(SURVEY, GOOD | {"features": value}) if label[0] == "features"
        ]

    @pytest.mark.parametrize(
        "value", [["sync", "vpn"], "sync;vpn", " vpn ; sync ", ("vpn", "sync"), {"sync", "vpn"}]
    )
    def test_flags_in_any_order_and_form(self, value: object):
        bits = bits_of(SURVEY, GOOD | {"features": value})
        assert {label for name, label in bits if name == "features"} == {"sync", "vpn"}

    @pytest.mark.parametrize(
        ("age", "label"),
        [
            *((age, "below 18") for age in (17.999999, np.nextafter(18, 0), -1e300, "-0")),
            *((age, "18 to below 65.5") for age in (18, "18", 18.0, " 18 ", np.int8(65))),
            (Decimal("65.49"), "18 to below 65.5"),
            *((age, "65.5 and above") for age in (65.5, "65.50", np.float32(65.5), "1e2", 10**300)),
        ],
    )
    def test_bins_are_closed_on_the_left(self, age: object, label: str):
        assert ("age", label) in bits_of(SURVEY, GOOD | {"age": age})

    @pytest.mark.parametrize("edge", ["0.1", "0.3", "1.1", "2.675", "0.000001", "-0.7"])
    def test_a_decimal_exactly_at_an_edge(self, edge: str):
        survey = Survey("s", (Number("x", (edge,)),))
        for value in (edge, float(edge), Decimal(edge)):
            assert bits_of(survey, {"x": value}) == {("x", f"{survey['x'].edges[0]} and above")}  # type: ignore[attr-defined]

    @pytest.mark.parametrize("value", [None, "", " "])
    def test_missing_where_it_is_an_option(self, value: object):
        bits = bits_of(SURVEY, GOOD | {"system": value, "tabs": value})
        assert {("system", "(missing)"), ("tabs", "(missing)")} <= bits

    def test_composed_and_decomposed_letters_are_one_answer(self):
        survey = Survey("s", (Choice("drink", ("caf\u00e9", "tea")), Flags("k", ("\u00e9",))))
        apart = unicodedata.normalize("NFD", "caf\u00e9")
        assert bits_of(survey, {"drink": apart, "k": ["e\u0301"]}) == {
            ("drink", "caf\u00e9"),
            ("k", "\u00e9"),
        }

    def test_a_plan_stands_for_its_survey(self):
        assert encode(plan(SURVEY, q="0.25"), GOOD) == encode(SURVEY, GOOD)

    def test_every_report_draws_a_cohort_of_its_own(self):
        """A cohort that several have in common would link them. False alarm: below 1e-99."""
        survey = Survey("words", (Text("word", bits=64, hashes=2, cohorts=64),))
        words = [{"word": "tea"}] * 200
        assert len({encode(survey, word).cohort for word in words}) > 10
        for many in (encode(survey, words), encode(survey, pa.Table.from_pylist(words))):
            assert many.cohorts is not None
            assert len(set(many.cohorts.tolist())) > 10


STORED = json.loads((Path(__file__).parents[1] / "data" / "plans.json").read_text("utf-8"))
MORE = Survey(
    "more",
    (
        YesNo("smokes"),
        YesNo("drives", missing="option"),
        Choice("city", ("New York", "Paris"), fold=True, other=True, column="Where?"),
        Flags("features", ("Sync", "VPN"), fold=True),
    ),
).cross("smokes", "city", "features=VPN")


class TestMoreKinds:
    @pytest.mark.parametrize("stored", STORED, ids=lambda stored: stored["plan"]["survey"]["name"])
    def test_encodings_never_change(self, stored: dict[str, Any]):
        """The stored bits were worked out by hand.

        The first answer: age 1 of 3, brand 0 of 4, yes, missing 2 of 3, vpn 1 of 2; and the cells
        13 + 1 * 4 + 0 and 25 + ((0 * 3 + 2) * 2 + 0) * 2 + 1.
        """
        survey = Plan.from_json(stored["plan"]).survey
        for one in stored["encodings"]:
            assert encode(survey, one["answer"]).value == sum(1 << bit for bit in one["set_bits"])
        assert survey.name != "shop" or len(stored["encodings"]) == 3

    def test_yes_and_no(self):
        survey = Survey("s", (YesNo("a"), YesNo("b", missing="option")))
        for value in ("yes", "Yes ", "TRUE", "1", 1, True, np.True_, np.int8(1)):
            assert bits_of(survey, {"a": value, "b": value}) == {("a", "yes"), ("b", "yes")}
        for no in ("no", " NO", "False", "0", 0, False, np.False_):
            assert bits_of(survey, {"a": no, "b": no}) == {("b", "no")}

    @pytest.mark.parametrize("value", ["y", "2", 2, -1, 2.0, 0.5, ["yes"], b"yes"])
    def test_neither_yes_nor_no(self, value: object):
        with pytest.raises(AnswerError, match=r"question 'a': .* is not yes or no, true or false"):
            encode(Survey("s", (YesNo("a"),)), {"a": value})

    def test_an_absurd_integer(self):
        for question in (YesNo("a"), Choice("a", ("x", "y")), Choice("a", ("x",), other=True)):
            with pytest.raises(AnswerError, match="question 'a': a number of"):
                encode(Survey("s", (question,)), {"a": 10**5000})

    def test_missing(self):
        survey = Survey("s", (YesNo("a"), YesNo("b", missing="option")))
        assert bits_of(survey, {"a": "yes", "b": ""}) == {("a", "yes"), ("b", "(missing)")}
        for answer in ({"a": None, "b": "no"}, {"b": "no"}):
            with pytest.raises(AnswerError, match="question 'a': the answer is missing"):
                encode(survey, answer)

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([True, False, True]),
            pa.array([True, False, True]).dictionary_encode(),
            pa.array([1, 0, 1], pa.uint8()),
            pa.array(["Yes", "no", "TRUE"]),
            pa.array(["yes", "NO", "1"], pa.large_string()),
        ],
        ids=lambda column: str(column.type),
    )
    def test_columns_of_yes_and_no(self, column: Any):
        survey = Survey("s", (YesNo("a"), YesNo("b", missing="option")))
        table = pa.table({"a": column, "b": column})
        assert encode(survey, table).rows.tolist() == [[3], [4], [3]]
        assert encode(survey, table.to_pandas()).rows.tolist() == [[3], [4], [3]]

    def test_a_null_list_keeps_what_lies_beneath_it_to_itself(self):
        """Arrow lets a null list have cells; they are nobody's, and move no other row's."""
        survey = Survey("s", (Flags("f", ("a", "b", "c")),))
        cells, ends = pa.array(["a", "b", "b", "c"]), pa.array([0, 1, 2, 4], pa.int32())
        for gone in range(3):
            mask = pa.array([row == gone for row in range(3)])
            column = pa.ListArray.from_arrays(ends, cells, mask=mask)
            rows = [[1], [2], [6]]
            rows[gone] = [0]
            assert encode(survey, pa.table({"f": column})).rows.tolist() == rows
        one = pa.ListArray.from_arrays(
            pa.array([0, 1, 2, 2], pa.int32()), cells[:2], mask=pa.array([True, False, False])
        )
        assert encode(survey, pa.table({"f": one})).rows.tolist() == [[0], [2], [0]]

    def test_columns_that_are_neither(self):
        survey = Survey("s", (YesNo("a"),))
        with pytest.raises(AnswerError, match="row 2, question 'a': the answer is not yes or no"):
            encode(survey, pa.table({"a": [1, 2]}))
        with pytest.raises(AnswerError, match="row 1, question 'a': the answer is not yes or no"):
            encode(survey, pa.table({"a": [0.5, 0.0]}))
        with pytest.raises(AnswerError, match="row 3, question 'a': the answer is missing"):
            encode(survey, pa.table({"a": [True, False, None]}))
        number = Survey("s", (Number("x", ("1",)),))
        with pytest.raises(
            AnswerError, match="row 2, question 'x': the answer is not a finite number"
        ):
            encode(number, pa.table({"x": [1.0, float("nan")]}))
        with pytest.raises(AnswerError, match="row 1, question 'x': the answer is not a number"):
            encode(number, pa.table({"x": [True, False]}))

    @pytest.mark.parametrize(
        ("city", "label"),
        [
            *(("new  YORK ", "New York"), ("New\u00a0York", "New York"), ("paris", "Paris")),
            *(("NewYork", "(other)"), ("(other)", "(other)"), (75, "(other)")),
        ],
    )
    def test_other_and_folded(self, city: object, label: str):
        answer = {"smokes": "no", "drives": "no", "city": city, "features": "vpn"}
        bits = bits_of(MORE, answer)
        assert ("city", label) in bits
        assert ("features", "VPN") in bits
        assert ("smokes x city x features=VPN", f"not smokes x {label} x VPN") in bits

    def test_other_is_no_home_for_what_is_missing(self):
        answer = {"smokes": "no", "drives": "no", "features": ""}
        for city in (None, "", "  "):
            with pytest.raises(AnswerError, match="question 'city': the answer is missing"):
                encode(MORE, answer | {"city": city})

    def test_a_folded_option_twice(self):
        answer = {"smokes": 1, "drives": 1, "city": "Oslo", "features": "vpn;VPN"}
        with pytest.raises(AnswerError, match="names an option twice"):
            encode(MORE, answer)
        table = pa.Table.from_pylist([in_columns(MORE, answer)])
        with pytest.raises(AnswerError, match=r"row 1, .* names an option twice"):
            encode(MORE, table)

    def test_nobody_answers_a_cross(self):
        answer = {"smokes": 1, "drives": 1, "city": "Oslo", "features": ""}
        cross = MORE.crosses[0].name
        with pytest.raises(AnswerError, match=f"^question '{cross}' follows from the other answ"):
            encode(MORE, answer | {cross: "smokes x Paris x VPN"})
        with pytest.raises(AnswerError, match=r"row 2, .* follows from the other answers"):
            encode(MORE, [answer, answer | {cross: "smokes x Paris x VPN"}])

    def test_the_column_is_that_of_a_table(self):
        """One answer has its questions' names, a table the columns that are declared."""
        answer = {"smokes": 1, "drives": 1, "city": "Oslo", "features": ""}
        wanted = encode(MORE, answer).row
        table = pa.Table.from_pylist([in_columns(MORE, answer)])
        assert "city" not in table.column_names
        assert encode(MORE, table).rows.tobytes() == wanted
        with pytest.raises(AnswerError, match=r"no column 'Where\?'"):
            encode(MORE, table.rename_columns(["smokes", "drives", "city", "features"]))

    def test_two_questions_of_one_column(self, tmp_path: Path):
        survey = Survey("s", (Number("age", (18,)), Number("older", (65,), column="age")))
        (tmp_path / "a.csv").write_text("age\n17\n70\n")
        (tmp_path / "a.ndjson").write_text('{"age": 17}\n{"age": 70}\n')
        pq.write_table(pa.table({"age": [17, 70]}), tmp_path / "a.parquet")
        for name in ("a.csv", "a.ndjson", "a.parquet"):
            assert read(survey, tmp_path / name).tolist() == [[1 | 4], [2 | 8]]


BAD: list[tuple[str, Any, str]] = [
    ("features", ["sync", "tabs"], "is not one of its options"),
    ("features", ["sync", "sync"], "names an option twice"),
    ("features", [None], "is not an option's name"),
    ("features", ["tab"], "is not one of its options"),
    ("languages", "en;fr;de", "sets too many options, at most 2 are allowed"),
    ("channel", "alpha", "is not one of its options"),
    ("channel", None, "the answer is missing"),
    ("channel", "", "the answer is missing"),
    ("channel", "other", "is not one of its options"),
    ("system", "windows", "is not one of its options"),
    ("age", None, "the answer is missing"),
    ("age", "old", "is not a number"),
    ("age", "-inf", "is not a number"),
    ("age", "1_000", "is not a number"),
    ("age", "0x10", "is not a number"),
]
"""Question, value, and what the message says; every one must be refused in every form."""

ONLY_VALUES: list[tuple[str, Any, str]] = [
    ("features", 5.5, "is not a list of options"),
    ("features", {"sync": True}, "is not a list of options"),
    ("features", [1], "is not one of its options"),
    ("features", [1.5], "is not an option's name"),
    ("channel", 1, "is not one of its options"),
    ("channel", True, "is not one option's name"),
    ("channel", ["beta"], "is not one option's name"),
    ("channel", float("nan"), "is not one option's name"),
    ("age", True, "is not a number"),
    ("age", np.True_, "is not a number"),
    ("age", float("nan"), "is not a finite number"),
    ("age", float("inf"), "is not a finite number"),
    ("age", Decimal("NaN"), "is not a finite number"),
    ("age", [40], "is not a number"),
    ("age", b"40", "is not a number"),
    ("age", 1j, "is not a number"),
    ("age", 10**400, "is not a number"),
]


class TestBadAnswers:
    @pytest.mark.parametrize(("question", "value", "why"), BAD + ONLY_VALUES)
    def test_row_and_question_are_named_and_not_the_value(
        self, question: str, value: object, why: str
    ):
        with pytest.raises(AnswerError) as caught:
            encode(SURVEY, [GOOD, GOOD, GOOD | {question: value}])
        assert str(caught.value).startswith(f"row 3, question {question!r}: the answer ")
        assert why in str(caught.value)

    @pytest.mark.parametrize(("question", "value", "why"), BAD)
    def test_in_a_table_too(self, question: str, value: Any, why: str):
        rows = [GOOD, GOOD, GOOD | {question: value}, GOOD]
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in GOOD}
        if isinstance(value, str) and question == "age":
            columns["age"] = list(map(str, columns["age"]))
        if value != [None]:
            columns["features"] = [
                ";".join(cell) if isinstance(cell, list) else cell for cell in columns["features"]
            ]
        with pytest.raises(AnswerError) as caught:
            encode(SURVEY, pa.table(columns))
        assert str(caught.value).startswith(f"row 3, question {question!r}: ")
        assert why in str(caught.value)

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            ({}, "^question 'features': the answer is left out"),
            ({"features": []}, "^question 'channel': the answer is missing"),
            (GOOD | {"colour": "red"}, "^question 'colour' is not asked"),
            (GOOD | {1: 2}, "question 1 is not asked"),
        ],
    )
    def test_questions_left_out_or_made_up(self, answer: dict[Any, Any], why: str):
        with pytest.raises(AnswerError, match=why):
            encode(SURVEY, answer)
        with pytest.raises(AnswerError, match=why.replace("^", "row 2, ")):
            encode(SURVEY, [GOOD, answer])

    @pytest.mark.parametrize("answers", ["x", b"x", 5, None, {1, 2}, iter([GOOD])])
    def test_what_is_no_answer(self, answers: object):
        with pytest.raises(InputError, match="answers must be"):
            encode(SURVEY, answers)

    def test_a_row_that_is_no_mapping(self):
        with pytest.raises(AnswerError, match="row 2 must map questions"):
            encode(SURVEY, [GOOD, ["sync"]])

    @pytest.mark.parametrize("channel", ["x" * 10_000, "a\nb\x1b[31m"])
    def test_a_strange_value_does_not_flood_the_terminal(self, channel: str):
        with pytest.raises(AnswerError) as caught:
            encode(SURVEY, GOOD | {"channel": channel})
        assert len(str(caught.value)) < 250
        assert str(caught.value).isprintable()

    def test_columns_that_are_missing_or_there_twice(self):
        survey = Survey("s", (Flags("f", ("a", "b")),))
        table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["f", "f"])
        with pytest.raises(AnswerError, match="has column 'f' twice"):
            encode(survey, table)
        with pytest.raises(AnswerError, match="no column 'f'") as caught:
            encode(survey, pa.table({"a\nb": ["a"], **{f"c{i}": ["a"] for i in range(500)}}))
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()

    @pytest.mark.parametrize(
        "column",
        [
            *(pa.array([value]) for value in ({"a": 1}, b"\xff", [1], True, [["a"]])),
            *(pa.array([1], kind) for kind in (pa.timestamp("s"), pa.date32(), pa.duration("s"))),
            pa.array([["a"]], pa.list_(pa.string(), 1)),
        ],
        ids=lambda column: str(column.type),
    )
    @pytest.mark.parametrize(
        "question", [Flags("x", ("p", "q")), Choice("x", ("p", "q")), Number("x", ("1",))]
    )
    def test_columns_of_other_types(self, question: Any, column: Any):
        """Each is refused, and the message names the question."""
        if isinstance(question, Number) and pa.types.is_duration(column.type):
            return  # seconds are a number
        with pytest.raises(AnswerError, match="'x'"):
            encode(Survey("s", (question,)), pa.table({"x": column}))

    def test_integers_as_options_are_the_same_question_in_a_table_and_one_by_one(self):
        survey = Survey("s", (Choice("x", ("1", "2")),))
        for given_ in ([{"x": 1}, {"x": 2}], pa.table({"x": [1, 2]})):
            assert encode(survey, given_).rows.tolist() == [[1], [2]]


def as_cells(survey: Survey, row: dict[str, Any]) -> dict[str, str]:
    """The answer as the text of a CSV file."""
    return {
        column: ";".join(value) if isinstance(value, list) else "" if value is None else str(value)
        for column, value in in_columns(survey, row).items()
    }


def in_columns(survey: Survey, row: dict[str, Any]) -> dict[str, Any]:
    return {question.table_column: row[question.name] for question in survey.asked}


def csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@st.composite
def answered(draw: st.DrawFn) -> tuple[Survey, list[dict[str, Any]]]:
    survey = draw(surveys())
    return survey, draw(st.lists(answers(survey), min_size=1, max_size=6))


def read(survey: Survey, path: Path) -> np.ndarray[Any, Any]:
    return np.concatenate([original.rows for original in read_answers(survey, path)])


def arrow_table(survey: Survey, rows: list[dict[str, Any]]) -> Any:
    types = {Number: pa.float64(), Flags: pa.list_(pa.string())}
    return pa.table(
        {
            question.table_column: pa.array(
                [row[question.name] for row in rows], types.get(type(question), pa.string())
            )
            for question in survey.asked
        }
    )


class TestOneByOneAndTables:
    """Every way in gives the bits that `encode` gives row by row."""

    @pytest.mark.slow
    @given(answered())
    @bounded(60)
    def test_arrow_pandas_polars(self, case: tuple[Survey, list[dict[str, Any]]]):
        survey, rows = case
        wanted = encode(survey, rows).rows
        table = arrow_table(survey, rows)
        assert (encode(survey, table).rows == wanted).all()
        assert (encode(survey, table.to_batches()[0]).rows == wanted).all()
        assert (encode(survey, pl.from_arrow(table)).rows == wanted).all()
        names = table.column_names
        cells = pa.table({n: [as_cells(survey, row)[n] for row in rows] for n in names})
        assert (encode(survey, cells).rows == wanted).all()
        assert (encode(survey, pd.DataFrame(cells.to_pydict())).rows == wanted).all()
        assert (encode(survey, table.to_pandas()).rows == wanted).all()
        dictionary = pa.table({n: cells[n].combine_chunks().dictionary_encode() for n in names})
        assert (encode(survey, dictionary).rows == wanted).all()

    @pytest.mark.slow
    @given(answered())
    @bounded(60)
    def test_csv_ndjson_parquet(self, tmp_path: Path, case: tuple[Survey, list[dict[str, Any]]]):
        survey, rows = case
        wanted = encode(survey, rows).rows
        names = [question.table_column for question in survey.asked]
        lines = [",".join(map(csv_cell, names))]
        lines += [",".join(csv_cell(as_cells(survey, row)[n]) for n in names) for row in rows]
        (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", "utf-8")
        text = "\n".join(json.dumps(in_columns(survey, row)) for row in rows)
        (tmp_path / "a.ndjson").write_text(text, "utf-8")
        pq.write_table(arrow_table(survey, rows), tmp_path / "a.parquet")
        for name in ("a.csv", "a.ndjson", "a.parquet"):
            assert (read(survey, tmp_path / name) == wanted).all(), name

    @pytest.mark.parametrize("rows", [65_536, 65_537])
    def test_tables_longer_than_a_block(self, rows: int):
        """List columns, nulls and numbers keep their places where blocks meet."""
        choice = Choice("c", ("x", "y"), missing="option")
        survey = Survey("s", (Flags("f", ("a", "b")), choice, Number("n", ("1", "2"))))
        which = np.random.default_rng(3).integers(0, 3, rows)
        table = pa.table(
            {
                "f": pa.array([[["a"], ["a", "b"], None][i] for i in which]),
                "c": pa.array([["x", "y", None][i] for i in which]),
                "n": pa.array(which.astype(np.int8)),
            }
        )
        wanted = np.array([1 | 4 | 32, 3 | 8 | 64, 16 | 128], np.uint8)[which]
        assert (encode(survey, table).rows[:, 0] == wanted).all()

    def test_the_row_of_a_bad_answer_in_a_later_block(self):
        survey = Survey("s", (Choice("c", ("x", "y")),))
        column = ["x"] * 70_000
        column[68_999] = "z"
        with pytest.raises(
            AnswerError, match="row 69000, question 'c': the answer is not one of its"
        ):
            encode(survey, pa.table({"c": column}))

    def test_more_columns_than_questions(self):
        survey = Survey("s", (Flags("f", ("a", "b")),))
        assert encode(survey, pa.table({"name": ["Ann"], "f": ["b"]})).rows.tolist() == [[2]]

    def test_the_format_is_for_tables(self):
        survey = Survey("s", (Number("x", ("1",), missing="option"),))
        declared = TableFormat(decimal=",", missing=["-"])
        rows = [{"x": "0,5"}, {"x": "1,5"}, {"x": "-"}]
        for given_ in (rows, pa.Table.from_pylist(rows), pd.DataFrame(rows)):
            assert encode(survey, given_, table_format=declared).rows.tolist() == [[1], [2], [4]]
        with pytest.raises(
            AnswerError, match="row 1, question 'x': the answer has another decimal sign"
        ):
            encode(survey, [{"x": "0.5"}], table_format=declared)
        with pytest.raises(InputError, match="for tables and lists"):
            encode(survey, rows[0], table_format=declared)

    def test_texts_that_are_no_unicode(self):
        survey = Survey("s", (Text("t", bits=8, hashes=1, cohorts=1),))
        with pytest.raises(AnswerError, match=r"row 2, question 't': .* is not valid Unicode"):
            encode(survey, [{"t": "a"}, {"t": "\ud800"}])
        lenient = TableFormat(invalid="missing")
        rows = encode(survey, [{"t": "a"}, {"t": "\ud800"}], table_format=lenient).rows
        assert (rows[0].any(), rows[1].any()) == (True, False)

    def test_decimal_columns(self):
        survey = Survey("s", (Number("x", ("0.1", "2.5")),))
        column = pa.array([Decimal("0.1"), Decimal("0.09"), Decimal("2.50")], pa.decimal128(9, 2))
        assert encode(survey, pa.table({"x": column})).rows.tolist() == [[2], [1], [4]]

    def test_missing_numbers_of_pandas(self):
        survey = Survey("s", (Number("x", ("1",), missing="option"),))
        frame = pd.DataFrame({"x": [1.0, None, 0.0]})
        assert encode(survey, frame).rows.tolist() == [[2], [4], [1]]


GRID = Survey("grid", (Number("n", low=-1, high=3, points=5, missing="option"),))


@pytest.mark.parametrize(
    ("number", "mean"), [(-1, -1), (0, 0), (0.25, 0.25), (1.9, 1.9), (3, 3), (-7, -1), (3.01, 3)]
)
def test_rounding_keeps_the_mean(number: float, mean: float):
    """Every uniform draw of a fine lattice, for one answer; many draws, for columns."""
    question = GRID["n"]
    assert isinstance(question, Number)
    draws = (np.arange(1000) + 0.5) / 1000
    places = [set_bits(question, number, lambda place, u=u: u) for u in draws]  # type: ignore[misc]
    points = np.array([float(question.grid[place]) for (place,) in places])
    assert points.mean() == pytest.approx(mean, abs=1e-3)
    assert (np.abs(points - mean) < 1).all()
    columns: list[Any] = [[number], [str(number)], [Decimal(str(number))]]
    for column in columns:
        table = pa.table({"n": pa.array(column * 40_000)})
        rows = encode(GRID, table, random_bits=SimulationBits(5)).rows
        bits = np.unpackbits(rows, axis=1, bitorder="little")
        assert (bits.sum(axis=1) == 1).all()
        points = bits[:, :5] @ np.arange(-1, 4)
        assert points.mean() == pytest.approx(mean, abs=0.5 * 6 / 200)  # six sigma
        assert (np.abs(points - mean) < 1).all()


def test_rounding_is_drawn_for_each_person():
    """Equal numbers in one table are rounded apart."""
    for cells in ([0.5] * 64, ["0.5"] * 64, [0.5, "0.5"] * 32):
        rows = encode(GRID, [{"n": cell} for cell in cells]).rows
        assert len(np.unique(rows)) == 2  # fails with probability 2^-63 each


def test_rounding_costs_no_privacy():
    """Two people, all reports, in fractions: numbers between the points are mixtures of points."""
    question, q = Number("n", low=0, high=2, points=3), Fraction(1, 4)

    def report_law(number: Fraction) -> dict[tuple[int, ...], Fraction]:
        """Set bits by the device's own code, for each of twelve draws."""
        law: dict[tuple[int, ...], Fraction] = {}
        for draw in range(12):
            bits = set_bits(question, float(number), lambda place, u=(draw + 0.5) / 12: u)  # type: ignore[misc]
            for report in product((0, 1), repeat=3):
                flipped = sum(bit != (at in bits) for at, bit in enumerate(report))
                chance = q**flipped * (1 - q) ** (3 - flipped) / 12
                law[report] = law.get(report, Fraction(0)) + chance
        return law

    def release(*people: Fraction) -> dict[tuple[tuple[int, ...], ...], Fraction]:
        laws = [report_law(number).items() for number in people]
        found: dict[tuple[tuple[int, ...], ...], Fraction] = {}
        for pairs in product(*laws):
            key = tuple(sorted(report for report, _ in pairs))
            found[key] = found.get(key, Fraction(0)) + math.prod(chance for _, chance in pairs)
        return found

    def worst(numbers: list[Fraction], lam: Fraction) -> Fraction:
        zero = Fraction(0)
        others = {(x, y): release(x, y) for x, y in product(numbers, repeat=2)}
        return max(
            sum(
                (
                    max(chance - lam * others[b, y][key], zero)
                    for key, chance in others[a, y].items()
                ),
                zero,
            )
            for a, b, y in product(numbers, repeat=3)
        )

    points = [Fraction(n) for n in range(3)]
    between = [*points, Fraction(1, 3), Fraction(3, 2)]
    for lam in (Fraction(1), Fraction(3, 2), Fraction(3)):
        assert worst(between, lam) == worst(points, lam) > 0


class TestFuzz:
    @pytest.mark.slow
    @given(
        st.dictionaries(
            st.sampled_from(list(GOOD)),
            st.one_of(
                st.none(),
                st.text(max_size=5),
                st.floats(),
                st.integers(),
                st.booleans(),
                st.lists(st.text(max_size=4), max_size=3),
                st.binary(max_size=3),
                st.dictionaries(st.text(max_size=2), st.none(), max_size=1),
            ),
        )
    )
    @bounded(200)
    def test_any_answer(self, answer: dict[str, Any]):
        try:
            encode(SURVEY, GOOD | answer)
        except ShoalError:
            return


@pytest.mark.parametrize(
    "limits",
    [
        {"low": 10**17, "high": 10**17 + 1, "whole": True},
        {"low": 1, "high": "1.000000000000000000000000000001", "points": 2},
    ],
)
def test_points_that_floats_cannot_tell_apart_are_refused(limits: dict[str, Any]):
    with pytest.raises(SurveyError, match="too close"):
        Number("n", **limits)


class TestDates:
    def test_one_answer_and_many(self):
        survey = Survey(
            "s", (Date("m", "month"), Date("d", "weekday"), Date("w", "week", "option"))
        )
        assert survey.bits == 12 + 7 + 54
        day = datetime.date(2026, 12, 31)  # a Thursday in ISO week 53
        answers = [
            dict.fromkeys("mdw", one)
            for one in (
                day,
                datetime.datetime(2026, 12, 31, 5),
                "2026-12-31",
                " 2026-12-31T23:59Z ",
            )
        ]
        expected = (1 << 11) | (1 << 15) | (1 << (19 + 52))
        assert {encode(survey, one).value for one in answers} == {expected}
        packed = [row.tobytes() for row in encode(survey, answers).rows]
        assert set(packed) == {expected.to_bytes(10, "little")}
        frame = pd.DataFrame(dict.fromkeys("mdw", pd.to_datetime(["2026-12-31"])))
        column = pa.array([day])
        for table in (frame, pa.table(dict.fromkeys("mdw", column))):
            assert encode(survey, table).rows[0].tobytes() == packed[0]
        with pytest.raises(AnswerError, match=r"'31\.12\.2026' is not a date such as 2026-03-31"):
            encode(survey, dict.fromkeys("mdw", "31.12.2026"))
        for absent in (pd.NaT, 5, ["2026-12-31"]):
            with pytest.raises(AnswerError, match="is not a date"):
                encode(survey, dict.fromkeys("mdw", absent))

    def test_a_part_that_is_none(self):
        for by in ("year", 5, ["month"], None):
            with pytest.raises(SurveyError, match="by of question 'd' must be one of 'month'"):
                Date("d", by)  # type: ignore[arg-type]


def test_other_flags():
    survey = Survey("s", (Flags("f", ("a", "b"), other=True, at_most=2),))
    assert survey["f"].labels == ("a", "b", "(other)")
    for answer, bits in (("a;x", 5), (["x", "y"], 4), ("", 0), ("a;b", 3), ([7, 8, "b"], 6)):
        assert encode(survey, {"f": answer}).value == bits
        assert encode(survey, [{"f": answer}]).rows.tolist() == [[bits]]
    lists = pa.table({"f": [["a", "x"], ["x", "y"], None]})
    assert encode(survey, lists).rows.tolist() == [[5], [4], [0]]
    with pytest.raises(AnswerError, match="too many"):
        encode(survey, {"f": "a;b;x"})
    with pytest.raises(AnswerError, match="twice"):
        encode(survey, {"f": "a;a"})


def test_plain_numbers_are_read_alike_in_columns_and_cells():
    """Arrow reads a column of plain numbers, the format each cell."""
    texts = ["1", "-2.5", "007", "1e3", ".5", "5.", "+3", "1E-2", "9007199254740993", "0.1"]
    question = Number(
        "n", tuple(str(edge) for edge in (-2, 0.05, 0.4, 0.5, 1, 3, 6, 8, 1000, 10**15))
    )
    survey = Survey("s", (question,))
    whole = encode(survey, pa.table({"n": texts})).rows
    assert (whole == encode(survey, [{"n": text} for text in texts]).rows).all()
