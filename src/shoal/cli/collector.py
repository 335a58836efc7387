"""`shoal collector`: commands for the operator of a collector or of another party."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.cli.services import serve
from shoal.errors import InputError
from shoal.protocol.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.server.doctor import Finding
    from shoal.server.storage.recovery import Restoration
    from shoal.server.storage.schema import Schema

_Role = Literal["app", "relay", "viewer", "analyst", "admin"]
_CONSOLE_URL = opt("Address of the console, if it is elsewhere.", "URL")
_ADMIN_TOKEN = opt("File with an admin token.  [default: DATA/admin-token]", "FILE")
_DATABASE = opt("PostgreSQL database: postgresql://...", envvar="SHOAL_DATABASE")


@click.group(cls=cli.InOrder)
def collector() -> None:
    """Run a collector: serve, check, back up, restore, tokens."""


collector.add_command(serve)


@dataclass(frozen=True)
class _Addresses:
    url: str | None = opt("Address for devices, through the proxy.", "URL")
    console_url: str | None = opt("Address of the console.", "URL")
    proxies: tuple[Path, ...] = opt(
        "Configuration of nginx or Caddy; repeatable.", "FILE", "--proxy"
    )
    config: Path | None = cli.CONFIG
    database: str | None = _DATABASE.but(default=None)


@cli.command("shoal collector doctor collector --url https://reports.example", group=collector)
def doctor(addresses: _Addresses, data: Path = cli.DATA) -> out.Result:
    """Check a collector's deployment.

    It checks the data folder, the disk, the clock, the listeners and the proxy in front of them.
    Run it as the user that runs the collector. The exit code is 1 if a check fails, not for
    warnings. Nothing is changed.
    """
    from shoal.server.doctor import worst
    from shoal.server.doctor.examine import examine

    findings = examine(data, **vars(addresses))
    verdict = worst(findings)
    document = {"verdict": verdict, "findings": [one.to_json() for one in findings]}
    return out.Result(document, _show_findings(findings), 1 if verdict == "fail" else 0)


def _show_findings(findings: Sequence[Finding]) -> out.Pieces:
    from rich.text import Text

    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for one in findings:
        mark, name = (one.verdict, colours[one.verdict]), (one.check, "bold")
        yield out.Plain(
            Text.assemble(mark, " " * (6 - len(one.verdict)), name, f": {one.sentence}")
        )
        if one.way_out:
            yield out.Plain(f"      → {one.way_out}")


@cli.command("shoal collector notify collector", group=collector)
def notify(data: Path = cli.DATA, config: Path | None = cli.CONFIG) -> out.Result:
    """Send a test notice by webhook and e-mail.

    The settings are read from DATA/shoal.toml (or --config) and the environment. Run it as the user
    that runs the service, which need not run. The exit code is 1 if a receiver did not accept it.
    """
    from shoal.server.core.notifications import try_channels
    from shoal.server.doctor.examine import read_settings

    failures = try_channels(read_settings(data, config, os.environ), data, send=True)
    if not failures:
        raise InputError("no notifications are set; set notify_webhook or notify_email.")
    lines = [f"{name}: {failure or 'sent'}" for name, failure in failures.items()]
    return out.Result(failures, "\n".join(lines), 1 if any(failures.values()) else 0)


@collector.group(cls=cli.InOrder)
def token() -> None:
    """Make, list and revoke tokens.

    DATA is the collector's folder. A running collector is asked at its console, with the admin
    token in DATA/admin-token. While it is stopped, the tokens in DATA are changed directly.
    """


def _admin(
    data: Path = cli.DATA,
    console_url: str | None = _CONSOLE_URL,
    admin_token: Path | None = _ADMIN_TOKEN,
) -> Any:
    """Open the tokens of a collector until the command ends."""
    from shoal.server.console.token_admin import open_token_admin

    opened = open_token_admin(data, url=console_url, secret_file=admin_token)
    return click.get_current_context().with_resource(opened)


_ADMIN = cli.made_by(_admin)


@cli.command(
    'shoal collector token make collector --role viewer --label "weekly report"', group=token
)
def make(
    admin: Any = _ADMIN,
    role: _Role = opt("Permissions of the token."),
    label: str = opt("Who has it; shown in lists and logs."),
    expires: datetime | None = opt(
        "Last day (UTC) on which it is valid.  [default: no end]",
        "YYYY-MM-DD",
        type=click.DateTime(["%Y-%m-%d"]),
    ),
    plans: tuple[str, ...] = opt(
        "Limit it to a plan; repeatable.  [default: all plans]", "ID", "--plan"
    ),
) -> out.Result:
    """Make a token and print it once.

    The collector stores only its hash. An app or relay token belongs to a program. Never give one
    to a person: it would undo their anonymity.
    """
    from shoal.server.core.tokens import Token

    last_day = None if expires is None else expires.date()
    wanted = Token.new(role, label, expires=last_day, plans=plans or None)
    made, secret = admin.make(wanted)

    def shown() -> out.Pieces:
        yield out.Plain(secret)
        click.echo(f"Token {made.id} ({made.role}, {made.label}); shown once.", err=True)

    return out.Result(made.to_json() | {"token": secret}, shown())


@cli.command("shoal collector token list collector", "list", group=token)
def list_(admin: Any = _ADMIN) -> out.Result:
    """List all tokens, without their secrets."""
    tokens = admin.tokens()
    rows = []
    for one in tokens:
        day = "none" if one.expires is None else one.expires.isoformat()
        plans = "all" if one.plans is None else ", ".join(plan[:12] for plan in one.plans)
        rows.append((one.id, one.role, one.label, day, plans))
    listed = out.table(["id", "role", "label", "last day", "plans"], rows, left=5)
    return out.Result({"tokens": [one.to_json() for one in tokens]}, [listed])


@cli.command("shoal collector token revoke collector 1f0c6a2be93d4e57", group=token)
def revoke(admin: Any = _ADMIN, token_id: str = arg("TOKEN_ID")) -> out.Result:
    """Revoke a token by its id.

    `shoal collector token list` shows the ids. The last admin token without an end and without a
    limit to some plans cannot be revoked.
    """
    admin.revoke(token_id)
    return out.Result({"revoked": token_id}, f"Token {token_id} is revoked.")


def _schemas() -> tuple[Schema, ...]:
    from shoal.server.aggregation.store import AGGREGATOR
    from shoal.server.relay.store import RELAY
    from shoal.server.storage.schema import COLLECTOR

    return (COLLECTOR, RELAY, AGGREGATOR)


@cli.command("shoal collector backup collector shoal.backup", group=collector)
def backup(
    data: Path = cli.DATA,
    target: Path = arg("FILE_OR_FOLDER"),
    database: str = _DATABASE.but(default=""),
) -> out.Result:
    """Back up complete crowds, plans, tokens and the signing key.

    The backup is one new file. The collector may keep running. A backup does not contain anything
    about open crowds. Keep it as secret as the collector itself: its key can sign in the name of
    the collector, even a changed backup. Keep the SHA-256 elsewhere, for restore --digest.
    """
    from shoal.server.core.backup import back_up, backup_digest

    backup = back_up(data, target, schemas=_schemas(), url=database)
    digest = backup_digest(backup)
    text = f"Backup written to {backup}\nSHA-256 {digest}"
    return out.Result({"backup": str(backup), "sha256": digest}, text)


@cli.command("shoal collector public collector plan.json", group=collector)
def public(
    data: Path = cli.DATA,
    plan: Plan = cli.PLAN,
    hide: bool = opt("No longer show them; copies that others made stay."),
    console_url: str | None = _CONSOLE_URL,
    admin_token: Path | None = _ADMIN_TOKEN,
) -> out.Result:
    """Make the releases of a plan public, or hide them.

    The collector with the data in DATA runs, and shows them at /results/ of its public address if
    it was started with --public-results. `shoal site` writes them as files.
    """
    from shoal.server.console.token_admin import running_console

    console = running_console(data, console_url, admin_token)
    document = console.ask("PUT", f"/v1/plans/{plan.id}/public", {"public": not hide})
    state = "public" if document["public"] else "hidden"
    return out.Result(document, f"The releases of plan {plan.id[:12]} are {state}.")


@cli.command("shoal collector restore shoal.backup restored", group=collector)
def restore(
    source: Path = arg("BACKUP"),
    data: Path = cli.DATA,
    digest: str = opt("Refuse a backup with another SHA-256.", "SHA256", default=""),
) -> out.Result:
    """Restore a collector from a backup.

    DATA is a new folder. Never start the backed-up collector again. A report must not be counted in
    two crowds, so a restore discards crowds that were open, closes plans without a window, and lets
    the other plans accept reports from the window after the next. A party of several runs shoal
    parties setup in DATA again, with its role and url, and gives the others its new public file.

    A damaged backup does not match its signature and is refused. The backup contains the key that
    signed it, so compare the printed key with the one your devices pin, and pass the SHA-256 that
    shoal collector backup printed.
    """
    from shoal.server.core.backup import restore
    from shoal.server.storage.key_file import Signer

    restoration = restore(source, data, digest=digest)
    key = Signer(data).public_key
    lines = [
        f"Restored into {data}; a new admin token is in {data / 'admin-token'}",
        f"It signs with the key {key}",
    ]
    return _restored(restoration, {"data": str(data), "key": key}, lines)


def _restored(restoration: Restoration, more: dict[str, str], lines: list[str]) -> out.Result:
    lines += [f"Plan {plan_id[:12]} has no window and is closed." for plan_id in restoration.closed]
    for plan_id, begins in restoration.waiting.items():
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begins))
        lines.append(f"Plan {plan_id[:12]} accepts reports from {when} on.")
    document = {**more, "closed": restoration.closed, "waiting": restoration.waiting}
    return out.Result(document, "\n".join(lines))


@cli.command("shoal collector rotate collector", group=collector)
def rotate(
    data: Path = cli.DATA,
    overlap: int = opt(
        "How long the current key stays active alongside the new one.",
        "DAYS",
        default=90,
        type=click.IntRange(0, 3650),
    ),
    oblivious: bool = opt("Change the Oblivious HTTP key instead."),
    end: bool = opt("Make no key; end the overlap of the last change now."),
) -> out.Result:
    """Change the signing key, with an overlap.

    Works for the folder of every service; stop it first. During the overlap
    the old and the new key both sign. Ship the new key to devices meanwhile: afterwards the old key
    is destroyed, and devices that still pin it refuse all documents. If someone else may have the
    old key, end the overlap with --end as soon as you can.
    """
    from shoal.server.storage.key_file import OBLIVIOUS_FILE, SIGNING_FILE, change_key, end_overlap

    name = OBLIVIOUS_FILE if oblivious else SIGNING_FILE
    changed = end_overlap(data, name) if end else change_key(data, name, overlap_days=overlap)
    keys = changed.to_json()
    lines = []
    for key in keys:
        until = f" until {key['ends']}" if key["ends"] and key["state"] != "expired" else ""
        since = f" from {key['starts']}" if key["state"] == "pending" else ""
        lines.append(f"{key['key']}  {key['state']}{since}{until}")
    return out.Result({"keys": keys}, "\n".join(lines))


@cli.command(
    "shoal collector move collector keys --database postgresql://shoal@db/shoal", group=collector
)
def move(
    source: Path = arg("DATA"),
    folder: Path = arg("NEW_FOLDER"),
    database: str = _DATABASE,
) -> out.Result:
    """Move a collector from its folder to PostgreSQL.

    Stop the collector first. Plans, tokens, releases, actions and open crowds are moved: no report
    is lost or counted twice. NEW_FOLDER gets the keys. No collector starts in DATA again. If the
    command was interrupted, run it again.
    """
    from shoal.server.storage.import_sqlite import move

    moved = move(source, folder, database)
    text = (
        f"Moved {moved.plans} plans, {moved.released} released and {moved.open} open crowds. Serve"
        f" them with --data {folder} --database URL; {source} refuses to start."
    )
    return out.Result(moved._asdict(), text)


@cli.command("shoal collector renew keys --database postgresql://shoal@db/shoal", group=collector)
def renew(data: Path = cli.DATA, database: str = _DATABASE) -> out.Result:
    """Make new keys for a restored PostgreSQL database.

    For a database that was restored from a backup of the server, or whose crowd-key is lost on all
    services that share it. Stop all of them first. Open crowds are discarded, and complete ones
    that a relay has not forwarded, or that were not collected from a leader and a helper. Plans
    without a window are closed, and the others accept reports from the window after the next. DATA
    gets a new crowd-key; copy it to the other folders.
    """
    from shoal.server.storage.postgres import renew

    restoration = renew(data, database, _schemas())
    text = f"A new key is in {data / 'crowd-key'}; copy it to the other folders."
    return _restored(restoration, {}, [text])
