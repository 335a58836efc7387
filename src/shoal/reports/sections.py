"""One question on a page, in the form that fits its kind.

Flags and other questions with several answers show the unbiased estimates. Where everybody has
exactly one answer, the shares add to 100 %, and the unbiased estimates are one click away. Numbers
have a histogram, their mean and quantiles; crosses a matrix with a test; text a ranked list, if
somebody decoded it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.protocol.survey import Question
from shoal.reports.bars import bar_chart, histogram
from shoal.reports.charts import Layout, chart
from shoal.reports.markup import Markup, element
from shoal.reports.matrices import matrix
from shoal.reports.shares import whole_shares
from shoal.reports.tables import NUMBERS
from shoal.reports.word_lists import word_list
from shoal.reports.words import Figures, count_unit, percent, possible_answers
from shoal.support.rounding import text_near

__all__ = ["NARROW", "WIDE", "level_in_words", "option_table", "question_section", "scrolling"]

WIDE, NARROW = 768, 328
"""Widths of a picture beside text on a screen, and on a phone."""

_WIDTHS = {"wide": WIDE, "narrow": NARROW}


def level_in_words(estimates: Mapping[str, Any]) -> str:
    """Return the confidence level as people read it."""
    return f"{estimates['level'] * 100:.6g}\N{NARROW NO-BREAK SPACE}%"


def scrolling(table: Markup, name: str) -> Markup:
    """Return a table that scrolls by itself where the screen is narrow; `name` labels it."""
    return element("div", table, class_="scroll", tabindex=0, role="group", aria_labelledby=name)


def question_section(
    question: Question, number: int, document: Mapping[str, Any], layouts: Mapping[str, Layout]
) -> Markup:
    """Return the section of a question, from the JSON of a publication; `number` makes its ids."""
    name, estimates = f"question-{number}", document["estimates"]
    opening = [
        element("h2", element("bdi", question.name), id=name),
        element("p", possible_answers(question), class_="quiet"),
    ]
    if question.kind == "text":
        decoded = document["texts"].get(question.name)
        body = [] if decoded is None else word_list(decoded, name=f"{name}-list")
    elif question.name in document["crosses"]:
        body = [
            *matrix(document["crosses"][question.name], name=f"{name}-matrix"),
            _unconstrained(question, name, estimates, layouts),
        ]
    elif question.takes_one:
        body = [
            *_whole(question, name, document),
            _unconstrained(question, name, estimates, layouts),
        ]
    else:
        body = _unbiased(question, name, estimates, layouts)
    return element("section", *opening, *body, aria_labelledby=name)


def _unbiased(
    question: Question, name: str, estimates: Mapping[str, Any], layouts: Mapping[str, Layout]
) -> list[Markup]:
    charts = [
        chart(question, estimates, layout, name=f"{name}-{kind}", class_=kind)
        for kind, layout in layouts.items()
    ]
    return [
        element("figure", *charts),
        scrolling(option_table(question, estimates), name),
    ]


def _unconstrained(
    question: Question, name: str, estimates: Mapping[str, Any], layouts: Mapping[str, Layout]
) -> Markup:
    """Return the unbiased estimates, folded."""
    text = "Unconstrained estimates: unbiased, so they need not add to 100 %"
    return element(
        "details", element("summary", text), *_unbiased(question, name, estimates, layouts)
    )


def _whole(question: Question, name: str, document: Mapping[str, Any]) -> list[Markup]:
    """Return a question with one answer as shares that add to 100 %."""
    estimates = document["estimates"]
    draw = histogram if question.kind == "number" else bar_chart
    charts = [
        draw(question, estimates, width, name=f"{name}-shares-{kind}", class_=kind)
        for kind, width in _WIDTHS.items()
    ]
    parts = [element("figure", *charts)]
    if question.name in document["numbers"]:
        parts += _numbers(document["numbers"][question.name])
    return [*parts, scrolling(_share_table(question, estimates), name)]


def _share_table(question: Question, estimates: Mapping[str, Any]) -> Markup:
    rows, reports = estimates["questions"][question.name], estimates["reports"]
    shares = whole_shares(rows, reports)
    body = []
    for label, row in rows.items():
        figures = Figures.of(row, reports)
        cells = (shares[label], figures.constrained, figures.low, figures.high)
        body.append(
            element(
                "tr",
                element("th", element("bdi", label), *_misfit(row), scope="row"),
                *(element("td", cell, class_="n") for cell in cells),
            )
        )
    caption = (
        f"Shares that add to 100 %, {count_unit(estimates)}, and {estimates['interval']} intervals"
        f" of the true count at {level_in_words(estimates)}"
    )
    heads = ("share", count_unit(estimates), "low", "high")
    return element(
        "table",
        element("caption", element("span", caption)),
        element(
            "thead",
            element(
                "tr",
                element("th", "option", scope="col"),
                *(element("th", head, scope="col", class_="n") for head in heads),
            ),
        ),
        element("tbody", *body),
    )


def option_table(question: Question, estimates: Mapping[str, Any]) -> Markup:
    """Return the unbiased estimates of a question as a table."""
    reports = estimates["reports"]
    body = []
    for label, row in estimates["questions"][question.name].items():
        cells = [
            element("td", element("data", text, value=repr(float(row[name]))), class_="n")
            for name, text in zip(NUMBERS, Figures.of(row, reports), strict=True)
        ]
        head = element("th", element("bdi", label), *_misfit(row), scope="row")
        body.append(element("tr", head, *cells))
    caption = (
        f"Counts of {count_unit(estimates)} with their standard deviation (sigma) and"
        f" {estimates['interval']} interval at {level_in_words(estimates)}"
    )
    heads = [element("th", name, scope="col", class_="n") for name in NUMBERS]
    return element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", element("th", "option", scope="col"), *heads)),
        element("tbody", *body),
    )


def _misfit(row: Mapping[str, Any]) -> list[Markup]:
    if not row.get("incompatible"):
        return []
    return [element("span", "no true count fits these reports", class_="misfit")]


def _numbers(summary: Mapping[str, Any]) -> list[Markup]:
    """Return mean and quantiles of a number, as a list of facts."""
    facts = []
    mean = summary["mean"]
    if mean is not None:
        low, high = text_near(mean["low"]), text_near(mean["high"])
        meaning = (
            f"between {low} and {high} at {percent(summary['level'], 0)} (approximate), wherever"
            " the numbers are in their ranges; those beyond the outer edges count as the edges"
        )
        facts.append(("Mean", f"about {text_near(mean['value'], 3)}", meaning))
    for one in summary["quantiles"]:
        name = "Median" if one["part"] == 0.5 else f"{percent(one['part'], 0)} are below"
        facts.append((name, one["label"], f"{_between(one)} at {percent(one['level'], 0)}"))
    listed = [
        element(
            "div",
            element("dt", name),
            element("dd", value, class_="value"),
            element("dd", meaning, class_="meaning"),
        )
        for name, value, meaning in facts
    ]
    return [element("dl", *listed)]


def _between(quantile: Mapping[str, Any]) -> str:
    low, high = quantile["low"], quantile["high"]
    if low is None and high is None:
        return "anywhere"
    if low is None:
        return f"below {high:g}"
    return f"{low:g} or above" if high is None else f"from {low:g} to {high:g}"
