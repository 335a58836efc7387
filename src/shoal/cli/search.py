"""`shoal search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import OUT_FILE, crowd_option, json_option, q_option, survey_options
from shoal.cli._printing import print_json, printer, progress
from shoal.cli._types import DECIMAL
from shoal.errors import ShoalError
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_down, text_near, text_up


@click.command(cls=Command, example="shoal search --flags 2 --crowd 4 --q 0.25 --epsilon 1")
@survey_options
@crowd_option(required=True)
@q_option(required=True)
@click.option(
    "--epsilon", type=DECIMAL, metavar="E", required=True, help="Search at this epsilon, 0 or more."
)
@click.option(
    "--measure",
    type=click.Choice(["delta", "eta"]),
    default="delta",
    show_default=True,
    help="What to maximize.",
)
@click.option("--state", type=OUT_FILE, help="Save progress to this file and continue from it.")
@json_option
def command(
    survey: Survey,
    crowd: int,
    q: str,
    epsilon: float,
    measure: Any,
    state: Path | None,
    as_json: bool,
) -> None:
    """Look for crowds that break the papers' conjecture.

    Small cases are searched completely, up to symmetry, larger ones by families of crowds. The
    worst crowd found is compared with the conjectured one and with the proven bound.
    """
    from shoal.lab.worst_crowds import Searching

    searching = Searching(
        survey, crowd_size=crowd, q=q, epsilon=epsilon, measure=measure, state=state
    )
    try:
        with progress("searching", searching.steps) as advance:
            advance(searching.done)
            worst = searching.run(advance)
    except KeyboardInterrupt:
        if state is None:
            raise
        raise ShoalError(
            f"interrupted after {searching.done:,} of {searching.steps:,} steps; the same command"
            f" continues from {state}."
        ) from None
    document = worst.to_json()
    if as_json:
        print_json(document)
    else:
        _show(document, survey.name)
    if worst.exceeds_proven:
        raise ShoalError(
            "BUG: this crowd exceeds the proven bound, which is a theorem. Do not rely on this"
            " version of Shoal, and please report this output."
        )


def _show(document: dict[str, Any], name: str) -> None:
    from rich.table import Table

    console = printer()
    measure, homogeneous = document["measure"], document["homogeneous"]
    worst, best = document["worst"], homogeneous["best"]
    console.print(
        f"[bold]{name}[/bold]: {measure} at epsilon {text_near(document['epsilon'], 6)}, q ="
        f" {text_near(document['q'], 6)}, crowd of {document['crowd_size']:,}"
    )
    how = "every crowd, up to symmetry" if document["exhaustive"] else document["world"]
    pairs = "pair" if document["searched"] == 1 else "pairs"
    console.print(f"searched {document['searched']:,} {pairs} of collections: {how}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def row(label: str, value: list[float], words: str, *, upper: bool = False) -> None:
        bound = f"<= {text_up(value[1])}" if upper else f">= {text_down(value[0])}"
        table.add_row(label, bound, words)

    row("forward", homogeneous["forward"], "all others agree with x; the conjectured worst case")
    row("reverse", homogeneous["reverse"], "all others agree with x'")
    row(
        "homogeneous",
        best["value"],
        f"worst crowd of equals tried: (a, b, c) = ({best['a']}, {best['b']}, {best['c']})",
    )
    others = " + ".join(f"{count} x {vector}" for vector, count in worst["others"].items())
    row(
        "worst found",
        worst["value"],
        f"others {others or 'none'}; x = {worst['x']}, x' = {worst['x_prime']}",
    )
    row("proven", document["proven"], "no crowd is worse; a theorem", upper=True)
    console.print(table)
    verdict = f"The conjecture is [bold]{document['conjecture']}[/bold]"
    if document["conjecture"] == "violated":
        *first, last = [_RIVALS[name] for name in document["beats"]]
        beaten = f"{', '.join(first)} and {last}" if first else last
        verdict += f": the worst crowd found is worse than {beaten}"
    console.print(f"{verdict}.")


_RIVALS = {
    "forward": "the conjectured one",
    "reverse": "its reverse",
    "homogeneous": "every homogeneous one tried",
}
