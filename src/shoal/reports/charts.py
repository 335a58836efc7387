"""Unbiased estimates of one question: each option a dot on its interval, on one scale of shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from shoal.protocol.survey import Question
from shoal.reports.formatting import Figures, percent
from shoal.reports.svg import (
    LINE,
    PEN,
    dot,
    element,
    label,
    line,
    listed,
    picture,
    quiet_text,
    rectangle,
    rule,
    text_at,
    text_width,
    wrapped,
)

__all__ = ["BROAD", "WIDTHS", "Layout", "Scale", "chart"]

WIDTHS = {"wide": 768, "narrow": 328}
"""Widths of a picture on a screen and on a phone, by their class in the style sheet."""

BROAD = 560
"""The width from which labels stand beside bars, else above them."""

_BEYOND = 0.25
"""How far beyond 0 and 100 % the scale may reach; longer bars end in an arrow."""


class Scale(NamedTuple):
    """The shares that a page's charts show; always includes 0 to 1."""

    low: float
    high: float

    @classmethod
    def of(cls, estimates: Mapping[str, Any]) -> Scale:
        """Return the common scale of all questions."""
        rows = [row for options in estimates["questions"].values() for row in options.values()]
        reports = estimates["reports"]
        low = min((min(row["low"], row["count"]) for row in rows), default=0) / reports
        high = max((max(row["high"], row["count"]) for row in rows), default=0) / reports
        return cls(min(0.0, max(low, -_BEYOND)), max(1.0, min(high, 1 + _BEYOND)))


class Layout(NamedTuple):
    """Where things stand in every chart of a page, so that all of them have one scale.

    Shares go to x from `left` to `right`; `share` and `people` are the right edges of the numbers,
    `room` is for a label.
    """

    scale: Scale
    width: int
    beside: bool
    left: float
    right: float
    room: float
    share: float
    people: float

    @classmethod
    def of(cls, estimates: Mapping[str, Any], width: int) -> Layout:
        """Lay out charts `width` units wide."""
        reports = estimates["reports"]
        options = [
            (label, Figures.of(row, reports))
            for rows in estimates["questions"].values()
            for label, row in rows.items()
        ]
        counts = max([text_width("people"), *(text_width(one.people) for _, one in options)])
        shares = max((text_width(one.share) for _, one in options), default=0.0)
        share = round(width - counts - 16, 2)
        scale = Scale.of(estimates)
        if width < BROAD:
            return cls(scale, width, False, 8, width - 8, share - shares - 14, share, width)
        longest = max((text_width(label) for label, _ in options), default=0.0)
        left = round(min(longest + 20, 0.36 * width), 2)
        right = round(share - shares - 34, 2)
        return cls(scale, width, True, left, right, left - 18, share, width)

    def x(self, share: float) -> float:
        """Return the place of a share; the edge if it is beyond the picture."""
        low, high = self.scale
        inside = min(max(share, low), high)
        return round(self.left + (inside - low) / (high - low) * (self.right - self.left), 2)


def chart(
    question: Question,
    estimates: Mapping[str, Any],
    layout: Layout,
    *,
    name: str,
    class_: str | None = None,
    style: str | None = None,
) -> Markup:
    """Return the SVG of one question, from the JSON form of the estimates.

    `name` begins the ids in it. A `style` is for where there is no style sheet.
    """
    options, reports = estimates["questions"][question.name], estimates["reports"]
    figures = {label: Figures.of(row, reports) for label, row in options.items()}
    top = 30.0
    bottom = top + 6
    rows: list[Markup] = []
    strips: list[tuple[float, float]] = []
    for text, row in options.items():
        drawn, height = _option(text, row, figures[text], reports, layout, bottom)
        rows.append(drawn)
        bottom += height
        strips.append((bottom - 36, bottom - 6))
    bottom += 4
    if layout.beside:
        strips = [(top, bottom)]
    kind, level = estimates["interval"], percent(estimates["level"], 0)
    description = f"Estimates with {kind} intervals at {level}. " + listed(
        _sentence(text, one) for text, one in figures.items()
    )
    title = f"{question.name}: share of each option"
    return picture(layout.width, bottom, title, description, *_grid(layout, strips), *rows,
                   name=name, class_=class_, style=style)  # fmt: skip


