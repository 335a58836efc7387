"""The texts that were found in a crowd, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.analysis.text.results import DecodedTexts
from shoal.reports.plots.canvas import BLUE, SMALL, name_axes, sheet
from shoal.support.checks import check_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_texts"]

_LONGEST = 18
"""Letters of a text beside its line."""


def plot_texts(decoded: DecodedTexts, most: int = 20) -> Figure:
    """Draw the most frequent texts that were found, with their intervals, and what is left over.

    Examples
    --------
    >>> import shoal
    >>> from shoal.analysis.text.decode import decode
    >>> from shoal.lab.tally_distributions import simulate_texts
    >>> survey = shoal.Survey("words", (shoal.Text("word", bits=64, hashes=1, cohorts=16),))
    >>> plan = shoal.plan(survey, q="0.05")
    >>> tally = simulate_texts(plan, {"tea": 300, "coffee": 700}, seed=1)
    >>> figure = plot_texts(decode(plan, tally, ["tea", "coffee", "cocoa"]))
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['tea', 'coffee']
    """
    check_integer("most", most, lowest=1, highest=100)
    finds = decoded.discoveries[:most]
    left = decoded.unexplained / decoded.reports
    figure, axes = sheet(
        f"{decoded.question}: {len(decoded.discoveries):,} texts found among"
        f" {len(decoded.texts):,} candidates",
        f"{decoded.reports:,} reports; intervals at {decoded.level:g}; false discovery rate"
        f" {decoded.fdr:g}; {left:.1%} of the reports not explained"
        + ("; simulated" if decoded.simulated else ""),
        right=0.97,
    )
    axes.set_position((0.22, 0.135, 0.75, 0.685))
    rows = list(reversed(finds))
    for place, row in enumerate(rows):
        axes.plot([row.low, row.high], [place, place], color=BLUE, linewidth=2)
        axes.plot([row.count], [place], "o", color=BLUE, markersize=4)
    names = [
        row.value if len(row.value) <= _LONGEST else row.value[: _LONGEST - 3] + "..."
        for row in rows
    ]
    axes.set_yticks(range(len(rows)), names, fontsize=SMALL)
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    name_axes(axes, "people", "")
    return figure
