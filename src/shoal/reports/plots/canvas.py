"""Figures, colours, labels and files that all plots share."""

from __future__ import annotations

from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import missing_extra
from shoal.support import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by people with any kind of colour vision.
BLACK, BLUE, RED, GREEN, ORANGE, PINK, GREY = (
    "#000000", "#0072B2", "#D55E00", "#009E73", "#B57A00", "#B0578D", "#666666",
)  # fmt: skip
SOLID, DASHED, DOTTED, DASH_DOT = "-", (0, (6, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2))

SMALL, USUAL, LARGE = 9, 10.5, 12.5


Q_AXIS = "q: probability that a device flips a bit"
ERROR_AXIS = "error of a count: one sigma, in people"


def blank(title: str, subtitle: str, height: float = 4.8) -> Figure:
    """Return a figure with a title and no axes."""
    figure = _figure_class()(figsize=(8.4, height), dpi=150, facecolor="white")
    top = 1 - 0.216 / height
    figure.text(0.02, top, literal(title), fontsize=LARGE, fontweight="bold", va="center")
    below = top - 0.288 / height
    figure.text(0.02, below, literal(subtitle), fontsize=USUAL - 0.5, color=GREY, va="center")
    return figure


@cache
def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra(error, "a chart") from None

    class NotebookFigure(Figure):
        """A figure that a notebook shows by itself, without pyplot."""

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            picture = BytesIO()
            self.savefig(picture, format="png")
            width, height = self.get_size_inches()
            return picture.getvalue(), {"width": int(80 * width), "height": int(80 * height)}

    return NotebookFigure


def literal(text: str) -> str:
    """Return a text that matplotlib shows as it is, and does not read as a formula."""
    return text.replace("$", r"\$")


def plain(axes: Axes) -> None:
    """Draw no box around the axes, and a light grid behind the lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.tick_params(labelsize=SMALL)
    axes.set_axisbelow(True)


def sheet(title: str, subtitle: str, *, right: float = 0.74) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes, a title, and room on the right for labels."""
    figure = blank(title, subtitle)
    axes = figure.add_axes((0.115, 0.135, right - 0.115, 0.685))
    plain(axes)
    return figure, axes


def name_axes(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=USUAL)
    axes.set_ylabel(y, fontsize=USUAL)


def legend(axes: Axes, title: str | None = None, *, inside: bool = False) -> None:
    """Name the lines of the axes, on their right or in their upper left corner."""
    made = axes.legend(
        loc="upper left" if inside else "center left",
        bbox_to_anchor=(0.0, 1.0) if inside else (1.0, 0.5), fontsize=SMALL, frameon=False,
        title=title, labelcolor="linecolor", labelspacing=1.2, handlelength=1.6, handletextpad=0.6,
    )  # fmt: skip
    made.get_title().set(fontsize=SMALL, color=GREY)


def brief(value: float, digits: int = 3) -> str:
    """Write a number with few digits.

    >>> brief(1e-6), brief(0.0317), brief(9.97e-7)
    ('1e-6', '0.0317', '9.97e-7')
    """
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e")


def counted(count: int, word: str) -> str:
    """Write a count with its noun.

    >>> counted(1, "bit"), counted(5, "bit")
    ('1 bit', '5 bits')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def check_suffix(path: Path | str) -> Path:
    """Return the path if its suffix is one that `save` can write."""
    return files.check_suffix(path, (".png", ".svg", ".pdf"), "picture")


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure as PNG, SVG or PDF, by the suffix; whole or not at all."""
    target = check_suffix(path)
    kind = target.suffix.lower()[1:]
    # no dates, so that the same picture is the same file
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    files.write_whole(
        target, lambda scratch: figure.savefig(scratch, format=kind, metadata=metadata)
    )
