"""`shoal demo`: a short story for a newcomer."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import InputError, require
from shoal.protocol.plan import ONE_OPERATOR, Aggregators, Plan
from shoal.protocol.survey import Choice, Flags, Survey
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from rich.rule import Rule

    from shoal.lab.demo import Demonstration

SURVEY = Survey(
    "browser (a demonstration)",
    (
        Flags("features", ("sync", "dark mode", "reader", "vpn", "screen reader")),
        Choice("channel", ("release", "beta", "nightly")),
    ),
)
_SHOWN_BYTES = 12


@cli.command("shoal demo")
def demo(
    as_json: bool,
    users: int = opt(
        "How many people to simulate.", default=3000, type=click.IntRange(100, 1_000_000)
    ),
    seed: int = opt("Seed of the simulated data.", default=2017),
    report: cli.OutFile = opt(
        "Write the report page to this file.", default=Path("shoal-demo.html")
    ),
    parties: bool = opt("Show several parties instead."),
    deployment: Literal["leader", "relay"] = opt(
        "With --parties: a leader, a helper and an analyst (DAP), or a relay and an analyzer.",
        default="leader",
    ),
    web: bool = opt("Open a page with the survey, and answer it yourself."),
    no_open: bool = opt("Open no browser."),
) -> out.Result | None:
    """Show the whole path in a minute, on this machine.

    A collector starts, simulated devices send their reports to it over HTTP, and the crowd's report
    page is written. With --parties, reports are split into secret shares for a leader and a helper,
    or with --deployment relay encrypted for an analyzer and sent to a relay. With --web, you answer
    in the browser and watch the others fill your crowd, until Ctrl-C. The seed decides who answers
    what; the flips are random each time.
    """
    from shoal.planning.plan import plan

    require("starlette", "httptools")  # services start in other processes
    if parties and web:
        raise InputError("--parties and --web are two demonstrations; name one of them.")
    if parties:
        return _parties(deployment, users, seed, as_json)
    if deployment != "leader":
        raise InputError("--deployment needs --parties.")
    made = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6")
    if not web:
        return _collector(made, seed, report, as_json)
    _web(made, seed, not no_open, as_json)
    return None


def _rule(heading: str) -> Rule:
    from rich.rule import Rule

    return Rule(f"[bold]{heading}")


def _collector(made: Plan, seed: int, report: Path, as_json: bool) -> out.Result:
    """Send the reports of simulated devices to a collector, and tell the story."""
    from shoal.lab.demo import count_again, demonstrate
    from shoal.planning.plan import plan

    folder = report.resolve().parent
    if not os.access(report if report.exists() else folder, os.W_OK):
        raise InputError(f"cannot write {report}; name another file with --report.")
    users = made.reports_needed
    counted = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6", view="counts")
    if not as_json:
        out.show(_before(made, seed))
    with out.progress("devices send", users) as advance:
        demonstration = demonstrate(made, seed=seed, progress=advance)
    counts = count_again(counted, seed=seed)
    where = f"{report} (replaced)" if report.exists() else f"{report}"
    report.write_text(demonstration.page, "utf-8")
    more = {"page": str(report), "before_complete": demonstration.early, "counts": counts}
    text = _after(demonstration, counted, counts, where)
    return out.Result(demonstration.estimates | more, text)


def _before(made: Plan, seed: int) -> out.Pieces:
    from shoal.planning.certificate import certify, check_promise
    from shoal.planning.plan import plan

    users = made.reports_needed
    alone = plan(SURVEY, epsilon=made.promise.epsilon, promise="local")
    gain = certify(made).gain_over_local(float(made.promise.epsilon))
    yield _rule("1. The question")
    yield (
        f"A browser maker wants to know which features {users:,} people use, and who is on which"
        " channel. It should learn little about any one of them."
    )
    yield _rule("2. One device")
    yield from _one_device(made, seed)
    yield _rule("3. The promise")
    yield (
        f"{check_promise(made).in_words}. Whatever everybody else answered, anything that the"
        f" {users:,} reports show, without their senders, would be at most {text_up(math.e, 3)}"
        " times as likely, plus a probability of 1e-6, if Ada had given another answer. To promise"
        " that for each report by itself, her device would have to flip each bit with probability"
        f" {text_near(float(alone.q))}, and counts would be {gain:.1f} times less precise."
    )
    yield _rule("4. The collector")
    yield (
        f"A collector starts on this machine with the plan, and {users:,} devices, each with an"
        " outbox of its own, fetch the plan over HTTP, check it, and send one report each ..."
    )


def _one_device(made: Plan, seed: int) -> out.Pieces:
    """Yield an answer, the report made of it, and what the report tells a curious reader."""
    from shoal.device.arrays.simulation_bits import SimulationBits
    from shoal.device.encode import encode
    from shoal.device.randomize import flip
    from shoal.theory.randomized_response import posterior

    q = float(made.q)
    original = encode(made, {"features": ["sync", "screen reader"], "channel": "beta"})
    synthetic = flip(made, original, random_bits=SimulationBits(seed))
    truth = [original.value >> bit & 1 for bit in range(made.bits)]
    sent = [synthetic.value >> bit & 1 for bit in range(made.bits)]
    yield "Ada uses sync and a screen reader, on the beta channel. As bits:"
    yield f"   her answer   {' '.join(map(str, truth))}"
    marks = [
        f"[bold red]{b}[/bold red]" if a != b else str(b) for a, b in zip(truth, sent, strict=True)
    ]
    yield f"   her report   {' '.join(marks)}     only this leaves her device"
    yield f"Her device flipped each bit with probability {text_near(q)}; the flipped ones are red."
    prior = 0.1
    believed = posterior(prior, q, reported=sent[4])
    yield (
        f"One person in ten uses a screen reader. A reader of this one report, with that bit"
        f" {'set' if sent[4] else 'clear'}, now believes {believed:.0%} instead of {prior:.0%} that"
        " Ada does. The counts of a crowd do not even show her report."
    )


def _after(
    demonstration: Demonstration, counted: Plan, counts: dict[str, Any], where: str
) -> out.Pieces:
    from shoal.planning.certificate import certify
    from shoal.planning.threats import single_report

    plan = demonstration.plan
    yield (
        "With one report missing, the collector was asked for the estimates and answered"
        f" {demonstration.early}: a crowd or nothing. The last report completed the crowd."
    )
    yield _rule("5. The crowd, in two views")
    yield (
        f"One report says little. But each bit of all {plan.reports_needed:,} was flipped at a"
        " known rate, so the counts can be corrected. That noise protects against observers of"
        " every report without its sender. If only the counts are ever seen, the same"
        " promise takes fewer flips. Here are the same people in both views, beside the truth that"
        " the maker never sees:\n"
    )
    plans, estimates = (plan, counted), (demonstration.estimates, counts)
    figures: dict[str, Callable[[Plan], str]] = {
        "flip probability": lambda plan: text_near(float(plan.q)),
        "sigma, in people": lambda plan: text_near(certify(plan).sigma, 3),
        "local epsilon": lambda plan: text_up(plan.local_epsilon, 3),
    }
    rows = [*_estimate_rows(estimates), ()]
    for name, figure in figures.items():
        rows.append((name, "", *(cell for one in plans for cell in (figure(one), "", ""))))
    yield out.table(["", "truth", "reports", "low", "high", "counts", "low", "high"], rows)
    questions = [options for one in estimates for options in one["questions"].values()]
    options = [row for some in questions for row in some.values()]
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in options)
    yield (
        f"\n{inside} of {len(options)} intervals contain the truth; at least 95 % should, on"
        " average."
    )
    warning = single_report(counted.local_epsilon, float(counted.q))
    if warning is not None:
        yield f"The price of counts: {warning[0].lower()}{warning[1:]}"
    yield out.escape(f"The report page is in {where}. The collector has stopped.")
    yield _rule("6. Your turn")
    yield out.Plain(
        "shoal plan --flags 3 --crowd 100000 --epsilon 1 --delta 1e-8 -o plan.json\n"
        "shoal simulate plan.json --users 100000\n"
        "shoal serve --data collector --honest all plan.json    and, while it runs:\n"
        'shoal send plan.json --answer "answer=1;3" --to http://127.0.0.1:8400 \\\n'
        "    --outbox outbox --now"
    )


def _estimate_rows(documents: Sequence[dict[str, Any]]) -> list[Sequence[Any]]:
    """Return a row for each option: the truth, then each document's estimate and interval."""
    rows: list[Sequence[Any]] = []
    for question, options in documents[0]["questions"].items():
        rows.append((out.bold(question),))
        for label, row in options.items():
            cells = [f"{row['truth']:,}"]
            for document in documents:
                one = document["questions"][question][label]
                cells += [f"{round(one['count']):,}", *out.outward(one["low"], one["high"])]
            rows.append((f"  {label}", *cells))
    return rows


