"""From an export as people have it to a report page, without editing the data."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal import Choice, Date, Flags, Number, Survey, plan
from shoal.cli import run
from shoal.device.arrays.files import read_answers
from shoal.device.arrays.infer_survey import infer_survey
from shoal.support.table_format import TableFormat
from tests import messy_tables as messy

EXPORTS: dict[str, tuple[Callable[[Random, int], dict[str, str]], str, str]] = {
    "german": (messy.german, ";", "utf-8-sig"),
    "german, Windows": (messy.german, ";", "windows-1252"),
    "french": (messy.french, ",", "utf-8"),
    "american": (messy.american, "\t", "utf-8"),
}
KINDS = {
    "german": "left out,left out,number,number,number,number,flags,choice,choice,date,left out,"
    "number,choice,choice",
    "french": "left out,left out,number,number,flags,choice,date,choice",
    "american": "left out,number,flags,date,yes/no,number,number",
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * ("Windows" in one)) for one in EXPORTS]
)
def test_an_export_is_inferred_and_read(name: str, tmp_path: Path):
    """Every row but blank ones and the total is one person; few cells are lost."""
    row, delimiter, encoding = EXPORTS[name]
    people = 1000
    path = tmp_path / "export.csv"
    messy.write_csv(path, messy.table(people, row, 4), delimiter, encoding)
    proposal = infer_survey(path, dates="month")
    assert [one.kind for one in proposal.columns] == KINDS[row.__name__].split(",")
    written = proposal.table_format
    assert (written.delimiter, written.inferred) == (delimiter, True)
    assert Survey.from_toml(proposal.to_toml()) == proposal.survey
    (tmp_path / "s.toml").write_text(proposal.to_toml(), "utf-8")
    assert TableFormat.from_toml(tmp_path / "s.toml") == written
    originals = list(read_answers(proposal.survey, path, written))
    assert sum(map(len, originals)) == people
    toml = proposal.to_toml()
    for private in ("kunde7@", "my own tool", "Ort ", "ca. 40", "Hefte"):
        assert private not in toml


def test_an_export_in_excel_and_parquet_is_the_same_survey(tmp_path: Path):
    rows = messy.table(600, messy.american, 5)
    header, *people = [row for row in rows[:-1] if any(row)]
    messy.write_csv(tmp_path / "x.csv", rows, ",", "utf-8")
    book = openpyxl.Workbook()
    book.active.append(["Survey of the year"])
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    table = pa.table({name: [row[place] for row in people] for place, name in enumerate(header)})
    pq.write_table(table, tmp_path / "x.parquet")
    inferred = [infer_survey(tmp_path / f"x.{end}") for end in ("csv", "xlsx", "parquet")]
    assert len({one.survey.digest for one in inferred}) == 1
    assert inferred[1].table_format.skip_first == 1
    for one, end in zip(inferred, ("csv", "xlsx", "parquet"), strict=True):
        read = read_answers(one.survey, tmp_path / f"x.{end}", one.table_format)
        assert sum(map(len, read)) == 600


def test_typed_cells_of_excel(tmp_path: Path):
    """Each cell by itself: numbers take the declared decimal sign, dates are dates."""
    book = openpyxl.Workbook()
    for row in (
        ["price", "when", "tags", "on"],
        [9.5, datetime.datetime(2025, 2, 3, 4, 5), "a\nb", True],
        ["12,5", "04.03.2025", "b", "no"],
        [None, None, None, None],
        [7, datetime.date(2025, 1, 31), None, 1],
    ):
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    survey = Survey(
        "s",
        (
            Number("price", (8, 10), "option"),
            Date("when", "month", "option"),
            Flags("tags", ("a", "b")),
            Choice("on", ("yes", "no", "1")),
        ),
    )
    written = TableFormat(decimal=",", dates="dmy", separator="\n", skip_blank=True)
    (original,) = read_answers(survey, tmp_path / "x.xlsx", written)
    labels = survey.labels
    found = [
        [labels[bit][1] for bit in range(survey.bits) if row[bit // 8] >> bit % 8 & 1]
        for row in original.rows
    ]
    assert found == [
        ["8 to below 10", "February", "a", "b", "yes"],
        ["10 and above", "March", "b", "no"],
        ["below 8", "January", "1"],
    ]


def test_excel_files_that_are_none(tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04 no")
    assert run(["survey", "from", str(tmp_path / "x.xlsx")]) == 2
    assert "is not a valid Excel file" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["survey", "from", str(tmp_path / "x.xlsx")]) == 2
    assert "needs openpyxl: pip install 'shoal[analysis]'" in capsys.readouterr().err


def test_problems_of_all_columns_in_one_run(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    survey = Survey(
        "s",
        (
            Flags("tools", ("Python", "R")),
            Number("pay", low=0, high=9000, points=10),
            Choice("city", ("Rome", "Oslo")),
            Date("day", "month"),
        ),
    )
    plan(survey, q="0.25").write(Path("plan.json"))
    with Path("x.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["tools", "pay", "city", "day"])
        for row in range(900):
            pay = "n/a" if row % 100 == 3 else "€ 1.234,50"
            city = "Atlantis, secretly" if row % 300 == 2 else "rome"
            writer.writerow(["R | Python", pay, city, "31.12.2025"])
    assert run("randomize plan.json x.csv -o r.parquet".split()) == 2
    assert capsys.readouterr().err.splitlines() == [
        "shoal: 3,600 answers are not allowed, so nothing was written:",
        '  question \'tools\': 900 cells contain "|"; set separator = "|" of the column (rows 1,'
        " 2, 3, ...)",
        "  question 'day': 900 cells do not begin with a year; set dates = \"dmy\" of the column"
        " (rows 1, 2, 3, ...)",
        "  question 'city': 897 cells differ from an option in case or blanks; set fold = true in"
        " the question (rows 1, 2, 4, ...)",
        '  question \'pay\': 891 cells contain "€"; set units = ["€"] and decimal = "," of the'
        " column (rows 1, 2, 3, ...)",
        "  question 'pay': 9 cells are a usual text for no answer; add \"n/a\" to missing of the"
        " column (rows 4, 104, 204, ...)",
        "  question 'city': 3 cells are not one of its options; if others are allowed, set other"
        " = true in the question (rows 3, 303, 603)",
        "Columns are declared in [table.columns.NAME] of the survey file.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_20_000_rows(name: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row, delimiter, encoding = EXPORTS[name]
    messy.write_csv(Path("x.csv"), messy.table(20_000, row, 7), delimiter, encoding)
    for command in (
        "survey from x.csv --dates month -o s.toml",
        "plan s.toml --crowd 20000 --epsilon 1 --delta 1e-6 -o plan.json",
        "randomize plan.json x.csv --table-format s.toml -o reports.parquet",
        "publish plan.json reports.parquet -o page.html",
        "publish plan.json reports.parquet -o page.json",
    ):
        assert run(command.split()) == 0
    published: Any = json.loads(Path("page.json").read_text("utf-8"))
    assert published["estimates"]["reports"] == 20_000
