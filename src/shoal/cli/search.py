"""`shoal search`."""

from __future__ import annotations

from typing import Any, Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import ShoalError
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_down, text_near, text_up


@cli.command("shoal search --flags 2 --crowd 4 --q 0.25 --epsilon 1")
def search(
    survey: Survey = cli.SURVEY,
    crowd_size: int = cli.CROWD,
    q: str = cli.Q,
    epsilon: float = opt("Search at this epsilon, 0 or more.", "E"),
    measure: Literal["delta", "eta"] = opt("Quantity to maximize.", default="delta"),
    state: cli.OutFile | None = opt("Save progress to this file and continue from it."),
) -> out.Result:
    """Search for crowds that break the papers' conjecture.

    Small cases are searched completely, up to symmetry, larger ones by families of crowds. The
    worst crowd found is compared with the conjectured one and with the proven bound.
    """
    from shoal.lab.counterexamples import Searching

    searching = Searching(
        survey, crowd_size=crowd_size, q=q, epsilon=epsilon, measure=measure, state=state
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
    error = None
    if worst.exceeds_proven:
        error = ShoalError(
            "BUG: this crowd exceeds the proven bound, which is a theorem. Do not rely on this"
            " version of Shoal, and please report this output."
        )
    document = worst.to_json()
    return out.Result(document, _show(document, survey.name), error=error)


def _show(document: dict[str, Any], name: str) -> out.Pieces:
    homogeneous, worst = document["homogeneous"], document["worst"]
    best = homogeneous["best"]
    yield out.title(
        name,
        f"{document['measure']} at epsilon {text_near(document['epsilon'], 6)}, q ="
        f" {text_near(document['q'], 6)}, crowd of {document['crowd_size']:,}",
    )
    how = "every crowd, up to symmetry" if document["exhaustive"] else document["world"]
    pairs = "pair" if document["searched"] == 1 else "pairs"
    yield f"searched {document['searched']:,} {pairs} of collections: {how}"
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
    yield out.statements(rows)
    verdict = f"The conjecture is [bold]{document['conjecture']}[/bold]"
    if document["conjecture"] == "violated":
        *first, last = [_RIVALS[name] for name in document["beats"]]
        beaten = f"{', '.join(first)} and {last}" if first else last
        verdict += f": the worst crowd found is worse than {beaten}"
    yield f"{verdict}."


_RIVALS = {
    "forward": "the conjectured one",
    "reverse": "its reverse",
    "homogeneous": "every homogeneous one tried",
}
