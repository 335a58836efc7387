"""`shoal telemetry`: for maintainers of a tool with telemetry."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.device.telemetry import Telemetry
from shoal.errors import InputError, ShoalError, require
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Number, Question, Text

if TYPE_CHECKING:
    from shoal.device.telemetry.log import LoggedRequest


@click.group(cls=cli.InOrder)
def telemetry() -> None:
    """Try the telemetry of a tool, and write its documents."""


@dataclass(frozen=True)
class _Source:
    """The telemetry of a tool: an object in its code, or a plan and the rest as options."""

    source: str = arg("MODULE:NAME | PLAN.json")
    tool: str | None = opt("With a plan: name of the tool.  [default: the survey's]", "NAME")
    to: str | None = opt("With a plan: address of the collector.", "URL")
    limit: str | None = opt("With a plan: limit on the local epsilon of all reports.", "E")
    why: str | None = opt("With a plan: why you ask, in one sentence.", "TEXT")

    def load(self) -> Telemetry:
        """Return the object that the tool's code makes, or one like it."""
        if not self.source.endswith(".json"):
            if any(one is not None for one in (self.tool, self.to, self.limit, self.why)):
                raise InputError("--tool, --to, --limit and --why go with a plan, not with code.")
            return _import(self.source)
        plan = Plan.read(Path(self.source))
        to = self.to or "https://telemetry.example.org"
        return Telemetry(
            self.tool or plan.survey.name, plan=plan, to=to, limit=self.limit, why=self.why
        )


def _import(source: str) -> Telemetry:
    module, _, name = source.partition(":")
    if not name:
        raise InputError(
            f"{source!r} is neither a plan (.json) nor code, such as mytool.cli:telemetry."
        )
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise InputError(f"cannot import {source}: {problem}.") from problem
    finally:
        sys.path.remove(os.getcwd())
    if not isinstance(found, Telemetry):
        raise InputError(f"{source} is not a Telemetry object.")
    return found


@cli.command("shoal telemetry try plan.json --limit 60", "try", group=telemetry)
def try_(
    source: _Source,
    answers: tuple[str, ...] = opt(
        "Record this; repeatable.  [default: made-up answers]", "QUESTION=VALUE", "--record"
    ),
) -> out.Result:
    """Go through one report of a tool's telemetry, and show every byte of it.

    A collector starts in a temporary folder. A person says yes, the tool records events, the window
    passes, and the report is sent. Nothing leaves this machine, and nothing is kept.
    """
    require("starlette", "httptools", purpose="a collector")
    trial = _try(source.load(), answers)
    document = {
        "tool": trial.tool,
        "plan": trial.plan.id,
        "recorded": trial.recorded,
        "requests": [request.to_json() for request in trial.requests],
        "again": trial.again,
        "problem": trial.problem,
    }
    return out.Result(document, trial.pieces())


@dataclass(frozen=True)
class _Trial:
    """One person's telemetry, from consent to the collector's response.

    `again` is how many requests the tool's next run in the same window made.
    """

    tool: str
    plan: Plan
    prompt: str
    recorded: dict[str, Any]
    requests: list[LoggedRequest]
    shown: str
    status: str
    again: int
    problem: str | None

    def pieces(self) -> out.Pieces:
        from shoal.device.telemetry.words import wrapped

        yield out.bold("1. Consent: the person is asked once, and says yes")
        yield out.Plain(wrapped(self.prompt, out.printer().width))
        yield out.bold("\n2. Record: what the tool noted in a window; it stays on the device")
        for name, value in self.recorded.items():
            yield out.Plain(f"  {name}: {value}")
        yield out.bold("\n3. The window is over: one report is made, and sent")
        yield out.Plain(self.shown)
        yield out.bold("\n4. Afterwards")
        more = f"{self.again} requests" if self.again else "nothing"
        yield f"The tool's next run in the same window sent {more}."
        yield self.status
        if self.problem is not None:
            yield out.Plain(f"telemetry.problem: {self.problem}")


def _try(subject: Telemetry, answers: tuple[str, ...]) -> _Trial:
    """Send one report of a tool's telemetry to a collector that exists for this only."""
    from shoal.device.telemetry import commands
    from shoal.device.telemetry.consent import Consent
    from shoal.device.telemetry.describe import Terms
    from shoal.device.telemetry.worker import TelemetryWorker
    from shoal.lab.demo import running_collector
    from shoal.lab.services import scratch_folder

    terms = Terms.read(subject.agreement())
    plan, tool = terms.plan, subject.tool
    if plan.parties is not None:
        raise InputError("this plan needs a relay and an analyzer; see shoal demo --parties.")
    recorded = _given(plan, answers) if answers else _made_up(plan)
    with scratch_folder() as folder, running_collector(folder, plan) as urls:
        moment = [time.time() - terms.window]

        def run() -> Telemetry:
            return Telemetry(
                tool,
                plan=plan,
                to=urls["public"],
                limit=terms.limit,
                why=subject.why,
                translations=subject.translations,
                environ=os.environ | dict.fromkeys(_silenced(tool), ""),
                folder=str(folder / "person"),
                clock=lambda: moment[0],
            )

        def work(run_of_tool: Telemetry) -> None:
            for agreed in (folder / "person").glob("*/agreed"):
                environ, clock = run_of_tool.environ, run_of_tool.clock
                worker = TelemetryWorker(
                    tool, folder / "person", agreed.parent.name, environ, clock
                )
                worker.work()

        first = run()
        consent = Consent(first, sys.stdout)
        prompt = f"{consent.text()}\n\n{consent.details()}"
        first.turn_on()
        first.record(**recorded)
        moment[0] += terms.window
        work(run())
        sent = commands.requests(run())
        work(run())
        last = run()
        again = len(commands.requests(last)) - len(sent)
        if not sent:
            raise ShoalError(f"nothing was sent: {last.problem or first.problem}")
        shown = commands.show(last)
        (status,) = (one for one in commands.status(last).splitlines() if "Reports: " in one)
        return _Trial(tool, plan, prompt, recorded, sent, shown, status, again, last.problem)


def _silenced(tool: str) -> Iterator[str]:
    """Yield the variables that turn telemetry off: here a person asked to see it."""
    from shoal.device.telemetry.environment import CI_VARIABLES, switch_name

    yield from (*CI_VARIABLES, "DO_NOT_TRACK", switch_name(tool))


def _given(plan: Plan, answers: tuple[str, ...]) -> dict[str, Any]:
    """Read QUESTION=VALUE words; options of flags are separated by semicolons."""
    from shoal.device.telemetry.worker import check_answers

    found = {}
    for word in answers:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"--record takes QUESTION=VALUE, got {word!r}.")
        check_answers(plan.survey, {name: value})
        found[name] = value
    return found


def _made_up(plan: Plan) -> dict[str, Any]:
    """Return one answer to each question, the same each time."""
    return {question.name: _example(question) for question in plan.survey.asked}


def _example(question: Question) -> object:
    if isinstance(question, Number):
        return float(question.edges[0] if question.edges else question.low or 0)
    return "example" if isinstance(question, Text) else question.labels[0]
