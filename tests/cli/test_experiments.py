"""`shoal experiment`, `shoal retention`, `shoal study` and `shoal plan --detect`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cli import run
from shoal.experiments import people_to_detect
from shoal.protocol.survey import Survey

SURVEY = """
name = "tool"
[[question]]
name = "start"
kind = "arm"
arms = ["list", "tour"]
[[question]]
name = "done"
kind = "yes/no"
[[question]]
name = "steps"
kind = "funnel"
steps = ["opened", "used"]
[[cross]]
questions = ["start", "done"]
"""
WEEKLY = """
name = "weekly"
[[question]]
name = "age"
kind = "retention"
periods = 2
period = "1w"
"""
PROMISE = ("--epsilon", "1", "--delta", "1e-6", "--view", "counts", "--accept-weak-promise")

Said = Callable[..., str]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("tool.toml").write_text(SURVEY, "utf-8")
    Path("weekly.toml").write_text(WEEKLY, "utf-8")

    def call(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*words]) == code, capsys.readouterr().err
        captured = capsys.readouterr()
        return captured.out if code == 0 else captured.err

    return call


def write_answers(name: str, rows: list[dict[str, Any]]) -> None:
    heads = list(rows[0])
    lines = [",".join(heads), *(",".join(str(row[head]) for head in heads) for row in rows)]
    Path(name).write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.slow
def test_from_a_plan_to_a_comparison(said: Said) -> None:
    plain = said("plan", "tool.toml", "--detect", "5", *PROMISE, "--weekly", "1000", "-o", "p.json")
    needed = people_to_detect(Survey.from_toml(Path("tool.toml")), 0.05, epsilon=1, delta="1e-6")
    assert f"{needed.open:,} people, 4 weeks at 1,000 a week" in plain
    assert f"{needed.counts:,} people" in plain
    assert "points between arms" in plain
    generator = np.random.default_rng(1)
    for number in (1, 2):
        arms = generator.integers(2, size=needed.counts)
        done = generator.random(needed.counts) < np.take([0.2, 0.4], arms)
        rows = [
            {"start": ("list", "tour")[arm], "done": one, "steps": ("opened", "used")[int(one)]}
            for arm, one in zip(arms, done, strict=True)
        ]
        write_answers("answers.csv", rows)
        said(
            "simulate", "p.json", "--answers", "answers.csv", "--seed", "1", "-o", f"t{number}.json"
        )
    shown = said("experiment", "p.json", "t1.json")
    assert "minus list" in shown
    assert max(map(len, shown.splitlines())) <= 80
    document = json.loads(said("experiment", "p.json", "t1.json", "--json"))
    effect = document["outcomes"][0]["effects"]["tour"]["difference"]
    assert effect["low"] < 0.2 < effect["high"]
    assert json.loads(said("estimate", "p.json", "t1.json", "--json"))["experiments"]["start"] == (
        document
    )
    assert "Sample ratio" in said("estimate", "p.json", "t1.json")
    assert "confidence sequence" in said("experiment", "p.json", "t1.json", "t2.json")
    looks = json.loads(said("experiment", "p.json", "t1.json", "t2.json", "--json"))["looks"]
    assert [one["reports"] for one in looks] == [needed.counts, 2 * (needed.counts or 0)]


def test_retention_of_weeks(said: Said) -> None:
    said("plan", "weekly.toml", "--q", "0.02", "--promise", "local", "-o", "w.json")
    for week, ages in enumerate(({0: 900}, {0: 900, 1: 450}, {0: 900, 1: 450, 2: 225}), 1):
        rows = [{"age": age} for age, people in ages.items() for _ in range(people)]
        write_answers("answers.csv", rows)
        tally = f"w{week}.json"
        said("simulate", "w.json", "--answers", "answers.csv", "--seed", "1", "-o", tally)
    curve = json.loads(said("retention", "w.json", "w1.json", "w2.json", "w3.json", "--json"))
    for point, truth in zip(curve["points"], (0.5, 0.25), strict=True):
        assert point["low"] <= truth <= point["high"]
    assert "active in it" in said("retention", "w.json", "w1.json", "w2.json", "w3.json")
    assert "Q=OPTION" in said("retention", "w.json", "w1.json", "--group", "age", code=2)


def test_simulated_windows(said: Said) -> None:
    said("plan", "weekly.toml", "--q", "0.02", "--promise", "local", "-o", "w.json")
    words = ["simulate", "w.json", "--users", "2000", "--windows", "4", "--leave", "50%"]
    words += ["--pause", "0", "--seed", "1"]
    shown = said(*words, "-o", "week.json")
    assert "truth" in shown
    assert "tallies written to week1.json ... week4.json" in shown
    document = json.loads(said(*words, "--level", "0.999", "--json"))
    for point, expected in zip(document["points"], (0.5, 0.25), strict=True):
        assert point["truth"] == pytest.approx(expected, abs=0.03)
        assert point["low"] <= point["truth"] <= point["high"]
    files = [f"week{number}.json" for number in range(1, 5)]
    curve = json.loads(said("retention", "w.json", *files, "--target", "crowd", "--json"))
    values = [[point["value"] for point in one["points"]] for one in (curve, document)]
    assert values[0] == values[1]
    for wrong, sentence in {
        "--windows 2": "say with --users",
        "--users 9 --windows 0": "--windows must be between 1",
        "--users 9 --leave 0.1": "need --windows",
        "--users 9 --windows 2 --leave x": "--leave is a share",
        "--users 9 --windows 2 --pause 2": "leave and pause are probabilities",
        "--users 9 --windows 2 --leave a=0.1": "by arm need one arm question",
        "--users 9 --windows 2 --repeat 3": "--windows goes with",
    }.items():
        assert sentence in said("simulate", "w.json", *wrong.split(), code=2)


@pytest.mark.slow
def test_study(said: Said) -> None:
    small = ("--repetitions", "20", "--crowds", "2000", "--shares", "0.1", "--views", "counts")
    words = ("study", *small)
    assert "funnel" in said(*words, "--only", "funnel")
    assert json.loads(said(*words, "--only", "ratio", "--json"))["repetitions"] == 20
    assert "must be one of" in said(*words, "--only", "median", code=2)


def test_mistakes(said: Said) -> None:
    assert "give one of" in said(
        "plan", "tool.toml", "--detect", "2", "--crowd", "100", *PROMISE, code=2
    )
    assert "--weekly needs" in said("plan", "tool.toml", "--q", "0.1", "--weekly", "5", code=2)
    assert "no experiment" in said("plan", "weekly.toml", "--detect", "2", *PROMISE, code=2)
    assert "not possible" in said(
        "plan", "tool.toml", "--detect", "60", "--share", "0.5", *PROMISE, code=2
    )
