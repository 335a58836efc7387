"""`shoal send` and `shoal ledger`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.errors import AnswerError, InputError
from shoal.protocol.plan import Plan
from shoal.support.files import read_json, strict_json

if TYPE_CHECKING:
    from shoal.device.ledger import Account
    from shoal.device.memory import DeviceMemory
    from shoal.device.outbox import HttpTransport, Outbox, Ticket

KEY_VARIABLE = "SHOAL_MEMORY_KEY"
MAX_DELAY = 3600.0
"""The largest random delay before the first attempt, in seconds."""


@dataclass(frozen=True)
class _Sender:
    folder: cli.InFolder = opt("Folder of reports to be sent.", names="--outbox")
    ledger_file: Path | None = opt("Add the report to this ledger.", names="--ledger")
    memory_file: Path | None = opt("File of this device's permanent flips.", names="--memory")
    key_file: Path | None = opt(
        f"File of the memory's key, created if missing; or set {KEY_VARIABLE}.",
        None,
        "--memory-key",
    )
    key: str | None = opt(
        "The collector's or the analyzer's public key, which signs plans and certificates.", "KEY"
    )
    oblivious_relay: str | None = opt("Send through this relay (Oblivious HTTP).", "URL")
    oblivious_keys: Path | None = opt(
        "The collector's key for that.  [default: fetched from the collector]"
    )
    limit: str | None = opt("Refuse plans with a larger local epsilon.", "EPSILON")
    recompute: bool | None = opt(
        "Compute the plan's promise first.  [default: if SciPy is installed]"
    )
    now: bool = opt("Send at once, without the random delay.")
    timeout: float = opt(
        "Timeout of one request.", "SECONDS", default=10.0, type=click.FloatRange(0.1, 600)
    )
    one_operator: bool = opt("Answer plans whose relay and analyzer have one operator, too.")
    plain: bool = opt("Allow http, without encryption, to other machines.")

    def outbox(self, url: str) -> Outbox:
        from shoal.device.ledger import Ledger
        from shoal.device.outbox import Outbox

        return Outbox(
            self.folder,
            self._transport(url),
            memory=self._memory,
            ledger=None if self.ledger_file is None else Ledger(self.ledger_file),
            spread=0.0 if self.now else MAX_DELAY,
            limit=self.limit,
            recompute=self.recompute,
            one_operator=self.one_operator,
        )

    def _transport(self, url: str) -> HttpTransport:
        from shoal.device.outbox import HttpTransport
        from shoal.device.outbox.oblivious import ObliviousTransport

        options: dict[str, Any] = {
            "timeout": self.timeout,
            "allow_plain": self.plain,
            "public_key": self.key,
        }
        if self.oblivious_relay is None:
            return HttpTransport(url, **options)
        keys = None if self.oblivious_keys is None else self.oblivious_keys.read_bytes()
        return ObliviousTransport(url, self.oblivious_relay, keys=keys, **options)

    @cached_property
    def _memory(self) -> DeviceMemory | None:
        if self.memory_file is None:
            return None
        from shoal.device.memory import DeviceMemory, key_from_text, read_key

        if self.key_file is not None:
            return DeviceMemory(self.memory_file, read_key(self.key_file, self.memory_file))
        if KEY_VARIABLE not in os.environ:
            raise InputError(f"give the memory's key with --memory-key FILE or {KEY_VARIABLE}.")
        return DeviceMemory(self.memory_file, key_from_text(os.environ[KEY_VARIABLE], KEY_VARIABLE))

    def again(self, url: str) -> str:
        words = ["shoal", "send", "--outbox", str(self.folder), "--to", url]
        words += [] if self.key is None else ["--key", self.key]
        relay = self.oblivious_relay
        words += [] if relay is None else ["--oblivious-relay", relay]
        return shlex.join(words) + " --plain" * self.plain


@cli.command(
    "shoal send plan.json --answer 'features=sync;vpn' \\\n"
    "    --to https://collector.example --outbox outbox"
)
def send(
    *,
    plan_source: str | None = arg("[PLAN.json|URL]"),
    pairs: tuple[str, ...] = opt("An answer; repeatable.", "QUESTION=VALUE", "--answer"),
    source: str | None = opt("Answers as a JSON object; - reads stdin.", "FILE", "--from"),
    to: str | None = opt("The collector.  [default: where the plan comes from]", "URL"),
    answer_key: str | None = opt("Your name for this answer; it is sent once.", "NAME"),
    sender: _Sender,
    wait: float = opt(
        "Keep trying for this long.", "SECONDS", default=0.0, type=click.FloatRange(0, 86_400)
    ),
) -> out.Result:
    """Answer a plan once and send the report, surviving crashes.

    The report is randomized once and stored in the outbox; after a crash the same bytes are sent
    again. A second answer changes nothing, except with --ledger or for a plan with memory: then
    there is one report in each window of the plan. Without a plan, queued reports are sent.

    Other users of this machine can see answers on the command line; use --from to hide them. With
    --no-recompute, a plan that needs a crowd also needs a --limit, or a certificate that was signed
    with --key.
    """
    if sender.key_file is not None and sender.memory_file is None:
        raise InputError("--memory-key needs --memory, the file that it opens.")
    if sender.oblivious_keys is not None and sender.oblivious_relay is None:
        raise InputError("--oblivious-keys needs --oblivious-relay.")
    base, plan_id = _split_url(plan_source or "")
    if not (to or base):
        raise InputError("say where reports go, with --to URL.")
    outbox = sender.outbox(to or base)
    ticket = None
    before = {earlier.name for earlier in outbox.tickets()}
    if plan_source is not None:
        answers = _answers(pairs, source)
        plan = sender.outbox(base).plan(plan_id) if base else Plan.read(plan_source)
        ticket = outbox.answer(plan, answers, answer_key=answer_key)
    elif pairs or source is not None or answer_key is not None:
        raise InputError("answers need their plan: give PLAN.json or its URL.")
    attempts = {attempt.name: attempt for attempt in outbox.send_due(hurry=sender.now)}
    if wait:
        attempts |= {attempt.name: attempt for attempt in outbox.finish(wait)}
    if ticket is not None:
        ticket = attempts.get(ticket.name, ticket)
    repeated = ticket is not None and ticket.name in before
    return _result(outbox, ticket, repeated, sender.again(to or base))


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


def _result(outbox: Outbox, ticket: Ticket | None, repeated: bool, again: str) -> out.Result:
    tickets = outbox.tickets()
    states = ("waiting", "sent", "failed", "expired")
    counts = {state: sum(entry.state == state for entry in tickets) for state in states}
    answer = None if ticket is None else ticket.to_json() | {"answered_before": repeated}
    lines = ["Outbox: " + ", ".join(f"{count} {state}" for state, count in counts.items())]
    if ticket is not None:
        lines.insert(0, _sentence(ticket, again))
    if repeated:
        lines.insert(
            0, "This was answered before: the first answer counts, the new one is dropped."
        )
    lost = ticket is not None and ticket.state in ("failed", "expired")
    return out.Result({"answer": answer, "outbox": counts}, "\n".join(lines), 1 if lost else 0)


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
def ledger(
    ledger_file: Path = arg("LEDGER.json"),
    set_limit: str | None = opt("Refuse reports that raise the total epsilon above E.", "E"),
    no_limit: bool = opt("Remove the limit."),
) -> out.Result:
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
    return out.Result(account.to_json(), _show_account(account))


def _show_account(account: Account) -> out.Pieces:
    rows = []
    for entry in account.plans:
        answers = "all new" if entry.distinct_answers is None else f"{entry.distinct_answers:,}"
        epsilons = str(entry.epsilon), str(entry.epsilon_of_changes)
        counts = f"{entry.reports:,}", answers
        rows.append((entry.survey, entry.plan_id[:12], *counts, *epsilons))
    columns = ["survey", "plan", "reports", "answers", "epsilon", "with times"]
    yield out.table(columns, rows, left=2)
    if account.epsilon < sum(entry.epsilon for entry in account.plans):
        yield "Plans that share permanent flips count once in the total."
    yield f"total epsilon    {account.epsilon} ({account.epsilon_of_changes} with times)"
    limit = "none" if account.limit is None else f"{account.limit}, left {account.left}"
    yield f"limit            {limit}"
    yield (
        "This holds against anyone who sees every report and knows who sent it, the collector"
        " too. With times: for the answers and for the times at which they changed."
    )
