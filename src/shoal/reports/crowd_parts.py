"""What a page says of one crowd, of several over time, and of two.

It is the same in the console and in the files that `shoal look` writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.protocol.plan import Plan
from shoal.reports.charts import Layout
from shoal.reports.lines import difference_chart, signed_percent, trend_chart
from shoal.reports.markup import Markup, element
from shoal.reports.sections import (
    NARROW,
    WIDE,
    level_in_words,
    question_section,
    scrolling,
)
from shoal.reports.words import SIMULATED, percent, release_note, sum_note

__all__ = ["crowd_parts", "difference_parts", "screening_parts", "trend_parts"]

_WIDTHS = {"wide": WIDE, "narrow": NARROW}


def crowd_parts(plan: Plan, document: Mapping[str, Any]) -> list[Markup]:
    """Return the sections of one crowd: its questions, each in the form of its kind."""
    estimates = document["estimates"]
    layouts = {kind: Layout.of(estimates, width) for kind, width in _WIDTHS.items()}
    notes = [*sum_note(estimates), *release_note(plan)]
    if estimates["simulated"]:
        notes = [SIMULATED, *notes]
    sections = [
        question_section(question, number, document, layouts)
        for number, question in enumerate(plan.survey, 1)
    ]
    return [*(element("p", note) for note in notes), *sections]


def screening_parts(screening: Mapping[str, Any]) -> list[Markup]:
    """Return what was seen of fake reports."""
    findings = [element("li", text) for text in screening["findings"]]
    return [
        element(
            "section",
            element("h2", "Traces of fake reports", id="screening"),
            element("ul", *findings),
            aria_labelledby="screening",
        )
    ]


def trend_parts(
    question: str, document: Mapping[str, Any], crowds: Sequence[str], place: str = "trend"
) -> list[Markup]:
    """Return how a question changed over crowds, whose names are given; `place` makes the ids."""
    options = document["questions"][question]
    charts = [
        trend_chart(question, options, crowds, width, name=f"{place}-{kind}", class_=kind)
        for kind, width in _WIDTHS.items()
    ]
    about = (
        f"{len(crowds)} crowds. With a probability of at least {level_in_words(document)}, all"
        " intervals of this question contain their true shares at once, over all options and"
        " crowds. Lines are the shares that fit the question."
    )
    return [
        element("p", about),
        *_banner(document),
        element("figure", *charts),
        scrolling(_trend_table(question, options, crowds, f"{place}-table"), f"{place}-table"),
    ]


def _trend_table(
    question: str,
    options: Mapping[str, Sequence[Mapping[str, float]]],
    crowds: Sequence[str],
    name: str,
) -> Markup:
    heads = [element("th", element("bdi", label), scope="col", class_="n") for label in options]
    body = []
    for place, crowd in enumerate(crowds):
        cells = []
        for rows in options.values():
            row = rows[place]
            between = f"{percent(row['low'])} to {percent(row['high'])}"
            shown = element("strong", percent(row["constrained"]))
            cells.append(element("td", shown, element("span", between, class_="quiet"), class_="n"))
        body.append(element("tr", element("th", element("bdi", crowd), scope="row"), *cells))
    caption = ["Share of each option of ", element("bdi", question), ", with its interval"]
    return element(
        "table",
        element("caption", element("span", *caption, id=name)),
        element("thead", element("tr", element("th", "crowd", scope="col"), *heads)),
        element("tbody", *body),
        class_="matrix",
    )


def difference_parts(document: Mapping[str, Any], first: str, second: str) -> list[Markup]:
    """Return how two crowds, whose names are given, differ: the first minus the second."""
    about = (
        f"{first} minus {second}: differences of unbiased shares. With a probability of at least"
        f" {level_in_words(document)}, all intervals of a question contain their true differences"
        " at once."
    )
    parts = [element("p", element("bdi", about)), *_banner(document)]
    for number, (question, rows) in enumerate(document["questions"].items(), 1):
        name = f"difference-{number}"
        charts = [
            difference_chart(question, rows, width, name=f"{name}-{kind}", class_=kind)
            for kind, width in _WIDTHS.items()
        ]
        parts.append(
            element(
                "section",
                element("h2", element("bdi", question), id=name),
                element("figure", *charts),
                scrolling(_difference_table(rows), name),
                aria_labelledby=name,
            )
        )
    return parts


def _difference_table(rows: Mapping[str, Mapping[str, Any]]) -> Markup:
    body = []
    for label, row in rows.items():
        cells = (
            percent(row["first"]),
            percent(row["second"]),
            signed_percent(row["difference"]),
            signed_percent(row["low"]),
            signed_percent(row["high"]),
            "yes" if row["differs"] else "not shown",
        )
        body.append(
            element(
                "tr",
                element("th", element("bdi", label), scope="row"),
                *(element("td", cell, class_="n") for cell in cells),
            )
        )
    names = ("first", "second", "difference", "low", "high", "differs")
    heads = [element("th", name, scope="col", class_="n") for name in names]
    return element(
        "table",
        element("caption", element("span", "Shares, their difference and its exact interval")),
        element("thead", element("tr", element("th", "option", scope="col"), *heads)),
        element("tbody", *body),
    )


def _banner(document: Mapping[str, Any]) -> list[Markup]:
    if not document["simulated"]:
        return []
    return [element("p", SIMULATED, class_="banner", role="note")]
