"""Pages of experiments, funnels and retention curves, and the example that makes them."""

from __future__ import annotations

import re
import runpy
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from shoal import Plan, Survey, plan, simulate_windows
from shoal.analysis.retention import curves_of
from shoal.protocol.survey import Arm, Retention
from shoal.reports.experiments import retention_section

EXAMPLE = Path(__file__).parents[2] / "examples" / "onboarding.py"


def texts(page: str) -> str:
    """Return what a page says, without its elements."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


@pytest.mark.slow
def test_the_example_has_the_experiment_and_the_curves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every interval of the seeded example holds the truth that its simulated users have."""
    example = runpy.run_path(str(EXAMPLE))
    example["main"](tmp_path)
    printed = capsys.readouterr().out
    assert max(len(line) for line in printed.splitlines()[:-1]) <= 80
    setup = texts((tmp_path / "site" / "setup" / "index.html").read_text("utf-8"))
    finishes, stays = example["FINISHES"], example["STAYS"]
    for said in ("Finished the setup", "Each arm minus list", "Holm", "Sample ratio", "simulated"):
        assert said in setup
    found = re.search(r"tour \+[\d.]+ \+([\d.]+) \+([\d.]+)", setup)
    assert found is not None
    low, high = map(float, found.groups())
    assert 0 < low <= 100 * (finishes[1] - finishes[0]) <= high
    weekly = texts((tmp_path / "site" / "weekly" / "index.html").read_text("utf-8"))
    assert "who comes back" in weekly
    table = weekly.partition("parts in percent, with intervals")[2]
    for arm, stay in zip(example["ARMS"], stays, strict=True):
        cells = re.findall(
            r"([\d.]+)\s*%\N{EN DASH}([\d.]+)\s*%", table.partition(f"Onboarding: {arm}")[2]
        )
        for age, (low_end, high_end) in enumerate(cells[: example["PERIODS"]], 1):
            assert float(low_end) <= 100 * stay**age <= float(high_end)


@pytest.fixture(scope="module")
def agreed() -> Plan:
    survey = Survey("tool", (Arm("start", ("list", "tour")), Retention("age", 2, "1w")))
    return plan(survey.cross("start", "age"), q="0.1", accept_weak_promise=True)


def section(agreed: Plan, chosen: slice, people: int = 400) -> dict[str, Any]:
    run = simulate_windows(agreed, new_users=people, windows=4, leave=0.5, pause=0, seed=2)
    curves = curves_of(agreed, run.tallies[chosen])
    return retention_section("Age", {name: one.to_json() for name, one in curves.items()})


class TestRetentionSection:
    def test_a_curve_has_a_panel_for_everybody_and_each_arm(self, agreed: Plan):
        made = section(agreed, slice(None))
        assert [row.label for row in made["table"].rows] == [
            "everybody",
            "start: list",
            "start: tour",
        ]
        assert "shares over 2 periods" in str(made["charts"])

    def test_periods_that_no_release_tells_are_not_drawn(self, agreed: Plan):
        made = section(agreed, slice(0, 2))
        assert [cell.value for cell in made["table"].rows[0].cells][1] == "?"
        assert "shares over 1 period<" in str(made["charts"])
        assert "active in it" not in made["about"]

    def test_nothing_is_drawn_if_nothing_is_known(self, agreed: Plan):
        made = section(agreed, slice(0, 4, 3))
        assert made["charts"] == []
        assert {cell.value for row in made["table"].rows for cell in row.cells} == {"?"}
