"""`shoal migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli._common import IN_FILE, OUT_FILE, check_not_same, json_option, print_json, printer
from shoal.planning.rappor import RapporParameters, migrate


@click.command()
@click.argument("parameters", type=IN_FILE, metavar="PARAMS.csv")
@click.option("--crowd", type=int, metavar="N", help="Reports released together.")
@click.option(
    "--delta", default="1e-6", show_default=True, metavar="D", help="Delta of the proven promise."
)
@click.option("--name", default="rappor", show_default=True, help="What to call the survey.")
@click.option("-o", "--output", type=OUT_FILE, help="Where to write the plan.")
@json_option
def command(
    parameters: Path,
    crowd: int | None,
    delta: str,
    name: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Read RAPPOR parameters: the plan they mean and what it promises.

    PARAMS.csv has the header k,h,m,p,q,f and one row, as google/rappor writes it; a .json file is
    an object with these keys.
    """
    if output is not None:
        check_not_same(parameters, output)
    found = migrate(RapporParameters.read(parameters), crowd_size=crowd, delta=delta, name=name)
    if output is not None:
        found.plan.write(output)
    if as_json:
        print_json(found.to_json())
    else:
        _show(found.to_json(), output)


def _show(document: dict[str, Any], output: Path | None) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    given, theirs, ours = document["parameters"], document["rappor"], document["plan"]
    console.print("RAPPOR: " + ", ".join(f"{name} = {given[name]:g}" for name in given))
    table = Table(box=None, pad_edge=False)
    for name in ("", "RAPPOR", "Shoal"):
        table.add_column(name, justify="right" if name else "left")
    stars = document["effective"]
    table.add_row("a clear bit is reported as 1", f"{stars['p_star']:.6g}", f"{ours['q']:.6g}")
    table.add_row("a set bit is reported as 0", f"{1 - stars['q_star']:.6g}", f"{ours['q']:.6g}")
    pairs = [("one report, local epsilon", "local_epsilon")]
    pairs += [("all time, local epsilon per answer", "all_time_epsilon")]
    for words, key in pairs:
        table.add_row(words, _number(theirs[key]), _number(ours[key]))
    if document["crowd"]:
        crowd = document["crowd"]
        at = f"proven epsilon at delta {crowd['delta']:g}, crowd"
        fresh, kept = crowd["proven_fresh_cohorts"], crowd["proven_kept_cohorts"]
        table.add_row(f"{at} of {crowd['size']:,}", _number(fresh), _number(ours["epsilon"]))
        table.add_row(f"{at} of {crowd['cohort_size']:,}, cohorts kept", _number(kept), "")
    console.print(table)
    console.print(
        f"RAPPOR's own formulas: epsilon_1 = {_number(theirs['epsilon_1'])},"
        f" epsilon_infinity = {_number(theirs['epsilon_infinity'])}"
    )
    for note in document["notes"]:
        console.print(f"- {note}")
    if output is not None:
        console.print(f"plan written to {escape(str(output))}", soft_wrap=True)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"
