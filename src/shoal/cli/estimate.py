"""`shoal estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.estimating import estimate
from shoal.analysis.tallying import Tally
from shoal.cli._common import (
    IN_FILE,
    interval_option,
    json_option,
    level_option,
    print_json,
    target_option,
)


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, metavar="TALLY.json")
@level_option
@interval_option
@target_option
@json_option
def command(
    plan_file: Path, tally_file: Path, level: float, kind: Any, target: Any, as_json: bool
) -> None:
    """Estimate how many people are behind each option.

    A plan with a crowd refuses a tally of fewer reports (exit code 3).
    """
    plan = Plan.read(plan_file)
    estimates = estimate(plan, Tally.read(tally_file, plan), target=target)
    document = estimates.to_json(level, kind)
    if as_json:
        print_json(document)
    else:
        from shoal.cli._estimates import show_estimates

        show_estimates(document, plan.survey.name)
