"""`shoal telemetry`: for maintainers of a tool with telemetry."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.device.telemetry import Telemetry
from shoal.device.telemetry.describe import Terms
from shoal.errors import AnswerError, InputError, ShoalError, require
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Date, Number, Question, Text
from shoal.support.checks import is_loopback

if TYPE_CHECKING:
    from shoal.reports.telemetry import TelemetryFacts, WorkedExample

_SEED, _WINDOW = 2017, 2900
"""Of the worked example in the documents."""


@click.group(cls=cli.InOrder)
def telemetry() -> None:
    """Try the telemetry of a tool, and write its documents."""


@dataclass(frozen=True)
class _Source:
    source: str = arg("MODULE:NAME | PLAN.json")
    tool: str | None = opt("With a plan: name of the tool.  [default: the survey's]", "NAME")
    to: str | None = opt("With a plan: address of the collector.", "URL")
    limit: str | None = opt("With a plan: limit on the local epsilon of all reports.", "E")
    why: str | None = opt("With a plan: why you ask, in one sentence.", "TEXT")

    @property
    def is_code(self) -> bool:
        return not self.source.endswith(".json")

    def load(self) -> Telemetry:
        if self.is_code:
            if any(one is not None for one in (self.tool, self.to, self.limit, self.why)):
                raise InputError("--tool, --to, --limit and --why go with a plan, not with code.")
            return _import(self.source)
        plan = Plan.read(Path(self.source))
        to = self.to or "https://telemetry.example.org"
        return Telemetry(
            self.tool or plan.survey.name, plan=plan, to=to, limit=self.limit, why=self.why
        )


def _import(source: str) -> Telemetry:
    if ":" not in source:
        raise InputError(
            f"{source!r} is neither a plan (.json) nor code, such as mytool.cli:telemetry."
        )
    found = cli.imported(source)
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
    """Make and send one report of a tool, and show every byte.

    A collector starts in a temporary folder. A person says yes, the tool records events, the window
    passes, and the report is sent. Nothing leaves this machine, and nothing is kept.
    """
    require("starlette", "httptools", purpose="a collector")
    from shoal.device.telemetry import consent
    from shoal.lab.demo import running_collector, scratch_folder
    from shoal.lab.tool_users import ToolUser
    from shoal.support.results import wrapped

    subject = source.load()
    plan = Terms.read(subject.agreement()).plan
    if plan.parties is not None:
        needed = " and the ".join(plan.parties.origins)
        raise InputError(f"this plan needs the {needed}, and the trial has one collector.")
    recorded = _given(plan, answers) if answers else _made_up(plan, recorded=True)
    with scratch_folder() as folder, running_collector(folder, plan) as urls:
        user = ToolUser(subject, urls["public"], folder / "person")
        first = user.run()
        asked = consent.Consent(first, sys.stdout)
        prompt = f"{asked.text()}\n\n{asked.details()}"
        user.use(recorded)
        sent = user.requests()
        user.send()  # the tool's next run in the same window
        last = user.run()
        again = len(user.requests()) - len(sent)
        if not sent:
            raise ShoalError(f"nothing was sent: {last.problem or first.problem}")
        shown = consent.show(last)
        (status,) = (one for one in consent.status(last).splitlines() if "Reports: " in one)
        problem = last.problem
    more = f"{again} requests" if again else "nothing"
    made = "The window is over: one report is made, and sent"
    pieces: list[Any] = [
        out.bold("1. Consent: the person is asked once, and says yes"),
        out.Plain(wrapped(prompt, out.printer().width)),
        out.bold("\n2. Record: what the tool noted in a window; it stays on the device"),
        *(out.Plain(f"  {name}: {value}") for name, value in recorded.items()),
        out.bold(f"\n3. {'One report is made, and sent' if plan.survey.about_past else made}"),
        out.Plain(shown),
        out.bold("\n4. Afterwards"),
        f"The tool's next run in the same window sent {more}.",
        status,
        *([] if problem is None else [out.Plain(f"telemetry.problem: {problem}")]),
    ]
    document = {
        "tool": subject.tool,
        "plan": plan.id,
        "recorded": recorded,
        "requests": [request.to_json() for request in sent],
        "again": again,
        "problem": problem,
    }
    return out.Result(document, pieces)


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


def _made_up(plan: Plan, *, recorded: bool = False) -> dict[str, Any]:
    """Return one answer to each question, the same each time; or only to what a tool records."""
    kept = (*plan.survey.arms, *plan.survey.retention) if recorded else ()
    return {one.name: _example(one) for one in plan.survey.asked if one not in kept}


def _example(question: Question) -> object:
    if isinstance(question, Number):
        return float(question.edges[0] if question.edges else question.low or 0)
    if isinstance(question, Date):
        return "2026-01-01"
    return "example" if isinstance(question, Text) else question.labels[0]


@cli.command(
    "shoal telemetry simulate mytool.cli:telemetry \\\n    --collector http://127.0.0.1:8400",
    group=telemetry,
)
def simulate(
    source: _Source,
    collector: str = opt("Public address of the collector, on this machine.", "URL"),
    people: int | None = opt(
        "How many people.  [default: the plan's crowd]", "N", type=click.IntRange(1, 1_000_000)
    ),
    seed: int = opt("Seed of the simulated answers.", default=2017),
) -> out.Result:
    """Let simulated people use a tool, and send their reports.

    Each of them says yes, uses the tool, and sends one report when the window is over, with the
    code that real users run. The seed decides who answers what; the flips are random each time.
    A collector cannot tell these reports from real ones, so it must run on this machine: give it a
    folder that you delete afterwards.
    """
    from shoal.lab.tool_users import send_crowd

    host = urlsplit(collector).hostname
    if host is None or not is_loopback(host):
        raise InputError(
            f"--collector must be an address of this machine, such as http://127.0.0.1:8400, got"
            f" {collector!r}: simulated reports would be counted as those of people."
        )
    subject = source.load()
    plan = Terms.read(subject.agreement()).plan
    if people is None:
        if plan.crowd_size is None:
            raise InputError("the plan has no crowd; say how many people, with --people.")
        people = plan.reports_needed
    with out.progress("people send", people) as advance:
        send_crowd(subject, collector, people, seed=seed, progress=advance)
    document = {"tool": subject.tool, "plan": plan.id, "to": collector, "people": people}
    text = f"{people:,} simulated people used {subject.tool}. Each sent a report to {collector}."
    return out.Result(document, text)


@cli.command("shoal telemetry docs mytool.cli:telemetry", group=telemetry)
def docs(
    source: _Source,
    output: cli.OutFolder = opt(
        "Folder of the documents.", names="-o --output", default=Path("privacy")
    ),
    check: bool = opt("Write nothing; fail if code, plan and documents differ."),
) -> out.Result:
    """Write the privacy documents of a tool, computed from its plan.

    PRIVACY.md is for its users, the label (.svg and .html) for its page, DPIA.md is the draft of an
    impact assessment, and CNIL.md a self-check. None of them is legal advice. Text outside the
    marks in a document is yours, and stays. With --check the exit code is 2 if anything differs:
    put it into your tests.
    """
    from shoal.reports.telemetry import differences, documents, write_documents

    if not source.is_code and source.to is None:
        raise InputError("the documents of a plan need --to: the address that reports go to.")
    subject = source.load()
    found = list(_in_code(source.source, subject)) if source.is_code else []
    made = documents(_facts(subject))
    if check:
        found += differences(made, output)
        text = "\n".join(found) or f"code, plan and {output} agree"
        return out.Result({"differences": found}, text, 2 if found else 0)
    if found:
        raise InputError(" ".join(found))
    changed = write_documents(made, output)
    files = [str(output / name) for name in made]
    document = {"files": files, "changed": [str(output / name) for name in changed]}
    lines = [f"{file}{'' if file in document['changed'] else ' (unchanged)'}" for file in files]
    return out.Result(document, "\n".join(["written to", *lines]))


def _facts(subject: Telemetry) -> TelemetryFacts:
    """Collect what the documents say: the device's own sentences, and a worked example."""
    from shoal.device.telemetry.describe import (
        asked_in_words,
        english,
        odds_factor,
        often,
        revealed_in_words,
    )
    from shoal.device.telemetry.state import switch_name
    from shoal.reports.telemetry import TelemetryFacts

    terms = Terms.read(subject.agreement())
    words, why = english(), subject.why
    if isinstance(why, Mapping):
        why = why.get("en") or next(iter(why.values()), None)
    return TelemetryFacts(
        tool=subject.tool,
        plan=terms.plan,
        to=terms.to,
        limit=terms.limit,
        why=why,
        switch=switch_name(subject.tool),
        often=often(terms.plan, words),
        asked=tuple((one.name, asked_in_words(one, words)) for one in terms.plan.survey.asked),
        revealed=tuple(revealed_in_words(terms, words)),
        factor=odds_factor(terms.plan.local_epsilon, words),
        example=_worked_example(terms.plan),
    )


