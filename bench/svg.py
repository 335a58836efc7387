"""Pictures for the documents: SVG for a light and a dark page, readable on a phone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
WIDTH = 480
"""Of every picture: on a phone the text is still three quarters of its size."""


@dataclass(frozen=True)
class Scheme:
    """The colours of a page, as the report page has them."""

    ink: str
    quiet: str
    rule: str
    accent: str
    wash: str
    alarm: str


SCHEMES = {
    "light": Scheme("#1c2430", "#5b6675", "#c4cad1", "#1f6f9f", "#e8eef2", "#b4530a"),
    "dark": Scheme("#e6e9ed", "#a3adb9", "#4a5460", "#6cb8e6", "#26303a", "#f0a35e"),
}


class Drawing:
    """Shapes and words on a transparent ground."""

    def __init__(self, height: float, scheme: Scheme, title: str) -> None:
        self.height, self.scheme, self.title = height, scheme, title
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        color: str = "ink",
        size: int = 14,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{_short(x)}" y="{_short(y)}" fill="{self._ink(color)}" font-size="{size}"'
            f' text-anchor="{anchor}"{weight}>{escape(words)}</text>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = "wash",
        stroke: str | None = None, radius: float = 3,
    ) -> None:  # fmt: skip
        edge = f' stroke="{self._ink(stroke)}" stroke-width="2"' if stroke else ""
        self._parts.append(
            f'<rect x="{_short(x)}" y="{_short(y)}" width="{_short(max(width, 0))}"'
            f' height="{_short(height)}" rx="{_short(radius)}" fill="{self._ink(fill)}"'
            f"{edge}/>"
        )

    def line(
        self, points: list[tuple[float, float]], *, color: str = "ink", width: float = 2,
        dashes: str | None = None,
    ) -> None:  # fmt: skip
        path = " ".join(f"{_short(x)},{_short(y)}" for x, y in points)
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{self._ink(color)}"'
            f' stroke-width="{_short(width)}"{style}/>'
        )

    def caption(self, y: float, words: str) -> None:
        """A line of small, quiet words from edge to edge."""
        self.text(0, y, words, size=12, color="quiet")

    def arrow(self, x: float, y: float, to: float, *, color: str = "quiet") -> None:
        """An arrow to the right."""
        self.line([(x, y), (to, y)], color=color)
        self.line([(to - 6, y - 5), (to, y), (to - 6, y + 5)], color=color)

    def svg(self) -> str:
        return "\n".join(
            [
                '<svg xmlns="http://www.w3.org/2000/svg"'
                f' viewBox="0 0 {WIDTH} {_short(self.height)}"'
                f' width="{WIDTH}" height="{_short(self.height)}" role="img"'
                ' font-family="system-ui, sans-serif">',
                f"<title>{escape(self.title)}</title>",
                *self._parts,
                "</svg>\n",
            ]
        )

    def _ink(self, name: str | None) -> str:
        return "none" if name in (None, "none") else str(getattr(self.scheme, str(name)))


def write(name: str, draw: Callable[[Scheme], Drawing], folder: Path = PICTURES) -> None:
    """Write a picture for both kinds of pages."""
    for word, scheme in SCHEMES.items():
        (folder / f"{name}-{word}.svg").write_text(draw(scheme).svg(), "utf-8")


def bars(
    drawing: Drawing,
    rows: list[tuple[str, float, str]],
    *,
    position: Callable[[float], float],
    top: float,
    main: Collection[str] = (),
) -> None:
    """Draw a bar for each label, value and words; the labels in `main` stand out."""
    for index, (label, value, words) in enumerate(rows):
        y = top + 34 * index
        drawing.text(0, y + 16, label, size=13, bold=label in main)
        drawing.box(170, y, position(value), 22, fill="accent" if label in main else "rule")
        drawing.text(170 + position(value) + 6, y + 16, words, size=13, color="quiet")


def _short(number: float) -> str:
    return f"{number:.4g}" if number % 1 else f"{number:.0f}"
