"""A study as two tables for people: estimates against theory, and how often intervals hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shoal.cli._printing import printer, show_simulated
from shoal.support.rounding import text_near

_KINDS = ("exact", "normal", "simultaneous", "chebyshev")


def show_study(document: dict[str, Any], name: str, plot: Path | None) -> None:
    """Print the JSON form of a study."""
    from rich.markup import escape

    console = printer()
    console.print(
        f"[bold]{escape(name)}[/bold]: {document['repetitions']:,} repetitions through the"
        f" {document['through']}, intervals at {text_near(document['level'])}, for the crowd; seed"
        f" {document['seed']}"
    )
    show_simulated(console, {"simulated": True})
    for point in document["points"]:
        promise = point["promise"]
        title = f"{point['users']:,} people, q = {text_near(point['q'], 5)}"
        if document["vary"] == "epsilon":
            title += f", {promise['kind']} at epsilon {promise['epsilon']}"
        console.print()
        console.print(_table(title, point, ("truth", "bias", "sigma", "theory", "ratio"), _errors))
        console.print()
        coverage = "coverage of the truth in %, by the law in brackets"
        console.print(_table(coverage, point, _KINDS, _coverages))
        for question, together in point["together"].items():
            console.print(
                f"all of {escape(question)} held by simultaneous intervals:"
                f" {together['measured']:.2%}, by the law {together['expected']:.2%}"
            )
    if plot is not None:
        console.print(f"\nwritten to {escape(str(plot))}", soft_wrap=True)


def _table(
    title: str,
    point: dict[str, Any],
    columns: Sequence[str],
    cells: Callable[[dict[str, Any]], list[str]],
) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for question, options in point["questions"].items():
        table.add_row(f"[bold]{escape(question)}[/bold]")
        for label, row in options.items():
            table.add_row(escape(label), *map(escape, cells(row)))
    return table


def _errors(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['truth']:,}",
        f"{row['bias']:,.2f}±{row['bias_error']:.2f}",
        f"{row['sigma']:,.1f}",
        f"{row['sigma_theory']:,.1f}",
        f"{row['sigma_ratio']:.4f}",
    ]


def _coverages(row: dict[str, Any]) -> list[str]:
    percent = [
        {which: f"{row['coverage'][kind][which]:.2%}".rstrip("%") for which in _WHICH}
        for kind in _KINDS
    ]
    return [f"{both['measured']} ({both['expected']})" for both in percent]


_WHICH = ("measured", "expected")
