"""`shoal compare`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.planning.costs import Comparison, Cost

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
    trusted curator. How many people does each need, and how precise are its counts? For
    `--promise sufficient`, delta is used as eta.
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
    survey, people = comparison.survey, f"{comparison.crowd_size:,} people"
    yield out.title(
        survey.name,
        f"{out.bits_in_words(survey.bits)}, {people}, epsilon {comparison.epsilon},"
        f" delta {comparison.delta}",
    )
    group, level = _percent(comparison.share), text_near(comparison.level)
    yield (
        f"\nHow many people you need, to know a group of {group} of them within"
        f" {_percent(comparison.relative_error)} of its size, at {level}:"
    )
    yield out.table(["kind", "you trust", "people needed"], map(_needed, comparison), left=2)
    yield f"\nHow precise counts are, with {people}:"
    columns = ["kind", "noise", "sigma", f"group of {group}", "gain"]
    yield out.table(columns, map(_precision, comparison))
    yield (
        f"\nsigma: standard deviation of a count of people. group of {group}: half the width of an"
        f" interval at {level} for it. gain: how many times smaller sigma is than with local noise."
    )
    if survey.cohorts is not None:
        yield "All of this is about single bits; a text sets several bits and is less precise."
    yield from out.warnings(comparison.warnings)


def _percent(part: float) -> str:
    return f"{text_near(100 * part, 3)} %"


def _needed(cost: Cost) -> tuple[Any, ...]:
    people = "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}"
    return out.bold(cost.trust), _TRUST[cost.trust], people


def _precision(cost: Cost) -> tuple[Any, ...]:
    noise = "none suffices" if cost.q is None else f"q {text_near(cost.q, 4)}"
    if cost.scale is not None:
        noise = f"scale {text_near(cost.scale)}"
    elif cost.trust == "curator_gaussian":
        noise = "normal"
    return (
        out.bold(cost.trust),
        noise,
        "-" if cost.sigma is None else out.grouped(cost.sigma),
        "-" if cost.half_width is None else f"± {out.grouped(cost.half_width)}",
        "-" if cost.gain_over_local is None else out.grouped(cost.gain_over_local, 3),
    )
