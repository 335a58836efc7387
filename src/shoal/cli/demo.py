"""`shoal demo`: a short story for a newcomer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import OUT_FILE, json_option
from shoal.cli._printing import outward, print_json, printer, progress
from shoal.cli._types import WHOLE
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.protocol.survey import Choice, Flags, Survey
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from shoal.lab.demo import Demonstration

SURVEY = Survey(
    "browser (a demonstration)",
    (
        Flags("features", ("sync", "dark mode", "reader", "vpn", "screen reader")),
        Choice("channel", ("release", "beta", "nightly")),
    ),
)


@click.command(cls=Command, example="shoal demo")
@click.option(
    "--users",
    type=click.IntRange(100, 1_000_000),
    default=3000,
    show_default=True,
    help="How many people to simulate.",
)
@click.option(
    "--seed", type=WHOLE, default=2017, show_default=True, help="Seed of the simulated data."
)
@click.option(
    "--report",
    type=OUT_FILE,
    default=Path("shoal-demo.html"),
    show_default=True,
    help="Write the report page to this file.",
)
@click.option("--parties", is_flag=True, help="Show a relay and an analyzer instead.")
@click.option("--web", is_flag=True, help="Open a page with the survey, and answer it yourself.")
@click.option("--no-open", is_flag=True, help="Open no browser.")
@json_option
def command(
    users: int,
    seed: int,
    report: Path,
    parties: bool,
    web: bool,
    no_open: bool,
    as_json: bool,
) -> None:
    """Show the whole path in a minute, on this machine.

    A collector starts, simulated devices send their reports to it over HTTP, and the crowd's report
    page is written. With --parties, reports are sealed for an analyzer and sent to a relay. With
    --web, you answer in the browser and watch the others fill your crowd, until Ctrl-C. The seed
    decides who answers what; the flips are random each time.
    """
    try:
        import httptools  # noqa: F401  the collector needs it, and begins in another process
        import starlette  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"the collector needs {error.name}: pip install 'shoal[server]'."
        ) from None
    if parties and web:
        raise InputError("--parties and --web are two demonstrations; name one of them.")
    if web:
        from shoal.cli._demo_web import show_web

        show_web(SURVEY, users, seed, opens=not no_open, as_json=as_json)
        return
    if parties:
        from shoal.cli._demo_parties import show_parties

        show_parties(SURVEY, users, seed, as_json=as_json)
        return
    from shoal.lab.demo import count_again, demonstrate
    from shoal.planning.plan import plan

    _check_writable(report)
    agreed = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6")
    counted = plan(SURVEY, crowd_size=users, epsilon="1", delta="1e-6", view="counts")
    if not as_json:
        _show_before(agreed, seed)
    with progress("devices send", users) as advance:
        demonstration = demonstrate(agreed, seed=seed, progress=advance)
    counts = count_again(counted, seed=seed)
    replaced = report.exists()
    report.write_text(demonstration.page, "utf-8")
    if as_json:
        more = {"page": str(report), "before_sealing": demonstration.early, "counts": counts}
        print_json(demonstration.estimates | more)
    else:
        _show_after(demonstration, counted, counts, report, replaced)


def _check_writable(report: Path) -> None:
    folder = report.resolve().parent
    if not os.access(report if report.exists() else folder, os.W_OK):
        raise InputError(f"cannot write {report}; name another file with --report.")


def _show_before(agreed: Plan, seed: int) -> None:
    from shoal.planning.certificate import certify, check_promise
    from shoal.planning.plan import plan

    console = printer()
    users = agreed.reports_needed
    alone = plan(SURVEY, epsilon=agreed.promise.epsilon, promise="local")
    gain = certify(agreed).gain_over_local(float(agreed.promise.epsilon))
    console.rule("[bold]1. The question")
    console.print(
        f"A browser maker wants to know which features {users:,} people use, and who is on which"
        " channel. It should learn little about any one of them."
    )
    console.rule("[bold]2. One device")
    _show_one_device(console, agreed, seed)
    console.rule("[bold]3. The promise")
    console.print(
        f"{check_promise(agreed).in_words}. Whatever everybody else answered, the {users:,}"
        f" reports, without their senders, would be at most {text_up(math.e, 3)} times as likely if"
        " Ada had given another answer, but for a chance of 1e-6. To promise that for each report"
        f" by itself, her device would have to flip each bit with probability"
        f" {text_near(float(alone.q))}, and counts would be {gain:.1f} times less precise."
    )
    console.rule("[bold]4. The collector")
    console.print(
        f"A collector starts on this machine with the plan, and {users:,} devices, each with an"
        " outbox of its own, fetch the plan over HTTP, check it, and send one report each ..."
    )


def _show_after(
    demonstration: Demonstration,
    counted: Plan,
    counts: dict[str, Any],
    report: Path,
    replaced: bool,
) -> None:
    from rich.markup import escape

    from shoal.planning.threats import single_report

    console = printer()
    users = demonstration.plan.reports_needed
    console.print(
        "With one report missing, the collector was asked for the estimates and answered"
        f" {demonstration.early}: a crowd or nothing. The last report sealed the crowd."
    )
    console.rule("[bold]5. The crowd, in two views")
    console.print(
        f"One report says little. But each bit of all {users:,} was flipped at a known rate, so the"
        " counts can be corrected. That noise holds against whoever sees every report without its"
        " sender. If nobody ever sees more than the counts, the same promise takes fewer flips."
        " Here are the same people in both views, beside the truth that the maker never sees:\n"
    )
    plans = {"reports": demonstration.plan, "counts": counted}
    estimates = {"reports": demonstration.estimates, "counts": counts}
    _show_views(console, plans, estimates)
    rows = [
        row
        for document in estimates.values()
        for options in document["questions"].values()
        for row in options.values()
    ]
    inside = sum(row["low"] <= row["truth"] <= row["high"] for row in rows)
    console.print(
        f"\n{inside} of {len(rows)} intervals contain the truth; at least 95 % should, on average."
    )
    warning = single_report(counted.local_epsilon, float(counted.q))
    if warning is not None:
        console.print(f"The price of counts: {warning[0].lower()}{warning[1:]}")
    again = " (replaced)" if replaced else ""
    console.print(f"The report page is in {escape(str(report))}{again}. The collector has stopped.")
    console.rule("[bold]6. Your turn")
    console.print(
        "shoal plan --flags 3 --crowd 100000 --epsilon 1 --delta 1e-6 -o plan.json\n"
        "shoal simulate plan.json --users 100000\n"
        "shoal serve --data collector --honest all plan.json    and, while it runs:\n"
        'shoal send plan.json --answer "answer=1;3" --to http://127.0.0.1:8400 \\\n'
        "    --outbox outbox --now",
        soft_wrap=True,
    )


def _show_views(console: Any, plans: dict[str, Plan], estimates: dict[str, dict[str, Any]]) -> None:
    """Print the truth, which only the demonstration knows, beside what each view estimates."""
    from rich.table import Table

    from shoal.planning.certificate import certify

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("truth", *(name for view in plans for name in (view, "low", "high"))):
        table.add_column(name, justify="right", no_wrap=True)
    views = list(estimates.values())
    for question, options in views[0]["questions"].items():
        table.add_row(f"[bold]{question}[/bold]")
        for label, row in options.items():
            cells = [f"{row['truth']:,}"]
            for document in views:
                one = document["questions"][question][label]
                cells += [f"{round(one['count']):,}", *outward(one["low"], one["high"])]
            table.add_row(f"  {label}", *cells)
    figures: dict[str, Callable[[Plan], str]] = {
        "flip probability": lambda plan: text_near(float(plan.q)),
        "sigma, in people": lambda plan: text_near(certify(plan).sigma, 3),
        "local epsilon": lambda plan: text_up(plan.local_epsilon, 3),
    }
    table.add_row()
    for name, figure in figures.items():
        table.add_row(
            name, "", *(cell for plan in plans.values() for cell in (figure(plan), "", ""))
        )
    console.print(table)


def _show_one_device(console: Any, agreed: Plan, seed: int) -> None:
    """Show an answer, the report made of it, and what the report tells a curious reader."""
    from shoal.device.arrays.simulation_bits import SimulationBits
    from shoal.device.encode import encode
    from shoal.device.randomize import flip
    from shoal.theory.randomized_response import posterior

    q = float(agreed.q)
    original = encode(agreed, {"features": ["sync", "screen reader"], "channel": "beta"})
    synthetic = flip(agreed, original, random_bits=SimulationBits(seed))
    truth = [original.value >> bit & 1 for bit in range(agreed.bits)]
    sent = [synthetic.value >> bit & 1 for bit in range(agreed.bits)]
    console.print("Ada uses sync and a screen reader, on the beta channel. As bits:")
    console.print(f"   her answer   {' '.join(map(str, truth))}")
    marks = [
        f"[bold red]{b}[/bold red]" if a != b else str(b) for a, b in zip(truth, sent, strict=True)
    ]
    console.print(f"   her report   {' '.join(marks)}     only this leaves her device")
    console.print(
        f"Her device flipped each bit with probability {text_near(q)}; the flipped ones are red."
    )
    prior = 0.1
    believed = posterior(prior, q, reported=sent[4])
    console.print(
        f"One person in ten uses a screen reader. Whoever sees this one report, with that bit"
        f" {'set' if sent[4] else 'clear'}, now believes {believed:.0%} instead of {prior:.0%} that"
        " Ada does. In the counts of a crowd nobody can even find her report."
    )
