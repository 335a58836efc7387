"""Plots with matplotlib: what a plan promises, what it costs, what published bounds need.

About one certificate
    `plot_privacy` (delta at each epsilon), `plot_ratio` (the privacy ratio), `plot_precision` (the
    error of a count at each q).

About a survey, over the size of the crowd
    `plot_noise` (the q that each kind of promise needs), `plot_views` (the noise that each view
    needs), `plot_bounds` (the q that each published bound needs).

Of results, in `results`; each has a method `plot`
    `plot_estimates`, `plot_cross`, `plot_trend`, `plot_texts`, `plot_costs`
    (what each kind of trust costs), `plot_study` (bias, sigma and coverage).

Each returns a matplotlib `Figure`; `save` writes it as PNG, SVG or PDF. matplotlib is optional:
``pip install 'shoal[plots]'``. Nothing global in matplotlib is changed, and no window opens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.reports.plots.canvas import check_suffix, save
from shoal.reports.plots.plans import (
    certificate_of,
    marked_epsilon,
    plot_bounds,
    plot_noise,
    plot_precision,
    plot_privacy,
    plot_ratio,
    plot_views,
)
from shoal.support.rounding import round_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from shoal.planning.certificate import Certificate

__all__ = [
    "PICTURES",
    "check_suffix",
    "plot_bounds",
    "plot_noise",
    "plot_picture",
    "plot_precision",
    "plot_privacy",
    "plot_ratio",
    "plot_views",
    "save",
]

PICTURES = ("privacy", "ratio", "precision", "noise", "views", "bounds")
"""The names by which `plot_picture` knows the pictures."""


def plot_picture(
    picture: str,
    source: Certificate | Plan,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Figure:
    """Plot one of the `PICTURES` of a plan or a certificate by its name.

    For a plan, epsilon and delta are what it promises unless they are given. Where a delta is
    needed and nobody named one, it is the proven delta at that epsilon.

    Examples
    --------
    >>> from shoal import Flags, Survey, plan
    >>> survey = Survey("browser", (Flags("features", ("a", "b")),))
    >>> agreed = plan(survey, crowd_size=1000, epsilon=1, delta="1e-6")
    >>> plot_picture("precision", agreed).axes[0].get_ylabel()
    'error of a count: one sigma, in people'
    """
    single = {"privacy": plot_privacy, "ratio": plot_ratio, "precision": plot_precision}
    if picture in single:
        return single[picture](source, epsilon=epsilon)
    if picture not in PICTURES:
        raise InputError(f"a picture is one of {', '.join(PICTURES)}, got {picture!r}.")
    at = marked_epsilon(source, epsilon)
    if delta is None and isinstance(source, Plan) and source.promise.delta not in (None, "0"):
        delta = float(source.promise.delta or 0)
    if delta is None:
        delta = round_up(certificate_of(source).delta(epsilon=at).high, 3)
    over_crowds = {"noise": plot_noise, "views": plot_views, "bounds": plot_bounds}
    return over_crowds[picture](source.survey, epsilon=at, delta=delta)
