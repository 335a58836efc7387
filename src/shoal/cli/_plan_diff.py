"""`shoal plan diff`, beside `shoal plan` with a survey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.cli._common import IN_FILE, json_option, print_json, printer
from shoal.errors import PrivacyRefusal
from shoal.planning.plan_diff import PlanDiff, plan_diff

EPILOG = "`shoal plan diff OLD.json NEW.json` says what an edit of a plan means."


class PlanOrDiff(click.Command):
    """`shoal plan ...` as ever; the first word `diff` leads to the comparison of two plans."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args[:1] == ["diff"]:
            return diff.make_context(f"{info_name} diff", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command()
@click.argument("old_file", type=IN_FILE, metavar="OLD.json")
@click.argument("new_file", type=IN_FILE, metavar="NEW.json")
@json_option
def diff(old_file: Path, new_file: Path, as_json: bool) -> None:
    """Say what an edit of a plan means for those who answer.

    The plans are the same, differ in words only (label), are two plans that need consent each, or
    the new one protects less under the same name, which is forbidden (exit code 3).
    """
    change = plan_diff(Plan.read(old_file), Plan.read(new_file))
    if as_json:
        print_json(change.to_json())
    else:
        _show(change)
    if change.kind == "forbidden":
        raise PrivacyRefusal("the new plan protects less than the old one of the same name.")


def _show(change: PlanDiff) -> None:
    from rich.markup import escape

    console = printer()
    colour = {"forbidden": "red", "new plan": "yellow"}.get(change.kind, "green")
    console.print(f"[bold {colour}]{change.kind}[/]: {change.old_id[:12]} to {change.new_id[:12]}")
    for reason in change.reasons:
        console.print(f"- {escape(reason)}", soft_wrap=True)