def _worked_example(plan: Plan) -> WorkedExample:
    from shoal.device.arrays.simulation_bits import SimulationBits
    from shoal.device.encode import encode
    from shoal.device.randomize import flip
    from shoal.device.telemetry.describe import report_in_words
    from shoal.protocol.wire import ID_BYTES, Reports, join_report, report_bytes
    from shoal.reports.telemetry import WorkedExample

    bits = SimulationBits(_SEED)
    answer = _made_up(plan)
    original = encode(plan, answer, random_bits=bits)
    synthetic = flip(plan, original, random_bits=bits)
    report_id = bytearray(ID_BYTES)
    bits.fill(report_id)
    report = join_report(bytes(report_id), _WINDOW, synthetic.cohort, synthetic.row)
    body = Reports(plan.id, report_bytes(plan), report).to_bytes()
    rows = []
    for question in plan.survey:
        places = [
            bit
            for part in plan.survey.slices_of(question.name)
            for bit in range(part.start, part.stop)
        ]
        before, after = (
            "".join(str(vector.value >> bit & 1) for bit in places)
            for vector in (original, synthetic)
        )
        rows.append((question.name, str(answer.get(question.name, "follows")), before, after))
    return WorkedExample(tuple(rows), tuple(report_in_words(plan, body)), _SEED)


