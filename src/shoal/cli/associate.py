"""`shoal associate`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_down, text_near, text_up


@cli.command("shoal associate plan.json tally.json channel features=sync")
def associate(
    plan: Plan = cli.PLAN,
    tally: Tally = cli.TALLY,
    names: tuple[str, ...] = arg("QUESTION[=OPTION]..."),
    level: float = cli.LEVEL,
    target: cli.Target = cli.TARGET,
) -> out.Result:
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
        return out.Result(document, _show_crossed(document))
    document = associate(plan, tally, *names, target=target).to_json(level)
    return out.Result(document, _show_joint(document))


def _title(document: dict[str, Any], names: list[str], intervals: str) -> str:
    about = f"{document['reports']:,} reports, {intervals}, for the {document['target']}"
    return out.title(" and ".join(names), about, document["simulated"])


def _show_crossed(document: dict[str, Any]) -> out.Pieces:
    intervals = f"exact intervals at {document['level']:.4g}"
    yield _title(document, document["questions"], intervals)
    for one in _slices(document):
        if one["given"]:
            given = ", ".join(f"{name}: {value}" for name, value in one["given"].items())
            yield f"\n[bold]{out.escape(given)}[/bold]"
        yield out.IfItFits(_matrix(one))
        yield _cells(one)
        yield from _independence(one)


def _show_joint(document: dict[str, Any]) -> out.Pieces:
    """Yield the table of answers that were counted jointly, and the measures of a 2x2 table."""
    names = [document["first"], document["second"]]
    yield _title(document, names, f"normal intervals at {document['level']:.4g} (approximate)")
    rows = []
    for cell in document["table"]:
        count, likely = (f"{cell[key]:,.0f}" for key in ("count", "constrained"))
        ends = out.outward(cell["low"], cell["high"])
        rows.append((cell["first"], cell["second"], count, *ends, likely))
    yield out.table([*names, "count", "low", "high", "constrained"], rows, left=2)
    yield from _independence(document)
    for name in ("difference", "odds_ratio"):
        if (measure := document[name]) is not None:
            best = "unknown" if measure["value"] is None else text_near(measure["value"])
            high = "up" if measure["high"] is None else f"to {text_up(measure['high'])}"
            yield f"{name.replace('_', ' ')}: {best}, from {text_down(measure['low'])} {high}"


def _independence(document: dict[str, Any]) -> out.Pieces:
    test, sensitivity = document["independence"], document["sensitivity"]
    yield (
        f"independence: chi-square {text_near(test['statistic'])} with {test['degrees']} degrees of"
        f" freedom, p = {text_near(test['p_value'], 3)} ({test['kind']})"
    )
    if test["kind"] == "rough":
        yield "[yellow]some cell has fewer than 5 people and flips, so p may be too small[/yellow]"
    if sensitivity is not None:
        yield out.escape(sensitivity["in_words"])


def _slices(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "slices" not in document:
        yield document
    for one in document.get("slices", ()):
        yield from _slices(one)


def _matrix(document: dict[str, Any]) -> Any:
    totals = document["totals"]
    counts = {(cell["first"], cell["second"]): cell["count"] for cell in document["table"]}
    rows = []
    for name, total in totals["first"].items():
        numbers = [*(counts[name, column] for column in totals["second"]), total["value"]]
        rows.append((name, *(f"{number:,.0f}" for number in numbers)))
    rows.append(("total", *(f"{total['value']:,.0f}" for total in totals["second"].values()), ""))
    matrix = out.table([document["first"], *totals["second"], "total"], rows)
    matrix.columns[0].no_wrap = True
    return matrix


def _cells(document: dict[str, Any]) -> Any:
    rows: list[tuple[str, ...]] = []
    for first, cells in groupby(document["table"], key=itemgetter("first")):
        rows.append((first,))
        for cell in cells:
            low, high = out.outward(cell["low"], cell["high"])
            shares = (_percent(cell[name]) for name in ("row_share", "column_share"))
            rows.append((f"  {cell['second']}", f"{cell['count']:,.0f} ({low}–{high})", *shares))
    names = f"{document['first']}, {document['second']}"
    return out.table([names, "people", "% of row", "% of column"], rows)


def _percent(share: dict[str, Any]) -> str:
    value, low, high = share["value"], share["low"], share["high"]
    ends = f"({math.floor(1000 * low) / 10:.1f}–{math.ceil(1000 * high) / 10:.1f})"
    return f"{'?' if value is None else f'{100 * value:.1f}'} {ends}"
