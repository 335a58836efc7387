"""Several crowds as pictures: a small panel for each option over crowds, and differences of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.reports.bars import picture
from shoal.reports.charts import ACCENT, LINE, line, text_at, text_width, wrapped
from shoal.reports.markup import Markup, element
from shoal.reports.words import percent

__all__ = ["difference_chart", "trend_chart"]

_PANEL = 84.0


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
    most = _end_of_scale(max(row["high"] for rows in options.values() for row in rows))
    left, right = 46.0, width - 8.0
    step = (right - left) / max(len(crowds) - 1, 1)
    drawn: list[Markup] = []
    top = 4.0
    for label, rows in options.items():
        lines = wrapped(label, width - 90, 2)
        first = top + 10
        top += LINE * len(lines) + 6

        def y(share: float, top: float = top) -> float:
            return round(top + _PANEL * (1 - min(max(share / most, 0.0), 1.0)), 2)

        drawn += [
            text_at(piece, 0, first + LINE * number, font_weight=600, unicode_bidi="isolate")
            for number, piece in enumerate(lines)
        ]
        last = percent(rows[-1]["constrained"])
        drawn.append(text_at(last, width, first, text_anchor="end", font_weight=600))
        for part in (0.0, 0.5, 1.0):
            at = y(part * most)
            strength = 0.45 if part == 0 else 0.16
            drawn.append(line(left, at, right, at, stroke="currentColor", opacity=strength))
            if part != 0.5:
                words = percent(part * most, 1 if most < 0.1 else 0)
                drawn.append(text_at(words, left - 6, at, text_anchor="end", opacity=0.8,
                                     font_size="12"))  # fmt: skip
        xs = [round(left + step * place, 2) for place in range(len(rows))]
        drawn += _band(xs, [y(row["low"]) for row in rows], [y(row["high"]) for row in rows])
        points = " ".join(
            f"{x:g},{y(row['constrained']):g}" for x, row in zip(xs, rows, strict=True)
        )
        drawn.append(element("polyline", points=points, fill="none", stroke=ACCENT,
                             stroke_width=2, class_="accent-line"))  # fmt: skip
        for x, row, crowd in zip(xs, rows, crowds, strict=True):
            said = (
                f"{label}, {crowd}: {percent(row['constrained'])}, interval from"
                f" {percent(row['low'])} to {percent(row['high'])}"
            )
            dot = {"cx": f"{x:g}", "cy": f"{y(row['constrained']):g}", "r": 3.5}
            drawn.append(
                element("circle", element("title", said), **dot, fill=ACCENT, class_="accent")
            )
        top += _PANEL + 14
    drawn.append(text_at(crowds[0], left, top, font_size="12.5", opacity=0.8))
    drawn.append(text_at(crowds[-1], right, top, text_anchor="end", font_size="12.5", opacity=0.8))
    text = "; ".join(
        f"{label}: from {percent(rows[0]['constrained'])} to {percent(rows[-1]['constrained'])}"
        for label, rows in list(options.items())[:40]
    )
    title = f"{question}: shares over {len(crowds)} crowds"
    return picture(width, top + 12, title, f"{text}.", *drawn, name=name, class_=class_)


def _band(xs: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> list[Markup]:
    """Draw the intervals: a band, and a line at each crowd."""
    outline = [*zip(xs, highs, strict=True), *reversed(list(zip(xs, lows, strict=True)))]
    points = " ".join(f"{x:g},{y:g}" for x, y in outline)
    pen = {"stroke": ACCENT, "stroke_width": 1.5, "opacity": 0.6, "class_": "accent-line"}
    return [
        element("polygon", points=points, fill=ACCENT, opacity=0.18, class_="accent"),
        *(line(x, low, x, high, **pen) for x, low, high in zip(xs, lows, highs, strict=True)),
    ]


def _end_of_scale(largest: float) -> float:
    for end in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8):
        if largest <= end:
            return end
    return 1.0


def difference_chart(
    question: str, rows: Mapping[str, Mapping[str, Any]], width: int, *, name: str, class_: str
) -> Markup:
    """Return how far each option is apart in two crowds, around a line at no difference."""
    reach = max(max(abs(row["low"]), abs(row["high"])) for row in rows.values())
    most = _end_of_scale(reach)
    beside = width >= 560
    value = text_width("+00.0 %") + 8
    left = round(min(max(map(text_width, rows)) + 16, 0.36 * width), 2) if beside else 4.0
    right = width - value - 6

    def x(share: float) -> float:
        inside = min(max(share, -most), most)
        return round(left + (inside + most) / (2 * most) * (right - left), 2)

    drawn: list[Markup] = []
    y = 26.0
    for label, row in rows.items():
        lines = wrapped(label, left - 12 if beside else right)
        height = max(30.0, LINE * len(lines) + 10) if beside else LINE * len(lines) + 28
        middle = y + height / 2 if beside else y + LINE * len(lines) + 11
        first = middle - LINE * (len(lines) - 1) / 2 if beside else y + 8
        low, high, at = (x(row[key]) for key in ("low", "high", "difference"))
        pen = {"stroke": ACCENT, "stroke_width": 2, "class_": "accent"}
        shown = signed_percent(row["difference"])
        drawn.append(
            element(
                "g",
                element("title", f"{label}: {shown}, interval from {signed_percent(row['low'])}"
                                 f" to {signed_percent(row['high'])}"),
                *(
                    text_at(piece, 0, first + LINE * place, unicode_bidi="isolate")
                    for place, piece in enumerate(lines)
                ),
                line(low, middle, high, middle, **pen),
                *(line(end, middle - 5, end, middle + 5, **pen) for end in (low, high)),
                element("circle", cx=at, cy=f"{middle:g}", r=4.5, fill=ACCENT, class_="accent"),
                text_at(shown, width, middle, text_anchor="end", font_weight=600),
            )
        )  # fmt: skip
        y += height
    scale = []
    for part in (-1.0, 0.0, 1.0):
        at, strength = x(part * most), 0.7 if part == 0 else 0.16
        anchor = {-1.0: "start", 0.0: "middle", 1.0: "end"}[part]
        scale += [
            line(at, 18, at, y, stroke="currentColor", opacity=strength),
            text_at(signed_percent(part * most), at, 8, text_anchor=anchor, opacity=0.8,
                    font_size="12.5"),
        ]  # fmt: skip
    listed = "; ".join(
        f"{label}: {signed_percent(row['difference'])}" for label, row in list(rows.items())[:40]
    )
    title = f"{question}: difference of shares"
    return picture(width, y + 4, title, f"{listed}.", *scale, *drawn, name=name, class_=class_)


def signed_percent(share: float) -> str:
    r"""Write a difference of shares with its sign.

    >>> signed_percent(0.034), signed_percent(0.0)
    ('+3.4\u202f%', '0.0\u202f%')
    """
    text = percent(share)
    return f"+{text}" if share > 0 and any(digit in text for digit in "123456789") else text
