"""`shoal migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    check_not_same,
    crowd_option,
    delta_option,
    force_option,
    json_option,
    output_option,
    write_plan,
)
from shoal.cli._printing import print_json, printer, show_bullets
from shoal.planning.rappor import RapporParameters, migrate
from shoal.support.rounding import text_near


@click.command(cls=Command, example="shoal migrate params.csv --crowd 1000000 -o plan.json")
@click.argument("parameters", type=IN_FILE, metavar="PARAMS.csv")
@crowd_option()
@delta_option(default="1e-6")
@click.option("--name", default="rappor", show_default=True, help="Name of the survey.")
@output_option("the plan")
@force_option
@json_option
def command(
    parameters: Path,
    crowd: int | None,
    delta: str,
    name: str,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Turn RAPPOR parameters into a plan, and say what it promises.

    PARAMS.csv has the header k,h,m,p,q,f and one row, as google/rappor writes it. A .json file with
    these keys works too.
    """
    if output is not None:
        check_not_same(parameters, output)
    migration = migrate(RapporParameters.read(parameters), crowd_size=crowd, delta=delta, name=name)
    write_plan(migration.plan, output, force)
    if as_json:
        print_json(migration.to_json())
    else:
        _show(migration.to_json(), output)


def _show(document: dict[str, Any], output: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    parameters, theirs, ours = document["parameters"], document["rappor"], document["plan"]
    console.print(
        "RAPPOR: "
        + ", ".join(f"{name} = {text_near(value, 6)}" for name, value in parameters.items())
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "RAPPOR", "Shoal"):
        table.add_column(name, justify="right" if name else "left")
    stars = document["effective"]
    table.add_row("a clear bit is reported as 1", _number(stars["p_star"]), _number(ours["q"]))
    table.add_row(
        "a set bit is reported as 0", _number(stars["set_bit_flipped"]), _number(ours["q"])
    )
    pairs = [("one report, local epsilon", "local_epsilon")]
    pairs += [("all time, local epsilon per answer", "all_time_epsilon")]
    for words, key in pairs:
        table.add_row(words, _number(theirs[key]), _number(ours[key]))
    if document["crowd"]:
        crowd = document["crowd"]
        at = f"proven epsilon at delta {text_near(crowd['delta'])}, crowd"
        fresh, permanent = crowd["proven_fresh_cohorts"], crowd["proven_kept_cohorts"]
        table.add_row(f"{at} of {crowd['size']:,}", _number(fresh), _number(ours["epsilon"]))
        table.add_row(f"{at} of {crowd['cohort_size']:,}, cohorts kept", _number(permanent), "")
    console.print(table)
    console.print(
        f"RAPPOR's own formulas: epsilon_1 = {_number(theirs['epsilon_1'])},"
        f" epsilon_infinity = {_number(theirs['epsilon_infinity'])}"
    )
    show_bullets(console, document["notes"])
    if output is not None:
        console.print(f"plan written to {escape(str(output))}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "none" if value is None else text_near(value, 6)
