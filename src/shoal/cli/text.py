"""`shoal decode` and `shoal discover`."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import click

from shoal.analysis.tally import Tally
from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.protocol.plan import Plan
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.analysis.text.results import DecodedTexts


@cli.command("shoal decode plan.json tally.json candidates.txt")
@click.argument("plan_file", type=cli.IN_FILE, required=False, metavar="PLAN.json")
@click.argument("tally_file", type=cli.IN_FILE, required=False, metavar="TALLY.json")
@click.argument("candidate_file", type=cli.IN_FILE, required=False, metavar="CANDIDATES")
@cli.option(
    "--rappor", "Instead: decode a RAPPOR collection, PARAMS.csv COUNTS.csv MAP.csv.", is_flag=True
)
@cli.question_option
@cli.option("--column", "Which column of a table holds the candidates.", metavar="NAME")
@cli.fdr_option(0.05)
@cli.level_option
@cli.top_option(20)
@cli.plot_option
@cli.option("--propose", "Instead: propose the size of a text question.", is_flag=True)
@cli.option("--dictionary", "With --propose: how many candidates.", type=cli.WHOLE, metavar="K")
@cli.promise_options(when="With --propose")
@cli.view_option(when="With --propose")
@cli.option(
    "--max-bits", "With --propose: the largest report, in bits.", type=cli.WHOLE, default=1024
)
@cli.json_option
def decode(
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

    With --rappor the three files are those of a RAPPOR collection, and the promises made to the
    people in it are printed beside the results.
    """
    from shoal.analysis.text.decode import decode, read_candidates
    from shoal.analysis.text.rappor import decode_rappor

    files = (plan_file, tally_file, candidate_file)
    cli.check_plot(plot)
    if propose:
        if any(files) or rappor:
            raise InputError("--propose takes no files; use it before you make a plan.")
        _propose(fdr, as_json, **size)
        return
    if plan_file is None or tally_file is None or candidate_file is None:
        if rappor:
            raise InputError(
                "--rappor needs PARAMS.csv, COUNTS.csv and MAP.csv, as google/rappor writes them."
            )
        raise InputError("decode needs a plan, a tally and candidates, in this order.")
    texts: DecodedTexts
    if rappor:
        name = question or "value"
        collection = decode_rappor(
            plan_file, tally_file, candidate_file, fdr=fdr, level=level, name=name
        )
        texts, document = collection.texts, collection.to_json()
    else:
        plan = Plan.read(plan_file)
        tally = Tally.read(tally_file, plan)
        candidates = read_candidates(candidate_file, column)
        with out.progress("hashing candidates", len(candidates)) as advance:
            texts = decode(
                plan, tally, candidates, question=question, fdr=fdr, level=level, progress=advance
            )
        document = texts.to_json()
    if plot is not None:
        from shoal.reports.plots import save
        from shoal.reports.plots.results import plot_texts

        save(plot_texts(texts, max(1, min(top, 40))), plot)
    if as_json:
        out.print_json(document)
        return
    _show_texts(document, top)
    if rappor:
        _show_promises(document)


def _propose(
    fdr: float,
    as_json: bool,
    dictionary: int | None,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    view: Any,
    max_bits: int,
) -> None:
    if dictionary is None or crowd is None or epsilon is None or delta is None:
        raise InputError("--propose needs --dictionary, --crowd, --epsilon and --delta.")
    from shoal.planning.text_size import suggest_text_size

    size = suggest_text_size(
        dictionary, crowd, epsilon, delta, view=view, fdr=fdr, max_bits=max_bits
    )
    if as_json:
        names = ["bits", "hashes", "cohorts", "q", "sigma", "detectable", "report_bytes"]
        out.print_json({"view": view} | {name: getattr(size, name) for name in names})
        return
    click.echo(f"bits = {size.bits}\nhashes = {size.hashes}\ncohorts = {size.cohorts}")
    click.echo(
        f"# flip probability {text_near(size.q, 6)}; sigma of a count {size.sigma:,.0f}"
        f" people; a text of {size.detectable:,} people is found with probability 0.95"
    )


def _show_texts(document: dict[str, Any], top: int) -> None:
    """Print the texts that were found, and the reports that they do not explain."""
    console = out.printer()
    candidates, reports = document["candidates"], document["reports"]
    found = [row for row in candidates if row["found"]]
    out.show_title(
        console,
        document["question"],
        f"{reports:,} reports, {len(found):,} of {len(candidates):,} candidates found at a false"
        f" discovery rate of {text_near(document['fdr'])}",
        document["simulated"],
    )
    if document["notes"]:
        out.show_bullets(console, document["notes"])
    rows = []
    for row in found[:top]:
        sigma, low, high = (f"{row[key]:,.0f}" for key in ("sigma", "low", "high"))
        count, share = f"{row['count']:,.0f}", f"{row['count'] / reports:.2%}"
        rows.append((same_texts(row), count, share, sigma, low, high))
    console.print(out.table(["text", "count", "share", "sigma", "low", "high"], rows))
    if len(found) > top:
        console.print(f"{top:,} of {len(found):,} shown; see --top, or --json for all candidates")
    console.print(
        f"unexplained: {document['unexplained']:,.0f} reports,"
        f" sigma {document['unexplained_sigma']:,.0f}"
    )
    for group in document["alike"][:5]:
        console.print(f"hard to tell apart: {', '.join(group[:8])}", markup=False)


