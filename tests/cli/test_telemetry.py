"""`shoal telemetry`: one report from consent to a collector, and the documents of a tool."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from shoal import Choice, Date, Flags, Number, Plan, Survey, Text, YesNo, plan
from shoal.cli import run
from shoal.device.encode import encode, set_bits
from shoal.device.telemetry.worker import check_answers
from shoal.lab.demo import console_get, made_up_answers, running_collector
from shoal.protocol.survey import Arm, Funnel
from shoal.protocol.wire import split_batch

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "telemetry"
PLAN_FILE = str(EXAMPLE / "plan.json")


class TestTry:
    @pytest.mark.slow
    def test_the_tools_own_object(self, capsys, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(EXAMPLE)
        monkeypatch.setenv("CI", "1")  # whoever types this command wants to see it
        words = ["--record", "command=count;common", "--record", "platform=linux"]
        assert run(["telemetry", "try", "wordy:telemetry", *words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["recorded"] == {"command": "count;common", "platform": "linux"}
        assert (document["again"], document["problem"]) == (0, None)
        (request,) = document["requests"]
        plan = Plan.read(EXAMPLE / "plan.json")
        body = base64.b64decode(request["sent"]).partition(b"\r\n\r\n")[2]
        sent = int.from_bytes(split_batch(plan, body).content[20:], "little")
        truth = encode(plan, {"command": ["count", "common"], "platform": "linux", "runs": 0})
        assert (sent ^ truth.value).bit_count() < plan.bits  # it is about the same survey

    def test_mistakes_are_one_sentence(self, capsys):
        for words, told in {
            f"{PLAN_FILE} --limit 5": "more than this device's limit of 5",
            f"{PLAN_FILE} --record command=frobnicate": "is not one of its options",
            f"{PLAN_FILE} --record command": "QUESTION=VALUE",
            "mytool": "neither a plan",
            "no.such.module:telemetry": "cannot import no.such.module:telemetry",
            "json:dumps": "is not a Telemetry object",
            "json:dumps --limit 5": "go with a plan",
        }.items():
            check_one_sentence(capsys, ["telemetry", "try", *words.split()], told)


def check_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert run(words) in (1, 2, 3)
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


EVERY_KIND = Survey(
    "tool",
    (
        YesNo("a", missing="option"), YesNo("b"), Choice("c", ("x", "y"), other=True),
        Flags("d", ("x", "y", "z"), at_most=2), Text("e", 64, 1, 2), Number("f", (1, 2)),
        Number("g", low=0, high=1, points=3, missing="option"), Date("h", "month"),
        Date("i", "weekday"), Date("j", "week"), Funnel("k", ("first", "second")),
        Arm("l", ("control", "new")),
    ),
)  # fmt: skip


class TestSimulate:
    def test_people_give_every_answer_that_a_tool_can_record(self):
        people = list(made_up_answers(EVERY_KIND, 3000, seed=1))
        assert people == list(made_up_answers(EVERY_KIND, 3000, seed=1))
        said: dict[str, set[int]] = {question.name: set() for question in EVERY_KIND}
        for person in people:
            assert "l" not in person  # the device draws its arm
            check_answers(EVERY_KIND, person)
            for name in person.keys() - {"e"}:
                said[name].update(set_bits(EVERY_KIND[name], person[name]))
        for question in EVERY_KIND:
            if question.name not in ("e", "l"):
                assert said[question.name] == set(range(question.bits)), question

    @pytest.mark.slow
    def test_reports_reach_a_collector(self, tmp_path: Path, capsys):
        """Of a plan about a device's past, with an arm, and 60 people of 100."""
        asked = Survey("tool", (Arm("l", ("control", "new")), Funnel("k", ("first", "second"))))
        made = plan(asked, promise="local", epsilon=4, crowd_size=100, window=604_800)
        made.write(tmp_path / "tool.json")
        with running_collector(tmp_path, made) as urls:
            words = ["telemetry", "simulate", str(tmp_path / "tool.json"), "--limit", "9"]
            assert run([*words, "--collector", urls["public"], "--people", "60"]) == 0
            assert "60 simulated people used tool" in capsys.readouterr().out
            token = (tmp_path / "admin-token").read_text().strip()
            path = f"/v1/plans/{made.id}/progress"
            _, content = console_get(urls["console"], path, token)
            assert json.loads(content)["progress"] == 60

    def test_mistakes_are_one_sentence(self, capsys):
        for words, told in {
            "--collector https://telemetry.example.org": "an address of this machine",
            "--collector telemetry": "an address of this machine",
            "--collector http://127.0.0.1:9": "127.0.0.1",
            "": "--collector",
            "--collector http://127.0.0.1:9 --people 0": "--people",
        }.items():
            simulated = ["telemetry", "simulate", PLAN_FILE, "--limit", "60", *words.split()]
            check_one_sentence(capsys, simulated, told)


