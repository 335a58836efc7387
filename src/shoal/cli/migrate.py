"""`shoal migrate`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import arg, opt
from shoal.support.rounding import text_near


@cli.command("shoal migrate params.csv --crowd 1000000 --delta 1e-9 -o plan.json")
def migrate(
    parameters: Path = arg("PARAMS.csv"),
    crowd_size: int | None = cli.CROWD,
    delta: str = cli.DELTA.but(default="1e-6"),
    name: str = opt("Name of the survey.", default="rappor"),
    output: cli.OutFile | None = cli.output("the plan"),
    force: bool = cli.FORCE,
    accept_weak_promise: bool = cli.ACCEPT_WEAK_PROMISE,
) -> out.Result:
    """Turn RAPPOR parameters into a plan, and state its promise.

    PARAMS.csv has the header k,h,m,p,q,f and one row, as google/rappor writes it. A .json file with
    these keys works too.
    """
    from shoal.planning.rappor import RapporParameters, migrate

    if output is not None:
        cli.check_not_same(parameters, output)
    read = RapporParameters.read(parameters)
    promise: Any = {"delta": delta, "accept_weak_promise": accept_weak_promise}
    migration = migrate(read, crowd_size=crowd_size, name=name, **promise)
    cli.write_plan(migration.plan, output, force)
    document = migration.to_json()
    return out.Result(document, chain(_show(document), out.written(output, "plan written to")))


def _show(document: dict[str, Any]) -> out.Pieces:
    theirs, ours, bits = document["rappor"], document["plan"], document["effective"]
    numbers = document["parameters"].items()
    yield "RAPPOR: " + ", ".join(f"{name} = {text_near(value, 6)}" for name, value in numbers)
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
    yield out.table(["", "RAPPOR", "Shoal"], cells)
    yield (
        f"RAPPOR's own formulas: epsilon_1 = {_number(theirs['epsilon_1'])},"
        f" epsilon_infinity = {_number(theirs['epsilon_infinity'])}"
    )
    yield out.bullets(document["notes"])


def _number(value: float | str | None) -> str:
    return "none" if value is None else value if isinstance(value, str) else text_near(value, 6)
