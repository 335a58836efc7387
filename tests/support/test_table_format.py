"""How a table is declared: what is allowed, and what a cell is by it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from shoal import Survey
from shoal.errors import InputError, SurveyError
from shoal.support import csv_rows
from shoal.support.csv_rows import TableSource, read_csv
from shoal.support.table_files import read_table
from shoal.support.table_format import TableFormat

SURVEY = 'name = "s"\n[[question]]\nname = "c"\nkind = "choice"\noptions = ["x", "y"]\n'


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


def test_markers_of_missing_values():
    declared = TableFormat(missing=["-99", "NA"])
    assert [declared.is_missing(one) for one in (None, "", " NA ", "-99", -99, -99.0)] == [True] * 6
    present: tuple[object, ...] = ("na", 99, 0, False, [], b"NA", -99.5)
    assert not any(declared.is_missing(one) for one in present)


def test_a_line_that_is_too_long_is_one_invalid_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "x.csv"
    monkeypatch.setattr(csv_rows, "MAX_LINE", 5000)
    monkeypatch.setattr(csv_rows, "_BLOCK", 1000)
    path.write_bytes(b"a\n1\n" + b"x" * 5001 + b"\n2\n" + b"x" * 5000 + b"\n3\n")
    read = list(read_csv(TableSource(path, ["a"])))
    cells = [cell for one in read for cell in one.table.column("a").to_pylist()]
    assert [cell[:2] for cell in cells] == ["1", "", "2", "xx", "3"]
    problems = [problem.why for one in read for problem in one.problems]
    assert problems == ["is longer than 5,000 characters"]


def test_fields_of_a_column(tmp_path: Path):
    """They replace the table's, and are not part of the survey."""
    path = tmp_path / "s.toml"
    section = '[table]\nmissing = ["-"]\n[table.columns."Pay ($)"]\nunits = ["$"]\nmissing = []\n'
    path.write_text(SURVEY + section, "utf-8")
    declared = TableFormat.from_toml(path)
    pay, other = declared.column("Pay ($)"), declared.column("other")
    assert (pay.number("$ 5"), pay.is_missing("-")) == (5, False)
    assert (other.number("$ 5"), other.is_missing("-")) == (None, True)
    assert Survey.from_toml(path).digest == Survey.from_toml(SURVEY).digest
    path.write_text(declared.to_toml(), "utf-8")
    assert TableFormat.from_toml(path) == declared
    assert hash(declared) == hash(TableFormat.from_toml(path))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"columns": {"x": {"encoding": "utf-8"}}}, "'x' has an unknown field 'encoding'"),
        ({"columns": {"x": {"decimal": "'"}}}, "'x': decimal must be one of"),
        ({"columns": ["x"]}, "columns maps columns"),
        ({"decimal": ",", "thousands": ","}, None),
        ({"thousands": "."}, None),
        ({"separator": "and"}, "separator must be"),
        ({"separator": ""}, "separator must be"),
        ({"skip_last": -1}, "skip_last"),
        ({"skip_blank": 1}, "skip_blank is true or false"),
        ({"inferred": "yes"}, "inferred is true or false"),
        ({"dates": "dym"}, "dates must be one of"),
        ({"units": "€"}, "units must be a list"),
        *(({"encoding": one}, "encoding") for one in ("utf-16", "rot13", None)),
        *(({"delimiter": one}, "delimiter") for one in ("", "ab", "\n")),
        *(({"missing": one}, "missing") for one in ("NA", [1], ["x"] * 101)),
        *(
            ({"decimal": "'"}, "decimal"),
            ({"invalid": "drop"}, "invalid"),
            ({"quote": "'"}, "quote"),
        ),
    ],
)
def test_declarations_that_are_refused(document: dict[str, object], why: str | None):
    with pytest.raises(InputError, match=why or "thousands and decimal must differ"):
        TableFormat.from_json(document)


@pytest.mark.parametrize(
    ("text", "point", "comma"),
    [
        *(("1,234.50", 1234.5, None), ("1'234", 1234, 1234), ("1 234,5", None, 1234.5)),
        *(("€ 1.234,50", None, 1234.5), ("CHF 80'000.-", 80000, None), ("-$12.50", -12.5, None)),
        *(("$ -12", -12, -12), ("35 %", 35, 35), ("--5", None, None), ("- $ -5", None, None)),
        *(("1,234", None, 1.234), ("1,234,567", 1234567, None), ("12,34,567", None, None)),
        *(
            ("\N{MINUS SIGN}3", -3, -3),
            ("USD 5", None, None),
            ("€", None, None),
            ("1 23", None, None),
        ),
        *(("3", 3, 3), (" -4.25 ", -4.25, None), ("-4,25", None, -4.25)),
        *(("1.234,50", None, 1234.5), ("1.234.567", None, 1234567), ("1.678", 1.678, None)),
        *(("1e3", 1000, 1000), ("1e999", None, None), ("nan", None, None), ("1_0", None, None)),
        *(("٣", None, None), ("", None, None)),
    ],
)
def test_numbers(text: str, point: float | None, comma: float | None):
    units = ["€", "CHF", "$", "%"]
    assert TableFormat(units=units).number(text) == point
    assert TableFormat(units=units, decimal=",").number(text) == comma


