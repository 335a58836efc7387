"""`shoal discover`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._common import IN_FILE, json_option, level_option, outward, print_json, printer
from shoal.discovering import discover
from shoal.plans import Plan
from shoal.tallying import Tally


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
@click.option("--top", type=int, metavar="K", help="Show at most this many words.")
@click.option(
    "--fdr",
    type=float,
    default=0.0001,
    show_default=True,
    help="Expected share of words that nobody has among those found.",
)
@click.option(
    "--candidates",
    type=int,
    default=5000,
    show_default=True,
    help="Chains of pairs to decode at most.",
)
@level_option
@json_option
def command(
    plan_file: Path,
    tally_file: Path,
    top: int | None,
    fdr: float,
    candidates: int,
    level: float,
    as_json: bool,
) -> None:
    """Find frequent texts without a list of candidates.

    The plan's survey must be one that `shoal.discovering.discovery_survey` made. A plan with a
    crowd refuses a tally of fewer reports (exit code 3).
    """
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    found = discover(plan, tally, top=top, fdr=fdr, level=level, candidates=candidates)
    document = found.to_json()
    if as_json:
        print_json(document)
    else:
        _show(document, tally.reports)


def _show(document: dict[str, Any], reports: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    console.print(
        f"[bold]{escape(document['question'])}[/bold]: {reports:,} reports,"
        f" {document['candidates']:,} candidates, {document['found']:,} words found"
    )
    if document["simulated"]:
        console.print("[yellow]simulated: these numbers are about nobody[/yellow]")
    if document["words"]:
        table = Table(box=None, pad_edge=False)
        table.add_column("word")
        for name in ("count", "low", "high"):
            table.add_column(name, justify="right")
        for row in document["words"]:
            bounds = outward(row["low"], row["high"])
            table.add_row(escape(row["word"]), f"{row['count']:,.0f}", *bounds)
        console.print(table)
    for note in document["notes"]:
        console.print(f"- {note}")
