"""Plots of results: estimates, tables, trends, decoded texts, the costs of trust, a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.analysis.cross_tables import CrossTable
from shoal.analysis.estimates import Estimate
from shoal.analysis.question_estimates import QuestionEstimates
from shoal.analysis.text.results import DecodedTexts
from shoal.analysis.trends import Trend
from shoal.errors import InputError
from shoal.planning.costs import Comparison
from shoal.protocol.questions import Number
from shoal.reports.plots import canvas
from shoal.reports.plots.canvas import blank, brief, legend, literal, name_axes, plain, sheet
from shoal.support.checks import check_integer, check_level
from shoal.support.results import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shoal.analysis.intervals import IntervalKind
    from shoal.lab.study import Study, StudyPoint


_LONGEST = 22
"""Letters of a text beside its line."""
_MAX_LIST = 30
"""Options that are drawn below one another."""
_MAX_NUMBERS = 1001
"""Points of a number that are drawn beside one another."""
_MIN_STANDING = 8
"""Points of a number up to which they are drawn below one another."""
_MAX_PANELS = 20
_MAX_WRITTEN = 8
"""Columns of a matrix whose cells are written out."""
_BETWEEN = 0.55
"""Inches between two panels."""


def plot_texts(decoded: DecodedTexts, most: int = 20) -> Figure:
    """Draw the most frequent texts that were found, with their intervals, and what is left over.

    Examples
    --------
    >>> import shoal
    >>> from shoal.analysis.text.decode import decode
    >>> from shoal.lab.populations import simulate_texts
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
    _list_intervals(axes, [_Mark(row.value, row.low, row.count, row.high) for row in finds])
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    name_axes(axes, "people", "")
    return figure


class _Mark(NamedTuple):
    """An estimate on its interval, and the truth where it is known."""

    name: str
    low: float
    value: float
    high: float
    truth: float | None = None


def _list_intervals(axes: Axes, marks: Sequence[_Mark]) -> None:
    """Draw marks below one another, the first on top."""
    rows = list(reversed(marks))
    names, lows, values, highs, truths = zip(*rows, strict=True) if rows else ((),) * 5
    places = range(len(rows))
    axes.hlines(places, lows, highs, color=canvas.BLUE, linewidth=2)
    axes.plot(values, places, "o", color=canvas.BLUE, markersize=4)
    if None not in truths:
        axes.plot(truths, places, "|", color=canvas.RED, markersize=12, zorder=5)
    axes.set_yticks(places, list(map(_brief_name, names)), fontsize=canvas.SMALL)
    axes.set_ylim(-0.6, max(len(rows), 1) - 0.4)


