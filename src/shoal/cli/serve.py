"""`shoal serve`: the collector."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, OUT_FOLDER, json_option, settings_options
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.server.core.settings import Settings
from shoal.server.storage.records import Declaration

AT_AN_ANALYZER = ("opening_processes",)
"""Settings that a collector has no use for."""


def service_options(leave_out: Collection[str]) -> Callable[..., Any]:
    """Return the decorator that adds the options of a service, without some of its settings."""
    options = [
        click.argument("plans", nargs=-1, type=IN_FILE, metavar="[PLAN.json]..."),
        click.option("--data", type=OUT_FOLDER, required=True, help="Data folder."),
        click.option(
            "--config", type=IN_FILE, help="Settings as TOML.  [default: DATA/shoal.toml]"
        ),
        click.option(
            "--honest",
            type=click.Choice(["all"]),
            help="For plans without an honest fraction: state that nobody sends fake reports.",
        ),
        click.option(
            "--never-published",
            is_flag=True,
            help="After a restore: state that these plans were not published before.",
        ),
        settings_options(Settings, leave_out),
        json_option,
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(cls=Command, example="shoal serve --data collector --honest all plan.json")
@service_options(leave_out=AT_AN_ANALYZER)
@click.option(
    "--origins",
    metavar="ORIGIN,...",
    help="Web pages that may send reports for these plans, such as https://page.example; * for all."
    "  [default: unchanged, initially none]",
)
def command(**given: Any) -> None:
    """Collect reports as a service: whole crowds or nothing.

    The plans named here are published at the start. The options from --public to --log-level
    are settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_PUBLIC
    for --public).
    """
    run_service("collector", "Reports", **given)


def run_service(
    kind: Literal["collector", "analyzer"],
    heading: str,
    *,
    plans: tuple[Path, ...],
    data: Path,
    config: Path | None,
    honest: str | None,
    never_published: bool,
    as_json: bool,
    origins: str | None = None,
    **options: Any,
) -> None:
    """Run a collector or an analyzer; `heading` is what its public address is called."""
    try:
        from shoal.server import Analyzer, Collector, serve
        from shoal.server.core.http import read_origins
    except ModuleNotFoundError as error:
        raise InputError(f"the {kind} needs {error.name}: pip install 'shoal[server]'.") from None
    file = config or (data / "shoal.toml" if (data / "shoal.toml").exists() else None)
    settings = Settings.read(os.environ, file, **options)
    documents = [Plan.read(path) for path in plans]

    def ready(urls: dict[str, str]) -> None:
        import json

        if as_json:
            click.echo(json.dumps(urls))
        else:
            click.echo(f"{heading + ':':12} {urls['public']}")
            click.echo(f"Console:     {urls['console']}")
            if (data / "admin-token").exists():  # else another collector made it
                click.echo(f"Admin token: {data / 'admin-token'}")

    declaration = Declaration(all_honest=honest == "all", never_published=never_published)
    serve(
        data,
        settings,
        plans=documents,
        declaration=declaration,
        origins=None if origins is None else read_origins(origins),
        ready=ready,
        kind=Analyzer if kind == "analyzer" else Collector,
    )
