"""`shoal associate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.association import associate
from shoal.analysis.tallying import Tally
from shoal.cli._common import (
    IN_FILE,
    json_option,
    level_option,
    outward,
    print_json,
    printer,
    target_option,
)


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
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
    """Whether two answers go together.

    A question with one answer is taken with all its options; of other questions name one option.
    The tally must count the bits of both together: see `shoal tally --joint`.
    """
    plan = Plan.read(plan_file)
    found = associate(plan, Tally.read(tally_file, plan), first, second, target=target)
    document = found.to_json(level)
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
    if document["simulated"]:
        console.print("[yellow]simulated: these numbers are about nobody[/yellow]")
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
        f"independence: chi-square {test['statistic']:.4g} with {test['degrees']} degrees of"
        f" freedom, p = {test['p_value']:.3g} ({test['kind']})"
    )
    for name in ("difference", "odds_ratio"):
        if document[name] is not None:
            console.print(f"{name.replace('_', ' ')}: {_in_words(document[name])}")


def _in_words(measure: dict[str, float | None]) -> str:
    value, low, high = measure["value"], measure["low"], measure["high"]
    best = "unknown" if value is None else f"{value:.4g}"
    return f"{best}, from {low:.4g} " + ("up" if high is None else f"to {high:.4g}")
