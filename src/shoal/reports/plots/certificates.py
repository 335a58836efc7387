"""Plots of one certificate: its privacy, its privacy ratio, its precision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shoal.errors import InputError
from shoal.planning.certificate import Certificate, certify
from shoal.protocol.plan import Plan
from shoal.reports.plots import canvas
from shoal.reports.plots.canvas import brief, counted, label, name_axes, sheet
from shoal.support.rounding import round_down, round_up, text_up
from shoal.theory import homogeneous
from shoal.theory.randomized_response import count_sigma, local_q

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FLOOR = 1e-14
_PAPER = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}


def certificate_of(source: Certificate | Plan) -> Certificate:
    return certify(source) if isinstance(source, Plan) else source


def _subtitle(certificate: Certificate) -> str:
    return (
        f"{certificate.survey.name}: {counted(certificate.survey.bits, 'bit')} a report, each"
        f" flipped with probability q = {float(certificate.q):.5g}, crowd of"
        f" {certificate.crowd_size:,}, view {certificate.view}"
    )


def marked_epsilon(source: Certificate | Plan, epsilon: float | None) -> float:
    """Return the epsilon to mark: the one given, else the plan's."""
    if epsilon is not None:
        if not 0 <= epsilon <= 700:
            raise InputError(f"epsilon must be between 0 and 700, got epsilon={epsilon}.")
        return float(epsilon)
    if isinstance(source, Plan):
        return float(source.promise.epsilon)
    raise InputError("a certificate promises many epsilons; say which one to mark.")


def plot_privacy(
    source: Certificate | Plan, *, epsilon: float | None = None, points: int = 40
) -> Figure:
    """Draw delta at each epsilon: the proven bound, the attack, and the truth between them.

    The promise is marked: the plan's, or the proven delta at `epsilon`.
    """
    certificate = certificate_of(source)
    marked = marked_epsilon(source, epsilon)
    if certificate.q * 2 == 1:
        raise InputError("at q = 1/2 reports carry no information; there is nothing to plot.")
    figure, axes = sheet(
        "How much privacy the crowd gives: delta at each epsilon", _subtitle(certificate)
    )
    local = certificate.local_epsilon
    at_mark = certificate.delta(epsilon=marked).high
    floor = max(min(_FLOOR, at_mark / 1e3), 1e-100)
    last = _last_epsilon(certificate, marked, floor)
    grid = np.linspace(0.0, last, points)
    proven = np.array([certificate.delta(epsilon=float(e), rtol=1e-2).high for e in grid])
    attack = np.array([certificate.attack(float(e), rtol=1e-2).delta.low for e in grid])
    # from the local epsilon on delta is 0, which a logarithm cannot show
    floor = max(floor, float(np.min(proven[proven > 0], initial=1.0)) / 10)
    proven, attack = np.maximum(proven, floor / 10), np.maximum(attack, floor / 10)
    axes.set_yscale("log")
    axes.set_xlim(0.0, last)
    axes.set_ylim(floor, max(1.0, 3 * float(proven[0])))
    axes.fill_between(grid, attack, proven, color=canvas.BLUE, alpha=0.15, linewidth=0)
    axes.plot(grid, proven, color=canvas.BLUE, linestyle=canvas.SOLID, linewidth=2)
    axes.plot(grid, attack, color=canvas.RED, linestyle=canvas.DASHED, linewidth=1.6)
    name_axes(
        axes,
        "epsilon: how far one answer can shift the odds (a factor of e to the epsilon)",
        "delta: what epsilon does not cover",
    )
    height = _height(axes, at_mark)
    at = 0.3 if height > 0.5 else 0.75
    words = "proven: no crowd is\nworse (a theorem)"
    label(axes, words, _point(axes, grid, proven, at), (1.04, at), canvas.BLUE)
    words, where = "attack: some crowd\nis at least this bad", _point(axes, grid, attack, 0.18)
    if where[0] > 0.42:
        axes.annotate(
            words, xy=(where[0], 0.12), xycoords="axes fraction", xytext=(-8, 0),
            textcoords="offset points", color=canvas.RED, fontsize=canvas.SMALL, ha="right",
            va="center",
        )  # fmt: skip
    else:
        label(axes, words, where, (1.04, 0.18), canvas.RED)
    if at_mark >= floor:
        below = height > 0.8
        axes.plot([marked], [at_mark], marker="o", markersize=7, color=canvas.BLACK, zorder=5)
        axes.annotate(
            f"epsilon {text_up(marked)}:\ndelta at most {_short(at_mark)}",
            xy=(marked, at_mark), xytext=(12, -12 if below else 8), textcoords="offset points",
            va="top" if below else "bottom", fontsize=canvas.SMALL, color=canvas.BLACK, bbox=_PAPER,
        )  # fmt: skip
    if local <= last:
        axes.axvline(local, color=canvas.GREY, linestyle=canvas.DOTTED, linewidth=1.2)
    axes.text(
        1.04, 1.0, f"One report alone has\nepsilon {text_up(local)}, delta 0.",
        transform=axes.transAxes, fontsize=canvas.SMALL, color=canvas.GREY, va="top",
    )  # fmt: skip
    return figure


