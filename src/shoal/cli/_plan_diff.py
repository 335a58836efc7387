"""`shoal plan diff`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json, printer, show_bullets
from shoal.cli._waiting import COMPUTING, waiting
from shoal.errors import PrivacyRefusal
from shoal.planning.plan_diff import PlanDiff, plan_diff
from shoal.protocol.plan import Plan


@click.command(cls=Command, example="shoal plan diff old.json new.json")
@click.argument("old_file", type=IN_FILE, metavar="OLD.json")
@click.argument("new_file", type=IN_FILE, metavar="NEW.json")
@click.option(
    "--weaker-is-intended",
    is_flag=True,
    help="Declare that the new plan may protect less under the same name.",
)
@json_option
def diff(old_file: Path, new_file: Path, weaker_is_intended: bool, as_json: bool) -> None:
    """Say what a change of a plan means for the people who answer.

    The result is one of: same, label, new plan (needs new consent), forbidden (protects less under
    the same name; exit code 3).

    If both surveys have the same name, the guarantees of both plans are computed: for one report,
    one release, a year, and without a time limit.
    """
    old, new = Plan.read(old_file), Plan.read(new_file)
    with waiting(COMPUTING):
        change = plan_diff(old, new, weaker_is_intended=weaker_is_intended)
    if as_json:
        print_json(change.to_json())
    else:
        _show(change)
    if change.kind == "forbidden":
        raise PrivacyRefusal("the new plan protects less than the old one of the same name.")


def _show(change: PlanDiff) -> None:
    console = printer()
    colour = {"forbidden": "red", "new plan": "yellow"}.get(change.kind, "green")
    console.print(f"[bold {colour}]{change.kind}[/]: {change.old_id[:12]} to {change.new_id[:12]}")
    show_bullets(console, change.reasons)
