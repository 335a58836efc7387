"""`shoal publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.tallying import Tally
from shoal.cli._commands import Command
from shoal.cli._common import (
    check_not_same,
    interval_option,
    json_option,
    level_option,
    output_option,
    plan_argument,
    print_json,
    printer,
    show_bullets,
    show_simulated,
    tally_argument,
    target_option,
)


@click.command(cls=Command, example="shoal publish plan.json tally.json -o report.html")
@plan_argument
@tally_argument
@output_option(
    "a page (.html), a table (.csv, .md) or data (.json, .parquet, .arrow)", required=True
)
@level_option
@interval_option
@target_option
@click.option("--title", metavar="TEXT", help="Title of the page.  [default: the survey's name]")
@click.option("--date", metavar="TEXT", help="Date in the citation, printed as given.")
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
    """Write a report page or tables of the estimates.

    The plan's certificate is included. The page is one file that loads nothing from elsewhere. A
    tally of fewer reports than the plan's crowd is refused (exit code 3).
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
        show_bullets(console, [publication.estimates.tally.note])
    show_simulated(console, document["estimates"])
    console.print(f"written to {escape(str(output))}", soft_wrap=True)
