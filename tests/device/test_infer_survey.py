"""A survey proposed from a table: kinds, what is never asked, and that plans take it."""

from __future__ import annotations

import datetime
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal import Choice, Date, Survey
from shoal.cli import run
from shoal.device.arrays.column_kinds import propose_question
from shoal.device.arrays.files import read_answers
from shoal.device.arrays.infer_survey import infer_survey
from shoal.errors import InputError
from shoal.support.table_format import TableFormat

PEOPLE = 1200


def column(draw, people: int = PEOPLE) -> list[str]:
    generator = random.Random(1)
    return [draw(generator, row) for row in range(people)]


def kind(name: str, cells: list[str], whole: bool = True, decimal_comma: bool = False):
    declared = TableFormat(decimal="," if decimal_comma else ".")
    return propose_question(name, cells, declared, whole=whole)


COLUMNS = {
    "id": ("left out", lambda g, row: str(row)),
    "customer no": ("left out", lambda g, row: str(10**9 + 7919 * row)),
    "mail": ("left out", lambda g, row: f"p{row % 300}@example.org"),
    "session": ("left out", lambda g, row: f"{g.getrandbits(128):032x}"),
    "ip": ("left out", lambda g, row: f"10.0.{row % 200}.{row % 7}"),
    "phone": ("left out", lambda g, row: f"+41 44 123 {row % 90:02} {row % 77:02}"),
    "page": ("left out", lambda g, row: f"https://example.org/{row % 50}"),
    "full name": ("left out", lambda g, row: f"Person {g.getrandbits(40):x}"),
    "empty": ("left out", lambda g, row: ""),
    "constant": ("left out", lambda g, row: "yes"),
    "joined": ("left out", lambda g, row: f"2024-{row % 12 + 1:02}-{row % 28 + 1:02}"),
    "birthday": ("left out", lambda g, row: f"{row % 28 + 1}.{row % 12 + 1}.1980"),
    "smokes": ("yes/no", lambda g, row: g.choice(["Yes", "no"])),
    "flag": ("yes/no", lambda g, row: g.choice(["0", "1", ""])),
    "rating": ("number", lambda g, row: str(g.randint(1, 5))),
    "children": ("number", lambda g, row: "9" if row == 7 else str(g.randint(0, 3))),
    "code": ("choice", lambda g, row: g.choice(["1", "2", "99"])),
    "postcode": ("left out", lambda g, row: f"0{g.randint(1000, 9999)}"),
    "age": ("number", lambda g, row: str(g.randint(18, 90))),
    "income": ("number", lambda g, row: f"{10 ** g.gauss(4, 0.7):.2f}"),
    "temperature": ("number", lambda g, row: f"{g.gauss(0, 5):.1f}"),
    "city": ("choice", lambda g, row: g.choice(["Oslo", "Rome", "oslo "])),
    "tags": ("flags", lambda g, row: g.choice(["a;b", "b", "", "a;b;c"])),
    "word": ("left out", lambda g, row: f"word {g.randint(0, 400)}"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_kinds(name):
    wanted, draw = COLUMNS[name]
    proposal = kind(name, column(draw))
    assert proposal.kind == wanted, proposal.seen
    assert proposal.seen


def test_what_a_rare_person_answered_is_not_in_the_survey():
    """Nine people is too few to be listed; ten are not."""
    cells = ["Rome"] * 500 + ["Oslo"] * 10 + ["Bern"] * 9
    question = kind("city", cells).question
    assert question.options == ("Oslo", "Rome")
    assert question.other
    assert kind("n", [*["1"] * 50, *["2"] * 50, "77"]).kind == "number"
    question = kind("n", [*["1"] * 50, *["2"] * 50, "77"]).question
    assert (question.low, question.high) == ("1", "2")


@pytest.mark.parametrize(
    "numbers",
    [[0] * 999 + [54321.7], [5] * 999 + [-8_000_000], [7] * 997 + [2_000_000] * 3],
    ids=["one bonus", "one debt", "three of them"],
)
def test_the_number_of_a_rare_person_makes_no_limit(numbers):
    """Neither the number itself nor how large it is."""
    found = kind("bonus", [str(number) for number in numbers])
    assert found.question is None
    assert not any(digits in found.seen for digits in ("54321", "54322", "8000000", "2000000"))


def test_few_people_and_one_value_are_not_shown():
    assert kind("income", [str(1000 + 7 * row) for row in range(12)]).kind == "left out"
    assert "HIV" not in kind("status", ["HIV positive"] * 4).seen


def test_of_a_part_of_a_table_other_values_are_expected():
    question = kind("city", ["Rome", "Oslo"] * 50, whole=False).question
    assert question.other


def test_decimal_commas():
    cells = column(lambda g, row: f"{g.uniform(1, 3):.2f}".replace(".", ","))
    assert kind("price", cells, decimal_comma=True).declared == {}
    found = kind("price", cells)
    assert (found.kind, found.declared) == ("number", {"decimal": ","})


def test_thousands_as_spreadsheets_write_them():
    """Three digits after a sign that is not the table's decimal sign are thousands."""
    cells = column(lambda g, row: f"{g.randint(1, 99)}.{g.randint(100, 999)},50")
    found = kind("income", cells, decimal_comma=True)
    assert (found.kind, found.declared) == ("number", {})
    assert float(found.question.high) > 90_000
    cells = column(lambda g, row: f"{g.randint(1, 9)}.{g.randint(100, 999)}")
    found = kind("income", cells, decimal_comma=True)
    assert (found.question.high, found.declared) == ("10000", {"thousands": "."})
    assert kind("income", cells).question.high == "10"


@pytest.mark.parametrize(
    ("draw", "declared"),
    [
        (
            lambda g: f"€ {g.randint(1, 9)}.{g.randint(0, 999):03},50",
            {"decimal": ",", "units": ["€"]},
        ),
        (lambda g: f"CHF {g.randint(1, 9)}'{g.randint(0, 999):03}.-", {"units": ["CHF"]}),
        (lambda g: f"${g.uniform(1, 99):.2f}", {"units": ["$"]}),
        (lambda g: f"{g.randint(0, 100)} %", {"units": ["%"]}),
        (lambda g: f"{g.gauss(170, 9):.0f} cm", {"units": ["cm"]}),
        (lambda g: f"{g.randint(1, 9)}\u202f{g.randint(0, 999):03}", {}),
        (lambda g: f"{g.randint(1, 9)},{g.randint(0, 999):03}", {"thousands": ","}),
    ],
)
def test_numbers_with_units(draw, declared):
    found = kind("n", column(lambda g, row: draw(g)))
    assert (found.kind, found.declared) == ("number", declared), found.seen


def test_numbers_in_other_units_are_not_taken_for_the_same():
    def mixed(share, usual, rare):
        return column(lambda g, row: f"{g.randint(5, 60)} {usual if g.random() > share else rare}")

    for usual, rare in (("min", "h"), ("CHF", "EUR"), ("cm", "m")):
        found = kind("n", mixed(0.05, usual, rare))
        assert found.declared == {"units": [usual], "invalid": "missing"}, found.seen
        found = kind("n", mixed(0.4, usual, rare))
        assert (found.kind, "different units" in found.seen) == ("left out", True)
    assert kind("n", column(lambda g, row: g.choice(["30 min", "1 h", "2 h"]))).kind == "choice"
    for usual, rare in (("CHF", "Fr."), ("Kinder", "Kind"), ("min", "Min.")):
        assert kind("n", mixed(0.4, usual, rare)).declared == {"units": [usual, rare]}


def test_the_unit_in_a_columns_name_may_be_rare():
    cells = column(lambda g, row: f"{g.randint(5, 60)}{' min' * (row % 50 == 7)}")
    assert kind("way [min]", cells).declared == {"units": ["min"]}
    assert kind("way", cells).declared == {"invalid": "missing"}


def test_typing_errors_in_numbers_are_missing():
    cells = column(lambda g, row: "4o" if row % 50 == 7 else str(g.randint(18, 90)))
    found = kind("age", cells)
    assert (found.kind, found.declared) == ("number", {"invalid": "missing"})
    assert found.question.missing == "option"
    assert "not numbers, so taken as missing: 24 ('4o')" in found.seen
    assert kind("size", column(lambda g, row: g.choice(["12", "large", "small"]))).kind == "choice"


@pytest.mark.parametrize("text", ["N/A", "n/a", "k.A.", "keine Angabe", "-", "NA", "null", "?"])
def test_texts_for_no_answer(text):
    cells = column(lambda g, row: text if row % 9 == 0 else str(g.randint(1, 5)))
    found = kind("rating", cells)
    assert (found.kind, found.no_answer) == ("number", (text,))
    assert found.question.missing == "option"


@pytest.mark.parametrize("between", [";", "; ", "|", " | ", ",", ", ", "/", " / ", "\n"])
def test_separators(between):
    def several(g: random.Random, row: int) -> str:
        return str(between).join(g.sample(["Python", "R", "Excel 365", "C-like"], g.randint(0, 3)))

    found = kind("tools", column(several))
    assert found.kind == "flags", found.seen
    assert found.declared.get("separator", ";") in (between, between.strip(" "))
    assert found.question.options == ("C-like", "Excel 365", "Python", "R")


@pytest.mark.parametrize(
    "words",
    [
        ("Yes, always", "Yes, sometimes", "No, never"),
        ("Bern, Switzerland", "Zug, Switzerland", "Lyon, France"),
        ("and/or", "either"),
        ("part-time / 50 %", "full-time"),
    ],
)
def test_signs_inside_options_separate_nothing(words):
    found = kind("answer", column(lambda g, row: g.choice(words)))
    assert (found.kind, found.question.options) == ("choice", tuple(sorted(words)))


def test_rare_flags_are_others():
    cells = ["a;b", "b;c", "a;c", "a"] * 50 + ["a;my own"]
    flags = kind("f", cells).question
    assert (flags.options, flags.other) == (("a", "b", "c"), True)


@pytest.mark.parametrize(
    ("pattern", "order"),
    [("%Y-%m-%d", None), ("%d.%m.%Y", "dmy"), ("%m/%d/%Y", "mdy"), ("%d/%m/%Y %H:%M", "dmy")],
)
def test_dates(pattern, order):
    first = datetime.date(2025, 1, 1)
    cells = column(lambda g, row: (first + datetime.timedelta(g.randrange(365))).strftime(pattern))
    left = propose_question("visit", cells, TableFormat(), whole=True)
    assert (left.kind, "--dates" in left.seen) == ("left out", True)
    asked = propose_question("visit", cells, TableFormat(), whole=True, dates="weekday")
    assert (asked.kind, asked.declared.get("dates")) == ("date", order)
    assert asked.question == Date("visit", "weekday")


def test_months_and_names_are_left_out():
    months = column(lambda g, row: f"{g.randint(1, 12):02}.2024")
    assert "months" in kind("month", months, decimal_comma=True).seen
    names = column(lambda g, row: ("Anna Huber", "Uwe Meier")[row % 2])
    assert kind("Nachname", names).kind == kind("last_name", names).kind == "left out"
    assert kind("product", names).kind == "choice"


def whole_table() -> dict[str, list[str]]:
    return {name: column(draw) for name, (_, draw) in COLUMNS.items()}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "windows-1252"])
