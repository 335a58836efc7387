"""`shoal collector rotate`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json


@click.command(cls=Command, example="shoal collector rotate collector")
@click.argument("data", type=IN_FILE, metavar="DATA")
@click.option(
    "--overlap",
    type=click.IntRange(0, 3650),
    default=90,
    show_default=True,
    metavar="DAYS",
    help="How long the current key stays active alongside the new one.",
)
@click.option("--oblivious", is_flag=True, help="Change the Oblivious HTTP key instead.")
@click.option("--end", is_flag=True, help="Make no key; end the overlap of the last change now.")
@json_option
def command(data: Path, overlap: int, oblivious: bool, end: bool, as_json: bool) -> None:
    """Change the signing key, with an overlap.

    Works for the folder of a collector, an analyzer or a relay; stop it first. During the overlap
    the old and the new key both sign. Ship the new key to devices meanwhile: afterwards the old key
    is destroyed, and devices that still pin it refuse all documents. If somebody else may have the
    old key, end the overlap with --end as soon as you can.
    """
    from shoal.server.storage.key_file import OBLIVIOUS_FILE, SIGNING_FILE, change_key, end_overlap

    name = OBLIVIOUS_FILE if oblivious else SIGNING_FILE
    keys = end_overlap(data, name) if end else change_key(data, name, overlap_days=overlap)
    if as_json:
        print_json({"keys": keys.to_json()})
        return
    for key in keys.to_json():
        until = f" until {key['ends']}" if key["ends"] and key["state"] != "expired" else ""
        since = f" from {key['starts']}" if key["state"] == "pending" else ""
        click.echo(f"{key['key']}  {key['state']}{since}{until}")
