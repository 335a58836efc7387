"""Questions with one answer as bars: options as lines of a list, ranges of numbers as a histogram.

A bar is the constrained share, so that all bars together are everybody. The line across its end is
the interval of the true share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.protocol.survey import Question
from shoal.reports.charts import (
    ACCENT,
    FONT,
    LINE,
    SIZE,
    line,
    text_at,
    text_width,
    wrapped,
)
from shoal.reports.markup import Markup, element
from shoal.reports.shares import whole_shares
from shoal.reports.words import percent

__all__ = ["bar_chart", "histogram", "picture"]

_MOST_COLUMNS = 40
"""Ranges that a histogram shows as columns; more of them are shown as a list."""


def picture(
    width: int, height: float, title: str, description: str, *drawn: Markup, name: str, class_: str
) -> Markup:
    """Return an SVG with its title and its description for those who do not see it."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-text"),
        *drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height:g}",
        width=width,
        height=f"{height:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-text",
        class_=class_,
        font_family=FONT,
        font_size=f"{SIZE:g}",
        fill="currentColor",
    )


def _described(estimates: Mapping[str, Any], shares: Mapping[str, str]) -> str:
    level = percent(estimates["level"], 0)
    listed = [f"{label}: {share}" for label, share in list(shares.items())[:40]]
    more = f"; and {len(shares) - 40} more, see the table" if len(shares) > 40 else ""
    return (
        f"Shares that add to 100 %, with {estimates['interval']} intervals at {level}. "
        + "; ".join(listed)
        + more
        + "."
    )


def _limits(row: Mapping[str, Any], reports: int, most: float) -> tuple[float, float]:
    low, high = row["low"] / reports, row["high"] / reports
    return min(max(low, 0.0), most), min(max(high, 0.0), most)


def _most(rows: Mapping[str, Mapping[str, Any]], reports: int) -> float:
    """Return the end of the scale: a share with one digit that every bar and interval is below."""
    largest = max(max(row["constrained"], row["high"]) for row in rows.values()) / reports
    for end in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8):
        if largest <= end:
            return end
    return 1.0


def bar_chart(
    question: Question, estimates: Mapping[str, Any], width: int, *, name: str, class_: str
) -> Markup:
    """Return a bar for each option of a question with one answer."""
    rows, reports = estimates["questions"][question.name], estimates["reports"]
    shares, most = whole_shares(rows, reports), _most(rows, reports)
    value = max(text_width(share) for share in shares.values()) + 6
    beside = width >= 560
    left = round(min(max(map(text_width, rows)) + 16, 0.36 * width), 2) if beside else 0.0
    right = width - value
    drawn: list[Markup] = []
    y = 26.0

    def x(share: float) -> float:
        return round(left + share / most * (right - left - 6), 2)

    for label, row in rows.items():
        lines = wrapped(label, left - 12 if beside else right)
        height = max(30.0, LINE * len(lines) + 10) if beside else LINE * len(lines) + 28
        middle = y + height / 2 if beside else y + LINE * len(lines) + 11
        first = middle - LINE * (len(lines) - 1) / 2 if beside else y + 8
        low, high = _limits(row, reports, most)
        at = x(min(row["constrained"] / reports, most))
        said = f"{label}: {shares[label]}, interval from {percent(low)} to {percent(high)}"
        drawn.append(
            element(
                "g",
                element("title", said),
                *(
                    text_at(text, 0, first + LINE * place, unicode_bidi="isolate")
                    for place, text in enumerate(lines)
                ),
                _bar(left, middle - 8, max(at - left, 0.5), 16),
                *_whisker(x(low), middle, x(high), middle),
                text_at(shares[label], width, middle, text_anchor="end", font_weight=600),
            )
        )
        y += height
    grid = _grid_x(x, most, 18, y)
    title = f"{question.name}: shares that add to 100 %"
    return picture(
        width, y + 4, title, _described(estimates, shares), *grid, *drawn, name=name, class_=class_
    )


