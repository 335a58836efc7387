"""Estimates as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.analysis.crowds import in_crowds
from shoal.cli._printing import outward, printer, show_bullets, show_simulated
from shoal.support.rounding import text_near

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


def show_numbers(document: dict[str, Any]) -> None:
    """Print the mean and the quantiles of number questions."""
    from rich.markup import escape

    console = printer()
    for question, summary in document["numbers"].items():
        level = f"{summary['level']:.4g}"
        console.print(f"\n{escape(question)}, as numbers")
        mean = summary["mean"]
        if mean is not None:
            low, high = text_near(mean["low"]), text_near(mean["high"])
            console.print(
                f"mean      {low} to {high} at {level}, of numbers limited to the outer edges"
                " (approximate)"
            )
        for one in summary["quantiles"]:
            start, end = (None if one[end] is None else text_near(one[end]) for end in _ENDS)
            place = f"{start} to below {end}"
            if start is None or end is None:
                place = (
                    "anywhere" if start is end else f"below {end}" if end else f"{start} or more"
                )
            name = _QUANTILES.get(one["part"], str(one["part"]))
            console.print(f"{name:9} {place} at {level} (theorem)")


_ENDS = ("low", "high")
_QUANTILES = {0.1: "10 %", 0.25: "25 %", 0.5: "median", 0.75: "75 %", 0.9: "90 %"}


def show_difference(document: dict[str, Any]) -> None:
    """Print how the shares of two crowds differ."""
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    console.print(
        f"\nChange against {document['second']['reports']:,} reports; intervals"
        f" {document['interval']}, at {document['level']:.4g}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("option", overflow="fold")
    for name in ("before", "now", "change", "low", "high", "differs"):
        table.add_column(name, justify="right", no_wrap=True)
    for question, options in document["questions"].items():
        for label, row in options.items():
            shares = [f"{row[key]:.2%}" for key in ("second", "first")]
            ends = [f"{row[key]:+.2%}" for key in ("difference", "low", "high")]
            differs = "yes" if row["differs"] else ""
            table.add_row(escape(f"{question}: {label}"), *shares, *ends, differs)
    console.print(table)
