"""`shoal estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.analysis.estimates import estimate
from shoal.analysis.tally import Tally
from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    interval_option,
    json_option,
    level_option,
    plan_argument,
    tally_argument,
    target_option,
)
from shoal.cli._printing import print_json
from shoal.errors import InputError
from shoal.protocol.plan import Plan


@click.command(cls=Command, example="shoal estimate plan.json tally.json")
@plan_argument
@tally_argument
@level_option
@interval_option
@target_option
@click.option(
    "--against",
    "earlier",
    type=IN_FILE,
    metavar="TALLY.json",
    help="Compare with this tally of the plan, such as an earlier window.",
)
@json_option
def command(
    plan_file: Path,
    tally_file: Path,
    level: float,
    kind: Any,
    target: Any,
    earlier: Path | None,
    as_json: bool,
) -> None:
    """Estimate how many people gave each answer, with intervals.

    Numbers also have a mean and quantiles. With --against the shares of two crowds are compared,
    option by option. A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    from shoal.analysis.number_summary import numbers_of
    from shoal.cli._estimates import show_difference, show_estimates, show_numbers

    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    estimates = estimate(plan, tally, target=target)
    document = estimates.to_json(level, kind) | {"numbers": numbers_of(estimates, level)}
    if earlier is not None:
        if target != "crowd":
            raise InputError("--against compares the people who reported; leave out --target.")
        from shoal.analysis.trends import crowd_difference

        before = Tally.read(earlier, plan)
        if before == tally:
            raise InputError(
                f"{tally_file} and {earlier} have the same counts, so they are taken for one crowd;"
                " name another one."
            )
        document["difference"] = crowd_difference((plan, tally), (plan, before), level).to_json()
    if as_json:
        print_json(document)
        return
    show_estimates(document, plan.survey.name)
    show_numbers(document)
    if earlier is not None:
        show_difference(document["difference"])