NUMBERS = itertools.count()
TOOL = """
from shoal import Telemetry
telemetry = Telemetry("mytool", plan=PLAN, to="https://a.example", limit=LIMIT)
def main(words):
    telemetry.record(command="count", platform=words)
    telemetry.count(runs=1)
"""


class TestDocs:
    @pytest.fixture
    def tool(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
        monkeypatch.chdir(tmp_path)
        return Tool(tmp_path)

    def test_written_and_checked(self, tool: Tool, capsys: pytest.CaptureFixture[str]):
        tool.write()
        assert tool.docs() == 0
        assert sorted(path.name for path in (tool.folder / "privacy").iterdir()) == [
            "CNIL.md",
            "DPIA.md",
            "PRIVACY.md",
            "privacy-label.html",
            "privacy-label.svg",
        ]
        assert tool.docs("--check") == 0
        assert "code, plan and privacy agree" in capsys.readouterr().out

    def test_what_differs(self, tool: Tool, capsys):
        tool.write()
        assert tool.docs() == 0
        code = TOOL.replace("command=", "comand=").replace(".count(runs", ".count(platform")
        code += '    telemetry.record(command="cuont")\n'
        for change, told in (
            ({"limit": "30"}, ["+- No report is made that would raise"]),
            ({"plan": "other.json"}, ["Computed from the plan"]),
            (
                {"code": code},
                ["question 'comand' is not asked", "not one of its options", "'runs' of the plan"],
            ),
        ):
            tool.write(**change)
            capsys.readouterr()
            assert tool.docs("--check", "--json") == 2
            differences = " ".join(json.loads(capsys.readouterr().out)["differences"])
            assert [one for one in told if one not in differences] == []

    def test_code_that_contradicts_the_plan_gets_no_documents(self, tool: Tool, capsys):
        tool.write(code=TOOL.replace("command=", "comand="))
        assert tool.docs() == 2
        assert "line 5: question 'comand' is not asked" in capsys.readouterr().err
        assert not (tool.folder / "privacy").exists()

    @pytest.mark.slow
    def test_of_a_plan_alone(self, tmp_path: Path, capsys):
        words = ["telemetry", "docs", PLAN_FILE, "--limit", "60", "-o", str(tmp_path)]
        assert run(words) == 2
        assert "need --to" in capsys.readouterr().err
        words += ["--to", "https://a.example"]
        assert run(words) == 0
        assert run([*words, "--check"]) == 0
        capsys.readouterr()
        assert run([*words[:4], "66", *words[5:], "--check"]) == 2

    def test_every_kind_of_question_has_an_example(self, tmp_path: Path, capsys):
        asked = (
            *(YesNo("a"), Choice("b", ("x", "y")), Flags("c", ("x", "y")), Text("d", 64, 1, 2)),
            *(Number("e", (1, 2)), Number("f", low=0, high=1, points=2), Date("g", "month")),
        )
        made = plan(Survey("tool", asked), promise="local", epsilon=90, accept_weak_promise=True)
        replace(made, window=604_800).write(tmp_path / "plan.json")
        words = ["telemetry", "docs", str(tmp_path / "plan.json"), "--to", "https://a.example"]
        assert run([*words, "-o", str(tmp_path)]) == 0, capsys.readouterr().err
        assert "2026-01-01" in (tmp_path / "PRIVACY.md").read_text()


class Tool:
    """A package whose code a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._name = folder, ""
        plan = Plan.read(EXAMPLE / "plan.json")
        plan.write(folder / "plan.json")
        replace(plan, crowd_size=2000).write(folder / "other.json")

    def write(self, code: str = TOOL, limit: str = "60", plan: str = "plan.json") -> None:
        """Write the tool as a new package: Python imports a module once."""
        self._name = f"tool{next(NUMBERS)}"
        package = self.folder / self._name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "template.py").write_text("class {{ name }}")  # never imported
        text = code.replace("PLAN", repr(str(self.folder / plan))).replace("LIMIT", limit)
        (package / "cli.py").write_text(text)

    def docs(self, *words: str) -> int:
        return run(["telemetry", "docs", f"{self._name}.cli:telemetry", *words])
