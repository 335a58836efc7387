"""`shoal send`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, IN_FOLDER, json_option
from shoal.cli._printing import print_json
from shoal.errors import AnswerError, InputError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json, strict_json

if TYPE_CHECKING:
    from shoal.device.memory import DeviceMemory
    from shoal.device.outbox import Outbox, Ticket

KEY_VARIABLE = "SHOAL_MEMORY_KEY"
SPREAD = 3600.0
"""Seconds below which the random wait before the first attempt is drawn."""


@click.command(
    cls=Command,
    example="shoal send plan.json --answer 'features=sync;vpn' \\\n"
    "    --to https://collector.example --outbox outbox",
)
@click.argument("plan_source", required=False, metavar="[PLAN.json|URL]")
@click.option(
    "--answer", "pairs", multiple=True, metavar="QUESTION=VALUE", help="An answer; repeatable."
)
@click.option("--from", "source", metavar="FILE", help="Answers as a JSON object; - reads stdin.")
@click.option("--to", metavar="URL", help="The collector.  [default: where the plan comes from]")
@click.option(
    "--outbox", "folder", type=IN_FOLDER, required=True, help="Folder of reports to be sent."
)
@click.option("--answer-key", metavar="NAME", help="Your name for this answer; it is sent once.")
@click.option("--ledger", "ledger_file", type=IN_FILE, help="Add the report to this ledger.")
@click.option(
    "--memory", "memory_file", type=IN_FILE, help="File of this device's permanent flips."
)
@click.option(
    "--memory-key",
    "key_file",
    type=IN_FILE,
    help=f"File of the memory's key, created if missing; or set {KEY_VARIABLE}.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="The collector's or the analyzer's public key, which signs plans and certificates.",
)
@click.option("--oblivious-relay", metavar="URL", help="Send through this relay (Oblivious HTTP).")
@click.option(
    "--oblivious-keys",
    type=IN_FILE,
    help="The collector's key for that.  [default: fetched from the collector]",
)
@click.option("--limit", metavar="EPSILON", help="Refuse plans with a larger local epsilon.")
@click.option(
    "--recompute/--no-recompute",
    default=None,
    help="Compute the plan's promise first.  [default: if SciPy is installed]",
)
@click.option("--now", is_flag=True, help="Send at once, without the random delay.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Keep trying for this long.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of one request.",
)
@click.option(
    "--one-operator",
    is_flag=True,
    help="Answer plans whose relay and analyzer are on one host, too.",
)
@click.option("--plain", is_flag=True, help="Allow http, without encryption, to other machines.")
@json_option
def command(
    plan_source: str | None,
    pairs: tuple[str, ...],
    source: str | None,
    to: str | None,
    folder: Path,
    answer_key: str | None,
    ledger_file: Path | None,
    memory_file: Path | None,
    key_file: Path | None,
    key: str | None,
    oblivious_relay: str | None,
    oblivious_keys: Path | None,
    limit: str | None,
    recompute: bool | None,
    now: bool,
    wait: float,
    timeout: float,
    one_operator: bool,
    plain: bool,
    as_json: bool,
) -> int:
    """Answer a plan once and send the report, surviving crashes.

    The report is randomized once and stored in the outbox; after a crash the same bytes are sent
    again. A second answer changes nothing, except with --ledger or for a plan with memory: then
    there is one report in each window of the plan. Without a plan, waiting reports are sent.

    Other users of this machine can see answers on the command line; use --from to hide them. With
    --no-recompute, a plan that needs a crowd also needs a --limit, or a certificate that was signed
    with --key.
    """
    from shoal.device.ledger import Ledger
    from shoal.device.outbox import HttpTransport, ObliviousTransport, Outbox

    memory = _memory(memory_file, key_file)
    ledger = None if ledger_file is None else Ledger(ledger_file)

    if oblivious_keys is not None and oblivious_relay is None:
        raise InputError("--oblivious-keys needs --oblivious-relay.")

    def transport_to(url: str) -> HttpTransport:
        options: dict[str, Any] = {"timeout": timeout, "allow_plain": plain, "public_key": key}
        if oblivious_relay is None:
            return HttpTransport(url, **options)
        keys = None if oblivious_keys is None else oblivious_keys.read_bytes()
        return ObliviousTransport(url, oblivious_relay, keys=keys, **options)

    def outbox_to(url: str) -> Outbox:
        return Outbox(
            folder,
            transport_to(url),
            memory=memory,
            ledger=ledger,
            limit=limit,
            recompute=recompute,
            spread=0.0 if now else SPREAD,
            one_operator=one_operator,
        )

    base, plan_id = _split_url(plan_source or "")
    if not (to or base):
        raise InputError("say where reports go, with --to URL.")
    outbox = outbox_to(to or base)
    ticket = None
    before = {earlier.name for earlier in outbox.tickets()}
    if plan_source is not None:
        answers = _answers(pairs, source)
        plan = outbox_to(base).plan(plan_id) if base else Plan.read(plan_source)
        ticket = outbox.answer(plan, answers, answer_key=answer_key)
    elif pairs or source is not None or answer_key is not None:
        raise InputError("answers need their plan: give PLAN.json or its URL.")
    attempts = {attempt.name: attempt for attempt in outbox.send_due(hurry=now)}
    if wait:
        attempts |= {attempt.name: attempt for attempt in outbox.finish(wait)}
    if ticket is not None:
        ticket = attempts.get(ticket.name, ticket)
    words = ["shoal", "send", "--outbox", str(folder), "--to", to or base]
    if key is not None:
        words += ["--key", key]
    if oblivious_relay is not None:
        words += ["--oblivious-relay", oblivious_relay]
    again = shlex.join(words)
    repeated = ticket is not None and ticket.name in before
    return _show(outbox, ticket, repeated, again + " --plain" * plain, as_json)


def _memory(memory_file: Path | None, key_file: Path | None) -> DeviceMemory | None:
    """Return the device's memory, with the key from a file or from the environment."""
    if memory_file is None:
        if key_file is not None:
            raise InputError("--memory-key needs --memory, the file that it opens.")
        return None
    from shoal.device.memory import DeviceMemory, key_from_text, read_key

    if key_file is not None:
        return DeviceMemory(memory_file, read_key(key_file, memory_file))
    if KEY_VARIABLE not in os.environ:
        raise InputError(f"give the memory's key with --memory-key FILE or {KEY_VARIABLE}.")
    return DeviceMemory(memory_file, key_from_text(os.environ[KEY_VARIABLE], KEY_VARIABLE))


