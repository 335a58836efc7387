"""`shoal collector backup`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json


@click.command(cls=Command, example="shoal collector backup collector shoal.backup")
@click.argument("data", type=IN_FILE, metavar="DATA")
@click.argument("target", type=IN_FILE, metavar="FILE_OR_FOLDER")
@click.option("--database", envvar="SHOAL_DATABASE", default="", help="postgresql://...")
@json_option
def command(data: Path, target: Path, database: str, as_json: bool) -> None:
    """Back up sealed crowds, plans, tokens and the signing key.

    The backup is one new file. The collector may keep running. A backup does not contain anything
    about open crowds. Keep it as secret as the collector itself: whoever has it can sign in the
    collector's name, also a changed backup. Keep the SHA-256 elsewhere, for restore --digest.
    """
    from shoal.server.core.backup import back_up, backup_digest

    backup = back_up(data, target, url=database)
    digest = backup_digest(backup)
    if as_json:
        print_json({"backup": str(backup), "sha256": digest})
    else:
        click.echo(f"Backup written to {backup}\nSHA-256 {digest}")
