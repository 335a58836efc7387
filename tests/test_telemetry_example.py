"""The example tool with telemetry; `tests/cli/test_telemetry.py` sends a report of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal import Plan, Survey
from shoal.cli import run
from shoal.device.telemetry import Telemetry
from tests.device.telemetry_help import a_persons_environment

HERE = Path(__file__).parent.parent / "examples" / "telemetry"


@pytest.mark.slow
def test_it_works_as_a_tool_and_sends_nothing_unasked(tmp_path: Path):
    def wordy(*words: str) -> str:
        return subprocess.run(
            [sys.executable, HERE / "wordy.py", *words],
            env=a_persons_environment(tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    (tmp_path / "text").write_text("one two two")
    assert wordy("count", str(tmp_path / "text")) == "3\n"
    assert wordy("telemetry", "show") == "Nothing has left this machine.\n"
    assert "is off. You have not been asked yet." in wordy("telemetry", "status")
    assert not (tmp_path / ".local").exists()


def test_its_plan_is_that_of_its_survey():
    plan = Plan.read(HERE / "plan.json")
    assert plan.survey == Survey.from_toml(HERE / "survey.toml")
    telemetry = Telemetry("wordy", plan=plan, to="https://telemetry.example.org", limit=60)
    for command in ("count", "longest", "common"):
        telemetry.check(command=command, platform=sys.platform, runs=1)


def test_its_documents_are_current(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(HERE)
    assert run(["telemetry", "docs", "wordy:telemetry", "--check"]) == 0
