"""Telemetry within the tool: nothing before a yes, nothing on the network, never an error."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import click.testing
import pytest

from shoal import Choice, Date, Flags, Number, Plan, Survey, Text, YesNo
from shoal.device.encode import encode
from shoal.device.telemetry import Telemetry, consent, state
from shoal.device.telemetry.describe import Terms, catalogue
from shoal.device.telemetry.state import CI_VARIABLES
from shoal.device.telemetry.worker import Event, merge, read_events
from shoal.errors import AnswerError, InputError, MissingExtraError, ShoalError
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Memory, Promise
from shoal.protocol.wire import split_batch
from shoal.support.results import width_of
from tests.device.outbox_help import Server
from tests.device.telemetry_help import (
    PLAN,
    TOOL,
    WEEK,
    World,
    a_persons_environment,
    run_tool,
    tool_command,
    wait_for,
    world_of,
    world_of_tools,
)


@pytest.fixture
def world(tmp_path: Path, server: Server) -> World:
    return World(tmp_path, server.url)


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestConsent:
    def test_nothing_is_written_before_a_yes(self, world: World, tmp_path: Path):
        telemetry = world.run("c1", "c2")
        assert telemetry.choice() == "not asked"
        assert everything(tmp_path) == []

    def test_a_yes_keeps_what_was_recorded_in_that_run(self, world: World):
        telemetry = world.tool()
        telemetry.record(command="c1")
        consent.on(telemetry)
        (file,) = world.home.glob("*/events.*")
        assert read_events(file.read_bytes()) == [("record", {"command": "c1"})]

    def test_a_no_is_for_good(self, world: World, server: Server):
        world.say_yes()
        world.run("c1")
        consent.off(world.tool())
        world.report("c2")
        assert not list(world.home.glob("*/events.*"))
        assert server.connections == []
        other = World(Path(world.environ["XDG_STATE_HOME"]), world.to, replace(PLAN, crowd_size=9))
        assert other.tool().choice() == "no"  # another version of the tool does not ask again

    @pytest.mark.parametrize("change", ["plan", "address", "limit"])
    def test_a_yes_is_to_one_plan_one_address_and_one_limit(self, world: World, change: str):
        world.say_yes()
        assert world.tool().choice() == "yes"
        if change == "plan":
            world.plan = replace(PLAN, crowd_size=PLAN.crowd_size and PLAN.crowd_size + 1)
        elif change == "address":
            world.to = "http://127.0.0.1:9"
        else:
            world.options["limit"] = 900
        telemetry = world.run("c1")
        assert telemetry.choice() == "changed"
        assert not list(world.home.glob("*/events.*"))

    def test_the_name_of_a_folder_proves_nothing(self, world: World):
        """It is a checksum; what counts is the text within."""
        world.say_yes()
        (agreed,) = world.home.glob("*/agreed")
        world.plan = replace(PLAN, crowd_size=7)
        agreement = world.tool().agreement()
        agreed.parent.rename(state.agreement_folder(str(world.home), agreement))
        assert world.tool().choice() == "changed"

    def test_two_versions_do_not_ask_in_turns(self, world: World):
        world.say_yes()
        first, world.plan = world.plan, replace(PLAN, crowd_size=7)
        world.say_yes()
        assert world.tool().choice() == "yes"
        world.plan = first
        assert world.tool().choice() == "yes"

    @pytest.mark.parametrize("name", [*CI_VARIABLES, "DO_NOT_TRACK"])
    def test_what_speaks_against_it_wins(self, world: World, server: Server, name: str):
        world.say_yes()
        world.run("c1")
        world.run("c2", **{name: "1"})
        (file,) = world.home.glob("*/events.*")
        assert b"c2" not in file.read_bytes()
        world.next_window()
        world.work(**{name: "1"})
        assert server.connections == []
        with pytest.raises(InputError, match=f"stays off: {name} is set"):
            consent.on(world.tool(**{name: "1"}))

    def test_the_tools_own_switch_turns_it_off_and_not_on(self, world: World):
        assert world.tool(MYTOOL_TELEMETRY="1").choice() == "not asked"
        world.say_yes()
        for word in ("0", "off", "False", "no"):
            assert world.tool(MYTOOL_TELEMETRY=word).choice() == "no"
        for word in ("", "1", "on"):
            assert world.tool(MYTOOL_TELEMETRY=word).choice() == "yes"


class TestPlaces:
    def test_no_home(self, server: Server):
        telemetry = Telemetry("mytool", plan=PLAN, to=server.url, environ={})
        telemetry.record(command="c1")
        telemetry.flush()
        assert telemetry.folder is None
        assert telemetry.why_off() == "this user has no home folder"
        assert "is off: this user has no home folder" in consent.status(telemetry)
        for do in (consent.on, consent.off, consent.show, consent.delete):
            with pytest.raises(InputError):
                do(telemetry)

    @pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="other folders there")
    def test_the_usual_home(self):
        """Relative paths mean nothing."""
        usual = "/home/ada/.local/state/t/telemetry"
        assert state.state_folder("t", {"HOME": "/home/ada", "XDG_STATE_HOME": "x"}) == usual
        assert state.state_folder("t", {"XDG_STATE_HOME": "state", "HOME": "here"}) is None

    def test_where_nothing_can_be_written(self, tmp_path: Path, server: Server):
        (tmp_path / "file").write_text("not a folder")
        world = World(tmp_path / "file", server.url)
        telemetry = world.tool()
        telemetry.record(command="c1")
        telemetry.flush()
        with pytest.raises(OSError, match="file"):
            consent.on(telemetry)
        assert telemetry.choice() == "not asked"

    def test_a_disk_that_is_full_or_read_only_later(self, world: World, monkeypatch):
        world.say_yes()

        def full(*args: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.write", full)
        telemetry = world.tool()
        telemetry.record(command="c1")
        telemetry.flush()
        assert telemetry.problem is not None
        assert "No space left" in telemetry.problem

    def test_root_in_the_home_of_another(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.geteuid", lambda: 0)
        seen = os.stat(tmp_path)
        owned = os.stat_result((*seen[:4], 1000, *seen[5:]))
        monkeypatch.setattr("os.stat", lambda *args, **named: owned)
        for folder in (str(tmp_path / "deep" / "er"), "not/yet/there"):
            assert state.why_not_here(folder) is not None

    def test_files_are_the_owners_alone(self, world: World):
        world.say_yes()
        world.run("c1")
        for path in world.home.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0
        assert world.home.stat().st_mode & 0o777 == 0o700
        assert world.home.parent.stat().st_mode & 0o777 == 0o700  # made with it

    def test_folders_of_earlier_versions_are_closed(self, world: World):
        world.say_yes()
        world.run("c1")
        folders = [world.home, *(path.parent for path in world.home.glob("*/agreed"))]
        for folder in folders:
            folder.chmod(0o755)
        world.home.parent.chmod(0o755)
        world.report()
        for folder in folders:
            assert folder.stat().st_mode & 0o777 == 0o700
        assert world.home.parent.stat().st_mode & 0o777 == 0o755  # the tool's own folder


class TestMerging:
    SURVEY = Survey(
        "all",
        (
            Flags("f", ("a", "b", "c")),
            Choice("c", ("x", "y"), missing="option"),
            Number("n", (1, 10)),
            YesNo("y"),
            Text("t", 64, 2, 8),
        ),
    )

    def merged(self, *events: Event) -> dict[str, object]:
        return merge(self.SURVEY, events).answer

    def test_nothing_happened(self):
        assert self.merged() == {"f": [], "c": None, "n": 0.0, "y": "no", "t": ""}

    def test_many_events_are_one_answer(self):
        answer = self.merged(
            ("record", {"f": "a", "c": "y", "n": 3, "y": False, "t": "first"}),
            ("record", {"f": ["c", "a"], "c": "x", "n": 2, "y": True, "t": "second"}),
            ("record", {"f": "a", "y": False}),
        )
        assert answer == {"f": ["a", "c"], "c": "y", "n": 3.0, "y": "yes", "t": "first"}

    def test_counts_add_up(self):
        assert self.merged(*[("count", {"n": 4})] * 5)["n"] == 20.0

    def test_what_does_not_fit_is_left_out(self):
        bad = {"f": "z", "c": "z", "n": "many", "y": "perhaps", "t": 7, "nobody": "asked"}
        assert self.merged(("record", bad), ("count", {"f": 1})) == self.merged()
        for name, value in bad.items():
            with pytest.raises(AnswerError):
                self.telemetry().check(**{name: value})
        self.telemetry().check(f="a;b", c="x", n=2, y=True, t="words")

    def telemetry(self, window: int = 3600) -> Telemetry:
        plan = Plan(self.SURVEY, PLAN.q, PLAN.promise, window=window)
        return Telemetry("mytool", plan=plan, to="https://x.example", folder="/nowhere")

    def test_a_choice_that_nobody_made(self):
        with pytest.raises(AnswerError, match="nothing was recorded for question 'c'"):
            merge(Survey("s", (Choice("c", ("x", "y")),)), [])

    def test_choices_take_the_first(self):
        survey = Survey("s", (Flags("c", ("x", "y", "z"), 2),))
        events: list[Event] = [("record", {"c": name}) for name in ("z", "z", "x", "y")]
        merged = merge(survey, events)
        assert merged.answer == {"c": ["z", "x"]}
        assert merged.problems == ["Question 'c': only the first 2 options were kept."]

    def test_damaged_lines_are_left_out(self):
        whole = b"('record', {'f': ['a']})\n"
        content = (
            whole + b"('rec" + b"\n\xff\xfe\n(1)\n[]\n('other', {})\n('record', 3)\n" + whole[:9]
        )
        assert read_events(content) == [("record", {"f": ["a"]})]

    def test_a_line_is_written_once_but_counts_repeat(self, world: World):
        world.say_yes()
        for _ in range(50):
            telemetry = world.run("c1", "c2")
            telemetry.count(runs=1)
        (file,) = world.home.glob("*/events.*")
        assert len(file.read_bytes().splitlines()) == 52

    def test_a_file_of_events_does_not_grow_for_ever(self, world: World):
        world.say_yes()
        telemetry = world.tool()
        for _ in range(4):
            telemetry.count(**{"x" * (1 << 18): 1})
            assert (telemetry.problem or "").endswith("more are dropped.") is (_ == 3)
        (file,) = world.home.glob("*/events.*")
        assert file.stat().st_size < 1 << 20


class TestContradictions:
    """What would never send anything raises where the tool is made; a machine's state does not."""

    LOCAL = replace(PLAN, promise=Promise("local", "800"), window=WEEK)
    CROWD = replace(PLAN, promise=Promise("proven", "1", "1e-6"))

    @pytest.mark.parametrize(
        ("plan", "options", "told"),
        [
            (b"{", {}, "telemetry needs a plan"),
            (b"[]", {}, "plan"),
            (b"\xff", {}, "plan"),
            (replace(PLAN, window=None), {}, "--window"),
            (replace(PLAN, window=60), {}, "window of 60 seconds"),
            (PLAN, {"limit": 2}, "more than this device's limit of 2"),
            (PLAN, {"limit": "700.5"}, "more than this device's limit of 700.5"),
            (PLAN, {"limit": -1}, "limit"),
            (PLAN, {"limit": "much"}, "limit"),
            (PLAN, {"to": "http://a.example"}, "travel over https"),
            (PLAN, {"to": "nowhere"}, "a collector's address is"),
            (CROWD, {}, "cannot confirm"),
            (replace(PLAN, promise=Promise("three-sigma", "1")), {}, "cannot confirm"),
        ],
    )
    @pytest.mark.parametrize("environ", [{}, {"CI": "1"}, {"DO_NOT_TRACK": "1"}])
    def test_they_raise_wherever_the_tool_runs(
        self, tmp_path: Path, plan: Any, options: Any, told: str, environ: dict[str, str]
    ):
        world = World(tmp_path, **{"to": "https://a.example", "plan": plan} | options)
        with pytest.raises(ShoalError, match=told):
            world.tool(**environ)
        assert everything(tmp_path) == []

    def test_a_limit_makes_a_promise_of_a_crowd_unnecessary(self, tmp_path: Path):
        telemetry = World(tmp_path, "https://a.example", self.CROWD, limit=2000).tool()
        consent.on(telemetry)
        assert telemetry.choice() == "yes"

    def test_check_computes_a_promise(self, tmp_path: Path):
        """A crowd of 100 and a q of 2^-16 keep no promise; devices rely on the limit alone."""
        telemetry = World(tmp_path, "https://a.example", self.CROWD, limit=2000).tool()
        with pytest.raises(ShoalError, match="promise"):
            telemetry.check()

    def test_the_edge_of_a_limit(self, tmp_path: Path):
        """One report exactly, by the glance and by the whole check alike."""
        plan = Plan(PLAN.survey, FlipProbability(1, 2), Promise("local", "75"), window=WEEK)
        exact = Decimal(repr(plan.local_epsilon)).quantize(Decimal("0.01"))
        for limit, fits in ((exact + Decimal("0.01"), True), (exact - Decimal("0.01"), False)):
            world = World(tmp_path, "https://a.example", plan, limit=limit)
            if fits:
                world.tool().check()
            else:
                with pytest.raises(ShoalError, match="more than this device's limit"):
                    world.tool()

    def test_the_glance_passes_nothing_that_the_check_refuses(self):
        """Plans, limits and addresses around every edge of the glance."""
        plans = [
            PLAN,
            replace(PLAN, window=None),
            replace(PLAN, window=60),
            replace(PLAN, window=3600),
            self.CROWD,
            Plan(PLAN.survey, FlipProbability(1, 2), Promise("local", "75"), window=WEEK),
            Plan(PLAN.survey, FlipProbability(1, 1), Promise("local", "1"), window=WEEK),
        ]
        passed = 0
        for plan in plans:
            content = json.dumps(plan.to_json()).encode()
            for limit in ("", "1", "74", "74.7", "75", "76", "799", "801", "nan", "inf", "x"):
                for to in ("https://a.example", "http://a.example", "a.example", ""):
                    agreement = state.agreement_text(content, to, limit, "")
                    if state.is_plainly_sendable(agreement):
                        Terms.read(agreement)
                        passed += 1
        assert passed > 5

    def test_a_tool_in_one_file_needs_a_worker(self, world: World, monkeypatch):
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        with pytest.raises(InputError, match="worker="):
            world.tool()
        world.options["worker"] = ["mytool", "send"]
        world.tool()

    def test_a_plan_that_is_not_there_is_the_machines_condition(self, world: World):
        telemetry = Telemetry("mytool", plan="none", to=world.to, environ=world.environ)
        telemetry.record(command="c1")
        telemetry.flush()
        assert "there is no plan none" in str(telemetry.problem)
        for act in (telemetry.check, lambda: consent.on(telemetry)):
            with pytest.raises(OSError, match="no plan"):
                act()

    def test_a_library_that_is_not_there_is_the_machines_condition(self, world: World, monkeypatch):
        memory = Memory(FlipProbability(1, 16), FlipProbability(1, 16))
        world.plan = replace(PLAN, q=memory.q, memory=memory)
        real = importlib.util.find_spec
        monkeypatch.setattr(
            "importlib.util.find_spec",
            lambda name, *more: None if name == "cryptography" else real(name, *more),
        )
        telemetry = world.tool()
        for act in (telemetry.check, lambda: consent.on(telemetry)):
            with pytest.raises(MissingExtraError, match=r"shoal\[encryption\]"):
                act()
        assert telemetry.choice() == "not asked"

    def test_a_plan_in_every_form(self, world: World, tmp_path: Path):
        PLAN.write(tmp_path / "plan.json")
        path = tmp_path / "plan.json"
        for plan in (str(path), path, path.read_bytes(), PLAN):
            Telemetry("mytool", plan=plan, to=world.to, environ=world.environ).check(command="c1")


