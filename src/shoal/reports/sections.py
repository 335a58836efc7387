"""The values that templates show: questions in the form of their kind, trends and differences.

Flags and other questions with several answers show the unbiased estimates. Where everybody has
exactly one answer, the shares add to 100 %, and the unbiased estimates are folded. Numbers have a
histogram, their mean and quantiles; crosses a matrix with a test; text a ranked list, if it was
decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from shoal.analysis.estimates import NUMBERS
from shoal.protocol.survey import Question, Survey
from shoal.reports.charts import (
    WIDTHS,
    Layout,
    bar_chart,
    chart,
    difference_chart,
    histogram,
    page_layout,
    trend_chart,
)
from shoal.reports.formatting import (
    Figures,
    count_unit,
    level_in_words,
    percent,
    possible_answers,
    round_high,
    round_low,
    signed_percent,
    whole_number,
    whole_shares,
)
from shoal.reports.protection import Fact
from shoal.support.rounding import text_near, text_up

_MAX_WORDS = 200
"""Texts that a page lists; the JSON has them all."""
_SHADES = 8
"""Steps from a share of 0 to 1, each a class of the style sheet."""
_NO_FIT = "no true count fits these reports"


class TableRow(NamedTuple):
    """A row of a table: its label, its cells, and a note below the label."""

    label: str
    cells: Sequence[Any]
    note: str = ""


class Table(NamedTuple):
    """A table with a caption; the first of the heads is that of the labels."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[TableRow]


class Cell(NamedTuple):
    """A number of a matrix with its interval, and its share with its own."""

    value: str
    interval: str
    share: str = ""
    shade: int | None = None


