"""How a table is declared: what is allowed, and what a cell is by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import Survey
from shoal.errors import InputError, SurveyError
from shoal.support.csv_rows import MAX_LINE, read_csv
from shoal.support.table_format import TableFormat

SURVEY = 'name = "s"\n[[question]]\nname = "c"\nkind = "choice"\noptions = ["x", "y"]\n'


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("encoding", "utf-16"), ("encoding", "rot13"), ("encoding", None), ("delimiter", "")),
        *(("delimiter", "ab"), ("delimiter", "\n"), ("decimal", "'"), ("missing", "NA")),
        *(("missing", [1]), ("missing", ["x"] * 101), ("invalid", "drop"), ("quote", "'")),
    ],
)
def test_other_declarations_are_refused(field: str, value: object):
    with pytest.raises(InputError, match=field):
        TableFormat.from_json({field: value})


def test_a_survey_file_may_declare_the_format(tmp_path: Path):
    path = tmp_path / "s.toml"
    section = '[table]\ndelimiter = "\\t"\nmissing = ["NA", " "]\ninvalid = "missing"\n'
    path.write_text(SURVEY + section, "utf-8")
    declared = TableFormat.from_toml(path)
    assert declared == TableFormat(delimiter="\t", missing=("NA",), invalid="missing")
    assert Survey.from_toml(path).digest == Survey.from_toml(SURVEY).digest
    path.write_text(declared.to_toml(), "utf-8")
    assert TableFormat.from_toml(path) == declared


def test_a_survey_file_with_a_wrong_format(tmp_path: Path):
    with pytest.raises(SurveyError, match="decimal must be one of"):
        Survey.from_toml(SURVEY + '[table]\ndecimal = "x"\n')
    (tmp_path / "s.toml").write_text(SURVEY, "utf-8")
    with pytest.raises(InputError, match=r"has no \[table\] section"):
        TableFormat.from_toml(tmp_path / "s.toml")
    with pytest.raises(InputError, match="cannot read"):
        TableFormat.from_toml(tmp_path / "none.toml")
    (tmp_path / "s.toml").write_text("[", "utf-8")
    with pytest.raises(InputError, match="not valid TOML"):
        TableFormat.from_toml(tmp_path / "s.toml")


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        *(("3", 3, 3), (" -4.25 ", -4.25, None), ("-4,25", None, -4.25)),
        *(("1.234,50", None, 1234.5), ("1.234.567", None, 1234567), ("1.678", 1.678, None)),
        *(("1e3", 1000, 1000), ("1e999", None, None), ("nan", None, None), ("1_0", None, None)),
        *(("٣", None, None), ("", None, None)),
    ],
)
def test_numbers(text: str, point: float | None, comma: float | None):
    assert TableFormat().number(text) == point
    assert TableFormat(decimal=",").number(text) == comma


def test_markers_of_missing_values():
    declared = TableFormat(missing=["-99", "NA"])
    assert [declared.is_missing(one) for one in (None, "", " NA ", "-99", -99, -99.0)] == [True] * 6
    present: tuple[object, ...] = ("na", 99, 0, False, [], b"NA", -99.5)
    assert not any(declared.is_missing(one) for one in present)


def test_a_line_that_is_too_long_is_one_invalid_row(tmp_path: Path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a\n1\n" + b"x" * (MAX_LINE + 1) + b"\n2\n" + b"x" * MAX_LINE + b"\n3\n")
    read = list(read_csv(path, ["a"], TableFormat()))
    cells = [cell for one in read for cell in one.columns["a"]]
    assert [cell[:2] for cell in cells] == ["1", "", "2", "xx", "3"]
    problems = [problem.why for one in read for problem in one.problems]
    assert problems == [f"is longer than {MAX_LINE:,} characters"]
