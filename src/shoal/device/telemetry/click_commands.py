"""The commands for a tool that is made with click."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from shoal.device.telemetry.commands import COMMANDS, show_json
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["click_group"]


def click_group(telemetry: Telemetry) -> click.Group:
    """Return ``telemetry status|on|off|show|delete`` as a group."""
    group = click.Group("telemetry", help=f"What {telemetry.tool} reports about its use.")
    for name, (text, do) in COMMANDS.items():
        group.add_command(_command(telemetry, name, text, do))
    return group


def _command(
    telemetry: Telemetry, name: str, text: str, do: Callable[[Telemetry], str]
) -> click.Command:
    def run(as_json: bool = False) -> None:
        telemetry.ask_nobody()
        try:
            click.echo(show_json(telemetry) if as_json else do(telemetry))
        except (ShoalError, OSError) as error:
            raise click.ClickException(str(error)) from error

    option = click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON document.")
    return click.Command(name, callback=run, help=text, params=[option] if name == "show" else [])
