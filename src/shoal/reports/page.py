"""One self-contained page: no request to anywhere, no script, readable without colour."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from shoal.analysis.crowds import in_crowds
from shoal.analysis.estimates import Estimates
from shoal.analysis.intervals import IntervalKind
from shoal.protocol.plan import Plan
from shoal.reports.charts import ACCENT, Layout, chart
from shoal.reports.markup import Markup, data_block, element
from shoal.reports.observers import observers_table
from shoal.reports.sections import (
    NARROW,
    WIDE,
    level_in_words,
    option_table,
    question_section,
)
from shoal.reports.words import (
    SIMULATED,
    facts,
    flip_in_words,
    one_crowd,
    release_note,
    sum_note,
)

__all__ = ["notebook_html", "page", "whole_page"]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_KINDS = {
    "exact": "Each interval contains the true count with at least this probability, whatever the"
    " true count is.",
    "normal": "Each interval is approximate: in large crowds it contains the true count with about"
    " this probability, in small ones sometimes with less.",
    "simultaneous": "With at least this probability, all intervals of a question contain their true"
    " counts at once.",
    "chebyshev": "Each interval contains the true count with at least this probability; it uses"
    " only sigma, so it is wide.",
}
_TARGETS = {
    "crowd": "the people who reported",
    "population": "the population of which the people who reported are a random sample",
}


def page(plan: Plan, document: Mapping[str, Any]) -> str:
    """Return the page of a publication, from its JSON form."""
    generator = element("meta", name="generator", content=f"Shoal {document['shoal']}")
    estimates = document["estimates"]
    layouts = {
        "wide": Layout.of(estimates, WIDE),
        "narrow": Layout.of(estimates, NARROW),
    }
    sections = [
        question_section(question, number, document, layouts)
        for number, question in enumerate(plan.survey, 1)
    ]
    main = element(
        "main", _opening(plan, document), *sections, _protection(plan, document),
        _cite(document), _footer(document), data_block(document, "publication"),
    )  # fmt: skip
    return whole_page(document["title"], main, generator)


def whole_page(title: str, main: Markup, *more: Markup) -> str:
    """Return a page in one file, which loads nothing; `more` goes into its head."""
    css = (files("shoal.reports") / "templates" / "page.css").read_text("utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="referrer", content="no-referrer"),
        *more,
        element("title", title),
        element("style", Markup(css)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{element("body", main)}</html>\n'


def notebook_html(
    estimates: Estimates,
    level: float = 0.95,
    interval: IntervalKind = "exact",
    document: Mapping[str, Any] | None = None,
) -> str:
    """Return charts and tables for a notebook: a piece of HTML with no style of its own."""
    numbers = estimates.to_json(level, interval) if document is None else document["estimates"]
    layout = Layout.of(numbers, WIDE)
    title = estimates.plan.survey.name if document is None else document["title"]
    kind = (
        f"{numbers['interval']} intervals at {level_in_words(numbers)}, for the {numbers['target']}"
    )
    parts = [
        element("p", element("strong", element("bdi", title)),
                f": {numbers['reports']:,} reports{in_crowds(numbers)}, {kind}")
    ]  # fmt: skip
    if numbers["simulated"]:
        parts.append(element("p", element("strong", SIMULATED)))
    for question in estimates.plan.survey:
        if question.name not in numbers["questions"]:
            continue  # the notes say what it takes
        name = (
            f"shoal-{estimates.plan.id[:8]}-{estimates.plan.survey.slice_of(question.name).start}"
        )
        parts += [
            element("p", element("strong", element("bdi", question.name))),
            chart(question, numbers, layout, name=name, style="max-width:100%;height:auto"),
            option_table(question, numbers),
        ]
    parts += [element("p", note) for note in numbers["notes"]]
    if document is not None:
        parts.append(element("p", document["promise"]["short"]))
    return element("div", *parts)


def _opening(plan: Plan, document: Mapping[str, Any]) -> Markup:
    estimates = document["estimates"]
    reports, count = estimates["reports"], len(plan.survey.questions)
    questions = "one question" if count == 1 else f"{count} questions"
    banner = (
        [element("p", SIMULATED, class_="banner", role="note")] if estimates["simulated"] else []
    )
    named = document["title"] != document["survey"]
    kicker = ["Survey ", element("bdi", document["survey"])] if named else ["Survey"]
    lede = (
        f"{questions.capitalize()}, {reports:,} reports{in_crowds(estimates)}. Every device flipped"
        f" each bit with probability {flip_in_words(float(plan.q))}; the counts are corrected"
        " for the flips."
    )
    about = (
        f"The bars are {estimates['interval']} intervals at {level_in_words(estimates)}, for"
        f" {_TARGETS[estimates['target']]}. {_KINDS[estimates['interval']]}"
    )
    return element(
        "header",
        element("p", *kicker, class_="kicker"),
        element("h1", element("bdi", document["title"])),
        element("p", lede, class_="lede"),
        *banner,
        element("p", about),
        *(element("p", note) for note in [*sum_note(estimates), *release_note(plan)]),
        _key(Layout.of(estimates, WIDE)),
    )


def _key(layout: Layout) -> Markup:
    """Explain the marks of the charts."""
    pen = {"stroke": ACCENT, "stroke_width": 2, "class_": "accent"}
    dot = element("circle", cx=20, cy=10, r=4.5, fill=ACCENT, class_="accent")
    bar = [
        element("rect", x=4, y=6, width=32, height=8, fill=ACCENT, opacity=0.3, class_="accent"),
        element("line", x1=4, y1=4, x2=4, y2=16, **pen),
        element("line", x1=36, y1=4, x2=36, y2=16, **pen),
    ]
    tick = element("line", x1=20, y1=6, x2=20, y2=14, stroke="currentColor", stroke_width=2)
    marks: list[tuple[list[Markup], str]] = [
        ([dot], "the estimate; unbiased, so it can be below 0 or above 100 %"),
        (bar, "its interval; an arrow means that it continues beyond the picture"),
        ([tick], "the nearest count that fits the question (constrained)"),
    ]
    if layout.scale != (0.0, 1.0):
        shade = element("rect", x=4, y=2, width=32, height=16, fill="currentColor", opacity=0.1)
        marks.append(([shade], "below 0 or above 100 %"))
    items = [
        element(
            "li",
            element("svg", *drawn, width=40, height=20, viewBox="0 0 40 20", aria_hidden="true"),
            element("span", text),
        )
        for drawn, text in marks
    ]
    return element("ul", *items, class_="key", aria_label="How to read the charts")


def _protection(plan: Plan, document: Mapping[str, Any]) -> Markup:
    promise, reports = document["promise"], document["estimates"]["reports"]
    listed = [
        element(
            "div",
            element("dt", fact.name),
            element("dd", fact.value, class_="value"),
            element("dd", fact.meaning, class_="meaning"),
        )
        for fact in facts(plan, document["certificate"], reports, promise["sum"])
    ]
    held = "promise" if promise["guarantee"] else "promise not-a-guarantee"
    return element(
        "section",
        element("h2", "How one person's answer is protected", id="protection"),
        element("p", promise["short"], class_=held),
        element("p", promise["plain"]),
        *_observers(document),
        element("h3", "In numbers"),
        element("dl", *listed),
        element("h3", "What the promise assumes"),
        element("ul", *(element("li", text) for text in promise["assumptions"])),
        aria_labelledby="protection",
    )


def _observers(document: Mapping[str, Any]) -> list[Markup]:
    """Return the table of who sees what, where there is a certificate."""
    if document["certificate"] is None:
        return []
    caption = "What holds against each observer" + one_crowd(document["promise"]["sum"])
    table = observers_table(document["certificate"]["observers"], caption)
    return [
        element("h3", "Who sees what", id="observers"),
        element(
            "div", table, class_="scroll", tabindex=0, role="group", aria_labelledby="observers"
        ),
    ]


def _cite(document: Mapping[str, Any]) -> Markup:
    return element(
        "section",
        element("h2", "How to cite this", id="cite"),
        element("blockquote", element("bdi", document["citation"])),
        aria_labelledby="cite",
    )


def _footer(document: Mapping[str, Any]) -> Markup:
    text = (
        f"Made with Shoal {document['shoal']}. This page loads nothing from anywhere. Its numbers,"
        " unrounded, with the plan and the certificate, are in its source as JSON, in the element"
        " with the id \N{LEFT DOUBLE QUOTATION MARK}publication\N{RIGHT DOUBLE QUOTATION MARK}."
    )
    return element("footer", element("p", text))