def test_thousands_are_declared():
    assert TableFormat(thousands=",").number("1,234") == 1234
    assert TableFormat(decimal=",", thousands=".").number("1.234") == 1234
    assert "thousands" in TableFormat().why_no_number("1,234")


@pytest.mark.parametrize(
    ("text", "dmy", "mdy"),
    [
        *(("2025-12-31", (2025, 12, 31), (2025, 12, 31)), ("31.12.2025", (2025, 12, 31), None)),
        *(("12/31/2025", None, (2025, 12, 31)), ("3/4/25", (2025, 4, 3), (2025, 3, 4))),
        *(("31.12.70 23:59", (1970, 12, 31), None), ("29.02.2025", None, None)),
        *(("2025-12-31T10:00:00+01:00", (2025, 12, 31), (2025, 12, 31)), ("1.2.345", None, None)),
        *(("3/4/2024 2:05 PM", (2024, 4, 3), (2024, 3, 4)), ("31.12/2025", None, None)),
    ],
)
def test_dates(text: str, dmy: tuple[int, int, int] | None, mdy: tuple[int, int, int] | None):
    for order, day in (("dmy", dmy), ("mdy", mdy)):
        read = TableFormat.from_json({"dates": order}).date(text)
        assert read == (None if day is None else datetime.date(*day))


def rows_of(path: Path, content: bytes, written: TableFormat) -> list[tuple[str, ...]]:
    path.write_bytes(content)
    batches = list(read_table(path, None, written))
    return [tuple(row.values()) for one in batches for row in one.table.to_pylist()]


def test_line_breaks_in_quoted_cells(tmp_path: Path):
    content = b'a,"b\nb"\r\n1,"x\r\ny"\r\n\r\n2,"say ""hi""\n"\r\n'
    written = TableFormat(quoted_breaks=True, skip_blank=True)
    assert rows_of(tmp_path / "x.csv", content, written) == [("1", "x\r\ny"), ("2", 'say "hi"\n')]


@pytest.mark.parametrize("row", [b'3,"x', b'3,"x"y', b"3", b"3,4,5"])
@pytest.mark.parametrize("invalid", ["error", "missing"])
def test_a_row_that_could_swallow_others_refuses_the_file(row: bytes, invalid: str, tmp_path: Path):
    written = TableFormat.from_json({"quoted_breaks": True, "invalid": invalid})
    content = b"a,b\n1,2\n" + row + b'\n5,"6"\n'
    with pytest.raises(InputError, match=r"row 2 of .* the whole file is refused"):
        rows_of(tmp_path / "x.csv", content, written)


def test_rows_about_nobody(tmp_path: Path):
    content = b"Export of May\n\na;b\n1;2\n;\n\n3;\n ; \nTotal;5\n"
    written = TableFormat(delimiter=";", skip_first=2, skip_last=1, skip_blank=True)
    assert rows_of(tmp_path / "x.csv", content, written) == [("1", "2"), ("3", "")]
    for last in range(6):
        more = written.replaced(skip_last=last)
        assert len(rows_of(tmp_path / "x.csv", content, more)) == max(0, 3 - last)


def test_the_last_rows_wherever_blocks_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = b"a,b\n" + b"".join(b"%d,x\n" % row for row in range(20))
    for size in range(1, 40):
        monkeypatch.setattr(csv_rows, "_BLOCK", size)
        found = rows_of(tmp_path / "x.csv", content, TableFormat(skip_last=3))
        assert [row[0] for row in found] == [str(row) for row in range(17)]


def test_headings(tmp_path: Path):
    """Blanks, letters in two parts, no name, and a name twice."""
    path = tmp_path / "x.csv"
    path.write_bytes("\ufeff Gro\u0308ße  (cm) ,,Age,Age,\n1,2,3,4,5\n".encode())
    (batch,) = read_table(path)
    assert batch.table.schema.names == ["Größe (cm)", "column 2", "Age", "Age (2)", "column 5"]
    (batch,) = read_table(path, ["Größe  (cm)", "Age (2)"])
    assert batch.table.to_pylist() == [{"Größe  (cm)": "1", "Age (2)": "4"}]