class TestProblems:
    """Answers that are not counted are told, and never quoted."""

    def test_values_that_do_not_fit(self, world: World):
        telemetry = world.tool()
        telemetry.record(command="c1", platform="linux")
        assert telemetry.problem is None
        telemetry.record(command="secret-project")
        telemetry.record(comand="c1")
        telemetry.count(command=1)
        told = str(telemetry.problem)
        assert "Question 'command': a value that does not fit it was dropped." in told
        assert "Question 'comand' is not asked" in told
        assert "secret" not in told

    def test_a_choice_or_a_date_that_changes(self):
        for question, first, other in (
            (Choice("q", ("linux", "macos")), "linux", "macos"),
            (Date("q", "month"), "2026-01-01", "2026-02-01"),
        ):
            events: list[Event] = [("record", {"q": one}) for one in (first, first, other)]
            assert merge(Survey("tool", (question,)), events[:2]).problems == []
            (told,) = merge(Survey("tool", (question,)), events).problems
            assert told.startswith("Question 'q': only the first value")

    def test_the_same_events_whether_it_is_on_or_off(self, world: World):
        for environ in ({}, {"CI": "1"}, {"DO_NOT_TRACK": "1"}):
            telemetry = world.tool(**environ)
            telemetry.record(command="none of these")
            assert "does not fit" in str(telemetry.problem)


