"""What the tests of telemetry share: a plan, a tool in this process, and one in its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal import Choice, Flags, Number, Plan, Survey
from shoal.device.telemetry import Telemetry, consent
from shoal.device.telemetry.state import CI_VARIABLES
from shoal.device.telemetry.worker import TelemetryWorker
from shoal.protocol.flip_probability import FlipProbability
from shoal.protocol.plan import Promise
from shoal.protocol.wire import split_batch
from tests.device.outbox_help import Server
from tests.faults import Clock

WEEK = 7 * 86_400
OPTIONS = tuple(f"c{number}" for number in range(64))
PLAN = Plan(
    Survey(
        "tool",
        (
            Flags("command", OPTIONS),
            Choice("platform", ("linux", "macos"), missing="option"),
            Number("runs", (1, 10)),
        ),
    ),
    FlipProbability(1, 16),  # so rare that a report says what was recorded
    Promise("local", "800"),
    window=WEEK,
    crowd_size=100,
)

TOOL = """
import sys
from shoal.device.telemetry import Telemetry
plan, to, *commands = sys.argv[1:]
telemetry = Telemetry("mytool", plan=plan, to=to)
for command in commands:
    telemetry.record(command=command, platform="linux")
telemetry.flush()
sys.exit(telemetry.problem)
"""


def world_of_tools(folder: Path, to: str) -> World:
    """A world that agreed to the plan in the file that tools in other processes ship."""
    PLAN.write(folder / "plan.json")
    return world_of(folder, to).say_yes()


def world_of(folder: Path, to: str) -> World:
    """The world of a person who uses the tool in processes of their own."""
    content: Any = (folder / "plan.json").read_bytes()
    return World(folder / ".local" / "state", to, content)


class World:
    """One person, one tool, one server, and a clock that the test sets."""

    def __init__(self, folder: Path, to: str, plan: Plan = PLAN, **options: Any) -> None:
        self.clock, self.environ = Clock(WEEK * 3000.5), {"XDG_STATE_HOME": str(folder)}
        self.plan, self.to, self.options = plan, to, options

    def tool(self, **environ: str) -> Telemetry:
        """A new run of the tool; its process beside it is never started."""
        telemetry = Telemetry(
            "mytool",
            plan=self.plan,
            to=self.to,
            environ=self.environ | environ,
            clock=self.clock,
            **self.options,
        )
        telemetry._start_worker = lambda: None  # type: ignore[method-assign]
        return telemetry

    @property
    def home(self) -> Path:
        return Path(self.environ["XDG_STATE_HOME"]) / "mytool" / "telemetry"

    def run(self, *names: str, **environ: str) -> Telemetry:
        telemetry = self.tool(**environ)
        for name in names:
            telemetry.record(command=name)
        telemetry.flush()
        assert telemetry._error is None
        return telemetry

    def say_yes(self) -> World:
        consent.on(self.tool())
        return self

    def work(self, **environ: str) -> None:
        """What the process beside the tool does."""
        for agreed in sorted(self.home.glob("*/agreed")):
            name, surroundings = agreed.parent.name, self.environ | environ
            TelemetryWorker("mytool", self.home, name, surroundings, self.clock).work()

    def next_window(self, windows: int = 1) -> None:
        self.clock.now += WEEK * windows

    def report(self, *names: str, windows: int = 1) -> None:
        """Use the tool, let windows pass, and let its worker run."""
        if names:
            self.run(*names)
        self.next_window(windows)
        self.work()


def received(server: Server, plan: Plan = PLAN) -> dict[bytes, tuple[int, set[str]]]:
    """The reports that arrived: by report id, the window and the commands that are set."""
    found = {}
    for *_, body in server.requests:
        if not body:  # who sent the head was killed before the body
            continue
        report = split_batch(plan, body).content
        value = int.from_bytes(report[20:], "little")
        told = {name for bit, name in enumerate(OPTIONS) if value >> bit & 1}
        found[report[:16]] = int.from_bytes(report[16:20], "little"), told
    return found


def a_persons_environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of somebody at work, who is no service that runs tests."""
    taken_out = {*CI_VARIABLES, "DO_NOT_TRACK", "XDG_STATE_HOME", "MYTOOL_TELEMETRY"}
    kept = {name: text for name, text in os.environ.items() if name not in taken_out}
    return kept | {"HOME": str(home)} | more


def run_tool(
    folder: Path, to: str, *words: str, before: Sequence[str] = (), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the tool in a process of its own, with no terminal."""
    return subprocess.run(
        [*before, *tool_command(folder, to, *words)],
        env=a_persons_environment(folder, **environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def tool_command(folder: Path, to: str, *words: str) -> list[str]:
    plan = folder / "plan.json"
    if not plan.exists():
        PLAN.write(plan)
    return [sys.executable, "-c", TOOL, str(plan), to, *words]


def wait_for(happened: Callable[[], object]) -> None:
    """Wait for another process, however busy the machine is."""
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)
