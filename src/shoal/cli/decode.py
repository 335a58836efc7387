"""`shoal decode`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.analysis.tally import Tally
from shoal.cli._commands import Command
from shoal.cli._options import (
    IN_FILE,
    check_plot,
    crowd_option,
    delta_option,
    epsilon_option,
    fdr_option,
    json_option,
    level_option,
    plot_option,
    top_option,
    view_option,
)
from shoal.cli._printing import print_json, progress
from shoal.cli._texts import plot_decoded, show_promises, show_texts
from shoal.cli._types import WHOLE
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.rounding import text_near


@click.command(cls=Command, example="shoal decode plan.json tally.json candidates.txt")
@click.argument("plan_file", type=IN_FILE, required=False, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, required=False, metavar="TALLY.json")
@click.argument("candidate_file", type=IN_FILE, required=False, metavar="CANDIDATES")
@click.option(
    "--rappor",
    is_flag=True,
    help="Instead: decode a RAPPOR collection, PARAMS.csv COUNTS.csv MAP.csv.",
)
@click.option("--question", metavar="NAME", help="Which text question, if there are several.")
@click.option("--column", metavar="NAME", help="Which column of a table holds the candidates.")
@fdr_option(0.05)
@level_option
@top_option(20)
@plot_option
@click.option("--propose", is_flag=True, help="Instead: propose the size of a text question.")
@click.option("--dictionary", type=WHOLE, metavar="K", help="With --propose: how many candidates.")
@crowd_option(when="With --propose")
@epsilon_option(when="With --propose")
@delta_option(when="With --propose")
@view_option(when="With --propose")
@click.option(
    "--most-bits",
    type=WHOLE,
    default=1024,
    show_default=True,
    help="With --propose: the largest report, in bits.",
)
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
    rappor: bool,
    plot: Path | None,
    propose: bool,
    as_json: bool,
    **size: Any,
) -> None:
    """Find which texts a crowd answered, from a list of candidates.

    CANDIDATES is a text file with one candidate per line, or a .csv or .parquet table with
    --column. A tally of fewer reports than the plan's crowd is refused (exit code 3).

    With --rappor the three files are those of a collection that RAPPOR made, and what was promised
    to the people in it is printed beside what is found.
    """
    files = (plan_file, tally_file, candidate_file)
    check_plot(plot)
    if rappor:
        if propose or not all(files):
            raise InputError(
                "--rappor needs PARAMS.csv, COUNTS.csv and MAP.csv, as google/rappor writes them."
            )
        _decode_rappor(*files, question, fdr, level, top, plot, as_json)  # type: ignore[arg-type]
        return
    if propose:
        if any(files):
            raise InputError("--propose takes no files; use it before you make a plan.")
        _propose(fdr, as_json, **size)
        return
    if plan_file is None or tally_file is None or candidate_file is None:
        raise InputError("decode needs a plan, a tally and candidates, in this order.")
    from shoal.analysis.text import decode
    from shoal.analysis.text.decode import read_candidates

    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    candidates = read_candidates(candidate_file, column)
    with progress("hashing candidates", len(candidates)) as advance:
        decoded = decode(
            plan, tally, candidates, question=question, fdr=fdr, level=level, progress=advance
        )
    plot_decoded(decoded, plot, top)
    document = decoded.to_json()
    if as_json:
        print_json(document)
    else:
        show_texts(document, top)


def _decode_rappor(
    parameters: Path,
    counts: Path,
    candidates: Path,
    name: str | None,
    fdr: float,
    level: float,
    top: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    from shoal.analysis.text.rappor import decode_rappor

    decoded = decode_rappor(
        parameters, counts, candidates, fdr=fdr, level=level, name=name or "value"
    )
    plot_decoded(decoded.texts, plot, top)
    document = decoded.to_json()
    if as_json:
        print_json(document)
    else:
        show_texts(document, top)
        show_promises(document)


def _propose(
    fdr: float,
    as_json: bool,
    dictionary: int | None,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    view: Any,
    most_bits: int,
) -> None:
    if dictionary is None or crowd is None or epsilon is None or delta is None:
        raise InputError("--propose needs --dictionary, --crowd, --epsilon and --delta.")
    from shoal.planning.text_size import suggest_text_size

    proposal = suggest_text_size(
        dictionary, crowd, epsilon, delta, view=view, fdr=fdr, most_bits=most_bits
    )
    if as_json:
        print_json(
            {
                "view": view,
                "bits": proposal.bits,
                "hashes": proposal.hashes,
                "cohorts": proposal.cohorts,
                "q": proposal.q,
                "sigma": proposal.sigma,
                "detectable": proposal.detectable,
                "report_bytes": proposal.report_bytes,
            }
        )
        return
    click.echo(f"bits = {proposal.bits}\nhashes = {proposal.hashes}\ncohorts = {proposal.cohorts}")
    click.echo(
        f"# flip probability {text_near(proposal.q, 6)}; sigma of a count {proposal.sigma:,.0f}"
        f" people; a text of {proposal.detectable:,} people is found with probability 0.95"
    )
