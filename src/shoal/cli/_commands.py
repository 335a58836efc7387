"""What a command is here: its help has an example, and it may have subcommands beside it."""

from __future__ import annotations

from typing import Any

import click

from shoal.errors import InputError

__all__ = ["Command", "PlainOrSubcommand"]


class Command(click.Command):
    """A command whose help shows an example between its description and its options."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = example

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"  {line}\n")  # never wrapped: it is there to be copied


class PlainOrSubcommand(Command, click.Group):
    """A command with a plain form; a first word that is a subcommand leads there instead.

    An option that only a subcommand has is answered with the name of that subcommand.
    """

    allow_extra_args = False
    allow_interspersed_args = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, invoke_without_command=True, **kwargs)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in self.commands:
            subcommand = self.commands[args[0]]
            return subcommand.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return click.Command.parse_args(self, ctx, args)
        except click.NoSuchOption as error:
            for name, subcommand in self.commands.items():
                if any(error.option_name in param.opts for param in subcommand.params):
                    raise InputError(
                        f"{error.option_name} is an option of {ctx.command_path} {name}; see"
                        f" {ctx.command_path} {name} --help."
                    ) from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)
