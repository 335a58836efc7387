"""`shoal send` and `shoal ledger`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import AnswerError, InputError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json, strict_json

if TYPE_CHECKING:
    from shoal.device.memory import DeviceMemory
    from shoal.device.outbox import Outbox, Ticket

KEY_VARIABLE = "SHOAL_MEMORY_KEY"
MAX_DELAY = 3600.0
"""The largest random delay before the first attempt, in seconds."""


@cli.command(
    "shoal send plan.json --answer 'features=sync;vpn' \\\n"
    "    --to https://collector.example --outbox outbox"
)
@click.argument("plan_source", required=False, metavar="[PLAN.json|URL]")
@cli.option("--answer", "pairs", "An answer; repeatable.", multiple=True, metavar="QUESTION=VALUE")
@cli.option("--from", "source", "Answers as a JSON object; - reads stdin.", metavar="FILE")
@cli.option("--to", "The collector.  [default: where the plan comes from]", metavar="URL")
@cli.option(
    "--outbox", "folder", "Folder of reports to be sent.", type=cli.IN_FOLDER, required=True
)
@cli.option("--answer-key", "Your name for this answer; it is sent once.", metavar="NAME")
@cli.option("--ledger", "ledger_file", "Add the report to this ledger.", type=cli.IN_FILE)
@cli.option("--memory", "memory_file", "File of this device's permanent flips.", type=cli.IN_FILE)
@cli.option(
    "--memory-key",
    "key_file",
    f"File of the memory's key, created if missing; or set {KEY_VARIABLE}.",
    type=cli.IN_FILE,
)
@cli.option(
    "--key",
    "The collector's or the analyzer's public key, which signs plans and certificates.",
    metavar="KEY",
)
@cli.option("--oblivious-relay", "Send through this relay (Oblivious HTTP).", metavar="URL")
@cli.option(
    "--oblivious-keys",
    "The collector's key for that.  [default: fetched from the collector]",
    type=cli.IN_FILE,
)
@cli.option("--limit", "Refuse plans with a larger local epsilon.", metavar="EPSILON")
@cli.option(
    "--recompute/--no-recompute",
    "Compute the plan's promise first.  [default: if SciPy is installed]",
    default=None,
)
@cli.option("--now", "Send at once, without the random delay.", is_flag=True)
@cli.option(
    "--wait",
    "Keep trying for this long.",
    type=click.FloatRange(0, 86_400),
    default=0.0,
    metavar="SECONDS",
)
@cli.option(
    "--timeout",
    "Timeout of one request.",
    type=click.FloatRange(0.1, 600),
    default=10.0,
    metavar="SECONDS",
)
@cli.option(
    "--one-operator", "Answer plans whose relay and analyzer are on one host, too.", is_flag=True
)
@cli.option("--plain", "Allow http, without encryption, to other machines.", is_flag=True)
@cli.json_option
def send(
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
    now: bool,
    wait: float,
    timeout: float,
    plain: bool,
    as_json: bool,
    **policy: Any,
) -> int:
    """Answer a plan once and send the report, surviving crashes.

    The report is randomized once and stored in the outbox; after a crash the same bytes are sent
    again. A second answer changes nothing, except with --ledger or for a plan with memory: then
    there is one report in each window of the plan. Without a plan, queued reports are sent.

    Other users of this machine can see answers on the command line; use --from to hide them. With
    --no-recompute, a plan that needs a crowd also needs a --limit, or a certificate that was signed
    with --key.
    """
    from shoal.device.ledger import Ledger
    from shoal.device.outbox import HttpTransport, Outbox
    from shoal.device.outbox.oblivious import ObliviousTransport

    memory = _memory(memory_file, key_file)
    account = None if ledger_file is None else Ledger(ledger_file)
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
            ledger=account,
            spread=0.0 if now else MAX_DELAY,
            **policy,
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
        out.print_json({"answer": answer, "outbox": counts})
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


@cli.command("shoal ledger ledger.json --set-limit 20")
@click.argument("ledger_file", type=cli.IN_FILE, metavar="LEDGER.json")
@cli.option("--set-limit", "Refuse reports that raise the total epsilon above E.", metavar="E")
@cli.option("--no-limit", "Remove the limit.", is_flag=True)
@cli.json_option
def ledger(ledger_file: Path, set_limit: str | None, no_limit: bool, as_json: bool) -> None:
    """Show how much this device has revealed so far.

    The ledger adds up the epsilon of every report that `shoal send --ledger` made, and can limit
    it.
    """
    from shoal.device.ledger import Ledger

    kept = Ledger(ledger_file)
    if set_limit is not None and no_limit:
        raise InputError("give one of --set-limit and --no-limit.")
    if set_limit is not None or no_limit:
        kept.set_limit(set_limit)
    elif not ledger_file.exists():
        raise InputError(f"cannot read ledger {ledger_file}: No such file or directory.")
    account = kept.read()
    if as_json:
        out.print_json(account.to_json())
        return
    console = out.printer()
    rows = []
    for entry in account.plans:
        answers = "all new" if entry.distinct_answers is None else f"{entry.distinct_answers:,}"
        epsilons = str(entry.epsilon), str(entry.epsilon_of_changes)
        counts = f"{entry.reports:,}", answers
        rows.append((entry.survey, entry.plan_id[:12], *counts, *epsilons))
    columns = ["survey", "plan", "reports", "answers", "epsilon", "with times"]
    console.print(out.table(columns, rows, left=2))
    if account.epsilon < sum(entry.epsilon for entry in account.plans):
        console.print("Plans that share permanent flips count once in the total.")
    console.print(f"total epsilon    {account.epsilon} ({account.epsilon_of_changes} with times)")
    limit = "none" if account.limit is None else f"{account.limit}, left {account.left}"
    console.print(f"limit            {limit}")
    console.print(
        "This holds against anyone who sees every report and knows who sent it, the collector"
        " too. With times: for the answers and for the times at which they changed."
    )
