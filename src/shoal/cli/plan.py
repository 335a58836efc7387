"""`shoal plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.agreement.plan import Plan
from shoal.agreement.survey import Survey
from shoal.cli._common import (
    OUT_FILE,
    json_option,
    plot_options,
    print_json,
    printer,
    survey_options,
)
from shoal.cli._plan_diff import EPILOG, PlanOrDiff
from shoal.errors import InputError
from shoal.planning.plan import plan
from shoal.planning.promise import check_promise

if TYPE_CHECKING:
    from shoal.planning.over_time import Statement


@click.command(cls=PlanOrDiff, epilog=EPILOG)
@survey_options
@click.option("--crowd", type=int, metavar="N", help="Reports released together.")
@click.option("--epsilon", metavar="E", help="The privacy wanted.")
@click.option("--delta", metavar="D", help="With a proven promise: the delta wanted.")
@click.option("--eta", metavar="H", help="With a sufficient promise: the eta wanted.")
@click.option("--q", metavar="Q", help="A given flip probability, in (0, 1/2].")
@click.option(
    "--promise",
    type=click.Choice(["proven", "sufficient", "three-sigma", "local"]),
    help="What shall hold; proven if nothing else is said.",
)
@click.option(
    "--window", type=int, metavar="SECONDS", help="Ask people once in each window of this length."
)
@click.option("--honest", metavar="PART", help="The part of every crowd that is taken for honest.")
@click.option("--horizon", metavar="WORDS", help="With memory: 'daily for a year' and the like.")
@click.option("--releases", type=int, metavar="R", help="With memory: reports of one person.")
@click.option("--lifetime", metavar="E", help="With memory: what all of them may reveal.")
@click.option(
    "--distinct-answers", type=int, metavar="K", help="With memory: answers a person may have."
)
@click.option("--fresh", metavar="PART", help="With memory: the part of flips that is fresh.")
@click.option("-o", "--output", type=OUT_FILE, help="Where to write the plan.")
@plot_options("precision")
@json_option
def command(
    survey: Survey | None,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    eta: str | None,
    q: str | None,
    promise: Any,
    window: int | None,
    honest: str | None,
    horizon: str | None,
    releases: int | None,
    lifetime: str | None,
    distinct_answers: int | None,
    fresh: str | None,
    output: Path | None,
    plot: Path | None,
    picture: Any,
    as_json: bool,
) -> None:
    """Choose how often each device flips a bit, and write down what was agreed.

    Of --q, --crowd, --epsilon and --delta one may be left out; it is solved for, rounded the safe
    way and certified.

    With --horizon or --releases the same people report again: flips become partly permanent, so
    that they do not average away, and what holds over time is stated.
    """
    if survey is None:
        raise InputError("name a survey file, or use --flags, --choice or --choices.")
    over_time: list[Statement] = []
    if horizon is None and releases is None:
        if (lifetime, distinct_answers, fresh) != (None, None, None):
            raise InputError(
                "--lifetime, --distinct-answers and --fresh need --horizon or --releases."
            )
        made = plan(
            survey,
            q=q,
            crowd_size=crowd,
            epsilon=epsilon,
            delta=delta,
            eta=eta,
            promise=promise,
            window=window,
            honest_fraction=honest,
        )
    else:
        from shoal.planning.over_time import parse_horizon, plan_with_memory, statements

        if crowd is None or epsilon is None or delta is None or q or eta:
            raise InputError(
                "a plan with memory takes --crowd, --epsilon and --delta, and gives q."
            )
        if window is not None or honest is not None:
            raise InputError(
                "a plan with memory takes its window from --horizon, and no --honest yet."
            )
        if promise not in (None, "proven"):
            raise InputError(f"a plan with memory has a proven promise, not a {promise} one.")
        made = plan_with_memory(
            survey,
            crowd_size=crowd,
            epsilon=epsilon,
            delta=delta,
            releases=releases,
            horizon=horizon,
            lifetime_epsilon=lifetime,
            distinct_answers=1 if distinct_answers is None else distinct_answers,
            instantaneous="0.5" if fresh is None else fresh,
        )
        count = parse_horizon(horizon).releases if horizon is not None else releases
        assert count is not None
        over_time = statements(made, count)
    if output is not None:
        made.write(output)
    if plot is not None:
        from shoal.charts import plot_picture, save

        save(plot_picture(picture, made), plot)
    if as_json:
        print_json(_document(made, over_time))
    else:
        _show(made, over_time, output)


def _document(made: Plan, over_time: list[Statement]) -> dict[str, Any]:
    certificate = _certificate(made)
    promise = check_promise(made).promise
    document = {
        "id": made.id,
        "q": float(made.q),
        "q_fraction": made.q.to_json(),
        "bits": made.bits,
        "crowd_size": made.crowd_size,
        "reports_needed": None if made.crowd_size is None else made.reports_needed,
        "window": made.window,
        "promise": promise.kind,
        "epsilon": float(promise.epsilon),
        "delta": None if promise.delta is None else float(promise.delta),
        "eta": None if promise.eta is None else float(promise.eta),
        "sigma_count": certificate["sigma_count"] if certificate else None,
        "certificate": certificate,
    }
    if made.memory is not None:
        document["memory"] = {"q1": float(made.memory.q1), "q2": float(made.memory.q2)}
        document["statements"] = [one.to_json() for one in over_time]
    return document


def _certificate(made: Plan) -> dict[str, Any] | None:
    if made.crowd_size is None:
        return None
    from shoal.planning.certificate import audit

    return audit(made).to_json(epsilon=float(made.promise.epsilon))


def _show(made: Plan, over_time: list[Statement], output: Path | None) -> None:
    from rich.markup import escape

    from shoal.cli._certificate import show_statements

    console = printer()
    size = "1 bit" if made.bits == 1 else f"{made.bits} bits"
    console.print(f"[bold]{escape(made.survey.name)}[/bold]: {size} a report")
    console.print(f"flip probability  {made.q}")
    if made.memory is not None:
        console.print(f"  permanent      {made.memory.q1}")
        console.print(f"  fresh on top   {made.memory.q2}")
    console.print(f"promise          {check_promise(made).in_words}")
    crowd = str(made.crowd_size or "none needed")
    if made.crowd_size is not None and made.reports_needed > made.crowd_size:
        crowd += f" honest reports, released with {made.reports_needed} in all"
    console.print(f"crowd            {crowd}")
    if made.window is not None:
        console.print(f"window           {made.window} seconds; a crowd must fill within one")
    if made.crowd_size is not None:
        from shoal.planning.certificate import audit

        sigma = audit(made).sigma
        share = sigma / made.crowd_size
        console.print(
            f"precision        sigma of a count {sigma:,.0f} people, {share:.2%} of the crowd"
        )
    console.print(f"plan id          {made.id}", soft_wrap=True)
    if output is not None:
        console.print(f"written to       {escape(str(output))}", soft_wrap=True)
    if over_time:
        show_statements([one.to_json() for one in over_time])
