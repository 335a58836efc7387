"""`shoal search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.survey import Survey
from shoal.cli._common import OUT_FILE, json_option, print_json, printer, progress, survey_options
from shoal.errors import InputError, ShoalError


@click.command()
@survey_options
@click.option("--crowd", type=int, metavar="N", required=True, help="Reports released together.")
@click.option("--q", metavar="Q", required=True, help="The flip probability, taken exactly.")
@click.option("--epsilon", type=float, metavar="E", required=True, help="At least 0.")
@click.option(
    "--measure",
    type=click.Choice(["delta", "eta"]),
    default="delta",
    show_default=True,
    help="What is made as large as possible.",
)
@click.option("--state", type=OUT_FILE, help="Keep the progress here and continue from it.")
@json_option
def command(
    survey: Survey | None,
    crowd: int,
    q: str,
    epsilon: float,
    measure: Any,
    state: Path | None,
    as_json: bool,
) -> None:
    """Look for crowds that break the papers' conjecture.

    Small worlds are searched exhaustively up to symmetry, larger ones by families of crowds. The
    worst crowd found stands beside the conjectured one and below the proven bound.
    """
    from shoal.evidence.worst_crowds import Searching

    if survey is None:
        raise InputError("name a survey file, or use --flags, --choice or --choices.")
    searching = Searching(
        survey, crowd_size=crowd, q=q, epsilon=epsilon, measure=measure, state=state
    )
    try:
        with progress("searching", searching.steps) as advance:
            advance(searching.done)
            found = searching.run(advance)
    except KeyboardInterrupt:
        if state is None:
            raise
        raise ShoalError(
            f"interrupted after {searching.done:,} of {searching.steps:,} steps; the same command"
            f" continues from {state}."
        ) from None
    document = found.to_json()
    if as_json:
        print_json(document)
    else:
        _show(document, survey.name)
    if found.exceeds_proven:
        raise ShoalError(
            "BUG: this crowd exceeds the proven bound, which is a theorem. Do not rely on this"
            " version of Shoal, and please report this output."
        )


def _show(document: dict[str, Any], name: str) -> None:
    from rich.table import Table

    from shoal.support.rounding import round_down, text_up

    console = printer()
    measure, homogeneous = document["measure"], document["homogeneous"]
    worst, best = document["worst"], homogeneous["best"]
    console.print(
        f"[bold]{name}[/bold]: {measure} at epsilon {document['epsilon']:.6g}, q ="
        f" {document['q']:.6g}, crowd of {document['crowd_size']:,}"
    )
    how = "every crowd, up to symmetry" if document["exhaustive"] else document["world"]
    pairs = "pair" if document["searched"] == 1 else "pairs"
    console.print(f"searched {document['searched']:,} {pairs} of collections: {how}")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def row(label: str, value: list[float], words: str, *, upper: bool = False) -> None:
        shown = text_up(value[1]) if upper else f"{round_down(value[0]):g}"
        table.add_row(label, f"{'<=' if upper else '>='} {shown}", words)

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
    row("proven", document["proven"], "no crowd at all is worse; a theorem", upper=True)
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
