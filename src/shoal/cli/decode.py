"""`shoal decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.agreement.plan import Plan
from shoal.analysis.tallying import Tally
from shoal.cli._common import IN_FILE, json_option, level_option, print_json, printer, progress
from shoal.errors import InputError


@click.command()
@click.argument("plan_file", type=IN_FILE, required=False, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, required=False, metavar="TALLY.json")
@click.argument("candidate_file", type=IN_FILE, required=False, metavar="CANDIDATES")
@click.option("--question", metavar="NAME", help="Which text question, if there are several.")
@click.option("--column", metavar="NAME", help="Which column of a table holds the candidates.")
@click.option(
    "--fdr",
    type=float,
    default=0.05,
    show_default=True,
    help="Expected share of texts nobody answered among those found.",
)
@level_option
@click.option("--top", type=int, default=20, show_default=True, help="Lines of the table.")
@click.option("--propose", is_flag=True, help="Instead: propose the size of a text question.")
@click.option("--dictionary", type=int, metavar="D", help="With --propose: how many candidates.")
@click.option("--crowd", type=int, metavar="N", help="With --propose: the crowd.")
@click.option("--epsilon", metavar="E", help="With --propose: the promise.")
@click.option("--delta", metavar="D", help="With --propose: the promise.")
@click.option("--most-bits", type=int, default=1024, show_default=True, help="With --propose.")
@json_option
def command(
    plan_file: Path | None,
    tally_file: Path | None,
    candidate_file: Path | None,
    question: str | None,
    column: str | None,
    fdr: float,
    level: float,
    top: int,
    propose: bool,
    as_json: bool,
    **wish: Any,
) -> None:
    """Find which texts a crowd answered, from candidates.

    CANDIDATES are the lines of a text file, or a column of a .csv or .parquet table. A plan with a
    crowd refuses a tally of fewer reports (exit code 3).
    """
    files = (plan_file, tally_file, candidate_file)
    if propose:
        if any(files):
            raise InputError("--propose takes no files; it comes before the plan.")
        _propose(fdr, as_json, **wish)
        return
    if plan_file is None or tally_file is None or candidate_file is None:
        raise InputError("decode needs a plan, a tally and candidates, in this order.")
    from shoal.analysis.text import decode
    from shoal.analysis.text.candidates import read_candidates

    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    candidates = read_candidates(candidate_file, column)
    with progress("hashing candidates", len(candidates)) as advance:
        decoded = decode(
            plan, tally, candidates, question=question, fdr=fdr, level=level, progress=advance
        )
    document = decoded.to_json()
    if as_json:
        print_json(document)
    else:
        _show(document, top)


def _show(document: dict[str, Any], top: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    rows = document["candidates"]
    found = [row for row in rows if row["found"]]
    console.print(
        f"[bold]{escape(document['question'])}[/bold]: {document['reports']:,} reports,"
        f" {len(found):,} of {len(rows):,} candidates found at a false discovery rate of"
        f" {document['fdr']:g}"
    )
    if document["simulated"]:
        console.print("[yellow]simulated: these numbers are about nobody[/yellow]")
    for note in document["notes"]:
        console.print(f"note: {note}")
    table = Table(box=None, pad_edge=False)
    table.add_column("text", overflow="fold")
    for name in ("count", "sigma", "low", "high"):
        table.add_column(name, justify="right")
    for row in found[: max(top, 0)]:
        name = " = ".join([row["value"], *row.get("same_as", [])[:3]])
        numbers = [f"{row[key]:,.0f}" for key in ("count", "sigma", "low", "high")]
        table.add_row(escape(name), *numbers)
    console.print(table)
    if len(found) > top:
        console.print(f"and {len(found) - top:,} more; --top shows them, --json all candidates")
    console.print(
        f"unexplained: {document['unexplained']:,.0f} reports,"
        f" sigma {document['unexplained_sigma']:,.0f}"
    )
    for group in document["alike"][:5]:
        console.print(f"hard to tell apart: {escape(', '.join(group[:8]))}")


def _propose(
    fdr: float,
    as_json: bool,
    dictionary: int | None,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    most_bits: int,
) -> None:
    if dictionary is None or crowd is None or epsilon is None or delta is None:
        raise InputError("--propose needs --dictionary, --crowd, --epsilon and --delta.")
    from shoal.planning.text_size import propose

    made = propose(dictionary, crowd, epsilon, delta, fdr=fdr, most_bits=most_bits)
    if as_json:
        print_json(
            {
                "bits": made.bits,
                "hashes": made.hashes,
                "cohorts": made.cohorts,
                "q": made.q,
                "sigma": made.sigma,
                "detectable": made.detectable,
                "report_bytes": made.report_bytes,
            }
        )
        return
    click.echo(f"bits = {made.bits}\nhashes = {made.hashes}\ncohorts = {made.cohorts}")
    click.echo(
        f"# flip probability {made.q:.6g}; sigma of a count {made.sigma:,.0f} people; a text of"
        f" {made.detectable:,} people is found with probability 0.95"
    )
