"""`shoal estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.estimating import estimate
from shoal.analysis.tallying import Tally
from shoal.cli._commands import Command
from shoal.cli._common import (
    interval_option,
    json_option,
    level_option,
    plan_argument,
    print_json,
    tally_argument,
    target_option,
)


@click.command(cls=Command, example="shoal estimate plan.json tally.json")
@plan_argument
@tally_argument
@level_option
@interval_option
@target_option
@json_option
def command(
    plan_file: Path, tally_file: Path, level: float, kind: Any, target: Any, as_json: bool
) -> None:
    """Estimate how many people gave each answer, with intervals.

    A tally of fewer reports than the plan's crowd is refused (exit code 3).
    """
    plan = Plan.read(plan_file)
    estimates = estimate(plan, Tally.read(tally_file, plan), target=target)
    document = estimates.to_json(level, kind)
    if as_json:
        print_json(document)
    else:
        from shoal.cli._estimates import show_estimates

        show_estimates(document, plan.survey.name)
