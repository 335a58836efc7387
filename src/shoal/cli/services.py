"""`shoal serve`, `shoal analyzer` and `shoal relay`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from shoal.cli import options as cli
from shoal.cli.options import arg, opt
from shoal.protocol.plan import Plan
from shoal.server.core.settings import (
    AnalyzerSettings,
    RelaySettings,
    ServiceSettings,
    Settings,
)


@dataclass(frozen=True)
class _Service:
    """The plans, the data folder and the configuration of a service."""

    data: cli.OutFolder = opt("Data folder.")
    plan_files: tuple[Path, ...] = arg("[PLAN.json]...", default=())
    config: Path | None = cli.CONFIG
    never_published: bool = opt(
        "After a restore: state that these plans were not published before."
    )

    @property
    def plans(self) -> list[Plan]:
        return [Plan.read(path) for path in self.plan_files]

    def read(self, table: type[ServiceSettings], settings: dict[str, Any]) -> Any:
        """Return the settings: options, then the environment, then the file."""
        default = self.data / "shoal.toml"
        file = self.config or (default if default.exists() else None)
        return table.read(os.environ, file, **settings)

    def announce(self, names: dict[str, str], as_json: bool) -> Callable[[dict[str, str]], None]:
        """Return a function that prints the addresses once the service has started."""

        def ready(urls: dict[str, str]) -> None:
            if as_json:
                click.echo(json.dumps(urls))
                return
            for name, key in names.items():
                click.echo(f"{name + ':':12} {urls[key]}")
            token = self.data / "admin-token"
            if token.exists():  # otherwise another process of the group has made it
                click.echo(f"Admin token: {token}")

        return ready


_HONEST = opt("For plans without an honest fraction: state that no fake reports are sent.")


@cli.command("shoal serve --data collector --honest all plan.json", settings=Settings)
def serve(
    *,
    as_json: bool,
    honest: Literal["all"] | None = _HONEST,
    origins: str | None = opt(
        "Web pages that may send reports for these plans, such as https://page.example; * for"
        " all.  [default: unchanged, initially none]",
        "ORIGIN,...",
    ),
    service: _Service,
    **settings: Any,
) -> None:
    """Collect reports as a service: whole crowds or nothing.

    The plans named here are published at the start. The options from --public to --log-level
    are settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_PUBLIC
    for --public).
    """
    from shoal.server import serve
    from shoal.server.core.http import read_origins

    start = partial(serve, origins=None if origins is None else read_origins(origins))
    _serve(start, service, service.read(Settings, settings), honest, "Reports", as_json)


@cli.command("shoal analyzer --data analyzer --honest all plan.json", settings=AnalyzerSettings)
def analyzer(
    *, as_json: bool, honest: Literal["all"] | None = _HONEST, service: _Service, **settings: Any
) -> None:
    """Decrypt and count whole crowds that a relay forwards.

    It accepts plans that name a relay and an analyzer, and no reports from devices. Register the
    relay with `shoal collector token make DATA --role relay --relay-key KEY`; all commands of
    `shoal collector` work with an analyzer's folder. The options from --public to --log-level are
    settings, as of `shoal serve`.
    """
    from shoal.server import serve_analyzer

    read = service.read(AnalyzerSettings, settings)
    _serve(serve_analyzer, service, read, honest, "For relays", as_json)


def _serve(
    start: Callable[..., None],
    service: _Service,
    settings: ServiceSettings,
    honest: str | None,
    heading: str,
    as_json: bool,
) -> None:
    """Run a collector or an analyzer; `heading` names its public address."""
    from shoal.server.storage.records import Declaration

    start(
        service.data,
        settings,
        plans=service.plans,
        declaration=Declaration(
            all_honest=honest == "all", never_published=service.never_published
        ),
        ready=service.announce({heading: "public", "Console": "console"}, as_json),
    )


@cli.command(
    "shoal relay --data relay --analyzer https://analyzer.example plan.json", settings=RelaySettings
)
def relay(
    *,
    as_json: bool,
    analyzer: str = opt("The analyzer's address.", "URL"),
    analyzer_key: str | None = opt(
        "The analyzer's signing key.  [default: as pinned at the first contact]", "KEY"
    ),
    token_file: Path | None = opt(
        "File with this relay's token at the analyzer.  [default: DATA/analyzer-token]"
    ),
    plain: bool = opt("Allow http to an analyzer on another machine."),
    service: _Service,
    **settings: Any,
) -> None:
    """Forward whole crowds of encrypted reports to an analyzer.

    The relay accepts encrypted reports, which it cannot read. When a crowd is complete, it shuffles
    the messages and forwards them to the analyzer. The options from --public to --log-level are
    settings: they can also be set in DATA/shoal.toml, or in the environment (SHOAL_PUBLIC for
    --public).
    """
    from shoal.server import serve_relay

    addresses = {"Reports": "public", "Console": "console", "Relay key": "key"}
    serve_relay(
        service.data,
        analyzer,
        service.read(RelaySettings, settings),
        plans=service.plans,
        analyzer_key=analyzer_key,
        token_file=token_file,
        allow_plain=plain,
        never_published=service.never_published,
        ready=service.announce(addresses, as_json),
    )
