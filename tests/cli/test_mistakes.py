"""Mistakes of the first hour: the error names what was written, and what to write instead."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shoal import Plan, plan
from shoal.cli import run

SURVEY = """
name = "shop"
[[question]]
name = "age"
kind = "number"
edges = [18, 65]
[[question]]
name = "brand"
kind = "choice"
options = ["old", "new"]
[[question]]
name = "features"
kind = "flags"
options = ["sync", "vpn"]
"""
WISH = ("--crowd", "100", "--epsilon", "1", "--delta", "1e-6")
PLAN = ("plan", "survey.toml")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a survey, a table, a plan, reports and their tally."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("survey.toml").write_text(SURVEY, "utf-8")
        Path("people.csv").write_text("age,brand,features\n" + "20,old,sync\n" * 95, "utf-8")
        assert run([*PLAN, *WISH, "-o", "plan.json"]) == 0
        assert run(["randomize", "plan.json", "people.csv", "-o", "r.parquet"]) == 0
        assert run(["tally", "plan.json", "r.parquet", "-o", "tally.json"]) == 0
        assert run(["simulate", "plan.json", "--users", "100", "-o", "whole.json"]) == 0
    return folder


@pytest.fixture(autouse=True)
def folder(made: Path, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()


MISTAKES = {
    "plann": ["shoal has no command 'plann'. Did you mean 'plan'?"],
    "plan dif plan.json plan.json": ["shoal plan has no command 'dif'. Did you mean 'diff'?"],
    "collector servee": ["shoal collector has no command 'servee'. Did you mean 'serve'?"],
    "plan survey.toml --crwd 9": ["has no option '--crwd'. Did you mean '--crowd'?"],
    "plan survey.toml --view count": ["'count' is not one of", "Did you mean 'counts'?"],
    "plan surve.toml --q 0.2": ["cannot read survey surve.toml", "mean 'survey.toml'?"],
    "plan survey.toml --crowd 100": ["missing: --q, --epsilon, --delta."],
    "plan survey.toml --crowd -5 --epsilon 1 --delta 1e-6": ["--crowd must be", "got -5."],
    "plan survey.toml --crowd 100 --epsilon 0 --delta 1e-6": ["--epsilon must be", "got '0'."],
    "plan survey.toml --crowd 100 --epsilon 1 --delta 0": ["--delta must be above 0"],
    "plan survey.toml --crowd 100 --epsilon 1,5 --delta 1e-6": ["--epsilon", "not a comma"],
    "plan survey.toml --crowd 100 --epsilon 1 --delta 1e-6 --honest 90": ["--honest must be"],
    "plan survey.toml --crowd 100 --epsilon 1 --delta 1e-6 --relay https://a.example": [
        "--analyzer is missing"
    ],
    "plan survey.toml --q 0.6": ["--q must be", "got 0.6."],
    "plan survey.toml --q 0.2 --cross age": ["two or more"],
    "plan survey.toml --q 0.2 --cross age;brnd": ["no question 'brnd'", "Did you mean 'brand'?"],
    "plan survey.toml --q 0.2 --cross age;features=vnp": ["Did you mean 'vpn'?"],
    "plan survey.toml --crowd-of peple.csv --epsilon 1 --delta 1e-6": ["mean 'people.csv'?"],
    "plan survey.toml --crowd-of people.csv --crowd 5 --epsilon 1 --delta 1e-6": [
        "give one of --crowd, --crowd-of, --within and --detect."
    ],
    "audit plan.json --cross age;brand": ["give --cross to shoal plan"],
    "demo --web --parties": ["name one of them"],
    "audit survey.toml": ["give --q and --crowd."],
    "audit plan.json --colluders 500": ["--colluders must be between 0 and 99, got 500."],
    "randomize plan.json people.csv more.csv -o r.parquet": ["are written to a folder"],
    "tally plan.json people.csv": ["people.csv is a table", "shoal randomize PLAN.json people.csv"],
    "tally r.parquet plan.json": ["is a file of reports, not a plan; give the plan first"],
    "tally plan.json r.parquet --joint brand=old;brad=new": ["Did you mean 'brand'?"],
    "tally plan.json r.parquet --joint brand=olt;age=18": ["Did you mean 'old'?"],
    "associate plan.json whole.json age": ["two or more"],
    "retention plan.json whole.json --group age": ["Q=OPTION"],
    "plan survey.toml --detect 2 --crowd 100 --epsilon 1 --delta 1e-6": ["give one of"],
    "plan survey.toml --detect 2 --epsilon 1 --delta 1e-6": ["no experiment"],
    "plan survey.toml --q 0.1 --weekly 5": ["--weekly needs"],
    "estimate plan.json whole.json --against whole.json": ["taken for one crowd"],
    "estimate plan.json tally.json --interval exakt": ["Did you mean 'exact'?"],
    "compare survey.toml --crowd 9 --epsilon 1 --delta 1e-6 --share 5": ["--share must be"],
}


def test_the_command_line(capsys: pytest.CaptureFixture[str]):
    for words, parts in MISTAKES.items():
        assert run(words.split()) == 2, words
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1, words
        assert [part for part in parts if part not in said.err] == [], said.err


SURVEY_MISTAKES = {
    ("edges", "edgs"): ["unknown field 'edgs'", "Did you mean 'edges'?"],
    ('"number"', '"numbr"'): ["kind of a question", "Did you mean 'number'?"],
    ('kind = "number"', ""): ["a table with a kind"],
    ("[[question]]", "[[questions]]"): ["[[question]] table, in two brackets"],
    ('["old", "new"]', '"old, new"'): ["options of question 'brand' must be a list such as"],
    ('name = "shop"', 'nam = "shop"'): ["unknown field 'nam'", "Did you mean 'name'?"],
    ('"shop"', '"shop"\n[table]\ndelimiter = ":"'): ["[table] delimiter must be"],
    ('"shop"', '"shop"\n[table]\ndelimeter = ";"'): ["Did you mean 'delimiter'?"],
}


def test_the_survey_file(capsys: pytest.CaptureFixture[str]):
    for change, parts in SURVEY_MISTAKES.items():
        Path("survey.toml").write_text(SURVEY.replace(*change), "utf-8")
        assert run([*PLAN, *WISH]) == 2, change
        said = capsys.readouterr().err
        assert [part for part in parts if part not in said] == [], said


def test_a_field_of_a_plan(capsys: pytest.CaptureFixture[str]):
    path = Path("plan.json")
    path.write_text(path.read_text("utf-8").replace('"crowd_size"', '"crowd_sise"'), "utf-8")
    assert run(["audit", "plan.json"]) == 2
    assert "Did you mean 'crowd_size'?" in capsys.readouterr().err


def test_one_plan_has_one_id():
    """However its numbers are written, with the minus sign of a document too."""
    crowd, epsilon, delta = ("--crowd", "1e2"), "--epsilon", "--delta"
    for written in (("1.0", "0.000001"), ("1e0", ".0001%"), ("1", "1e\N{MINUS SIGN}6")):
        words = [*PLAN, *crowd, epsilon, written[0], delta, written[1]]
        assert run([*words, "-o", "plan.json"]) == 0  # the same plan may be written again
    made = Plan.read("plan.json")
    assert plan(made.survey, crowd_size=100, epsilon=1.0, delta=1e-6).id == made.id


def test_a_plan_is_not_written_over(capsys: pytest.CaptureFixture[str]):
    before = Path("plan.json").read_bytes()
    assert run([*PLAN, "--q", "0.3", "-o", "plan.json"]) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("plan.json").read_bytes() == before
    assert run([*PLAN, "--q", "0.3", "-o", "plan.json", "--force"]) == 0
    assert Path("plan.json").read_bytes() != before


class TestTooFewRows:
    """95 rows, and a plan for 100."""

    COMMAND = "shoal plan SURVEY.toml --crowd 95 --epsilon 1 --delta 1e-6"

    def test_the_command_that_is_named_makes_a_plan_for_the_rows(
        self, capsys: pytest.CaptureFixture[str]
    ):
        for words in ("randomize plan.json people.csv -o s.parquet", "tally plan.json r.parquet"):
            assert run(words.split()) == 0
            assert self.COMMAND in capsys.readouterr().out
        assert run(["estimate", "plan.json", "tally.json"]) == 3
        said = capsys.readouterr().err
        command = said[said.index("shoal plan") :].replace("SURVEY.toml", "survey.toml").split()
        assert run([*command[1:], "-o", "fits.json"]) == 0
        assert Plan.read("fits.json").reports_needed == 95

    def test_for_very_few_a_plan_is_not_suggested(self, capsys: pytest.CaptureFixture[str]):
        Path("people.csv").write_text("age,brand,features\n" + "20,old,sync\n" * 9, "utf-8")
        assert run(["randomize", "plan.json", "people.csv", "-o", "s.parquet"]) == 0
        assert "needs a crowd of 100 reports; wait for more.\n" in capsys.readouterr().out

    def test_planning_for_a_table(self, capsys: pytest.CaptureFixture[str]):
        words = [*PLAN, "--crowd-of", "people.csv", "--epsilon", "1", "--delta", "1e-6"]
        assert run([*words, "--honest", "50%", "-o", "fits.json"]) == 0
        assert "The table has 95 rows" in capsys.readouterr().out
        fits = Plan.read("fits.json")
        assert fits.crowd_size == 47
        assert fits.reports_needed <= 95
        # The table is read as the survey says.
        Path("survey.toml").write_text(SURVEY + '[table]\ndelimiter = ";"\n', "utf-8")
        Path("people.csv").write_text("age;brand;features\n" + "20;old;sync\n" * 7, "utf-8")
        assert run([*words, "-o", "seven.json"]) == 0
        assert Plan.read("seven.json").crowd_size == 7
