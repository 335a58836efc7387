"""What a new user meets in the first hour."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import shoal
from shoal.analysis.text.decode import decode
from shoal.cli import run

SURVEY = """
name = "shop"
[[question]]
name = "smokes"
kind = "yes/no"
[[question]]
name = "age"
kind = "choice"
options = ["young", "old"]
fold = true
column = "Age group"
[[question]]
name = "brand"
kind = "choice"
options = ["new", "used"]
other = true
[[question]]
name = "visits"
kind = "number"
low = 0
high = 20
points = 5
[[cross]]
questions = ["age", "brand"]
"""
ROWS = "No,YOUNG ,new,0\nyes,old,something else,7\ntrue,Old,used,12\n0,young,new,3\n"


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("survey.toml").write_text(SURVEY, "utf-8")
    Path("answers.csv").write_text("smokes,Age group,brand,visits\n" + ROWS * 300, "utf-8")
    return tmp_path


@pytest.fixture
def said(capsys):
    def call(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*words]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return " ".join((captured.out + captured.err).split())

    return call


@pytest.fixture
def tallied(at, said):
    said("plan", "survey.toml", "--q", "0.05", "-o", "plan.json")
    said("randomize", "plan.json", "answers.csv", "-o", "reports.parquet")
    said("tally", "plan.json", "reports.parquet", "-o", "tally.json")


def test_one_plan_has_one_id(at, said, capsys):
    ids = set()
    for number, (epsilon, delta) in enumerate(
        [("1", "1e-6"), ("1.0", "0.000001"), ("1", "1e-06"), ("1e0", ".000001"), ("1", "0.0001%")]
    ):
        said("plan", "--flags", "2", "--crowd", "1e3", "--epsilon", epsilon, "--delta", delta,
             "-o", f"{number}.json")  # fmt: skip
        ids.add(json.loads(Path(f"{number}.json").read_text("utf-8"))["id"])
    survey = shoal.Plan.read("0.json").survey
    ids.add(shoal.plan(survey, crowd_size=1000, epsilon=1.0, delta=1e-6).id)
    assert len(ids) == 1


def test_results_print_as_tables_and_become_data_frames(tallied):
    plan = shoal.Plan.read("plan.json")
    estimates = shoal.estimate(plan, shoal.Tally.read("tally.json", plan))
    lines = str(estimates).splitlines()
    assert any(re.match(r"young +[0-9,]+ +[0-9.]+% ", line) for line in lines)
    assert "array" not in repr(estimates)
    assert "count=" in repr(estimates["age"]["young"])
    assert "<svg" in str(estimates._repr_html_())
    assert len(estimates.to_pandas()) == len(estimates.to_polars()) == 17
    text = shoal.Survey("w", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    words = shoal.plan(text, q="0.05")
    from shoal.lab.populations import simulate_texts

    tally = simulate_texts(words, {"tea": 300, "coffee": 700}, seed=1)
    assert "text" in str(shoal.estimate(words, tally))
    assert "array" not in str(shoal.estimate(words, tally))
    decoded = decode(words, tally, ["tea", "coffee"])
    assert re.search(r"coffee +7[0-9][0-9] ", str(decoded))
    assert "<table" in str(decoded._repr_html_())


def test_a_plan_is_not_written_over(at, said):
    words = ["plan", "--flags", "2", "--q"]
    said(*words, "0.2", "-o", "plan.json")
    before = Path("plan.json").read_bytes()
    assert "--force" in said(*words, "0.3", "-o", "plan.json", code=2)
    assert Path("plan.json").read_bytes() == before
    said(*words, ".2", "-o", "plan.json")  # the same plan may be written again
    said(*words, "0.3", "-o", "plan.json", "--force")
    assert Path("plan.json").read_bytes() != before


def test_a_crowd_is_not_compared_with_itself(tallied, said):
    twice = said("estimate", "plan.json", "tally.json", "--against", "tally.json", code=2)
    assert "taken for one crowd" in twice
