"""A small tool with telemetry: it counts the words of files.

    python examples/telemetry/wordy.py count README.md
    python examples/telemetry/wordy.py telemetry status

`shoal telemetry try wordy:telemetry`, in this folder, shows what becomes of a report. Look for
`telemetry` below: these are all the lines that a tool needs.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from shoal.device.telemetry import Telemetry

telemetry = Telemetry(
    "wordy",
    plan=Path(__file__).with_name("plan.json"),
    to="https://telemetry.example.org",
    limit=60,
    why="We keep the commands that people use.",
)


@click.group()
@click.pass_context
def wordy(context: click.Context) -> None:
    """Count the words of files."""
    if context.invoked_subcommand != "telemetry":
        telemetry.record(command=context.invoked_subcommand, platform=sys.platform)
        telemetry.count(runs=1)
        context.call_on_close(telemetry.flush)


wordy.add_command(telemetry.click_group())

FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)
)


def words_of(files: tuple[Path, ...]) -> list[str]:
    """Return the words of all files, in order."""
    return [word for file in files for word in file.read_text("utf-8", "replace").split()]


@wordy.command()
@FILES
def count(files: tuple[Path, ...]) -> None:
    """Print how many words there are."""
    click.echo(len(words_of(files)))


@wordy.command()
@FILES
def longest(files: tuple[Path, ...]) -> None:
    """Print the longest word."""
    click.echo(max(words_of(files), key=len, default=""))


@wordy.command()
@FILES
def common(files: tuple[Path, ...]) -> None:
    """Print the ten most common words."""
    for word, times in Counter(words_of(files)).most_common(10):
        click.echo(f"{times:6} {word}")


if __name__ == "__main__":
    wordy()
