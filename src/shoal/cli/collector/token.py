"""`shoal collector token`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, json_option
from shoal.cli._printing import print_json, printer

ROLES = ("app", "relay", "viewer", "analyst", "admin")


@click.group()
def command() -> None:
    """Make, list and revoke tokens.

    DATA is the collector's folder. A running collector is asked at its console, with the admin
    token in DATA/admin-token. While it is stopped, the tokens in DATA are changed directly.
    """


def _admin_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option(
            "--admin-token",
            type=IN_FILE,
            metavar="FILE",
            help="File with an admin token.  [default: DATA/admin-token]",
        ),
        click.option(
            "--console-url", metavar="URL", help="Address of the console, if it is elsewhere."
        ),
        click.argument("data", type=IN_FILE, metavar="DATA"),
    ):
        function = option(function)
    return function


@command.command(
    cls=Command,
    example='shoal collector token make collector --role viewer --label "weekly report"',
)
@_admin_options
@click.option("--role", type=click.Choice(ROLES), required=True, help="What the token allows.")
@click.option("--label", required=True, help="Who has it; shown in lists and logs.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="Last day (UTC) on which it is valid.  [default: no end]",
)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="ID",
    help="Limit it to a plan; repeatable.  [default: all plans]",
)
@click.option(
    "--relay-key", metavar="KEY", help="At an analyzer: the key that the relay signs with."
)
def make(
    data: Path,
    console_url: str | None,
    admin_token: Path | None,
    as_json: bool,
    role: Any,
    label: str,
    expires: datetime | None,
    plans: tuple[str, ...],
    relay_key: str | None,
) -> None:
    """Make a token and print it once.

    The collector stores only its hash. An app or relay token belongs to a program. Never give one
    to a person: it would undo their anonymity.
    """
    from shoal.server.console.token_admin import open_token_admin
    from shoal.server.core.tokens import Token

    last_day = None if expires is None else expires.date()
    wanted = Token.new(role, label, expires=last_day, plans=plans or None, key=relay_key)
    with open_token_admin(data, url=console_url, secret_file=admin_token) as admin:
        token, secret = admin.make(wanted)
    if as_json:
        print_json(token.to_json() | {"token": secret})
    else:
        click.echo(secret)
        click.echo(f"Token {token.id} ({token.role}, {token.label}); shown once.", err=True)


@command.command("list", cls=Command, example="shoal collector token list collector")
@_admin_options
def list_(data: Path, console_url: str | None, admin_token: Path | None, as_json: bool) -> None:
    """List all tokens, without their secrets."""
    from shoal.server.console.token_admin import open_token_admin

    with open_token_admin(data, url=console_url, secret_file=admin_token) as admin:
        tokens = admin.tokens()
    if as_json:
        print_json({"tokens": [token.to_json() for token in tokens]})
        return
    from rich.table import Table

    table = Table("id", "role", "label", "last day", "plans", box=None, pad_edge=False)
    for token in tokens:
        day = "none" if token.expires is None else token.expires.isoformat()
        plans = "all" if token.plans is None else ", ".join(plan[:12] for plan in token.plans)
        table.add_row(token.id, token.role, token.label, day, plans)
    printer().print(table)


@command.command(cls=Command, example="shoal collector token revoke collector 1f0c6a2be93d4e57")
@_admin_options
@click.argument("token_id", metavar="TOKEN_ID")
def revoke(
    data: Path, console_url: str | None, admin_token: Path | None, as_json: bool, token_id: str
) -> None:
    """Revoke a token by its id.

    `shoal collector token list` shows the ids. It is refused for the last admin token that has no
    end and no limit to some plans.
    """
    from shoal.server.console.token_admin import open_token_admin

    with open_token_admin(data, url=console_url, secret_file=admin_token) as admin:
        admin.revoke(token_id)
    if as_json:
        print_json({"revoked": token_id})
    else:
        click.echo(f"Token {token_id} is revoked.")
