"""`shoal discover`."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import click

from shoal.analysis.tally import Tally
from shoal.analysis.text.discovery import discover
from shoal.cli._commands import Command
from shoal.cli._options import IN_FILE, OUT_FILE, fdr_option, json_option, level_option, top_option
from shoal.cli._printing import outward, print_json, printer, show_bullets, show_simulated
from shoal.cli._types import WHOLE
from shoal.errors import InputError
from shoal.planning.text_size import discovery_survey
from shoal.protocol.plan import Plan
from shoal.support.files import write_text


@click.command(cls=Command, example="shoal discover plan.json tally.json")
@click.argument("plan_file", type=IN_FILE, required=False, metavar="PLAN.json")
@click.argument("tally_file", type=IN_FILE, required=False, metavar="TALLY.json")
@top_option()
@fdr_option(0.0001)
@click.option(
    "--candidates",
    type=WHOLE,
    default=5000,
    show_default=True,
    help="The most candidates to build from letter pairs.",
)
@level_option
@click.option("--make", type=OUT_FILE, metavar="SURVEY.toml", help="Instead: write such a survey.")
@click.option("--length", type=WHOLE, metavar="L", help="With --make: letters of the longest word.")
@click.option(
    "--alphabet", default=ascii_lowercase, show_default=True, help="With --make: allowed letters."
)
@click.option("--question", help="Name of the text question (with --make: word by default).")
@click.option(
    "--bits", type=WHOLE, default=1024, show_default=True, help="With --make: size of a report."
)
@json_option
def command(
    plan_file: Path | None,
    tally_file: Path | None,
    top: int | None,
    fdr: float,
    candidates: int,
    level: float,
    make: Path | None,
    question: str | None,
    as_json: bool,
    **form: Any,
) -> None:
    """Find frequent words without a list of candidates.

    It needs a survey written with --make. Use that survey with `shoal plan`, `randomize` and
    `tally` as usual; its answers are one column with the word. A tally of fewer reports than the
    plan's crowd is refused (exit code 3).
    """
    if make is not None:
        if plan_file is not None:
            raise InputError("--make takes no files; use it before you make a plan.")
        _make(make, as_json, question=question or "word", **form)
        return
    if plan_file is None or tally_file is None:
        raise InputError("discover needs a plan and a tally, or --make to write a survey.")
    plan = Plan.read(plan_file)
    tally = Tally.read(tally_file, plan)
    discovery = discover(
        plan, tally, question=question, top=top, fdr=fdr, level=level, candidates=candidates
    )
    document = discovery.to_json()
    if as_json:
        print_json(document)
    else:
        _show(document, tally.reports)


def _make(
    output: Path, as_json: bool, length: int | None, alphabet: str, question: str, bits: int
) -> None:
    if length is None:
        raise InputError("--make needs --length, the letters of the longest word to find.")
    if output.suffix.lower() != ".toml":
        raise InputError(f"a survey is written as .toml, got {output.name!r}.")
    survey = discovery_survey(output.stem, length, alphabet=alphabet, question=question, bits=bits)
    write_text(output, survey.to_toml())
    if as_json:
        print_json(survey.to_json() | {"bits": survey.bits, "output": str(output)})
    else:
        click.echo(
            f"survey {survey.name} of {survey.bits:,} bits written to {output}; answers have one"
            f" column, {question}."
        )


def _show(document: dict[str, Any], reports: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    console.print(
        f"[bold]{escape(document['question'])}[/bold]: {reports:,} reports,"
        f" {document['candidates']:,} candidates, {document['found']:,} words found"
    )
    show_simulated(console, document)
    if document["words"]:
        table = Table(box=None, pad_edge=False)
        table.add_column("word", overflow="fold")
        for name in ("count", "low", "high"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in document["words"]:
            bounds = outward(row["low"], row["high"])
            table.add_row(escape(row["word"]), f"{row['count']:,.0f}", *bounds)
        console.print(table)
    if document["notes"]:
        show_bullets(console, document["notes"])
