"""`shoal plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
from shoal.planning import plan
from shoal.plans import Plan
from shoal.survey import Survey


@click.command(cls=PlanOrDiff, epilog=EPILOG)
@survey_options
@click.option("--crowd", type=int, metavar="N", help="Reports released together.")
@click.option("--epsilon", metavar="E", help="The privacy wanted.")
@click.option("--delta", metavar="D", help="With a proven promise: the delta wanted.")
@click.option("--eta", metavar="H", help="With a sufficient promise: the eta wanted.")
@click.option("--q", metavar="Q", help="A given lie probability, in (0, 1/2].")
@click.option(
    "--promise",
    type=click.Choice(["proven", "sufficient", "three-sigma", "local"]),
    help="What shall hold; proven if nothing else is said.",
)
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
    output: Path | None,
    plot: Path | None,
    picture: Any,
    as_json: bool,
) -> None:
    """Choose how much each device lies, and write down what was agreed.

    Of --q, --crowd, --epsilon and --delta one may be left out; it is solved for, rounded the safe
    way and certified.
    """
    if survey is None:
        raise InputError("name a survey file, or use --flags, --choice or --choices.")
    made = plan(
        survey, q=q, crowd_size=crowd, epsilon=epsilon, delta=delta, eta=eta, promise=promise
    )
    if output is not None:
        made.write(output)
    if plot is not None:
        from shoal.plotting import draw, save

        save(draw(picture, made), plot)
    if as_json:
        print_json(_document(made))
    else:
        _show(made, output)


def _document(made: Plan) -> dict[str, Any]:
    certificate = _certificate(made)
    promise = made.promise
    return {
        "id": made.id,
        "q": float(made.q),
        "q_fraction": made.q.to_json(),
        "bits": made.bits,
        "crowd_size": made.crowd_size,
        "promise": promise.kind,
        "epsilon": float(promise.epsilon),
        "delta": None if promise.delta is None else float(promise.delta),
        "eta": None if promise.eta is None else float(promise.eta),
        "sigma_count": certificate["sigma_count"] if certificate else None,
        "certificate": certificate,
    }


def _certificate(made: Plan) -> dict[str, Any] | None:
    if made.crowd_size is None:
        return None
    from shoal.auditing import audit

    return audit(made).to_json(epsilon=float(made.promise.epsilon))


def _show(made: Plan, output: Path | None) -> None:
    from rich.markup import escape

    from shoal.cli._certificate import promise_in_words

    console = printer()
    console.print(f"[bold]{escape(made.survey.name)}[/bold]: {made.bits} bits a report")
    console.print(f"lie probability  {made.q}")
    console.print(f"promise          {promise_in_words(made.promise)}")
    console.print(f"crowd            {made.crowd_size or 'none needed'}")
    if made.crowd_size is not None:
        from shoal.auditing import audit

        sigma = audit(made).sigma
        share = sigma / made.crowd_size
        console.print(
            f"precision        sigma of a count {sigma:,.0f} people, {share:.2%} of the crowd"
        )
    console.print(f"plan id          {made.id}", soft_wrap=True)
    if output is not None:
        console.print(f"written to       {escape(str(output))}", soft_wrap=True)
