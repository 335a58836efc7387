"""The commands ``mytool telemetry status|on|off|show|delete``.

`click_group` and `add_commands` give the commands to a tool made with click or argparse.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.device.ledger import Account, Ledger
from shoal.device.outbox.queue import ReportQueue, Ticket
from shoal.device.telemetry import state
from shoal.device.telemetry.describe import Terms, fitted, report_in_words, terms_in_words
from shoal.device.telemetry.log import Log, LoggedRequest
from shoal.device.telemetry.worker import WORKING
from shoal.errors import InputError, ShoalError
from shoal.protocol.flip_probability import local_epsilon
from shoal.support.disk import Disk

if TYPE_CHECKING:
    import click

    from shoal.device.telemetry import Telemetry
    from shoal.protocol.plan import Plan


_JSON_HELP = "Print one JSON document."
_PATIENCE = 15.0
"""Seconds to wait until the worker notices that it must stop."""

_SAID = {
    "yes": "You said yes.",
    "no": "You said no.",
    "not asked": "You have not been asked yet.",
    "changed": "You said yes to other terms, and have not been asked again.",
}


def status(telemetry: Telemetry) -> str:
    """Show whether telemetry is on, why, its questions, and the privacy loss so far."""
    why, folder = telemetry.why_off(), telemetry.folder
    agreement = telemetry.agreement()
    terms = Terms.read(agreement)
    said = "not asked" if folder is None else state.read_choice(folder, agreement)
    account = Account() if folder is None else Ledger(Path(folder) / "ledger.json").read()
    stands = "off" if why or said != "yes" else "over" if _is_used_up(terms, account) else "on"
    because = f": {why}" if why else ": the limit is reached" if stands == "over" else ""
    lines = [f"Telemetry of {telemetry.tool} is {stands}{because}. {_SAID[said]}"]
    lines += terms_in_words(terms)
    if folder is not None:
        lines += _state(Path(folder), agreement, terms, account)
    return "\n".join(lines)


def _is_used_up(terms: Terms, account: Account) -> bool:
    """Whether one more report would pass the limit; with memory that depends on its answer."""
    if terms.limit is None or terms.plan.memory is not None:
        return False
    one_more = local_epsilon(terms.plan.survey.differing_bits, terms.plan.q)
    return account.epsilon + one_more > Decimal(terms.limit)


def _state(folder: Path, agreement: bytes, terms: Terms, account: Account) -> list[str]:
    within = Path(state.agreement_folder(str(folder), agreement))
    states = [ticket.state for ticket in _tickets(within)]
    within_limit = "" if terms.limit is None else f" (limit {terms.limit})"
    lines = [
        f"Reports: {states.count('sent')} sent, {states.count('waiting')} waiting. All that were"
        f" made reveal at most a local epsilon of {account.epsilon.normalize():f}{within_limit}.",
        f"Files: {folder}",
    ]
    note = state.read_file(str(within), state.NOTE)
    return lines if note is None else [*lines, f"Last problem: {note.decode('utf-8', 'replace')}"]


def _tickets(within: Path) -> Iterator[Ticket]:
    if (within / "outbox").is_dir():
        box = ReportQueue(within / "outbox", Disk())
        yield from (box.ticket(name) for name in box.names())


def on(telemetry: Telemetry) -> str:
    if (why := telemetry.why_off()) is not None:
        raise InputError(f"telemetry stays off: {why}.")
    telemetry.turn_on()
    terms = Terms.read(telemetry.agreement())
    return "\n".join([f"Telemetry of {telemetry.tool} is on.", *terms_in_words(terms)])


def off(telemetry: Telemetry) -> str:
    """Store the person's no, and delete recorded and unsent data; the log and ledger stay."""
    folder = _folder(telemetry)
    state.say_no(str(folder))
    for within in _agreements(folder):
        for pattern in (f"{state.PREFIX}*", "taken.*"):
            for file in within.glob(pattern):
                file.unlink()
        if (within / "outbox").is_dir():
            _drop_waiting(ReportQueue(within / "outbox", Disk()))
    return f"Telemetry of {telemetry.tool} is off. Recorded and unsent data were deleted."


def _drop_waiting(box: ReportQueue) -> None:
    """Delete queued reports and keep the notes: the window's report was made."""
    for name in box.names(state="waiting"):
        with box.changing():
            if (record := box.waiting(name)) is not None:
                box.settle(name, record, "expired", "telemetry was turned off")


def show(telemetry: Telemetry) -> str:
    """Show every request that left, byte for byte and in words."""
    sent = requests(telemetry)
    if not sent:
        return "Nothing has left this machine."
    plans = dict(_plans(_folder(telemetry)))
    return "\n\n".join(
        _request_text(number, request, plans) for number, request in enumerate(sent, 1)
    )


def show_json(telemetry: Telemetry) -> str:
    return json.dumps([request.to_json() for request in requests(telemetry)], indent=1)