def _last_epsilon(certificate: Certificate, marked: float, floor: float) -> float:
    """Return where the proven delta leaves the picture, or the local epsilon."""
    local = certificate.local_epsilon
    last = min(max(1.5 * marked, 0.1), local)
    while last < local and certificate.delta(epsilon=last, rtol=0.1).high > floor:
        last = min(1.1 * last, local)
    return max(last, 1.05 * marked)


def _height(axes: Axes, y: float) -> float:
    """Return where a value stands, as a part of the axes' height."""
    place = axes.transData.transform((axes.get_xlim()[0], max(y, 1e-300)))
    return float(axes.transAxes.inverted().transform(place)[1])


def _point(
    axes: Axes, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], height: float
) -> tuple[float, float]:
    """Return the point of a falling curve at a height, both as parts of the axes."""
    heights = np.array([_height(axes, float(value)) for value in y])
    at = float(np.interp(-height, -heights, x))
    left, right = axes.get_xlim()
    return (at - left) / (right - left), height


def _short(value: float) -> str:
    return brief(round_up(value, 3))


def plot_ratio(source: Certificate | Plan, *, epsilon: float | None = None) -> Figure:
    """Draw the distribution of the privacy ratio R in SDP's crowd (forward), with lambda marked.

    A picture of one crowd, not a promise: see `plot_privacy` for what holds for all.
    """
    certificate = certificate_of(source)
    marked = marked_epsilon(source, epsilon)
    q, crowd = float(certificate.q), certificate.crowd_size
    if q == 0.5:
        raise InputError("at q = 1/2 the ratio is always 1; there is nothing to plot.")
    if certificate.view == "counts":
        raise InputError("the privacy ratio is about whole reports; plot privacy for counts.")
    differ = certificate.survey.differing_bits
    lam = math.exp(marked)
    figure, axes = sheet(
        "The privacy ratio when one person stands out",
        _subtitle(certificate),
        right=0.97,
    )
    mean, variance = homogeneous.ratio_moments(differ, crowd, q)
    sigma = math.sqrt(variance)
    distribution = homogeneous.ratio_distribution(differ, crowd, q, 512)
    first = max(0.0, mean - 4.5 * sigma)
    last = max(1.15 * lam, mean + 4.5 * sigma)
    density = distribution.probabilities / float(distribution.values[1] - distribution.values[0])
    inside = (distribution.values >= first) & (distribution.values <= last)
    x, y = distribution.values[inside], density[inside]
    axes.fill_between(x, 0.0, y, color=canvas.BLUE, alpha=0.15, linewidth=0)
    axes.fill_between(x, 0.0, y, where=x > lam, color=canvas.RED, alpha=0.45, linewidth=0)
    axes.plot(x, y, color=canvas.BLUE, linewidth=1.8)
    peak = float(y.max())
    axes.set_xlim(first, last)
    axes.set_ylim(0.0, 1.32 * peak)
    eta = homogeneous.eta((differ, 0, 0), crowd, q, marked)
    axes.axvline(lam, color=canvas.RED, linestyle=canvas.DASHED, linewidth=1.6)
    axes.axvline(mean, color=canvas.GREEN, linestyle=canvas.DOTTED, linewidth=1.8)
    beyond = (
        f"lambda = {brief(lam, 4)}, that is epsilon {brief(marked, 4)}\nexceeded with probability\n"
        f"{_short(eta.high)} at most"
    )
    lambda_right = lam < first + 0.68 * (last - first)
    mean_right = mean < first + 0.17 * (last - first)
    for at, to_right, words, colour in (
        (lam, lambda_right, beyond, canvas.RED),
        (mean, mean_right, f"mean {brief(mean, 4)}\nsigma {brief(sigma)}", canvas.GREEN),
    ):
        axes.annotate(
            words, xy=(at, 1.29 * peak), xytext=(6 if to_right else -6, 0),
            textcoords="offset points", color=colour, fontsize=canvas.SMALL, va="top",
            ha="left" if to_right else "right", bbox=_PAPER,
        )  # fmt: skip
    name_axes(
        axes,
        "privacy ratio R: how much likelier the tally is if that person is in the crowd",
        "probability density",
    )
    figure.text(
        0.97, 0.016, "All others are equal (SDP's crowd). Other crowds can be worse.",
        fontsize=canvas.SMALL - 1, color=canvas.GREY, ha="right",
    )  # fmt: skip
    return figure


