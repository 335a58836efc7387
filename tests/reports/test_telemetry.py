"""Documents of a tool's telemetry: computed, escaped, and compared with what is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from shoal import Choice, Flags, Number, Plan, Survey, Telemetry, Text, YesNo
from shoal.cli.telemetry import _facts
from shoal.errors import InputError, PrivacyRefusal
from shoal.planning.certificate import certify
from shoal.planning.threats import what_holds
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Aggregators, Memory, Promise
from shoal.protocol.survey import Retention
from shoal.reports.telemetry import (
    BEGIN,
    END,
    TEMPLATES,
    TelemetryFacts,
    differences,
    documents,
    write_documents,
)
from tests.axe import obstacles
from tests.server.console_help import browser

WEEK = 7 * 86_400
SURVEY = Survey(
    "tool",
    (
        Flags("command", ("build", "test")),
        Choice("platform", ("linux", "macos"), missing="option"),
        Number("runs", (1, 10)),
    ),
)
PLAN = Plan(SURVEY, FlipProbability(9, 5), Promise("local", "7"), window=WEEK, crowd_size=500)


@cache
def facts(plan: Plan = PLAN, **options: Any) -> TelemetryFacts:
    given: dict[str, Any] = {
        "tool": "mytool",
        "to": "https://a.example/path",
        "limit": 60,
    } | options
    return _facts(Telemetry(plan=plan, environ={}, **given))


class TestLeaderAndHelper:
    plan = replace(
        PLAN,
        view="counts",
        promise=Promise("proven", "40", delta="1e-6"),
        parties=Aggregators("https://l.example", "https://h.example", 4),
    )

    def test_who_receives_what(self):
        made = documents(facts(self.plan, to="https://l.example"))
        for name, text in made.items():
            assert "l.example" in text, name
            assert "h.example" in text, name
            assert "analyzer" not in text, name
        text = made["PRIVACY.md"]
        assert "one of two encrypted shares" in text
        assert "before it is split and encrypted" in text
        assert "At the leader" in text
        assert "At the collector" not in text


class TestContent:
    def test_the_same_each_time(self):
        assert documents(facts.__wrapped__()) == documents(facts())

    def test_numbers_are_those_of_the_certificate(self):
        text = documents(facts())["PRIVACY.md"]
        for one in certify(PLAN).to_json(epsilon=7)["observers"]:
            assert f"| {one['who']} | {one['sees']} | {what_holds(one)} |" in text
        assert PLAN.id in text

    def test_a_device_with_an_end_of_its_reports(self):
        survey = Survey("tool", (Retention("weeks", 3, WEEK),))
        plan = Plan(survey, FlipProbability(9, 5), Promise("local", "7"), crowd_size=500)
        for known in (facts(plan), facts(plan, limit=None)):
            text = documents(known)["PRIVACY.md"]
            assert "That is 4 reports in all." in text
            assert "roughly when you began to use mytool" in text
        assert "roughly when you began" not in documents(facts())["PRIVACY.md"]

    @pytest.mark.parametrize("limit", ["6.2", "13", "60", "600"])
    def test_how_many_reports_a_limit_allows(self, limit: str, tmp_path: Path):
        """As many as a simulated device may make."""
        known = facts(limit=limit)
        telemetry = Telemetry("t", plan=PLAN, to="https://a.example", limit=limit, environ={})
        assert known.max_reports == int(Decimal(limit) / Decimal(PLAN.local_epsilon))
        for _ in range(known.max_reports):
            telemetry.record(command="build")
            telemetry.simulate_next_window()
        telemetry.record(command="build")
        with pytest.raises(PrivacyRefusal, match="more than this device's limit"):
            telemetry.simulate_next_window()

    def test_the_worked_example_is_a_report(self):
        """Its bytes say what its table says."""
        known = facts()
        rows = [line.strip() for line in known.example.message if re.fullmatch("  [0-9a-f]+", line)]
        content = bytes.fromhex("".join(rows))
        value = int.from_bytes(content[62:], "little")
        sent = "".join(after for *_, after in known.example.rows)
        assert sent == "".join(str(value >> bit & 1) for bit in range(PLAN.bits))
        before = "".join(bits for _, _, bits, _ in known.example.rows)
        assert before == "10" + "100" + "010"

    @pytest.mark.parametrize(
        "plan",
        [
            replace(PLAN, crowd_size=None),
            replace(PLAN, promise=Promise("proven", "7", "1e-6")),
            Plan(
                Survey(
                    "s", (Text("t", 64, 2, 8), YesNo("y"), Number("n", low=0, high=4, points=5))
                ),
                FlipProbability(1, 2),
                Promise("local", "40"),
                window=3600,
            ),
            Plan(SURVEY.cross("platform", "runs"), PLAN.q, Promise("local", "12"), window=WEEK),
        ],
        ids=["no crowd", "a crowd's promise", "all kinds", "crossed"],
    )
    def test_every_kind_of_plan(self, plan: Plan):
        for name, text in documents(facts(plan, limit=100)).items():
            assert text.count(BEGIN) == text.count(END) == 1, name
            assert "None" not in text, name

    def test_memory_is_no_tracker_by_design(self):
        memory = Memory(FlipProbability(9, 5), FlipProbability(9, 5))
        plan = replace(PLAN, q=memory.q, memory=memory)
        verdicts, plain = (
            dict(row.split(" | ")[:2] for row in text.splitlines() if " | **" in row)
            for text in (documents(facts(one))["CNIL.md"] for one in (plan, PLAN))
        )
        assert len(plain) == 8
        changed = {text for text in plain if verdicts[text] != plain[text]}
        assert len(changed) == 2
        assert all(plain[text] == "**met by design**" for text in changed)
        assert facts(plan).max_reports is None

    def test_flips_that_protect_little_are_told(self):
        weak = replace(PLAN, q=FlipProbability(1, 16), promise=Promise("local", "100"))
        for name, text in documents(facts(weak, limit=900)).items():
            told = "learns the answer" in text
            assert told is (name != "CNIL.md"), name
        assert "taken at face value" in documents(facts())["PRIVACY.md"]

    def test_what_people_wrote_is_escaped(self):
        evil = "<script>alert(1)</script>|`x`"
        survey = Survey(evil, (Flags(evil, (f"{evil}1", "b")),))
        plan = Plan(survey, FlipProbability(1, 2), Promise("local", "3"), window=WEEK)
        made = documents(facts(plan, tool="my<b>tool", why=evil))
        for name in ("privacy-label.svg", "privacy-label.html"):
            assert "<script" not in made[name]
            assert "<b>" not in made[name]
        ElementTree.fromstring(made["privacy-label.svg"])
        for name in ("PRIVACY.md", "DPIA.md"):
            prose = re.sub(r"```text\n.*?\n```\n", "", made[name], flags=re.S)
            assert not re.search(r"(?<!\\)<script", prose), name
            assert not re.search(r"(?<!\\)\|`x", prose), name


class TestFiles:
    def test_text_outside_the_marks_stays(self, tmp_path: Path):
        assert write_documents(documents(facts()), tmp_path) == list(TEMPLATES)
        file = tmp_path / "DPIA.md"
        file.write_text("Ours first.\n" + file.read_text("utf-8") + "Ours last.\n", "utf-8")
        assert differences(documents(facts()), tmp_path) == []
        other = documents(facts(limit=120))
        assert "DPIA.md" in write_documents(other, tmp_path)
        text = file.read_text("utf-8")
        assert text.startswith("Ours first.\n")
        assert text.endswith("Ours last.\n")
        assert "a local epsilon of 120" in text
        assert write_documents(other, tmp_path) == []

    def test_what_differs_is_said(self, tmp_path: Path):
        write_documents(documents(facts()), tmp_path)
        (tmp_path / "CNIL.md").unlink()
        privacy = tmp_path / "PRIVACY.md"
        text = privacy.read_text("utf-8")
        privacy.write_text(text.replace("sends one report a week", "sends nothing"), "utf-8")
        missing, changed = sorted(differences(documents(facts()), tmp_path))[::-1]
        if "CNIL" not in missing:
            missing, changed = changed, missing
        assert missing.endswith("CNIL.md is missing.")
        assert "-If you say yes, mytool sends nothing to" in changed
        assert "+If you say yes, mytool sends one report a week to" in changed

    def test_a_file_of_somebody_else_is_not_touched(self, tmp_path: Path):
        (tmp_path / "PRIVACY.md").write_text("our own notice", "utf-8")
        for act in (write_documents, differences):
            with pytest.raises(InputError, match="has not the two marks"):
                act(documents(facts()), tmp_path)
        assert (tmp_path / "PRIVACY.md").read_text("utf-8") == "our own notice"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Opens a label with much text at a width and in a colour scheme."""
    folder = tmp_path_factory.mktemp("label")
    names = tuple(f"a question with a long name {number}" for number in range(8))
    survey = Survey("s", tuple(Flags(name, ("a",)) for name in names))
    plan = replace(PLAN, survey=survey, promise=Promise("local", "20"))
    write_documents(documents(facts(plan)), folder)
    with browser() as running:

        def shown(name: str, width: int, scheme: str) -> Any:
            size = {"width": width, "height": 700}
            page = running.new_page(viewport=size, color_scheme=scheme)
            page.goto((folder / name).as_uri())
            return page

        yield shown


@pytest.mark.slow
@pytest.mark.system
class TestLabel:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [320, 900])
    def test_the_card(self, pages: Any, scheme: str, width: int):
        page = pages(name="privacy-label.html", width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert obstacles(page) == []

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_the_picture(self, pages: Any, scheme: str):
        """Every text is within the card."""
        page = pages(name="privacy-label.svg", width=700, scheme=scheme)
        ends = page.evaluate(
            "[...document.querySelectorAll('text')].map(one => {"
            " const box = one.getBBox(); return [box.x + box.width, box.y + box.height] })"
        )
        height = page.evaluate("document.documentElement.viewBox.baseVal.height")
        assert len(ends) > 15
        assert all(right < 625 and bottom < height for right, bottom in ends)
