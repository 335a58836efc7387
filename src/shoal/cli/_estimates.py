"""Estimates as a table for people."""

from __future__ import annotations

from typing import Any

from shoal.analysis.publishing.words import in_crowds
from shoal.cli._common import outward, printer


def show_estimates(document: dict[str, Any], title: str) -> None:
    """Print the JSON form of estimates, with truth beside them where it is known."""
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    level = document["level"]
    rough = " (approximate)" if document["interval"] == "normal" else ""
    note = f"{document['interval']} intervals at {level:.4g}{rough}, for the {document['target']}"
    reports = f"{document['reports']:,} reports{in_crowds(document)}"
    console.print(f"[bold]{escape(title)}[/bold]: {reports}, {note}")
    if document["simulated"]:
        console.print("[yellow]simulated: not for release[/yellow]")
    for question, options in document["questions"].items():
        known = any("truth" in row for row in options.values())
        table = Table(title=escape(question), title_justify="left", box=None, pad_edge=False)
        table.add_column("option")
        for name in (["truth"] if known else []) + ["count", "share", "low", "high"]:
            table.add_column(name, justify="right")
        table.add_column("")
        for label, row in options.items():
            truth = [f"{row['truth']:,}"] if known else []
            cells = [f"{row['count']:,.0f}", f"{row['share']:.2%}"]
            bounds = outward(row["low"], row["high"])
            odd = "does not fit the plan" if row.get("incompatible") else _bar(row, document)
            table.add_row(escape(label), *truth, *cells, *bounds, odd)
        console.print()
        console.print(table)
    for note in document["notes"]:
        console.print(f"- {escape(note)}", soft_wrap=True)


def _bar(row: dict[str, Any], document: dict[str, Any], width: int = 24) -> str:
    """Draw the interval on a line from nobody to everybody."""
    reports = int(document["reports"])

    def place(count: float) -> int:
        return min(max(round(count / reports * (width - 1)), 0), width - 1)

    line = ["·"] * width
    for position in range(place(row["low"]), place(row["high"]) + 1):
        line[position] = "─"
    line[place(row["count"])] = "●"
    return "".join(line)
