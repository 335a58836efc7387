"""`shoal associate`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_down, text_near, text_up

if TYPE_CHECKING:
    from rich.console import Console


@cli.command("shoal associate plan.json tally.json channel features=sync")
@cli.plan_and_tally
@click.argument("names", metavar="QUESTION[=OPTION]...", nargs=-1, required=True)
@cli.level_option
@cli.target_option
@cli.json_option
def associate(
    plan: Plan,
    tally: Tally,
    names: tuple[str, ...],
    level: float,
    target: Any,
    as_json: bool,
) -> None:
    """Test whether two answers go together.

    Questions that the survey crosses make a cross table, with shares of rows and columns; three or
    more make one table for each answer to the first. Other answers must be counted jointly: see
    `shoal tally --joint`. There, name a question with one answer, and all its options are used; of
    other questions name one option.
    """
    from shoal.analysis.association import associate
    from shoal.analysis.cross_tables import cross_named, cross_table

    if len(names) != 2 or cross_named(plan.survey, names) is not None:
        document = cross_table(plan, tally, *names, target=target).to_json(level)
    else:
        document = associate(plan, tally, *names, target=target).to_json(level)
    out.show_result(document, as_json, _show)


def _show(document: dict[str, Any]) -> None:
    console = out.printer()
    crossed = "questions" in document
    names = document["questions"] if crossed else (document["first"], document["second"])
    intervals = "exact intervals" if crossed else "normal intervals"
    rough = "" if crossed else " (approximate)"
    out.show_title(
        console,
        " and ".join(names),
        f"{document['reports']:,} reports, {intervals} at {document['level']:.4g}{rough}, for the"
        f" {document['target']}",
        document["simulated"],
    )
    if not crossed:
        _show_joint(console, document)
    for one in _slices(document) if crossed else ():
        if one["given"]:
            given = ", ".join(f"{name}: {value}" for name, value in one["given"].items())
            console.print(f"\n{given}", style="bold", markup=False)
        _show_matrix(console, one)
        _show_cells(console, one)
        _show_independence(console, one)


def _show_joint(console: Console, document: dict[str, Any]) -> None:
    """Print the table of answers that were counted jointly, and the measures of a 2x2 table."""
    rows = []
    for cell in document["table"]:
        count, likely = (f"{cell[key]:,.0f}" for key in ("count", "constrained"))
        ends = out.outward(cell["low"], cell["high"])
        rows.append((cell["first"], cell["second"], count, *ends, likely))
    columns = [document["first"], document["second"], "count", "low", "high", "constrained"]
    console.print(out.table(columns, rows, left=2))
    _show_independence(console, document)
    for name in ("difference", "odds_ratio"):
        if (measure := document[name]) is not None:
            best = "unknown" if measure["value"] is None else text_near(measure["value"])
            high = "up" if measure["high"] is None else f"to {text_up(measure['high'])}"
            words = f"{best}, from {text_down(measure['low'])} {high}"
            console.print(f"{name.replace('_', ' ')}: {words}")


def _show_independence(console: Console, document: dict[str, Any]) -> None:
    """Print the test, and how large an effect it can find."""
    test, sensitivity = document["independence"], document["sensitivity"]
    console.print(
        f"independence: chi-square {text_near(test['statistic'])} with {test['degrees']} degrees of"
        f" freedom, p = {text_near(test['p_value'], 3)} ({test['kind']})"
    )
    if test["kind"] == "rough":
        console.print(
            "[yellow]some cell has fewer than 5 people and flips, so p may be too small[/yellow]"
        )
    if sensitivity is not None:
        console.print(sensitivity["in_words"])


def _slices(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "slices" not in document:
        yield document
    for one in document.get("slices", ()):
        yield from _slices(one)


def _show_matrix(console: Console, document: dict[str, Any]) -> None:
    """Print the counts as a matrix with its totals, if there is room for it."""
    from rich.measure import Measurement

    totals = document["totals"]
    counts = {(cell["first"], cell["second"]): cell["count"] for cell in document["table"]}
    rows = []
    for name, total in totals["first"].items():
        numbers = [*(counts[name, column] for column in totals["second"]), total["value"]]
        rows.append((name, *(f"{number:,.0f}" for number in numbers)))
    rows.append(("total", *(f"{total['value']:,.0f}" for total in totals["second"].values()), ""))
    matrix = out.table([document["first"], *totals["second"], "total"], rows)
    matrix.columns[0].no_wrap = True
    wide = console.options.update(max_width=10_000)
    if Measurement.get(console, wide, matrix).maximum <= console.width:
        console.print(matrix)
        console.print()


def _show_cells(console: Console, document: dict[str, Any]) -> None:
    rows: list[tuple[str, ...]] = []
    for first, cells in groupby(document["table"], key=itemgetter("first")):
        rows.append((first,))
        for cell in cells:
            low, high = out.outward(cell["low"], cell["high"])
            shares = (_percent(cell[name]) for name in ("row_share", "column_share"))
            rows.append((f"  {cell['second']}", f"{cell['count']:,.0f} ({low}–{high})", *shares))
    names = f"{document['first']}, {document['second']}"
    console.print(out.table([names, "people", "% of row", "% of column"], rows))


def _percent(share: dict[str, Any]) -> str:
    value, low, high = share["value"], share["low"], share["high"]
    ends = f"({math.floor(1000 * low) / 10:.1f}–{math.ceil(1000 * high) / 10:.1f})"
    return f"{'?' if value is None else f'{100 * value:.1f}'} {ends}"
