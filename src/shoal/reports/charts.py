"""One question as a picture: each option a dot on its interval, all on one scale of shares.

The SVG is made by hand and stands alone: its colours are attributes that a page's style may
override by class, its words are escaped text, and lines are broken by estimated widths, since the
reader's fonts are not known here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from shoal.protocol.survey import Question
from shoal.reports.markup import Markup, element
from shoal.reports.words import Figures, percent

__all__ = ["Layout", "Scale", "chart", "line", "text_at", "text_width", "wrapped"]

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
ACCENT = "#1f6f9f"
SIZE, LINE = 14.0, 19.0
_BEYOND = 0.25
"""How far beyond nobody and everybody the scale may reach; longer bars end in an arrow."""

_DESCRIBED = 40
"""Options that the description for screen readers lists; the table has them all."""


class Scale(NamedTuple):
    """The shares that a page's charts show, from `low` to `high`; always 0 to 1 among them."""

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
        """Lay out charts `width` units wide; from 560 on labels stand beside bars, else above."""
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
        if width < 560:
            return cls(scale, width, False, 8, width - 8, share - shares - 14, share, width)
        longest = max((text_width(label) for label, _ in options), default=0.0)
        left = round(min(longest + 20, 0.36 * width), 2)
        right = round(share - shares - 34, 2)
        return cls(scale, width, True, left, right, left - 18, share, width)

    def x(self, share: float) -> float:
        """Return where a share stands, at the edge if it is beyond the picture."""
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
    for label, row in options.items():
        drawn, height = _option(label, row, figures[label], reports, layout, bottom)
        rows.append(drawn)
        bottom += height
        strips.append((bottom - 36, bottom - 6))
    bottom += 4
    if layout.beside:
        strips = [(top, bottom)]
    title = element("title", f"{question.name}: share of each option", id=f"{name}-title")
    description = element("desc", _description(figures, estimates), id=f"{name}-text")
    return element(
        "svg",
        title,
        description,
        *_grid(layout, strips),
        *rows,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {layout.width} {bottom:g}",
        width=layout.width,
        height=f"{bottom:g}",
        role="img",
        aria_labelledby=f"{name}-title {name}-text",
        class_=class_,
        style=style,
        font_family=FONT,
        font_size=f"{SIZE:g}",
        fill="currentColor",
    )


def _option(
    label: str, row: Mapping[str, Any], one: Figures, reports: int, layout: Layout, y: float
) -> tuple[Markup, float]:
    """Draw one option below `y`, and say how high it is."""
    lines = wrapped(label, layout.room)
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
    texts = [
        text_at(piece, 0, first + LINE * number, unicode_bidi="isolate")
        for number, piece in enumerate(lines)
    ]
    values = [
        text_at(one.share, layout.share, at, text_anchor="end", font_weight=600),
        text_at(one.people, layout.people, at, text_anchor="end"),
    ]
    title = element("title", _sentence(label, one))
    drawn = _interval(row, reports, layout, middle)
    return element("g", title, *texts, *values, *drawn), height


def _grid(layout: Layout, strips: list[tuple[float, float]]) -> list[Markup]:
    """Draw the scale: lines at quarters, nobody and everybody stronger, what is beyond shaded.

    It is drawn where no words stand: in one piece beside the labels, in strips below them.
    """
    drawn = []
    low, high = layout.scale
    for top, bottom in strips:
        for first, last in ((low, 0.0), (1.0, high)):
            if first != last:
                left, right = layout.x(first), layout.x(last)
                box = {"x": left, "y": f"{top:g}", "width": f"{right - left:g}"}
                drawn.append(element("rect", **box, height=f"{bottom - top:g}", opacity=0.06))
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            x, strength = layout.x(share), 0.45 if share in (0.0, 1.0) else 0.16
            drawn.append(line(x, top, x, bottom, stroke="currentColor", opacity=strength))
    quiet: dict[str, object] = {"opacity": 0.7, "font_size": "12.5"}
    for share in (0.0, 0.25, 0.5, 0.75, 1.0) if layout.beside else (0.0, 0.5, 1.0):
        x = min(max(layout.x(share), 16), layout.width - 20)  # all of it in the picture
        drawn.append(text_at(percent(share, 0), x, 12, text_anchor="middle", **quiet))
    if layout.beside:
        drawn.append(text_at("share", layout.share, 12, text_anchor="end", **quiet))
        drawn.append(text_at("people", layout.people, 12, text_anchor="end", **quiet))
    return drawn