class TestSimulation:
    def test_a_window_in_a_tools_test(self, world: World, tmp_path: Path):
        telemetry = world.tool(CI="1")
        telemetry.record(command="c1", platform="linux")
        telemetry.record(command="c3")
        for _ in range(2):
            telemetry.count(runs=1)
        first = telemetry.simulate_next_window()
        assert first.answer == {"command": ["c1", "c3"], "platform": "linux", "runs": 2.0}
        assert first.problems == ()
        report = split_batch(PLAN, first.body)
        assert report.windows == [3001]
        assert f"  {report.content[:16].hex()}\n" in str(first)
        assert "command: set: c1, c3" in str(first)
        telemetry.record(command="c9", platform="other")
        second = telemetry.simulate_next_window()
        assert second.answer["command"] == ["c9"]
        assert second.problems == (
            "Question 'platform': a value that does not fit it was dropped.",
        )
        assert split_batch(PLAN, second.body).windows == [3002]
        assert everything(tmp_path) == []

    def test_many_counts_and_values(self, world: World):
        telemetry = world.tool()
        for number in range(500):
            telemetry.count(runs=1)
            telemetry.record(command=f"c{number % 64}")
        assert telemetry.simulate_next_window().answer["runs"] == 500.0

    def test_what_would_not_be_sent(self, world: World):
        with pytest.raises(AnswerError, match="nothing was recorded"):
            world.tool().simulate_next_window()
        world.options["limit"] = int(PLAN.local_epsilon * 2) + 1
        telemetry = world.tool()
        for _ in range(2):
            telemetry.record(command="c1")
            telemetry.simulate_next_window()
        telemetry.record(command="c1")
        with pytest.raises(ShoalError, match="3 reports of this plan"):
            telemetry.simulate_next_window()


