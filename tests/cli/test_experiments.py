"""`shoal experiment`, `shoal retention`, `shoal study` and `shoal plan --detect`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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


@pytest.mark.slow
def test_releases_of_an_experiment_are_monitored(said: Said) -> None:
    """A plan for an effect says how many people it takes; each release of them is a look."""
    plain = said("plan", "tool.toml", "--detect", "5", *PROMISE, "--weekly", "1000", "-o", "p.json")
    needed = people_to_detect(Survey.from_toml(Path("tool.toml")), 0.05, epsilon=1, delta="1e-6")
    assert f"{needed.open:,} people, 4 weeks at 1,000 a week" in plain
    for seed in "12":
        users = ("--users", str(needed.counts), "--seed", seed)
        said("simulate", "p.json", *users, "-o", f"t{seed}.json")
    assert "Sample ratio" in said("estimate", "p.json", "t1.json")
    assert "confidence sequence" in said("experiment", "p.json", "t1.json", "t2.json")
    looks = json.loads(said("experiment", "p.json", "t1.json", "t2.json", "--json"))["looks"]
    assert [one["reports"] for one in looks] == [needed.counts, 2 * (needed.counts or 0)]
    impossible = ("plan", "tool.toml", "--detect", "60", "--share", "0.5", *PROMISE)
    assert "not possible" in said(*impossible, code=2)


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
