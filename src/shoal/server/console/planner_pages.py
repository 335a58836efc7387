"""The planner: what a survey would promise, how precise it would be, and what trust costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.reports.markup import Markup, element
from shoal.reports.observers import observers_table
from shoal.reports.sections import scrolling
from shoal.reports.words import flip_in_words
from shoal.server.console.forms import checkbox, field, post_form, select
from shoal.support.rounding import text_near, text_up

__all__ = ["planner_parts", "prospect_parts"]

_TRUST = {
    "local": "nobody",
    "reports": "that reports are anonymized before anybody sees them",
    "counts": "that nobody sees a report, only counts",
}
_COSTS = {
    "local": _TRUST["local"],
    "proven": _TRUST["reports"],
    "counts": _TRUST["counts"],
    "curator": "somebody who sees all answers (Laplace noise)",
    "curator_gaussian": "somebody who sees all answers (normal noise)",
}
_VIEWS = [
    ("reports", "reports: whoever sees all reports of a crowd"),
    ("counts", "counts: whoever sees only counts"),
]


def planner_parts(fields: Mapping[str, str], mistake: str | None = None) -> list[Markup]:
    """Return the form; `fields` are what it holds, `mistake` what was wrong with them."""

    def number(name: str, low: str, high: str, scale: str) -> Markup:
        limits = {"data_low": low, "data_high": high, "data_scale": scale}
        return element(
            "input", type="text", name=name, required="required", inputmode="decimal",
            value=fields[name], **limits,
        )  # fmt: skip

    survey = element("textarea", fields["survey"], name="survey", required="required",
                     spellcheck="false")  # fmt: skip
    told = [] if mistake is None else [
        element("p", element("bdi", mistake), class_="told refused", role="alert")
    ]  # fmt: skip
    return [
        element("p", "Nothing is stored or published here. The numbers are those of shoal plan,"
                " shoal audit and shoal compare."),
        *told,
        post_form(
            "/planner",
            field("Survey (TOML)", survey,
                  "kinds: yes/no, flags, choice, choices, number, text; [[cross]] crosses them"),
            element(
                "div",
                field("Crowd", number("crowd", "100", "10000000", "log"), "people in one release"),
                field("Epsilon", number("epsilon", "0.1", "10", "log")),
                field("Delta", number("delta", "1e-9", "1e-3", "log")),
                field("Group of interest", number("share", "0.001", "1", "log"),
                      "as a part of the crowd"),
                field("View", select("view", _VIEWS, fields["view"]),
                      "against whom the promise holds"),
                class_="grid",
            ),
            checkbox("compare", "yes",
                     "Also a trusted curator, and how many people are needed (takes longer)"),
            button="Compute",
        ),
    ]  # fmt: skip


def prospect_parts(document: Mapping[str, Any], may_add: bool) -> list[Markup]:
    """Return what a plan gives, from the document that the API answers."""
    plan = document["plan"]
    smallest = document["smallest_group"]
    facts = [
        ("Flips", f"q = {flip_in_words(document['q'])}", "How often a device flips a bit."),
        ("Precision", f"sigma {text_up(document['sigma'], 3)} people",
         "The standard deviation of every count, due to the flips."),
        ("Smallest group", f"about {smallest['people']:,} people",
         f"A group of this size is told from nobody at 95 % with probability {smallest['power']}"
         " (approximate)."),
        ("Local epsilon", text_up(document["local_epsilon"]),
         document["single_report"] or "What a single report reveals to whoever sees it."),
    ]  # fmt: skip
    listed = [
        element("div", element("dt", name), element("dd", value, class_="value"),
                element("dd", meaning, class_="meaning"))
        for name, value, meaning in facts
    ]  # fmt: skip
    crosses = [
        element("li", element("bdi", name), f", if all cells were equally large: {one['in_words']}")
        for name, one in document["crosses"].items()
        if one is not None
    ]  # fmt: skip
    text = json.dumps(plan, ensure_ascii=False)
    add = (
        [post_form("/drafts", element("input", type="hidden", name="plan", value=text),
                   button="Add this plan as a draft")]
        if may_add
        else []
    )  # fmt: skip
    observers = observers_table(document["observers"], "What holds against each observer")
    return [
        element("section", element("h2", "This plan", id="result"), element("dl", *listed),
                *([element("h3", "Cross tables"), element("ul", *crosses)] if crosses else [])),
        element("section", element("h2", "What each kind of trust would cost", id="trust"),
                scrolling(_views(document["views"]), "trust"), *_costs(document["compare"])),
        element("section", element("h2", "Who sees what", id="observers"),
                scrolling(observers, "observers")),
        element(
            "section",
            element("h2", "Take it along"),
            *add,
            element("details", element("summary", "The plan as JSON, for plan.json"),
                    element("textarea", text, readonly="readonly", aria_label="Plan as JSON")),
        ),
    ]  # fmt: skip


def _views(views: Mapping[str, Any]) -> Markup:
    """Return the noise of local, reports and counts side by side."""
    rows = []
    for kind, one in views.items():
        flips = "-" if one["q"] is None else f"q = {text_near(one['q'], 3)}"
        reach = f"\N{PLUS-MINUS SIGN} {_people(one['half_width'])}"
        cells = (_TRUST[kind], flips, _people(one["sigma"]), one["reason"] or reach)
        rows.append(
            element("tr", element("th", kind, scope="row"),
                    *(element("td", element("bdi", cell)) for cell in cells))
        )  # fmt: skip
    caption = "The same epsilon and delta. Interval: how far that of a count reaches at 95 %."
    return _table(caption, ("kind", "you trust", "flips", "sigma", "interval"), rows)


def _costs(compared: Mapping[str, Any] | None) -> list[Markup]:
    """Return what each kind of trust costs, if it was computed."""
    if compared is None:
        return []
    rows = []
    for kind, trust in _COSTS.items():
        cost = compared[kind]
        needed = cost["people_needed"]
        cells = (
            trust,
            _people(cost["sigma"]),
            _people(cost["half_width"]),
            "over 1e12" if needed is None else f"{needed:,}",
        )
        rows.append(
            element("tr", element("th", kind.replace("_", ", "), scope="row"),
                    *(element("td", cell) for cell in cells))
        )  # fmt: skip
    share = text_near(compared["share"], 3)
    within = text_near(compared["relative_error"], 3)
    caption = (
        f"{share} of all: how far the interval of a group of that size reaches. People needed: to"
        f" know that group within {within} of its size."
    )
    heads = ("kind", "you trust", "sigma", f"{share} of all", "people needed")
    return [
        element("h3", "With a curator, and people needed", id="costs"),
        scrolling(_table(caption, heads, rows), "costs"),
    ]


def _table(caption: str, heads: Sequence[str], rows: Sequence[Markup]) -> Markup:
    return element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *rows),
    )


def _people(number: float | None) -> str:
    return "-" if number is None else text_up(number, 3)
