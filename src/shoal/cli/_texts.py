"""Decoded texts as a table for people, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli._printing import printer, show_bullets, show_simulated
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.analysis.text.results import DecodedTexts


def show_texts(document: dict[str, Any], top: int) -> None:
    """Print the JSON form of decoded texts: those found, and what they leave over."""
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    rows, reports = document["candidates"], document["reports"]
    finds = [row for row in rows if row["found"]]
    console.print(
        f"[bold]{escape(document['question'])}[/bold]: {reports:,} reports,"
        f" {len(finds):,} of {len(rows):,} candidates found at a false discovery rate of"
        f" {text_near(document['fdr'])}"
    )
    show_simulated(console, document)
    if document["notes"]:
        show_bullets(console, document["notes"])
    table = Table(box=None, pad_edge=False)
    table.add_column("text", overflow="fold")
    for name in ("count", "share", "sigma", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in finds[:top]:
        name = " = ".join([row["value"], *row.get("same_as", [])[:3]])
        sigma, low, high = (f"{row[key]:,.0f}" for key in ("sigma", "low", "high"))
        share = f"{row['count'] / reports:.2%}"
        table.add_row(escape(name), f"{row['count']:,.0f}", share, sigma, low, high)
    console.print(table)
    if len(finds) > top:
        console.print(f"{top:,} of {len(finds):,} shown; see --top, or --json for all candidates")
    console.print(
        f"unexplained: {document['unexplained']:,.0f} reports,"
        f" sigma {document['unexplained_sigma']:,.0f}"
    )
    for group in document["alike"][:5]:
        console.print(f"hard to tell apart: {escape(', '.join(group[:8]))}")


def show_promises(document: dict[str, Any]) -> None:
    """Print what RAPPOR promised to the people whose reports were decoded."""
    console = printer()
    low, high = document["together"]
    console.print(
        f"all texts together: {low:.2%} to {high:.2%} of the reports at {document['level']:g}; 100%"
        " if the files belong together and popular texts are candidates"
    )
    numbers = document["rappor"]
    console.print(
        "\nWhat was promised to each person, with "
        + ", ".join(f"{name} = {text_near(numbers[name], 6)}" for name in ("h", "p", "q", "f"))
        + ":"
    )
    for promise in document["promises"]:
        epsilon = promise["epsilon"]
        bound = "no bound" if epsilon is None else text_near(epsilon, 6)
        console.print(
            f"{promise['name']:18}{bound}, against {promise['against']} ({promise['status']};"
            f" {promise['source']})"
        )
    if not numbers["f"]:
        console.print("f = 0: nothing is permanent, so reports of one person average away.")


def plot_decoded(texts: DecodedTexts, plot: Path | None, top: int) -> None:
    """Save the picture of decoded texts, if one is wanted."""
    if plot is not None:
        from shoal.reports.plots import save
        from shoal.reports.plots.texts import plot_texts

        save(plot_texts(texts, max(1, min(top, 40))), plot)
