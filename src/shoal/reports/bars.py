"""Shares as bars, histograms and trends over crowds; differences of two crowds.

A bar is the constrained share, so that all bars of a question add up to everybody. The line across
its end is the interval of the true share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from shoal.protocol.survey import Question
from shoal.reports.charts import BROAD
from shoal.reports.formatting import percent, signed_percent, whole_shares
from shoal.reports.svg import (
    ACCENT,
    LINE,
    PEN,
    dot,
    element,
    end_of_scale,
    label,
    line,
    listed,
    picture,
    quiet_text,
    rectangle,
    rule,
    text_at,
    text_width,
    whisker,
    wrapped,
)

__all__ = ["bar_chart", "difference_chart", "histogram", "trend_chart"]

_MAX_COLUMNS = 40
"""Ranges that a histogram shows as columns; more of them are shown as a list."""
_PANEL = 84.0


class _Shares(NamedTuple):
    """The shares of a question with one answer, and the scale on which they are drawn."""

    rows: Mapping[str, Mapping[str, Any]]
    reports: int
    printed: Mapping[str, str]
    end: float

    @classmethod
    def of(cls, question: Question, estimates: Mapping[str, Any]) -> _Shares:
        rows, reports = estimates["questions"][question.name], estimates["reports"]
        largest = max(max(row["constrained"], row["high"]) for row in rows.values()) / reports
        return cls(rows, reports, whole_shares(rows, reports), end_of_scale(largest))

    def limits(self, row: Mapping[str, Any]) -> tuple[float, float, float]:
        """Return share, low and high of an option, within the scale."""
        low, high = (min(max(row[key] / self.reports, 0.0), self.end) for key in ("low", "high"))
        return min(row["constrained"] / self.reports, self.end), low, high

    def sentence(self, text: str, low: float, high: float) -> Markup:
        said = f"{text}: {self.printed[text]}, interval from {percent(low)} to {percent(high)}"
        return element("title", said)


def _described(estimates: Mapping[str, Any], shares: Mapping[str, str]) -> str:
    level, said = percent(estimates["level"], 0), (": ".join(pair) for pair in shares.items())
    kind = estimates["interval"]
    return f"Shares that add to 100 %, with {kind} intervals at {level}. {listed(said)}"


def _tick(end: float, part: float) -> str:
    return percent(part * end, 1 if end < 0.1 else 0)


class _List:
    """A list of options: labels beside or above what is drawn, a number at the right."""

    def __init__(self, labels: Sequence[str], width: int, value: float, left: float) -> None:
        self.width, self.beside = width, width >= BROAD
        self.right = width - value
        longest = max(map(text_width, labels))
        self.left = round(min(longest + 16, 0.36 * width), 2) if self.beside else left
        self.bottom = 26.0
        self.drawn: list[Markup] = []

    def add(
        self, text: str, value: str, title: Markup, draw: Callable[[float], list[Markup]]
    ) -> None:
        """Add an option; `draw` draws it around a height."""
        lines = wrapped(text, self.left - 12 if self.beside else self.right)
        if self.beside:
            height = max(30.0, LINE * len(lines) + 10)
            middle = self.bottom + height / 2
            first = middle - LINE * (len(lines) - 1) / 2
        else:
            height = LINE * len(lines) + 28
            middle, first = self.bottom + LINE * len(lines) + 11, self.bottom + 8
        number = text_at(value, self.width, middle, text_anchor="end", font_weight=600)
        self.drawn.append(element("g", title, *label(lines, 0, first), *draw(middle), number))
        self.bottom += height


def bar_chart(
    question: Question, estimates: Mapping[str, Any], width: int, *, name: str, class_: str
) -> Markup:
    """Return a bar for each option of a question with one answer."""
    shares = _Shares.of(question, estimates)
    value = max(map(text_width, shares.printed.values())) + 6
    rows = _List(list(shares.rows), width, value, 0.0)

    def x(share: float) -> float:
        return round(rows.left + share / shares.end * (rows.right - rows.left - 6), 2)

    for text, row in shares.rows.items():
        share, low, high = shares.limits(row)

        def draw(
            y: float, at: float = x(share), low: float = low, high: float = high
        ) -> list[Markup]:
            bar = rectangle(rows.left, y - 8, max(at - rows.left, 0.5), 16, 0.35)
            return [bar, *whisker(x(low), y, x(high), y)]

        rows.add(text, shares.printed[text], shares.sentence(text, low, high), draw)
    grid = []
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = x(part * shares.end)
        grid.append(rule(at, 18, at, rows.bottom, strong=part == 0))
        grid.append(quiet_text(_tick(shares.end, part), at, 8, anchor))
    title = f"{question.name}: shares that add to 100 %"
    described = _described(estimates, shares.printed)
    return picture(width, rows.bottom + 4, title, described, *grid, *rows.drawn,
                   name=name, class_=class_)  # fmt: skip


def histogram(
    question: Question, estimates: Mapping[str, Any], width: int, *, name: str, class_: str
) -> Markup:
    """Return a column for each range of a number; a list of bars where there are too many."""
    shares = _Shares.of(question, estimates)
    rows = shares.rows
    if len(rows) > _MAX_COLUMNS or width < 24 * len(rows):
        return bar_chart(question, estimates, width, name=name, class_=class_)
    left, top, bottom = 46.0, 12.0, 222.0
    step = (width - left) / len(rows)

    def y(share: float) -> float:
        return round(bottom - share / shares.end * (bottom - top), 2)

    drawn: list[Markup] = []
    for part in (0.0, 0.5, 1.0):
        at = y(part * shares.end)
        drawn.append(rule(left, at, width, at, strong=part == 0))
        drawn.append(quiet_text(_tick(shares.end, part), left - 6, at, "end"))
    small = {"font_size": "12.5"}
    deepest = 0.0
    for place, (text, row) in enumerate(rows.items()):
        middle = left + (place + 0.5) * step
        share, low, high = shares.limits(row)
        height = bottom - y(share)
        words = wrapped(_short(text), step - 4, 5) if step >= 44 else []
        deepest = max(deepest, LINE * len(words))
        column = [
            shares.sentence(text, low, high),
            rectangle(middle - 0.42 * step, bottom - height, 0.84 * step, max(height, 0.5), 0.35),
            *whisker(middle, y(low), middle, y(high)),
            *(
                text_at(word, middle, bottom + 14 + LINE * number, text_anchor="middle", **small)
                for number, word in enumerate(words)
            ),
        ]
        drawn.append(element("g", *column))
    if not deepest:
        first, *_, last = map(_short, rows)
        drawn.append(text_at(first, left, bottom + 14, **small))
        drawn.append(text_at(last, width, bottom + 14, text_anchor="end", **small))
    title = f"{question.name}: histogram, shares that add to 100 %"
    described = _described(estimates, shares.printed)
    return picture(width, bottom + 14 + max(deepest, LINE), title, described, *drawn,
                   name=name, class_=class_)  # fmt: skip


def _short(text: str) -> str:
    """Return a range in fewer words.

    >>> _short("18 to below 35")
    '18–35'
    """
    return text.replace(" to below ", "\N{EN DASH}")


def trend_chart(
    question: str,
    options: Mapping[str, Sequence[Mapping[str, float]]],
    crowds: Sequence[str],
    width: int,
    *,
    name: str,
    class_: str,
) -> Markup:
    """Return a panel for each option: its share in each crowd, on one scale, with intervals.

    `crowds` are the names of the crowds below the panels.
    """
    end = end_of_scale(max(row["high"] for rows in options.values() for row in rows))
    left, right = 46.0, width - 8.0
    step = (right - left) / max(len(crowds) - 1, 1)
    drawn: list[Markup] = []
    top = 4.0
    for text, rows in options.items():
        lines = wrapped(text, width - 90, 2)
        first = top + 10
        top += LINE * len(lines) + 6

        def y(share: float, top: float = top) -> float:
            return round(top + _PANEL * (1 - min(max(share / end, 0.0), 1.0)), 2)

        drawn += label(lines, 0, first, font_weight=600)
        last = percent(rows[-1]["constrained"])
        drawn.append(text_at(last, width, first, text_anchor="end", font_weight=600))
        for part in (0.0, 0.5, 1.0):
            at = y(part * end)
            drawn.append(rule(left, at, right, at, strong=part == 0))
            if part != 0.5:
                drawn.append(quiet_text(_tick(end, part), left - 6, at, "end"))
        points = [
            (
                round(left + step * place, 2),
                *(y(row[key]) for key in ("low", "high", "constrained")),
            )
            for place, row in enumerate(rows)
        ]
        drawn += _band(points)
        for (x, _, _, at), row, crowd in zip(points, rows, crowds, strict=True):
            said = (
                f"{text}, {crowd}: {percent(row['constrained'])}, interval from"
                f" {percent(row['low'])} to {percent(row['high'])}"
            )
            drawn.append(dot(x, at, 3.5, element("title", said)))
        top += _PANEL + 14
    drawn.append(quiet_text(crowds[0], left, top))
    drawn.append(quiet_text(crowds[-1], right, top, "end"))
    described = listed(
        f"{text}: from {percent(rows[0]['constrained'])} to {percent(rows[-1]['constrained'])}"
        for text, rows in options.items()
    )
    title = f"{question}: shares over {len(crowds)} crowds"
    return picture(width, top + 12, title, described, *drawn, name=name, class_=class_)


def _band(points: Sequence[tuple[float, ...]]) -> list[Markup]:
    """Draw the intervals as a band with a line at each crowd, and the shares as a line."""
    edge = [(x, high) for x, _, high, _ in points] + [(x, low) for x, low, _, _ in reversed(points)]
    pen = {"stroke": ACCENT, "stroke_width": 1.5, "opacity": 0.6, "class_": "accent-line"}
    return [
        element("polygon", points=_joined(edge), fill=ACCENT, opacity=0.18, class_="accent"),
        *(line(x, low, x, high, **pen) for x, low, high, _ in points),
        element("polyline", points=_joined((x, at) for x, _, _, at in points), fill="none",
                stroke=ACCENT, stroke_width=2, class_="accent-line"),
    ]  # fmt: skip


def _joined(points: Any) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def difference_chart(
    question: str, rows: Mapping[str, Mapping[str, Any]], width: int, *, name: str, class_: str
) -> Markup:
    """Return the difference of each option in two crowds, around a line at no difference."""
    end = end_of_scale(max(max(abs(row["low"]), abs(row["high"])) for row in rows.values()))
    listing = _List(list(rows), width, text_width("+00.0 %") + 14, 4.0)

    def x(share: float) -> float:
        inside = min(max(share, -end), end)
        return round(listing.left + (inside + end) / (2 * end) * (listing.right - listing.left), 2)

    for text, row in rows.items():
        shown, low, high = (signed_percent(row[key]) for key in ("difference", "low", "high"))

        def draw(y: float, row: Mapping[str, Any] = row) -> list[Markup]:
            return [
                *whisker(x(row["low"]), y, x(row["high"]), y, PEN),
                dot(x(row["difference"]), y),
            ]

        title = element("title", f"{text}: {shown}, interval from {low} to {high}")
        listing.add(text, shown, title, draw)
    scale = []
    for part, anchor in ((-1.0, "start"), (0.0, "middle"), (1.0, "end")):
        at = x(part * end)
        scale.append(rule(at, 18, at, listing.bottom, strong=part == 0))
        scale.append(quiet_text(signed_percent(part * end), at, 8, anchor))
    described = listed(f"{text}: {signed_percent(row['difference'])}" for text, row in rows.items())
    named = f"{question}: difference of shares"
    return picture(width, listing.bottom + 4, named, described, *scale, *listing.drawn,
                   name=name, class_=class_)  # fmt: skip
