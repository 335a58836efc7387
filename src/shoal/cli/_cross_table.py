"""Cross tables for people: a matrix of counts, every cell with its intervals, and the test."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import Any

from shoal.cli._printing import outward, printer, show_simulated
from shoal.support.rounding import text_near


def show_cross_table(document: dict[str, Any]) -> None:
    """Print the JSON form of a cross table, slice by slice if it has slices."""
    from rich.markup import escape

    console = printer()
    names = " and ".join(f"[bold]{escape(name)}[/bold]" for name in document["questions"])
    console.print(
        f"{names}: {document['reports']:,} reports, exact intervals at"
        f" {document['level']:.4g}, for the {document['target']}"
    )
    show_simulated(console, document)
    for one in _tables(document):
        if one["given"]:
            given = ", ".join(f"{name}: {value}" for name, value in one["given"].items())
            console.print(f"\n[bold]{escape(given)}[/bold]")
        _show_matrix(console, one)
        _show_cells(console, one)
        show_independence(console, one)


def show_independence(console: Any, document: dict[str, Any]) -> None:
    """Print the test, and how large an effect must be for it."""
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


def _tables(document: dict[str, Any]) -> list[dict[str, Any]]:
    if "slices" not in document:
        return [document]
    return [table for one in document["slices"] for table in _tables(one)]


def _show_matrix(console: Any, document: dict[str, Any]) -> None:
    """Print the counts as a matrix with its totals, if there is room for it."""
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Table

    rows, columns = (list(document["totals"][side]) for side in ("first", "second"))
    counts = {(cell["first"], cell["second"]): cell["count"] for cell in document["table"]}
    table = Table(box=None, pad_edge=False)
    table.add_column(escape(document["first"]), no_wrap=True)
    for name in (*columns, "total"):
        table.add_column(escape(name), justify="right", no_wrap=True)
    totals = document["totals"]
    for row in rows:
        numbers = [*(counts[row, column] for column in columns), totals["first"][row]["value"]]
        table.add_row(escape(row), *(f"{number:,.0f}" for number in numbers))
    sums = [totals["second"][column]["value"] for column in columns]
    table.add_row("total", *(f"{number:,.0f}" for number in sums), "")
    wide = console.options.update(max_width=10_000)
    if Measurement.get(console, wide, table).maximum <= console.width:
        console.print(table)
        console.print()


def _show_cells(console: Any, document: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(escape(f"{document['first']}, {document['second']}"), overflow="fold")
    for name in ("people", "% of row", "% of column"):
        table.add_column(name, justify="right", no_wrap=True)
    for first, cells in groupby(document["table"], key=itemgetter("first")):
        table.add_row(escape(first))
        for cell in cells:
            low, high = outward(cell["low"], cell["high"])
            shares = (_percent(cell[name]) for name in ("row_share", "column_share"))
            count = f"{cell['count']:,.0f} ({low}–{high})"
            table.add_row(f"  {escape(cell['second'])}", count, *shares)
    console.print(table)


def _percent(share: dict[str, float | None]) -> str:
    value, low, high = share["value"], share["low"], share["high"]
    assert low is not None
    assert high is not None
    ends = f"({math.floor(1000 * low) / 10:.1f}–{math.ceil(1000 * high) / 10:.1f})"
    return f"{'?' if value is None else f'{100 * value:.1f}'} {ends}"
