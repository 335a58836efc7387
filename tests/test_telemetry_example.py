"""The example tool with telemetry, from its first run to what the collector accepted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal import Plan, Survey
from shoal.device.telemetry import Telemetry
from tests.server.serving_help import clean_environment

HERE = Path(__file__).parent.parent / "examples" / "telemetry"


@pytest.mark.slow
def test_the_demonstration():
    done = subprocess.run(
        [sys.executable, HERE / "demo.py"],
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("$ wordy telemetry on")
    assert "Nothing has left this machine." in before
    assert after.count("the answer was 202.") == 1
    assert "Reports: 1 sent, 0 waiting." in after
    assert "was deleted, and it is off" in after


def test_its_plan_is_that_of_its_survey():
    plan = Plan.read(HERE / "plan.json")
    assert plan.survey == Survey.from_toml(HERE / "survey.toml")
    telemetry = Telemetry("wordy", plan=plan, to="https://telemetry.example.org", limit=60)
    for command in ("count", "longest", "common"):
        telemetry.check(command=command, platform=sys.platform, runs=1)
