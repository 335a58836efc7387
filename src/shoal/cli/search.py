"""`shoal search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import ShoalError
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_down, text_near, text_up


@cli.command("shoal search --flags 2 --crowd 4 --q 0.25 --epsilon 1")
@cli.survey_options
@cli.crowd_option(required=True)
@cli.q_option(required=True)
@cli.option(
    "--epsilon", "Search at this epsilon, 0 or more.", type=cli.DECIMAL, metavar="E", required=True
)
@cli.option(
    "--measure", "Quantity to maximize.", type=click.Choice(["delta", "eta"]), default="delta"
)
@cli.option("--state", "Save progress to this file and continue from it.", type=cli.OUT_FILE)
@cli.json_option
def search(
    survey: Survey,
    crowd: int,
    q: str,
    epsilon: float,
    measure: Any,
    state: Path | None,
    as_json: bool,
) -> None:
    """Search for crowds that break the papers' conjecture.

    Small cases are searched completely, up to symmetry, larger ones by families of crowds. The
    worst crowd found is compared with the conjectured one and with the proven bound.
    """
    from shoal.lab.counterexamples import Searching

    searching = Searching(
        survey, crowd_size=crowd, q=q, epsilon=epsilon, measure=measure, state=state
    )
    try:
        with out.progress("searching", searching.steps) as advance:
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
    out.show_result(document, as_json, _show, survey.name)
    if worst.exceeds_proven:
        raise ShoalError(
            "BUG: this crowd exceeds the proven bound, which is a theorem. Do not rely on this"
            " version of Shoal, and please report this output."
        )


def _show(document: dict[str, Any], name: str) -> None:
    console = out.printer()
    homogeneous, worst = document["homogeneous"], document["worst"]
    best = homogeneous["best"]
    out.show_title(
        console,
        name,
        f"{document['measure']} at epsilon {text_near(document['epsilon'], 6)}, q ="
        f" {text_near(document['q'], 6)}, crowd of {document['crowd_size']:,}",
    )
    how = "every crowd, up to symmetry" if document["exhaustive"] else document["world"]
    pairs = "pair" if document["searched"] == 1 else "pairs"
    console.print(f"searched {document['searched']:,} {pairs} of collections: {how}")
    equals = f"worst crowd of equals tried: (a, b, c) = ({best['a']}, {best['b']}, {best['c']})"
    others = " + ".join(f"{count} x {vector}" for vector, count in worst["others"].items())
    found = f"others {others or 'none'}; x = {worst['x']}, x' = {worst['x_prime']}"
    conjectured = "all others agree with x; the conjectured worst case"
    bounds = [
        ("forward", homogeneous["forward"], conjectured),
        ("reverse", homogeneous["reverse"], "all others agree with x'"),
        ("homogeneous", best["value"], equals),
        ("worst found", worst["value"], found),
    ]
    rows = [(label, f">= {text_down(value[0])}", words) for label, value, words in bounds]
    rows.append(("proven", f"<= {text_up(document['proven'][1])}", "no crowd is worse; a theorem"))
    console.print(out.statements(rows))
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