@pytest.mark.parametrize("separator", [",", "\t"])
def test_the_proposal_takes_the_table_it_is_from(encoding, separator, tmp_path: Path):
    table = whole_table()
    table["Größe"] = column(lambda g, row: f"{g.gauss(170, 9):.1f}")
    lines = [separator.join(table)]
    lines += [separator.join(cells) for cells in zip(*table.values(), strict=True)]
    path = tmp_path / "data.csv"
    path.write_bytes("\n".join(lines).encode(encoding))
    proposal = infer_survey(path)
    assert proposal.rows == PEOPLE
    survey = Survey.from_toml(proposal.to_toml())
    assert survey == proposal.survey
    (tmp_path / "survey.toml").write_text(proposal.to_toml(), "utf-8")
    declared = TableFormat.from_toml(tmp_path / "survey.toml")
    assert declared == TableFormat(encoding.removesuffix("-sig"), separator, inferred=True)
    assert sum(len(original) for original in read_answers(survey, path, declared)) == PEOPLE
    kinds = {one.column: one.kind for one in proposal.columns}
    assert kinds == {name: wanted for name, (wanted, _) in COLUMNS.items()} | {"Größe": "number"}
    for secret in ("p7@example.org", "Person", "2024-", "77"):
        assert secret not in proposal.to_toml()


