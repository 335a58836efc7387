"""`shoal demo --parties`: what a relay and an analyzer each see of the same crowd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.cli._printing import outward, print_json, printer, progress
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near, text_up

if TYPE_CHECKING:
    from shoal.lab.parties_demo import TwoParties

__all__ = ["show_parties", "tell"]

_SHOWN_BYTES = 12


def show_parties(survey: Survey, users: int, seed: int, *, as_json: bool) -> None:
    """Run the demonstration and tell what happened."""
    from shoal.lab.parties_demo import demonstrate_parties

    if not as_json:
        console = printer()
        console.rule("[bold]1. Two parties")
        console.print(
            "A relay and an analyzer start on this machine, as two processes. In earnest two"
            f" organizations would run them. {users:,} devices flip their bits, cut each report"
            " into single bits, seal each bit for the analyzer, and hand them to the relay ..."
        )
    with progress("devices send", users) as advance:
        shown = demonstrate_parties(survey, users, seed=seed, progress=advance)
    if as_json:
        print_json(
            shown.estimates
            | {
                "plan": shown.plan.id,
                "messages": shown.messages,
                "request_bytes": shown.request_bytes,
                "before_sealing": shown.early,
            }
        )
        return
    tell(shown)


def tell(shown: TwoParties) -> None:
    """Tell what each party saw, and what came out."""
    console = printer()
    _show_views(console, shown)
    console.rule("[bold]3. The crowd")
    _show_estimates(console, shown)
    _show_promise(console, shown)


def _show_views(console: Any, shown: TwoParties) -> None:
    from rich.table import Table

    plan, users = shown.plan, shown.plan.reports_needed
    assert plan.parties is not None
    counts = next(iter(shown.estimates["questions"].values()))
    label, row = next(iter(counts.items()))
    console.rule("[bold]2. What each of them saw")
    table = Table(box=None, pad_edge=False)
    table.add_column("", ratio=2)
    table.add_column("the relay", ratio=4)
    table.add_column("the analyzer", ratio=4)
    body = shown.request[-plan.parties.messages * 68 :][:_SHOWN_BYTES].hex(" ", 2)
    table.add_row("who sent", f"the address of each of {users:,} devices", "the relay's address")
    table.add_row(
        "what came",
        f"{users:,} requests of {shown.request_bytes:,} bytes, all equally long",
        f"{shown.messages:,} shuffled messages of one bit or none, once the crowd was whole",
    )
    table.add_row(
        "what it says",
        f"nothing: {body} ...",
        f"the counts of bits, from which {label} is estimated at {round(row['count']):,}",
    )
    table.add_row("who answered what", "no", "no")
    table.add_row("which bits are one person's", "no", "no")
    console.print(table)
    console.print(
        f"With one report missing, the analyzer was asked for the estimates and answered"
        f" {shown.early}: the relay forwards a crowd or nothing."
    )


def _show_estimates(console: Any, shown: TwoParties) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for name in ("truth", "estimate", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    for question, options in shown.estimates["questions"].items():
        table.add_row(f"[bold]{question}[/bold]")
        for label, row in options.items():
            ends = outward(row["low"], row["high"])
            table.add_row(f"  {label}", f"{row['truth']:,}", f"{round(row['count']):,}", *ends)
    console.print(table)


def _show_promise(console: Any, shown: TwoParties) -> None:
    from shoal.planning.certificate import certify, check_promise

    plan = shown.plan
    sigma = certify(plan).sigma
    console.print(
        f"\n{check_promise(plan).in_words}. It holds against the analyzer, as long as the relay"
        f" does not show it who sent what. A count is off by {text_near(sigma, 3)} people (one"
        f" sigma). Relay and analyzer together see each report, and then only the local epsilon of"
        f" {text_up(plan.local_epsilon, 3)} holds."
    )