def delete(telemetry: Telemetry) -> str:
    """Turn it off and delete all files; sent reports have no id and cannot be recalled."""
    folder = _folder(telemetry)
    rest = max(
        (_window_end(within, telemetry.clock()) for within in _agreements(folder)), default=0
    )
    off(telemetry)
    with Disk().lock(folder / WORKING, patience=_PATIENCE) as mine:
        if not mine:
            raise ShoalError("a report is being sent right now; try again in a minute.")
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in ("off", state.QUIET, WORKING):
                entry.unlink()
    (folder / WORKING).unlink()
    if rest:
        # If it is turned on again, this window must not have a second report.
        state.store_file(str(folder), state.QUIET, b"%d" % rest)
    return (
        f"Everything that {telemetry.tool} kept for telemetry was deleted, and it is off. Reports"
        " already sent cannot be deleted: they have no id by which they could be found."
    )


COMMANDS: dict[str, tuple[str, Callable[[Telemetry], str]]] = {
    "status": ("Show whether telemetry is on, and its questions.", status),
    "on": ("Say yes.", on),
    "off": ("Say no, and delete unsent data.", off),
    "show": ("Show every byte that was sent, and its meaning.", show),
    "delete": ("Say no, and delete everything that is kept here.", delete),
}


def _folder(telemetry: Telemetry) -> Path:
    if (why := state.why_not_here(telemetry.folder)) is not None:
        raise InputError(f"there is no place for telemetry: {why}.")
    return Path(str(telemetry.folder))


def _agreements(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (file.parent for file in folder.glob("*/agreed"))


def _window_end(within: Path, now: float) -> int:
    """Return when the window after the present one begins, by the agreement in a folder."""
    window, _ = state.stored_agreement(str(within))
    return int(now // window + 1) * window if window else 0


def _plans(folder: Path) -> Iterator[tuple[str, Plan]]:
    for within in _agreements(folder):
        try:
            plan = Terms.read(state.stored_agreement(str(within))[1]).plan
        except (ShoalError, OSError):
            continue
        yield plan.id, plan


def requests(telemetry: Telemetry) -> list[LoggedRequest]:
    return Log(_folder(telemetry) / "log", time.time).requests()


def _request_text(number: int, request: LoggedRequest, plans: dict[str, Plan]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(request.at))
    reply = "no response came" if request.status is None else f"the response was {request.status}"
    head = request.sent.partition(b"\r\n\r\n")[0].decode("latin-1").splitlines()
    lines = [f"{number}. {when}, to {request.to}; {reply}.", *(f"  {line}" for line in head)]
    if request.body:
        lines.append("    head; the same for all who use this version of Shoal and this plan")
        plan = next((plan for name, plan in plans.items() if f"/{name}/" in head[0]), None)
        lines += report_in_words(plan, request.body)
    return "\n".join(lines)


def _run(telemetry: Telemetry, name: str, as_json: bool) -> str:
    """Run a command; its caller is not prompted in this run."""
    telemetry.ask = False
    return show_json(telemetry) if as_json else fitted(COMMANDS[name][1](telemetry))


def click_group(telemetry: Telemetry) -> click.Group:
    """Return ``telemetry status|on|off|show|delete`` as a group."""
    import click

    def command(name: str, text: str) -> click.Command:
        def run(as_json: bool = False) -> None:
            try:
                click.echo(_run(telemetry, name, as_json))
            except (ShoalError, OSError) as error:
                raise click.ClickException(str(error)) from error

        json_flag = click.Option(["--json", "as_json"], is_flag=True, help=_JSON_HELP)
        return click.Command(name, callback=run, help=text, params=[json_flag] * (name == "show"))

    group = click.Group("telemetry", help=f"Usage reports of {telemetry.tool}.")
    for name, (text, _) in COMMANDS.items():
        group.add_command(command(name, text))
    return group


def add_commands(telemetry: Telemetry, parser: ArgumentParser) -> None:
    """Add ``status|on|off|show|delete`` to a parser; `options.run(options)` gives an exit code.

    >>> from shoal.device.telemetry import Telemetry
    >>> parser = ArgumentParser("mytool")
    >>> to = "https://telemetry.example.org"
    >>> telemetry = Telemetry("mytool", plan="plan.json", to=to, folder="/nowhere/at/all")
    >>> add_commands(telemetry, parser)
    >>> options = parser.parse_args(["show"])
    >>> options.run(options)
    Nothing has left this machine.
    0
    """

    def run(name: str, options: Namespace) -> int:
        try:
            print(_run(telemetry, name, getattr(options, "json", False)))
        except (ShoalError, OSError) as error:
            print(f"{telemetry.tool}: {error}", file=sys.stderr)
            return 2
        return 0

    below = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, (text, _) in COMMANDS.items():
        command = below.add_parser(name, help=text, description=text)
        if name == "show":
            command.add_argument("--json", action="store_true", help=_JSON_HELP)
        command.set_defaults(run=partial(run, name))
