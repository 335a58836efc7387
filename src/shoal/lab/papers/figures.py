"""The figures that the documents show, drawn from the recomputed numbers.

SDP 3.3 shows six pmfs of the privacy ratio and SDP 4 the error against q; LEC has Figure 1; KR and
BITVEC have none. matplotlib is an optional extra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import InputError
from shoal.lab.papers import show
from shoal.lab.papers.lec import density
from shoal.lab.papers.sdp_ratio import BITS, ROWS, Row, mass_beyond, middle
from shoal.reports.plots.canvas import BLUE, GREEN, GREY, RED, blank, name_axes, plain, save, sheet
from shoal.theory.homogeneous import ratio_distribution, ratio_moments
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import three_sigma_q

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_figures(directory: Path) -> list[Path]:
    """Write every figure to the directory, as PNG and as SVG, and return the paths."""
    figures = {name: paint() for name, paint in FIGURES.items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory} is no directory to write to: {error.strerror}.") from error
    written = []
    for name, figure in figures.items():
        for ending in ("png", "svg"):
            written.append(directory / f"{name}.{ending}")
            save(figure, written[-1])
    return written


def _ratio_distributions(rows: Sequence[Row], top: float, lam: str) -> Figure:
    """Draw one pmf above the other; what is beyond lambda is filled."""
    figure = blank(
        f"How strongly the tally points to one outlier, 5 bits, λ = {lam} (SDP 3.3)",
        "The filled part is the chance that the privacy ratio exceeds λ",
        height=7.8,
    )
    panels = figure.subplots(
        len(rows), 1, sharex=True, gridspec_kw={"top": 0.87, "bottom": 0.08, "hspace": 0.25}
    )
    for axes, row in zip(panels, rows, strict=True):
        rule = three_sigma_q(BITS, row.crowd, row.epsilon)
        printed = float(row.q)
        wrong = abs(rule - printed) > 1e-3
        if wrong:
            _pmf(axes, row, rule, GREEN, f"q = {rule:.4f}, by (3.12)", top, 0.60)
        colour = RED if wrong else BLUE
        _pmf(axes, row, printed, colour, f"q = {row.q}, as printed", top, 0.30 if wrong else 0.60)
        place = math.exp(row.epsilon), 0.97
        axes.axvline(place[0], color="black", linewidth=1.2)
        axes.annotate(f" λ = {lam}", place, xycoords=("data", "axes fraction"), va="top")
        axes.set_title(f"crowd of {row.crowd:,}", loc="left", fontsize=10, fontweight="bold")
        axes.set(xlim=(0.0, top), ylim=(0.0, None), yticks=[], ylabel="probability density")
        plain(axes)
    panels[-1].set_xlabel("privacy ratio R: probability of the tally with the outlier / without it")
    return figure


def _pmf(axes: Any, row: Row, q: float, colour: str, name: str, top: float, height: float) -> None:
    pmf = ratio_distribution(BITS, row.crowd, q, points=4096)
    # a picture needs no more than about 800 points across
    merge = max(1, int(top / 800.0 / (pmf.values[1] - pmf.values[0])))
    size = pmf.values.size // merge * merge
    values = pmf.values[:size].reshape(-1, merge).mean(axis=1)
    heights = pmf.probabilities[:size].reshape(-1, merge).sum(axis=1) / (values[1] - values[0])
    lam = math.exp(row.epsilon)
    axes.plot(values[:-1], heights[:-1], color=colour, linewidth=1.4)
    axes.fill_between(
        values[:-1], heights[:-1], where=values[:-1] >= lam, color=colour, alpha=0.35, linewidth=0
    )
    mean, variance = ratio_moments(BITS, row.crowd, q)
    edge = mean + 3.0 * math.sqrt(variance)
    beyond = mass_beyond(BITS, row.crowd, q, row.epsilon)
    axes.plot([edge], [0.0], marker="^", color=colour, markersize=9, clip_on=False, zorder=5)
    axes.annotate(
        f"{name}\n{show(100.0 * middle(beyond), 2)} % beyond λ\n"
        f"▲ mean + 3 sigma = {edge:.2f}",
        (0.985, height + 0.13), xycoords="axes fraction", ha="right", va="top", color=colour,
    )  # fmt: skip


def _sigma() -> Figure:
    title = "The cost of flipping: the error of a count among N people (SDP 4)"
    figure, axes = sheet(title, "at the q of the paper's two examples", right=0.97)
    grid = np.concatenate([np.linspace(0.005, 0.48, 300), np.linspace(0.48, 0.4985, 200)])
    axes.plot(grid, [count_sigma(1, q) for q in grid], color=GREY, linewidth=1.6)
    short = three_sigma_q(5, 5000, math.log(2))
    long = three_sigma_q(40, 10_000_000, 2.0)
    for q, name, colour, offset in (
        (short, "5 bits, crowd of 5,000", BLUE, (-10, 12)),
        (long, "40 bits, crowd of 10 million", BLUE, (-10, 12)),
        (local_q(5, math.log(2)), "5 bits, no crowd (local)", RED, (-12, 4)),
        (local_q(40, 2.0), "40 bits, no crowd (local)", RED, (-12, 4)),
    ):
        sigma = count_sigma(1, q)
        axes.plot([q], [sigma], marker="o", color=colour, markersize=7)
        axes.annotate(
            f"{name}\nq = {q:.4g}: {sigma:.3g} √N", (q, sigma), offset,
            textcoords="offset points", ha="right", va="center", color=colour, fontsize=9,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set(xlim=(0.0, 0.5), ylim=(0.06, 40))
    name_axes(axes, "flip probability q", "standard deviation of an estimated count, in √N")
    return figure


def _laplace() -> Figure:
    title = "A larger b adds more noise (LEC, Figure 1)"
    # which b it shows is not in the text, so these are ours
    figure, axes = sheet(title, "three b; the lecture does not say which it shows", right=0.97)
    grid = np.linspace(-8.0, 8.0, 801)
    for b, colour, z in ((1.0, BLUE, 0.55), (2.0, RED, 2.1), (4.0, GREEN, 4.2)):
        axes.plot(grid, [density(x, b) for x in grid], color=colour, linewidth=1.6)
        axes.annotate(
            f"b = {b:g}, sigma = {math.sqrt(2.0) * b:.2g}", (z, density(z, b)), (8, 6),
            textcoords="offset points", color=colour,
        )  # fmt: skip
    axes.set(xlim=(-8.0, 8.0), ylim=(0.0, 0.52))
    name_axes(axes, "noise z added to the answer", "probability density of Lap(b)")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "sdp-3.3-lambda-2": lambda: _ratio_distributions(ROWS[:3], 3.4, "2"),
    "sdp-3.3-lambda-e2": lambda: _ratio_distributions(ROWS[3:], 12.0, "e² = 7.39"),
    "sdp-4-sigma": _sigma,
    "lec-figure-1": _laplace,
}
