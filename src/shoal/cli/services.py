"""`shoal serve`, and the services of two parties: relay and analyzer, or leader and helper."""

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
    AnalystSettings,
    AnalyzerSettings,
    HelperSettings,
    LeaderSettings,
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
    _serve(start, service, service.read(Settings, settings), honest, _names("Reports"), as_json)


@cli.command("shoal analyzer --data analyzer --honest all plan.json", settings=AnalyzerSettings)
def analyzer(
    *, as_json: bool, honest: Literal["all"] | None = _HONEST, service: _Service, **settings: Any
) -> None:
    """Decrypt and count whole crowds that a relay forwards.

    Set both up first, with `shoal parties setup`. The analyzer accepts plans that name a relay and
    an analyzer, and no reports from devices. All commands of `shoal collector` work with its
    folder. The options from --public to --log-level are settings, as of `shoal serve`.
    """
    from shoal.server import serve_analyzer

    read = service.read(AnalyzerSettings, settings)
    _serve(serve_analyzer, service, read, honest, _names("For relays"), as_json)


def _names(public: str) -> dict[str, str]:
    return {public: "public", "Console": "console"}


def _serve(
    start: Callable[..., None],
    service: _Service,
    settings: ServiceSettings,
    honest: str | None,
    names: dict[str, str],
    as_json: bool,
) -> None:
    """Run a service that publishes plans; `names` are those of its addresses."""
    from shoal.server.storage.records import Declaration

    start(
        service.data,
        settings,
        plans=service.plans,
        declaration=Declaration(
            all_honest=honest == "all", never_published=service.never_published
        ),
        ready=service.announce(names, as_json),
    )


@cli.command("shoal relay --data relay plan.json", settings=RelaySettings)
def relay(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Forward whole crowds of encrypted reports to an analyzer.

    Set both up first, with `shoal parties setup`. The relay accepts encrypted reports, which it
    cannot read. When a crowd is complete, it shuffles the messages and forwards them to the
    analyzer. The options from --public to --log-level are settings: they can also be set in
    DATA/shoal.toml, or in the environment (SHOAL_PUBLIC for --public).
    """
    from shoal.server import serve_relay

    serve_relay(
        service.data,
        service.read(RelaySettings, settings),
        plans=service.plans,
        never_published=service.never_published,
        ready=service.announce({"Reports": "public", "Console": "console"}, as_json),
    )


@cli.command("shoal leader --data leader plan.json", settings=LeaderSettings)
def leader(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Take shares of reports, and verify them with a helper (DAP).

    Leader and helper each hold one secret share of every report, and neither sees anything in it.
    Batches have exactly the reports of one crowd and one window. `shoal collect` collects them.
    """
    from shoal.server import serve_leader

    serve_leader(
        service.data,
        service.read(LeaderSettings, settings),
        plans=service.plans,
        never_published=service.never_published,
        ready=service.announce({"Reports": "public", "Console": "console"}, as_json),
    )


@cli.command("shoal helper --data helper plan.json", settings=HelperSettings)
def helper(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Verify reports together with a leader (DAP).

    The helper holds the second share of every report, and gives out its share of a full batch. Run
    it by another operator than the leader: together they see what each device sent.
    """
    from shoal.server import serve_helper

    serve_helper(
        service.data,
        service.read(HelperSettings, settings),
        plans=service.plans,
        never_published=service.never_published,
        ready=service.announce({"For the leader": "public", "Console": "console"}, as_json),
    )


@cli.command("shoal collect --data analyst --honest all plan.json", settings=AnalystSettings)
def collect(
    *,
    as_json: bool,
    honest: Literal["all"] | None = _HONEST,
    once: cli.OutFolder | None = opt("Collect what is ready, write tallies here, and exit."),
    service: _Service,
    **settings: Any,
) -> None:
    """Collect full batches from a leader and a helper (DAP).

    They are shown in the console as the crowds of a collector are. Results are encrypted for the
    key that `shoal parties setup` made in DATA.
    """
    from shoal.server import serve_analyst

    start = partial(serve_analyst, once=once)
    names = {"Console": "console"}
    _serve(start, service, service.read(AnalystSettings, settings), honest, names, as_json)
