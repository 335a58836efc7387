"""`shoal collector renew`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json
from shoal.cli.collector.restore import say_what_became


@click.command(
    cls=Command, example="shoal collector renew keys --database postgresql://shoal@db/shoal"
)
@click.argument("data", type=IN_FILE, metavar="DATA")
@click.option("--database", envvar="SHOAL_DATABASE", required=True, help="postgresql://...")
@json_option
def command(data: Path, database: str, as_json: bool) -> None:
    """Begin anew with a restored PostgreSQL database.

    For a database that was restored from a backup of the server, or whose crowd-key is lost on all
    collectors or relays. Stop all of them first. Crowds that are open are given up, and at relays
    those that have not arrived; plans without a window are closed, and the others accept reports
    from the window after the next. DATA gets a new crowd-key; copy it to the other folders.
    """
    from shoal.server.storage.rekey import renew

    restoration = renew(data, database)
    if as_json:
        print_json({"closed": restoration.closed, "waiting": restoration.waiting})
        return
    click.echo(f"A new key is in {data / 'crowd-key'}; copy it to the other folders.")
    say_what_became(restoration)
