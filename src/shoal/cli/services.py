"""`shoal serve`, `shoal analyzer` and `shoal relay`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from shoal.cli import options as cli
from shoal.protocol.plan import Plan
from shoal.server.core.settings import (
    AnalyzerSettings,
    RelaySettings,
    ServiceSettings,
    Settings,
)


def _service_options(table: type[ServiceSettings]) -> Callable[[Any], Any]:
    """Add the plans, the data folder and the settings of a service."""
    return cli.together(
        click.argument("plans", nargs=-1, type=cli.IN_FILE, metavar="[PLAN.json]..."),
        cli.option("--data", "Data folder.", type=cli.OUT_FOLDER, required=True),
        cli.config_option,
        cli.option(
            "--never-published",
            "After a restore: state that these plans were not published before.",
            is_flag=True,
        ),
        cli.settings_options(table),
        cli.json_option,
    )


_honest_option = cli.option(
    "--honest",
    "For plans without an honest fraction: state that no fake reports are sent.",
    type=click.Choice(["all"]),
)


@cli.command("shoal serve --data collector --honest all plan.json")
@_honest_option
@cli.option(
    "--origins",
    "Web pages that may send reports for these plans, such as https://page.example; * for all."
    "  [default: unchanged, initially none]",
    metavar="ORIGIN,...",
)
@_service_options(Settings)
def serve(**given: Any) -> None:
    """Collect reports as a service: whole crowds or nothing.

    The plans named here are published at the start. The options from --public to --log-level
    are settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_PUBLIC
    for --public).
    """
    from shoal.server import serve
    from shoal.server.core.http import read_origins

    origins = given.pop("origins")
    read = None if origins is None else read_origins(origins)
    _serve(partial(serve, origins=read), Settings, "Reports", **given)


@cli.command("shoal analyzer --data analyzer --honest all plan.json")
@_honest_option
@_service_options(AnalyzerSettings)
def analyzer(**given: Any) -> None:
    """Decrypt and count whole crowds that a relay forwards.

    It accepts plans that name a relay and an analyzer, and no reports from devices. Register the
    relay with `shoal collector token make DATA --role relay --relay-key KEY`; all commands of
    `shoal collector` work with an analyzer's folder. The options from --public to --log-level are
    settings, as of `shoal serve`.
    """
    from shoal.server import serve_analyzer

    _serve(serve_analyzer, AnalyzerSettings, "For relays", **given)


def _serve(
    start: Callable[..., None],
    table: type[ServiceSettings],
    heading: str,
    *,
    plans: tuple[Path, ...],
    data: Path,
    config: Path | None,
    honest: str | None,
    never_published: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a collector or an analyzer; `heading` names its public address."""
    from shoal.server.storage.records import Declaration

    start(
        data,
        table.read(os.environ, _config(data, config), **options),
        plans=[Plan.read(path) for path in plans],
        declaration=Declaration(all_honest=honest == "all", never_published=never_published),
        ready=lambda urls: _show_ready(
            urls, {heading: "public", "Console": "console"}, data, as_json
        ),
    )


@cli.command("shoal relay --data relay --analyzer https://analyzer.example plan.json")
@cli.option("--analyzer", "The analyzer's address.", required=True, metavar="URL")
@cli.option(
    "--analyzer-key",
    "The analyzer's signing key.  [default: as pinned at the first contact]",
    metavar="KEY",
)
@cli.option(
    "--token-file",
    "File with this relay's token at the analyzer.  [default: DATA/analyzer-token]",
    type=cli.IN_FILE,
)
@cli.option("--plain", "Allow http to an analyzer on another machine.", is_flag=True)
@_service_options(RelaySettings)
def relay(
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
    """Forward whole crowds of encrypted reports to an analyzer.

    The relay accepts encrypted reports, which it cannot read. When a crowd is complete, it shuffles
    the messages and forwards them to the analyzer. The options from --listen to --log-level are
    settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_LISTEN for
    --listen).
    """
    from shoal.server.relay import serve_relay

    addresses = {"Reports": "public", "Operations": "ops", "Relay key": "key"}
    serve_relay(
        data,
        analyzer,
        RelaySettings.read(os.environ, _config(data, config), **options),
        plans=[Plan.read(path) for path in plans],
        analyzer_key=analyzer_key,
        token_file=token_file,
        allow_plain=plain,
        never_published=never_published,
        ready=lambda urls: _show_ready(urls, addresses, data, as_json),
    )


def _config(data: Path, config: Path | None) -> Path | None:
    default = data / "shoal.toml"
    return config or (default if default.exists() else None)


def _show_ready(urls: dict[str, str], names: dict[str, str], data: Path, as_json: bool) -> None:
    """Print the addresses of a service that has started."""
    if as_json:
        click.echo(json.dumps(urls))
        return
    for name, key in names.items():
        click.echo(f"{name + ':':12} {urls[key]}")
    if (data / "admin-token").exists():  # otherwise another process of the group has made it
        click.echo(f"Admin token: {data / 'admin-token'}")
