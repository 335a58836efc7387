"""Plots of other results: a study, decoded texts, and the costs of trust."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.text.results import DecodedTexts
from shoal.planning.costs import Comparison
from shoal.reports.plots import canvas
from shoal.reports.plots.canvas import blank, brief, name_axes, plain, sheet
from shoal.support.checks import check_integer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.analysis.intervals import IntervalKind
    from shoal.lab.study import Study, StudyPoint


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
        axes.plot([row.low, row.high], [place, place], color=canvas.BLUE, linewidth=2)
        axes.plot([row.count], [place], "o", color=canvas.BLUE, markersize=4)
    names = [
        row.value if len(row.value) <= _LONGEST else row.value[: _LONGEST - 3] + "..."
        for row in rows
    ]
    axes.set_yticks(range(len(rows)), names, fontsize=canvas.SMALL)
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    name_axes(axes, "people", "")
    return figure


def plot_costs(comparison: Comparison) -> Figure:
    """Draw how wide an interval each kind of trust leaves, on a logarithmic scale."""
    group = comparison.share * comparison.crowd_size
    figure, axes = sheet(
        f"The cost of each trust model: {comparison.survey.name}",
        f"{comparison.crowd_size:,} people, epsilon {comparison.epsilon}, delta"
        f" {comparison.delta}; a group of {comparison.share:.3g} of them is {group:,.4g} people",
        right=0.9,
    )
    colours = (
        canvas.GREY,
        canvas.BLUE,
        canvas.ORANGE,
        canvas.PINK,
        canvas.RED,
        canvas.GREEN,
        canvas.BLACK,
    )
    for place, (cost, colour) in enumerate(
        zip(reversed(comparison.costs), reversed(colours), strict=True)
    ):
        if cost.half_width:
            axes.plot([group, cost.half_width], [place, place], color=colour, linewidth=2)
            axes.plot([cost.half_width], [place], "o", color=colour)
        label = "impossible" if cost.half_width is None else f"± {cost.half_width:,.4g}"
        axes.annotate(label, (cost.half_width or group, place), (0, 7), fontsize=canvas.SMALL,
                      textcoords="offset points", ha="center", color=colour)  # fmt: skip
    axes.axvline(group, color="black", linewidth=0.8)
    axes.annotate("the group itself", (group, len(colours) - 0.5), (4, -4), fontsize=canvas.SMALL,
                  textcoords="offset points", va="top")  # fmt: skip
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.set_ylim(-0.5, len(colours) - 0.4)
    axes.set_yticks(range(len(colours)), [cost.trust for cost in reversed(comparison.costs)])
    name_axes(axes, f"people to either side, at level {comparison.level:g}", "")
    return figure


def plot_study(study: Study) -> Figure:
    """Draw two panels: sigma over theory for every bit, and coverage for every kind."""
    about = (
        f"simulated; {study.repetitions:,} repetitions through the {study.through}, level"
        f" {study.level:.4g}; one mark for each bit, at each point"
    )
    figure = blank("Theory and practice, repeated", about, height=6.4)
    upper, lower = (figure.add_axes((0.115, bottom, 0.66, 0.335)) for bottom in (0.53, 0.1))
    places = np.arange(len(study.points))
    for axes in (upper, lower):
        plain(axes)
        axes.grid(False, axis="x")
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(places, [_name(study, point) for point in study.points])
    noise = 3 / math.sqrt(2 * (study.repetitions - 1))
    upper.axhspan(1 - noise, 1 + noise, color=canvas.GREY, alpha=0.15, linewidth=0)
    upper.axhline(1, color=canvas.GREY, linewidth=1)
    for place, point in enumerate(study.points):
        ratios = [bit.sigma_ratio for bit in point.bits]
        upper.plot(_spread(place, len(ratios), 0.6), ratios, "o", color=canvas.BLUE, markersize=4)
    upper.set_ylabel("sigma measured / theory", fontsize=canvas.USUAL)
    upper.text(
        1.03, 0.5, "shaded: chance alone,\n3 standard errors of a\nmeasured sigma",
        transform=upper.transAxes, fontsize=canvas.SMALL, color=canvas.GREY, va="center",
    )  # fmt: skip
    marks: list[tuple[IntervalKind, str, str]] = [
        ("exact", canvas.BLUE, "o"),
        ("normal", canvas.RED, "s"),
        ("simultaneous", canvas.GREEN, "^"),
        ("chebyshev", canvas.ORANGE, "D"),
    ]
    for number, (kind, colour, mark) in enumerate(marks):
        for place, point in enumerate(study.points):
            both = [bit.coverage[kind] for bit in point.bits]
            x = _spread(place + (number - 1.5) * 0.22, len(both), 0.13)
            lower.plot(x, [one.expected for one in both], "_", color=colour, markersize=9)
            lower.plot(x, [one.measured for one in both], mark, color=colour, markersize=3.5,
                       label=kind if place == 0 else None)  # fmt: skip
    lower.axhline(study.level, color=canvas.GREY, linewidth=1, linestyle="--")
    lower.set_ylabel("coverage of the truth", fontsize=canvas.USUAL)
    lower.set_xlabel(_axis(study), fontsize=canvas.USUAL)
    legend = lower.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=canvas.SMALL,
                          frameon=False, title="marks: measured\ndashes: by theory")  # fmt: skip
    legend.get_title().set_fontsize(canvas.SMALL)
    legend.get_title().set_color(canvas.GREY)
    return figure


def _spread(centre: float, count: int, width: float) -> NDArray[np.float64]:
    """Return places for so many marks around a centre."""
    return centre + (np.arange(count) - (count - 1) / 2) * width / max(count, 1)


def _name(study: Study, point: StudyPoint) -> str:
    if study.vary == "q":
        return brief(float(point.plan.q))
    if study.vary == "epsilon":
        return f"{point.plan.promise.epsilon}\n(q = {brief(float(point.plan.q))})"
    return f"{point.users:,}"


def _axis(study: Study) -> str:
    return {
        "q": canvas.Q_AXIS,
        "epsilon": f"epsilon of a {study.plan.promise.kind} promise",
    }.get(study.vary or "", "people who report")
