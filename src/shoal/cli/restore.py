"""`shoal restore`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from shoal.cli._common import IN_FILE, json_option, print_json


@click.command()
@click.argument("source", type=IN_FILE)
@click.argument("data", type=IN_FILE)
@json_option
def command(source: Path, data: Path, as_json: bool) -> None:
    """Make a collector's data of a backup, in a folder that holds none.

    The collector that was backed up must not run again. No report can be counted in two crowds:
    crowds that were open are given up, plans without a window are closed, and the others take
    reports again from the window after the next.
    """
    from shoal.collector.backup import restore

    restored = restore(source, data)
    if as_json:
        print_json({"data": str(data), "closed": restored.closed, "waiting": restored.waiting})
        return
    click.echo(f"the collector's data are in {data}, a new admin token in {data / 'admin-token'}")
    for plan_id in restored.closed:
        click.echo(f"plan {plan_id[:12]} has no window and is closed")
    for plan_id, begins in restored.waiting.items():
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begins))
        click.echo(f"plan {plan_id[:12]} takes the reports of {when} and later")
