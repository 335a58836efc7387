"""Decoded text as a ranked list: what was found, how often, and at which false-discovery rate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shoal.reports.markup import Markup, element
from shoal.reports.words import percent, whole_number
from shoal.support.rounding import text_near, text_up

__all__ = ["word_list"]

MOST_WORDS = 200
"""Texts that a page lists; the JSON has them all."""


def word_list(decoded: Mapping[str, Any], *, name: str) -> list[Markup]:
    """Return the texts that were found, most frequent first, and what they do not explain."""
    finds = [row for row in decoded["candidates"] if row["found"]]
    among, rate = len(decoded["candidates"]), text_near(decoded["fdr"])
    lede = (
        f"{len(finds):,} of {among:,} candidates were found. On average at most {percent_of(rate)}"
        " of the texts found are wrong (false-discovery rate)."
    )
    rest = (
        f"Unexplained: {whole_number(round(decoded['unexplained']))} reports (sigma"
        f" {text_up(decoded['unexplained_sigma'], 3)}). These people answered another text, or"
        " nothing."
    )
    alike = [f"Hard to tell apart: {', '.join(group[:8])}." for group in decoded["alike"][:5]]
    notes = [element("li", element("bdi", note)) for note in (*decoded["notes"], *alike)]
    parts = [element("p", lede)]
    if finds:
        parts.append(
            element(
                "div", _table(finds[:MOST_WORDS], decoded, name), class_="scroll", tabindex=0,
                role="group", aria_labelledby=name,
            )
        )  # fmt: skip
    if len(finds) > MOST_WORDS:
        parts.append(element("p", f"The first {MOST_WORDS} are shown; the JSON has all of them."))
    parts.append(element("p", rest))
    return [*parts, *([element("ul", *notes)] if notes else [])]


def percent_of(rate: str) -> str:
    """Return a probability in words of per cent.

    >>> percent_of("0.05")
    '5 %'
    """
    return f"{float(rate) * 100:g} %"


def _table(finds: list[Mapping[str, Any]], decoded: Mapping[str, Any], name: str) -> Markup:
    reports = decoded["reports"]
    body = []
    for rank, row in enumerate(finds, 1):
        words = [element("bdi", row["value"])]
        if row.get("same_as"):
            same = ", ".join(row["same_as"][:3])
            words.append(element("span", "or ", element("bdi", same), class_="misfit"))
        numbers = (
            whole_number(round(row["count"])),
            percent(row["count"] / reports),
            whole_number(math.floor(row["low"])),
            whole_number(math.ceil(row["high"])),
        )
        body.append(
            element(
                "tr",
                element("td", str(rank), class_="n"),
                element("th", *words, scope="row"),
                *(element("td", number, class_="n") for number in numbers),
            )
        )
    caption = f"Texts found, with intervals at {percent(decoded['level'], 0)}"
    heads = [
        element("th", "rank", scope="col", class_="n"),
        element("th", "text", scope="col"),
        *(
            element("th", head, scope="col", class_="n")
            for head in ("people", "share", "low", "high")
        ),
    ]
    return element(
        "table",
        element("caption", element("span", caption, id=name)),
        element("thead", element("tr", *heads)),
        element("tbody", *body),
    )
