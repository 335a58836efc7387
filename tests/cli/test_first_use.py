"""What a new user meets in the first hour."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import shoal
from shoal.analysis.report_files import parse_batch
from shoal.analysis.text.decode import decode
from shoal.cli import run
from shoal.device.encode import encode
from shoal.device.randomize import flip, pack_reports
from shoal.planning.costs import Comparison, compare

ROOT = Path(__file__).parent.parent.parent
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
edges = [1, 5, 10]
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


def test_01_the_local_epsilon_is_in_the_audit(at, said):
    said("plan", "--flags", "3", "--crowd", "1000", "--epsilon", "1", "--delta", "1e-6",
         "-o", "plan.json")  # fmt: skip
    assert re.search(r"collector .*local", said("audit", "plan.json"))


def test_03_a_report_of_a_plan_with_windows_is_of_the_open_window(at):
    plan = shoal.plan(shoal.Survey("s", (shoal.YesNo("x"),)), q="0.2", window="1d")
    report = flip(plan, encode(plan, {"x": "yes"}))
    (window,) = {*parse_batch(plan, pack_reports(plan, report).to_bytes()).windows}
    assert window > 20_000  # days since 1970


def test_04_shares_of_a_choice_add_up_on_the_page(tallied, said):
    said("publish", "plan.json", "tally.json", "-o", "page.json")
    options = json.loads(Path("page.json").read_text("utf-8"))["estimates"]["questions"]["brand"]
    assert sum(one["constrained"] for one in options.values()) == pytest.approx(1200)
    assert "--decode" in said("publish", "--help")


def test_05_own_data_fit(tallied, said):
    assert "survey written to" in said("survey", "from", "answers.csv", "-o", "mine.toml")
    said("plan", "mine.toml", "--q", "0.05", "-o", "mine.json")
    assert "1,200 reports" in said("randomize", "mine.json", "answers.csv", "-o", "mine.parquet")
    text = "größe;preis\n1,5;2,0\n1,7;3,5\n" * 1
    Path("excel.csv").write_bytes(text.encode("cp1252"))
    Path("excel.toml").write_text(
        'name = "e"\n[[question]]\nname = "größe"\nkind = "number"\nedges = [1.6]\n'
        '[table]\nencoding = "windows-1252"\ndelimiter = ";"\ndecimal = ","\n',
        "utf-8",
    )
    said("plan", "excel.toml", "--q", "0.05", "-o", "excel.json")
    words = ["randomize", "excel.json", "excel.csv", "-o", "excel.parquet"]
    assert "2 reports" in said(*words, "--table-format", "excel.toml")
    declared = ["--encoding", "windows-1252", "--delimiter", ";", "--decimal", ","]
    assert "2 reports" in said(*words, *declared)


def test_07_a_cross_table_says_which_effect_would_not_be_seen(tallied, said):
    told = said("associate", "plan.json", "tally.json", "age", "brand")
    assert "would not be seen" in told
    assert "young" in told
    assert "used" in told


def test_10_send_says_what_became_of_this_answer(at, said, capsys):
    said("plan", "--choice", "3", "--promise", "local", "--epsilon", "2", "-o", "plan.json")
    words = ["send", "plan.json", "--to", "http://127.0.0.1:9", "--outbox", "box", "--now"]
    told = said(*words, "--answer", "answer=1")
    assert "is in the outbox" in told
    assert "accepted" not in told
    again = said(*words, "--answer", "answer=2")
    assert "the first answer counts, the new one is dropped" in again
    assert run([*words, "--answer", "answer=3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"]["state"] == "waiting"
    assert document["answer"]["answered_before"] is True


def test_11_one_plan_has_one_id(at, said, capsys):
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


def test_14_results_print_as_tables_and_become_data_frames(tallied):
    plan = shoal.Plan.read("plan.json")
    estimates = shoal.estimate(plan, shoal.Tally.read("tally.json", plan))
    lines = str(estimates).splitlines()
    assert any(re.match(r"young +[0-9,]+ +[0-9.]+% ", line) for line in lines)
    assert "array" not in repr(estimates)
    assert "count=" in repr(estimates["age"]["young"])
    assert "<svg" in estimates._repr_html_()
    assert len(estimates.to_pandas()) == len(estimates.to_polars()) == 16
    text = shoal.Survey("w", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    words = shoal.plan(text, q="0.05")
    from shoal.lab.tally_distributions import simulate_texts

    tally = simulate_texts(words, {"tea": 300, "coffee": 700}, seed=1)
    assert "text" in str(shoal.estimate(words, tally))
    assert "array" not in str(shoal.estimate(words, tally))
    decoded = decode(words, tally, ["tea", "coffee"])
    assert re.search(r"coffee +7[0-9][0-9] ", str(decoded))
    assert "<table" in decoded._repr_html_()
    one = shoal.Survey("one", (shoal.YesNo("x"),))
    assert isinstance(compare(one, crowd_size=50, epsilon=1, delta="0.1"), Comparison)


def test_16_a_plan_is_not_written_over(at, said):
    words = ["plan", "--flags", "2", "--q"]
    said(*words, "0.2", "-o", "plan.json")
    before = Path("plan.json").read_bytes()
    assert "--force" in said(*words, "0.3", "-o", "plan.json", code=2)
    assert Path("plan.json").read_bytes() == before
    said(*words, ".2", "-o", "plan.json")  # the same plan may be written again
    said(*words, "0.3", "-o", "plan.json", "--force")
    assert Path("plan.json").read_bytes() != before


def test_16_times_wrong_files_and_all_bad_rows(tallied, said):
    said("plan", "--flags", "2", "--q", "0.2", "--window", "1d", "-o", "daily.json")
    assert shoal.Plan.read("daily.json").window == 86_400
    assert "is a survey, not a plan" in said(
        "serve", "--data", "d", "--honest", "all", "survey.toml", code=2
    )
    assert "is a file of reports, not a tally" in said(
        "estimate", "plan.json", "reports.parquet", code=2
    )
    bad = "smokes,Age group,brand,visits\nmaybe,young,new,1\nyes,young,new,many\nyes,,new,1\n"
    Path("bad.csv").write_text(bad, "utf-8")
    told = said("randomize", "plan.json", "bad.csv", "-o", "bad.parquet", code=2)
    assert "3 answers are not allowed" in told
    assert all(f"row {row}, question" in told for row in (1, 2, 3))
    assert not Path("bad.parquet").exists()


@pytest.mark.slow
def test_usual_questions(tallied, said):
    """How many people, what a question costs, means and quantiles, two waves."""
    needed = said("plan", "survey.toml", "--within", "5%", "--share", "10%", "--epsilon", "1",
                  "--delta", "1e-4", "--view", "counts")  # fmt: skip
    assert re.search(r"--view reports [0-9,]+ people --view counts [0-9,]+ people", needed)
    costs = said("survey", "survey.toml", "--crowd", "1000", "--epsilon", "1", "--delta", "1e-4",
                 "--view", "counts")  # fmt: skip
    assert re.search(r"smokes yes/no 1 1 [0-9.]+ \+[0-9]+%", costs)
    said("simulate", "plan.json", "--users", "1200", "--seed", "5", "-o", "other.json")
    twice = said("estimate", "plan.json", "tally.json", "--against", "tally.json", code=2)
    assert "taken for one crowd" in twice
    told = said("estimate", "plan.json", "tally.json", "--against", "other.json")
    assert re.search(r"median +[0-9]+ to below [0-9]+ at 0.95 \(theorem\)", told)
    assert "mean" in told
    assert "Change against 1,200 reports" in told
