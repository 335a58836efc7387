"""`shoal parties`: two operators set up a relay and an analyzer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
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

_LOCAL = {"relay": "http://127.0.0.1:8410", "analyzer": "http://127.0.0.1:8400"}
"""Where the parties of a demonstration are: the defaults of their services."""


@click.group(cls=cli.InOrder)
def parties() -> None:
    """Set up a relay and an analyzer that trust each other's keys."""


@dataclass(frozen=True)
class _Own:
    role: Literal["relay", "analyzer"] | None = opt("The party that this machine runs.")
    url: tuple[str, ...] = opt(
        "Origin at which others reach it, such as https://relay.example. With --both: twice, of the"
        " relay and of the analyzer.",
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
    both: bool = opt(f"Set up both on this machine, for a demonstration; {ONE_OPERATOR}."),
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
        raise InputError("give one url, that of this party; only --both takes two.")
    made = set_up(data, role=own.role, url=own.url[0] if own.url else None, name=own.name)
    agreement = other.accept(made, as_json)
    return out.Result(_document(agreement), _show([agreement]))


def _both(data: Path, own: _Own, other: _Other) -> out.Result:
    """Set up both parties in two folders, each with the mark of one operator."""
    from shoal.server.core.agreement import accept_other, set_up

    if own.role is not None or other != _Other(None, None, False) or len(own.url) not in (0, 2):
        raise InputError("--both takes --data, --name, and either no --url or two.")
    urls = dict(zip(_LOCAL, own.url or _LOCAL.values(), strict=True))
    made = {
        role: set_up(data / role, role=role, url=url, name=own.name, mark=ONE_OPERATOR)
        for role, url in urls.items()
    }
    for role, one in made.items():
        theirs = made[ROLES[role]].file(ROLES[role])
        made[role] = accept_other(one, theirs, lambda party: True, replaces=True)
    agreements = list(made.values())
    document = {role: _document(one) for role, one in made.items()} | {"mark": ONE_OPERATOR}
    return out.Result(document, _show(agreements, f"{ONE_OPERATOR.capitalize()}.\n"))


def _digits(fingerprint: str) -> str:
    return "".join(fingerprint.split()).lower()


def _document(agreement: Agreement) -> dict[str, object]:
    own, other = agreement.own, agreement.other
    return {
        "public_file": str(agreement.file(own.role)),
        "own": vars(own) | {"fingerprint": own.fingerprint},
        "other": None if other is None else vars(other) | {"fingerprint": other.fingerprint},
    }


def _lines(party: PublicParty) -> list[str]:
    named = f"{party.role}:"
    return [f"{named:13}{party.name}, {party.url}", f"fingerprint: {party.fingerprint}"]


def _show(agreements: list[Agreement], *first: str) -> list[out.Plain]:
    """Say who is known, and what to do next."""
    lines, (last, *others) = list(first), reversed(agreements)
    for one in agreements:
        lines += [*_lines(one.own), f"public file: {one.file(one.own.role)}"]
    if last.other is None:
        lines += [
            f"\nNext: give the public file to the {last.other_role}'s operator, and read them the",
            "fingerprint by telephone. When you have their public file:",
            f"shoal parties setup --data {last.folder} --other FILE",
        ]
    else:
        lines += [] if others else _lines(last.other)
        files = {one.role: f"--{one.role} {last.file(one.role)}" for one in (last.own, last.other)}
        plan = ["shoal plan SURVEY.toml --crowd N ... -o plan.json", *map(files.get, ROLES)]
        lines += [
            "\nNext: make a plan with both public files, and start; restart what is running:",
            " \\\n    ".join(filter(None, plan)),
            *(f"shoal {one.own.role} --data {one.folder} plan.json" for one in agreements),
        ]
    return [out.Plain(line) for line in lines]
