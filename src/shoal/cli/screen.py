"""`shoal screen`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.analysis.screening import Screening, screen
from shoal.analysis.tally import Tally
from shoal.cli._commands import Command
from shoal.cli._options import json_option, plan_argument, tally_argument
from shoal.cli._printing import print_json, printer, show_bullets
from shoal.cli._types import DECIMAL
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near


@click.command(cls=Command, example="shoal screen plan.json tally.json")
@plan_argument
@tally_argument
@click.option(
    "--alarm",
    type=DECIMAL,
    default=1e-3,
    show_default=True,
    help="Chance of calling an honest crowd suspicious.",
)
@json_option
def command(plan_file: Path, tally_file: Path, alarm: float, as_json: bool) -> None:
    """Look for traces of fake reports in a whole crowd.

    The p-value holds for every honest crowd, whatever its people answered. Nobody can detect fakes
    that flip bits as honest devices do. A tally of fewer reports than the plan's crowd is refused
    (exit code 3).
    """
    plan = Plan.read(plan_file)
    screening = screen(plan, Tally.read(tally_file, plan), alarm=alarm)
    if as_json:
        print_json(screening.to_json())
    else:
        _show(screening, plan.survey.name)


def _show(screening: Screening, title: str) -> None:
    from rich.markup import escape

    console = printer()
    document = screening.to_json()
    word = "[bold red]suspicious[/]" if screening.suspicious else "[bold green]no trace of fakes[/]"
    crowds = f" of {screening.crowds:,} crowds" if screening.crowds > 1 else ""
    console.print(f"[bold]{escape(title)}[/bold]: {screening.reports:,} reports{crowds}, {word}")
    console.print(
        f"p-value          {text_near(document['p_value'])}, alarm at {text_near(screening.alarm)}"
    )
    if screening.suspicious:
        share = document["smallest_share_of_fakes"]
        console.print(f"fakes            at least {share:.4%} of the reports")
    show_bullets(console, screening.findings)
