"""`shoal analyzer`: the party that reads, and cannot know whose."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli.serve import run_service, service_options

_OF_SENDERS = (
    *("ingest", "reports_per_request", "largest_share", "reports_per_second", "largest_body"),
    *("most_waiting", "database", "workers"),
)
"""Settings about senders, whom only the relay knows."""


@click.command(cls=Command, example="shoal analyzer --data analyzer --honest all plan.json")
@service_options(leave_out=_OF_SENDERS)
def command(**given: Any) -> None:
    """Open and count what a relay forwards: whole crowds or nothing.

    It takes plans that name a relay and an analyzer, and no reports of devices. Register the relay
    with `shoal collector token make DATA --role relay --relay-key KEY`; all commands of `shoal
    collector` work with an analyzer's folder. The options from --public to --log-level are
    settings, as of `shoal serve`.
    """
    run_service("analyzer", "For relays", **given)