def _split_url(source: str) -> tuple[str, str]:
    """Return the base URL and the plan's id of ``BASE/v1/plans/ID``, or nothing for a file."""
    if not source.startswith(("https://", "http://")):
        return "", ""
    base, _, plan_id = source.rpartition("/v1/plans/")
    if not base or not plan_id:
        raise InputError("a plan's URL is https://HOST/v1/plans/ID.")
    return base, plan_id


def _answers(pairs: Sequence[str], source: str | None) -> dict[str, object]:
    """Return the answers, from the command line or from a JSON object, not from both."""
    if bool(pairs) == (source is not None):
        raise AnswerError("give answers with --answer QUESTION=VALUE, or with --from FILE.")
    if source is not None:
        if source == "-":
            try:
                document = strict_json(sys.stdin.read())
            except ValueError:
                raise AnswerError("the answers on stdin are not valid JSON.") from None
        else:
            document = read_json(Path(source), "file of answers", AnswerError)
        if not isinstance(document, dict):
            raise AnswerError("answers must be a JSON object that maps questions to values.")
        return document
    answers: dict[str, object] = {}
    for pair in pairs:
        question, equals, value = pair.partition("=")
        if not equals:
            raise AnswerError("write an answer as QUESTION=VALUE.")
        if question in answers:
            raise AnswerError(f"question {question[:80]!r} is answered twice; answer it once.")
        answers[question] = value
    return answers


def _show(outbox: Outbox, ticket: Ticket | None, repeated: bool, again: str, as_json: bool) -> int:
    tickets = outbox.tickets()
    states = ("waiting", "sent", "failed", "expired")
    counts = {state: sum(entry.state == state for entry in tickets) for state in states}
    if as_json:
        answer = None if ticket is None else ticket.to_json() | {"answered_before": repeated}
        print_json({"answer": answer, "outbox": counts})
    else:
        if repeated:
            click.echo("This was answered before: the first answer counts, the new one is dropped.")
        if ticket is not None:
            click.echo(_sentence(ticket, again))
        click.echo("Outbox: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    lost = ticket is not None and ticket.state in ("failed", "expired")
    return 1 if lost else 0


def _sentence(ticket: Ticket, again: str) -> str:
    plan = f"plan {ticket.plan_id[:12]}"
    why = f" ({ticket.reason})" if ticket.reason else ""
    if ticket.state == "waiting":
        wait = max((ticket.due or 0) - time.time(), 0)
        when = f"{wait:.0f} s" if wait < 100 else f"{wait / 60:.0f} min"
        return f"The answer to {plan} is in the outbox{why}. Send it in {when} or later: {again}"
    if ticket.state == "sent":
        return f"The answer to {plan} was sent and accepted."
    return f"The answer to {plan} {ticket.state}: {ticket.reason}."