_BEGIN = {
    "relay": (
        "1. Two parties",
        "A relay and an analyzer start on this machine, as two processes, set up with shoal"
        " parties setup --both ({mark}). In production, each of two organizations runs shoal"
        " parties setup on its own machine. {users:,} devices flip their bits, encrypt each report"
        " for the analyzer, and send it to the relay ...",
    ),
    "leader": (
        "1. Three parties",
        "A leader, a helper and an analyst start on this machine, as three processes, set up with"
        " shoal parties setup --both --role leader ({mark}). In production, each runs on a machine"
        " of an organization of its own. {users:,} devices flip their bits, split each report into"
        " two random shares with a proof, encrypt one for the leader and one for the helper, and"
        " send both to the leader ...",
    ),
}


def _parties(deployment: str, users: int, seed: int, as_json: bool) -> out.Result:
    """Send the reports of simulated devices through several parties."""
    from shoal.lab.parties_demo import demonstrate_relay, demonstrate_shares

    if not as_json:
        heading, begin = _BEGIN[deployment]
        out.show([_rule(heading), begin.format(mark=ONE_OPERATOR, users=users)])
    with out.progress("devices send", users) as advance:
        demonstrate = demonstrate_shares if deployment == "leader" else demonstrate_relay
        shown = demonstrate(SURVEY, users, seed=seed, progress=advance)
    more = {"request_bytes": len(shown.request), "before_complete": shown.early}
    return out.Result(shown.estimates | {"plan": shown.plan.id} | more, show_parties(shown))


