"""`shoal relay`: takes sealed reports and forwards whole crowds to an analyzer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, OUT_FOLDER, json_option, settings_options
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.relay.settings import RelaySettings


@click.command(
    cls=Command,
    example="shoal relay --data relay --analyzer https://analyzer.example plan.json",
)
@click.argument("plans", nargs=-1, type=IN_FILE, metavar="[PLAN.json]...")
@click.option("--data", type=OUT_FOLDER, required=True, help="Data folder.")
@click.option("--analyzer", required=True, metavar="URL", help="The analyzer's address.")
@click.option(
    "--analyzer-key",
    metavar="KEY",
    help="The analyzer's signing key.  [default: as pinned at the first contact]",
)
@click.option(
    "--token-file",
    type=IN_FILE,
    help="File with this relay's token at the analyzer.  [default: DATA/analyzer-token]",
)
@click.option("--plain", is_flag=True, help="Allow http to an analyzer on another machine.")
@click.option("--config", type=IN_FILE, help="Settings as TOML.  [default: DATA/shoal.toml]")
@click.option(
    "--never-published",
    is_flag=True,
    help="After a restore: state that these plans were not published before.",
)
@settings_options(RelaySettings)
@json_option
def command(
    plans: tuple[Path, ...],
    data: Path,
    analyzer: str,
    analyzer_key: str | None,
    token_file: Path | None,
    plain: bool,
    config: Path | None,
    never_published: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Forward sealed reports to an analyzer: whole crowds or nothing.

    The relay takes sealed reports, which it cannot read. When a crowd is whole, it shuffles its
    messages and forwards them to the analyzer. The options from --listen to --log-level are
    settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_LISTEN for
    --listen).
    """
    try:
        from shoal.server.relay import serve_relay
    except ModuleNotFoundError as error:
        raise InputError(f"the relay needs {error.name}: pip install 'shoal[server]'.") from None
    file = config or (data / "shoal.toml" if (data / "shoal.toml").exists() else None)
    settings = RelaySettings.read(os.environ, file, **options)
    documents = [Plan.read(path) for path in plans]

    def ready(urls: dict[str, str]) -> None:
        if as_json:
            click.echo(json.dumps(urls))
        else:
            click.echo(f"Reports:     {urls['public']}")
            click.echo(f"Operations:  {urls['ops']}")
            click.echo(f"Relay key:   {urls['key']}")
            if (data / "admin-token").exists():  # else another relay made it
                click.echo(f"Admin token: {data / 'admin-token'}")

    serve_relay(
        data,
        analyzer,
        settings,
        plans=documents,
        analyzer_key=analyzer_key,
        token_file=token_file,
        allow_plain=plain,
        never_published=never_published,
        ready=ready,
    )
