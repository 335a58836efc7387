"""`shoal ledger`."""

from __future__ import annotations

from pathlib import Path

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json, printer
from shoal.device.ledger import Account, Ledger
from shoal.errors import InputError


@click.command(cls=Command, example="shoal ledger ledger.json --set-limit 20")
@click.argument("ledger_file", type=IN_FILE, metavar="LEDGER.json")
@click.option(
    "--set-limit", metavar="E", help="Refuse reports that raise the total epsilon above E."
)
@click.option("--no-limit", is_flag=True, help="Remove the limit.")
@json_option
def command(ledger_file: Path, set_limit: str | None, no_limit: bool, as_json: bool) -> None:
    """Show how much this device has revealed so far.

    The ledger adds up the epsilon of every report that `shoal send --ledger` made, and can limit
    it.
    """
    ledger = Ledger(ledger_file)
    if set_limit is not None and no_limit:
        raise InputError("give one of --set-limit and --no-limit.")
    if set_limit is not None or no_limit:
        ledger.set_limit(set_limit)
    elif not ledger_file.exists():
        raise InputError(f"cannot read ledger {ledger_file}: No such file or directory.")
    account = ledger.read()
    if as_json:
        print_json(account.to_json())
    else:
        _show(account)


def _show(account: Account) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    table = Table("survey", "plan", box=None, pad_edge=False)
    for column in ("reports", "answers", "epsilon", "with times"):
        table.add_column(column, justify="right", no_wrap=True)
    for entry in account.plans:
        answers = "all new" if entry.distinct_answers is None else f"{entry.distinct_answers:,}"
        table.add_row(
            escape(entry.survey),
            entry.plan_id[:12],
            f"{entry.reports:,}",
            answers,
            str(entry.epsilon),
            str(entry.epsilon_of_changes),
        )
    console.print(table)
    if account.epsilon < sum(entry.epsilon for entry in account.plans):
        console.print("Plans that share permanent flips count once in the total.")
    console.print(f"total epsilon    {account.epsilon} ({account.epsilon_of_changes} with times)")
    if account.limit is None:
        console.print("limit            none")
    else:
        console.print(f"limit            {account.limit}, left {account.left}")
    console.print(
        "This holds against anybody who sees every report and knows who sent it, the collector"
        " too. With times: for the answers and for the times at which they changed."
    )
