"""`shoal tally`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._common import IN_FILE, OUT_FILE, json_option, print_json, progress
from shoal.errors import InputError
from shoal.plans import Plan
from shoal.tallying import Tallying


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("reports", type=IN_FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=OUT_FILE, help="Where to write the tally.")
@click.option("--vectors/--no-vectors", default=None, help="Count whole vectors too.")
@click.option(
    "--joint",
    multiple=True,
    metavar="Q=OPTION;Q=OPTION",
    help="Count these options jointly; may be given again.",
)
@json_option
def command(
    plan_file: Path,
    reports: tuple[Path, ...],
    output: Path | None,
    vectors: bool | None,
    joint: tuple[str, ...],
    as_json: bool,
) -> None:
    """Count the reports in one or more files.

    Counting is no release: of a plan that does not keep its promise reports are counted, with a
    warning, and nothing else is done with them.
    """
    from shoal.engines.report_files import read_reports
    from shoal.promising import compute_promise

    plan = Plan.read(plan_file)
    if (refusal := compute_promise(plan).refusal) is not None:
        click.echo(f"shoal: warning: {refusal}", err=True)
    if len({path.resolve() for path in reports}) < len(reports):
        raise InputError("a file of reports is named twice; it would be counted twice.")
    groups = [[_bit(plan, part) for part in group.split(";")] for group in joint]
    tallying = Tallying(plan, vectors=vectors, joint=groups)
    seen: set[bytes] = set()
    with progress("tallying") as advance:
        for path in reports:
            for chunk in read_reports(plan, path, seen):
                tallying.add(chunk.rows, simulated=chunk.simulated, cohorts=chunk.cohorts)
                advance(len(chunk))
    tally = tallying.result()
    if output is not None:
        tally.write(output)
    if as_json:
        print_json(tally.to_json())
    else:
        where = f", written to {output}" if output else ""
        click.echo(f"{tally.reports:,} reports of plan {plan.id[:12]} counted{where}.")


def _bit(plan: Plan, text: str) -> int:
    question, equals, label = text.partition("=")
    if not equals:
        raise InputError(f"--joint takes QUESTION=OPTION parts separated by ';', got {text!r}.")
    return plan.survey.bit(question.strip(), label.strip())