def _sentence(label: str, one: Figures) -> str:
    return (
        f"{label}: {one.people} people, {one.share}, interval from {one.low} to {one.high} people"
    )


def _option(
    text: str, row: Mapping[str, Any], one: Figures, reports: int, layout: Layout, y: float
) -> tuple[Markup, float]:
    """Draw one option below `y` and return its height."""
    lines = wrapped(text, layout.room)
    if row.get("incompatible"):
        lines += wrapped("(no true count fits these reports)", layout.room)
    if layout.beside:
        height = max(34.0, LINE * len(lines) + 15)
        middle = at = y + height / 2
        first = middle - LINE * (len(lines) - 1) / 2
    else:
        height = LINE * len(lines) + 37
        middle = y + LINE * len(lines) + 13
        first = at = y + 9
    drawn = [
        element("title", _sentence(text, one)),
        *label(lines, 0, first),
        text_at(one.share, layout.share, at, text_anchor="end", font_weight=600),
        text_at(one.people, layout.people, at, text_anchor="end"),
        *_interval(row, reports, layout, middle),
    ]
    return element("g", *drawn), height


def _grid(layout: Layout, strips: list[tuple[float, float]]) -> list[Markup]:
    """Draw the scale where there are no words: lines at quarters, shades beyond 0 and 100 %."""
    drawn = []
    low, high = layout.scale
    for top, bottom in strips:
        for first, last in ((low, 0.0), (1.0, high)):
            if first != last:
                left, right = layout.x(first), layout.x(last)
                box = {"x": left, "y": f"{top:g}", "width": f"{right - left:g}"}
                drawn.append(element("rect", **box, height=f"{bottom - top:g}", opacity=0.06))
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            x = layout.x(share)
            drawn.append(rule(x, top, x, bottom, strong=share in (0.0, 1.0)))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0) if layout.beside else (0.0, 0.5, 1.0):
        x = min(max(layout.x(share), 16), layout.width - 20)  # all of it in the picture
        drawn.append(quiet_text(percent(share, 0), x, 12, "middle"))
    if layout.beside:
        drawn.append(quiet_text("share", layout.share, 12, "end"))
        drawn.append(quiet_text("people", layout.people, 12, "end"))
    return drawn


def _interval(row: Mapping[str, Any], reports: int, layout: Layout, y: float) -> list[Markup]:
    """Draw the bar of the interval, the dot of the estimate, the tick of the constrained count."""
    low, high, share = (row[key] / reports for key in ("low", "high", "count"))
    first, last = layout.x(low), layout.x(high)
    drawn = [
        rectangle(first, y - 4, round(max(last - first, 0.5), 2), 8, 0.3),
        _end(low < layout.scale.low, first, y, -1),
        _end(high > layout.scale.high, last, y, 1),
    ]
    at = layout.x(share)
    if layout.scale.low <= share <= layout.scale.high:
        drawn.append(dot(at, y))
    else:  # the estimate itself is beyond the picture
        back = at + 9 if share < 0 else at - 9
        points = f"{back:g},{y - 5.5:g} {at:g},{y:g} {back:g},{y + 5.5:g}"
        drawn.append(element("polygon", points=points, fill=PEN["stroke"], class_="accent"))
    tick = layout.x(row["constrained"] / reports)
    drawn.append(line(tick, y + 8, tick, y + 15, stroke="currentColor", stroke_width=2))
    return drawn


def _end(cut: bool, x: float, y: float, way: int) -> Markup:
    """Draw the end of a bar: a cap, or an arrow where it continues beyond the picture."""
    if not cut:
        return line(x, y - 6, x, y + 6, **PEN)
    points = f"{x - 7 * way:g},{y - 6:g} {x:g},{y:g} {x - 7 * way:g},{y + 6:g}"
    return element("polyline", points=points, **{**PEN, "fill": "none", "class_": "accent-line"})