def test_tables_in_memory_and_parquet(tmp_path: Path):
    table = pa.table({"on": [True, False] * 50, "tags": [["a"], ["a", "b"]] * 50})
    assert [one.kind for one in infer_survey(table).columns] == ["yes/no", "flags"]
    pq.write_table(table, tmp_path / "x.parquet")
    survey = infer_survey(tmp_path / "x.parquet").survey
    assert sum(map(len, read_answers(survey, tmp_path / "x.parquet"))) == 100


def test_few_rows_are_said(tmp_path: Path):
    table = pa.table({"city": ["Rome", "Oslo"] * 500})
    proposal = infer_survey(table, max_rows=600)
    assert "the first 600 rows only" in proposal.notes[0]
    city = proposal.survey["city"]
    assert isinstance(city, Choice)
    assert city.other


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ('a,b\n1,2\n"3,4\n', "row 2 of .* has a quote that is not closed"),
        ("a,b\n", "no rows"),
        ("mail\nx@y.org\nz@y.org\n", "no column can be asked for"),
    ],
)
def test_what_is_refused(content, why, tmp_path: Path):
    (tmp_path / "x.csv").write_text(content, "utf-8")
    with pytest.raises(InputError, match=why):
        infer_survey(tmp_path / "x.csv")


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{row},{'yes' if row % 3 else 'no'},{row % 4}\n" for row in range(200))
    Path("data.csv").write_text("user id,smokes,floor\n" + rows, "utf-8")
    assert run(["survey", "from", "data.csv", "-o", "survey.toml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "user id left out 200 values for 200 people" in said
    assert "learns that someone gave them" in said
    assert run(["survey", "from", "data.csv", "-o", "survey.toml"]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["survey", "from", "data.csv"]) == 0
    printed = capsys.readouterr()
    assert Survey.from_toml(printed.out) == Survey.from_toml(Path("survey.toml"))
    assert "user id" in printed.err
    crossing = ["survey", "from", "data.csv", "--force", "-o", "survey.toml", "--cross"]
    assert run([*crossing, "smokes;user id"]) == 2
    assert "no question 'user id' to cross" in capsys.readouterr().err
    assert run([*crossing, "smokes; floor"]) == 0
    assert "smokes x floor" in [one.name for one in Survey.from_toml(Path("survey.toml"))]
    plan = ["plan", "survey.toml", "--crowd", "200", "--epsilon", "2", "--delta", "1e-3"]
    assert run([*plan, "-o", "plan.json"]) == 0
    assert run(["randomize", "plan.json", "data.csv", "-o", "reports.parquet"]) == 0