def _in_code(source: str, subject: Telemetry) -> Iterator[str]:
    """Yield what a tool's code records otherwise than the plan asks, one sentence each."""
    from shoal.device.telemetry.worker import check_answers

    module, _, name = source.partition(":")
    survey = Terms.read(subject.agreement()).plan.survey
    recorded: set[str] = set()
    for file, call in _calls(module, name):
        for keyword in call.keywords:
            if keyword.arg is None:
                recorded |= {question.name for question in survey.asked}  # **answers: unknown
                continue
            recorded.add(keyword.arg)
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            try:
                check_answers(survey, {keyword.arg: value} if value is not None else {})
                if keyword.arg not in {question.name for question in survey.asked}:
                    raise AnswerError(f"question {keyword.arg!r} is not asked; leave it out.")
            except AnswerError as error:
                yield f"{os.path.relpath(file)}, line {call.lineno}: {error}"
    for question in survey.asked:
        if question.name not in recorded:
            yield f"question {question.name!r} of the plan is recorded nowhere in the code."


def _calls(module: str, name: str) -> Iterator[tuple[Path, ast.Call]]:
    top = sys.modules[module.partition(".")[0]]
    folders = map(Path, getattr(top, "__path__", ()))
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    if not files:
        files = [Path(str(top.__file__))]
    for one in files:
        try:
            parsed = ast.parse(one.read_bytes(), str(one))
        except (SyntaxError, ValueError):  # a template, or for another Python: it does not run
            continue
        for node in ast.walk(parsed):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                named = getattr(owner, "id", None) or getattr(owner, "attr", None)
                if node.func.attr in ("record", "count") and named == name and not node.args:
                    yield one, node
