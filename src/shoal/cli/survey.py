"""`shoal survey` and `shoal survey from`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.errors import InputError
from shoal.planning.costs import QuestionCost, survey_costs
from shoal.protocol.survey import Survey
from shoal.support.files import write_text
from shoal.support.rounding import text_near

if TYPE_CHECKING:
    from shoal.device.arrays.infer_survey import SurveyProposal


@click.command(
    cls=cli.CommandOrGroup,
    example="shoal survey survey.toml --crowd 10000 --epsilon 1 --delta 1e-6",
)
@cli.survey_options
@cli.promise_options()
@cli.view_option()
@cli.json_option
def survey(
    survey: Survey,
    crowd: int | None,
    epsilon: str | None,
    delta: str | None,
    view: Any,
    as_json: bool,
) -> None:
    """Show the cost of each question of a survey, or infer a survey.

    Every question adds flips to all bits. With --crowd, --epsilon and --delta the cost of each
    question is computed: the error of all other counts if it were not asked. Without them only the
    sizes are shown.
    """
    if crowd is None or epsilon is None or delta is None:
        if (crowd, epsilon, delta) != (None, None, None):
            raise InputError("the costs of questions need --crowd, --epsilon and --delta.")
        document = {
            "survey": survey.name,
            "bits": survey.bits,
            "differing_bits": survey.differing_bits,
            "questions": [QuestionCost(question, None, None).to_json() for question in survey],
        }
    else:
        with out.waiting():
            costs = survey_costs(survey, crowd_size=crowd, epsilon=epsilon, delta=delta, view=view)
        document = costs.to_json()
    out.show_result(document, as_json, _show_costs)


def _show_costs(document: dict[str, Any]) -> None:
    console = out.printer()
    differ = f"two answers differ in up to {document['differing_bits']:,}"
    out.show_title(console, document["survey"], f"{document['bits']:,} bits, {differ}")
    known = "sigma" in document
    if known:
        console.print(
            f"q {text_near(document['q'])}, sigma of a count {text_near(document['sigma'], 3)} of"
            f" {document['crowd_size']:,} people"
        )
    rows = []
    for row in document["questions"]:
        sigma, costs = row["sigma_without"], []
        if known:
            costs = ["", "all"]
            if sigma is not None:
                costs = [text_near(sigma, 3), f"{document['sigma'] / sigma - 1:+.0%}"]
        sizes = [f"{row[key]:,}" for key in ("bits", "differing_bits")]
        rows.append([row["name"], row["kind"], *sizes, *costs])
    columns = ["question", "kind", "bits", "differ", *(["sigma without", "cost"] if known else [])]
    console.print(out.table(columns, rows, left=2))
    if known:
        console.print("cost: how much larger the error of the others is because this is asked")


@survey.command("from", cls=cli.Command, example="shoal survey from data.csv -o survey.toml")
@click.argument("data", type=cli.IN_FILE, metavar="DATA.csv")
@cli.option("--name", "Name of the survey.", metavar="NAME")
@cli.new_file_options("the survey, as .toml,")
@cli.json_option
def from_table(
    data: Path, name: str | None, output: Path | None, force: bool, as_json: bool
) -> None:
    """Infer a survey from a table of answers, and explain each choice.

    DATA is a .csv or .parquet file with one row per person. Each column becomes a question of the
    kind that fits it, or is left out with a reason, for example because it looks like an
    identifier. Options and ranges are taken from the data: read the survey before you publish it.
    """
    from shoal.device.arrays.infer_survey import infer_survey

    cli.check_new(output, force)
    proposal = infer_survey(data, name=name)
    if output is not None:
        write_text(output, proposal.to_toml())
    if as_json:
        out.print_json(proposal.to_json())
        return
    if output is None:
        click.echo(proposal.to_toml(), nl=False)
    _show(proposal, output)


def _show(proposal: SurveyProposal, output: Path | None) -> None:
    """Print what the columns hold: on stderr if the survey itself is on stdout."""
    console = out.printer(stderr=output is None)
    survey = proposal.survey
    out.show_title(console, survey.name, f"{len(survey.asked):,} questions, {survey.bits:,} bits")
    rows = [(one.column, one.kind, one.seen) for one in proposal.columns]
    columns = out.table(["column", "kind", "seen"], rows, left=3)
    columns.columns[0].max_width, columns.columns[1].no_wrap = 24, True
    console.print(columns)
    console.print()
    out.show_bullets(console, proposal.notes)
    out.show_written(console, output, "survey written to")