def show_parties(shown: Demonstration) -> out.Pieces:
    from shoal.planning.certificate import certify, check_promise

    plan, users = shown.plan, f"{shown.plan.reports_needed:,}"
    label, row = next(iter(next(iter(shown.estimates["questions"].values())).items()))
    estimated = f"from which {label} is estimated at {round(row['count']):,}"
    bytes_each = f"{len(shown.request):,} bytes, all equally long"
    ratios: tuple[int, ...]
    rows: list[tuple[str, ...]]
    if isinstance(plan.parties, Aggregators):
        share = shown.request[-_SHOWN_BYTES:].hex(" ", 2)
        names, ratios = ["the leader", "the helper", "the analyst"], (2, 3, 3, 3)
        rows = [
            ("who sent", f"the address of each of {users} devices", "the leader", "the leader"),
            (
                "received",
                f"{users} uploads of {bytes_each}",
                "the other share of each report, from the leader",
                "two sums for the whole crowd",
            ),
            (
                "can read",
                f"one share, random bytes: {share} ...",
                "one share, random bytes",
                f"the counts of bits, {estimated}",
            ),
            ("whether a report is well-formed", "yes, by the proof", "yes, by the proof", "no"),
            ("who gave which answer", "no", "no", "no"),
        ]
        asked, because = "analyst's console", "a batch has exactly one crowd, and is collected once"
        holds = (
            "With separate operators it holds against the analyst and either of leader and helper"
            " together, as long as the other one is honest. Here one operator runs all and can put"
            " every report together"
        )
    else:
        body = shown.request[-_SHOWN_BYTES:].hex(" ", 2)
        names, ratios = ["the relay", "the analyzer"], (2, 4, 4)
        rows = [
            ("who sent", f"the address of each of {users} devices", "the relay's address"),
            (
                "received",
                f"{users} requests of {bytes_each}",
                f"{users} shuffled reports, once the crowd was complete",
            ),
            ("can read", f"nothing: {body} ...", f"every report without its sender, {estimated}"),
            ("who gave which answer", "no", "no"),
        ]
        asked, because = "analyzer", "the relay forwards a crowd or nothing"
        holds = (
            "With two operators it holds against the analyzer too, as long as the relay does not"
            " tell it who sent which report. Here one operator runs both and sees each report"
        )
    yield _rule("2. The view of each party")
    views = out.table(["", *names], rows, left=len(ratios))
    for column, ratio in zip(views.columns, ratios, strict=True):
        column.ratio = ratio
    yield views
    yield (
        f"With one report missing, the {asked} was asked for the estimates and answered"
        f" {shown.early}: {because}."
    )
    yield _rule("3. The crowd")
    yield out.table(["", "truth", "estimate", "low", "high"], _estimate_rows([shown.estimates]))
    yield (
        f"\n{check_promise(plan).in_words}. {holds}: only the local epsilon of"
        f" {text_up(plan.local_epsilon, 3)} holds. A count is off by"
        f" {text_near(certify(plan).sigma, 3)} people (one sigma)."
    )


def _web(made: Plan, seed: int, opens: bool, as_json: bool) -> None:
    import webbrowser

    from shoal.lab.web_demo import web_demonstration

    try:
        with web_demonstration(made, seed=seed) as address:
            if as_json:
                click.echo(json.dumps({"page": address, "plan": made.id}))
            else:
                click.echo(f"The survey is at {address}")
                click.echo("Answer it in your browser. Ctrl-C ends the demonstration.")
            if opens:
                webbrowser.open(address)
            while True:
                time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("Stopped; all data are deleted.", err=True)
