"""SVG elements whose text is always escaped, and the shapes that the charts share.

Pictures stand alone: colours are attributes that a page's style may override by class, and lines
break at estimated widths, since the reader's fonts are unknown.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
ACCENT = "#1f6f9f"
SIZE, LINE = 14.0, 19.0
PEN: dict[str, object] = {"stroke": ACCENT, "stroke_width": 2, "class_": "accent"}

_MAX_DESCRIBED = 40
"""Options that the description for screen readers lists; the table has them all."""


def element(tag: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; a child or an attribute that is not `Markup` is escaped.

    Underscores in attribute names become hyphens; an attribute that is None is left out.

    >>> print(element("text", "<b> & co", class_="number", data_of='"x"'))
    <text class="number" data-of="&#34;x&#34;">&lt;b&gt; &amp; co</text>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(escape, children))
    return Markup(f"<{tag}{written}>{inside}</{tag}>")  # noqa: S704  every part is escaped


def picture(
    width: int,
    height: float,
    title: str,
    description: str,
    *drawn: Markup,
    name: str,
    class_: str | None = None,
    style: str | None = None,
) -> Markup:
    """Return an SVG with a title and a description for screen readers; `name` begins its ids."""
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
        style=style,
        font_family=FONT,
        font_size=f"{SIZE:g}",
        fill="currentColor",
    )


def badge(name: str, value: str, title: str) -> bytes:
    """Return a picture of a name and a value, with colours that stand on any page."""
    size, height = 11.0, 20
    name = name if len(name) <= 40 else f"{name[:39]}\N{HORIZONTAL ELLIPSIS}"
    left, right = (math.ceil(text_width(text) * size / 14) + 12 for text in (name, value))

    def half(text: str, x: int, width: int, colour: str) -> Markup:
        centre = {"x": f"{x + width / 2:g}", "y": "14", "text_anchor": "middle"}
        return element("rect", x=x, width=width, height=height, fill=colour) + element(
            "text", text, **centre, fill="#fff", textLength=width - 12,
            lengthAdjust="spacingAndGlyphs", unicode_bidi="isolate",
        )  # fmt: skip

    drawn = element(
        "svg",
        element("title", title),
        half(name, 0, left, "#3d4651"),
        half(value, left, right, "#1f6f9f"),
        xmlns="http://www.w3.org/2000/svg",
        width=left + right,
        height=height,
        role="img",
        aria_label=title,
        font_family=FONT,
        font_size=f"{size:g}",
    )
    return str(drawn).encode()


def listed(sentences: Iterable[str]) -> str:
    """Join what is said of each option; very many are cut short."""
    every = list(sentences)
    more = len(every) - _MAX_DESCRIBED
    rest = [f"and {more} more, see the table"] if more > 0 else []
    return "; ".join([*every[:_MAX_DESCRIBED], *rest]) + "."


def line(x1: float, y1: float, x2: float, y2: float, **attributes: object) -> Markup:
    ends = {"x1": f"{x1:g}", "y1": f"{y1:g}", "x2": f"{x2:g}", "y2": f"{y2:g}"}
    return element("line", **ends, **attributes)


def rule(x1: float, y1: float, x2: float, y2: float, *, strong: bool) -> Markup:
    return line(x1, y1, x2, y2, stroke="currentColor", opacity=0.45 if strong else 0.16)


def dot(x: float, y: float, radius: float = 4.5, *children: Markup) -> Markup:
    place = {"cx": f"{x:g}", "cy": f"{y:g}", "r": radius}
    return element("circle", *children, **place, fill=ACCENT, class_="accent")


def rectangle(x: float, y: float, width: float, height: float, opacity: float) -> Markup:
    sizes = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return element("rect", **sizes, fill=ACCENT, opacity=opacity, class_="accent")


def whisker(
    x1: float, y1: float, x2: float, y2: float, pen: Mapping[str, object] | None = None
) -> list[Markup]:
    """Draw an interval: a line with a cap at each end."""
    pen = pen or {"stroke": "currentColor", "stroke_width": 1.5}
    across, down = (0.0, 5.0) if y1 == y2 else (5.0, 0.0)
    return [
        line(x1, y1, x2, y2, **pen),
        *(line(x - across, y - down, x + across, y + down, **pen) for x, y in ((x1, y1), (x2, y2))),
    ]


def text_at(text: str, x: float, y: float, **attributes: object) -> Markup:
    """Write a text whose middle is at height `y`."""
    return element("text", text, x=f"{x:g}", y=f"{y:g}", dominant_baseline="central", **attributes)


def quiet_text(text: str, x: float, y: float, anchor: str = "start") -> Markup:
    return text_at(text, x, y, text_anchor=anchor, opacity=0.8, font_size="12.5")


def label(lines: Iterable[str], x: float, y: float, **attributes: object) -> list[Markup]:
    """Write a name, which may be of any direction, in several lines."""
    return [
        text_at(piece, x, y + LINE * number, unicode_bidi="isolate", **attributes)
        for number, piece in enumerate(lines)
    ]


def wrapped(text: str, room: float, max_lines: int = 4) -> list[str]:
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
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], lines[max_lines - 1][:-1] + "\N{HORIZONTAL ELLIPSIS}"]
    return lines


_NARROW, _BROAD = set("iljtfrI.,:;'|!()[] "), set("mwMWGOQ%@—…")


def text_width(text: str) -> float:
    """Estimate the width of a text, rather too wide than too narrow.

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