AUDIT = """
import sys
seen = []
sys.addaudithook(lambda name, _: seen.append(name) if name.startswith("socket.") else None)
"""


@pytest.mark.slow
class TestProcesses:
    """The tool in a process of its own, and what the system sees of it."""

    QUIET: tuple[tuple[bool, dict[str, str]], ...] = (
        (False, {}),
        (True, {"DO_NOT_TRACK": "1"}),
        (True, {"CI": "true"}),
        (True, {"GITHUB_ACTIONS": "true"}),
        (True, {"MYTOOL_TELEMETRY": "0"}),
    )

    @pytest.mark.parametrize(("agreed", "environ"), QUIET)
    def test_nothing_leaves(self, tmp_path: Path, server: Server, agreed: bool, environ):
        """Although a report is due; of the tool and of whatever it starts, as strace sees it."""
        if agreed:
            world_of_tools(tmp_path, server.url).run("c7")
        done = run_tool(tmp_path, server.url, "c1", **environ)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        calls = self.traced(tmp_path, server.url, environ)
        assert "socket(AF_INET" not in calls
        assert "connect(" not in calls
        assert server.connections == []

    def test_a_trace_sees_what_leaves(self, tmp_path: Path, server: Server):
        """The judge of the test above convicts a tool that may send."""
        world_of_tools(tmp_path, server.url).run("c7")
        assert "connect(" in self.traced(tmp_path, server.url, {})

    def traced(self, folder: Path, to: str, environ: dict[str, str]) -> str:
        trace = folder / "trace"
        command = ["strace", "-f", "-e", "trace=network", "-o", str(trace)]
        try:
            done = run_tool(folder, to, "c1", before=command, **environ)
        except FileNotFoundError:
            pytest.skip("there is no strace here")
        if "ptrace" in done.stderr.lower():
            pytest.skip("processes may not be traced here")
        assert done.returncode == 0, done.stderr
        return trace.read_text()  # strace ends when the last of its processes has

    @pytest.mark.parametrize("there", [True, False], ids=["server", "no server"])
    def test_a_due_report_is_another_processs_business(
        self, tmp_path: Path, server: Server, there: bool
    ):
        """The tool itself makes no call, even if a report is due."""
        to = server.url if there else "http://127.0.0.1:9"
        home = world_of_tools(tmp_path, to)
        home.run("c7")
        script = AUDIT + TOOL.replace("sys.exit(", "sys.exit(', '.join(seen) or ")
        command = [sys.executable, "-c", script, *tool_command(tmp_path, to, "c1")[3:]]
        for _ in range(2):
            done = subprocess.run(command, env=a_persons_environment(tmp_path), timeout=60)
            assert done.returncode == 0
        wait_for(lambda: list(home.home.glob("*/outbox/*." + ("sent" if there else "waiting"))))
        assert bool(server.requests) is there


