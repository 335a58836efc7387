"""The command: words in, one document or one table out, one sentence when it will not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan, Survey, Tally
from shoal.cli import run
from shoal.device.arrays.files import read_answers
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise

SURVEY = """
name = "browser"
[[question]]
name = "features"
kind = "flags"
options = ["sync", "vpn", "reader"]
[[question]]
name = "channel"
kind = "choice"
options = ["release", "beta"]
missing = "option"
[[question]]
name = "age"
kind = "number"
edges = [18, 65]
"""
HEADER = "features,channel,age\n"
CSV = HEADER + "sync;vpn,beta,30\n,release,70\nreader,,17\n" * 100


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a survey, answers and a plan; the command runs in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_DEBUG", raising=False)
    (tmp_path / "survey.toml").write_text(SURVEY, "utf-8")
    (tmp_path / "answers.csv").write_text(CSV, "utf-8")
    assert run(["plan", "survey.toml", "--q", "0.25", "-o", "plan.json"]) == 0
    return tmp_path


class Command:
    """Runs the command and reads what it says."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: object, code: int = 0) -> str:
        self.capsys.readouterr()
        got = run([str(word) for word in words])
        said = self.capsys.readouterr()
        assert got == code, said
        if code:
            assert said.out == ""
            assert len(said.err.splitlines()) == 1, said.err
            assert said.err.startswith("shoal: ")
            assert "Traceback" not in said.err
            assert "unexpected" not in said.err
            return said.err
        assert said.err == ""
        return said.out

    def json(self, *words: object) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shoal(at: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def tally_file(shoal: Command) -> Path:
    shoal("randomize", "plan.json", "answers.csv", "-o", "r.parquet")
    shoal("tally", "plan.json", "r.parquet", "-o", "tally.json")
    return Path("tally.json")


class TestCross:
    WORDS = ("plan", "survey.toml", "--q", "0.1", "--crowd", "300", "--delta", "0.003")

    def test_it_is_that_of_the_survey(self, shoal: Command, at: Path):
        """The same plan, and the same id, as [[cross]] tables in the survey file."""
        crossed = '[[cross]]\nquestions = ["channel", "age"]\n'
        crossed += '[[cross]]\nquestions = ["features=vpn", "age"]\n'
        (at / "crossed.toml").write_text(SURVEY + crossed, "utf-8")
        both = ("--cross", "channel;age", "--cross", " features=vpn ; age ")
        with_flags = shoal.json(*self.WORDS, *both, "--view", "counts", "-o", "crossed.json")
        shoal(self.WORDS[0], "crossed.toml", *self.WORDS[2:], "--view", "counts", "-o", "file.json")
        shoal(*self.WORDS, "--view", "counts", "-o", "plain.json")
        made, same, plain = map(Plan.read, ("crossed.json", "file.json", "plain.json"))
        assert with_flags["id"] == made.id == same.id != plain.id
        assert with_flags["crosses"] == [["channel", "age"], ["features=vpn", "age"]]
        count, differing = plain.fragments
        assert made.fragments == (count + 3 * 3 + 2 * 3, differing + 4)

    def test_a_crowd_below_the_minimum_of_collectors(self, shoal: Command):
        words = ("plan", "--flags", "1", "--epsilon", "1", "--delta", "0.003", "--crowd")
        for given, warned in (
            (["99"], "100"),
            (["100"], ""),
            (["300", "--min-crowd", "301"], "301"),
            (["99", "--min-crowd", "99"], ""),
        ):
            warnings = shoal.json(*words, *given)["warnings"]
            found = [one for one in warnings if "min_crowd" in one]
            assert len(found) == bool(warned), given
            assert warned in "".join(found), given


class TestPlanDiff:
    def test_forbidden(self, shoal: Command, capsys: pytest.CaptureFixture[str]):
        shoal("plan", "survey.toml", "--q", "0.125", "-o", "less.json")
        assert run(["plan", "diff", "plan.json", "less.json", "--json"]) == 3
        said = capsys.readouterr()
        assert json.loads(said.out)["kind"] == "forbidden"
        assert said.err == "shoal: the new plan protects less than the old one of the same name.\n"

    def test_more_releases_a_year_are_shown_and_must_be_declared(
        self, shoal: Command, capsys: pytest.CaptureFixture[str]
    ):
        shoal("plan", "survey.toml", "--q", "0.25", "--window", "1h", "-o", "hourly.json")
        assert run(["plan", "diff", "plan.json", "hourly.json"]) == 3
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith("forbidden")
        assert "All reports of a person in a year (8,785 instead of 1) reveal epsilon" in said
        declared = ("plan", "diff", "plan.json", "hourly.json", "--accept-weak-promise")
        assert shoal(*declared).startswith("new plan")
        document = shoal.json(*declared)
        assert [one["covers"] for one in document["changes"] if one["weaker"]]
        assert shoal("plan", "diff", "hourly.json", "plan.json").startswith("new plan")

    def test_a_survey_may_be_called_diff(self, shoal: Command):
        Path("diff").write_text(SURVEY, "utf-8")
        assert shoal.json("plan", "./diff", "--q", "0.25")["bits"] == 9


class TestPlan:
    def test_given_q(self, shoal: Command, at: Path):
        document = shoal.json("plan", "survey.toml", "--q", "0.25", "-o", "p.json")
        made = Plan.read(at / "p.json")
        assert document["id"] == made.id
        assert document["q"] == 0.25
        assert document["q_fraction"] == [1, 2]
        assert document["bits"] == 9
        assert document["promise"] == "local"
        # flags 3, choice 2, number 2: seven bits times ln 3, rounded up
        assert document["epsilon"] == 7.6903
        for field in ("crowd_size", "delta", "eta", "sigma_count"):
            assert document[field] is None

    def test_surveys_without_a_file(self, shoal: Command):
        for words, bits, epsilon in (
            (["--flags", "5"], 5, 5.4931),
            (["--choice", "5"], 5, 2.1973),
            (["--flags", "5", "--at-most", "2"], 5, 4.3945),
        ):
            document = shoal.json("plan", *words, "--q", "0.25")
            assert (document["bits"], document["epsilon"]) == (bits, epsilon), words

    def test_a_sigma_above_the_crowd_is_said(self, shoal: Command):
        for crowd, is_noise in ((10, True), (10_000, False)):
            text = shoal("plan", "--flags", 2, "--crowd", crowd, "--epsilon", 0.5, "--delta", 1e-6)
            assert f"{crowd:,} reports" in text
            assert ("counts will be mostly noise" in text) == is_noise


class TestEncodeAndRandomize:
    def test_encode(self, shoal: Command, at: Path):
        document = shoal.json("encode", "plan.json", "answers.csv", "-o", "o.parquet")
        plan = Plan.read(at / "plan.json")
        assert document == {"plan": plan.id, "originals": 300, "output": "o.parquet"}
        (original,) = read_answers(plan.survey, at / "o.parquet")
        assert original.rows[0].tolist() == [0b10010011, 0]
        assert "300 originals" in shoal("encode", "plan.json", "answers.csv", "-o", "o.parquet")

    def test_randomize(self, shoal: Command, at: Path):
        plan = Plan.read(at / "plan.json")
        shoal("encode", "plan.json", "answers.csv", "-o", "o.parquet")
        for answers, name in (("answers.csv", "r.parquet"), ("o.parquet", "r.rows")):
            document = shoal.json("randomize", "plan.json", answers, "-o", name)
            assert document == {"plan": plan.id, "reports": 300, "output": name}

    def test_nothing_is_written_when_one_row_is_bad_or_there_is_none(
        self, shoal: Command, at: Path
    ):
        # The bad row comes after more than one chunk of good ones.
        good = '{"features": [], "channel": "beta", "age": 30}\n'
        (at / "bad.ndjson").write_text(good * 20_000 + good.replace("beta", "gamma"), "utf-8")
        (at / "empty.csv").write_text(HEADER, "utf-8")
        before = sorted(path.name for path in at.iterdir())
        wrong = "question 'channel': the answer is not one of its options"
        for word in ("encode", "randomize"):
            words = (word, "plan.json", "-o", "r.parquet")
            assert wrong in shoal(*words, "bad.ndjson", code=2)
            assert "there are no answers in empty.csv" in shoal(*words, "empty.csv", code=2)
        assert sorted(path.name for path in at.iterdir()) == before

    def test_the_answers_are_not_overwritten(self, shoal: Command, at: Path):
        shoal("encode", "plan.json", "answers.csv", "-o", "o.parquet")
        before = (at / "o.parquet").read_bytes()
        shoal("randomize", "plan.json", "o.parquet", "-o", "o.parquet", code=2)
        assert (at / "o.parquet").read_bytes() == before


class TestTally:
    def test_two_files_are_one_tally(self, shoal: Command, at: Path):
        for name in ("a.parquet", "b.rows"):
            shoal("randomize", "plan.json", "answers.csv", "-o", name)
        both = shoal.json("tally", "plan.json", "a.parquet", "b.rows", "-o", "t.json")
        plan = Plan.read(at / "plan.json")
        parts = [shoal.json("tally", "plan.json", name) for name in ("b.rows", "a.parquet")]
        added = Tally.from_json(parts[0], plan) + Tally.from_json(parts[1], plan)
        assert added.named("one").to_json() == Tally.from_json(both, plan).named("one").to_json()
        assert json.loads((at / "t.json").read_text("utf-8")) == both
        assert both["reports"] == 600
        assert both["simulated"] is False

    def test_options(self, shoal: Command, at: Path):
        shoal("randomize", "plan.json", "answers.csv", "-o", "r.parquet")
        document = shoal.json(
            *("tally", "plan.json", "r.parquet", "--no-vectors"),
            *("--joint", "features=sync;channel=beta", "--joint", "age=below 18;features=vpn"),
        )
        assert document["by_vector"] is None
        assert [group["bits"] for group in document["joint"]] == [[0, 4], [6, 1]]
        assert "300 reports" in shoal("tally", "plan.json", "r.parquet")

    def test_a_file_named_twice(self, shoal: Command, at: Path):
        shoal("randomize", "plan.json", "answers.csv", "-o", "r.parquet")
        (at / "link.parquet").symlink_to(at / "r.parquet")
        for second in ("./r.parquet", "link.parquet"):
            said = shoal("tally", "plan.json", "r.parquet", second, "-o", "t.json", code=2)
            assert "named twice" in said
            assert not (at / "t.json").exists()


class TestEstimate:
    def test_the_json_contract(self, shoal: Command, tally_file: Path, at: Path):
        document = shoal.json("estimate", "plan.json", tally_file, "--level", "0.9")
        assert list(document["numbers"]) == ["age"]
        assert {name: value for name, value in document.items() if name not in (
            "questions", "numbers", "crowds", "people"
        )} == {
            "plan": Plan.read(at / "plan.json").id, "crowd_size": None, "reports": 300, "q": 0.25,
            "level": 0.9, "interval": "exact", "target": "crowd", "simulated": False, "notes": [],
        }  # fmt: skip
        assert {q: list(o) for q, o in document["questions"].items()} == {
            "features": ["sync", "vpn", "reader"],
            "channel": ["release", "beta", "(missing)"],
            "age": ["below 18", "18 to below 65", "65 and above"],
        }
        ones = json.loads(tally_file.read_text("utf-8"))["by_bit"]
        rows = [row for options in document["questions"].values() for row in options.values()]
        for count, row in zip(ones, rows, strict=True):
            fields = set(row) - {"incompatible"}
            assert fields == {"count", "share", "sigma", "low", "high", "constrained"}
            assert row["count"] == pytest.approx((count - 75) / 0.5)
            assert row["share"] == pytest.approx(row["count"] / 300)
            assert row["sigma"] == pytest.approx((300 * 3 / 16) ** 0.5 / 0.5)
            assert 0 <= row["low"] <= row["high"] <= 300

    def test_kinds(self, shoal: Command, tally_file: Path):
        for kind in ("normal", "simultaneous", "chebyshev"):
            document = shoal.json("estimate", "plan.json", tally_file, "--interval", kind)
            assert document["interval"] == kind
        document = shoal.json("estimate", "plan.json", tally_file, "--target", "population")
        assert document["target"] == "population"

    def test_intervals_in_the_table_are_rounded_outward(self, shoal: Command, tally_file: Path):
        words = ["estimate", "plan.json", tally_file, "--interval", "normal"]
        row = shoal.json(*words)["questions"]["features"]["sync"]
        assert row["low"] % 1
        (line,) = [line for line in shoal(*words).splitlines() if line.startswith("sync")]
        _, _, _, low, high, _ = line.split()
        assert (int(low), int(high)) == (math.floor(row["low"]), math.ceil(row["high"]))

    def test_view_counts(self, at: Path, capsys: pytest.CaptureFixture[str], shoal: Command):
        """Whole reports only if asked for, and nothing in the tally that links their bits."""
        survey = Survey.from_toml(at / "survey.toml")
        promise = Promise("proven", "99", delta="1e-6")
        plan = Plan(survey, FlipProbability.at_least("0.001"), promise, 300, view="counts")
        plan.write(at / "seen.json")
        write = ("randomize", "seen.json", "answers.csv", "-o", "r.parquet")
        assert "each row of this file is the whole report of one person" in shoal(*write, code=3)
        assert not (at / "r.parquet").exists()
        assert run([*write, "--whole-reports"]) == 0
        said = capsys.readouterr()
        assert said.out == "300 reports written to r.parquet.\n"
        assert said.err.startswith(
            "shoal: warning: each row of this file is the whole report of one person"
        )
        refused = shoal("tally", "seen.json", "r.parquet", "--vectors", code=3)
        assert "whole vectors" in refused
        both = "features=sync;channel=beta"
        refused = shoal("tally", "seen.json", "r.parquet", "--joint", both, code=3)
        assert '--cross "features=sync;channel"' in refused
        document = shoal.json("tally", "seen.json", "r.parquet", "-o", "t.json")
        assert (document["by_set_bits"], document["by_vector"], document["joint"]) == (
            None,
            None,
            [],
        )
        assert shoal.json("estimate", "seen.json", "t.json")["reports"] == 300
        assert "Only the counts of single bits" in shoal("screen", "seen.json", "t.json")
        refused = shoal("associate", "seen.json", "t.json", "channel", "age", code=3)
        assert '--cross "channel;age"' in refused
        (at / "t.json").write_text(json.dumps(document | {"by_set_bits": [300] + 9 * [0]}), "utf-8")
        for command in ("estimate", "screen"):
            assert "also has by_set_bits" in shoal(command, "seen.json", "t.json", code=3)
        assert "also has" in shoal("publish", "seen.json", "t.json", "-o", "p.html", code=3)

    def test_a_crowd_that_is_not_whole(self, shoal: Command, at: Path):
        shoal("plan", "survey.toml", "--q", "0.25", "--crowd", "301", "-o", "crowd.json")
        shoal("randomize", "crowd.json", "answers.csv", "-o", "r.parquet")
        shoal("tally", "crowd.json", "r.parquet", "-o", "t.json")
        for form in ([], ["--json"]):
            said = shoal("estimate", "crowd.json", "t.json", *form, code=3)
            assert "crowd of 301 reports, but the tally has 300" in said
        shoal("randomize", "crowd.json", "answers.csv", "-o", "s.parquet")
        shoal("tally", "crowd.json", "r.parquet", "s.parquet", "-o", "t.json")
        assert shoal.json("estimate", "crowd.json", "t.json")["crowd_size"] == 301

    def test_names_that_look_like_markup(self, shoal: Command, at: Path):
        """Labels are text, whatever rich would make of them."""
        text = SURVEY.replace('"sync"', '"[/b]"').replace('"vpn"', '"[red]x"')
        text = text.replace('"browser"', '"[/bold] s"').replace('"channel"', '"[link]"')
        (at / "odd.toml").write_text(text, "utf-8")
        shown = shoal("plan", "odd.toml", "--q", "0.25", "-o", "odd.json")
        assert "[/bold] s" in shown
        shown = shoal("simulate", "odd.json", "--users", "1000", "--seed", "1")
        for label in ("[/b]", "[red]x", "[link]", "[/bold] s"):
            assert label in shown


class TestSimulate:
    def test_json(self, shoal: Command):
        words = ["simulate", "plan.json", "--users", "2000", "--seed", "7"]
        document = shoal.json(*words)
        assert document["simulated"] is True
        assert document["reports"] == 2000
        rows = [row for options in document["questions"].values() for row in options.values()]
        assert all(isinstance(row["truth"], int) for row in rows)
        assert sum(row["truth"] for row in document["questions"]["age"].values()) == 2000
        assert shoal.json(*words) == document
        assert shoal.json(*words[:-1], "8") != document
        assert "truth" in shoal(*words)


BAD_USAGE = """
guess
--fast
plan
plan survey.toml
plan survey.toml --flags 2 --q 0.25
plan --choice 5 --at-most 2 --q 0.25
plan --flags 0 --q 0.25
plan --flags 100000 --q 0.25
plan --choice 1 --q 0.25
plan --flags x --q 0.25
plan survey.toml --q 0
plan survey.toml --q nan
plan survey.toml --q x
plan survey.toml --q 0.25 --crowd 0
plan survey.toml --q 0.25 --crowd 1.5
plan survey.toml --epsilon -1 --promise local
plan survey.toml --epsilon 1 --promise strong
plan survey.toml --q 0.25 -o none/plan.json
plan survey.toml --q 0.25 --fast
plan diff plan.json
screen plan.json tally.json --alarm 2
randomize plan.json answers.csv
randomize plan.json answers.csv -o new.csv
randomize plan.json answers.csv -o none/new.parquet
randomize plan.json answers.csv -o .
encode plan.json answers.csv -o new.rows
tally plan.json
tally plan.json r.parquet --joint features
tally plan.json r.parquet --joint features=vpn;features=vpn
tally plan.json r.parquet -o none/t.json
estimate plan.json tally.json --level 95
estimate plan.json tally.json --level nan
estimate plan.json tally.json --level x
estimate plan.json tally.json --interval wald
estimate plan.json tally.json --target world
simulate plan.json
simulate plan.json --users 0
simulate plan.json --users -5
simulate plan.json --users 10 --seed -1
simulate plan.json --answers none.csv
simulate plan.json --answers empty.csv
simulate plan.json --answers empty.csv --users 10
""".strip().splitlines()


def test_bad_usage_is_one_sentence_and_writes_nothing(shoal: Command, tally_file: Path, at: Path):
    (at / "empty.csv").write_text(HEADER, "utf-8")
    before = sorted(path.name for path in at.iterdir())
    for words in BAD_USAGE:
        shoal(*words.split(), code=2)
        assert sorted(path.name for path in at.iterdir()) == before, words


class TestEveryCommand:
    def test_the_whole_path_estimates_the_truth(self, shoal: Command, at: Path):
        """30 000 people. Hoeffding: a count of ones is off by 4 sqrt(n) with probability at most
        2 exp(-32). False alarm: 1.3e-13 for the 5 counts together.
        """
        (at / "many.csv").write_text(HEADER + CSV.removeprefix(HEADER) * 100, "utf-8")
        shoal("randomize", "plan.json", "many.csv", "-o", "r.parquet")
        shoal("tally", "plan.json", "r.parquet", "-o", "t.json")
        document = shoal.json("estimate", "plan.json", "t.json")
        _, *body = (at / "many.csv").read_text("utf-8").splitlines()
        assert document["reports"] == len(body) == 30_000
        questions = document["questions"]
        reach = 4 * 30_000**0.5 / 0.5
        for option in ("sync", "vpn", "reader"):
            truth = sum(option in line for line in body)
            assert abs(questions["features"][option]["count"] - truth) < reach
        for option in ("release", "beta"):
            truth = sum(f",{option}," in line for line in body)
            assert abs(questions["channel"][option]["count"] - truth) < reach

    @pytest.mark.slow
    def test_demo(self, shoal: Command, at: Path):
        document = shoal.json("demo", "--users", "100")
        assert isinstance(document, dict)
        assert (document["reports"], document["before_complete"]) == (100, 409)
        assert document["page"] == "shoal-demo.html"
        truths = [
            [row["truth"] for options in one["questions"].values() for row in options.values()]
            for one in (document, document["counts"])
        ]
        assert truths[0] == truths[1]
        first = (at / "shoal-demo.html").read_text("utf-8")
        said = shoal("demo", "--users", "100")
        assert "shoal serve" in said
        assert "in two views" in said
        assert max(map(len, said.splitlines())) <= 80
        assert "(replaced)" in " ".join(said.split())
        assert (at / "shoal-demo.html").read_text("utf-8") != first
        said = shoal("demo", "--users", "100", "--report", "none/x.html", code=2)
        assert "name another file with --report" in said
        shoal("demo", "--users", "99", code=2)

    def test_an_unexpected_error_is_one_sentence_too(
        self, at: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ):
        def broken(path: object) -> Plan:
            raise ZeroDivisionError("secret detail")

        monkeypatch.setattr(Plan, "read", broken)
        capsys.readouterr()
        assert run(["simulate", "plan.json", "--users", "5"]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) == 1
        assert "ZeroDivisionError" in said.err
        monkeypatch.setenv("SHOAL_DEBUG", "1")
        with pytest.raises(ZeroDivisionError):
            run(["simulate", "plan.json", "--users", "5"])

    @pytest.mark.real_random
    def test_no_entropy_is_exit_code_one(self, shoal: Command, at: Path, monkeypatch: Any):
        monkeypatch.setattr("os.urandom", lambda count: b"")
        said = shoal("randomize", "plan.json", "answers.csv", "-o", "r.parquet", code=1)
        assert "asked the system for 32 random bytes" in said
        assert not (at / "r.parquet").exists()
        assert not list(at.glob("*.part"))


def process(at: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal", *words]
    return subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=60, **options)


class TestProcess:
    def test_a_refusal(self, at: Path):
        words = ["plan", "survey.toml", "--q", "0.25", "--epsilon", "1", "--promise", "local"]
        done = process(at, *words)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.count("\n") == 1

    def test_a_reader_that_goes_away(self, at: Path):
        """`shoal ... | head -0`: no traceback."""
        script = f"{sys.executable} -m shoal estimate --help | true"
        done = subprocess.run(["bash", "-c", script], cwd=at, capture_output=True, text=True)
        assert done.stderr == ""

    def test_output_that_is_not_unicode(self, at: Path):
        """A terminal that knows only ASCII gets JSON all the same."""
        text = SURVEY.replace('"sync"', '"Ж"')
        (at / "odd.toml").write_text(text, "utf-8")
        assert Survey.from_toml(at / "odd.toml").bits == 9
        assert run(["plan", "odd.toml", "--q", "0.25", "-o", "odd.json"]) == 0
        environment = {"PYTHONIOENCODING": "ascii", "PATH": ""}
        words = ["simulate", "odd.json", "--users", "50", "--seed", "1", "--json"]
        done = process(at, *words, env=environment)
        assert done.returncode == 0, done.stderr
        assert "Ж" in json.loads(done.stdout)["questions"]["features"]


class TestMemory:
    """Planning and auditing for people who report again."""

    SURVEY = ("--flags", "3", "--crowd", "5000", "--epsilon", "1", "--delta", "1e-6")
    PLAN = ("plan", "over-time", *SURVEY)

    @pytest.mark.slow
    def test_an_audit_states_what_holds_over_time(self, shoal):
        shoal(*self.PLAN, "--horizon", "weekly for a year", "-o", "m.json")
        said = {}
        for words in ([], ["--releases", "54"], ["--releases", "2"], ["--colluders", "1000"]):
            document = shoal.json("audit", "m.json", *words)
            assert "composition" not in document
            said[" ".join(words)] = {
                one["holds_for"]: one["epsilon"] for one in document["statements"]
            }
        assert said[""] == said["--releases 54"]
        one_answer = "one answer, every release"
        assert said["--releases 2"][one_answer] < said[""][one_answer]
        assert said["--colluders 1000"]["one release"] > said[""]["one release"]
        assert "same crowd, every release" in shoal("audit", "m.json")

    def test_usage(self, shoal):
        for words, message in {
            "": "give one of --horizon and --releases",
            "--lifetime 5": "give one of --horizon and --releases",
            "--horizon daily --releases 3": "give one of",
            "--horizon now": "a horizon is written like",
            "--releases 3 --q 0.2": "has no option",
            "--releases 3 --distinct-answers 0": "--distinct-answers must be",
            "--releases 3 --fresh 1": "fresh must be",
        }.items():
            assert message in shoal(*self.PLAN, *words.split(), code=2), words

    def test_the_plain_form_names_the_command_that_has_the_option(self, shoal):
        error = shoal("plan", *self.SURVEY, "--horizon", "1", code=2)
        assert "--horizon is an option of shoal plan over-time" in error
