"""`shoal collector move`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json


@click.command(
    cls=Command,
    example="shoal collector move collector keys --database postgresql://shoal@db/shoal",
)
@click.argument("source", type=IN_FILE, metavar="DATA")
@click.argument("folder", type=IN_FILE, metavar="NEW_FOLDER")
@click.option("--database", envvar="SHOAL_DATABASE", required=True, help="postgresql://...")
@json_option
def command(source: Path, folder: Path, database: str, as_json: bool) -> None:
    """Move a collector from its folder to PostgreSQL.

    Stop the collector first. Plans, tokens, releases and actions are moved, and open crowds
    exactly: what is counted stays counted, and reports that have come are recognized. NEW_FOLDER
    gets the keys. No collector starts in DATA again. If the command was interrupted, run it again.
    """
    from shoal.server.storage.import_sqlite import move

    moved = move(source, folder, database)
    if as_json:
        print_json(moved._asdict())
        return
    click.echo(
        f"Moved {moved.plans} plans, {moved.sealed} sealed and {moved.open} open crowds. Serve"
        f" them with --data {folder} --database URL; {source} refuses to start."
    )
