"""Who sees what, as a table for people: the observers of a certificate, on pages and in Markdown.

The rows are those of `shoal.planning.threats`, whichever they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.reports.markup import Markup, element
from shoal.support.rounding import text_up

__all__ = ["HEADS", "observers_markdown", "observers_table", "what_holds"]

HEADS = ("who", "what they see", "what holds", "in words")


def what_holds(observer: Mapping[str, Any]) -> str:
    """Return what holds against an observer, rounded up.

    >>> what_holds({"epsilon": 1.0, "delta": 9.87654e-7, "holds": "theorem"})
    'epsilon 1, delta 9.88e-7 (theorem)'
    >>> what_holds({"epsilon": 23.0, "delta": 0.0, "holds": "local"})
    'epsilon 23 (local)'
    """
    delta = f", delta {text_up(observer['delta'], 3)}" if observer["delta"] else ""
    return f"epsilon {text_up(observer['epsilon'])}{delta} ({observer['holds']})"


def _rows(observers: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(one["who"], one["sees"], what_holds(one), one["assumption"]) for one in observers]


def observers_table(observers: Iterable[Mapping[str, Any]], caption: str) -> Markup:
    """Return the observers of a certificate's JSON as an HTML table."""
    body = [
        element("tr", element("th", who, scope="row"), *(element("td", cell) for cell in cells))
        for who, *cells in _rows(observers)
    ]
    return element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *(element("th", head, scope="col") for head in HEADS))),
        element("tbody", *body),
        class_="observers",
    )


def observers_markdown(observers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the same table as lines of Markdown."""
    lines = [HEADS, ("---",) * len(HEADS), *_rows(observers)]
    return [f"| {' | '.join(cells)} |" for cells in lines]
