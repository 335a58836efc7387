"""`shoal tally`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path

import click

from shoal.agreement.plan import Plan
from shoal.analysis.tallying import Tally, Tallying
from shoal.cli._common import IN_FILE, OUT_FILE, json_option, print_json, progress
from shoal.errors import InputError, ReportError, ShoalError
from shoal.support.files import read_json


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
@click.option("--crowd", metavar="NAME", help="What the crowd is called; its parts add up.")
@click.option("--window", type=int, metavar="N", help="The window of reports that do not say it.")
@click.option(
    "--people",
    type=click.Choice(["different"]),
    help="Declare that no person is in two of the crowds; nobody checks that.",
)
@json_option
def command(
    plan_file: Path,
    reports: tuple[Path, ...],
    output: Path | None,
    vectors: bool | None,
    joint: tuple[str, ...],
    crowd: str | None,
    window: int | None,
    people: str | None,
    as_json: bool,
) -> None:
    """Count the reports in one or more files, and add tallies.

    Files of reports are one crowd, unless they carry windows: then each window is a crowd. Tallies,
    and what a collector tells about a sealed crowd, are added as the crowds that they name.

    Counting is no release: of a plan that does not keep its promise reports are counted, with a
    warning, and nothing else is done with them.
    """
    from shoal.analysis.report_files import read_reports
    from shoal.planning.promise import compute_promise

    plan = Plan.read(plan_file)
    if (refusal := compute_promise(plan).refusal) is not None:
        click.echo(f"shoal: warning: {refusal}", err=True)
    if len({path.resolve() for path in reports}) < len(reports):
        raise InputError("a file of reports is named twice; it would be counted twice.")
    groups = [[_bit(plan, part) for part in group.split(";")] for group in joint]
    tallying = Tallying(plan, vectors=vectors, joint=groups, crowd=crowd, window=window)
    tallies = [path for path in reports if _holds_tally(path)]
    seen: set[bytes] = set()
    with progress("tallying") as advance:
        for path in reports:
            for chunk in read_reports(plan, path, seen) if path not in tallies else ():
                tallying.add_vectors(chunk)
                advance(len(chunk))
    parts = [Tally.read(path, plan) for path in tallies]
    if len(tallies) < len(reports):
        parts.append(tallying.result())
    tally = reduce(add, parts)
    if crowd is not None:
        tally = tally.named(crowd)
    if people is not None:
        tally = tally.of_different_people()
    if output is not None:
        tally.write(output)
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
