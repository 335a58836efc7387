"""`shoal parties`: operators set up relay and analyzer, or leader, helper and analyst."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import InputError
from shoal.protocol.plan import ONE_OPERATOR
from shoal.protocol.public_party import ROLES, PublicParty

if TYPE_CHECKING:
    from shoal.server.core.agreement import Agreement

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
        from shoal.server.core.agreement import accept_other

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
    file to the other operator, and run the command again with theirs. Compare the fingerprints by
    telephone: the signature in a file does not show whose file it is.
    """
    if both:
        return _both(data, own, other)
    from shoal.server.core.agreement import set_up

    if len(own.url) > 1:
        raise InputError("give one url, that of this party; only --both takes more.")
    made = set_up(data, role=own.role, url=own.url[0] if own.url else None, name=own.name)
    agreement = other.accept(made, as_json)
    return out.Result(_document(agreement), _show([agreement]))


def _both(data: Path, own: _Own, other: _Other) -> out.Result:
    """Set up all parties of a deployment, each with a folder and the mark of one operator."""
    from shoal.server.core.agreement import accept_other, set_up

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
    """Say who is known, and what to do next."""
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
