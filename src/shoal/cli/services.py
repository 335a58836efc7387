"""`shoal serve`, the services of two parties, and `shoal parties`, which sets these up."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import InputError
from shoal.protocol.plan import ONE_OPERATOR, Plan
from shoal.protocol.signatures import ROLES, PublicParty
from shoal.server.core.settings import (
    AnalystSettings,
    AnalyzerSettings,
    HelperSettings,
    LeaderSettings,
    RelaySettings,
    ServiceSettings,
    Settings,
)

if TYPE_CHECKING:
    from shoal.server.core.parties import Agreement


@dataclass(frozen=True)
class _Service:
    """The plans, the data folder and the configuration of a service."""

    data: cli.OutFolder = opt("Data folder.")
    plan_files: tuple[Path, ...] = arg("[PLAN.json]...", default=())
    config: Path | None = cli.CONFIG
    never_published: bool = opt(
        "After a restore: state that these plans were not published before."
    )

    def run(
        self,
        start: str,
        table: type[ServiceSettings],
        settings: dict[str, Any],
        as_json: bool,
        public: str | None,
        **more: Any,
    ) -> None:
        """Run a service with its settings: options, then the environment, then the file.

        `start` is the function's name, and `public` that of its public address.
        """
        from shoal import server

        names = {"public": public, "console": "Console"}
        default = self.data / "shoal.toml"
        file = self.config or (default if default.exists() else None)

        def ready(urls: dict[str, str]) -> None:
            if as_json:
                click.echo(json.dumps(urls))
                return
            for key, name in names.items():
                if name is not None:
                    click.echo(f"{name + ':':12} {urls[key]}")
            token = self.data / "admin-token"
            if token.exists():  # otherwise another process of the group has made it
                click.echo(f"Admin token: {token}")

        read = table.read(os.environ, file, **settings)
        plans = [Plan.read(path) for path in self.plan_files]
        getattr(server, start)(self.data, read, plans=plans, ready=ready, **more)

    def declared(self, honest: str | None) -> dict[str, Any]:
        """Return what is stated of plans that this service releases crowds of."""
        from shoal.server.storage.records import Declaration

        stated = Declaration(all_honest=honest == "all", never_published=self.never_published)
        return {"declaration": stated}


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
    from shoal.server.core.http import read_origins

    more = {"origins": None if origins is None else read_origins(origins)}
    more |= service.declared(honest)
    service.run("serve", Settings, settings, as_json, "Reports", **more)


@cli.command("shoal analyzer --data analyzer --honest all plan.json", settings=AnalyzerSettings)
def analyzer(
    *, as_json: bool, honest: Literal["all"] | None = _HONEST, service: _Service, **settings: Any
) -> None:
    """Decrypt and count whole crowds that a relay forwards.

    Set both up first, with `shoal parties setup`. The analyzer accepts plans that name a relay and
    an analyzer, and no reports from devices. All commands of `shoal collector` work with its
    folder. The options from --public to --log-level are settings, as of `shoal serve`.
    """
    more = service.declared(honest)
    service.run("serve_analyzer", AnalyzerSettings, settings, as_json, "For relays", **more)


@cli.command("shoal relay --data relay plan.json", settings=RelaySettings)
def relay(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Forward whole crowds of encrypted reports to an analyzer.

    Set both up first, with `shoal parties setup`. The relay accepts encrypted reports, which it
    cannot read. When a crowd is complete, it shuffles the reports and forwards them to the
    analyzer. The options from --public to --log-level are settings: they can also be set in
    DATA/shoal.toml, or in the environment (SHOAL_PUBLIC for --public).
    """
    more = {"never_published": service.never_published}
    service.run("serve_relay", RelaySettings, settings, as_json, "Reports", **more)


