"""The options that declare how a table is written, at every command that reads one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli import run

SURVEY = """
name = "shop"
[[question]]
name = "city"
kind = "choice"
options = ["Zürich", "Bern"]
missing = "option"
[[question]]
name = "price"
kind = "number"
edges = [10]
missing = "option"
[table]
encoding = "windows-1252"
delimiter = ";"
decimal = ","
"""
ROWS = 'city;price\nZürich;9,5\nBern;-\n"Bern;12\n\nZürich;2;3\n'


@pytest.fixture(autouse=True)
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("survey.toml").write_text(SURVEY, "utf-8")
    Path("t.csv").write_bytes(ROWS.encode("windows-1252"))
    assert run(["plan", "survey.toml", "--q", "0.2", "-o", "plan.json"]) == 0
    return tmp_path


DECLARED = ["--encoding", "windows-1252", "--delimiter", ";", "--decimal", ",", "--missing", "-"]
COMMANDS = {
    "encode": ["encode", "plan.json", "t.csv", "-o", "o.parquet"],
    "randomize": ["randomize", "plan.json", "t.csv", "-o", "r.parquet"],
    "randomize many": ["randomize", "plan.json", "t.csv", "-o", "."],
    "simulate": ["simulate", "plan.json", "--answers", "t.csv", "--seed", "1"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_that_cannot_be_read(name: str, capsys):
    """Three of five rows are no rows of two cells; the others are answers."""
    words = list(COMMANDS[name])
    if name == "randomize many":
        words[-1] = "reports"
        Path("reports").mkdir()
    assert run([*words, *DECLARED, "--json"]) == 2
    said = capsys.readouterr()
    assert "3 answers are not allowed" in said.err
    assert "row 3 has a quote that is not closed" in said.err
    assert "row 4 has 1 columns, the header 2" in said.err
    assert run([*words, *DECLARED, "--invalid", "missing", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert 5 in document.values()
    more = ["--table-format", "survey.toml", "--missing", "-", "--invalid", "missing"]
    assert run([*words, *more]) == 0


def test_the_survey_must_have_an_option_for_invalid_answers(capsys):
    Path("survey.toml").write_text(SURVEY.replace('missing = "option"\n', "", 1), "utf-8")
    assert run(["plan", "survey.toml", "--q", "0.2", "-o", "other.json"]) == 0
    words = ["randomize", "other.json", "t.csv", "-o", "r.parquet", *DECLARED]
    assert run([*words, "--invalid", "missing"]) == 2
    assert "needs missing = \"option\" in question 'city'" in capsys.readouterr().err


def test_wrong_declarations(capsys):
    Path("t.csv").write_text("city;price\nBern;3\n", "utf-8")
    for words, why in {
        "--encoding utf-16": "encoding must be one of",
        "--delimiter tabs": "delimiter must be one of",
        "--decimal x": "decimal must be one of",
        "--table-format plan.json": "plan.json is a plan, not a survey",
        "--table-format none.toml": "cannot read survey none.toml",
        "": "declare --delimiter ';'",
    }.items():
        assert run(["encode", "plan.json", "t.csv", "-o", "o.parquet", *words.split()]) == 2
        said = capsys.readouterr().err
        assert why in said
        assert len(said.splitlines()) == 1


def test_the_curator_takes_the_same_options(capsys):
    words = ["curator", "t.csv", "--count", "city=Zürich", "--epsilon", "1000", "--json"]
    words += ["--neighbours", "replace", *DECLARED]
    assert run(words) == 2
    said = capsys.readouterr().err
    assert "row 3 has a quote that is not closed" in said
    assert run([*words, "--invalid", "missing"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["value"], document["rows"]) == (1, 5)
