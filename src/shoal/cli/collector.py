"""`shoal collector`: commands for the operator of a collector, an analyzer or a relay."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.services import serve

if TYPE_CHECKING:
    from shoal.server.storage.recovery import Restoration

_ROLES = ("app", "relay", "viewer", "analyst", "admin")


class _InOrder(click.Group):
    """A group whose help lists the commands in the order of this file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=_InOrder)
def collector() -> None:
    """Run a collector: serve, check, back up, restore, tokens."""


collector.add_command(serve)


def _database_option(**rules: Any) -> Callable[..., Any]:
    return click.option("--database", envvar="SHOAL_DATABASE", help="postgresql://...", **rules)


@collector.command(
    cls=cli.Command, example="shoal collector doctor collector --url https://reports.example"
)
@cli.data_argument
@cli.option("--url", "Address for devices, through the proxy.", metavar="URL")
@cli.option("--console-url", "Address of the console.", metavar="URL")
@cli.option(
    "--proxy",
    "proxies",
    "Configuration of nginx or Caddy; repeatable.",
    multiple=True,
    type=cli.IN_FILE,
    metavar="FILE",
)
@cli.config_option
@cli.json_option
def doctor(data: Path, as_json: bool, **given: Any) -> int:
    """Check a collector's deployment.

    It checks the data folder, the disk, the clock, the listeners and the proxy in front of them.
    Run it as the user that runs the collector. The exit code is 1 if a check fails, not for
    warnings. Nothing is changed.
    """
    from shoal.server.doctor import worst
    from shoal.server.doctor.examine import examine

    findings = examine(data, **given)
    verdict = worst(findings)
    if as_json:
        out.print_json({"verdict": verdict, "findings": [one.to_json() for one in findings]})
    else:
        from rich.markup import escape

        console = out.printer()
        colours = {"ok": "green", "warn": "yellow", "fail": "red"}
        for one in findings:
            console.print(
                f"[{colours[one.verdict]}]{one.verdict:4}[/]  [bold]{escape(one.check)}[/bold]: "
                f"{escape(one.sentence)}",
                soft_wrap=True,
            )
            if one.way_out:
                console.print(f"      → {escape(one.way_out)}", soft_wrap=True)
    return 1 if verdict == "fail" else 0


@collector.group(cls=_InOrder)
def token() -> None:
    """Make, list and revoke tokens.

    DATA is the collector's folder. A running collector is asked at its console, with the admin
    token in DATA/admin-token. While it is stopped, the tokens in DATA are changed directly.
    """


def _admin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the collector's folder and how to reach it, given to the command as `admin`."""

    @cli.data_argument
    @cli.option("--console-url", "Address of the console, if it is elsewhere.", metavar="URL")
    @cli.option(
        "--admin-token",
        "File with an admin token.  [default: DATA/admin-token]",
        type=cli.IN_FILE,
        metavar="FILE",
    )
    @cli.json_option
    @wraps(command)
    def with_admin(
        data: Path, console_url: str | None, admin_token: Path | None, **kwargs: Any
    ) -> None:
        from shoal.server.console.token_admin import open_token_admin

        with open_token_admin(data, url=console_url, secret_file=admin_token) as admin:
            command(admin=admin, **kwargs)

    return with_admin


@token.command(
    cls=cli.Command,
    example='shoal collector token make collector --role viewer --label "weekly report"',
)
@_admin_options
@cli.option("--role", "Permissions of the token.", type=click.Choice(_ROLES), required=True)
@cli.option("--label", "Who has it; shown in lists and logs.", required=True)
@cli.option(
    "--expires",
    "Last day (UTC) on which it is valid.  [default: no end]",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
)
@cli.option(
    "--plan",
    "plans",
    "Limit it to a plan; repeatable.  [default: all plans]",
    multiple=True,
    metavar="ID",
)
@cli.option("--relay-key", "At an analyzer: the key that the relay signs with.", metavar="KEY")
def make(
    admin: Any,
    role: Any,
    label: str,
    expires: datetime | None,
    plans: tuple[str, ...],
    relay_key: str | None,
    as_json: bool,
) -> None:
    """Make a token and print it once.

    The collector stores only its hash. An app or relay token belongs to a program. Never give one
    to a person: it would undo their anonymity.
    """
    from shoal.server.core.tokens import Token

    last_day = None if expires is None else expires.date()
    wanted = Token.new(role, label, expires=last_day, plans=plans or None, key=relay_key)
    made, secret = admin.make(wanted)
    if as_json:
        out.print_json(made.to_json() | {"token": secret})
    else:
        click.echo(secret)
        click.echo(f"Token {made.id} ({made.role}, {made.label}); shown once.", err=True)


