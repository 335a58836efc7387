"""`shoal tally`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path

import click

from shoal.analysis.tally import Tally
from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option, output_option, plan_argument, processes_option
from shoal.cli._printing import print_json, progress_to
from shoal.cli._types import WHOLE
from shoal.errors import InputError, ReportError, ShoalError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json


@click.command(cls=Command, example="shoal tally plan.json reports.parquet -o tally.json")
@plan_argument
@click.argument("reports", type=IN_FILE, nargs=-1, required=True)
@output_option("the tally")
@click.option(
    "--vectors/--no-vectors",
    default=None,
    help="Also count whole vectors.  [default: if they are short]",
)
@click.option(
    "--joint",
    multiple=True,
    metavar="Q=OPTION;Q=OPTION",
    help="Count these options jointly; repeatable.",
)
@click.option("--crowd-name", metavar="NAME", help="Name of the crowd; parts with one name add up.")
@click.option(
    "--window-number", type=WHOLE, metavar="N", help="Window of the reports that carry none."
)
@click.option(
    "--people",
    type=click.Choice(["different"]),
    help="Declare that no person is in two of the crowds; this is not checked.",
)
@processes_option
@json_option
def command(
    plan_file: Path,
    reports: tuple[Path, ...],
    output: Path | None,
    vectors: bool | None,
    joint: tuple[str, ...],
    crowd_name: str | None,
    window_number: int | None,
    people: str | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Count reports, and add tallies.

    REPORTS are files, or folders of them. Large ones are counted in pieces, on all cores, in
    constant memory. If the command is interrupted, run it again: it goes on where it stopped.

    All files of reports are one crowd, unless they carry windows: then each window is a crowd.
    Tallies, and a collector's answer about a sealed crowd, are added under the crowds they name.

    Counting releases nothing. If the plan does not keep its promise, its reports are counted with a
    warning, but no other command accepts the tally.

    Under a plan with view counts only single bits are counted: --vectors and --joint are refused
    (exit code 3). Cross the questions in the plan instead.
    """
    from shoal.batch.jobs import remove_journal
    from shoal.batch.tally_files import tally_files
    from shoal.planning.certificate import compute_promise

    plan = Plan.read(plan_file)
    if (refusal := compute_promise(plan).refusal) is not None:
        click.echo(f"shoal: warning: {refusal}", err=True)
    if len({path.resolve() for path in reports}) < len(reports):
        raise InputError("a file is named twice and would be counted twice; name it once.")
    groups = [[_bit(plan, part) for part in group.split(";")] for group in joint]
    tallies = [path for path in reports if _holds_tally(path)]
    journal = None if output is None else output.with_name(output.name + ".journal")
    with progress_to("tallying") as reached:
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
    tally = reduce(add, parts)
    if crowd_name is not None:
        tally = tally.named(crowd_name)
    if people is not None:
        tally = tally.of_different_people()
    if output is not None:
        tally.write(output)
    if journal is not None:
        remove_journal(journal)
    if as_json:
        print_json(tally.to_json())
    else:
        where = f", written to {output}" if output else ""
        click.echo(f"{tally.reports:,} reports of plan {plan.id[:12]} counted{where}.")
        if tally.note is not None:
            click.echo(f"- {tally.note}")


def _holds_tally(path: Path) -> bool:
    """Whether a file is a tally, or a collector's answer about a crowd, and no batch of reports."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return False
        document = read_json(path, "reports", ReportError)
    except (OSError, ShoalError):
        return False  # whoever reads the reports says what is wrong
    return isinstance(document, Mapping) and bool({"by_bit", "tally"} & set(document))


def _bit(plan: Plan, text: str) -> int:
    question, equals, label = text.partition("=")
    if not equals:
        raise InputError(f"--joint takes QUESTION=OPTION parts separated by ';', got {text!r}.")
    return plan.survey.bit(question.strip(), label.strip())
