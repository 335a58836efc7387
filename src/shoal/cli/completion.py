"""`shoal completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shoal.cli._commands import Command
from shoal.cli._options import json_option
from shoal.cli._printing import print_json


@click.command(cls=Command, example="shoal completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def command(shell: str, as_json: bool) -> None:
    """Print the script that completes commands, options and files.

    Put `eval "$(shoal completion bash)"` into ~/.bashrc, or the same with zsh into ~/.zshrc. For
    fish, write the script to ~/.config/fish/completions/shoal.fish. bash must be 4.4 or newer.
    """
    from shoal.cli import shoal

    completion = get_completion_class(shell)
    assert completion is not None
    script = completion(shoal, {}, "shoal", "_SHOAL_COMPLETE").source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