def histogram(
    question: Question, estimates: Mapping[str, Any], width: int, *, name: str, class_: str
) -> Markup:
    """Return a column for each range of a number; as a list of bars where there are too many."""
    rows, reports = estimates["questions"][question.name], estimates["reports"]
    if len(rows) > _MOST_COLUMNS or width < 24 * len(rows):
        return bar_chart(question, estimates, width, name=name, class_=class_)
    shares, most = whole_shares(rows, reports), _most(rows, reports)
    left, top, bottom = 46.0, 12.0, 222.0
    step = (width - left) / len(rows)

    def y(share: float) -> float:
        return round(bottom - share / most * (bottom - top), 2)

    drawn: list[Markup] = []
    for part in (0.0, 0.5, 1.0):
        at, strength = y(part * most), 0.45 if part == 0 else 0.16
        drawn.append(line(left, at, width, at, stroke="currentColor", opacity=strength))
        drawn.append(
            text_at(percent(part * most, 1 if most < 0.1 else 0), left - 6, at, text_anchor="end",
                    opacity=0.8, font_size="12.5")
        )  # fmt: skip
    deepest = 0.0
    for place, (label, row) in enumerate(rows.items()):
        middle = left + (place + 0.5) * step
        low, high = _limits(row, reports, most)
        height = bottom - y(min(row["constrained"] / reports, most))
        words = wrapped(_short(label), step - 4, 5) if step >= 44 else []
        deepest = max(deepest, LINE * len(words))
        said = f"{label}: {shares[label]}, interval from {percent(low)} to {percent(high)}"
        drawn.append(
            element(
                "g",
                element("title", said),
                _bar(middle - 0.42 * step, bottom - height, 0.84 * step, max(height, 0.5)),
                *_whisker(middle, y(low), middle, y(high)),
                *(
                    text_at(word, middle, bottom + 14 + LINE * number, text_anchor="middle",
                            font_size="12.5")
                    for number, word in enumerate(words)
                ),
            )
        )  # fmt: skip
    if not deepest:
        ends = list(rows)
        drawn += [
            text_at(_short(ends[0]), left, bottom + 14, font_size="12.5"),
            text_at(_short(ends[-1]), width, bottom + 14, text_anchor="end", font_size="12.5"),
        ]
    title = f"{question.name}: histogram, shares that add to 100 %"
    height = bottom + 14 + max(deepest, LINE)
    return picture(
        width, height, title, _described(estimates, shares), *drawn, name=name, class_=class_
    )


def _short(label: str) -> str:
    """Return a range in fewer words.

    >>> _short("18 to below 35")
    '18–35'
    """
    return label.replace(" to below ", "\N{EN DASH}")


def _bar(x: float, y: float, width: float, height: float) -> Markup:
    sizes = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return element("rect", **sizes, fill=ACCENT, opacity=0.35, class_="accent")


def _whisker(x1: float, y1: float, x2: float, y2: float) -> list[Markup]:
    """Draw an interval: a line with a cap at each end."""
    pen = {"stroke": "currentColor", "stroke_width": 1.5}
    across, down = (0.0, 5.0) if y1 == y2 else (5.0, 0.0)
    return [
        line(x1, y1, x2, y2, **pen),
        *(line(x - across, y - down, x + across, y + down, **pen) for x, y in ((x1, y1), (x2, y2))),
    ]


def _grid_x(x: Any, most: float, top: float, bottom: float) -> list[Markup]:
    drawn = []
    for part in (0.0, 0.5, 1.0):
        at, strength = x(part * most), 0.45 if part == 0 else 0.16
        drawn.append(line(at, top, at, bottom, stroke="currentColor", opacity=strength))
        anchor = "start" if part == 0 else "end" if part == 1 else "middle"
        text = percent(part * most, 1 if most < 0.1 else 0)
        drawn.append(text_at(text, at, 8, text_anchor=anchor, opacity=0.8, font_size="12.5"))
    return drawn
