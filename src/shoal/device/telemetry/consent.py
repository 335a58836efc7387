"""Consent of a person: the prompt, and the commands ``mytool telemetry status|on|off|show|delete``.

The prompt is three sentences, the maintainer's reason, and ``[y/N/?]``. It appears once, at a
terminal. ``?`` shows the details and asks again; no answer within a minute means no, and so does
everything but a yes in the language of the prompt.

`click_group` and `add_commands` give the commands to a tool made with click or argparse.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import time
import unicodedata
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from shoal.device.ledger import Account, Ledger
from shoal.device.outbox.queue import ReportQueue, Ticket
from shoal.device.telemetry import state
from shoal.device.telemetry.describe import (
    Terms,
    Words,
    fitted,
    often,
    probability,
    read_translations,
    report_in_words,
    terminal_width,
    terms_in_words,
    words_for,
)
from shoal.device.telemetry.log import Log, LoggedRequest
from shoal.device.telemetry.state import switch_name
from shoal.device.telemetry.worker import WORKING
from shoal.errors import InputError, ShoalError
from shoal.protocol.flip_probability import local_epsilon
from shoal.support.disk import Disk
from shoal.support.results import wrapped

if TYPE_CHECKING:
    import click

    from shoal.device.telemetry import Telemetry
    from shoal.protocol.plan import Plan

PATIENCE = 60.0
"""Seconds to wait at the prompt. Then the answer is no."""

_ROOM = 8
"""Columns behind the prompt for what is typed."""

_JSON_HELP = "Print one JSON document."
_WORKER_PATIENCE = 15.0
"""Seconds to wait until the worker notices that it must stop."""

_SAID = {
    "yes": "You said yes.",
    "no": "You said no.",
    "not asked": "You have not been asked yet.",
    "changed": "You said yes to other terms, and have not been asked again.",
}


class Consent:
    """The prompt of one tool, in the language of one person."""

    def __init__(self, telemetry: Telemetry, stream: TextIO) -> None:
        self._telemetry, self._stream = telemetry, stream
        self._terms = Terms.read(telemetry.agreement())
        translations = read_translations(telemetry.translations)
        self.language, self._words = words_for(telemetry.environ, translations, stream)

    def text(self) -> str:
        """Return the question: three sentences, and the reason if the maintainer gave one."""
        plan, tool = self._terms.plan, self._telemetry.tool
        again = self._telemetry.choice() == "changed"
        values = {
            "tool": tool,
            "often": often(self._terms.plan, self._words),
            "host": self._terms.to.partition("://")[2].partition("/")[0],
            "questions": self._words["separator"].join(one.name for one in plan.survey.asked),
            "bits": plan.bits,
            "q": probability(plan),
        }
        keys = ("asks again" if again else "asks", "how", "choice")
        sentences = [self._words[key].format_map(values) for key in keys]
        if (why := self._why()) is not None:
            sentences.insert(1, why)
        return "\n".join(sentences)

    def details(self) -> str:
        """Return every question, number and address that a yes is to."""
        tool = self._telemetry.tool
        last = self._words["control"].format(tool=tool, switch=switch_name(tool))
        return "\n".join([*terms_in_words(self._terms, self._words), last])

    def _why(self) -> str | None:
        why = self._telemetry.why
        if isinstance(why, Mapping):
            return why.get(self.language) or why.get("en") or next(iter(why.values()), None)
        return why

    def ask(self) -> None:
        """Show the prompt and keep the answer."""
        import termios  # not on Windows, where nobody is asked

        self._terms.check_here()  # before anybody is bothered
        answer = None
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # typed before it was asked
        try:
            self._show(f"\n{self.text()}")
            while (answer := self._read()) is not None and answer.strip() in ("?", "？"):
                self._show(self.details())
        except KeyboardInterrupt:
            answer = None
        if answer is None or not answer.endswith("\n"):
            self._show("")
        if is_yes(answer or "", self._words):
            self._telemetry.turn_on()
            self._show(self._words["thanks"])
        else:
            assert self._telemetry.folder is not None
            state.say_no(self._telemetry.folder)
            self._show(self._words["refused"])

    def _read(self) -> str | None:
        """Return the line that the person types, or None: none came in time, or the end."""
        width = terminal_width(self._stream) - _ROOM
        self._stream.write(f"{wrapped(self._words['prompt'], width)} ")
        self._stream.flush()
        ready, _, _ = select.select([sys.stdin], [], [], PATIENCE)
        # Not a line of sys.stdin: what that reads ahead, the next select would wait for.
        line = os.read(sys.stdin.fileno(), 4096) if ready else b""
        return line.decode(sys.stdin.encoding or "utf-8", "replace") or None

    def _show(self, text: str) -> None:
        self._stream.write(wrapped(text, terminal_width(self._stream)) + "\n")
        self._stream.flush()


def is_yes(answer: str, words: Words) -> bool:
    """Whether an answer is one of the yes words of a language."""
    plain = unicodedata.normalize("NFKC", answer).strip().casefold()
    return bool(plain) and plain in words["yes"]


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
    with Disk().lock(folder / WORKING, patience=_WORKER_PATIENCE) as mine:
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
    """Add ``status|on|off|show|delete`` to a parser; `options.run(options)` gives an exit code."""

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