@token.command("list", cls=cli.Command, example="shoal collector token list collector")
@_admin_options
def list_(admin: Any, as_json: bool) -> None:
    """List all tokens, without their secrets."""
    tokens = admin.tokens()
    if as_json:
        out.print_json({"tokens": [one.to_json() for one in tokens]})
        return
    rows = []
    for one in tokens:
        day = "none" if one.expires is None else one.expires.isoformat()
        plans = "all" if one.plans is None else ", ".join(plan[:12] for plan in one.plans)
        rows.append((one.id, one.role, one.label, day, plans))
    out.printer().print(out.table(["id", "role", "label", "last day", "plans"], rows, left=5))


@token.command(cls=cli.Command, example="shoal collector token revoke collector 1f0c6a2be93d4e57")
@_admin_options
@click.argument("token_id", metavar="TOKEN_ID")
def revoke(admin: Any, token_id: str, as_json: bool) -> None:
    """Revoke a token by its id.

    `shoal collector token list` shows the ids. The last admin token without an end and without a
    limit to some plans cannot be revoked.
    """
    admin.revoke(token_id)
    if as_json:
        out.print_json({"revoked": token_id})
    else:
        click.echo(f"Token {token_id} is revoked.")


@collector.command(cls=cli.Command, example="shoal collector backup collector shoal.backup")
@cli.data_argument
@click.argument("target", type=cli.IN_FILE, metavar="FILE_OR_FOLDER")
@_database_option(default="")
@cli.json_option
def backup(data: Path, target: Path, database: str, as_json: bool) -> None:
    """Back up complete crowds, plans, tokens and the signing key.

    The backup is one new file. The collector may keep running. A backup does not contain anything
    about open crowds. Keep it as secret as the collector itself: its key can sign in the name of
    the collector, even a changed backup. Keep the SHA-256 elsewhere, for restore --digest.
    """
    from shoal.server.core.backup import back_up, backup_digest
    from shoal.server.relay.schema import RELAY
    from shoal.server.storage.schema import COLLECTOR

    backup = back_up(data, target, schemas=(COLLECTOR, RELAY), url=database)
    digest = backup_digest(backup)
    if as_json:
        out.print_json({"backup": str(backup), "sha256": digest})
    else:
        click.echo(f"Backup written to {backup}\nSHA-256 {digest}")


@collector.command(cls=cli.Command, example="shoal collector restore shoal.backup restored")
@click.argument("source", type=cli.IN_FILE, metavar="BACKUP")
@cli.data_argument
@cli.option("--digest", "Refuse a backup with another SHA-256.", default="", metavar="SHA256")
@cli.json_option
def restore(source: Path, data: Path, digest: str, as_json: bool) -> None:
    """Restore a collector from a backup.

    DATA is a new folder. Never start the backed-up collector again. A report must not be counted in
    two crowds, so a restore discards crowds that were open, closes plans without a window, and lets
    the other plans accept reports from the window after the next.

    A damaged backup does not match its signature and is refused. The backup contains the key that
    signed it, so compare the printed key with the one your devices pin, and pass the SHA-256 that
    shoal collector backup printed.
    """
    from shoal.server.core.backup import restore
    from shoal.server.storage.key_file import Signer

    restoration = restore(source, data, digest=digest)
    key = Signer(data).public_key
    if as_json:
        document = {"closed": restoration.closed, "waiting": restoration.waiting}
        out.print_json({"data": str(data), "key": key} | document)
        return
    click.echo(f"Restored into {data}; a new admin token is in {data / 'admin-token'}")
    click.echo(f"It signs with the key {key}")
    _show_plans(restoration)


