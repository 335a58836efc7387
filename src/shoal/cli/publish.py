"""`shoal publish`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._crowds import candidates_options, publications, tallies_argument
from shoal.cli._options import (
    check_not_same,
    interval_option,
    json_option,
    level_option,
    output_option,
    plan_argument,
    target_option,
)
from shoal.cli._printing import print_json, printer, show_bullets, show_simulated
from shoal.errors import InputError
from shoal.protocol.plan import Plan


@click.command(cls=Command, example="shoal publish plan.json tally.json -o report.html")
@plan_argument
@tallies_argument
@output_option(
    "a page (.html), a table (.csv, .md), data (.json, .parquet, .arrow), or a folder of pages",
    required=True,
)
@candidates_options
@level_option
@interval_option
@target_option
@click.option("--title", metavar="TEXT", help="Title of the page.  [default: the survey's name]")
@click.option("--date", metavar="TEXT", help="Date in the citation, printed as given.")
@json_option
def command(
    plan_file: Path,
    tally_files: tuple[Path, ...],
    output: Path,
    candidate_file: Path | None,
    question: str | None,
    fdr: float,
    level: float,
    kind: Any,
    target: Any,
    title: str | None,
    date: str | None,
    as_json: bool,
) -> None:
    """Write a report page or tables of the estimates.

    The plan's certificate is included. The page is one file that loads nothing from elsewhere.
    Several tallies make a folder: a page for each, a trend over them and their differences. A tally
    of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.reports.page import check_folder, write_site
    from shoal.reports.publication import check_suffix

    many = len(tally_files) > 1
    if many and output.suffix:
        raise InputError(f"several tallies make a folder of pages; {output.name!r} names a file.")
    if many:
        check_folder(output)
    else:
        check_suffix(output)
    for source in (plan_file, *tally_files):
        check_not_same(source, output)
    plan = Plan.read(plan_file)
    found = publications(
        plan, tally_files, candidate_file, question, fdr, level,
        interval=kind, target=target, title=title, date=date,
    )  # fmt: skip
    publication, *_ = found.values()
    if many:
        write_site(found, output, level)
    else:
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