def same_texts(row: dict[str, Any]) -> str:
    """Name a candidate, with those that have the same bits."""
    return " = ".join([row["value"], *row.get("same_as", [])[:3]])


def _show_promises(document: dict[str, Any]) -> None:
    """Print what RAPPOR promised to the people whose reports were decoded."""
    console = out.printer()
    low, high = document["together"]
    console.print(
        f"all texts together: {low:.2%} to {high:.2%} of the reports at {document['level']:g}; 100%"
        " if the files belong together and popular texts are candidates"
    )
    numbers = document["rappor"]
    shown = ", ".join(f"{name} = {text_near(numbers[name], 6)}" for name in ("h", "p", "q", "f"))
    console.print(f"\nPromise to each person, with {shown}:")
    for promise in document["promises"]:
        epsilon = promise["epsilon"]
        bound = "no bound" if epsilon is None else text_near(epsilon, 6)
        console.print(
            f"{promise['name']:18}{bound}, against {promise['against']} ({promise['status']};"
            f" {promise['source']})"
        )
    if not numbers["f"]:
        console.print("f = 0: nothing is permanent, so reports of one person average away.")


@cli.command("shoal discover plan.json tally.json")
@click.argument("plan_file", type=cli.IN_FILE, required=False, metavar="PLAN.json")
@click.argument("tally_file", type=cli.IN_FILE, required=False, metavar="TALLY.json")
@cli.top_option()
@cli.fdr_option(0.0001)
@cli.option(
    "--candidates",
    "Maximum number of candidates built from letter pairs.",
    type=cli.WHOLE,
    default=5000,
)
@cli.level_option
@cli.option("--make", "Instead: write such a survey.", type=cli.OUT_FILE, metavar="SURVEY.toml")
@cli.option("--length", "With --make: letters of the longest word.", type=cli.WHOLE, metavar="L")
@cli.option("--alphabet", "With --make: allowed letters.", default=ascii_lowercase)
@cli.option("--question", "Name of the text question (with --make: word by default).")
@cli.option("--bits", "With --make: size of a report.", type=cli.WHOLE, default=1024)
@cli.json_option
def discover(
    plan_file: Path | None,
    tally_file: Path | None,
    make: Path | None,
    question: str | None,
    length: int | None,
    alphabet: str,
    bits: int,
    as_json: bool,
    **search: Any,
) -> None:
    """Find frequent words without a list of candidates.

    It needs a survey written with --make. Use that survey with `shoal plan`, `randomize` and
    `tally` as usual; its answers are one column with the word. A tally of fewer reports than the
    plan's crowd is refused (exit code 3).
    """
    from shoal.analysis.text.discovery import discover

    if make is not None:
        if plan_file is not None:
            raise InputError("--make takes no files; use it before you make a plan.")
        _make_survey(make, length, alphabet, question or "word", bits, as_json)
        return
    if plan_file is None or tally_file is None:
        raise InputError("discover needs a plan and a tally, or --make to write a survey.")
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    document = discover(plan, tally, question=question, **search).to_json()
    if as_json:
        out.print_json(document)
        return
    console = out.printer()
    out.show_title(
        console,
        document["question"],
        f"{tally.reports:,} reports, {document['candidates']:,} candidates,"
        f" {document['found']:,} words found",
        document["simulated"],
    )
    rows = [
        (row["word"], f"{row['count']:,.0f}", *out.outward(row["low"], row["high"]))
        for row in document["words"]
    ]
    if rows:
        console.print(out.table(["word", "count", "low", "high"], rows))
    if document["notes"]:
        out.show_bullets(console, document["notes"])


def _make_survey(
    output: Path, length: int | None, alphabet: str, question: str, bits: int, as_json: bool
) -> None:
    from shoal.planning.text_size import discovery_survey

    if length is None:
        raise InputError("--make needs --length, the letters of the longest word to find.")
    if output.suffix.lower() != ".toml":
        raise InputError(f"a survey is written as .toml, got {output.name!r}.")
    survey = discovery_survey(output.stem, length, alphabet=alphabet, question=question, bits=bits)
    write_text(output, survey.to_toml())
    if as_json:
        out.print_json(survey.to_json() | {"bits": survey.bits, "output": str(output)})
    else:
        click.echo(
            f"survey {survey.name} of {survey.bits:,} bits written to {output}; answers have one"
            f" column, {question}."
        )
