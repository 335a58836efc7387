"""`shoal survey`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli._commands import Command, PlainOrSubcommand
from shoal.cli._options import (
    IN_FILE,
    check_new,
    crowd_option,
    delta_option,
    epsilon_option,
    force_option,
    json_option,
    output_option,
    survey_options,
    view_option,
)
from shoal.cli._printing import print_json, printer, show_bullets
from shoal.cli._waiting import COMPUTING, waiting
from shoal.errors import InputError
from shoal.planning.costs import QuestionCost, survey_costs
from shoal.protocol.survey import Survey
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.device.arrays.infer_survey import SurveyProposal


@click.command(
    cls=PlainOrSubcommand,
    example="shoal survey survey.toml --crowd 10000 --epsilon 1 --delta 1e-6",
)
@survey_options
@crowd_option()
@epsilon_option()
@delta_option()
@view_option()
@json_option
def command(
    survey: Survey,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    view: Any,
    as_json: bool,
) -> None:
    """Show what each question of a survey costs, or propose a survey.

    Every question adds flips to all bits. With --crowd, --epsilon and --delta the cost of each
    question is computed: the error of all other counts if it were not asked. Without them only the
    sizes are shown.
    """
    if None in (crowd, epsilon, delta):
        if (crowd, epsilon, delta) != (None, None, None):
            raise InputError("the costs of questions need --crowd, --epsilon and --delta.")
        document = {
            "survey": survey.name,
            "bits": survey.bits,
            "differing_bits": survey.differing_bits,
            "questions": [QuestionCost(question, None, None).to_json() for question in survey],
        }
    else:
        assert crowd is not None
        with waiting(COMPUTING):
            costs = survey_costs(survey, crowd_size=crowd, epsilon=epsilon, delta=delta, view=view)
        document = costs.to_json()
    if as_json:
        print_json(document)
    else:
        _show_costs(document)


def _show_costs(document: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = printer()
    console.print(
        f"[bold]{escape(document['survey'])}[/bold]: {document['bits']:,} bits, two answers differ"
        f" in up to {document['differing_bits']:,}"
    )
    known = "sigma" in document
    if known:
        console.print(
            f"q {text_near(document['q'])}, sigma of a count {text_near(document['sigma'], 3)} of"
            f" {document['crowd_size']:,} people"
        )
    table = Table(box=None, pad_edge=False)
    table.add_column("question", overflow="fold")
    table.add_column("kind", no_wrap=True)
    for name in ["bits", "differ", *(["sigma without", "cost"] if known else [])]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in document["questions"]:
        sigma, costs = row["sigma_without"], []
        if known:
            costs = ["", "all"]
            if sigma is not None:
                costs = [text_near(sigma, 3), f"{document['sigma'] / sigma - 1:+.0%}"]
        sizes = [f"{row[key]:,}" for key in ("bits", "differing_bits")]
        table.add_row(escape(row["name"]), row["kind"], *sizes, *costs)
    console.print(table)
    if known:
        console.print("cost: how much larger the error of the others is because this is asked")


@command.command("from", cls=Command, example="shoal survey from data.csv -o survey.toml")
@click.argument("data", type=IN_FILE, metavar="DATA.csv")
@click.option("--name", metavar="NAME", help="Name of the survey.")
@output_option("the survey, as .toml,")
@force_option
@json_option
def from_table(
    data: Path, name: str | None, output: Path | None, force: bool, as_json: bool
) -> None:
    """Propose a survey from a table of answers, and say what was seen.

    DATA is a .csv or .parquet file with one row per person. Each column becomes a question of the
    kind that fits it, or is left out with a reason, for example because it looks like an
    identifier. Options and ranges are taken from the data: read the survey before you publish it.
    """
    from shoal.device.arrays.infer_survey import infer_survey

    check_new(output, force)
    proposal = infer_survey(data, name=name)
    if output is not None:
        write_text(output, proposal.to_toml())
    if as_json:
        print_json(proposal.to_json())
    elif output is None:
        click.echo(proposal.to_toml(), nl=False)
    if not as_json:
        _show(proposal, output)


def _show(proposal: SurveyProposal, output: Path | None) -> None:
    """Say what was seen: on stderr where the survey itself is on stdout."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, stderr=output is None)
    survey = proposal.survey
    console.print(
        f"[bold]{escape(survey.name)}[/bold]: {len(survey.asked):,} questions, {survey.bits:,} bits"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("column", overflow="fold", max_width=24)
    table.add_column("kind", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for one in proposal.columns:
        table.add_row(escape(one.column), one.kind, escape(one.seen))
    console.print(table)
    console.print()
    show_bullets(console, proposal.notes)
    if output is not None:
        console.print(f"survey written to {escape(str(output))}", soft_wrap=True)
