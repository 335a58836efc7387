"""`shoal associate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.association import associate
from shoal.analysis.tallying import Tally
from shoal.cli._commands import Command
from shoal.cli._common import (
    json_option,
    level_option,
    outward,
    plan_argument,
    print_json,
    printer,
    show_simulated,
    tally_argument,
    target_option,
)
from shoal.support.rounding import text_down, text_near, text_up


@click.command(cls=Command, example="shoal associate plan.json tally.json channel features=sync")
@plan_argument
@tally_argument
@click.argument("first", metavar="QUESTION[=OPTION]")
@click.argument("second", metavar="QUESTION[=OPTION]")
@level_option
@target_option
@json_option
def command(
    plan_file: Path,
    tally_file: Path,
    first: str,
    second: str,
    level: float,
    target: Any,
    as_json: bool,
) -> None:
    """Test whether two answers go together.

    Name a question with one answer, and all its options are used; of other questions name one
    option. The tally must count both jointly: see `shoal tally --joint`.
    """
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    document = associate(plan, tally, first, second, target=target).to_json(level)
    if as_json:
        print_json(document)
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
    test = document["independence"]
    console.print(
        f"independence: chi-square {text_near(test['statistic'])} with {test['degrees']} degrees of"
        f" freedom, p = {text_near(test['p_value'], 3)} ({test['kind']})"
    )
    for name in ("difference", "odds_ratio"):
        if document[name] is not None:
            console.print(f"{name.replace('_', ' ')}: {_in_words(document[name])}")


def _in_words(measure: dict[str, float | None]) -> str:
    value, low, high = measure["value"], measure["low"], measure["high"]
    best = "unknown" if value is None else text_near(value)
    assert low is not None
    return f"{best}, from {text_down(low)} " + ("up" if high is None else f"to {text_up(high)}")