def _stand_intervals(axes: Axes, marks: Sequence[_Mark]) -> None:
    """Draw marks beside one another, for numbers in their order."""
    names, lows, values, highs, truths = zip(*marks, strict=True)
    places, shown = range(len(marks)), slice(None, None, max(len(marks) // 8, 1))
    axes.vlines(places, lows, highs, color=canvas.BLUE, linewidth=1.5)
    axes.plot(places, values, "o", color=canvas.BLUE, markersize=3)
    if None not in truths:
        axes.plot(places, truths, "_", color=canvas.RED, markersize=8, zorder=5)
    axes.set_xticks(places[shown], list(map(_brief_name, names[shown])), fontsize=canvas.SMALL)
    axes.set_xlim(-0.6, len(marks) - 0.4)


def _brief_name(text: str) -> str:
    return literal(shortened(text, _LONGEST))


class _Panels:
    """Axes below one another on one figure, each as high as it needs."""

    def __init__(self, title: str, about: str, heights: Sequence[float], left: float) -> None:
        total = 0.7 + sum(height + _BETWEEN for height in heights)
        self.figure = blank(title, about, total)
        self.axes, top = [], total - 0.7
        for height in heights:
            top -= height + _BETWEEN
            bottom = (top + 0.45) / total
            self.axes.append(
                self.figure.add_axes((left, bottom, 0.96 - left, (height - 0.1) / total))
            )
            plain(self.axes[-1])


def _percent(share: float, _: object = None) -> str:
    return f"{100 * share:.4g} %"


def plot_estimates(
    questions: Sequence[QuestionEstimates],
    level: float = 0.95,
    truth: Callable[[str, str], int] | None = None,
) -> Figure:
    """Draw the unbiased share of each option on its interval, a panel for each question.

    `truth` returns the true count of a question's option, which a simulation knows.

    Examples
    --------
    >>> import shoal
    >>> agreed = shoal.plan(shoal.Survey("tools", (shoal.Flags("used", ("a", "b")),)), q=0.25)
    >>> figure = shoal.simulate(agreed, users=1000, seed=1).plot()
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['b', 'a']
    """
    if not questions:
        raise InputError("there is no question to draw; the answers to text are decoded first.")
    drawn = [one for one in questions if len(one) <= _MAX_NUMBERS][:_MAX_PANELS]
    estimates = questions[0].estimates
    notes = [
        estimates.tally.in_words,
        f"exact intervals at {check_level(level):g}, for the {estimates.target}",
    ]
    if truth is not None:
        notes.append("red: the truth")
    if len(drawn) < len(questions):
        notes.append(f"{len(questions) - len(drawn)} large questions are left out")
    standing = [isinstance(one.question, Number) and len(one) > _MIN_STANDING for one in drawn]
    shown = [list(one.values())[: _MAX_NUMBERS if up else _MAX_LIST]
             for one, up in zip(drawn, standing, strict=True)]  # fmt: skip
    heights = [
        2.2 if up else 0.25 * len(rows) + 0.3 for up, rows in zip(standing, shown, strict=True)
    ]
    panels = _Panels(
        f"{estimates.plan.survey.name}: share of each option", "; ".join(notes), heights, 0.22
    )
    for axes, one, rows, up in zip(panels.axes, drawn, shown, standing, strict=True):
        marks = [_mark(row, level, truth) for row in rows]
        (_stand_intervals if up else _list_intervals)(axes, marks)
        (axes.yaxis if up else axes.xaxis).set_major_formatter(_percent)
        low = min(0.0, *(mark.low for mark in marks))
        if up:
            axes.set_ylim(bottom=low)
        else:
            axes.set_xlim(left=low)
        cut = f" (first {len(rows)} of {len(one)})" if len(rows) < len(one) else ""
        axes.set_title(literal(f"{one.question.name}{cut}"), fontsize=canvas.USUAL, loc="left")
    return panels.figure


def _mark(one: Estimate, level: float, truth: Callable[[str, str], int] | None) -> _Mark:
    bounds, n = one.interval(level), one.reports
    known = None if truth is None else truth(one.question.name, one.label) / n
    return _Mark(one.label, bounds.low / n, one.share, bounds.high / n, known)


def plot_cross(table: CrossTable, level: float = 0.95) -> Figure:
    """Draw a matrix: the part of its row that each cell is, with its exact interval."""
    shares = table.row_shares(level)
    first, second = table.questions
    rows, columns = (values[:_MAX_LIST] for values in table.values)
    given = "".join(f", {name}: {value}" for name, value in table.given.items())
    panels = _Panels(
        f"{first} by {second}{given}: part of each row",
        f"{table.estimates.tally.in_words}; exact intervals at {level:g}",
        [0.45 * len(rows) + 0.4],
        0.22,
    )
    axes = panels.axes[0]
    grid = [[max(shares[i][j].value, 0.0) for j in range(len(columns))] for i in range(len(rows))]
    axes.grid(False)
    axes.imshow(np.nan_to_num(grid), cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
    for i, j in np.ndindex(len(rows), len(columns)):
        one = shares[i][j]
        if len(columns) <= _MAX_WRITTEN:
            ends = f"{math.floor(100 * one.low)} to {math.ceil(100 * one.high)} %"
            value = "" if math.isnan(one.value) else f"{_percent(round(one.value, 3))}\n"
            axes.text(j, i, f"{value}{ends}", ha="center", va="center", fontsize=canvas.SMALL - 1)
    axes.set_yticks(range(len(rows)), [_brief_name(one) for one in rows], fontsize=canvas.SMALL)
    axes.set_xticks(range(len(columns)), [_brief_name(one) for one in columns],
                    fontsize=canvas.SMALL)  # fmt: skip
    name_axes(axes, literal(second), literal(first))
    return panels.figure


def plot_trend(found: Trend) -> Figure:
    """Draw the share of each option over the crowds, with intervals, a panel for each question."""
    questions = list(found.to_json()["questions"].items())[:_MAX_PANELS]
    if not questions:
        raise InputError("there is no question to draw; the answers to text are decoded first.")
    panels = _Panels(
        f"{found.crowds[0].plan.survey.name}: shares over {len(found.crowds)} crowds",
        f"exact intervals at {found.level:g}, all of a question at once",
        [2.6] * len(questions),
        0.115,
    )
    colours = (canvas.BLUE, canvas.RED, canvas.GREEN, canvas.ORANGE, canvas.PINK, canvas.BLACK)
    for axes, (name, options) in zip(panels.axes, questions, strict=True):
        left, bottom, _, height = axes.get_position().bounds
        axes.set_position((left, bottom, 0.66, height))
        largest = sorted(options, key=lambda label: -max(one["share"] for one in options[label]))
        for place, (label, colour) in enumerate(zip(largest, colours, strict=False)):
            rows = options[label]
            x = np.arange(1, len(rows) + 1) + 0.04 * place
            middle = [one["share"] for one in rows]
            axes.plot(x, middle, "o-", color=colour, markersize=4, label=_brief_name(label))
            axes.vlines(x, [one["low"] for one in rows], [one["high"] for one in rows],
                        color=colour, linewidth=1.2)  # fmt: skip
        cut = f" (largest {len(colours)} of {len(options)})" if len(options) > len(colours) else ""
        axes.set_title(literal(f"{name}{cut}"), fontsize=canvas.USUAL, loc="left")
        axes.yaxis.set_major_formatter(_percent)
        axes.set_xticks(range(1, len(found.crowds) + 1, max(len(found.crowds) // 12, 1)))
        axes.set_xlabel("crowd", fontsize=canvas.SMALL)
        legend(axes)
    return panels.figure


def plot_costs(comparison: Comparison) -> Figure:
    """Draw how wide an interval each kind of trust leaves, on a logarithmic scale."""
    group = comparison.share * comparison.crowd_size
    figure, axes = sheet(
        f"The cost of each trust model: {comparison.survey.name}",
        f"{comparison.crowd_size:,} people, epsilon {comparison.epsilon}, delta"
        f" {comparison.delta}; a group of {comparison.share:.3g} of them is {group:,.4g} people",
        right=0.9,
    )
    axes.set_position((0.19, 0.135, 0.71, 0.685))
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
    legend(lower, "marks: measured\ndashes: by theory")
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
    return {"q": canvas.Q_AXIS, "epsilon": f"epsilon of a {study.plan.promise.kind} promise"}.get(
        study.vary or "", "people who report"
    )
