"""`shoal compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    check_plot,
    crowd_option,
    delta_option,
    epsilon_option,
    json_option,
    level_option,
    plot_option,
    survey_options,
)
from shoal.cli._printing import grouped, print_json, printer
from shoal.cli._types import DECIMAL
from shoal.cli._waiting import waiting
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


@click.command(
    cls=Command, example="shoal compare --flags 5 --crowd 10000 --epsilon 1 --delta 1e-6"
)
@survey_options
@crowd_option(required=True)
@epsilon_option(required=True)
@delta_option(required=True)
@click.option(
    "--share",
    type=DECIMAL,
    default=0.01,
    show_default=True,
    help="Size of the group of interest, as a share of the crowd.",
)
@click.option(
    "--relative-error",
    type=DECIMAL,
    default=0.1,
    show_default=True,
    help="How precisely to know that group, relative to its size.",
)
@level_option
@plot_option
@json_option
def command(
    survey: Survey,
    crowd: int,
    epsilon: str,
    delta: str,
    share: float,
    relative_error: float,
    level: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show what each kind of trust costs for a survey.

    The same survey at the same epsilon: with local noise, in an anonymous crowd, and with a
    trusted curator. For `--promise sufficient`, delta is used as eta.
    """
    from shoal.planning.costs import compare

    check_plot(plot)
    with waiting("comparing"):
        comparison = compare(
            survey,
            crowd_size=crowd,
            epsilon=epsilon,
            delta=delta,
            share=share,
            relative_error=relative_error,
            level=level,
        )
    if plot is not None:
        from shoal.reports.plots import save
        from shoal.reports.plots.trust_costs import plot_costs

        save(plot_costs(comparison), plot)
    if as_json:
        print_json(comparison.to_json())
    else:
        _show(comparison, plot)


def _show(comparison: Comparison, plot: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    survey, share = comparison.survey, text_near(comparison.share, 3)
    size = "1 bit" if survey.bits == 1 else f"{survey.bits} bits"
    console.print(
        f"[bold]{escape(survey.name)}[/bold]: {size}, {comparison.crowd_size:,} people,"
        f" epsilon {comparison.epsilon}, delta {comparison.delta}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("kind", style="bold", no_wrap=True)
    for name in ("noise", "sigma", f"{share} of all", "gain", "people needed"):
        table.add_column(name, justify="right", no_wrap=True)
    trust = Table(box=None, pad_edge=False)
    trust.add_column("kind", style="bold", no_wrap=True)
    trust.add_column("you trust")
    for cost in comparison:
        noise = "none suffices" if cost.q is None else f"q {text_near(cost.q, 4)}"
        if cost.scale is not None:
            noise = f"scale {text_near(cost.scale)}"
        elif cost.trust == "curator_gaussian":
            noise = "normal"
        table.add_row(
            cost.trust,
            noise,
            "-" if cost.sigma is None else grouped(cost.sigma),
            "-" if cost.half_width is None else f"± {grouped(cost.half_width)}",
            "-" if cost.gain_over_local is None else grouped(cost.gain_over_local, 3),
            "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}",
        )
        trust.add_row(cost.trust, _TRUST[cost.trust])
    console.print(table)
    console.print()
    console.print(trust)
    console.print(
        f"\nsigma: standard deviation of a count of people. {share} of all: half the width of an"
        f" interval at {text_near(comparison.level)} for a group of that size. gain: how many times"
        " smaller sigma is than with local noise. people needed: to know that group within"
        f" {text_near(comparison.relative_error, 3)} of its size."
    )
    if plot is not None:
        console.print(f"written to {escape(str(plot))}", soft_wrap=True)
