"""`shoal rotate`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._common import IN_FILE, json_option, print_json


@click.command()
@click.argument("data", type=IN_FILE)
@json_option
def command(data: Path, as_json: bool) -> None:
    """Change a collector's signing key while it does not run.

    The old key signs the new one and is destroyed. Devices that pinned an old key follow these
    signatures to the new one. If the old key may be in other hands, ship the new one: whoever has
    the old key can lead such devices to another.
    """
    from shoal.collector.signing import change_key

    old, new = change_key(data)
    if as_json:
        print_json({"old": old, "new": new})
    else:
        click.echo(f"plans are signed with {new} from now on")
