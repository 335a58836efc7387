"""`shoal plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.survey import Survey
from shoal.cli._commands import PlainOrSubcommand
from shoal.cli._common import (
    chart_options,
    crowd_option,
    delta_option,
    epsilon_option,
    json_option,
    output_option,
    parties_options,
    q_option,
    survey_options,
    view_option,
)
from shoal.cli._plan_diff import diff
from shoal.cli._plan_over_time import over_time
from shoal.cli._plan_result import finish
from shoal.cli._waiting import COMPUTING, waiting
from shoal.planning.plan import plan


@click.command(
    cls=PlainOrSubcommand,
    example="shoal plan survey.toml --crowd 10000 --epsilon 1 --delta 1e-6 -o plan.json",
)
@survey_options
@crowd_option()
@epsilon_option()
@delta_option()
@click.option("--eta", metavar="H", help="With --promise sufficient: the largest eta allowed.")
@q_option()
@click.option(
    "--promise",
    type=click.Choice(["proven", "sufficient", "three-sigma", "local"]),
    help="Kind of guarantee.  [default: proven, or local without a crowd]",
)
@view_option()
@click.option(
    "--local-epsilon",
    metavar="E",
    help="The most that a single report may reveal to whoever sees it.",
)
@click.option(
    "--window",
    type=int,
    metavar="SECONDS",
    help="Each person reports at most once in a window of this length.",
)
@click.option(
    "--honest", metavar="PART", help="The part of each crowd that is honest, such as 0.9."
)
@parties_options
@output_option("the plan")
@chart_options("precision")
@json_option
def command(
    survey: Survey,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    eta: str | None,
    q: str | None,
    promise: Any,
    view: Any,
    local_epsilon: str | None,
    window: int | None,
    honest: str | None,
    parties: dict[str, Any],
    output: Path | None,
    plot: Path | None,
    picture: Any,
    as_json: bool,
) -> None:
    """Choose how often each device flips a bit.

    This plans one release. Leave out one of --q, --crowd, --epsilon and --delta: it is computed,
    rounded the safe way and certified. The plan file is what devices and the analyst agree on.

    With --view counts the promise is for whoever sees only how many reports set each bit. That
    needs far less noise, so nobody may see a single report.

    With --relay and --analyzer two parties share the work, so that nobody sees who sent what.
    """
    with waiting(COMPUTING):
        agreed = plan(
            survey,
            q=q,
            crowd_size=crowd,
            epsilon=epsilon,
            delta=delta,
            eta=eta,
            promise=promise,
            window=window,
            honest_fraction=honest,
            view=view,
            local_epsilon=local_epsilon,
            **parties,
        )
    finish(agreed, [], output, plot, picture, as_json)


command.add_command(over_time)
command.add_command(diff)
