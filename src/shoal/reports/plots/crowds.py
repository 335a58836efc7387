"""Plots over the size of the crowd: how much noise each kind of promise needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.errors import InputError
from shoal.planning.bounds import bound_of, domain_of
from shoal.protocol.survey import Survey
from shoal.reports.plots import canvas
from shoal.reports.plots.canvas import End, brief, counted, label_ends, name_axes, sheet
from shoal.support.checks import check_integer, check_number
from shoal.support.rounding import round_down, round_up
from shoal.theory.composition import gaussian_sigma
from shoal.theory.literature_bounds import published_q
from shoal.theory.proven import attack_q, proven_q
from shoal.theory.randomized_response import count_sigma, local_q
from shoal.theory.sufficient import three_sigma_q

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        return proven_q(domain, crowd, self.epsilon, self.delta, _XTOL).value

    def attack(self, crowd: int) -> float:
        domain = domain_of(self.survey)
        return attack_q(domain, crowd, self.epsilon, self.delta, _XTOL).value

    def three_sigma(self, crowd: int) -> float:
        try:
            return three_sigma_q(self.survey.differing_bits, crowd, self.epsilon)
        except ValueError:
            return math.nan  # lambda is too close to 1 for so small a crowd

    def clones(self, crowd: int) -> float:
        domain = domain_of(self.survey)
        return published_q(domain, crowd, self.epsilon, self.delta, "clones", _XTOL)

    def stronger_clones(self, crowd: int) -> float:
        domain = domain_of(self.survey)
        return published_q(domain, crowd, self.epsilon, self.delta, "stronger clones", _XTOL)

    def local_noise(self, crowd: int) -> float:
        return _sigma(crowd, self.local(crowd))

    def reports_noise(self, crowd: int) -> float:
        bound = bound_of(self.survey, "reports")
        return _sigma(crowd, bound.q(crowd, self.epsilon, self.delta, rough=True))

    def counts_noise(self, crowd: int) -> float:
        bound = bound_of(self.survey, "counts")
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
          _Promise.reports_noise),
    _Line("counts: {} people\nobserver of counts", canvas.RED, canvas.SOLID, "s",
          _Promise.counts_noise),
    _Line("curator: {} people\na curator sees all answers", canvas.BLACK, canvas.DASHED, "",
          _Promise.curator_noise),
)  # fmt: skip
_BOUNDS = (
    _LOCAL,
    _Line("clones q = {}\nFMT21", canvas.ORANGE, canvas.DASH_DOT, "^", _Promise.clones),
    _Line("stronger clones q = {}\nFMT23", canvas.PINK, (0, (3, 1)), "v", _Promise.stronger_clones),
    _Line("Shoal, proven q = {}\nBBGN19, exactly", canvas.BLUE, canvas.SOLID, "o", _Promise.proven),
    _Line("attack q = {}\nno bound can be below", canvas.RED, canvas.DASHED, "s", _Promise.attack),
)


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
    ends = []
    lowest, highest = math.inf, 0.5
    for line in lines:
        values = [line.value(promise, size) for size in sizes]
        axes.plot(
            sizes, values, color=line.colour, linestyle=line.style, marker=line.marker,
            linewidth=1.8, markersize=4.5, clip_on=False, zorder=3,
        )  # fmt: skip
        known = [value for value in values if not math.isnan(value)]
        lowest, highest = min([lowest, *known]), max([highest, *known])
        if not math.isnan(values[-1]):
            # q is a promise and goes up; the attack is a lower bound and goes down
            rounded = (round_down if line.name.startswith("attack") else round_up)(values[-1], 3)
            ends.append(End(values[-1], line.name.format(_text(rounded)), line.colour))
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
    label_ends(axes, ends)
    return figure
