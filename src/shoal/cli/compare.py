"""`shoal compare`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.planning.costs import Comparison

_TRUST = {
    "local": "nobody",
    "proven": "that reports are anonymized, the others honest",
    "sufficient": "the same; not a guarantee",
    "three-sigma": "the same; a rule of thumb",
    "counts": "that only counts are seen, never a report",
    "curator": "a curator who sees all answers; Laplace noise",
    "curator_gaussian": "the same; normal noise",
}


@dataclass(frozen=True)
class _Request:
    crowd_size: int = cli.CROWD
    epsilon: str = cli.EPSILON
    delta: str = cli.DELTA
    share: float = opt("Size of the group of interest, as a share of the crowd.", default=0.01)
    relative_error: float = opt(
        "How precisely to know that group, relative to its size.", default=0.1
    )
    level: float = cli.LEVEL


@cli.command("shoal compare --flags 5 --crowd 10000 --epsilon 1 --delta 1e-6")
def compare(
    *, survey: Survey = cli.SURVEY, request: _Request, plot: Path | None = cli.PLOT
) -> out.Result:
    """Compare the cost of each trust model for a survey.

    The same survey at the same epsilon: with local noise, in an anonymous crowd, and with a
    trusted curator. For `--promise sufficient`, delta is used as eta.
    """
    from shoal.planning.costs import compare

    with out.waiting("comparing"):
        comparison = compare(survey, **vars(request))
    if plot is not None:
        from shoal.reports.plots import save
        from shoal.reports.plots.results import plot_costs

        save(plot_costs(comparison), plot)
    return out.Result(comparison.to_json(), chain(_show(comparison), out.written(plot)))


def _show(comparison: Comparison) -> out.Pieces:
    survey, share = comparison.survey, text_near(comparison.share, 3)
    yield out.title(
        survey.name,
        f"{out.bits_in_words(survey.bits)}, {comparison.crowd_size:,} people,"
        f" epsilon {comparison.epsilon}, delta {comparison.delta}",
    )
    rows = []
    for cost in comparison:
        noise = "none suffices" if cost.q is None else f"q {text_near(cost.q, 4)}"
        if cost.scale is not None:
            noise = f"scale {text_near(cost.scale)}"
        elif cost.trust == "curator_gaussian":
            noise = "normal"
        numbers = (
            "-" if cost.sigma is None else out.grouped(cost.sigma),
            "-" if cost.half_width is None else f"± {out.grouped(cost.half_width)}",
            "-" if cost.gain_over_local is None else out.grouped(cost.gain_over_local, 3),
            "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}",
        )
        rows.append((out.bold(cost.trust), noise, *numbers))
    columns = ["kind", "noise", "sigma", f"{share} of all", "gain", "people needed"]
    yield out.table(columns, rows)
    yield ""
    trust = [(out.bold(cost.trust), _TRUST[cost.trust]) for cost in comparison]
    yield out.table(["kind", "you trust"], trust, left=2)
    yield (
        f"\nsigma: standard deviation of a count of people. {share} of all: half the width of an"
        f" interval at {text_near(comparison.level)} for a group of that size. gain: how many times"
        " smaller sigma is than with local noise. people needed: to know that group within"
        f" {text_near(comparison.relative_error, 3)} of its size."
    )