@pytest.mark.slow
class TestTerminal:
    """A person at a terminal, who is asked once."""

    SCRIPT = "import os\nos.open(os.ttyname(0), os.O_RDWR)  # our terminal now\n" + TOOL

    TYPED_AHEAD = """
print("/N/?]", flush=True)  # the test types now
import select
select.select([0], [], [])
telemetry.flush()
"""

    def answer(
        self,
        folder: Path,
        to: str,
        *typed: str,
        columns: int = 80,
        script: str = SCRIPT,
        **environ: str,
    ) -> str:
        """Return what a terminal shows while a person types a line at each prompt."""
        pty = pytest.importorskip("pty", reason="no terminals here")
        fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = tool_command(folder, to, "c1")
        command[2] = script
        process = subprocess.Popen(
            command,
            env=a_persons_environment(folder, TERM="xterm", PYTHONUTF8="1", **environ),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown, lines = b"", list(typed)
        try:
            while piece := os.read(ours, 4096):
                shown += piece
                if lines and shown.count(b"/N/?]") > len(typed) - len(lines):
                    os.write(ours, lines.pop(0).encode())
        except OSError:  # how a terminal ends
            pass
        os.close(ours)
        assert process.wait(60) == 0, shown
        return shown.decode().replace("\r\n", "\n")

    def test_yes(self, tmp_path: Path, server: Server):
        shown = self.answer(tmp_path, server.url, "y\n")
        assert "Send these reports? [y/N/?]" in shown
        assert "Thank you." in shown
        folder = tmp_path / ".local/state/mytool/telemetry"
        (file,) = folder.glob("*/events.*")
        assert read_events(file.read_bytes()) == [
            ("record", {"command": "c1", "platform": "linux"})
        ]
        assert "Send these" not in self.answer(tmp_path, server.url)
        assert server.connections == []

    @pytest.mark.parametrize(
        "typed", ["\n", "n\n", "what?\n", "j\n", "yes please\n", "\x04", "\x03"]
    )
    def test_anything_else_is_no(self, tmp_path: Path, server: Server, typed: str):
        assert "Nothing will be sent" in self.answer(tmp_path, server.url, typed)
        folder = tmp_path / ".local/state/mytool/telemetry"
        assert everything(folder) == ["off"]
        assert "Send these" not in self.answer(tmp_path, server.url, "y\n")
        assert server.connections == []

    def test_the_details_before_an_answer(self, tmp_path: Path, server: Server):
        shown = self.answer(tmp_path, server.url, "?\n", "?\n", "yes\n")
        assert shown.count("which of c0, c1") == 2
        assert server.url in shown
        assert "by a factor of at most e^" in " ".join(shown.split())
        assert "Thank you." in shown

    @pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ja"])
    @pytest.mark.parametrize("columns", [40, 80, 120])
    def test_every_language_fits_every_terminal(self, tmp_path, server, language, columns):
        """Asked, told the details, and answered with the last yes word of the language."""
        words = catalogue()[language]
        environ = {"LC_ALL": "", "LC_MESSAGES": f"{language}_XX.UTF-8", "LANG": "en_US.UTF-8"}
        typed = words["yes"][0].upper() + "\n"
        shown = self.answer(tmp_path, server.url, "?\n", typed, columns=columns, **environ)
        flat = "".join(shown.split())
        for key in ("prompt", "thanks", "asked", "several"):
            assert "".join(words[key].split()) in flat, key
        assert max(map(width_of, shown.splitlines())) <= columns
        assert (tmp_path / ".local/state/mytool/telemetry").exists()
        telemetry = world_of(tmp_path, server.url).tool()
        assert telemetry.choice() == "yes"

    def test_what_was_typed_before_is_no_answer(self, tmp_path: Path, server: Server):
        """A person types ahead for the shell while the tool works."""
        script = self.SCRIPT.replace("telemetry.flush()", self.TYPED_AHEAD)
        shown = self.answer(tmp_path, server.url, "y\n", "n\n", script=script)
        assert "Nothing will be sent" in shown
        assert everything(tmp_path / ".local/state/mytool/telemetry") == ["off"]

    def test_nobody_is_asked_where_it_is_off(self, tmp_path: Path, server: Server):
        for name, value in (("CI", "1"), ("DO_NOT_TRACK", "1"), ("MYTOOL_TELEMETRY", "0")):
            environ: dict[str, Any] = {name: value}
            assert "Send these" not in self.answer(tmp_path, server.url, "y\n", **environ)
        assert not (tmp_path / ".local").exists()

    def test_a_shell_without_a_terminal_is_not_asked_and_keeps_a_yes(self, tmp_path, server):
        done = run_tool(tmp_path, server.url, "c1")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert not (tmp_path / ".local").exists()
        self.answer(tmp_path, server.url, "y\n")
        done = run_tool(tmp_path, server.url, "c2")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        (file,) = (tmp_path / ".local/state/mytool/telemetry").glob("*/events.*")
        assert b"c2" in file.read_bytes()


class TestCommands:
    def test_click(self, world: World):
        group, runner = world.tool().click_group(), click.testing.CliRunner()
        assert "is off. You have not been asked yet." in runner.invoke(group, ["status"]).output
        assert "mytool is on" in runner.invoke(group, ["on"]).output
        assert "is on. You said yes." in runner.invoke(group, ["status"]).output
        assert runner.invoke(group, ["show"]).output == "Nothing has left this machine.\n"
        assert json.loads(runner.invoke(group, ["show", "--json"]).output) == []
        assert "is off" in runner.invoke(group, ["off"]).output
        assert "was deleted" in runner.invoke(group, ["delete"]).output
        refused = runner.invoke(world.tool(CI="1").click_group(), ["on"])
        assert refused.exit_code == 1
        assert "stays off: CI is set" in refused.output

    def test_argparse(self, world: World, capsys: pytest.CaptureFixture[str]):
        parser = argparse.ArgumentParser("mytool")
        below = parser.add_subparsers()
        world.tool().add_commands(below.add_parser("telemetry"))
        for word, shown in (("on", "is on"), ("status", "You said yes"), ("show", "Nothing has")):
            options = parser.parse_args(["telemetry", word])
            assert options.run(options) == 0
            assert shown in capsys.readouterr().out
        options = parser.parse_args(["telemetry", "show", "--json"])
        assert options.run(options) == 0
        assert json.loads(capsys.readouterr().out) == []
        parser = argparse.ArgumentParser("mytool")
        world.tool(CI="1").add_commands(parser)
        options = parser.parse_args(["on"])
        assert options.run(options) == 2
        assert capsys.readouterr().err.startswith("mytool: telemetry stays off: CI is set")


def test_the_factor_that_is_shown_by_enumeration():
    """Over all pairs of answers and all reports of a small survey, in fractions."""
    survey = Survey("s", (Flags("f", ("a",)), Choice("c", ("x", "y", "z"))))
    plan = Plan(survey, FlipProbability(19, 6), Promise("local", "9"), window=3600)
    q = plan.q.fraction
    originals = [
        encode(plan, {"f": flags, "c": choice}).value for flags in ([], ["a"]) for choice in "xyz"
    ]

    def probability(original: int, report: int) -> Fraction:
        flips = (original ^ report).bit_count()
        return q**flips * (1 - q) ** (plan.bits - flips)

    worst = max(
        probability(one, report) / probability(other, report)
        for one in originals
        for other in originals
        for report in range(1 << plan.bits)
    )
    telemetry = Telemetry("mytool", plan=plan, to="https://x.example", environ={})
    shown = re.search(r"by a factor of at most ([0-9.]+)", consent.status(telemetry))
    assert shown
    assert worst <= Fraction(shown[1]) <= worst * Fraction(102, 100)
