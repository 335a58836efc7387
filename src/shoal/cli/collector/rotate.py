"""`shoal collector rotate`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json


@click.command(cls=Command, example="shoal collector rotate collector")
@click.argument("data", type=IN_FILE, metavar="DATA")
@json_option
def command(data: Path, as_json: bool) -> None:
    """Change the signing key; devices follow.

    Stop the collector first. The old key signs the new one and is destroyed. Devices that pinned an
    old key follow these signatures to the new one. If somebody else may have the old key, ship the
    new one to devices: whoever has the old key can lead them to a key of their own.
    """
    from shoal.collector.signing import change_key

    old, new = change_key(data)
    if as_json:
        print_json({"old": old, "new": new})
    else:
        click.echo(f"Plans are signed with {new} from now on.")
