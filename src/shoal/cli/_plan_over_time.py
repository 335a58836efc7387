"""`shoal plan over-time`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    chart_options,
    crowd_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    output_option,
    parties_options,
    releases_option,
    survey_options,
    view_option,
)
from shoal.cli._plan_result import finish
from shoal.cli._types import WHOLE
from shoal.cli._waiting import COMPUTING, waiting
from shoal.errors import InputError
from shoal.protocol.survey import Survey


@click.command(
    "over-time",
    cls=Command,
    example="shoal plan over-time survey.toml --horizon 'daily for a year' \\\n"
    "    --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
)
@survey_options
@crowd_option(required=True)
@epsilon_option(required=True)
@delta_option(required=True)
@click.option("--horizon", metavar="WORDS", help="How often and how long: 'daily for a year'.")
@releases_option
@click.option("--lifetime", metavar="E", help="The largest epsilon of all reports together.")
@click.option(
    "--distinct-answers",
    type=WHOLE,
    default=1,
    show_default=True,
    metavar="K",
    help="How many different answers one person may give.",
)
@click.option(
    "--fresh",
    default="0.5",
    show_default=True,
    metavar="PART",
    help="The part of the flips that is drawn anew for each report.",
)
@view_option()
@parties_options
@output_option("the plan")
@force_option
@chart_options("precision")
@json_option
def over_time(
    survey: Survey,
    crowd: int,
    epsilon: str,
    delta: str,
    horizon: str | None,
    releases: int | None,
    lifetime: str | None,
    distinct_answers: int,
    fresh: str,
    view: Any,
    parties: dict[str, Any],
    output: Path | None,
    force: bool,
    plot: Path | None,
    picture: Any,
    as_json: bool,
) -> None:
    """Plan for people who report again and again.

    Some flips become permanent, so that they do not average away. The plan says what holds for one
    release and what holds over time. Give --horizon or --releases.
    """
    from shoal.planning.guarantees import guarantees_over_time
    from shoal.planning.memory import parse_horizon, plan_with_memory

    if (horizon is None) == (releases is None):
        raise InputError("give one of --horizon and --releases.")
    with waiting(COMPUTING):
        agreed = plan_with_memory(
            survey,
            crowd_size=crowd,
            epsilon=epsilon,
            delta=delta,
            releases=releases,
            horizon=horizon,
            lifetime_epsilon=lifetime,
            distinct_answers=distinct_answers,
            fresh=fresh,
            view=view,
            **parties,
        )
        count = releases if horizon is None else parse_horizon(horizon).releases
        assert count is not None
        holds = guarantees_over_time(agreed, count)
    finish(agreed, holds, output, force, plot, picture, as_json)
