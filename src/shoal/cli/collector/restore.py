"""`shoal collector restore`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json

if TYPE_CHECKING:
    from shoal.server.core.backup import Restoration


@click.command(cls=Command, example="shoal collector restore shoal.backup restored")
@click.argument("source", type=IN_FILE, metavar="BACKUP")
@click.argument("data", type=IN_FILE, metavar="DATA")
@click.option(
    "--digest", default="", metavar="SHA256", help="Refuse a backup with another SHA-256."
)
@json_option
def command(source: Path, data: Path, digest: str, as_json: bool) -> None:
    """Restore a collector from a backup.

    DATA is a new folder. Never start the backed-up collector again. A report must not be counted in
    two crowds, so a restore gives up crowds that were open, closes plans without a window, and lets
    the other plans accept reports from the window after the next.

    A damaged backup does not match its signature and is refused. The backup contains the key that
    signed it, so compare the printed key with the one your devices pin, and pass the SHA-256 that
    shoal collector backup printed.
    """
    from shoal.server.core.backup import restore
    from shoal.server.storage.key_file import Signer

    restoration = restore(source, data, digest=digest)
    key = Signer(data).public_key
    if as_json:
        document = {"closed": restoration.closed, "waiting": restoration.waiting}
        print_json({"data": str(data), "key": key} | document)
        return
    click.echo(f"Restored into {data}; a new admin token is in {data / 'admin-token'}")
    click.echo(f"It signs with the key {key}")
    say_what_became(restoration)


def say_what_became(restoration: Restoration) -> None:
    """Print what became of the plans that took reports."""
    for plan_id in restoration.closed:
        click.echo(f"Plan {plan_id[:12]} has no window and is closed.")
    for plan_id, begins in restoration.waiting.items():
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begins))
        click.echo(f"Plan {plan_id[:12]} accepts reports from {when} on.")
