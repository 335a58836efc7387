"""`shoal publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.tallying import Tally
from shoal.cli._common import (
    IN_FILE,
    OUT_FILE,
    check_not_same,
    interval_option,
    json_option,
    level_option,
    print_json,
    printer,
    target_option,
)


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
@click.option(
    "-o",
    "--output",
    type=OUT_FILE,
    required=True,
    help="What to write: .html, .csv, .json, .parquet, .arrow or .md.",
)
@level_option
@interval_option
@target_option
@click.option("--title", metavar="TEXT", help="On top of the page; by default the survey's name.")
@click.option("--date", metavar="TEXT", help="In the citation, as it is given.")
@json_option
def command(
    plan_file: Path,
    tally_file: Path,
    output: Path,
    level: float,
    kind: Any,
    target: Any,
    title: str | None,
    date: str | None,
    as_json: bool,
) -> None:
    """Make a report page, tables or files of the estimates, with the plan's certificate.

    The page is one file that loads nothing from anywhere. A plan with a crowd refuses a tally of
    fewer reports (exit code 3).
    """
    from shoal.analysis.publishing.publication import check_suffix, publish

    check_suffix(output)
    for source in (plan_file, tally_file):
        check_not_same(source, output)
    plan = Plan.read(plan_file)
    publication = publish(
        plan,
        Tally.read(tally_file, plan),
        level=level,
        interval=kind,
        target=target,
        title=title,
        date=date,
    )
    publication.write(output)
    if as_json:
        print_json(publication.to_json())
        return
    from rich.markup import escape

    document = publication.to_json()
    console = printer()
    console.print(f"[bold]{escape(document['title'])}[/bold]: {document['promise']['short']}")
    if publication.estimates.tally.note is not None:
        console.print(f"- {publication.estimates.tally.note}")
    if document["estimates"]["simulated"]:
        console.print("[yellow]simulated: these numbers are about nobody[/yellow]")
    console.print(f"written to {escape(str(output))}", soft_wrap=True)
