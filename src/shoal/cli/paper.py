"""`shoal paper`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.lab.papers import PaperFinding

_MARKS = {"agrees": "green", "misprint": "yellow", "false claim": "bold red"}


@cli.command("shoal paper --errors")
@cli.option("--errors", "Show only the misprints and false claims.", is_flag=True)
@cli.option("--markdown", "Print a Markdown table.", is_flag=True)
@cli.option(
    "--figures", "Also draw the figures into this folder, as PNG and SVG.", type=cli.OUT_FOLDER
)
@cli.json_option
def paper(errors: bool, markdown: bool, figures: Path | None, as_json: bool) -> None:
    """Recompute the numbers in the papers, errors included.

    Every number and claim of SDP, KR, LEC and BITVEC (docs/sources.md) beside the computed one.
    """
    from shoal.lab.papers import findings

    if markdown and as_json:
        raise InputError("give one of --json and --markdown.")
    everything: list[PaperFinding] = []
    with out.progress("recomputing") as advance:
        for finding in findings():
            everything.append(finding)
            advance(1)
    files: list[Path] = []
    if figures is not None:
        from shoal.lab.papers.figures import plot_figures

        files = plot_figures(figures)
    selection = [one for one in everything if not errors or one.verdict != "agrees"]
    if as_json:
        out.print_json([asdict(finding) for finding in selection])
    elif markdown:
        click.echo(markdown_table(selection))
    else:
        _show(selection, everything, files)


def markdown_table(findings: Sequence[PaperFinding]) -> str:
    """Write the findings as one Markdown table."""
    lines = ["| where | printed | computed | verdict | why |", "|---|---|---|---|---|"]
    for finding in findings:
        cells = (
            f"{finding.source} {finding.where}",
            f"`{finding.printed}`",
            f"`{finding.computed}`",
            finding.verdict,
            finding.why,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _show(
    selection: Sequence[PaperFinding], everything: Sequence[PaperFinding], files: Sequence[Path]
) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = out.printer()
    for source, group in itertools.groupby(selection, key=lambda finding: finding.source):
        rows = list(group)
        table = Table(box=None, pad_edge=False, title=source, title_justify="left",
                      title_style="bold", header_style="dim")  # fmt: skip
        table.add_column("where", ratio=5)
        table.add_column("printed", ratio=6)
        table.add_column("computed", ratio=4)
        table.add_column("verdict", no_wrap=True, min_width=11)
        for finding in rows:
            style = _MARKS[finding.verdict]
            cells = (finding.where, finding.printed, finding.computed)
            table.add_row(*map(escape, cells), f"[{style}]{finding.verdict}[/{style}]")
        console.print(table)
        for finding in rows:
            if finding.verdict != "agrees":
                style = _MARKS[finding.verdict]
                console.print(
                    f"[{style}]{finding.verdict}[/{style}] in {escape(finding.where)}:"
                    f" {escape(finding.why)}"
                )
        console.print()
    count = Counter(finding.verdict for finding in everything)
    console.print(
        f"{len(everything)} statements: {count['agrees']} agree, {count['misprint']} are"
        f" misprinted, {count['false claim']} are false."
    )
    for path in files:
        out.show_written(console, path)
