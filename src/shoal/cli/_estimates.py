"""Estimates as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.analysis.crowds import in_crowds
from shoal.cli._common import outward, printer, show_bullets, show_simulated

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement


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
    show_simulated(console, document)
    for question, options in document["questions"].items():
        known = any("truth" in row for row in options.values())
        table = Table(title=escape(question), title_justify="left", box=None, pad_edge=False)
        table.add_column("option", overflow="fold")
        for name in (["truth"] if known else []) + ["count", "share", "low", "high"]:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("", overflow="crop")
        for label, row in options.items():
            truth = [f"{row['truth']:,}"] if known else []
            cells = [f"{row['count']:,.0f}", f"{row['share']:.2%}"]
            bounds = outward(row["low"], row["high"])
            place: Any = "no true count fits these reports"
            if not row.get("incompatible"):
                place = _Bar(row["low"], row["count"], row["high"], int(document["reports"]))
            table.add_row(escape(label), *truth, *cells, *bounds, place)
        console.print()
        console.print(table)
    if document["notes"]:
        show_bullets(console, document["notes"])


@dataclass(frozen=True)
class _Bar:
    """The interval on a line from nobody to everybody, as wide as there is room."""

    low: float
    count: float
    high: float
    reports: int

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.measure import Measurement

        return Measurement(min(_NARROWEST, options.max_width), min(_WIDEST, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[str]:
        width = min(_WIDEST, options.max_width)

        def place(count: float) -> int:
            return min(max(round(count / self.reports * (width - 1)), 0), width - 1)

        line = ["·"] * width
        for position in range(place(self.low), place(self.high) + 1):
            line[position] = "─"
        line[place(self.count)] = "●"
        yield "".join(line)


_NARROWEST, _WIDEST = 8, 24
"""Characters of a bar."""
