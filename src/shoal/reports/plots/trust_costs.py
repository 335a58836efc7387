"""What each kind of trust costs, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.planning.costs import Comparison
from shoal.reports.plots.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SMALL,
    name_axes,
    sheet,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_costs"]


def plot_costs(comparison: Comparison) -> Figure:
    """Draw how wide an interval each kind of trust leaves, on a logarithmic scale.

    Examples
    --------
    >>> from shoal import Flags, Survey
    >>> from shoal.planning.costs import compare
    >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
    >>> figure = plot_costs(compare(survey, crowd_size=1000, epsilon=1, delta="1e-6"))
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['curator_gaussian', 'curator', 'counts', 'three-sigma', 'sufficient', 'proven', 'local']
    """
    group = comparison.share * comparison.crowd_size
    figure, axes = sheet(
        f"What each kind of trust costs: {comparison.survey.name}",
        f"{comparison.crowd_size:,} people, epsilon {comparison.epsilon}, delta"
        f" {comparison.delta}; a group of {comparison.share:.3g} of them is {group:,.4g} people",
        right=0.9,
    )
    colours = (GREY, BLUE, ORANGE, PINK, RED, GREEN, BLACK)
    for place, (cost, colour) in enumerate(
        zip(reversed(comparison.costs), reversed(colours), strict=True)
    ):
        if cost.half_width:
            axes.plot([group, cost.half_width], [place, place], color=colour, linewidth=2)
            axes.plot([cost.half_width], [place], "o", color=colour)
        label = "impossible" if cost.half_width is None else f"± {cost.half_width:,.4g}"
        axes.annotate(label, (cost.half_width or group, place), (0, 7), fontsize=SMALL,
                      textcoords="offset points", ha="center", color=colour)  # fmt: skip
    axes.axvline(group, color="black", linewidth=0.8)
    axes.annotate("the group itself", (group, len(colours) - 0.5), (4, -4), fontsize=SMALL,
                  textcoords="offset points", va="top")  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.set_ylim(-0.5, len(colours) - 0.4)
    axes.set_yticks(range(len(colours)), [cost.trust for cost in reversed(comparison.costs)])
    name_axes(axes, f"people to either side, at level {comparison.level:g}", "")
    return figure