@cli.command("shoal leader --data leader plan.json", settings=LeaderSettings)
def leader(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Take shares of reports, and verify them with a helper (DAP).

    Leader and helper each hold one secret share of every report, and neither sees anything in it.
    Batches have exactly the reports of one crowd and one window. `shoal collect` collects them.
    """
    more = {"never_published": service.never_published}
    service.run("serve_leader", LeaderSettings, settings, as_json, "Reports", **more)


@cli.command("shoal helper --data helper plan.json", settings=HelperSettings)
def helper(*, as_json: bool, service: _Service, **settings: Any) -> None:
    """Verify reports together with a leader (DAP).

    The helper holds the second share of every report, and gives out its share of a full batch. Its
    operator must not be the leader's: together they see what each device sent.
    """
    more = {"never_published": service.never_published}
    service.run("serve_helper", HelperSettings, settings, as_json, "For the leader", **more)


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
    more = {"once": once} | service.declared(honest)
    service.run("serve_analyst", AnalystSettings, settings, as_json, None, **more)


_LOCAL = {
    "relay": 8410, "analyzer": 8400, "leader": 8420, "helper": 8430, "analyst": 8441,
}  # fmt: skip
"""Ports of the parties of a demonstration: the defaults of their services."""


_COMMANDS = {"analyst": "collect --honest all"}
"""The command of a service that has not its role's name."""


@click.group(cls=cli.InOrder)
def parties() -> None:
    """Set up parties that trust each other's keys."""


@dataclass(frozen=True)
class _Own:
    role: Literal["relay", "analyzer", "leader", "helper", "analyst"] | None = opt(
        "The party that this machine runs; with --both one of those to set up."
    )
    url: tuple[str, ...] = opt(
        "Origin at which others reach it, such as https://relay.example. With --both one for each"
        " party, in the order in which --role lists them.",
        "URL",
    )
    name: str | None = opt("Who runs it, such as 'Example Foundation'.")


@dataclass(frozen=True)
class _Other:
    other: Path | None = opt("The other party's public file.", "FILE")
    fingerprint: str | None = opt(
        "The other party's fingerprint, as its operator says it.  [default: asks]", "HEX"
    )
    replace: bool = opt("Accept a new other party in place of the one that is known.")

    def accept(self, agreement: Agreement, as_json: bool) -> Agreement:
        from shoal.server.core.parties import accept_other

        if self.other is None:
            return agreement

        def confirm(party: PublicParty) -> bool:
            if self.fingerprint is not None:
                return _digits(self.fingerprint) == _digits(party.fingerprint)
            if as_json or not sys.stdin.isatty():
                raise InputError("give --fingerprint, as the other operator tells it to you.")
            for line in _lines(party):
                click.echo(line, err=True)
            question = f"Call the {party.role}'s operator. Do they read the same fingerprint?"
            return click.confirm(question, err=True)

        return accept_other(agreement, self.other, confirm, replaces=self.replace)


@cli.command(
    "shoal parties setup --data relay --role relay --url https://relay.example",
    group=parties,
)
def setup(
    *,
    as_json: bool,
    data: cli.OutFolder = opt("Data folder of the service."),
    own: _Own,
    other: _Other,
    both: bool = opt(f"Set up all on this machine, for a demonstration; {ONE_OPERATOR}."),
) -> out.Result:
    """Set up this machine's party, and say what to do next.

    It makes the party's private keys, which never leave DATA, and its public file. Give the public
    file to the other operators, and run the command again with each of theirs. Compare the
    fingerprints by telephone: the signature in a file does not show whose file it is.
    """
    if both:
        return _both(data, own, other)
    from shoal.server.core.parties import set_up

    if len(own.url) > 1:
        raise InputError("give one url, that of this party; only --both takes more.")
    made = set_up(data, role=own.role, url=own.url[0] if own.url else None, name=own.name)
    agreement = other.accept(made, as_json)
    return out.Result(_document(agreement), _show([agreement]))


def _both(data: Path, own: _Own, other: _Other) -> out.Result:
    """Set up all parties of a deployment, each with a folder and the mark of one operator."""
    from shoal.server.core.parties import accept_other, set_up

    first = own.role or "relay"
    roles = [role for role in ROLES if role == first or role in ROLES[first]]
    if other != _Other(None, None, False) or len(own.url) not in (0, len(roles)):
        raise InputError(
            f"--both takes --data, --role, --name, and either no --url or {len(roles)}."
        )
    local = [f"http://127.0.0.1:{_LOCAL[role]}" for role in roles]
    urls = dict(zip(roles, own.url or local, strict=True))
    made = {
        role: set_up(data / role, role=role, url=url, name=own.name, mark=ONE_OPERATOR)
        for role, url in urls.items()
    }
    for role, another in permutations(made, 2):
        theirs = made[another].file(another)
        made[role] = accept_other(made[role], theirs, lambda party: True, replaces=True)
    agreements = list(made.values())
    document = {role: _document(one) for role, one in made.items()} | {"mark": ONE_OPERATOR}
    return out.Result(document, _show(agreements, f"{ONE_OPERATOR.capitalize()}.\n"))


def _digits(fingerprint: str) -> str:
    return "".join(fingerprint.split()).lower()


def _document(agreement: Agreement) -> dict[str, object]:
    own, others = agreement.own, agreement.others.values()
    return {
        "public_file": str(agreement.file(own.role)),
        "own": vars(own) | {"fingerprint": own.fingerprint},
        "others": [vars(one) | {"fingerprint": one.fingerprint} for one in others],
        "missing": agreement.missing,
    }


def _lines(party: PublicParty) -> list[str]:
    named = f"{party.role}:"
    return [f"{named:13}{party.name}, {party.url}", f"fingerprint: {party.fingerprint}"]


def _show(agreements: list[Agreement], *first: str) -> list[out.Plain]:
    lines, (last, *others) = list(first), reversed(agreements)
    for one in agreements:
        lines += [*_lines(one.own), f"public file: {one.file(one.own.role)}"]
    if not others:
        lines += [line for one in last.others.values() for line in _lines(one)]
    if last.missing:
        who = " and of the ".join(last.missing)
        lines += [
            f"\nNext: give the public file to the operator of the {who},",
            "and read them the fingerprint by telephone. When you have their public file:",
            f"shoal parties setup --data {last.folder} --other FILE",
        ]
    else:
        named = (last.own.role, *last.others)
        files = [f"--{role} {last.file(role)}" for role in ROLES if role in named]
        plan = [
            "shoal plan SURVEY.toml --crowd N ... -o plan.json",
            *(one for one in files if not one.startswith("--analyst")),
        ]
        lines += [
            "\nNext: make a plan with the public files, and start; restart what is running:",
            " \\\n    ".join(plan),
            *(f"shoal {_COMMANDS.get(one.own.role, one.own.role)} --data {one.folder} plan.json"
              for one in agreements),
        ]  # fmt: skip
    return [out.Plain(line) for line in lines]
