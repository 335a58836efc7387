"""Plots of plans: the privacy and precision of a certificate, and noise over the crowd's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.errors import InputError
from shoal.planning.bounds import bound_of, domain_of
from shoal.planning.certificate import Certificate, certify
from shoal.protocol.plan import Plan, View
from shoal.protocol.survey import Survey
from shoal.reports.plots import canvas
from shoal.reports.plots.canvas import brief, counted, legend, name_axes, sheet
from shoal.support.checks import check_integer, check_number
from shoal.support.rounding import round_down, round_up, text_up
from shoal.theory import homogeneous
from shoal.theory.composition import gaussian_sigma
from shoal.theory.literature_bounds import PublishedBound, published_q
from shoal.theory.proven import attack_q, proven_q
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import three_sigma_q

if TYPE_CHECKING:
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
    # delta falls in epsilon, and the mark may come from a slower and better bound
    proven = np.where(grid >= marked, np.minimum(proven, at_mark), proven)
    attack = np.array([certificate.attack(float(e), rtol=1e-2).delta.low for e in grid])
    # from the local epsilon on delta is 0, which a logarithm cannot show
    floor = max(floor, float(np.min(proven[proven > 0], initial=1.0)) / 10)
    proven, attack = np.maximum(proven, floor / 10), np.maximum(attack, floor / 10)
    axes.set_yscale("log")
    axes.set_xlim(0.0, last)
    axes.set_ylim(floor, max(1.0, 3 * float(proven[0])))
    axes.fill_between(grid, attack, proven, color=canvas.BLUE, alpha=0.15, linewidth=0)
    words = "proven: no crowd is\nworse (a theorem)"
    axes.plot(grid, proven, color=canvas.BLUE, linestyle=canvas.SOLID, linewidth=2, label=words)
    words = "attack: some crowd\nis at least this bad"
    axes.plot(grid, attack, color=canvas.RED, linestyle=canvas.DASHED, linewidth=1.6, label=words)
    legend(axes)
    name_axes(
        axes,
        "epsilon: how far one answer can shift the odds (a factor of e to the epsilon)",
        "delta: what epsilon does not cover",
    )
    if at_mark >= floor:
        below = at_mark > axes.get_ylim()[1] ** 0.8 * floor**0.2  # near the upper edge
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
    figure, axes = sheet("The privacy ratio when one person stands out", _subtitle(certificate))
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
    axes.set_xlim(first, last)
    axes.set_ylim(0.0, 1.1 * float(y.max()))
    eta = homogeneous.eta((differ, 0, 0), crowd, q, marked)
    beyond = (
        f"lambda = {brief(lam, 4)}\n(epsilon {brief(marked, 4)}),\nexceeded with probability\n"
        f"{_short(eta.high)} at most"
    )
    words = f"mean {brief(mean, 4)},\nsigma {brief(sigma)}"
    axes.axvline(lam, color=canvas.RED, linestyle=canvas.DASHED, linewidth=1.6, label=beyond)
    axes.axvline(mean, color=canvas.GREEN, linestyle=canvas.DOTTED, linewidth=1.8, label=words)
    legend(axes)
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
    if certificate.noise is not None:
        raise InputError("this picture shows the cost of flips; here aggregators add the noise.")
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
        axes.plot([x], [y], marker, markersize=8, color=colour, zorder=5, label=words)
        axes.vlines(x, axes.get_ylim()[0], y, color=colour, linestyle=canvas.DOTTED, linewidth=1.2)
    legend(axes, inside=True)
    name_axes(axes, canvas.Q_AXIS, canvas.ERROR_AXIS)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    both = (lambda people: people / crowd, lambda share: share * crowd)
    share = axes.secondary_yaxis("right", functions=both)
    share.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    share.set_ylabel("the same, as a share of the crowd", fontsize=canvas.SMALL)
    share.tick_params(labelsize=canvas.SMALL)
    return figure


_XTOL = 1e-3
_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)


class _Promise(NamedTuple):
    survey: Survey
    epsilon: float
    delta: float

    def local(self, crowd: int) -> float:
        return local_q(self.survey.differing_bits, self.epsilon)

    def proven(self, crowd: int) -> float:
        domain = domain_of(self.survey)
        return proven_q(domain, crowd, self.epsilon, self.delta, _XTOL, quick=True).value

    def attack(self, crowd: int) -> float:
        domain = domain_of(self.survey)
        return attack_q(domain, crowd, self.epsilon, self.delta, _XTOL).value

    def three_sigma(self, crowd: int) -> float:
        try:
            return three_sigma_q(self.survey.differing_bits, crowd, self.epsilon)
        except ValueError:
            return math.nan  # lambda is too close to 1 for so small a crowd

    def published(self, crowd: int, bound: PublishedBound) -> float:
        domain = domain_of(self.survey)
        return published_q(domain, crowd, self.epsilon, self.delta, bound, _XTOL)

    def local_noise(self, crowd: int) -> float:
        return _sigma(crowd, self.local(crowd))

    def view_noise(self, crowd: int, view: View) -> float:
        bound = bound_of(self.survey, view)
        return _sigma(crowd, bound.q(crowd, self.epsilon, self.delta, rough=True))

    def curator_noise(self, crowd: int) -> float:
        return gaussian_sigma(self.survey.differing_bits, self.epsilon, self.delta)


def _sigma(crowd: int, q: float) -> float:
    return count_sigma(crowd, q) if q < 0.5 else math.nan


class _Line(NamedTuple):
    name: str
    colour: str
    style: object
    marker: str
    value: Callable[[_Promise, int], float]


_LOCAL = _Line("local q = {}\nno crowd needed", canvas.GREY, canvas.DOTTED, "", _Promise.local)
_NOISE = (
    _LOCAL,
    _Line("proven q = {}\nholds for every crowd", canvas.BLUE, canvas.SOLID, "o", _Promise.proven),
    _Line("attack q = {}\nany less is broken", canvas.RED, canvas.DASHED, "s", _Promise.attack),
    _Line("three-sigma q = {}\na rule of thumb (SDP)", canvas.GREEN, canvas.DASH_DOT, "^",
          _Promise.three_sigma),
)  # fmt: skip
_VIEWS = (
    _Line("local: {} people\nobserver of one report", canvas.GREY, canvas.DOTTED, "",
          _Promise.local_noise),
    _Line("reports: {} people\nobserver of all reports", canvas.BLUE, canvas.SOLID, "o",
          partial(_Promise.view_noise, view="reports")),
    _Line("counts: {} people\nobserver of counts", canvas.RED, canvas.SOLID, "s",
          partial(_Promise.view_noise, view="counts")),
    _Line("curator: {} people\na curator sees all answers", canvas.BLACK, canvas.DASHED, "",
          _Promise.curator_noise),
)  # fmt: skip
_BOUNDS = (
    _LOCAL,
    _Line("clones q = {}\nFMT21", canvas.ORANGE, canvas.DASH_DOT, "^",
          partial(_Promise.published, bound="clones")),
    _Line("stronger clones q = {}\nFMT23", canvas.PINK, (0, (3, 1)), "v",
          partial(_Promise.published, bound="stronger clones")),
    _Line("Shoal, proven q = {}\nBBGN19, exactly", canvas.BLUE, canvas.SOLID, "o", _Promise.proven),
    _Line("attack q = {}\nno bound can be below", canvas.RED, canvas.DASHED, "s", _Promise.attack),
)  # fmt: skip


def plot_noise(
    survey: Survey, *, epsilon: float, delta: float, crowd_sizes: Sequence[int] | None = None
) -> Figure:
    """Draw the q that each kind of promise needs: local, proven, and what attacks leave open."""
    title = "How often a device must flip a bit, by the size of the crowd"
    return _over_crowds(title, _Promise(survey, epsilon, delta), crowd_sizes, _NOISE)


def plot_views(
    survey: Survey, *, epsilon: float, delta: float, crowd_sizes: Sequence[int] | None = None
) -> Figure:
    """Draw the error of a count that each view leaves for the same promise.

    Local, proven for whole reports, proven for counts, and a trusted curator's normal noise.

    Examples
    --------
    >>> from shoal import Flags, Survey
    >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
    >>> figure = plot_views(survey, epsilon=1, delta=1e-6, crowd_sizes=[100, 1000])
    >>> figure.axes[0].get_ylabel()
    'error of a count: one sigma, in people'
    """
    title = "How much noise each view needs, by the size of the crowd"
    promise = _Promise(survey, epsilon, delta)
    return _over_crowds(title, promise, crowd_sizes, _VIEWS, canvas.ERROR_AXIS)


def plot_bounds(
    survey: Survey, *, epsilon: float, delta: float, crowd_sizes: Sequence[int] | None = None
) -> Figure:
    """Draw the q that published bounds need for the same promise.

    Local, clones (FMT21), stronger clones (FMT23), Shoal's proven bound (the privacy blanket of
    BBGN19 evaluated exactly; for one bit the exact maximum), and the attack below which no bound
    can be.
    """
    title = "The noise that each known bound asks for, for the same promise"
    return _over_crowds(title, _Promise(survey, epsilon, delta), crowd_sizes, _BOUNDS)


def _sizes(crowd_sizes: Sequence[int] | None) -> list[int]:
    given = _SIZES if crowd_sizes is None else crowd_sizes
    sizes = sorted({check_integer("crowd_sizes", size, lowest=2) for size in given})
    if len(sizes) < 2:
        raise InputError("crowd_sizes must hold at least two different sizes.")
    return sizes


def _text(value: float) -> str:
    """Write a probability briefly, and a number of people in full."""
    return brief(value) if value < 1 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _over_crowds(
    title: str,
    promise: _Promise,
    crowd_sizes: Sequence[int] | None,
    lines: Sequence[_Line],
    height: str = canvas.Q_AXIS,
) -> Figure:
    survey, epsilon, delta = promise
    sizes = _sizes(crowd_sizes)
    if check_number("epsilon", epsilon) <= 0:
        raise InputError(f"epsilon must be above 0, got epsilon={epsilon}.")
    if not 0 < check_number("delta", delta) < 1:
        raise InputError(f"delta must be strictly between 0 and 1, got delta={delta}.")
    figure, axes = sheet(
        title,
        f"{survey.name}: {counted(survey.bits, 'bit')} a report, two answers differ in up to"
        f" {survey.differing_bits}; promise: epsilon {brief(epsilon, 4)}, delta {brief(delta)}",
    )
    axes.set_xscale("log")
    lowest, highest = math.inf, 0.5
    for line in lines:
        values = [line.value(promise, size) for size in sizes]
        # q is a promise and goes up; the attack is a lower bound and goes down
        rounded = round_down if line.name.startswith("attack") else round_up
        known = not math.isnan(values[-1])
        words = line.name.format(_text(rounded(values[-1], 3))) if known else "_"
        axes.plot(
            sizes, values, color=line.colour, linestyle=line.style, marker=line.marker,
            linewidth=1.8, markersize=4.5, clip_on=False, zorder=3, label=words,
        )  # fmt: skip
        lowest, highest = np.nanmin([lowest, *values]), np.nanmax([highest, *values])
    axes.set_xlim(sizes[0], sizes[-1])
    if lowest < 0.05 or highest > 0.5:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.5, 1.2 * highest)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: _text(value))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(0.0 if lowest < 0.3 else lowest - 0.1, 0.51)
    name_axes(axes, "crowd: reports released together", height)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend(axes)
    return figure
