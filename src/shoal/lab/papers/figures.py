"""The figures that the documents show, drawn from the recomputed numbers.

SDP 3.3 shows six pmfs of the privacy ratio and SDP 4 the error against q; LEC has Figure 1; KR and
BITVEC have none. matplotlib is an optional extra and is imported here only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import InputError, missing_extra
from shoal.lab.papers import show
from shoal.lab.papers.lec import density
from shoal.lab.papers.sdp_ratio import BITS, ROWS, Row, mass_beyond, middle
from shoal.theory.homogeneous import ratio_distribution, ratio_moments
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import three_sigma_q

# Okabe and Ito's colours, which colour-blind readers tell apart.
_BLUE, _ORANGE, _GREEN, _GREY = "#0072B2", "#D55E00", "#009E73", "#555555"


def plot_figures(directory: Path) -> list[Path]:
    """Write every figure to the directory, as PNG and as SVG, and return the paths."""
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra(error, "a figure") from None
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory} is no directory to write to: {error.strerror}.") from error
    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "shoal",
        "svg.fonttype": "none",
    }
    written = []
    for name, paint in FIGURES.items():
        with plt.rc_context(style):
            figure = paint(plt)
            for ending, metadata in (("png", {}), ("svg", {"Date": None})):
                path = directory / f"{name}.{ending}"
                figure.savefig(path, dpi=160, metadata=metadata)
                written.append(path)
            plt.close(figure)
    return written


def _ratio_distributions(plt: Any, rows: Sequence[Row], top: float, lam: str) -> Any:
    """Draw one pmf above the other; what is beyond lambda is filled."""
    figure, panels = plt.subplots(
        len(rows), 1, figsize=(7.2, 7.6), sharex=True, layout="constrained"
    )
    figure.suptitle(
        f"How strongly the tally points to one outlier, 5 bits, λ = {lam} (SDP 3.3)\n"
        "The filled part is the chance that the privacy ratio exceeds λ",
        fontsize=11,
    )
    for axes, row in zip(panels, rows, strict=True):
        rule = three_sigma_q(BITS, row.crowd, row.epsilon)
        printed = float(row.q)
        wrong = abs(rule - printed) > 1e-3
        if wrong:
            _law(axes, row, rule, _GREEN, f"q = {rule:.4f}, by (3.12)", top, 0.60)
        colour = _ORANGE if wrong else _BLUE
        _law(axes, row, printed, colour, f"q = {row.q}, as printed", top, 0.30 if wrong else 0.60)
        axes.axvline(math.exp(row.epsilon), color="black", linewidth=1.2)
        axes.annotate(
            f" λ = {lam}",
            (math.exp(row.epsilon), 0.97),
            xycoords=("data", "axes fraction"),
            va="top",
        )
        axes.set_title(f"crowd of {row.crowd:,}", loc="left", fontsize=10, fontweight="bold")
        axes.set_xlim(0.0, top)
        axes.set_ylim(bottom=0.0)
        axes.set_yticks([])
        axes.set_ylabel("probability density")
    panels[-1].set_xlabel("privacy ratio R: probability of the tally with the outlier / without it")
    return figure


def _law(axes: Any, row: Row, q: float, colour: str, name: str, top: float, height: float) -> None:
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


def _sigma(plt: Any) -> Any:
    """Draw the error of an estimated count against q."""
    figure, axes = plt.subplots(figsize=(7.2, 4.8), layout="constrained")
    grid = np.concatenate([np.linspace(0.005, 0.48, 300), np.linspace(0.48, 0.4985, 200)])
    axes.plot(grid, [count_sigma(1, q) for q in grid], color=_GREY, linewidth=1.6)
    short = three_sigma_q(5, 5000, math.log(2))
    long = three_sigma_q(40, 10_000_000, 2.0)
    marks = (
        (short, "5 bits, crowd of 5,000", _BLUE, (-10, 12)),
        (long, "40 bits, crowd of 10 million", _BLUE, (-10, 12)),
        (local_q(5, math.log(2)), "5 bits, no crowd (local)", _ORANGE, (-12, 4)),
        (local_q(40, 2.0), "40 bits, no crowd (local)", _ORANGE, (-12, 4)),
    )
    for q, name, colour, offset in marks:
        sigma = count_sigma(1, q)
        axes.plot([q], [sigma], marker="o", color=colour, markersize=7)
        axes.annotate(
            f"{name}\nq = {q:.4g}: {sigma:.3g} √N", (q, sigma), offset,
            textcoords="offset points", ha="right", va="center", color=colour, fontsize=9,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_yticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
    axes.minorticks_off()
    axes.set_xlim(0.0, 0.5)
    axes.set_ylim(0.06, 40)
    axes.set_xlabel("flip probability q")
    axes.set_ylabel("standard deviation of an estimated count, in √N")
    axes.set_title("The cost of flipping: the error of a count among N people (SDP 4)", fontsize=11)
    return figure


def _laplace(plt: Any) -> Any:
    """Draw LEC Figure 1; which b it shows is not in the text, so these are ours."""
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    grid = np.linspace(-8.0, 8.0, 801)
    for b, colour, z in ((1.0, _BLUE, 0.55), (2.0, _ORANGE, 2.1), (4.0, _GREEN, 4.2)):
        axes.plot(grid, [density(x, b) for x in grid], color=colour, linewidth=1.6)
        axes.annotate(
            f"b = {b:g}, sigma = {math.sqrt(2.0) * b:.2g}", (z, density(z, b)), (8, 6),
            textcoords="offset points", color=colour,
        )  # fmt: skip
    axes.set_xlim(-8.0, 8.0)
    axes.set_ylim(0.0, 0.52)
    axes.set_xlabel("noise z added to the answer")
    axes.set_ylabel("probability density of Lap(b)")
    axes.set_title("A larger b adds more noise (LEC, Figure 1)", fontsize=11)
    return figure


FIGURES: dict[str, Callable[[Any], Any]] = {
    "sdp-3.3-lambda-2": lambda plt: _ratio_distributions(plt, ROWS[:3], 3.4, "2"),
    "sdp-3.3-lambda-e2": lambda plt: _ratio_distributions(plt, ROWS[3:], 12.0, "e² = 7.39"),
    "sdp-4-sigma": _sigma,
    "lec-figure-1": _laplace,
}