def _show_plans(restoration: Restoration) -> None:
    """Print what a restore did to each plan that accepted reports."""
    for plan_id in restoration.closed:
        click.echo(f"Plan {plan_id[:12]} has no window and is closed.")
    for plan_id, begins in restoration.waiting.items():
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begins))
        click.echo(f"Plan {plan_id[:12]} accepts reports from {when} on.")


@collector.command(cls=cli.Command, example="shoal collector rotate collector")
@cli.data_argument
@cli.option(
    "--overlap",
    "How long the current key stays active alongside the new one.",
    type=click.IntRange(0, 3650),
    default=90,
    metavar="DAYS",
)
@cli.option("--oblivious", "Change the Oblivious HTTP key instead.", is_flag=True)
@cli.option("--end", "Make no key; end the overlap of the last change now.", is_flag=True)
@cli.json_option
def rotate(data: Path, overlap: int, oblivious: bool, end: bool, as_json: bool) -> None:
    """Change the signing key, with an overlap.

    Works for the folder of a collector, an analyzer or a relay; stop it first. During the overlap
    the old and the new key both sign. Ship the new key to devices meanwhile: afterwards the old key
    is destroyed, and devices that still pin it refuse all documents. If someone else may have the
    old key, end the overlap with --end as soon as you can.
    """
    from shoal.server.storage.key_file import OBLIVIOUS_FILE, SIGNING_FILE, change_key, end_overlap

    name = OBLIVIOUS_FILE if oblivious else SIGNING_FILE
    keys = end_overlap(data, name) if end else change_key(data, name, overlap_days=overlap)
    if as_json:
        out.print_json({"keys": keys.to_json()})
        return
    for key in keys.to_json():
        until = f" until {key['ends']}" if key["ends"] and key["state"] != "expired" else ""
        since = f" from {key['starts']}" if key["state"] == "pending" else ""
        click.echo(f"{key['key']}  {key['state']}{since}{until}")


@collector.command(
    cls=cli.Command,
    example="shoal collector move collector keys --database postgresql://shoal@db/shoal",
)
@click.argument("source", type=cli.IN_FILE, metavar="DATA")
@click.argument("folder", type=cli.IN_FILE, metavar="NEW_FOLDER")
@_database_option(required=True)
@cli.json_option
def move(source: Path, folder: Path, database: str, as_json: bool) -> None:
    """Move a collector from its folder to PostgreSQL.

    Stop the collector first. Plans, tokens, releases, actions and open crowds are moved: no report
    is lost or counted twice. NEW_FOLDER gets the keys. No collector starts in DATA again. If the
    command was interrupted, run it again.
    """
    from shoal.server.storage.import_sqlite import move

    moved = move(source, folder, database)
    if as_json:
        out.print_json(moved._asdict())
        return
    click.echo(
        f"Moved {moved.plans} plans, {moved.released} released and {moved.open} open crowds. Serve"
        f" them with --data {folder} --database URL; {source} refuses to start."
    )


@collector.command(
    cls=cli.Command, example="shoal collector renew keys --database postgresql://shoal@db/shoal"
)
@cli.data_argument
@_database_option(required=True)
@cli.json_option
def renew(data: Path, database: str, as_json: bool) -> None:
    """Make new keys for a restored PostgreSQL database.

    For a database that was restored from a backup of the server, or whose crowd-key is lost on all
    collectors or relays. Stop all of them first. Open crowds are discarded, and at relays
    those that have not been forwarded; plans without a window are closed, and the others accept
    reports from the window after the next. DATA gets a new crowd-key; copy it to the other folders.
    """
    from shoal.server.relay.schema import RELAY
    from shoal.server.storage.postgres import renew
    from shoal.server.storage.schema import COLLECTOR

    restoration = renew(data, database, (COLLECTOR, RELAY))
    if as_json:
        out.print_json({"closed": restoration.closed, "waiting": restoration.waiting})
        return
    click.echo(f"A new key is in {data / 'crowd-key'}; copy it to the other folders.")
    _show_plans(restoration)
