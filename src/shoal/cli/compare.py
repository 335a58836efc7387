"""`shoal compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.cli.options import (
    DECIMAL,
    check_plot,
    command,
    json_option,
    level_option,
    option,
    plot_option,
    promise_options,
    survey_options,
)
from shoal.cli.output import (
    bits_in_words,
    bold,
    grouped,
    print_json,
    printer,
    show_title,
    show_written,
    table,
    waiting,
)
from shoal.protocol.survey import Survey
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.planning.costs import Comparison

_TRUST = {
    "local": "nobody",
    "proven": "that reports are anonymized, the others honest",
    "sufficient": "the same; not a guarantee",
    "three-sigma": "the same; a rule of thumb",
    "counts": "that nobody sees a report, only counts",
    "curator": "somebody who sees all answers; Laplace noise",
    "curator_gaussian": "the same; normal noise",
}


@command("shoal compare --flags 5 --crowd 10000 --epsilon 1 --delta 1e-6")
@survey_options
@promise_options(required=True)
@option(
    "--share", "Size of the group of interest, as a share of the crowd.", type=DECIMAL, default=0.01
)
@option(
    "--relative-error",
    "How precisely to know that group, relative to its size.",
    type=DECIMAL,
    default=0.1,
)
@level_option
@plot_option
@json_option
def compare(survey: Survey, crowd: int, plot: Path | None, as_json: bool, **question: Any) -> None:
    """Show what each kind of trust costs for a survey.

    The same survey at the same epsilon: with local noise, in an anonymous crowd, and with a
    trusted curator. For `--promise sufficient`, delta is used as eta.
    """
    from shoal.planning.costs import compare

    check_plot(plot)
    with waiting("comparing"):
        comparison = compare(survey, crowd_size=crowd, **question)
    if plot is not None:
        from shoal.reports.plots import save
        from shoal.reports.plots.results import plot_costs

        save(plot_costs(comparison), plot)
    if as_json:
        print_json(comparison.to_json())
    else:
        _show(comparison, plot)


def _show(comparison: Comparison, plot: Path | None) -> None:
    console = printer()
    survey, share = comparison.survey, text_near(comparison.share, 3)
    show_title(
        console,
        survey.name,
        f"{bits_in_words(survey.bits)}, {comparison.crowd_size:,} people,"
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
            "-" if cost.sigma is None else grouped(cost.sigma),
            "-" if cost.half_width is None else f"± {grouped(cost.half_width)}",
            "-" if cost.gain_over_local is None else grouped(cost.gain_over_local, 3),
            "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}",
        )
        rows.append((bold(cost.trust), noise, *numbers))
    columns = ["kind", "noise", "sigma", f"{share} of all", "gain", "people needed"]
    console.print(table(columns, rows))
    console.print()
    trust = [(bold(cost.trust), _TRUST[cost.trust]) for cost in comparison]
    console.print(table(["kind", "you trust"], trust, left=2))
    console.print(
        f"\nsigma: standard deviation of a count of people. {share} of all: half the width of an"
        f" interval at {text_near(comparison.level)} for a group of that size. gain: how many times"
        " smaller sigma is than with local noise. people needed: to know that group within"
        f" {text_near(comparison.relative_error, 3)} of its size."
    )
    show_written(console, plot)
