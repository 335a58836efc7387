"""`shoal paper`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.lab.papers import PaperFinding

_MARKS = {"agrees": "green", "misprint": "yellow", "false claim": "bold red"}


@cli.command("shoal paper --errors")
def paper(
    as_json: bool,
    errors: bool = opt("Show only the misprints and false claims."),
    markdown: bool = opt("Print a Markdown table."),
    figures: cli.OutFolder | None = opt("Also draw the figures into this folder, as PNG and SVG."),
) -> out.Result:
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
    document = [asdict(finding) for finding in selection]
    text = markdown_table(selection) if markdown else _show(selection, everything, files)
    return out.Result(document, text)


def markdown_table(findings: Sequence[PaperFinding]) -> str:
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
) -> out.Pieces:
    from rich.table import Table

    for source, group in itertools.groupby(selection, key=lambda finding: finding.source):
        table = Table(box=None, pad_edge=False, title=source, title_justify="left",
                      title_style="bold", header_style="dim")  # fmt: skip
        table.add_column("where", ratio=5)
        table.add_column("printed", ratio=6)
        table.add_column("computed", ratio=4)
        table.add_column("verdict", no_wrap=True, min_width=11)
        notes = []
        for finding in group:
            cells = map(out.escape, (finding.where, finding.printed, finding.computed))
            verdict = f"[{_MARKS[finding.verdict]}]{finding.verdict}[/]"
            table.add_row(*cells, verdict)
            if finding.verdict != "agrees":
                notes.append(f"{verdict} in {out.escape(finding.where)}: {out.escape(finding.why)}")
        yield table
        yield from notes
        yield ""
    count = Counter(finding.verdict for finding in everything)
    yield (
        f"{len(everything)} statements: {count['agrees']} agree, {count['misprint']} are"
        f" misprinted, {count['false claim']} are false."
    )
    for path in files:
        yield from out.written(path)
