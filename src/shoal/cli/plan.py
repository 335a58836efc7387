"""`shoal plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._common import OUT_FILE, json_option, print_json, printer, survey_options
from shoal.errors import InputError
from shoal.intervals import sigma
from shoal.planning import plan
from shoal.plans import Plan
from shoal.survey import Survey


@click.command()
@survey_options
@click.option("--q", metavar="Q", help="A given lie probability, in (0, 1/2].")
@click.option("--crowd", type=int, metavar="N", help="Reports released together.")
@click.option("--epsilon", metavar="E", help="The privacy wanted.")
@click.option("--promise", type=click.Choice(["local"]), help="What shall hold.")
@click.option("-o", "--output", type=OUT_FILE, help="Where to write the plan.")
@json_option
def command(
    survey: Survey | None,
    q: str | None,
    crowd: int | None,
    epsilon: str | None,
    promise: Any,
    output: Path | None,
    as_json: bool,
) -> None:
    """Choose how much each device lies, and write down what was agreed."""
    if survey is None:
        raise InputError("name a survey file, or use --flags, --choice or --choices.")
    made = plan(survey, q=q, crowd_size=crowd, epsilon=epsilon, promise=promise)
    if output is not None:
        made.write(output)
    if as_json:
        print_json(_document(made))
    else:
        _show(made, output)


def _document(made: Plan) -> dict[str, Any]:
    return {
        "id": made.id,
        "q": float(made.q),
        "q_fraction": made.q.to_json(),
        "bits": made.bits,
        "crowd_size": made.crowd_size,
        "promise": made.promise.kind,
        "epsilon": float(made.promise.epsilon),
        "delta": None,
        "eta": None,
        "sigma_count": _sigma(made),
    }


def _sigma(made: Plan) -> float | None:
    if made.crowd_size is None or made.q.is_blind:
        return None
    return sigma(0, made.crowd_size, float(made.q), "crowd")


def _show(made: Plan, output: Path | None) -> None:
    console = printer()
    console.print(f"[bold]{made.survey.name}[/bold]: {made.bits} bits a report", highlight=False)
    console.print(f"lie probability q   {made.q}")
    console.print(f"promise             {made.promise.kind}, epsilon {made.promise.epsilon}")
    console.print(f"crowd               {made.crowd_size or 'none needed'}")
    console.print(f"plan id             {made.id}")
    if output is not None:
        console.print(f"written to          {output}")