def plot_precision(source: Certificate | Plan, *, epsilon: float | None = None) -> Figure:
    """Draw the error of a count at each q, with the planned and the local q marked (SDP 4)."""
    certificate = certificate_of(source)
    marked = marked_epsilon(source, epsilon)
    crowd, q = certificate.crowd_size, float(certificate.q)
    local = local_q(certificate.survey.differing_bits, marked)
    if q == 0.5 or local == 0.5:
        raise InputError("at q = 1/2 nothing can be estimated; there is nothing to plot.")
    figure, axes = sheet(
        "The cost of flips: the error of an estimated count",
        f"{certificate.survey.name}: {counted(certificate.survey.bits, 'bit')} a report, crowd of"
        f" {crowd:,}, epsilon {text_up(marked)}",
        right=0.9,
    )
    start = min(q, local) / 3.0
    nearest = (0.5 - max(q, local)) / 2.5
    # even steps in the logarithm of the odds: close to 1/2 the curve is steep
    odds = np.linspace(math.log(start / (1 - start)), -4 * nearest, 400)
    grid = 1.0 / (1.0 + np.exp(-odds))
    error = np.array([count_sigma(crowd, float(value)) for value in grid])
    axes.plot(grid, error, color=canvas.BLUE, linewidth=2)
    axes.set_yscale("log")
    axes.set_xlim(0.0, 0.5)
    axes.set_ylim(float(error.min()) / 1.5, float(error.max()) * 2.0)
    planned_error, local_error = count_sigma(crowd, q), count_sigma(crowd, local)
    gain = local_error / planned_error
    planned = f"in the crowd: q = {q:.5g}\nerror {math.ceil(planned_error):,} people"
    alone = (
        f"without a crowd (local): q = {brief(round_up(local, 5), 5)}\n"
        f"error {math.ceil(local_error):,} people, {brief(round_down(gain, 3))} times as large"
    )
    for x, y, marker, colour, words in (
        (q, planned_error, "o", canvas.BLACK, planned),
        (local, local_error, "s", canvas.ORANGE, alone),
    ):
        axes.plot([x], [y], marker=marker, markersize=8, color=colour, zorder=5)
        axes.vlines(x, axes.get_ylim()[0], y, color=colour, linestyle=canvas.DOTTED, linewidth=1.2)
        # the curve rises: to the left above it and to the right below it there is room
        far = x > 0.2
        lift = 10 if far else -4
        if far and colour == canvas.ORANGE and gain < 2.5:
            lift = 45  # above the other note
        axes.annotate(
            words, xy=(x, y), xytext=(-12 if far else 12, lift), textcoords="offset points",
            ha="right" if far else "left", va="bottom" if far else "top", fontsize=canvas.SMALL,
            color=colour, bbox=_PAPER,
        )  # fmt: skip
    name_axes(axes, canvas.Q_AXIS, canvas.ERROR_AXIS)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    both = (lambda people: people / crowd, lambda share: share * crowd)
    share = axes.secondary_yaxis("right", functions=both)
    share.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    share.set_ylabel("the same, as a share of the crowd", fontsize=canvas.SMALL)
    share.tick_params(labelsize=canvas.SMALL)
    return figure
