"""`shoal screen`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.agreement.plan import Plan
from shoal.analysis.screening import Screening, screen
from shoal.analysis.tallying import Tally
from shoal.cli._common import IN_FILE, json_option, print_json, printer


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
@click.option(
    "--alarm",
    type=float,
    default=1e-3,
    show_default=True,
    help="How often an honest crowd may be called suspicious.",
)
@json_option
def command(plan_file: Path, tally_file: Path, alarm: float, as_json: bool) -> None:
    """Look for traces of fake reports in the tally of a whole crowd.

    The p-value holds for every honest crowd, whatever its people answered. Fakes that flip bits
    like honest devices cannot be seen by anybody. A plan with a crowd refuses a tally of fewer
    reports (exit code 3).
    """
    plan = Plan.read(plan_file)
    found = screen(plan, Tally.read(tally_file, plan), alarm=alarm)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, plan.survey.name)


def _show(found: Screening, title: str) -> None:
    from rich.markup import escape

    console = printer()
    document = found.to_json()
    word = "[bold red]suspicious[/]" if found.suspicious else "[bold green]no trace of fakes[/]"
    crowds = f" of {found.crowds:,} crowds" if found.crowds > 1 else ""
    console.print(f"[bold]{escape(title)}[/bold]: {found.reports:,} reports{crowds}, {word}")
    console.print(f"p-value          {document['p_value']:.4g}, alarm at {found.alarm:.4g}")
    if found.suspicious:
        share = document["smallest_share_of_fakes"]
        console.print(f"fakes            at least {share:.4%} of the reports")
    for finding in found.findings:
        console.print(f"- {escape(finding)}", soft_wrap=True)
