"""`shoal backup`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._common import IN_FILE, json_option, print_json


@click.command()
@click.argument("data", type=IN_FILE)
@click.argument("target", type=IN_FILE, metavar="FILE_OR_FOLDER")
@json_option
def command(data: Path, target: Path, as_json: bool) -> None:
    """Copy what a collector has released, its plans, tokens and signing key to one new file.

    The collector may go on running. Nothing of its open crowds is copied. Keep the file as secret
    as the collector itself: who has it can sign in its name.
    """
    from shoal.collector.backup import back_up

    written = back_up(data, target)
    if as_json:
        print_json({"backup": str(written)})
    else:
        click.echo(f"the backup is in {written}")
