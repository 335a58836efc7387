"""The picture of a study: sigma against theory, and the coverage of each kind of interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shoal.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.analysis.intervals import IntervalKind
    from shoal.lab.study import Study, StudyPoint

__all__ = ["plot_study"]


def plot_study(study: Study) -> Figure:
    """Draw two panels: sigma over theory for every bit, and coverage for every kind."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "pictures need matplotlib, which is not installed: pip install 'shoal[plots]'."
        ) from None
    from shoal.reports.plots.canvas import (
        BLUE,
        GREEN,
        GREY,
        LARGE,
        ORANGE,
        RED,
        SMALL,
        USUAL,
        brief,
    )

    figure = Figure(figsize=(8.4, 6.4), dpi=150, facecolor="white")
    figure.text(0.02, 0.965, "Theory and practice, repeated", fontsize=LARGE, fontweight="bold",
                va="center")  # fmt: skip
    figure.text(
        0.02, 0.925,
        f"simulated; {study.repetitions:,} repetitions through the {study.through}, level"
        f" {study.level:.4g}; one mark for each bit, at each point",
        fontsize=USUAL - 0.5, color=GREY, va="center",
    )  # fmt: skip
    upper, lower = (figure.add_axes((0.115, bottom, 0.66, 0.335)) for bottom in (0.53, 0.1))
    places = np.arange(len(study.points))
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, axis="y", color="#DDDDDD", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=SMALL)
        axes.set_xlim(-0.5, len(places) - 0.5)
        axes.set_xticks(places, [_name(study, point, brief) for point in study.points])
    noise = 3 / math.sqrt(2 * (study.repetitions - 1))
    upper.axhspan(1 - noise, 1 + noise, color=GREY, alpha=0.15, linewidth=0)
    upper.axhline(1, color=GREY, linewidth=1)
    for place, point in enumerate(study.points):
        ratios = [bit.sigma_ratio for bit in point.bits]
        upper.plot(_spread(place, len(ratios), 0.6), ratios, "o", color=BLUE, markersize=4)
    upper.set_ylabel("sigma measured / theory", fontsize=USUAL)
    upper.text(
        1.03, 0.5, "shaded: chance alone,\n3 standard errors of a\nmeasured sigma",
        transform=upper.transAxes, fontsize=SMALL, color=GREY, va="center",
    )  # fmt: skip
    marks: list[tuple[IntervalKind, str, str]] = [
        ("exact", BLUE, "o"),
        ("normal", RED, "s"),
        ("simultaneous", GREEN, "^"),
        ("chebyshev", ORANGE, "D"),
    ]
    for number, (kind, colour, mark) in enumerate(marks):
        for place, point in enumerate(study.points):
            both = [bit.coverage[kind] for bit in point.bits]
            x = _spread(place + (number - 1.5) * 0.22, len(both), 0.13)
            lower.plot(x, [one.expected for one in both], "_", color=colour, markersize=9)
            lower.plot(x, [one.measured for one in both], mark, color=colour, markersize=3.5,
                       label=kind if place == 0 else None)  # fmt: skip
    lower.axhline(study.level, color=GREY, linewidth=1, linestyle="--")
    lower.set_ylabel("coverage of the truth", fontsize=USUAL)
    lower.set_xlabel(_axis(study), fontsize=USUAL)
    legend = lower.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=SMALL,
                          frameon=False, title="marks: measured\ndashes: by the law")  # fmt: skip
    legend.get_title().set_fontsize(SMALL)
    legend.get_title().set_color(GREY)
    return figure


def _spread(centre: float, count: int, width: float) -> NDArray[np.float64]:
    """Return places for so many marks around a centre."""
    return centre + (np.arange(count) - (count - 1) / 2) * width / max(count, 1)


def _name(study: Study, point: StudyPoint, brief: Callable[[float], str]) -> str:
    if study.vary == "q":
        return brief(float(point.plan.q))
    if study.vary == "epsilon":
        return f"{point.plan.promise.epsilon}\n(q = {brief(float(point.plan.q))})"
    return f"{point.users:,}"


def _axis(study: Study) -> str:
    return {
        "q": "q: probability that a bit is flipped",
        "epsilon": f"epsilon of a {study.plan.promise.kind} promise",
    }.get(study.vary or "", "people who report")
