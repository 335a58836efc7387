"""`shoal collector`: everything an operator does with a collector."""

from __future__ import annotations

import importlib
from typing import cast

import click

COMMANDS = {
    "serve": "Collect reports as a service: whole crowds or nothing.",
    "doctor": "Check a collector's deployment.",
    "token": "Make, list and revoke tokens.",
    "backup": "Back up sealed crowds, plans, tokens and the signing key.",
    "restore": "Restore a collector from a backup.",
    "rotate": "Change the signing key, with an overlap.",
    "move": "Move a collector from its folder to PostgreSQL.",
    "renew": "Begin anew with a restored PostgreSQL database.",
}
"""Every command, with the first line of its help."""


class _Commands(click.Group):
    """Loads a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package = "shoal.cli" if cmd_name == "serve" else __name__
        return cast(click.Command, importlib.import_module(f"{package}.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands)
def command() -> None:
    """Run a collector: serve, check, back up, restore, tokens."""
