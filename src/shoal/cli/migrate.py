"""`shoal migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.support.rounding import text_near


@cli.command("shoal migrate params.csv --crowd 1000000 -o plan.json")
@click.argument("parameters", type=cli.IN_FILE, metavar="PARAMS.csv")
@cli.crowd_option()
@cli.delta_option(default="1e-6")
@cli.option("--name", "Name of the survey.", default="rappor")
@cli.new_file_options("the plan")
@cli.json_option
def migrate(
    parameters: Path,
    crowd: int | None,
    delta: str,
    name: str,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Turn RAPPOR parameters into a plan, and state its promise.

    PARAMS.csv has the header k,h,m,p,q,f and one row, as google/rappor writes it. A .json file with
    these keys works too.
    """
    from shoal.planning.rappor import RapporParameters, migrate

    if output is not None:
        cli.check_not_same(parameters, output)
    migration = migrate(RapporParameters.read(parameters), crowd_size=crowd, delta=delta, name=name)
    cli.write_plan(migration.plan, output, force)
    out.show_result(migration.to_json(), as_json, _show, output)


def _show(document: dict[str, Any], output: Path | None) -> None:
    console = out.printer()
    theirs, ours, bits = document["rappor"], document["plan"], document["effective"]
    numbers = document["parameters"].items()
    console.print(
        "RAPPOR: " + ", ".join(f"{name} = {text_near(value, 6)}" for name, value in numbers)
    )
    rows = [
        ("a clear bit is reported as 1", bits["p_star"], ours["q"]),
        ("a set bit is reported as 0", bits["set_bit_flipped"], ours["q"]),
        ("one report, local epsilon", theirs["local_epsilon"], ours["local_epsilon"]),
        (
            "all time, local epsilon per answer",
            theirs["all_time_epsilon"],
            ours["all_time_epsilon"],
        ),
    ]
    if crowd := document["crowd"]:
        at = f"proven epsilon at delta {text_near(crowd['delta'])}, crowd"
        rows.append((f"{at} of {crowd['size']:,}", crowd["proven_fresh_cohorts"], ours["epsilon"]))
        kept = f"{at} of {crowd['cohort_size']:,}, cohorts kept"
        rows.append((kept, crowd["proven_kept_cohorts"], ""))
    cells = [(words, *map(_number, values)) for words, *values in rows]
    console.print(out.table(["", "RAPPOR", "Shoal"], cells))
    console.print(
        f"RAPPOR's own formulas: epsilon_1 = {_number(theirs['epsilon_1'])},"
        f" epsilon_infinity = {_number(theirs['epsilon_infinity'])}"
    )
    out.show_bullets(console, document["notes"])
    out.show_written(console, output, "plan written to")


def _number(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else text_near(value, 6)
