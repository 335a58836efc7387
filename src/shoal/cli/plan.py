"""`shoal plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import PlainOrSubcommand
from shoal.cli._options import (
    chart_options,
    crowd_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    level_option,
    output_option,
    parties_options,
    q_option,
    survey_options,
    view_option,
)
from shoal.cli._plan_diff import diff
from shoal.cli._plan_over_time import over_time
from shoal.cli._plan_result import finish
from shoal.cli._types import DECIMAL, LENGTH
from shoal.cli._waiting import COMPUTING, waiting
from shoal.errors import InputError
from shoal.planning.plan import plan
from shoal.protocol.survey import Survey

if TYPE_CHECKING:
    from shoal.planning.costs import PeopleNeeded


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
    type=LENGTH,
    metavar="TIME",
    help="Each person reports at most once in a window of this length, such as 1d.",
)
@click.option(
    "--honest", metavar="PART", help="The part of each crowd that is honest, such as 0.9."
)
@click.option(
    "--within",
    type=DECIMAL,
    metavar="PART",
    help="Instead of --crowd: how many people know every share within this, such as 2%.",
)
@click.option(
    "--share",
    type=DECIMAL,
    metavar="PART",
    help="With --within: a share of a population that the people are a sample of.",
)
@level_option
@parties_options
@output_option("the plan")
@force_option
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
    within: float | None,
    share: float | None,
    level: float,
    parties: dict[str, Any],
    output: Path | None,
    force: bool,
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

    With --within the crowd is computed: as many people as it takes to know every share that well,
    in the view that is asked for. The other view's number is printed beside it.
    """
    needed = None
    if within is not None:
        needed, crowd = _people_needed(survey, epsilon, delta, within, share, level, crowd, q, view)
    elif share is not None:
        raise InputError("--share needs --within, how far off it may be.")
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
    finish(agreed, [], output, force, plot, picture, as_json, needed)


def _people_needed(
    survey: Survey,
    epsilon: str | None,
    delta: str | None,
    within: float,
    share: float | None,
    level: float,
    crowd: int | None,
    q: str | None,
    view: str,
) -> tuple[PeopleNeeded, int]:
    from shoal.planning.costs import people_needed  # it loads SciPy

    if crowd is not None or q is not None or epsilon is None or delta is None:
        raise InputError(
            "--within computes how many people are needed: give --epsilon and --delta, and neither"
            " --crowd nor --q."
        )
    with waiting(COMPUTING):
        needed = people_needed(
            survey, epsilon=epsilon, delta=delta, within=within, share=share, level=level
        )
    size = needed.counts if view == "counts" else needed.reports
    if size is None:
        raise InputError(
            f"no crowd of up to 10^12 people knows a share within {within:g} at this promise; allow"
            " a larger error, epsilon or delta."
        )
    return needed, size


command.add_command(over_time)
command.add_command(diff)
