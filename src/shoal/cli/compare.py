"""`shoal compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.agreement.survey import Survey
from shoal.cli._common import (
    OUT_FILE,
    json_option,
    level_option,
    print_json,
    printer,
    survey_options,
)
from shoal.errors import InputError

if TYPE_CHECKING:
    from shoal.planning.trust_costs import Comparison

_TRUST = {
    "local": "nobody",
    "proven": "that reports are anonymized",
    "sufficient": "that too; not a guarantee",
    "three-sigma": "that too; a rule of thumb",
    "curator": "one who sees all answers",
}


@click.command()
@survey_options
@click.option("--crowd", type=int, required=True, metavar="N", help="How many people answer.")
@click.option("--epsilon", required=True, metavar="E", help="The privacy wanted.")
@click.option("--delta", required=True, metavar="D", help="And its delta; also SDP's eta.")
@click.option("--share", type=float, default=0.01, show_default=True,
              help="The group to know, as a share of the crowd.")  # fmt: skip
@click.option("--relative-error", type=float, default=0.1, show_default=True,
              help="How well to know it, relative to itself.")  # fmt: skip
@level_option
@click.option("--plot", type=OUT_FILE, help="Also draw it, as .png, .svg or .pdf.")
@json_option
def command(
    survey: Survey | None,
    crowd: int,
    epsilon: str,
    delta: str,
    share: float,
    relative_error: float,
    level: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare what each kind of trust costs for one question.

    The same survey at the same epsilon: with local noise, in an anonymous crowd, and with a
    trusted curator.
    """
    from shoal.planning.trust_costs import compare

    if survey is None:
        raise InputError("name a survey file, or use --flags, --choice or --choices.")
    if plot is not None:
        from shoal.charts import check_suffix

        check_suffix(plot)
    found = compare(
        survey, crowd_size=crowd, epsilon=epsilon, delta=delta, share=share,
        relative_error=relative_error, level=level,
    )  # fmt: skip
    if plot is not None:
        from shoal.charts import save
        from shoal.charts.trust_costs import plot_costs

        save(plot_costs(found), plot)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found, plot)


def _show(found: Comparison, plot: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    size = "1 bit" if found.survey.bits == 1 else f"{found.survey.bits} bits"
    console.print(
        f"[bold]{escape(found.survey.name)}[/bold]: {size},"
        f" {found.crowd_size:,} people, epsilon {found.epsilon}, delta {found.delta}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("kind", style="bold", no_wrap=True)
    for name in ("noise", "sigma", f"{found.share:.3g} of all", "gain", "people needed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("you trust", overflow="fold")
    for cost in found:
        noise = f"q {cost.q:.4f}" if cost.q is not None else "none would do"
        if cost.scale is not None:
            noise = f"scale {cost.scale:.4g}"
        table.add_row(
            cost.trust,
            noise,
            "-" if cost.sigma is None else f"{cost.sigma:,.4g}",
            "-" if cost.half_width is None else f"± {cost.half_width:,.4g}",
            "-" if cost.gain_over_local is None else f"{cost.gain_over_local:,.3g}",
            "over 1e12" if cost.people_needed is None else f"{cost.people_needed:,}",
            _TRUST[cost.trust],
        )
    console.print(table)
    console.print(
        f"\nsigma: of a count of people. ±: how far an interval at {found.level:.4g} for a group of"
        f" {found.share:.3g} of all reaches. gain: sigma, times smaller than with local noise."
        f" people needed: to know that group within {found.relative_error:.3g} of itself."
    )
    if plot is not None:
        console.print(f"written to {escape(str(plot))}", soft_wrap=True)
