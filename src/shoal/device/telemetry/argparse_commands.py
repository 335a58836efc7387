"""The commands for a tool that is made with argparse."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.device.telemetry.commands import COMMANDS, show_json
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.device.telemetry.telemetry import Telemetry

__all__ = ["add_commands"]


def add_commands(telemetry: Telemetry, parser: ArgumentParser) -> None:
    """Add ``status|on|off|show|delete`` to a parser; `options.run(options)` gives an exit code.

    >>> from shoal.device.telemetry import Telemetry
    >>> parser = ArgumentParser("mytool")
    >>> add_commands(Telemetry("mytool", plan=b"", to="", folder="/nowhere/at/all"), parser)
    >>> options = parser.parse_args(["show"])
    >>> options.run(options)
    Nothing has left this machine.
    0
    """
    below = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (text, do) in COMMANDS.items():
        command = below.add_parser(name, help=text, description=text)
        if name == "show":
            command.add_argument("--json", action="store_true", help="print one JSON document")
        command.set_defaults(run=_runner(telemetry, do))


def _runner(telemetry: Telemetry, do: Callable[[Telemetry], str]) -> Callable[[Namespace], int]:
    def run(options: Namespace) -> int:
        telemetry.ask_nobody()
        try:
            print(show_json(telemetry) if getattr(options, "json", False) else do(telemetry))
        except (ShoalError, OSError) as error:
            print(f"{telemetry.tool}: {error}", file=sys.stderr)
            return 2
        return 0

    return run
