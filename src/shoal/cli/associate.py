"""`shoal associate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.analysis.association import associate
from shoal.analysis.cross_tables import cross_named, cross_table
from shoal.analysis.tally import Tally
from shoal.cli._commands import Command
from shoal.cli._cross_table import show_cross_table, show_independence
from shoal.cli._options import (
    json_option,
    level_option,
    plan_argument,
    tally_argument,
    target_option,
)
from shoal.cli._printing import outward, print_json, printer, show_simulated
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_down, text_near, text_up


@click.command(cls=Command, example="shoal associate plan.json tally.json channel features=sync")
@plan_argument
@tally_argument
@click.argument("names", metavar="QUESTION[=OPTION]...", nargs=-1, required=True)
@level_option
@target_option
@json_option
def command(
    plan_file: Path,
    tally_file: Path,
    names: tuple[str, ...],
    level: float,
    target: Any,
    as_json: bool,
) -> None:
    """Test whether two answers go together.

    Questions that the survey crosses make a cross table, with shares of rows and columns; three or
    more make one table for each answer to the first. Other answers must be counted jointly: see
    `shoal tally --joint`. There, name a question with one answer, and all its options are used; of
    other questions name one option.
    """
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    if len(names) != 2 or cross_named(plan.survey, names) is not None:
        document = cross_table(plan, tally, *names, target=target).to_json(level)
    else:
        document = associate(plan, tally, *names, target=target).to_json(level)
    if as_json:
        print_json(document)
    elif "questions" in document:
        show_cross_table(document)
    else:
        _show(document)


def _show(document: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    names = escape(document["first"]), escape(document["second"])
    console.print(
        f"[bold]{names[0]}[/bold] and [bold]{names[1]}[/bold]: {document['reports']:,} reports,"
        f" normal intervals at {document['level']:.4g} (approximate), for the {document['target']}"
    )
    show_simulated(console, document)
    table = Table(box=None, pad_edge=False)
    table.add_column(names[0])
    table.add_column(names[1])
    for name in ("count", "low", "high", "constrained"):
        table.add_column(name, justify="right")
    for cell in document["table"]:
        names = escape(cell["first"]), escape(cell["second"])
        count, likely = (f"{cell[key]:,.0f}" for key in ("count", "constrained"))
        table.add_row(*names, count, *outward(cell["low"], cell["high"]), likely)
    console.print(table)
    show_independence(console, document)
    for name in ("difference", "odds_ratio"):
        if document[name] is not None:
            console.print(f"{name.replace('_', ' ')}: {_in_words(document[name])}")


def _in_words(measure: dict[str, float | None]) -> str:
    value, low, high = measure["value"], measure["low"], measure["high"]
    best = "unknown" if value is None else text_near(value)
    assert low is not None
    return f"{best}, from {text_down(low)} " + ("up" if high is None else f"to {text_up(high)}")
