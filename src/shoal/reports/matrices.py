"""A cross table for people: rows and columns with counts and shares, totals and the test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shoal.reports.markup import Markup, element
from shoal.reports.words import percent, whole_number
from shoal.support.rounding import text_up

__all__ = ["matrix", "test_in_words"]

_SHADES = 8
"""Steps from a share of nothing to everything, each a class of the style sheet."""


def matrix(table: Mapping[str, Any], *, name: str) -> list[Markup]:
    """Return the tables of a cross: one, or one for each answer to the first of three questions."""
    drawn: list[Markup] = []
    for number, part in enumerate(_slices(table)):
        place = f"{name}-{number}"
        given = "; ".join(f"{asked}: {value}" for asked, value in part["given"].items())
        if given:
            drawn.append(element("h3", element("bdi", given)))
        drawn.append(_scrolling(part, place))
        drawn.append(element("p", test_in_words(part)))
        groups = f"Groups by {part['second']}, and the part of each that answered {part['first']}"
        turned = _scrolling(_turned(part), f"{place}-turned")
        drawn.append(element("details", element("summary", element("bdi", groups)), turned))
    return drawn


def _scrolling(table: Mapping[str, Any], place: str) -> Markup:
    return element(
        "div", _matrix(table, place), class_="scroll", tabindex=0, role="group",
        aria_labelledby=place,
    )  # fmt: skip


def _turned(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with rows for columns: a group is an answer to the second question."""
    names = {"first": "second", "second": "first"}
    turned = {name: table[other] for name, other in names.items()}
    totals = {name: table["totals"][other] for name, other in names.items()}
    cells = [
        {**cell, **{name: cell[other] for name, other in names.items()}}
        | {"row_share": cell["column_share"], "column_share": cell["row_share"]}
        for cell in table["table"]
    ]
    return {**table, **turned, "totals": totals, "table": cells}


def _slices(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "slices" not in table:
        yield table
        return
    for part in table["slices"]:
        yield from _slices(part)


def _matrix(table: Mapping[str, Any], name: str) -> Markup:
    rows, columns = (list(table["totals"][side]) for side in ("first", "second"))
    cells = {(cell["first"], cell["second"]): cell for cell in table["table"]}
    first, second = table["first"], table["second"]
    caption = f"{first} (rows) by {second} (columns): people, and their share of the row"
    heads = [
        element("th", element("bdi", text), scope="col", class_="n") for text in (*columns, "all")
    ]
    body = []
    for row in rows:
        shown = [_cell(cells[row, column]) for column in columns]
        body.append(
            element(
                "tr",
                element("th", element("bdi", row), scope="row"),
                *shown,
                _total(table["totals"]["first"][row]),
            )
        )
    sums = [_total(table["totals"]["second"][column]) for column in columns]
    corner = element("th", element("bdi", first), scope="col")
    foot = element("tr", element("th", "all", scope="row"), *sums, element("td", class_="n"))
    return element(
        "table",
        element("caption", element("span", caption, id=name)),
        element("thead", element("tr", corner, *heads)),
        element("tbody", *body, foot),
        class_="matrix",
    )


def _cell(cell: Mapping[str, Any]) -> Markup:
    share, people = cell["row_share"], whole_number(round(cell["constrained"]))
    between = f"{_floor(cell['low'])} to {_ceiling(cell['high'])}"
    if share["value"] is None:
        return element("td", people, element("span", between, class_="quiet"), class_="n")
    shade = min(int(max(share["value"], 0.0) * _SHADES), _SHADES - 1)
    part = f"{percent(share['value'])} ({percent(share['low'])} to {percent(share['high'])})"
    return element(
        "td",
        element("strong", people),
        element("span", between, class_="quiet"),
        element("span", part),
        class_=f"n shade-{shade}",
    )


def _total(numbers: Mapping[str, Any]) -> Markup:
    between = f"{_floor(numbers['low'])} to {_ceiling(numbers['high'])}"
    people = whole_number(round(numbers["value"]))
    return element("td", people, element("span", between, class_="quiet"), class_="n")


def _floor(number: float) -> str:
    return whole_number(math.floor(number))


def _ceiling(number: float) -> str:
    return whole_number(math.ceil(number))


def test_in_words(table: Mapping[str, Any]) -> str:
    """Return what the test of independence says, and which effect it would have seen."""
    test = table["independence"]
    degrees = test["degrees"]
    freedom = "one degree" if degrees == 1 else f"{degrees} degrees"
    return (
        "If the two had nothing to do with each other, a table at least this far from independence"
        f" would be seen with probability {text_up(test['p_value'], 3)} ({test['kind']} test,"
        f" {freedom} of freedom). {table['sensitivity']['in_words']}"
    )
