"""The list of commands; each is loaded when it is used."""

from __future__ import annotations

import importlib
import re
from typing import Literal, cast

import click
from click.shell_completion import CompletionItem, get_completion_class

from shoal import __version__
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg
from shoal.errors import InputError
from shoal.support.checks import did_you_mean

GROUPS = {
    "Start": {
        "demo": "Show the whole path in a minute, on this machine.",
        "completion": "Print the script that completes commands and options.",
    },
    "Agree on a plan": {
        "survey": "Show the cost of each question of a survey, or infer a survey.",
        "plan": "Choose how often each device flips a bit.",
        "audit": "Certify the guarantees of a plan, or test a randomizer.",
        "compare": "Compare the cost of each trust model for a survey.",
        "dap-noise": "Compute the noise of a DAP task, of clients or of aggregators.",
        "migrate": "Turn RAPPOR parameters into a plan, and state its promise.",
    },
    "On the device": {
        "encode": "Turn answers into bit vectors, which stay on the device.",
        "randomize": "Turn answers into randomized reports, as devices send them.",
        "send": "Answer a plan once and send the report, surviving crashes.",
        "ledger": "Show how much this device has revealed so far.",
        "telemetry": "Try the telemetry of a tool, and write its documents.",
    },
    "Services": {
        "serve": "Collect reports as a service: whole crowds or nothing.",
        "parties": "Set up parties that trust each other's keys.",
        "analyzer": "Decrypt and count whole crowds that a relay forwards.",
        "collector": "Run a collector: serve, check, back up, restore, tokens.",
        "relay": "Forward whole crowds of encrypted reports to an analyzer.",
        "leader": "Take shares of reports, and verify them with a helper (DAP).",
        "helper": "Verify reports together with a leader (DAP).",
        "collect": "Collect full batches from a leader and a helper (DAP).",
        "capacity": "Measure this machine, and size it for many devices a day.",
    },
    "From reports to results": {
        "tally": "Count reports, and add tallies.",
        "estimate": "Estimate how many people gave each answer, with intervals.",
        "decode": "Find which texts a crowd answered, from a list of candidates.",
        "discover": "Find frequent words without a list of candidates.",
        "associate": "Test whether two answers go together.",
        "experiment": "Compare the arms of an experiment with control.",
        "retention": "Show how many of the people who started are active later.",
        "screen": "Search a complete crowd for traces of fake reports.",
        "preview": "Open the pages of crowds in a browser, from files.",
        "publish": "Write a report page or tables of the estimates.",
        "site": "Write a site of releases: pages, feeds and badges.",
    },
    "With a trusted curator": {
        "curator": "Release statistics of a table you hold, as a trusted curator.",
    },
    "Evidence": {
        "simulate": "Try a plan on simulated people.",
        "study": "Measure how often intervals of experiments hold the truth.",
        "paper": "Recompute the numbers in the papers, errors included.",
        "search": "Search for crowds that break the papers' conjecture.",
    },
}
"""Every command with the first line of its help, in the order in which data flow."""

COMMANDS = {word: summary for group in GROUPS.values() for word, summary in group.items()}

_MODULES = {
    **dict.fromkeys(
        ["serve", "parties", "analyzer", "relay", "leader", "helper", "collect"], "services"
    ),
    **dict.fromkeys(["survey", "compare", "dap-noise", "migrate"], "costs"),
    **dict.fromkeys(["decode", "discover"], "text"),
    **dict.fromkeys(["simulate", "study", "paper", "search", "capacity"], "evidence"),
    **dict.fromkeys(["encode", "randomize", "tally"], "reports"),
    **dict.fromkeys(["associate", "screen", "experiment", "retention"], "estimate"),
    **dict.fromkeys(["preview", "site"], "publish"),
    "completion": "commands",
    "ledger": "send",
}
"""The module of a command that has not its name."""


class _Commands(click.Group):
    """Loads a command's module when the command is used, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"shoal.cli.{_MODULES.get(cmd_name, cmd_name)}")
        return cast(click.Command, getattr(module, cmd_name.replace("-", "_")))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without loading the commands."""
        found = [
            CompletionItem(word, help=summary)
            for word, summary in COMMANDS.items()
            if word.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # one width for all groups, so that their columns agree
        for group, words in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(word.ljust(width), text) for word, text in words.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="shoal %(version)s")
def shoal() -> None:
    """Estimate statistics of a crowd from randomized reports.

    Each device flips some bits of its answer, a crowd hides each report, and the analyst estimates
    the counts. Start with `shoal demo`.
    """


def invoke(arguments: list[str]) -> int:
    """Run a command and return its exit code; bad usage is an `InputError`."""
    try:
        exit_code = shoal.main(arguments, prog_name="shoal", standalone_mode=False)
        return exit_code if isinstance(exit_code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        raise InputError(_sentence(error)) from None
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None


def _sentence(error: click.UsageError) -> str:
    """Return an error of click in our words: what is wrong, the word that was meant, the help."""
    message, ctx = error.format_message().rstrip(), error.ctx
    hint = ""
    for theirs in ("Got unexpected extra arguments (", "Got unexpected extra argument ("):
        if message.startswith(theirs):
            message = f"too many arguments: {message.removeprefix(theirs).rstrip(')')}"
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        message = f"{ctx.command_path} has no option {error.option_name!r}"
        options = [name for param in ctx.command.get_params(ctx) for name in param.opts]
        hint = did_you_mean(error.option_name, options)
    elif (found := re.match("No such command '(.*?)'", message)) and ctx is not None:
        message = f"{ctx.command_path} has no command {found[1]!r}"
        assert isinstance(ctx.command, click.Group)
        hint = did_you_mean(found[1], ctx.command.list_commands(ctx))
    stop = "" if message.endswith(("?", ".")) else "."
    return f"{message}{stop}{hint}" + (f" See {ctx.command_path} --help." if ctx else "")


@cli.command("shoal completion bash")
def completion(shell: Literal["bash", "zsh", "fish"] = arg()) -> out.Result:
    """Print the script that completes commands and options.

    Put `eval "$(shoal completion bash)"` into ~/.bashrc, or the same with zsh into ~/.zshrc. For
    fish, write the script to ~/.config/fish/completions/shoal.fish. bash must be 4.4 or newer.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(shoal, {}, "shoal", "_SHOAL_COMPLETE").source()
    return out.Result({"shell": shell, "script": script}, script)