def _interval(row: Mapping[str, Any], reports: int, layout: Layout, y: float) -> list[Markup]:
    """Draw the bar of the interval, the dot of the estimate, the tick of the constrained count."""
    low, high, share = (row[key] / reports for key in ("low", "high", "count"))
    first, last = layout.x(low), layout.x(high)
    pen = {"stroke": ACCENT, "stroke_width": 2, "class_": "accent"}
    drawn = [
        element(
            "rect", x=first, y=f"{y - 4:g}", width=round(max(last - first, 0.5), 2), height=8,
            fill=ACCENT, opacity=0.3, class_="accent",
        ),
        _end(low < layout.scale.low, first, y, -1, pen),
        _end(high > layout.scale.high, last, y, 1, pen),
    ]  # fmt: skip
    at = layout.x(share)
    if layout.scale.low <= share <= layout.scale.high:
        drawn.append(element("circle", cx=at, cy=f"{y:g}", r=4.5, fill=ACCENT, class_="accent"))
    else:  # the estimate itself is beyond the picture
        back = at + 9 if share < 0 else at - 9
        points = f"{back:g},{y - 5.5:g} {at:g},{y:g} {back:g},{y + 5.5:g}"
        drawn.append(element("polygon", points=points, fill=ACCENT, class_="accent"))
    tick = layout.x(row["constrained"] / reports)
    drawn.append(line(tick, y + 8, tick, y + 15, stroke="currentColor", stroke_width=2))
    return drawn


def _end(cut: bool, x: float, y: float, way: int, pen: Mapping[str, object]) -> Markup:
    """Draw the end of a bar: a cap, or an arrow where it goes on beyond the picture."""
    if not cut:
        return line(x, y - 6, x, y + 6, **pen)
    points = f"{x - 7 * way:g},{y - 6:g} {x:g},{y:g} {x - 7 * way:g},{y + 6:g}"
    return element("polyline", points=points, **{**pen, "fill": "none", "class_": "accent-line"})


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    """Draw a line."""
    ends = {"x1": f"{x1:g}", "y1": f"{y1:g}", "x2": f"{x2:g}", "y2": f"{y2:g}"}
    return element("line", **ends, **attributes)


def text_at(text: str, x: float, y: float, **attributes: object) -> Markup:
    """Write a text whose middle is as high as `y`."""
    return element("text", text, x=f"{x:g}", y=f"{y:g}", dominant_baseline="central", **attributes)


def _sentence(label: str, one: Figures) -> str:
    return (
        f"{label}: {one.people} people, {one.share}, interval from {one.low} to {one.high} people"
    )


def _description(figures: Mapping[str, Figures], estimates: Mapping[str, Any]) -> str:
    listed = [_sentence(label, one) for label, one in list(figures.items())[:_DESCRIBED]]
    rest = len(figures) - len(listed)
    more = [f"and {rest} more options, see the table"] if rest else []
    kind, level = estimates["interval"], percent(estimates["level"], 0)
    return f"Estimates with {kind} intervals at {level}. " + "; ".join([*listed, *more]) + "."


def wrapped(text: str, room: float, most: int = 4) -> list[str]:
    """Break a label into lines of an estimated width; what does not fit ends in an ellipsis.

    >>> wrapped("dark mode on small screens", 80)
    ['dark mode', 'on small', 'screens']
    """
    lines = [""]
    for word in text.split(" "):
        wanted = f"{lines[-1]} {word}" if lines[-1] else word
        if text_width(wanted) <= room:
            lines[-1] = wanted
            continue
        if lines[-1]:
            lines.append("")
        for character in word:
            if lines[-1] and text_width(lines[-1] + character) > room:
                lines.append("")
            lines[-1] += character
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][:-1] + "\N{HORIZONTAL ELLIPSIS}"]
    return lines


_NARROW, _BROAD = set("iljtfrI.,:;'|!()[] "), set("mwMWGOQ%@—…")


def text_width(text: str) -> float:
    """Estimate how wide a text is, rather too wide than too narrow.

    >>> text_width("mm") > text_width("ii")
    True
    """
    return sum(map(_character_width, text)) * SIZE


def _character_width(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in _NARROW:
        return 0.36
    if character in _BROAD or ord(character) > 0x2E80:
        return 0.95
    return 0.68 if character.isupper() else 0.6
