"""`shoal simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._common import (
    IN_FILE,
    interval_option,
    json_option,
    level_option,
    print_json,
    progress,
    target_option,
)
from shoal.plans import Plan


@click.command()
@click.argument("plan_file", type=IN_FILE, metavar="PLAN.json")
@click.option("--users", type=int, metavar="N", help="How many people to simulate.")
@click.option("--answers", type=IN_FILE, help="Draw the people from these answers.")
@click.option("--seed", type=int, help="Repeat a run exactly.")
@level_option
@interval_option
@target_option
@json_option
def command(
    plan_file: Path,
    users: int | None,
    answers: Path | None,
    seed: int | None,
    level: float,
    kind: Any,
    target: Any,
    as_json: bool,
) -> None:
    """Try a plan on people who do not exist, and see the truth beside each estimate."""
    from shoal.simulating import simulate

    plan = Plan.read(plan_file)
    originals = None
    if answers is not None:
        from shoal.engines.answer_files import read_answers

        originals = read_answers(plan.survey, answers)
    with progress("simulating", users) as advance:
        run = simulate(
            plan, users=users, answers=originals, seed=seed, target=target, progress=advance
        )
    document = run.to_json(level, kind)
    if as_json:
        print_json(document)
    else:
        from shoal.cli._estimates import show_estimates

        show_estimates(document, plan.survey.name)
