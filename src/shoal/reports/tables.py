"""Estimates as CSV with the numbers in full, and as Markdown with those of the page."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from shoal.analysis.crowds import in_crowds
from shoal.analysis.estimates import NUMBERS, estimate_rows, estimates_arrow
from shoal.protocol.plan import Plan
from shoal.reports.formatting import SIMULATED, Figures, possible_answers, sum_note
from shoal.reports.protection import OBSERVER_HEADS, facts, observer_rows, one_crowd, release_note

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Characters that start a formula in a spreadsheet, full-width too (OWASP, CSV injection)."""


def csv_text(document: Mapping[str, Any]) -> str:
    """Write the estimates as CSV (RFC 4180), with full precision and without formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, row in enumerate(estimate_rows(document)):
        if number == 0:
            writer.writerow(row)
        writer.writerow([_cell(value) for value in row.values()])
    return out.getvalue()


def _cell(value: object) -> object:
    """Return the content of a cell; text that a spreadsheet would compute gets a leading quote.

    >>> _cell("=cmd|' /C calc'!A0"), _cell("a=b"), _cell(-1.5), _cell(True)
    ("'=cmd|' /C calc'!A0", 'a=b', -1.5, 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else value


def write_table(document: Mapping[str, Any], target: Path | BinaryIO, kind: str) -> None:
    """Write the estimates as Parquet or Arrow; the metadata `shoal` holds the whole JSON."""
    import pyarrow.feather as feather
    import pyarrow.parquet as pq

    table = estimates_arrow(document)
    if kind == "parquet":
        pq.write_table(table, target)
    else:
        feather.write_feather(table, target, compression="uncompressed")


def markdown_text(plan: Plan, document: Mapping[str, Any]) -> str:
    """Write the page's words and tables as Markdown."""
    estimates, promise = document["estimates"], document["promise"]
    reports = estimates["reports"]
    lines = [f"# {_plain(document['title'])}", ""]
    if estimates["simulated"]:
        lines += [f"> **{SIMULATED}**", ""]
    lines += [
        f"{_plain(document['survey'])}: {reports:,} reports{in_crowds(estimates)},"
        f" {estimates['interval']} intervals at level {estimates['level']:.6g}, for the"
        f" {estimates['target']}.",
        "",
    ]
    notes = [*sum_note(estimates), *release_note(plan)]
    lines += [line for note in notes for line in (note, "")]
    for question in plan.survey:
        lines += [f"## {_plain(question.name)}", "", possible_answers(question), ""]
        if question.name not in estimates["questions"]:
            continue
        lines += ["| option | " + " | ".join(NUMBERS) + " |", "|---" + "|---:" * 6 + "|"]
        for label, row in estimates["questions"][question.name].items():
            note = " (no true count fits these reports)" if row.get("incompatible") else ""
            cells = [_plain(label) + note, *Figures.of(row, reports)]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines += [
        "## How one person's answer is protected",
        "",
        f"**{promise['short']}**",
        "",
        promise["plain"],
        "",
        *_observers(document),
        "| name | number | meaning |",
        "|---|---|---|",
        *(
            f"| {fact.name} | {fact.value} | {fact.meaning} |"
            for fact in facts(plan, document["certificate"], reports, promise["sum"])
        ),
        "",
        "The promise assumes:",
        "",
        *(f"- {assumption}" for assumption in promise["assumptions"]),
        "",
        "## How to cite this",
        "",
        _plain(document["citation"]),
        "",
    ]
    return "\n".join(lines)


def _observers(document: Mapping[str, Any]) -> list[str]:
    """Return the table of who sees what, where there is a certificate."""
    if document["certificate"] is None:
        return []
    title = f"Guarantee against each observer{one_crowd(document['promise']['sum'])}:"
    rows = observer_rows(document["certificate"]["observers"])
    lines = [OBSERVER_HEADS, ("---",) * len(OBSERVER_HEADS), *rows]
    return [title, "", *(f"| {' | '.join(cells)} |" for cells in lines), ""]


def _plain(text: str) -> str:
    r"""Escape what Markdown, or HTML within it, would read as more than text.

    >>> print(_plain("<b> a|b *c*"))
    \<b\> a\|b \*c\*
    """
    return re.sub(r"([\\`*_\[\]<>|~#&:@$])", r"\\\1", text)
