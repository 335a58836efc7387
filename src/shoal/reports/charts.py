"""Charts of a page in SVG: shares, histograms, trends, differences.

A bar is the possible share nearest to the estimate, and the line across its end the interval of the
true share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from shoal.protocol.questions import MISSING
from shoal.protocol.survey import Number, Question
from shoal.reports.formatting import (
    PlainShare,
    option_shares,
    percent,
    shown_labels,
    signed_points,
)
from shoal.reports.svg import (
    ACCENT,
    LINE,
    PEN,
    SIZE,
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
    whisker,
    wrapped,
)

WIDTHS = {"wide": 768, "narrow": 328}
"""Widths of a picture on a screen and on a phone, by their class in the style sheet."""

_BROAD = 560
"""The width from which labels stand beside bars, else above them."""
_MAX_COLUMNS = 40
"""Ranges that a histogram shows as columns; more of them are shown as a list."""
_SMALL = 12.5 / SIZE
"""The size of the words below columns, as a part of the size of text."""
_PANEL = 84.0
_ENDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)

Estimates = Mapping[str, Any]
"""The JSON form of estimates."""


class Scale(NamedTuple):
    """The shares at the left and the right end of a chart."""

    low: float
    high: float


class Layout(NamedTuple):
    """Where things stand in a list of options.

    Shares go to x from `left` to `right`; `room` is for a label, which is `beside` what is drawn or
    above it, and `edges` are the right edges of the numbers.
    """

    scale: Scale
    width: int
    beside: bool
    left: float
    right: float
    room: float
    edges: tuple[float, ...]

    @classmethod
    def of(
        cls, scale: Scale, width: int, labels: Iterable[str], numbers: Sequence[Iterable[str]]
    ) -> Layout:
        edges: list[float] = []
        edge = float(width)
        for column in reversed(numbers):
            edges.insert(0, round(edge, 2))
            edge -= max(map(text_width, column), default=0.0) + 16
        if width < _BROAD:
            return cls(scale, width, False, 8, width - 8, edge + 2, tuple(edges))
        longest = max(map(text_width, labels), default=0.0)
        left = round(min(longest + 20, 0.36 * width), 2)
        return cls(scale, width, True, left, round(edge - 18, 2), left - 18, tuple(edges))

    def x(self, share: float) -> float:
        """Return the place of a share; the edge if it is beyond the picture."""
        low, high = self.scale
        inside = min(max(share, low), high)
        return round(self.left + (inside - low) / (high - low) * (self.right - self.left), 2)


class _Row(NamedTuple):
    """An option of a list: its label and numbers, and what is drawn around a height."""

    label: str
    numbers: Sequence[str]
    said: str
    draw: Callable[[float], list[Markup]]


class _Ticks(NamedTuple):
    """Lines of a scale: their places, those that are strong, and how they are written."""

    shares: Sequence[float]
    strong: Sequence[float]
    write: Callable[[float], str]


def _list_chart(
    layout: Layout, rows: Iterable[_Row], ticks: _Ticks, title: str, described: str, **given: Any
) -> Markup:
    drawn: list[Markup] = []
    strips: list[tuple[float, float]] = []
    top, y = 30.0, 36.0
    for row in rows:
        lines = wrapped(row.label, layout.room)
        if layout.beside:
            height = max(34.0, LINE * len(lines) + 15)
            middle = at = y + height / 2
            first = middle - LINE * (len(lines) - 1) / 2
        else:
            height = LINE * len(lines) + 37
            middle, first = y + LINE * len(lines) + 13, y + 9
            at = first
        numbers = [
            text_at(text, edge, at, text_anchor="end", font_weight=None if place else 600)
            for place, (text, edge) in enumerate(zip(row.numbers, layout.edges, strict=True))
        ]
        parts = [*label(lines, 0, first), *numbers, *row.draw(middle)]
        drawn.append(element("g", element("title", row.said), *parts))
        y += height
        strips.append((y - 36, y - 6))
    grid = _grid(layout, [(top, y + 4)] if layout.beside else strips, ticks)
    return picture(layout.width, y + 4, title, described, *grid, *drawn, **given)


def _grid(layout: Layout, strips: list[tuple[float, float]], ticks: _Ticks) -> list[Markup]:
    """Draw the scale where there are no words."""
    drawn = [
        rule(layout.x(share), top, layout.x(share), bottom, strong=share in ticks.strong)
        for top, bottom in strips
        for share in ticks.shares
    ]
    for share in ticks.shares if layout.beside else ticks.shares[:: len(ticks.shares) // 2]:
        text = ticks.write(share)
        half = text_width(text) / 2  # all of it in the picture
        x = min(max(layout.x(share), half), layout.width - half)
        drawn.append(quiet_text(text, x, 12, "middle"))
    return drawn


def _end_of_scale(largest: float) -> float:
    """Return a round share that is at least as large as every bar and interval, at most 1."""
    return next((end for end in _ENDS if largest <= end), 1.0)


class _Shares(NamedTuple):
    """The possible shares of a question, and the scale on which they are drawn."""

    rows: Sequence[tuple[str, PlainShare]]
    end: float
    described: str

    @classmethod
    def of(cls, question: Question, estimates: Estimates) -> _Shares:
        rows = estimates["questions"][question.name]
        shown = shown_labels(question, rows)
        found = option_shares(question, rows, estimates["reports"])
        named = [(shown[label], share) for label, share in found.items()]
        intervals = f"{estimates['interval']} intervals at {percent(estimates['level'], 0)}"
        adding = " that add to 100 %" if question.takes_one else ""
        every = listed(f"{label}: {share.sentence}" for label, share in named)
        described = f"Shares{adding}, with {intervals}. {every}"
        return cls(named, _end_of_scale(max(one.high for _, one in named)), described)

    def limits(self, one: PlainShare) -> tuple[float, float, float]:
        """Return share, low and high of an option, within the scale; no bar is an unknown one."""
        return 0.0 if one.is_unknown else one.share, one.low, min(one.high, self.end)

    def tick(self, share: float) -> str:
        return _tick(self.end, share)


def _tick(end: float, share: float) -> str:
    return percent(share, 1 if end < 0.1 else 0)


def bar_chart(question: Question, estimates: Estimates, width: int, **given: Any) -> Markup:
    """Return a bar for each option: its possible share, and how sure it is."""
    shares = _Shares.of(question, estimates)
    layout = Layout.of(
        Scale(0.0, shares.end),
        width,
        [label for label, _ in shares.rows],
        [[one.text for _, one in shares.rows]],
    )

    def drawn(label: str, one: PlainShare) -> _Row:
        def draw(y: float) -> list[Markup]:
            share, low, high = map(layout.x, shares.limits(one))
            bar = rectangle(layout.left, y - 8, max(share - layout.left, 0.5), 16, 0.35)
            return [bar, *whisker(low, y, high, y)]

        return _Row(label, [one.text], f"{label}: {one.sentence}", draw)

    ticks = _Ticks((0.0, shares.end / 2, shares.end), (0.0,), shares.tick)
    title = f"{question.heading}: share of each answer"
    rows = [drawn(*row) for row in shares.rows]
    return _list_chart(layout, rows, ticks, title, shares.described, **given)


def histogram(question: Question, estimates: Estimates, width: int, **given: Any) -> Markup:
    """Return a column for each range of a number; a list of bars where there are too many.

    Where labels have no room below their columns, the first and the last stand for all.
    """
    shares = _Shares.of(question, estimates)
    left, top, bottom = 46.0, 12.0, 222.0
    step = (width - left) / len(shares.rows)
    unit = (isinstance(question, Number) and question.unit) or ""  # named once, below
    ending = f" {unit}" if unit else ""
    texts = [
        text.replace(ending, "").replace(" to below ", "\N{EN DASH}") for text, _ in shares.rows
    ]
    missing = [texts.pop()] if MISSING in estimates["questions"][question.name] else []
    fits = all(text_width(word) * _SMALL <= step - 4 for text in texts for word in text.split(" "))
    ends = text_width(texts[0]) + text_width(texts[-1]) > step * len(texts)
    if len(shares.rows) > _MAX_COLUMNS or step < 22 or (ends and not fits):
        return bar_chart(question, estimates, width, **given)

    def y(share: float) -> float:
        return round(bottom - share / shares.end * (bottom - top), 2)

    drawn: list[Markup] = []
    for share in (0.0, shares.end / 2, shares.end):
        drawn.append(rule(left, y(share), width, y(share), strong=share == 0))
        drawn.append(quiet_text(shares.tick(share), left - 6, y(share), "end"))
    small = {"font_size": f"{SIZE * _SMALL:g}"}
    deepest = 1
    for place, (text, one) in enumerate(shares.rows):
        middle = left + (place + 0.5) * step
        share, low, high = shares.limits(one)
        height = bottom - y(share)
        words = wrapped(texts[place], (step - 4) / _SMALL, 5) if fits and place < len(texts) else []
        deepest = max(deepest, len(words))
        column = [
            element("title", f"{text}: {one.sentence}"),
            rectangle(middle - 0.42 * step, bottom - height, 0.84 * step, max(height, 0.5), 0.35),
            *whisker(middle, y(low), middle, y(high)),
            *(
                text_at(word, middle, bottom + 14 + LINE * number, text_anchor="middle", **small)
                for number, word in enumerate(words)
            ),
        ]
        drawn.append(element("g", *column))
    if not fits:
        drawn.append(text_at(texts[0], left, bottom + 14, **small))
        end = left + step * len(texts)
        drawn.append(text_at(texts[-1], end, bottom + 14, text_anchor="end", **small))
    title = f"{question.heading}: histogram, shares that add to 100 %"
    height = bottom + 14 + LINE * deepest
    if unit:
        drawn.append(quiet_text(unit, left, height + 6))
    for text in missing:
        if text_width(text) * _SMALL <= step - 4:
            drawn.append(
                text_at(text, width - step / 2, bottom + 14, text_anchor="middle", **small)
            )
        else:
            drawn.append(text_at(text, width, height + 6, text_anchor="end", **small))
    height += LINE
    return picture(width, height, title, shares.described, *drawn, **given)


def difference_chart(
    question: str,
    rows: Mapping[str, Mapping[str, Any]],
    width: int,
    shown: Mapping[str, str] | None = None,
    **given: Any,
) -> Markup:
    """Return the difference of each option in two crowds, in points; `shown` replaces labels."""
    words = shown or {label: label for label in rows}
    end = _end_of_scale(max(max(abs(row["low"]), abs(row["high"])) for row in rows.values()))
    layout = Layout.of(Scale(-end, end), width, words.values(), [["+00.0 points"]])

    def drawn(label: str, row: Mapping[str, Any]) -> _Row:
        value, low, high = (signed_points(row[key]) for key in ("difference", "low", "high"))

        def draw(y: float) -> list[Markup]:
            ends = layout.x(row["low"]), y, layout.x(row["high"]), y
            return [*whisker(*ends, PEN), dot(layout.x(row["difference"]), y)]

        said = f"{label}: {value} points, interval from {low} to {high} points"
        return _Row(label, [f"{value} points"], said, draw)

    options = [drawn(words[label], row) for label, row in rows.items()]
    ticks = _Ticks((-end, 0.0, end), (0.0,), lambda share: f"{signed_points(share)} points")
    title = f"{question}: difference of shares in percentage points"
    described = listed(row.said for row in options)
    return _list_chart(layout, options, ticks, title, described, **given)


def trend_chart(
    question: str,
    options: Mapping[str, Sequence[Mapping[str, float]]],
    crowds: Sequence[str],
    width: int,
    shown: Mapping[str, str] | None = None,
    over: str = "crowd",
    **given: Any,
) -> Markup:
    """Return a panel for each option: its share in each crowd, on one scale, with intervals.

    `shown` replaces labels; `over` says what the shares follow, if they are not of crowds.
    """
    words = shown or {label: label for label in options}
    end = _end_of_scale(max(row["high"] for rows in options.values() for row in rows))
    left, right = 46.0, width - 8.0
    step = (right - left) / max(len(crowds) - 1, 1)
    drawn: list[Markup] = []
    top = 4.0
    for name, rows in options.items():
        text = words[name]
        lines = wrapped(text, width - 90, 2)
        first = top + 10
        top += LINE * len(lines) + 6

        def y(share: float, top: float = top) -> float:
            return round(top + _PANEL * (1 - min(max(share / end, 0.0), 1.0)), 2)

        drawn += label(lines, 0, first, font_weight=600)
        last = percent(rows[-1]["constrained"])
        drawn.append(text_at(last, width, first, text_anchor="end", font_weight=600))
        for share in (0.0, end / 2, end):
            drawn.append(rule(left, y(share), right, y(share), strong=share == 0))
            if share != end / 2:
                drawn.append(quiet_text(_tick(end, share), left - 6, y(share), "end"))
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
    if text_width(crowds[0]) + text_width(crowds[-1]) > right - left:
        top += LINE  # the two would overlap
    drawn.append(quiet_text(crowds[-1], right, top, "end"))
    described = listed(
        f"{words[name]}: from {percent(rows[0]['constrained'])} to"
        f" {percent(rows[-1]['constrained'])}"
        for name, rows in options.items()
    )
    title = f"{question}: shares over {len(crowds)} {over}{'s' * (len(crowds) != 1)}"
    return picture(width, top + 12, title, described, *drawn, **given)


def sparkline(
    title: str, rows: Sequence[tuple[float, float, float]], described: str, **given: Any
) -> Markup:
    """Return a small picture of a number over crowds: each as the number, its low and its high."""
    width, height, edge = 160, 44, 5.0
    low, high = min(one[1] for one in rows), max(one[2] for one in rows)
    step = (width - 2 * edge) / max(len(rows) - 1, 1)

    def y(number: float) -> float:
        return round(edge + (height - 2 * edge) * (high - number) / ((high - low) or 1.0), 2)

    points = [
        (round(edge + step * place, 2), y(row[1]), y(row[2]), y(row[0]))
        for place, row in enumerate(rows)
    ]
    band = _band(points)
    drawn = band[0], band[-1], dot(points[-1][0], points[-1][3], 3.5)
    return picture(width, height, title, described, *drawn, class_="spark", **given)


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


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def width_charts(draw: Callable[..., Markup], id: str) -> list[Markup]:
    """Return a chart in each width; the style sheet shows one of them."""
    return [draw(width, name=f"{id}-{kind}", class_=kind) for kind, width in WIDTHS.items()]
