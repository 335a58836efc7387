"""`shoal tally`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path
from typing import Literal

import click

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError, ReportError, ShoalError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json


@cli.command("shoal tally plan.json reports.parquet -o tally.json")
def tally(
    plan: Plan = cli.PLAN,
    reports: tuple[Path, ...] = arg(),
    output: cli.OutFile | None = cli.output("the tally"),
    vectors: bool | None = opt("Also count whole vectors.  [default: if they are short]"),
    joint: tuple[str, ...] = opt("Count these options jointly; repeatable.", "Q=OPTION;Q=OPTION"),
    crowd_name: str | None = opt("Name of the crowd; parts with one name add up.", "NAME"),
    window_number: int | None = opt("Window of the reports that carry none.", "N"),
    people: Literal["different"] | None = opt(
        "Declare that no person is in two of the crowds; this is not checked."
    ),
    processes: int | None = cli.PROCESSES,
) -> out.Result:
    """Count reports, and add tallies.

    REPORTS are files, or folders of them. Large ones are counted in pieces, on all cores, in
    constant memory. If the command is interrupted, run it again: it continues where it stopped.

    All files of reports are one crowd, unless they carry windows: then each window is a crowd.
    Tallies, also those that a collector released, are added under the crowds they name.

    Counting releases nothing. If the plan does not keep its promise, its reports are counted with a
    warning, but no other command accepts the tally.

    Under a plan with view counts only single bits are counted: --vectors and --joint are refused
    (exit code 3). Cross the questions in the plan instead.
    """
    from shoal.batch.jobs import remove_journal
    from shoal.batch.tally_files import tally_files
    from shoal.planning.certificate import compute_promise

    if (refusal := compute_promise(plan).refusal) is not None:
        click.echo(f"shoal: warning: {refusal}", err=True)
    if len({path.resolve() for path in reports}) < len(reports):
        raise InputError("a file is named twice and would be counted twice; name it once.")
    groups = [[_bit(plan, part) for part in group.split(";")] for group in joint]
    tallies = [path for path in reports if _holds_tally(path)]
    journal = None if output is None else output.with_name(output.name + ".journal")
    with out.progress_to("tallying") as reached:
        counted = tally_files(
            plan,
            [path for path in reports if path not in tallies],
            processes=processes,
            journal=journal,
            vectors=vectors,
            joint=groups,
            crowd=crowd_name,
            window=window_number,
            progress=reached,
        )
    parts = [Tally.read(path, plan) for path in tallies]
    if len(tallies) < len(reports):
        parts.append(counted)
    total = reduce(add, parts)
    if crowd_name is not None:
        total = total.named(crowd_name)
    if people is not None:
        total = total.of_different_people()
    if output is not None:
        total.write(output)
    if journal is not None:
        remove_journal(journal)
    where = f", written to {output}" if output else ""
    text = f"{total.reports:,} reports of plan {plan.id[:12]} counted{where}."
    return out.Result(total.to_json(), text + (f"\n- {total.note}" if total.note else ""))


def read_tally(plan: Plan, path: Path) -> Tally:
    """Read a tally, or count the reports in a file or a folder."""
    from shoal.batch.tally_files import tally_files

    if path.suffix == ".json" or _holds_tally(path):
        return Tally.read(path, plan)
    with out.progress_to("tallying") as reached:
        return tally_files(plan, [path], progress=reached)


def _holds_tally(path: Path) -> bool:
    """Whether a file is a tally, or a release of a collector, and no batch of reports."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return False
        document = read_json(path, "reports", ReportError)
    except (OSError, ShoalError):
        return False  # the reader of reports explains the error
    return isinstance(document, Mapping) and bool({"by_bit", "tally"} & set(document))


def _bit(plan: Plan, text: str) -> int:
    question, equals, label = text.partition("=")
    if not equals:
        raise InputError(f"--joint takes QUESTION=OPTION parts separated by ';', got {text!r}.")
    return plan.survey.bit(question.strip(), label.strip())
