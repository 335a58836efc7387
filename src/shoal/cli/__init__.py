"""The command `shoal`: words to verbs, no arithmetic.

Exit codes: 0 done; 2 bad usage or input; 3 refused because privacy would not hold; 1 anything
else. An error is one sentence on stderr.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import cast

import click
from click.shell_completion import CompletionItem

from shoal import __version__
from shoal.errors import ShoalError
from shoal.support.files import printable

__all__ = ["main", "shoal"]

GROUPS = {
    "Start": {
        "demo": "Show the whole path in a minute, on this machine.",
        "completion": "Print the script that completes commands, options and files.",
    },
    "Agree on a plan": {
        "survey": "Show what each question of a survey costs, or propose a survey.",
        "plan": "Choose how often each device flips a bit.",
        "audit": "Certify what a plan guarantees, or test a randomizer.",
        "compare": "Show what each kind of trust costs for a survey.",
        "migrate": "Turn RAPPOR parameters into a plan, and say what it promises.",
    },
    "On the device": {
        "encode": "Turn answers into bit vectors, which stay on the device.",
        "randomize": "Turn answers into randomized reports, as devices send them.",
        "send": "Answer a plan once and send the report, surviving crashes.",
        "ledger": "Show how much this device has revealed so far.",
    },
    "The collector": {
        "serve": "Collect reports as a service: whole crowds or nothing.",
        "analyzer": "Open and count what a relay forwards: whole crowds or nothing.",
        "collector": "Run a collector: serve, check, back up, restore, tokens.",
        "relay": "Forward sealed reports to an analyzer: whole crowds or nothing.",
        "capacity": "Measure what this machine takes, and what many devices need.",
    },
    "From reports to answers": {
        "tally": "Count reports, and add tallies.",
        "estimate": "Estimate how many people gave each answer, with intervals.",
        "decode": "Find which texts a crowd answered, from a list of candidates.",
        "discover": "Find frequent words without a list of candidates.",
        "associate": "Test whether two answers go together.",
        "screen": "Look for traces of fake reports in a whole crowd.",
        "look": "Open the pages of crowds in a browser, from files.",
        "publish": "Write a report page or tables of the estimates.",
    },
    "With a trusted curator": {
        "curator": "Release statistics of a table you hold, as a trusted curator.",
    },
    "Evidence": {
        "simulate": "Try a plan on simulated people.",
        "paper": "Recompute what the papers print, errors included.",
        "search": "Look for crowds that break the papers' conjecture.",
    },
}
"""Every command, in the order of the data's way, with the first line of its help.

Each is the module of its name.
"""

WORDS = [word for words in GROUPS.values() for word in words]


class _Words(click.Group):
    """Loads a command's module when the command is used, so that help is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return WORDS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in WORDS:
            return None
        return cast(click.Command, importlib.import_module(f"shoal.cli.{cmd_name}").command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without loading the commands."""
        lines = {word: line for words in GROUPS.values() for word, line in words.items()}
        found = [
            CompletionItem(word, help=line)
            for word, line in lines.items()
            if word.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group, words in GROUPS.items():
            with formatter.section(group):
                # One width for all, so that the columns of the groups agree.
                width = max(map(len, WORDS))
                formatter.write_dl([(word.ljust(width), words[word]) for word in words])


@click.group(cls=_Words, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="shoal %(version)s")
def shoal() -> None:
    """Estimate statistics of a crowd from randomized reports.

    Each device flips some bits of its answer, a crowd hides each report, and the analyst estimates
    the counts. Start with `shoal demo`.
    """


def main() -> None:
    """Run the command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command with the given arguments and return its exit code."""
    try:
        exit_code = shoal.main(arguments, prog_name="shoal", standalone_mode=False)
        return exit_code if isinstance(exit_code, int) else 0
    except ShoalError as error:
        return _say(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        hint = f" See {error.ctx.command_path} --help." if error.ctx else ""
        return _say(_sentence(error.format_message()) + hint, 2)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted; no file is half written.", 1)
    except BrokenPipeError:
        # Whoever read our output has closed it, which is no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        return _say("the machine ran out of memory; free some, or use less data.", 1)
    except Exception as error:
        if "SHOAL_DEBUG" in os.environ:
            raise
        return _say(
            f"an unexpected {type(error).__name__} occurred; set SHOAL_DEBUG=1 to see where, and"
            " please report it.",
            1,
        )


def _sentence(message: str) -> str:
    """Return a message of click in our words, with a full stop."""
    for theirs in ("Got unexpected extra arguments (", "Got unexpected extra argument ("):
        if message.startswith(theirs):
            message = f"too many arguments: {message.removeprefix(theirs).rstrip(')')}"
    return f"{message.rstrip().rstrip('.')}."


def _say(sentence: str, exit_code: int) -> int:
    lines = map(printable, sentence.split("\n"))  # it may quote untrusted text
    click.echo("shoal: " + "\n".join(lines), err=True)
    return exit_code