def question_sections(survey: Survey, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the section of each question, from the JSON of a publication or a crowd."""
    estimates = document["estimates"]
    layouts = {kind: page_layout(estimates, width) for kind, width in WIDTHS.items()}
    return [
        _section(question, f"question-{number}", document, layouts)
        for number, question in enumerate(survey, 1)
    ]


def _section(
    question: Question, id: str, document: Mapping[str, Any], layouts: Mapping[str, Layout]
) -> dict[str, Any]:
    estimates, name = document["estimates"], question.name
    section: dict[str, Any] = {"id": id, "name": name, "asked": possible_answers(question)}
    if question.kind == "text":
        decoded = document["texts"].get(name)
        return section | ({} if decoded is None else {"words": word_list(decoded)})
    if name in document["crosses"]:
        section["slices"] = list(_slices(document["crosses"][name]))
    elif question.takes_one:
        draw = histogram if question.kind == "number" else bar_chart
        section["share_charts"] = _charts(
            lambda width, **given: draw(question, estimates, width, **given), f"{id}-shares"
        )
        section["facts"] = _numbers(document["numbers"].get(name))
        section["shares"] = _share_table(question, estimates)
    return section | {
        "folded": "slices" in section or "shares" in section,
        "charts": [
            chart(question, estimates, layout, name=f"{id}-{kind}", class_=kind)
            for kind, layout in layouts.items()
        ],
        "options": option_table(question, estimates),
    }


def _charts(draw: Callable[..., Markup], id: str) -> list[Markup]:
    """Return a chart in each width; the style sheet shows one of them."""
    return [draw(width, name=f"{id}-{kind}", class_=kind) for kind, width in WIDTHS.items()]


def option_table(question: Question, estimates: Mapping[str, Any]) -> Table:
    """Return the unbiased estimates of a question; a cell is the number and how it is written."""
    rows = [
        TableRow(
            label,
            [
                (float(row[name]), text)
                for name, text in zip(NUMBERS, Figures.of(row, estimates["reports"]), strict=True)
            ],
            _NO_FIT if row.get("incompatible") else "",
        )
        for label, row in estimates["questions"][question.name].items()
    ]
    caption = (
        f"Counts of {count_unit(estimates)} with their standard deviation (sigma) and"
        f" {estimates['interval']} interval at {level_in_words(estimates)}"
    )
    return Table(caption, ("option", *NUMBERS), rows)


def _share_table(question: Question, estimates: Mapping[str, Any]) -> Table:
    options, reports = estimates["questions"][question.name], estimates["reports"]
    shares, unit = whole_shares(options, reports), count_unit(estimates)
    rows = []
    for label, row in options.items():
        one = Figures.of(row, reports)
        cells = (shares[label], one.constrained, one.low, one.high)
        rows.append(TableRow(label, cells, _NO_FIT if row.get("incompatible") else ""))
    caption = (
        f"Shares that add to 100 %, {unit}, and {estimates['interval']} intervals"
        f" of the true count at {level_in_words(estimates)}"
    )
    return Table(caption, ("option", "share", unit, "low", "high"), rows)


def _numbers(summary: Mapping[str, Any] | None) -> list[Fact]:
    if summary is None:
        return []
    found, mean, spread = [], summary["mean"], summary["variance"]
    at = percent(summary["level"], 0)
    if mean is not None:
        first, last = (f"{end:g}" for end in summary["limits"])
        ends = f"between {text_near(mean['low'])} and {text_near(mean['high'])} at {at}"
        clamped = f"numbers outside {first} to {last} count as the nearer end"
        found.append(Fact("Mean", text_near(mean["value"]), f"{ends} (approximate); {clamped}"))
    if spread is not None:
        low, high = (text_near(spread[end] ** 0.5) for end in ("low", "high"))
        meaning = f"at {at} (approximate), whatever rounding to the grid added"
        found.append(Fact("Standard deviation", f"{low} to {high}", meaning))
    for one in summary["quantiles"]:
        name = "Median" if one["part"] == 0.5 else f"{percent(one['part'], 0)} are below"
        meaning = f"{_between(one['low'], one['high'])} at {percent(one['level'], 0)}"
        found.append(Fact(name, one["label"], meaning))
    return found


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return "anywhere" if high is None else f"below {high:g}"
    return f"{low:g} or above" if high is None else f"from {low:g} to {high:g}"


def _slices(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the matrix of a cross, or one for each answer to the first of three questions."""
    if "slices" in table:
        for part in table["slices"]:
            yield from _slices(part)
        return
    first, second = table["first"], table["second"]
    yield {
        "given": "; ".join(f"{asked}: {value}" for asked, value in table["given"].items()),
        "matrix": _matrix(table, "first", "second", "row_share"),
        "test": independence_in_words(table),
        "turned_title": f"Groups by {second}, and the part of each that answered {first}",
        "turned": _matrix(table, "second", "first", "column_share"),
    }


def _matrix(table: Mapping[str, Any], down: str, across: str, share: str) -> Table:
    """Return a cross table with counts, shares of each row, and totals."""
    totals = table["totals"]
    cells = {(cell[down], cell[across]): cell for cell in table["table"]}
    rows = [
        TableRow(
            row, [*(_cell(cells[row, column], share) for column in totals[across]), _total(total)]
        )
        for row, total in totals[down].items()
    ]
    rows.append(TableRow("all", [*map(_total, totals[across].values()), Cell("", "")]))
    caption = (
        f"{table[down]} (rows) by {table[across]} (columns): people, and their share of the row"
    )
    return Table(caption, (table[down], *totals[across], "all"), rows)


def _interval(row: Mapping[str, Any]) -> str:
    return f"{round_low(row['low'])} to {round_high(row['high'])}"


def _cell(cell: Mapping[str, Any], kind: str) -> Cell:
    value, share = whole_number(cell["constrained"]), cell[kind]
    if share["value"] is None:
        return Cell(value, _interval(cell))
    shade = min(int(max(share["value"], 0.0) * _SHADES), _SHADES - 1)
    part = f"{percent(share['value'])} ({percent(share['low'])} to {percent(share['high'])})"
    return Cell(value, _interval(cell), part, shade)


def _total(numbers: Mapping[str, Any]) -> Cell:
    return Cell(whole_number(numbers["value"]), _interval(numbers))


def independence_in_words(table: Mapping[str, Any]) -> str:
    """Return the result of the test of independence, and which effect it would have seen."""
    test = table["independence"]
    degrees = test["degrees"]
    freedom = "one degree" if degrees == 1 else f"{degrees} degrees"
    return (
        "If the two were independent, a table at least this far from independence"
        f" would be seen with probability {text_up(test['p_value'], 3)} ({test['kind']} test,"
        f" {freedom} of freedom). {table['sensitivity']['in_words']}"
    )


def word_list(decoded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts that were found, most frequent first, and what they do not explain."""
    finds = [row for row in decoded["candidates"] if row["found"]]
    rows = [
        TableRow(
            row["value"],
            (
                whole_number(row["count"]),
                percent(row["count"] / decoded["reports"]),
                round_low(row["low"]),
                round_high(row["high"]),
            ),
            ", ".join(row.get("same_as", [])[:3]),
        )
        for row in finds[:_MAX_WORDS]
    ]
    caption = f"Texts found, with intervals at {percent(decoded['level'], 0)}"
    alike = [f"Hard to tell apart: {', '.join(group[:8])}." for group in decoded["alike"][:5]]
    return {
        "summary": f"{len(finds):,} of {len(decoded['candidates']):,} candidates were found. On"
        f" average at most {decoded['fdr'] * 100:g} % of the texts found are wrong"
        " (false-discovery rate).",
        "table": Table(caption, ("text", "people", "share", "low", "high"), rows),
        "cut": f"The first {_MAX_WORDS} are shown; the JSON has all of them."
        if len(finds) > _MAX_WORDS
        else "",
        "unexplained": f"Unexplained: {whole_number(decoded['unexplained'])} reports (sigma"
        f" {text_up(decoded['unexplained_sigma'], 3)}). These people answered another text, or"
        " nothing.",
        "notes": [*decoded["notes"], *alike],
    }


def trend_section(
    question: str, document: Mapping[str, Any], crowds: Sequence[str], id: str = "trend"
) -> dict[str, Any]:
    """Return how a question changed over crowds with the given names; `id` begins the ids."""
    options = document["questions"][question]
    rows = [
        TableRow(
            crowd,
            [
                Cell(
                    percent(rows[place]["constrained"]),
                    f"{percent(rows[place]['low'])} to {percent(rows[place]['high'])}",
                )
                for rows in options.values()
            ],
        )
        for place, crowd in enumerate(crowds)
    ]
    return {
        "id": id,
        "question": question,
        "simulated": document["simulated"],
        "about": f"{len(crowds)} crowds. With a probability of at least {level_in_words(document)},"
        " all intervals of this question contain their true shares at once, over all options and"
        " crowds. Lines are the shares that fit the question.",
        "charts": _charts(
            lambda width, **given: trend_chart(question, options, crowds, width, **given), id
        ),
        "table": Table("", ("crowd", *options), rows),
    }


def difference_sections(document: Mapping[str, Any], first: str, second: str) -> dict[str, Any]:
    """Return the difference of two crowds with the given names: the first minus the second."""
    about = (
        f"{first} minus {second}: differences of unbiased shares. With a probability of at least"
        f" {level_in_words(document)}, all intervals of a question contain their true differences"
        " at once."
    )
    questions = document["questions"].items()
    return {
        "about": about,
        "simulated": document["simulated"],
        "questions": [
            _difference(f"difference-{number}", name, rows)
            for number, (name, rows) in enumerate(questions, 1)
        ],
    }


def _difference(id: str, question: str, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    rows = [
        TableRow(
            label,
            (
                *(percent(row[key]) for key in ("first", "second")),
                *(signed_percent(row[key]) for key in ("difference", "low", "high")),
                "yes" if row["differs"] else "no clear change",
            ),
        )
        for label, row in options.items()
    ]
    heads = ("option", "first", "second", "difference", "low", "high", "differs")
    return {
        "id": id,
        "name": question,
        "charts": _charts(
            lambda width, **given: difference_chart(question, options, width, **given), id
        ),
        "table": Table("Shares, their difference and its exact interval", heads, rows),
    }
